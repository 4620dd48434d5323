//! What a config of questions over a knowledge base says. These types' documentation is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, kinds};
use sporran_generator::CausalOptions;
use sporran_training::TrainingOptions;

use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
    training::options::ShapeOptions,
};

/// A whole config of a system that answers KoRC's questions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReasonOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `kb`: the knowledge base, a folder or a file of triples.
    pub kb: PathBuf,
    /// `entities`: a table of what entities are called, with a first line that names its columns, where `kb` does not say.
    pub entities: Option<PathBuf>,
    /// `relations`: what relations are called, where `kb` does not say.
    pub relations: Option<PathBuf>,
    /// `[source]`: the knowledge source in which the pages of documents are looked up by their titles, for questions that do not
    /// say where their documents stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceOptions>,
    /// `[populated]`: facts that join the knowledge base with the sentences that state them.
    #[schemars(default)]
    pub populated: PopulatedFacts,
    /// `most-answers`: answers to a question, at most.
    #[schemars(default = "most_answers", range(min = 1))]
    pub most_answers: usize,
    /// `[data]`: the questions.
    pub data: QuestionFiles,
    /// `[reasoner]`: what answers, by `kind`.
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
    #[serde(default = "most_answers")]
    most_answers: usize,
    data: QuestionFiles,
}

fn most_answers() -> usize {
    10
}

/// `[populated]`: what `sporran populate` read from text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PopulatedFacts {
    /// Folders of its runs.
    pub runs: Vec<PathBuf>,
    /// Only facts that it is so sure of, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub least_confidence: f64,
}

impl Default for PopulatedFacts {
    fn default() -> Self {
        Self { runs: Vec::new(), least_confidence: 0.5 }
    }
}

/// `[data]`: files in KoRC's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QuestionFiles {
    /// What is learned from.
    pub train: Vec<PathBuf>,
    /// What the threshold and the best weights are chosen on.
    pub valid: Option<PathBuf>,
    /// The test in distribution.
    pub iid: Option<PathBuf>,
    /// The test out of distribution.
    pub ood: Option<PathBuf>,
    /// Only so many questions of each test.
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
    /// The folder of an encoder to start from; without it, one of this shape is drawn and its vocabulary learned.
    pub from: Option<PathBuf>,
    /// Width of the states.
    #[schemars(range(min = 1))]
    pub width: usize,
    /// Layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// Attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// Inner width of the feed-forward part.
    #[schemars(range(min = 1))]
    pub feed_forward: usize,
    /// Tokens of the vocabulary, at most.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// Dropout rate.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Tokens of question and document, at most.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
}

impl Default for EncoderShape {
    fn default() -> Self {
        Self {
            from: None,
            width: 128,
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
    /// The model's folder: where training writes it.
    pub model: PathBuf,
    /// Complex numbers of an entity's vector, 64 if it is not given; only without `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<usize>,
    /// The folder of a ComplEx of the same knowledge base, whose vectors of entities are taken. Without it they are drawn, and
    /// trained with the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<PathBuf>,
    /// Whether the vectors of `embedding` are trained further with the questions.
    #[serde(default)]
    pub train_entities: bool,
    /// `[reasoner.encoder]`: what reads question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `kind = "transfer-net"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransferOptions {
    /// The model's folder: where training writes it.
    pub model: PathBuf,
    /// Steps over the triples: 1 or 2.
    #[serde(default = "steps")]
    #[schemars(range(min = 1, max = 2), extend("x-unit" = "steps"))]
    pub steps: usize,
    /// `[reasoner.encoder]`: what reads question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: passes, batches, learning rate.
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
    /// The model's folder: where training writes it.
    pub model: PathBuf,
    /// The folder of a T5 or BART to start from; without it, a T5 of `shape` is drawn and its vocabulary learned.
    pub from: Option<PathBuf>,
    /// `[reasoner.shape]`: the shape of a new T5.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// Tokens of question and document, at most.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Tokens of the answers, at most.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// Triples of the knowledge base about what the document names that are read as well, at most: those whose relation's
    /// label and entities share most words with the question. 0 reads none.
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
        let General { name, seed, output, kb, entities, relations, source, populated, most_answers, data } =
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
            most_answers,
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
            let message = format!("{} has no predictions; `sporran populate` makes them", run.display());
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
    fn every_mistake_is_told_with_its_key() {
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
    fn vectors_of_entities_come_from_one_place() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\n[reasoner]\nkind = \"embed-kgqa\"\nmodel = \"m\"\n\
                    train-entities = true\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        assert!(found(&[]).contains("`reasoner.train-entities`: expected it only with `embedding`"));
        let both = found(&["reasoner.embedding=e", "reasoner.rank=4"]);
        assert!(both.contains("`reasoner.rank`: expected it only without `embedding`"), "{both}");
        assert!(!both.contains("train-entities"), "{both}");
    }
}
