//! The options of questions over a knowledge base. The documentation of these types is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, kinds};
use sporran_generator::CausalOptions;
use sporran_training::{TrainingOptions, session::ShapeOptions};

use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of a system for KoRC's questions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReasonOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `kb`: the knowledge base, a folder or a file of triples.
    pub kb: PathBuf,
    /// `entities`: a table of names of entities, with a header, if `kb` has none.
    pub entities: Option<PathBuf>,
    /// `relations`: names of relations, if `kb` has none.
    pub relations: Option<PathBuf>,
    /// `[source]`: the knowledge source with the pages of documents, by title. It is for questions without provenance of their
    /// document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceOptions>,
    /// `[populated]`: extracted facts to add to the knowledge base, with their sentences.
    #[schemars(default)]
    pub populated: PopulatedFacts,
    /// `max-answers`: the largest number of answers to a question.
    #[schemars(default = "max_answers", range(min = 1))]
    pub max_answers: usize,
    /// `[data]`: the questions.
    pub data: QuestionFiles,
    /// `[reasoner]`: the model, by `kind`.
    pub reasoner: ReasonerOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default)]
    seed: u64,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    kb: PathBuf,
    entities: Option<PathBuf>,
    relations: Option<PathBuf>,
    source: Option<SourceOptions>,
    #[serde(default)]
    populated: PopulatedFacts,
    #[serde(default = "max_answers")]
    max_answers: usize,
    data: QuestionFiles,
}

fn max_answers() -> usize {
    10
}

/// `[populated]`: facts that `sporran populate` extracted from text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PopulatedFacts {
    /// The folders of the runs.
    pub runs: Vec<PathBuf>,
    /// The smallest confidence of a fact, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: f64,
}

impl Default for PopulatedFacts {
    fn default() -> Self {
        Self { runs: Vec::new(), min_confidence: 0.5 }
    }
}

/// `[data]`: files in KoRC's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QuestionFiles {
    /// The training files.
    pub train: Vec<PathBuf>,
    /// The validation file, for the threshold and the best weights.
    pub valid: Option<PathBuf>,
    /// The in-distribution test file.
    pub iid: Option<PathBuf>,
    /// The out-of-distribution test file.
    pub ood: Option<PathBuf>,
    /// The largest number of questions of each test.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// What the options of every kind of reasoner have.
pub trait ReasonerKind {
    /// The model's folder.
    fn model(&self) -> &Path;

    /// Reports wrong values and missing files besides the model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);
}

kinds! {
    /// `[reasoner]`, by `kind`.
    pub enum ReasonerOptions: dyn ReasonerKind {
        /// `kind = "embed-kgqa"`: the question with its document as a vector among those of the entities, scored by ComplEx.
        "embed-kgqa" => EmbedKgqa(EmbedOptions),
        /// `kind = "transfer-net"`: steps over the triples from the entities of the document.
        "transfer-net" => TransferNet(TransferOptions),
        /// `kind = "seq2seq"`: generates the answers, separated by commas, from the document and the question, without the
        /// knowledge base.
        "seq2seq" => Seq2Seq(Seq2SeqQuestions),
        /// `kind = "causal"`: a decoder-only model that is not trained; its prompt has other questions with their documents and
        /// answers. The files of `[reasoner.demonstrations]` are in KoRC's layout; its `answer-words` is ignored.
        "causal" => Causal(Box<CausalOptions>),
    }
}

impl ReasonerKind for EmbedOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
        if self.rank.is_some() && self.embedding.is_some() {
            let message = "expected it only without `embedding`, which has a rank";
            document.report_key(&format!("{key}.rank"), message);
        }
        if self.train_entities && self.embedding.is_none() {
            document.report_key(&format!("{key}.train-entities"), "expected it only with `embedding`");
        }
    }
}

impl ReasonerKind for TransferOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }
}

impl ReasonerKind for Seq2SeqQuestions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }
}

impl ReasonerKind for Box<CausalOptions> {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let files = self.demonstrations.iter().flat_map(|shown| &shown.files);
        for path in files.filter(|path| !path.exists()) {
            document
                .report_key(&format!("{key}.demonstrations.files"), format!("no file {}", path.display()));
        }
    }
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}

/// The encoder of a question model and its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EncoderShape {
    /// The folder of the initial encoder. Without it, training starts from an encoder of these sizes with
    /// random weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// The size of the feed-forward layers.
    #[schemars(range(min = 1))]
    pub feed_forward: usize,
    /// The largest size of the vocabulary.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The dropout rate.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The largest number of tokens of question and document.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
}

impl Default for EncoderShape {
    fn default() -> Self {
        Self {
            from: None,
            hidden_size: 128,
            layers: 2,
            heads: 4,
            feed_forward: 256,
            vocabulary: 4000,
            dropout: 0.1,
            max_tokens: 192,
        }
    }
}

/// `kind = "embed-kgqa"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EmbedOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of complex dimensions of an entity's vector. The default is 64. Only without `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<usize>,
    /// The folder of a ComplEx of the same knowledge base, for the vectors of entities. Without it, they are
    /// random at first, and trained with the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<PathBuf>,
    /// Whether the vectors of `embedding` are fine-tuned with the questions.
    #[serde(default)]
    pub train_entities: bool,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `kind = "transfer-net"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransferOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of steps over the triples: 1 or 2.
    #[serde(default = "steps")]
    #[schemars(range(min = 1, max = 2), extend("x-unit" = "steps"))]
    pub steps: usize,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn steps() -> usize {
    2
}

/// `kind = "seq2seq"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Seq2SeqQuestions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The folder of the initial T5 or BART. Without it, training starts from a T5 of `shape` with random
    /// weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// `[reasoner.shape]`: the sizes of a T5 with random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// The largest number of tokens of question and document.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens of the answers.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// The number of triples to add to the input. They are about entities of the document, and their
    /// relation's names share most words with the question.
    #[serde(default)]
    #[schemars(extend("x-unit" = "triples"))]
    pub retrieved: usize,
    /// `[reasoner.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn max_tokens() -> usize {
    256
}

fn answer_tokens() -> usize {
    48
}

impl Config for ReasonOptions {
    const WORKFLOWS: &'static [&'static str] = &["kbqa"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let reasoner = document.require_stage("reasoner");
        let General { name, seed, output, kb, entities, relations, source, populated, max_answers, data } =
            document.read_root(&["reasoner"])?;
        let reasoner = reasoner.ok()?;
        Some(Self {
            name,
            seed,
            output,
            kb,
            entities,
            relations,
            source,
            populated,
            max_answers,
            data,
            reasoner,
        })
    }

    fn check(&self, document: &mut Document<'_>) {
        let train = self.data.train.iter().map(|path| ("data.train", Some(path)));
        let files = [
            ("kb", Some(&self.kb)),
            ("entities", self.entities.as_ref()),
            ("relations", self.relations.as_ref()),
            ("data.valid", self.data.valid.as_ref()),
            ("data.iid", self.data.iid.as_ref()),
            ("data.ood", self.data.ood.as_ref()),
        ];
        for (key, path) in files.into_iter().chain(train) {
            if let Some(path) = path.filter(|path| !path.exists()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        pages::check(self.source.as_ref(), ("source", None), document);
        for run in self.populated.runs.iter().filter(|run| !run.join("predictions").is_dir()) {
            let message = format!("{} has no predictions; run `sporran populate`", run.display());
            document.report_key("populated.runs", message);
        }
        self.reasoner.check("reasoner", document);
    }
}

impl ReasonOptions {
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

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\niid = \"none.json\"\n[reasoner]\nkind = \"transfer-net\"\n\
                    model = \"m\"\nsteps = 3\noptimizer.learning-rate = 0\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        for expected in [
            "`kb`: no file none",
            "`data.iid`: no file none.json",
            "`reasoner.steps`: expected a whole number from 1 to 2, found 3",
            "learning-rate",
        ] {
            assert!(found(&[]).contains(expected), "{expected}: {}", found(&[]));
        }
        assert!(found(&["reasoner.kind=transfernet"]).contains("did you mean `transfer-net`?"));
        assert!(found(&["reasoner.step=1"]).contains("did you mean `steps`?"));
    }

    #[test]
    fn vectors_of_entities_have_one_source() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\n[reasoner]\nkind = \"embed-kgqa\"\nmodel = \"m\"\n\
                    train-entities = true\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        assert!(found(&[]).contains("`reasoner.train-entities`: expected it only with `embedding`"));
        let both = found(&["reasoner.embedding=e", "reasoner.rank=4"]);
        assert!(both.contains("`reasoner.rank`: expected it only without `embedding`"), "{both}");
        assert!(!both.contains("train-entities"), "{both}");
    }
}
