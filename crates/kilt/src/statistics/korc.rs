//! Statistics of KoRC's files (Yao et al. 2023, table 1 and figure 3).

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use rustc_hash::FxHashSet;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Result, counted,
    korc::{INVERSE, Question, Version, load},
    scores::Measure,
};

/// The trigram prefixes that the text of a report shows; its JSON has all.
const SHOWN: usize = 10;

/// A row of table 1: a split.
///
/// Figures of relations and of chains are for benchmarks that Sporran builds. KoRC's own files lack both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The name of the split.
    pub split: String,
    /// Documents after anonymisation: distinct pairs of document and question entity.
    pub documents: usize,
    /// Documents before anonymisation.
    pub unique_documents: usize,
    /// Relations; an inverse relation differs from the forward one. None without relations.
    pub relations: Option<usize>,
    /// Relations; an inverse relation is the same as the forward one. None without relations.
    pub unique_relations: Option<usize>,
    /// Questions.
    pub questions: usize,
    /// Words of a document, the mean over questions.
    pub words: Measure,
    /// Answers of a question, the mean.
    pub answers: Measure,
    /// Triples of an answer's chain, from document and knowledge base: the mean over the answers with a chain.
    pub hops: Measure,
    /// Of those, the triples from the document.
    pub hops_in_document: Measure,
}

impl Row {
    /// Counts questions.
    pub fn of<'q>(split: &str, questions: impl IntoIterator<Item = &'q Question>) -> Self {
        let mut row = Self { split: split.to_owned(), ..Self::default() };
        let (mut documents, mut unique) = (FxHashSet::default(), FxHashSet::default());
        let (mut relations, mut forward) = (FxHashSet::default(), FxHashSet::default());
        let (mut words, mut answers, mut chains, mut said, mut added) = (0, 0, 0, 0, 0);
        for question in questions {
            row.questions += 1;
            let key = question.document_key();
            unique.insert(key);
            documents.insert((key, question.topics()));
            if let Some(relation) = question.relation() {
                relations.insert(relation);
                forward.insert(relation.strip_prefix(INVERSE).unwrap_or(relation));
            }
            words += question.document().split_whitespace().count();
            answers += question.labels().len();
            let found = question.extra.get("chains").and_then(Value::as_array);
            for chain in found.into_iter().flatten() {
                let triples = |part: &str| chain[part].as_array().map_or(0, Vec::len);
                chains += 1;
                said += triples("document");
                added += triples("knowledge");
            }
        }
        row.documents = documents.len();
        row.unique_documents = unique.len();
        let count = |found: FxHashSet<&str>| (!found.is_empty()).then_some(found.len());
        row.relations = count(relations);
        row.unique_relations = count(forward);
        row.words = Measure::share(words, row.questions);
        row.answers = Measure::share(answers, row.questions);
        row.hops = Measure::share(said + added, chains);
        row.hops_in_document = Measure::share(said, chains);
        row
    }
}

/// Table 1: the splits, and all of them together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The splits.
    pub splits: Vec<Row>,
    /// All splits together.
    pub all: Row,
}

impl Table {
    /// Counts splits by their names.
    pub fn of(splits: &[(&str, &[Question])]) -> Self {
        Self {
            splits: splits.iter().map(|(name, questions)| Row::of(name, *questions)).collect(),
            all: Row::of("all", splits.iter().flat_map(|(_, questions)| *questions)),
        }
    }
}

impl fmt::Display for Table {
    /// A row a split. The figures in brackets are those of unique documents and relations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<16}{:>17}{:>13}{:>10}{:>8}{:>9}{:>7}{:>9}",
            "split", "documents", "relations", "questions", "words", "answers", "hops", "in text"
        )?;
        for row in self.splits.iter().chain([&self.all]) {
            let documents = format!("{} ({})", row.documents, row.unique_documents);
            let relations = match (row.relations, row.unique_relations) {
                (Some(all), Some(unique)) => format!("{all} ({unique})"),
                _ => "-".to_owned(),
            };
            write!(
                f,
                "\n{:<16}{documents:>17}{relations:>13}{:>10}{:>8.1}{:>9.2}{:>7.2}{:>9.2}",
                row.split, row.questions, row.words, row.answers, row.hops, row.hops_in_document
            )?;
        }
        Ok(())
    }
}

/// The first three words of questions, as figure 3 shows them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prefix {
    /// The words in lower case, joined by blanks. A shorter question has fewer.
    pub words: String,
    /// Questions that start with them.
    pub questions: usize,
    /// The share of the version's questions.
    pub share: f64,
}

/// The distribution of trigram prefixes of a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prefixes {
    /// The version.
    pub version: Version,
    /// Questions of the version.
    pub questions: usize,
    /// All prefixes, the most frequent first, then in alphabetical order.
    pub prefixes: Vec<Prefix>,
}

impl Prefixes {
    /// Counts the questions of a version; `None` without one. White space separates words.
    pub fn of<'q>(version: Version, questions: impl IntoIterator<Item = &'q Question>) -> Option<Self> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut all = 0;
        for text in questions.into_iter().filter_map(|question| version.of(question)) {
            let words: Vec<String> = text.split_whitespace().take(3).map(str::to_lowercase).collect();
            *counts.entry(words.join(" ")).or_default() += 1;
            all += 1;
        }
        let share = |count: usize| count as f64 / all as f64;
        let mut prefixes: Vec<Prefix> = counts
            .into_iter()
            .map(|(words, questions)| Prefix { words, questions, share: share(questions) })
            .collect();
        // The sort is stable, so equal counts stay in alphabetical order.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.questions));
        (all > 0).then_some(Self { version, questions: all, prefixes })
    }
}

/// The statistics of files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Table 1.
    #[serde(flatten)]
    pub table: Table,
    /// Figure 3, for each version that the files have.
    pub prefixes: Vec<Prefixes>,
}

impl fmt::Display for Report {
    /// Table 1, and the most frequent prefixes of each version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table)?;
        for Prefixes { version, questions, prefixes } in &self.prefixes {
            let (name, count) = (version.name(), prefixes.len());
            write!(
                f,
                "\n\nversion {name}: {}, {}",
                counted(*questions as u64, "question"),
                counted(count as u64, "trigram prefix")
            )?;
            for Prefix { words, questions, share } in prefixes.iter().take(SHOWN) {
                write!(f, "\n{words:<32}{questions:>8}{:>7.1} %", 100.0 * share)?;
            }
        }
        Ok(())
    }
}

/// Reads files in KoRC's layout and counts them; each file is a split.
///
/// # Errors
/// Read errors, with line and field; the same id twice in a file.
pub fn of_files(files: &[PathBuf]) -> Result<Report> {
    let read: Vec<Vec<Question>> = files.iter().map(load).collect::<Result<_>>()?;
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(|path| name(path)).collect();
    let splits: Vec<(&str, &[Question])> =
        names.iter().map(String::as_str).zip(read.iter().map(Vec::as_slice)).collect();
    let prefixes =
        Version::ALL.into_iter().filter_map(|version| Prefixes::of(version, read.iter().flatten()));
    Ok(Report { table: Table::of(&splits), prefixes: prefixes.collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(id: &str, document: &str, topic: &str, relation: &str, text: &str) -> Value {
        json!({ "id": id, "question": text, "context": "a b c", "answers": ["x", "y"], "topic_entity": [topic],
            "document_id": document, "relation": relation,
            "chains": [{ "document": [["s", "r", "o"]], "knowledge": [["o", "r", "x"], ["x", "r", "y"]] }] })
    }

    #[test]
    fn documents_and_relations_count_before_and_after_anonymisation_and_inversion() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, questions: Value| {
            let path = folder.path().join(name);
            std::fs::write(&path, questions.to_string()).unwrap();
            path
        };
        let train = write(
            "train.json",
            json!([
                question("1", "d", "Q1", "P1", "Where was Ann born?"),
                question("2", "d", "Q1", "Inv: P1", "Where was it?"),
                question("3", "d", "Q2", "P2", "Who ?"),
            ]),
        );
        let mut last = question("1", "d", "Q1", "P3", "where  WAS that?");
        last["chains"] = json!([]);
        last["template_question"] = json!("What is it?");
        let test = write("test.json", json!([last]));
        let Report { table, prefixes } = of_files(&[train, test]).unwrap();
        let [train, test] = &table.splits[..] else { panic!("{table:?}") };
        assert_eq!((train.split.as_str(), train.questions), ("train", 3));
        assert_eq!((train.documents, train.unique_documents), (2, 1));
        assert_eq!((train.relations, train.unique_relations), (Some(3), Some(2)));
        assert_eq!((train.hops, train.hops_in_document), (3.0.into(), 1.0.into()));
        assert_eq!((train.words, train.answers), (3.0.into(), 2.0.into()));
        assert_eq!((test.hops, test.documents), (Measure::default(), 1));
        // The test's document with its entity is that of training.
        assert_eq!((table.all.documents, table.all.unique_documents, table.all.questions), (2, 1, 4));
        assert_eq!((table.all.relations, table.all.unique_relations), (Some(4), Some(3)));
        let [template, human] = &prefixes[..] else { panic!("{prefixes:?}") };
        assert_eq!((template.version, template.questions), (Version::Template, 1));
        let found: Vec<(&str, usize, f64)> =
            human.prefixes.iter().map(|it| (it.words.as_str(), it.questions, it.share)).collect();
        assert_eq!(
            found,
            [
                ("where was ann", 1, 0.25),
                ("where was it?", 1, 0.25),
                ("where was that?", 1, 0.25),
                ("who ?", 1, 0.25)
            ]
        );
    }

    #[test]
    fn files_without_relations_and_chains_have_no_such_figures() {
        let question: Question = serde_json::from_str(
            r#"{"id":1,"question":"Who is it now?","title":"T","text":"a b","answers":["x"],"topic_entity":"Q1"}"#,
        )
        .unwrap();
        let questions = [question];
        let row = Row::of("valid", &questions);
        assert_eq!((row.relations, row.unique_relations, row.hops), (None, None, Measure::default()));
        let text = Table::of(&[("valid", &questions[..])]).to_string();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["valid", "1", "(1)", "-", "1", "2.0", "1.00", "-", "-"]
        );
    }
}
