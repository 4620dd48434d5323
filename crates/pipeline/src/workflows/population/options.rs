//! The options of knowledge-base population. The documentation of these types is the manual of the config file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::{LinkingOptions, MentionsOptions, RelationsOptions, coreference::CoreferenceKind};
use sporran_transformers::Precision;

use super::sources::InputFormat;
use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of knowledge-base population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PopulationOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[annotations]`: the training documents.
    pub annotations: Option<AnnotationsOptions>,
    /// `parses`: CoNLL-U files with the dependency parses of the documents of `[annotations]` and `[input]`, for
    /// `[relations.bilstm]`. `# newdoc id = ID` begins a document, and its words are those of the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parses: Vec<PathBuf>,
    /// `[teacher]`: a model that labels more training text (distillation).
    pub teacher: Option<TeacherOptions>,
    /// `[relations]`: the relation classifier.
    pub relations: RelationsOptions,
    /// `[mentions]`: how mentions are detected and filtered.
    #[serde(default)]
    pub mentions: MentionsOptions,
    /// `coreference`: `none`, or `rules`. Pronouns and partial names get the link of their coreference chain.
    #[serde(default)]
    pub coreference: CoreferenceKind,
    /// `[linker]`: the entity linker. Without it, facts have no links.
    pub linker: Option<LinkingOptions>,
    /// `[input]`: the documents to extract facts from.
    pub input: Option<InputOptions>,
    /// `[source]`: the knowledge source of the provenance. With it, the table `input.pages` can name pages by
    /// title, and provenance has paragraph and characters if the page contains the sentence.
    pub source: Option<SourceOptions>,
    /// `[triples]`: the names of properties in triples.
    #[serde(default)]
    pub triples: TriplesOptions,
}

/// `[input]`: the input files, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InputOptions {
    /// `text`, `kilt` or `knowledgenet`.
    pub format: InputFormat,
    /// The files.
    pub files: Vec<PathBuf>,
    /// The folds of KnowledgeNet to use; empty for all.
    #[serde(default)]
    pub folds: Vec<i64>,
    /// A table of the pages of documents, for the formats `text` and `knowledgenet`: each line is a
    /// document's id, a tab, and the page's id. Facts of other documents have no provenance. A block of text
    /// has the id `FILE:NUMBER`: the name of its file without an extension, and its number from 0.
    pub pages: Option<PathBuf>,
}

/// `[triples]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TriplesOptions {
    /// New names of properties, such as `PLACE_OF_BIRTH = "P19"`. Other properties keep their names.
    pub relations: BTreeMap<String, String>,
}

/// `[annotations]`: annotated documents in KnowledgeNet's layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnnotationsOptions {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The folds to use.
    #[serde(default = "training_folds")]
    pub folds: Vec<i64>,
    /// Every n-th document is held out for validation: for thresholds and for the score of each epoch. The kind `linear`
    /// has as many parts of a cross-validation, so that each document is held out once.
    #[serde(default = "validation_every")]
    #[schemars(range(min = 2))]
    pub validation_every: usize,
    /// The folds of the validation documents. With them, no document of `folds` is held out, and no name or link of a validation
    /// document is in the linker's table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validation_folds: Vec<i64>,
}

impl AnnotationsOptions {
    /// Whether a document is for validation, given its index among all documents and its fold.
    pub(super) fn is_held_out(&self, at: usize, fold: i64) -> bool {
        if self.validation_folds.is_empty() {
            at % self.validation_every == self.validation_every - 1
        } else {
            self.validation_folds.contains(&fold)
        }
    }

    /// Whether a document is only for validation, so that its names are unknown to the linker.
    pub(super) fn is_apart(&self, fold: i64) -> bool {
        self.validation_folds.contains(&fold)
    }
}

fn training_folds() -> Vec<i64> {
    vec![1, 2, 3]
}

fn validation_every() -> usize {
    8
}

/// `[teacher]`: a trained model that labels unannotated text with probabilities (distillation).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TeacherOptions {
    /// The folder of the teacher.
    pub model: PathBuf,
    /// The precision of its computation.
    #[serde(default)]
    pub precision: Precision,
    /// The weight of a pair from the teacher, relative to an annotated pair.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub weight: f32,
    /// The teacher labels every n-th document.
    #[serde(default = "every")]
    #[schemars(range(min = 1))]
    pub every: usize,
    /// The folder of its cached probabilities. Other trainings can share it. The default is in the run's folder.
    pub readings: Option<PathBuf>,
    /// `[teacher.input]`: the documents to label.
    pub input: InputOptions,
}

fn one() -> f32 {
    1.0
}

fn every() -> usize {
    1
}

/// The purpose of loading a config. Only the files of this purpose must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Training, which reads `[annotations]` and the initial encoder.
    Train,
    /// Extraction of facts, which reads `[input]`.
    Populate,
    /// Extraction of facts from texts of a program, which reads neither.
    Texts,
    /// Training and extraction.
    All,
}

impl Config for PopulationOptions {
    const WORKFLOWS: &'static [&'static str] = &["population"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        self.check_values(Purpose::All, document);
    }
}

impl PopulationOptions {
    /// Like [`Config::load`], but checks only the files of `purpose`.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_for(path: &Path, overrides: &[String], purpose: Purpose) -> Result<Self> {
        let check = |options: &Self, document: &mut Document<'_>| options.check_values(purpose, document);
        crate::config::load(path, overrides, check)
    }

    fn check_values(&self, purpose: Purpose, document: &mut Document<'_>) {
        let trains = matches!(purpose, Purpose::Train | Purpose::All);
        let populates = matches!(purpose, Purpose::Populate | Purpose::All);
        if let Some(annotations) = &self.annotations {
            for path in annotations.files.iter().filter(|path| trains && !path.is_file()) {
                document.report_key("annotations.files", format!("no file {}", path.display()));
            }
            if let Some(fold) =
                annotations.validation_folds.iter().find(|fold| annotations.folds.contains(*fold))
            {
                let message = format!("expected other folds than `folds`, found {fold} in both");
                document.report_key("annotations.validation-folds", message);
            }
            if !annotations.validation_folds.is_empty() && self.relations.is_cross_validated() {
                let message = "expected none, because `[relations.linear]` alone is cross-validated";
                document.report_key("annotations.validation-folds", message);
            }
        }
        for path in self.parses.iter().filter(|path| !path.is_file()) {
            document.report_key("parses", format!("no file {}", path.display()));
        }
        if !self.parses.is_empty() && trains && self.annotations.is_some() && self.relations.bilstm.is_none()
        {
            document.report_key("parses", "expected `[relations.bilstm]` with it");
        }
        if let Some(teacher) = self.teacher.as_ref().filter(|_| trains) {
            if !teacher.model.is_dir() {
                document.report_key("teacher.model", format!("no folder {}", teacher.model.display()));
            }
            for path in teacher.input.files.iter().filter(|path| !path.is_file()) {
                document.report_key("teacher.input.files", format!("no file {}", path.display()));
            }
            if teacher.input.pages.is_some() {
                document.report_key("teacher.input.pages", "expected it in `[input]` only");
            }
            if !self.relations.supports_teacher() {
                let message = "expected `[relations.linear]` or `[relations.training]` with it; other models do not support \
                               a teacher";
                document.report_key("teacher", message);
            }
        }
        if let Some(linker) = &self.linker {
            linker.check("linker", document);
        }
        self.mentions.check("mentions", self.coreference != CoreferenceKind::None, document);
        if populates {
            let table = self.input.as_ref().and_then(|input| input.pages.as_deref());
            pages::check(self.source.as_ref(), ("input.pages", table), document);
        }
        if let Some(input) = &self.input {
            if input.pages.is_some() && input.format == InputFormat::Kilt {
                document.report_key(
                    "input.pages",
                    "expected no table: with `input.format = \"kilt\"` the documents are pages",
                );
            }
            let mut stems = BTreeSet::new();
            for path in &input.files {
                if populates && !path.is_file() {
                    document.report_key("input.files", format!("no file {}", path.display()));
                }
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let stem = name.split('.').next().unwrap_or_default().to_owned();
                if !stems.insert(stem) {
                    let message =
                        format!("expected different names before the first dot, found {name} twice");
                    document.report_key("input.files", message);
                }
            }
            if !input.folds.is_empty() && input.format != InputFormat::Knowledgenet {
                document.report_key("input.folds", "expected `format = \"knowledgenet\"` with it");
            }
        }
        self.relations.check("relations", trains, document);
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_documents_are_every_nth_or_those_of_their_folds() {
        let options =
            |text: &str| toml::from_str::<AnnotationsOptions>(&format!("files = []\n{text}")).unwrap();
        let held_out = |options: &AnnotationsOptions| -> Vec<bool> {
            (0..6).map(|at| options.is_held_out(at, 1 + at as i64 % 2)).collect()
        };
        let every = options("validation-every = 3");
        assert_eq!(held_out(&every), [false, false, true, false, false, true]);
        assert!(!every.is_apart(4));
        let folds = options("folds = [1]\nvalidation-folds = [2]");
        assert_eq!(held_out(&folds), [false, true, false, true, false, true]);
        assert!(folds.is_apart(2) && !folds.is_apart(1));
    }
}
