//! What a config of knowledge-base population says. These types' documentation is the manual of the config file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_extractor::{
    LinkerOptions, MentionForm,
    relations::{BilstmShape, LinearTraining},
};
use sporran_training::TrainingOptions;
use sporran_transformers::{DeviceName, Precision};

use super::{aliases::NamesOptions, sources::InputFormat, triplets::TripletTraining};
use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
};
use sporran_config::Document;

/// A whole config of knowledge-base population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PopulationOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance.
    #[serde(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[annotations]`: what is learned from.
    pub annotations: Option<AnnotationsOptions>,
    /// `[teacher]`: a model whose reading of other text is learned beside `[annotations]`.
    pub teacher: Option<TeacherOptions>,
    /// `[relations]`: what tells which properties hold.
    pub relations: RelationsOptions,
    /// `[mentions]`: what finds mentions, and which of them are read.
    #[serde(default)]
    pub mentions: MentionsOptions,
    /// `coreference`: `none`, or `rules`, which lend pronouns and partial names the links of their chains.
    #[serde(default)]
    pub coreference: CoreferenceKind,
    /// `[linker]`: what links mentions to a knowledge base; without it facts have no links.
    pub linker: Option<LinkingOptions>,
    /// `[input]`: what facts are read from.
    pub input: Option<InputOptions>,
    /// `[source]`: the knowledge source whose pages are the provenance. With it the table `input.pages` may name pages by their
    /// titles, and a fact's sentence has its place where its page has the same words.
    pub source: Option<SourceOptions>,
    /// `[triples]`: how facts become triples.
    #[serde(default)]
    pub triples: TriplesOptions,
}

/// `[mentions]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MentionsOptions {
    /// The folder of a trained tagger, which tells persons, organisations, places and dates apart; without it names are found
    /// by their capitals and are of no type.
    pub tagger: Option<PathBuf>,
    /// The folder of a trained tagger that tells coreference the types of names that are found by their capitals; what tells
    /// properties does not read them.
    pub types: Option<PathBuf>,
    /// How the mentions that are read are put: `name` (dates are names), `pronoun`, `nominal`.
    pub forms: Vec<MentionForm>,
}

impl Default for MentionsOptions {
    fn default() -> Self {
        Self {
            tagger: None,
            types: None,
            forms: vec![MentionForm::Name, MentionForm::Pronoun, MentionForm::Nominal],
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
                .report_key("mentions.types", "expected `coreference`, and no `mentions.tagger`, beside it");
        }
        if self.forms.is_empty() {
            document.report_key("mentions.forms", "expected at least one of `name`, `pronoun`, `nominal`");
        }
    }
}

/// What puts mentions of one entity together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoreferenceKind {
    /// Nothing: each mention stands for itself.
    #[default]
    None,
    /// Rules over names, pronouns and descriptions.
    Rules,
}

/// `[linker]`: names, and when they are sure enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkingOptions {
    /// The table of names: where training puts it and where it is read from.
    pub aliases: PathBuf,
    /// `[linker.decision]`: when a link is withheld.
    #[serde(default)]
    pub decision: LinkerOptions,
    /// `[[linker.names]]`: where training takes names from, beside the links of `[annotations]`.
    #[serde(default)]
    pub names: Vec<NamesOptions>,
    /// The types of entities, which a model of `[relations.bilstm]` reads: one JSON object, for each id a list of types.
    pub types: Option<PathBuf>,
    /// A knowledge base's folder or file of triples; the model reads what it has between two mentions.
    pub facts: Option<PathBuf>,
}

/// `[input]`: files that are read one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InputOptions {
    /// `text`, `kilt` or `knowledgenet`.
    pub format: InputFormat,
    /// The files.
    pub files: Vec<PathBuf>,
    /// Only KnowledgeNet's documents of these folds; none for all.
    #[serde(default)]
    pub folds: Vec<i64>,
    /// A table of the pages that the documents of `text` and `knowledgenet` are: lines of a document's id, a tab, and the page's
    /// id. Facts of documents that it does not have are told without provenance. A block of text has the id `FILE:NUMBER`,
    /// counted from 0.
    pub pages: Option<PathBuf>,
}

/// `[triples]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TriplesOptions {
    /// What properties are called in triples, such as `PLACE_OF_BIRTH = "P19"`; others keep their names.
    pub relations: BTreeMap<String, String>,
}

/// `[annotations]`: documents with facts, in KnowledgeNet's layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnnotationsOptions {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Only documents of these folds.
    #[serde(default = "training_folds")]
    pub folds: Vec<i64>,
    /// Of so many documents one is not learned from; these decide on thresholds and judge each pass over the others.
    #[serde(default = "judge_every")]
    #[schemars(range(min = 2))]
    pub judge_every: usize,
}

fn training_folds() -> Vec<i64> {
    vec![1, 2, 3]
}

fn judge_every() -> usize {
    8
}

/// `[teacher]`: a trained model that reads what nobody annotated; its probabilities are learned (distillation).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TeacherOptions {
    /// The teacher's folder.
    pub model: PathBuf,
    /// The numbers that it computes with.
    #[serde(default)]
    pub precision: Precision,
    /// What a pair that it read counts beside one that people annotated.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub weight: f32,
    /// Of so many documents it reads one.
    #[serde(default = "every")]
    #[schemars(range(min = 1))]
    pub every: usize,
    /// Where its probabilities are kept, so that a training that was stopped, and others, need not wait for them again; by
    /// default in the run's folder.
    pub readings: Option<PathBuf>,
    /// `[teacher.input]`: what it reads.
    pub input: InputOptions,
}

fn one() -> f32 {
    1.0
}

fn every() -> usize {
    1
}

/// `[relations]`: a linear model of the words, a BiLSTM, an encoder that reads a sentence with its mentions marked, or an
/// encoder-decoder that writes facts; with both `linear` and `training` the mean of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelationsOptions {
    /// The model's folder: where training puts it and where it is read from.
    pub model: PathBuf,
    /// The numbers that it computes with: `f32` or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where it computes and trains: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[relations.linear]`: how a linear model is made.
    pub linear: Option<LinearTraining>,
    /// `[relations.training]`: how an encoder that reads marked mentions is made.
    pub training: Option<RelationsTraining>,
    /// `[relations.bilstm]`: how a BiLSTM over the tokens around two mentions is made (Mesquita et al., 2019).
    pub bilstm: Option<BilstmTraining>,
    /// `[relations.seq2seq]`: how an encoder-decoder that writes facts is made (Huguet Cabot and Navigli, 2021).
    pub seq2seq: Option<TripletTraining>,
}

/// `[relations.bilstm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmTraining {
    /// `[relations.bilstm.shape]`: what it reads, and its sizes.
    pub shape: BilstmShape,
    /// The folder of an encoder, the mixed layers of which stand in the place of words that are learned from nothing. It is
    /// not trained further, and is put beside the model.
    pub from: Option<PathBuf>,
    /// Of the pairs that have no property, the share that each pass draws.
    #[schemars(range(min = 0, max = 1))]
    pub negatives: f64,
    /// `[relations.bilstm.optimizer]`: passes, batches, learning rate.
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
    /// The folder of the encoder to start from. Without it `encoder` says what is drawn by the seed.
    pub from: Option<PathBuf>,
    /// `[relations.training.encoder]`: the sizes of an encoder that is drawn by the seed.
    pub encoder: Option<FreshEncoder>,
    /// Tokens of a sentence with its markers, at most.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 16), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Width of the layer between the states of two mentions and the properties.
    #[serde(default = "inner")]
    #[schemars(range(min = 1))]
    pub inner: usize,
    /// Share of the values that training drops, in the encoder and in the layer behind it.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Whether the weights are written in half precision.
    #[serde(default)]
    pub half: bool,
    /// `[relations.training.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `[relations.training.encoder]`: a small BERT with a vocabulary of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FreshEncoder {
    /// Tokens of the vocabulary, which is learned from the annotated documents.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// Width of the states.
    #[schemars(range(min = 1))]
    pub width: usize,
    /// Layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// Heads of attention.
    #[schemars(range(min = 1))]
    pub heads: usize,
}

fn max_tokens() -> usize {
    256
}

fn inner() -> usize {
    256
}

fn dropout() -> f64 {
    0.1
}

/// What a config is read for; files that this does not read need not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Training, which reads `[annotations]` and the encoder to start from.
    Train,
    /// Populating, which reads `[input]`.
    Populate,
    /// Whatever it says.
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
    /// As [`Config::load`], but what `purpose` does not read is not looked at.
    ///
    /// # Errors
    /// As there.
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
                let message = "expected `[relations.linear]` or `[relations.training]` beside it; other models learn what \
                               is annotated";
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
                    "expected no table where `input.format` is `kilt`: it is pages",
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
                    let message = format!("expected names that differ before their dot, found {name} again");
                    document.report_key("input.files", message);
                }
            }
            if !input.folds.is_empty() && input.format != InputFormat::Knowledgenet {
                document.report_key("input.folds", "expected `format = \"knowledgenet\"` beside it");
            }
        }
        let relations = &self.relations;
        if let Err(error) = relations.device.check(relations.precision) {
            document.report_key("relations.device", error.to_string());
        }
        if let Some(linear) = &relations.linear {
            if linear.buckets == 0 || linear.passes == 0 {
                document.report_key("relations.linear", "expected `buckets` and `passes` of at least 1");
            }
            if !(linear.rate > 0.0 && linear.rate.is_finite() && (0.0..1.0).contains(&linear.decay)) {
                let message = "expected a `rate` above 0 and a `decay` from 0 to below 1";
                document.report_key("relations.linear", message);
            }
        }
        if let Some(bilstm) = &relations.bilstm {
            bilstm.check(purpose, document);
            if relations.linear.is_some() || relations.training.is_some() {
                let message = "expected no `[relations.linear]` and no `[relations.training]` beside it";
                document.report_key("relations.bilstm", message);
            }
        }
        if let Some(seq2seq) = &relations.seq2seq {
            seq2seq.check(purpose, document);
            if relations.linear.is_some() || relations.training.is_some() || relations.bilstm.is_some() {
                document.report_key("relations.seq2seq", "expected no other table of a model beside it");
            }
        }
        let Some(training) = &relations.training else { return };
        let key = |name: &str| format!("relations.training.{name}");
        match (&training.from, &training.encoder) {
            (Some(from), None) if trains => document.check_checkpoint(&key("from"), from),
            (Some(_), Some(_)) => document.report_key(&key("encoder"), "expected either this or `from`"),
            (None, None) => document.report_key(&key("from"), "expected either this or `encoder`"),
            (None, Some(encoder)) if encoder.heads == 0 || encoder.width % encoder.heads != 0 => {
                let message = format!("expected a divisor of {}, found {}", encoder.width, encoder.heads);
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
