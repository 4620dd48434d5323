//! Few-shot examples in the prompt: the records of a task file that are most similar to the query.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Role;
use sporran_kilt::{Dataset, Query, Record, jsonl};
use sporran_transformers::{Text, TextEncoder, TextEncoderOptions};

use crate::{Error, Result};

/// `[generator.demonstrations]`: few-shot examples in the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DemonstrationsOptions {
    /// Task files with gold. Examples come from the query's dataset if it has records. The query's own record and records
    /// with the same input are never shown.
    pub files: Vec<PathBuf>,
    /// The number of examples, the most similar last. Fewer if they do not fit into the prompt with the passages.
    #[serde(default = "count")]
    pub count: usize,
    /// A folder of sentence-transformers whose vectors say how similar two inputs are, by the folder's own similarity and
    /// with its prompt for queries; without it shared words do, rare ones counting more.
    #[serde(default)]
    pub encoder: Option<PathBuf>,
    /// Words of an answer that are shown.
    #[serde(default = "answer_words")]
    #[schemars(extend("x-unit" = "words"))]
    pub answer_words: usize,
}

fn count() -> usize {
    4
}

fn answer_words() -> usize {
    60
}

/// An example: a query and an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Demonstration {
    /// The record as a query.
    pub query: Query,
    /// Its first gold answer, shortened.
    pub answer: String,
}

/// The similarity of inputs.
enum Similarity {
    /// By words: for each demonstration its words, sorted, and their weights.
    Words { weights: HashMap<String, f32>, rows: Vec<Vec<String>> },
    /// By vectors.
    Vectors { encoder: Box<TextEncoder>, vectors: Vec<Vec<f32>> },
}

/// The examples of task files.
pub struct Demonstrations {
    examples: Vec<Demonstration>,
    similarity: Similarity,
    count: usize,
}

/// The words of a text, each once: letters and digits in lower case.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_lowercase).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// The encoder of a folder, for queries.
fn open_encoder(folder: &Path) -> Result<TextEncoder> {
    match TextEncoder::load(&TextEncoderOptions::new(folder.to_owned()))? {
        Some(encoder) => Ok(encoder.for_role(Role::Query)?),
        None => Err(Error::Option {
            option: "demonstrations.encoder",
            expected: "a folder of sentence-transformers",
            found: folder.display().to_string(),
        }),
    }
}

fn vectors_of(encoder: &TextEncoder, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
    let values = encoder.encode(&texts)?;
    Ok(values.chunks_exact(encoder.width()).map(<[f32]>::to_vec).collect())
}

impl Demonstrations {
    /// Reads task files. Records without an input or an answer are left out.
    ///
    /// # Errors
    /// An error in a file, or with the encoder's folder.
    pub fn load(options: &DemonstrationsOptions) -> Result<Self> {
        let mut examples = Vec::new();
        for path in &options.files {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let dataset = Dataset::of_file_name(&name);
            for record in jsonl::open(path)?.records::<Record>() {
                let record = record?;
                let answer = record.outputs().iter().find_map(|output| output.answer.as_deref());
                let answer = answer.map(|answer| answer.split_whitespace().take(options.answer_words));
                let answer = answer.map(|words| words.collect::<Vec<_>>().join(" "));
                let query = Query::from_record(&record, dataset).ok();
                if let (Some(query), Some(answer)) = (query, answer.filter(|answer| !answer.is_empty())) {
                    examples.push(Demonstration { query, answer });
                }
            }
        }
        Self::of_examples(examples, options.count, options.encoder.as_deref())
    }

    /// Takes examples as they are; a prompt shows `count` of them. The similarity of two inputs is that of the `encoder`, a
    /// folder of sentence-transformers, or that of their words without one.
    ///
    /// # Errors
    /// An error in the encoder's folder.
    pub fn of_examples(examples: Vec<Demonstration>, count: usize, encoder: Option<&Path>) -> Result<Self> {
        let texts: Vec<&str> = examples.iter().map(|example| example.query.text.as_str()).collect();
        let similarity = match encoder {
            Some(folder) => {
                let encoder = Box::new(open_encoder(folder)?);
                let vectors = vectors_of(&encoder, &texts)?;
                Similarity::Vectors { encoder, vectors }
            }
            None => {
                let rows: Vec<Vec<String>> = texts.iter().map(|text| words(text)).collect();
                let mut weights: HashMap<String, f32> = HashMap::new();
                for word in rows.iter().flatten() {
                    *weights.entry(word.clone()).or_insert(0.0) += 1.0;
                }
                for weight in weights.values_mut() {
                    *weight = (1.0 + rows.len() as f32 / *weight).ln();
                }
                Similarity::Words { weights, rows }
            }
        };
        Ok(Self { examples, similarity, count })
    }

    /// The most similar examples of each query, the most similar last. Ties keep the order of the files.
    ///
    /// # Errors
    /// Where the encoder fails.
    pub fn choose(&self, queries: &[&Query]) -> Result<Vec<Vec<&Demonstration>>> {
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        let vectors = match &self.similarity {
            Similarity::Vectors { encoder, .. } => vectors_of(encoder, &texts)?,
            Similarity::Words { .. } => Vec::new(),
        };
        Ok(queries.iter().enumerate().map(|(at, query)| self.of(query, vectors.get(at))).collect())
    }

    fn of(&self, query: &Query, vector: Option<&Vec<f32>>) -> Vec<&Demonstration> {
        let own = words(&query.text);
        let likeness = |at: usize| match (&self.similarity, vector) {
            (Similarity::Vectors { encoder, vectors }, Some(vector)) => {
                encoder.similarity().of(&vectors[at], vector)
            }
            (Similarity::Words { weights, rows }, _) => {
                let weight = |word: &String| weights.get(word).copied().unwrap_or(0.0);
                let shared = own.iter().filter(|word| rows[at].binary_search(word).is_ok());
                let all: f32 = rows[at].iter().map(weight).sum();
                shared.map(weight).sum::<f32>() / all.max(1.0).sqrt()
            }
            (Similarity::Vectors { .. }, None) => 0.0,
        };
        let others = self.examples.iter().enumerate().filter(|(_, example)| {
            example.query.id != query.id && example.query.text.trim() != query.text.trim()
        });
        let same = |example: &Demonstration| example.query.dataset == query.dataset;
        let has_same = self.examples.iter().any(same);
        let mut scored: Vec<(f32, usize)> = others
            .filter(|(_, example)| !has_same || same(example))
            .map(|(at, _)| (likeness(at), at))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.truncate(self.count);
        scored.iter().rev().map(|&(_, at)| &self.examples[at]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path, lines: &[(&str, &str)]) -> DemonstrationsOptions {
        for (name, text) in lines {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let files = lines.iter().map(|(name, _)| folder.join(name)).collect();
        DemonstrationsOptions { files, count: 2, encoder: None, answer_words: 2 }
    }

    const NQ: &str = concat!(
        r#"{"id":1,"input":"who wrote the blue song","output":[{"answer":"Ann Lund the singer"}]}"#,
        "\n",
        r#"{"id":2,"input":"where is the blue harbour","output":[{"answer":"Oslo"}]}"#,
        "\n",
        r#"{"id":3,"input":"who wrote the red song","output":[{"answer":"Bo"}]}"#,
        "\n",
        r#"{"id":4,"input":"who wrote nothing","output":[{"provenance":[]}]}"#,
        "\n",
    );
    const WOW: &str = r#"{"id":9,"input":"who wrote the green song","output":[{"answer":"I like it"}]}"#;

    #[test]
    fn the_most_similar_come_last_and_the_own_record_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("nq-train-kilt.jsonl", NQ), ("wow-train-kilt.jsonl", WOW)];
        let shown = Demonstrations::load(&options(folder.path(), &files)).unwrap();
        let ask = |id: i64, text: &str, dataset| {
            let query = Query { dataset, ..Query::of_text(id, text) };
            let found = shown.choose(&[&query]).unwrap().pop().unwrap();
            found.iter().map(|it| (it.query.id.text().into_owned(), it.answer.clone())).collect::<Vec<_>>()
        };
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(id, answer)| (id.to_string(), answer.to_string())).collect::<Vec<_>>()
        };
        // Records without an answer are none, and an answer is cut to two words.
        let nq = Some(Dataset::Nq);
        assert_eq!(ask(7, "who wrote the blue song then", nq), of(&[("3", "Bo"), ("1", "Ann Lund")]));
        assert_eq!(ask(1, "who wrote the blue song", nq), of(&[("2", "Oslo"), ("3", "Bo")]));
        // The same input under another id would give the answer away.
        assert_eq!(ask(8, "who wrote the red song", nq).last().unwrap().0, "1");
        assert_eq!(ask(7, "who", Some(Dataset::Wow)), of(&[("9", "I like")]));
        // For a dataset without records, any record may be shown.
        assert_eq!(ask(7, "the green song", Some(Dataset::Trex)).last().unwrap().0, "9");
    }

    #[test]
    fn an_encoder_compares_inputs_with_the_prompt_and_the_similarity_of_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/settings/bi");
        std::fs::create_dir(place.path().join("1_Pooling")).unwrap();
        for name in
            ["config.json", "model.safetensors", "modules.json", "tokenizer.json", "1_Pooling/config.json"]
        {
            std::fs::copy(from.join(name), place.path().join(name)).unwrap();
        }
        let settings = r#"{"prompts": {"query": "query : "}, "similarity_fn_name": "manhattan"}"#;
        std::fs::write(place.path().join("config_sentence_transformers.json"), settings).unwrap();
        let texts = ["the war", "who wrote the song", "where was the king born", "river city", "was born"];
        let example = |(id, text): (i64, &&str)| Demonstration {
            query: Query::of_text(id, *text),
            answer: text.to_string(),
        };
        let examples: Vec<Demonstration> = (0..).zip(&texts).map(example).collect();
        let shown = Demonstrations::of_examples(examples, texts.len(), Some(place.path())).unwrap();
        let asked = "where was the song";
        let query = Query::of_text(9i64, asked);
        let found = shown.choose(&[&query]).unwrap().remove(0);
        let found: Vec<&str> = found.iter().map(|example| example.answer.as_str()).collect();

        let encoder = TextEncoder::load(&TextEncoderOptions::new(place.path().into())).unwrap().unwrap();
        let encoder = encoder.with_prompt("query : ").unwrap();
        let vector = |text| encoder.encode(&[Text::One(text)]).unwrap();
        let own = vector(asked);
        let distance = |text| own.iter().zip(vector(text)).map(|(a, b)| (a - b).abs()).sum::<f32>();
        let mut expected = texts.to_vec();
        expected.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
        assert_eq!(found, expected);
    }
}
