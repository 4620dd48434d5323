//! The options of a tagger's training. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::tagger::TaggerOptions;
use sporran_transformers::{ModelType, wrong_model_type};

use crate::config::Config;

/// The config of a tagger's training.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaggingOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[annotations]`: the training data.
    pub annotations: AnnotationOptions,
    /// `[tagger]`: the model, by `kind`.
    pub tagger: TaggerOptions,
    /// `[test]`: the test data, for scores of the trained tagger.
    #[schemars(default)]
    pub test: TestOptions,
}

/// The keys outside of `[tagger]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default)]
    seed: u64,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    annotations: AnnotationOptions,
    #[serde(default)]
    test: TestOptions,
}

/// `[annotations]`: documents with annotated mentions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AnnotationOptions {
    /// Files in DocRED's layout, in which all names and dates are annotated.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout, in which only the names and dates of facts are annotated. The loss ignores the labels of
    /// all other tokens.
    pub knowledgenet: Vec<PathBuf>,
    /// The folds of KnowledgeNet to use; empty for all.
    pub folds: Vec<i64>,
    /// Every n-th document of `docred` is held out for validation: for the score of each epoch. The best weights are kept.
    /// 0 trains on all documents and keeps the last weights.
    pub validation_every: usize,
    /// `[annotations.weak-labels]`: texts with the labels of another tagger.
    pub weak_labels: Option<WeakLabelOptions>,
}

/// `[annotations.weak-labels]`: texts without annotations, labelled by a larger tagger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WeakLabelOptions {
    /// The folder of the tagger that labels the texts.
    pub teacher: PathBuf,
    /// Pages in KILT's layout.
    pub pages: PathBuf,
    /// The number of pages to use, the first ones.
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// `[test]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TestOptions {
    /// Files in DocRED's layout, for precision, recall and F1 of typed spans.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout, for the recall of the names and dates of facts.
    pub knowledgenet: Vec<PathBuf>,
    /// The folds of KnowledgeNet to use; empty for all.
    pub folds: Vec<i64>,
}

impl Config for TaggingOptions {
    const WORKFLOWS: &'static [&'static str] = &["tagging"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let tagger = document.require_stage("tagger");
        let General { name, seed, output, annotations, test } = document.read_root(&["tagger"])?;
        Some(Self { name, seed, output, annotations, tagger: tagger.ok()?, test })
    }

    fn check(&self, document: &mut Document<'_>) {
        let (training, test) = (&self.annotations, &self.test);
        let lists = [
            ("annotations.docred", &training.docred),
            ("annotations.knowledgenet", &training.knowledgenet),
            ("test.docred", &test.docred),
            ("test.knowledgenet", &test.knowledgenet),
        ];
        for (key, paths) in lists {
            for path in paths.iter().filter(|path| !path.is_file()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        if training.docred.is_empty() && training.knowledgenet.is_empty() && training.weak_labels.is_none() {
            document.report_key(
                "annotations",
                "expected `docred`, `knowledgenet` or `weak-labels`, found none of them",
            );
        }
        if training.validation_every == 1 {
            document.report_key("annotations.validation-every", "expected 0 or at least 2, found 1");
        }
        if let Some(weak) = &training.weak_labels {
            let key = "annotations.weak-labels.teacher";
            match wrong_model_type(&weak.teacher, &[ModelType::Tagger], &[]) {
                Some(message) => document.report_key(key, message),
                None => document.check_folder(key, &weak.teacher, "tagger.json"),
            }
            if !weak.pages.is_file() {
                document
                    .report_key("annotations.weak-labels.pages", format!("no file {}", weak.pages.display()));
            }
        }
        self.tagger.check("tagger", document);
    }
}

impl TaggingOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::mistakes;

    fn check(text: &str, overrides: &[&str]) -> String {
        mistakes(text, overrides, TaggingOptions::load)
    }

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let text = "workflow = \"tagging\"\nname = \"r\"\n[annotations]\ndocred = [\"none.json\"]\nvalidation-every = 1\n\
                    [annotations.weak-labels]\nteacher = \"t\"\npages = \"p\"\nlimit = 3\n\
                    [tagger]\nkind = \"encoder-crf\"\nfrom = \"m\"\noptimizer.learning-rate = 0\n";
        let found = check(text, &[]);
        for expected in [
            "`annotations.docred`: no file none.json",
            "`annotations.validation-every`: expected 0 or at least 2, found 1",
            "`annotations.weak-labels.teacher`: no folder t",
            "`annotations.weak-labels.pages`: no file p",
            "`tagger.from`: no folder m",
            "learning-rate",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let words = "workflow = \"tagging\"\nname = \"r\"\n[annotations]\n[tagger]\nkind = \"bilstm-crf\"\nhidden-size = 0\n";
        let found = check(words, &["tagger.dropout=1.0"]);
        for expected in [
            "`annotations`: expected `docred`",
            "`tagger.hidden-size`: expected at least 1",
            "tagger.dropout",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        assert!(check(words, &["tagger.kind=bilstm"]).contains("did you mean `bilstm-crf`?"));
    }
}
