//! Reading and checking a config of the workflows `answer` and `retriever-training`.

use schemars::Schema;
use sporran_config::{Check, Document, FromTable, schema};
use sporran_generator::{GeneratorOptions, GeneratorTrainer, Target, check_generator, untrained};
use sporran_retriever::dense::{DenseOptions, Similarity};

use super::{
    options::{General, Options, PageScore},
    retrieval::{self, RerankerTable, RetrieverOptions},
    train::encoder_options::EncoderTraining,
};
use crate::config::Config;

/// The retriever of a RAG training: `dense`, over all pages, with the similarity `inner-product`.
///
/// # Errors
/// The wrong key and a message.
pub(crate) fn live_retriever(options: &Options) -> Result<&DenseOptions, (String, &'static str)> {
    let trains_encoder = options.general.train.as_ref().is_some_and(|train| train.question_encoder.is_some());
    let dense = live_dense(options.retriever.as_ref(), trains_encoder)?;
    if options.general.pages.is_some() {
        return Err(("pages".to_owned(), "expected no `[pages]`; RAG is trained on all pages"));
    }
    Ok(dense)
}

/// The same without `[pages]`. `trains_encoder`: whether the question encoder is trained.
///
/// # Errors
/// The wrong key and a message.
pub(crate) fn live_dense(
    retriever: Option<&RetrieverOptions>,
    trains_encoder: bool,
) -> Result<&DenseOptions, (String, &'static str)> {
    if matches!(retriever, Some(RetrieverOptions::Filtered(_))) {
        return Err(("retriever.filter".to_owned(), "expected no filter; RAG is trained on all passages"));
    }
    let Some(RetrieverOptions::Dense(dense)) = retriever else {
        return Err(("retriever.kind".to_owned(), "expected `dense`: RAG is trained with its scores"));
    };
    match dense.check_live(trains_encoder) {
        Err((key, message)) => Err((format!("retriever.{key}"), message)),
        Ok(()) => Ok(dense),
    }
}

const STAGES: [&str; 4] = ["retriever", "reranker", "generator", TRAINING];
const TRAINING: &str = "encoder-training";
const ANSWER: &str = "answer";
const RETRIEVER_TRAINING: &str = "retriever-training";

impl Config for Options {
    const WORKFLOWS: &'static [&'static str] = &[ANSWER, RETRIEVER_TRAINING];

    fn workflow(&self) -> &'static str {
        if self.encoder_training.is_some() { RETRIEVER_TRAINING } else { ANSWER }
    }

    fn schema() -> Schema {
        retrieval::with_filter(schema::with_key::<Self, RerankerTable>("reranker"))
    }

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.check_workflow_table(TRAINING, RETRIEVER_TRAINING);
        let retriever = retrieval::read(document);
        let generator = document.read_stage("generator");
        let encoder_training = document.take_stage(TRAINING).and_then(|table| {
            table.map(|it| EncoderTraining::from_table(document, TRAINING, it)).transpose()
        });
        for (table, is_wrong) in [
            ("retriever", retriever.is_err()),
            ("generator", generator.is_err()),
            (TRAINING, encoder_training.is_err()),
        ] {
            if is_wrong {
                document.suspect(table);
            }
        }
        let mut general: General = document.read_root(&STAGES)?;
        general.deepen_for_recall();
        Some(Self {
            general,
            encoder_training: encoder_training.unwrap_or_default(),
            retriever: retriever.unwrap_or_default(),
            generator: generator.unwrap_or_default(),
        })
    }

    fn check(&self, document: &mut Document<'_>) {
        check(self, document);
    }
}

/// Reports missing files and inconsistent values.
fn check(options: &Options, document: &mut Document<'_>) {
    if let Err(faults) = options.general.tasks.resolve() {
        for (key, message) in faults {
            document.report_key(&format!("tasks.{key}"), message);
        }
    }
    check_without_tasks(options, document);
}

/// [`check`] without the task files, for questions from elsewhere.
pub(super) fn check_without_tasks(options: &Options, document: &mut Document<'_>) {
    let general = &options.general;
    let name_fits = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if !name_fits(&general.name) {
        document.report_key("name", "expected letters, digits, `-`, `_` and `.`: it is the name of a folder");
    }
    check_measures(general, document);
    if let Some(source) = &general.source {
        source.check(document);
    } else if options.retriever.is_some() {
        document.report_key("source", "is missing; a retriever needs passages");
    }
    if options.retriever.is_none() && options.generator.is_none() {
        document.report_key("retriever", "is missing; expected `[retriever]`, `[generator]` or both");
    }
    if let Some(pages) = general.pages.as_ref().filter(|pages| !pages.file.is_file()) {
        document.report_key("pages.file", format!("no file {}", pages.file.display()));
    }
    if let Some(retriever) = &options.retriever {
        let is_encoder_trained = general.train.as_ref().is_some_and(|train| train.question_encoder.is_some());
        retrieval::check(retriever, is_encoder_trained, document);
    }
    if let Some(RetrieverOptions::Dense(dense)) = options.retriever.as_ref().map(retrieval::unfiltered)
        && general.evidence.page_score == PageScore::Sum
        && dense.similarity().is_ok_and(Similarity::is_distance)
    {
        let message = "expected `best` or `reciprocal-rank`: the scores of distances are negative";
        document.report_key("evidence.page-score", message);
    }
    if let Some(generator) = &options.generator {
        let depth = options.retriever.is_some().then_some(general.evidence.depth);
        check_generator(&**generator, ("generator", general.train.is_none()), depth, document);
    }
    if let Some(training) = &options.encoder_training {
        check_encoder_training(training, options, document);
    }
    if let Some(train) = &general.train {
        let trainer = options.generator.as_ref().and_then(GeneratorOptions::trainer);
        if options.generator.is_some() && trainer.is_none() {
            document.report_key("generator.kind", untrained());
        }
        if train.target == Target::Title && general.source.is_none() {
            document.report_key("train.target", "expected a `[source]` with the titles to generate");
        }
        if let Err(faults) = train.examples.resolve() {
            for (key, message) in faults {
                document.report_key(&format!("train.examples.{key}"), message);
            }
        }
        if trainer.is_some_and(GeneratorTrainer::is_live)
            && let Err((key, message)) = live_retriever(options)
        {
            document.report_key(&key, message);
        }
        train.check("train", options.generator.as_ref(), document);
    }
}

/// Reports measures without meaning, and cutoffs beyond the number of passages that a store can have.
fn check_measures(general: &General, document: &mut Document<'_>) {
    let key = "evaluation.measures";
    match general.evaluation.measures() {
        Err(error) => document.report_key(key, error.to_string()),
        Ok(measures) => {
            let is_deep = |cutoff: usize| u32::try_from(cutoff).is_err();
            if let Some(measure) = measures.iter().find(|measure| measure.cutoff().is_some_and(is_deep)) {
                document
                    .report_key(key, format!("expected a cutoff of at most {}, found `{measure}`", u32::MAX));
            }
        }
    }
}

/// Reports mistakes in `[encoder-training]`.
fn check_encoder_training(training: &EncoderTraining, options: &Options, document: &mut Document<'_>) {
    if options.general.train.is_some() {
        document.report_key(TRAINING, "expected no `[train]`: a config trains one model");
    }
    if options.retriever.is_none() {
        document.report_key("retriever", "is missing; it retrieves the hard negatives");
    }
    training.check(TRAINING, document);
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::{config::Config, workflows::answer::options::Options};

    fn config(folder: &Path, stage: &str) -> PathBuf {
        let path = folder.join("c.toml");
        let general = "workflow = \"answer\"\nname = \"r\"\n[tasks]\nfiles = [\"none.jsonl\"]\n";
        std::fs::write(&path, format!("{general}{stage}")).unwrap();
        path
    }

    #[test]
    fn the_options_of_every_generator_round_trip_through_toml() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, keys) in [
            ("seq2seq", "batch-size = 3"),
            ("fid", "batch-tokens = 900"),
            ("rag-sequence", "decoding = \"fast\""),
            ("memnet", "evidence = \"passage\""),
            ("rag-token", "generation.temperature = 0.7\ngeneration.do-sample = true"),
        ] {
            let stage =
                format!("[generator]\nkind = \"{kind}\"\nmodel = \"m\"\nprompt.passages = 7\n{keys}\n");
            let options = Options::parse(&config(folder.path(), &stage), &[]).unwrap();
            let generator = options.generator.clone().unwrap();
            let models = generator.models("generator");
            assert_eq!((models.len(), models[0].folder, models[0].passages), (1, Path::new("m"), 7));
            let shown = folder.path().join("shown.toml");
            std::fs::write(&shown, options.to_toml().unwrap()).unwrap();
            assert_eq!(Options::parse(&shown, &[]).unwrap().generator, Some(generator), "{kind}");
        }
    }

    #[test]
    fn a_mistyped_override_gets_the_whole_path_of_a_near_option() {
        let folder = tempfile::tempdir().unwrap();
        let path = config(folder.path(), "[retriever]\nkind = \"bm25\"\n");
        for (wrong, meant) in [
            ("k1=1", "; did you mean `retriever.k1`?"),
            ("k3=1", "; did you mean `retriever.k1`?"),
            ("retriever.k9=1", "; did you mean `k1`?"),
            ("dept=3", "; did you mean `evidence.depth`?"),
            ("retreiver.k1=1", "; did you mean `retriever`?"),
        ] {
            let found = Options::mistakes(&path, &[wrong.to_owned()]).unwrap();
            let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
            let is_told = |it: &String| it.starts_with(&format!("override `{wrong}`")) && it.ends_with(meant);
            assert!(messages.iter().any(is_told), "{wrong}: {messages:?}");
        }
    }

    #[test]
    fn the_deepest_measure_decides_the_depth_of_the_ranking() {
        let folder = tempfile::tempdir().unwrap();
        let path = config(folder.path(), "qrels = \"q.tsv\"\n[retriever]\nkind = \"bm25\"\n");
        let depth = |evaluation: &str| {
            let options = Options::parse(&path, &[format!("evaluation={{{evaluation}}}")]).unwrap();
            (options.general.evidence.depth, options.general.evidence.limit)
        };
        assert_eq!(depth("measures=[\"nDCG@10\", \"R@200\"]"), (200, 200));
        assert_eq!(depth("measures=[\"nDCG@10,R@200\"]"), (200, 200));
        assert_eq!(depth("measures=[\"R@200 nDCG@10\"]"), (200, 200));
        assert_eq!(depth("measures=[\"AP\"]"), (100, 20));
        // The document of the query takes a place, which BEIR retrieves too.
        assert_eq!(depth("exclude-self=true"), (101, 101));
        assert_eq!(depth("measures=[\"R@1000\"],exclude-self=true"), (1001, 1001));
        assert_eq!(depth("measures=[\"P@5\"],exclude-self=true,recall-at=[50]"), (100, 50));
    }

    #[test]
    fn numbers_beyond_toml_name_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = config(folder.path(), "qrels = \"q.tsv\"\n[retriever]\nkind = \"bm25\"\n");
        for (wrong, expected) in [
            (
                "evidence.depth=18446744073709551615",
                "`evidence.depth`: expected a number of at most 9223372036854775807",
            ),
            ("seed=9223372036854775808", "`seed`: expected a number of at most 9223372036854775807"),
            (
                "evaluation.recall-at=[5,9223372036854775808]",
                "`evaluation.recall-at`: expected a number of at most",
            ),
            (
                "evaluation.measures=[\"R@9223372036854775808\"]",
                "`evaluation.measures`: expected a cutoff of at most 4294967295, found `R@9223372036854775808`",
            ),
        ] {
            let found = Options::mistakes(&path, &[wrong.to_owned()]).unwrap();
            let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(messages.iter().any(|message| message.contains(expected)), "{wrong}: {messages:?}");
        }
    }

    #[test]
    fn mistakes_in_a_generators_table_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let check = |stage: &str| {
            let found = Options::mistakes(&config(folder.path(), stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let table =
            |kind: &str, keys: &str| format!("[generator]\nkind = \"{kind}\"\nmodel = \"m\"\n{keys}\n");
        assert!(check(&table("rag-tokens", "")).contains("did you mean `rag-token`?"));
        assert!(
            check(&table("rag-sequence", "decoding = \"slow\"")).contains("expected `thorough` or `fast`")
        );
        assert!(check(&table("rag-token", "decoding = \"fast\"")).contains("`generator.decoding`"));
        assert!(check(&table("fid", "generation.top-pp = 0.5")).contains("did you mean `top-p`?"));
        assert!(check(&table("fid", "")).contains("`generator.model`: no folder m"));
        assert!(
            check(&table("memnet", "pieces = 0"))
                .contains("`generator.pieces`: expected at least 1, found 0")
        );
        let verifies = "[train]\nmodel = \"t\"\nevidence = \"passage\"\npage-negatives = 1\n[train.examples]\nfiles = [\"none.jsonl\"]\n";
        for key in ["evidence", "page-negatives"] {
            let message = format!("`train.{key}`: expected it only with a generator of kind `verifier`");
            assert!(check(&table("fid", verifies)).contains(&message), "{key}");
            assert!(!check(&table("verifier", verifies)).contains(&message), "{key}");
        }
        let selects = "claim-only = true\n[generator.selection]\nmodel = \"s\"";
        assert!(check(&table("verifier", selects)).contains("`false` with `pages` or `selection`"));
        let train = "[train]\nmodel = \"t\"\n[train.examples]\nfiles = [\"none.jsonl\"]\n";
        let found = check(&format!("[generator]\nkind = \"title\"\n{train}"));
        assert!(
            found.contains("`generator.kind`: expected `seq2seq`, `fid`, `memnet`, `rag-token`,"),
            "{found}"
        );
        assert!(!check(&table("causal", train)).contains("`generator.kind`"));
    }

    #[test]
    fn the_chat_template_must_exist_if_the_config_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        let check = |model: &Path, chat: &str| {
            let stage = format!("[generator]\nkind = \"causal\"\nmodel = {model:?}\nchat = \"{chat}\"\n");
            let found = Options::mistakes(&config(folder.path(), &stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(check(&model, "template").contains("`generator.chat`"), "{}", check(&model, "template"));
        assert!(check(&model, "template").contains("has no chat template"));
        for chat in ["auto", "none", "chatml"] {
            assert!(!check(&model, chat).contains("`generator.chat`"), "{chat}");
        }
        assert!(check(&model, "jinja").contains("expected one of `auto`, `none`, `template`, `chatml`"));
    }

    const BY_DATASET: &str = r#"
[generator]
kind = "by-dataset"
[generator.default]
kind = "seq2seq"
model = "m"
prompt.passages = 2
[generator.datasets.fever]
kind = "fid"
model = "f"
prompt.passages = 9
"#;

    #[test]
    fn a_dataset_can_have_another_generator() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::parse(&config(folder.path(), BY_DATASET), &[]).unwrap();
        let generator = options.generator.clone().unwrap();
        let of: Vec<(String, &Path, usize)> =
            generator.models("generator").into_iter().map(|it| (it.key, it.folder, it.passages)).collect();
        let expected = [
            ("generator.default".to_owned(), Path::new("m"), 2),
            ("generator.datasets.fever".to_owned(), Path::new("f"), 9),
        ];
        assert_eq!(of, expected);
        let shown = folder.path().join("shown.toml");
        std::fs::write(&shown, options.to_toml().unwrap()).unwrap();
        assert_eq!(Options::parse(&shown, &[]).unwrap().generator, Some(generator));
        // Overrides apply to nested tables.
        let over = ["generator.datasets.fever.prompt.passages=4".to_owned()];
        let options = Options::parse(&config(folder.path(), BY_DATASET), &over).unwrap();
        assert_eq!(options.generator.unwrap().models("generator")[1].passages, 4);
    }

    #[test]
    fn a_wrong_dataset_and_a_wrong_nested_key_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let found = |stage: &str| {
            let found = Options::mistakes(&config(folder.path(), stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let wrong = found(&BY_DATASET.replace("datasets.fever", "datasets.fevr"));
        assert!(
            wrong.contains("`generator.datasets.fevr`") && wrong.contains("did you mean `fever`?"),
            "{wrong}"
        );
        let wrong = found(&BY_DATASET.replace("model = \"f\"", "modle = \"f\""));
        assert!(wrong.contains("`generator.datasets.fever.modle`"), "{wrong}");
        let wrong = found(&BY_DATASET.replace("kind = \"fid\"", "kind = \"by-dataset\""));
        assert!(wrong.contains("`generator.datasets.fever.kind`: unknown kind `by-dataset`"), "{wrong}");
        assert!(found(BY_DATASET).contains("no folder f"));
    }
}
