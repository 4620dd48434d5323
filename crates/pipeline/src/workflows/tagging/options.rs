//! What a tagger's config says. These types' documentation is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::tagger::TaggerOptions;

use crate::config::Config;

/// A whole config of a tagger's training.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaggingOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[annotations]`: what is learned from.
    pub annotations: AnnotationOptions,
    /// `[tagger]`: what learns, by `kind`.
    pub tagger: TaggerOptions,
    /// `[test]`: what the tagger is measured by when it is trained.
    #[schemars(default)]
    pub test: TestOptions,
}

/// The keys outside `[tagger]`.
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

/// `[annotations]`: documents with marked mentions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AnnotationOptions {
    /// Files in DocRED's layout, in which all names and dates are marked.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout, in which the names and dates of facts are marked; what no fact is about is unknown, and
    /// not taken for no name.
    pub knowledgenet: Vec<PathBuf>,
    /// Only these folds of them; empty for all.
    pub folds: Vec<i64>,
    /// Of so many documents in DocRED's layout one judges each pass over the data, and the best weights are kept; 0 learns from
    /// all of them and keeps the last weights.
    pub validation_every: usize,
    /// `[annotations.weak-labels]`: texts that another tagger marks.
    pub weak_labels: Option<WeakLabelOptions>,
}

/// `[annotations.weak-labels]`: a small tagger learns from what a large one says of texts that nobody has marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WeakLabelOptions {
    /// The folder of the tagger that marks.
    pub teacher: PathBuf,
    /// Pages in KILT's layout.
    pub pages: PathBuf,
    /// Only so many of them, the first.
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// `[test]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TestOptions {
    /// Files in DocRED's layout: precision, recall and F1 of spans with their types.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout: the share of the facts' names and dates that are found.
    pub knowledgenet: Vec<PathBuf>,
    /// Only these folds of them; empty for all.
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
        let (learned, test) = (&self.annotations, &self.test);
        let lists = [
            ("annotations.docred", &learned.docred),
            ("annotations.knowledgenet", &learned.knowledgenet),
            ("test.docred", &test.docred),
            ("test.knowledgenet", &test.knowledgenet),
        ];
        for (key, paths) in lists {
            for path in paths.iter().filter(|path| !path.is_file()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        if learned.docred.is_empty() && learned.knowledgenet.is_empty() && learned.weak_labels.is_none() {
            document.report_key(
                "annotations",
                "expected `docred`, `knowledgenet` or `weak-labels`, found none of them",
            );
        }
        if learned.validation_every == 1 {
            document.report_key("annotations.validation-every", "expected 0 or at least 2, found 1");
        }
        if let Some(weak) = &learned.weak_labels {
            document.check_folder("annotations.weak-labels.teacher", &weak.teacher, "tagger.json");
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
    fn every_mistake_is_told_with_its_key() {
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
