//! The options of knowledge-base population. The documentation of these types is the manual of the config file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::{
    LinkerOptions, MentionForm,
    relations::{BilstmShape, LinearTraining},
};
use sporran_training::{TrainingOptions, session::WeightDtype};
use sporran_transformers::{DeviceName, Precision};

use super::{aliases::NamesOptions, sources::InputFormat, triplets::TripletTraining};
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

/// `[mentions]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MentionsOptions {
    /// The folder of a trained tagger of persons, organisations, places and dates. Without it, capitalized
    /// words are names without a type.
    pub tagger: Option<PathBuf>,
    /// The folder of a trained tagger. Coreference uses its types for names that are detected by capitals.
    /// The relation classifier does not.
    pub types: Option<PathBuf>,
    /// The forms of mentions to keep: `name` (including dates), `pronoun`, `nominal`.
    pub mention_forms: Vec<MentionForm>,
}

impl Default for MentionsOptions {
    fn default() -> Self {
        Self {
            tagger: None,
            types: None,
            mention_forms: vec![MentionForm::Name, MentionForm::Pronoun, MentionForm::Nominal],
        }
    }
}

impl MentionsOptions {
    pub(crate) fn check(&self, document: &mut Document<'_>, coreference: CoreferenceKind) {
        for (key, folder) in [("mentions.tagger", &self.tagger), ("mentions.types", &self.types)] {
            if let Some(folder) = folder {
                document.check_folder(key, folder, "tagger.json");
            }
        }
        if self.types.is_some() && (self.tagger.is_some() || coreference == CoreferenceKind::None) {
            document
                .report_key("mentions.types", "expected `coreference`, and no `mentions.tagger`, with it");
        }
        if self.mention_forms.is_empty() {
            document.report_key(
                "mentions.mention-forms",
                "expected at least one of `name`, `pronoun`, `nominal`",
            );
        }
    }
}

/// The coreference resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoreferenceKind {
    /// No coreference: each mention is its own chain.
    #[default]
    None,
    /// Rules over names, pronouns and descriptions.
    Rules,
}

/// `[linker]`: the table of names, and the thresholds of links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkingOptions {
    /// The file of the table of names. Training writes it, and `sporran run` reads it.
    pub aliases: PathBuf,
    /// `[linker.decision]`: the thresholds of links.
    #[serde(default)]
    pub decision: LinkerOptions,
    /// `[[linker.names]]`: sources of names in training, in addition to the links of `[annotations]`.
    #[serde(default)]
    pub names: Vec<NamesOptions>,
    /// The types of entities, an input of `[relations.bilstm]`: a JSON object of ids with lists of types.
    pub types: Option<PathBuf>,
    /// The folder or file of a knowledge base. Its relations between two mentions are an input of the model.
    pub facts: Option<PathBuf>,
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
    /// has the id `FILE:NUMBER`, where numbers start at 0.
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
    /// Every n-th document is held out for validation: for thresholds and for the score of each epoch.
    #[serde(default = "validation_every")]
    #[schemars(range(min = 2))]
    pub validation_every: usize,
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

/// `[relations]`: a linear model over words, a BiLSTM, an encoder over sentences with marked mentions, or an
/// encoder-decoder that generates facts. `linear` and `training` together give the mean of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelationsOptions {
    /// The folder of the model. Training writes it, and `sporran run` reads it.
    pub model: PathBuf,
    /// The precision of the computation: `f32`, or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[relations.linear]`: the training of a linear model.
    pub linear: Option<LinearTraining>,
    /// `[relations.training]`: the training of an encoder over marked mentions.
    pub training: Option<RelationsTraining>,
    /// `[relations.bilstm]`: the training of a BiLSTM over the tokens around two mentions (Mesquita et al., 2019).
    pub bilstm: Option<BilstmTraining>,
    /// `[relations.seq2seq]`: the training of an encoder-decoder that generates facts (Huguet Cabot and Navigli, 2021).
    pub seq2seq: Option<TripletTraining>,
}

/// `[relations.bilstm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmTraining {
    /// `[relations.bilstm.shape]`: its inputs and sizes.
    pub shape: BilstmShape,
    /// The folder of a frozen encoder. A learned mixture of its layers replaces the word embeddings. Training
    /// copies the encoder into the model's folder.
    pub from: Option<PathBuf>,
    /// The share of pairs without a property that each epoch samples.
    #[schemars(range(min = 0, max = 1))]
    pub negatives: f64,
    /// `[relations.bilstm.optimizer]`: epochs, batches, learning rate.
    pub optimizer: TrainingOptions,
}

impl Default for BilstmTraining {
    fn default() -> Self {
        let (shape, optimizer) = (BilstmShape::default(), TrainingOptions::default());
        Self { shape, from: None, negatives: 1.0, optimizer }
    }
}

/// `[relations.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelationsTraining {
    /// The folder of the initial encoder. Without it, `encoder` has the sizes of an encoder with random weights.
    pub from: Option<PathBuf>,
    /// `[relations.training.encoder]`: the sizes of an encoder with random weights.
    pub encoder: Option<FreshEncoder>,
    /// The largest number of tokens of a sentence with its markers.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 16), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The size of the hidden layer between the states of two mentions and the logits.
    #[serde(default = "hidden_size")]
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The dropout rate of the encoder and of the hidden layer.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[relations.training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `[relations.training.encoder]`: a small BERT and its vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FreshEncoder {
    /// The size of the vocabulary, which is trained on the annotated documents.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
}

fn max_tokens() -> usize {
    256
}

fn hidden_size() -> usize {
    256
}

fn dropout() -> f64 {
    0.1
}

/// The purpose of loading a config. Only the files of this purpose must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Training, which reads `[annotations]` and the initial encoder.
    Train,
    /// Extraction of facts, which reads `[input]`.
    Populate,
    /// Both.
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
        let (trains, populates) = (purpose != Purpose::Populate, purpose != Purpose::Train);
        if let Some(annotations) = &self.annotations {
            for path in annotations.files.iter().filter(|path| trains && !path.is_file()) {
                document.report_key("annotations.files", format!("no file {}", path.display()));
            }
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
            if self.relations.bilstm.is_some() || self.relations.seq2seq.is_some() {
                let message = "expected `[relations.linear]` or `[relations.training]` with it; other models do not support \
                               a teacher";
                document.report_key("teacher", message);
            }
        }
        if let Some(linker) = &self.linker {
            for (key, path) in [("types", &linker.types), ("facts", &linker.facts)] {
                if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
                    document.report_key(&format!("linker.{key}"), format!("no file {}", path.display()));
                }
            }
        }
        self.mentions.check(document, self.coreference);
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
        let relations = &self.relations;
        if let Err(error) = relations.device.check(relations.precision) {
            document.report_key("relations.device", error.to_string());
        }
        if let Some(linear) = &relations.linear {
            if linear.buckets == 0 || linear.epochs == 0 {
                document.report_key("relations.linear", "expected `buckets` and `epochs` of at least 1");
            }
            if !(linear.learning_rate > 0.0
                && linear.learning_rate.is_finite()
                && (0.0..1.0).contains(&linear.decay))
            {
                let message = "expected a `learning-rate` above 0 and a `decay` from 0 to below 1";
                document.report_key("relations.linear", message);
            }
        }
        if let Some(bilstm) = &relations.bilstm {
            bilstm.check(purpose, document);
            if relations.linear.is_some() || relations.training.is_some() {
                let message = "expected no `[relations.linear]` and no `[relations.training]` with it";
                document.report_key("relations.bilstm", message);
            }
        }
        if let Some(seq2seq) = &relations.seq2seq {
            seq2seq.check(purpose, document);
            if relations.linear.is_some() || relations.training.is_some() || relations.bilstm.is_some() {
                document.report_key("relations.seq2seq", "expected no other table of a model with it");
            }
        }
        let Some(training) = &relations.training else { return };
        let key = |name: &str| format!("relations.training.{name}");
        match (&training.from, &training.encoder) {
            (Some(from), None) if trains => document.check_checkpoint(&key("from"), from),
            (Some(_), Some(_)) => document.report_key(&key("encoder"), "expected either this or `from`"),
            (None, None) => document.report_key(&key("from"), "expected either this or `encoder`"),
            (None, Some(encoder)) if encoder.heads == 0 || encoder.hidden_size % encoder.heads != 0 => {
                let message =
                    format!("expected a divisor of {}, found {}", encoder.hidden_size, encoder.heads);
                document.report_key(&key("encoder.heads"), message);
            }
            _ => {}
        }
        if let Err(error) = training.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

impl BilstmTraining {
    fn check(&self, purpose: Purpose, document: &mut Document<'_>) {
        let key = |name: &str| format!("relations.bilstm.{name}");
        if let Err((name, message)) = self.shape.check() {
            document.report_key(&key(&format!("shape.{name}")), message);
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
        if let Some(from) = self.from.as_ref().filter(|_| purpose != Purpose::Populate) {
            document.check_checkpoint(&key("from"), from);
        }
    }
}
