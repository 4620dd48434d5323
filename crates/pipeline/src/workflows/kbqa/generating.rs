//! `[reasoner]`: the kinds of reasoner that use a generator.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Diagnostic, Document, kinds};
use sporran_generator::CausalOptions;
use sporran_kilt::{kb::KnowledgeBase, observe::Observer};
use sporran_reasoner::{
    Error, Result,
    question::{QuestionTraining, Reasoner, ReasonerKind},
};
use sporran_training::{
    TrainingOptions,
    session::{ShapeOptions, Trained},
};

use super::{
    causal::CausalReasoner,
    seq2seq::{self, TextReasoner},
};

/// `[reasoner]`, by `kind`.
pub type ReasonerOptions = sporran_reasoner::question::ReasonerOptions<GeneratingReasoner>;

kinds! {
    /// Kinds of reasoner that use a generator.
    pub enum GeneratingReasoner: dyn ReasonerKind {
        /// `kind = "seq2seq"`: generates the answers, separated by commas, from the document and the question, without the
        /// knowledge base.
        "seq2seq" => Seq2Seq(Seq2SeqQuestions),
        /// `kind = "causal"`: a decoder-only model that is not trained; its prompt has other questions with their documents and
        /// answers. The files of `[reasoner.demonstrations]` are in KoRC's layout; its `answer-words` is ignored.
        "causal" => Causal(CausalQuestions),
    }
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

/// `kind = "causal"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CausalQuestions(pub Box<CausalOptions>);

impl ReasonerKind for Seq2SeqQuestions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        seq2seq::train(self, training, observe).map_err(outside)
    }

    fn open<'a>(&self, kb: &'a KnowledgeBase) -> Result<Box<dyn Reasoner + 'a>> {
        Ok(Box::new(TextReasoner::load(self, kb).map_err(outside)?))
    }
}

impl ReasonerKind for CausalQuestions {
    fn model(&self) -> &Path {
        &self.0.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let files = self.0.demonstrations.iter().flat_map(|shown| &shown.files);
        for path in files.filter(|path| !path.exists()) {
            document
                .report_key(&format!("{key}.demonstrations.files"), format!("no file {}", path.display()));
        }
    }

    fn train(&self, _: &QuestionTraining<'_>, _: &mut Observer<'_>) -> Result<Trained> {
        let message = "`causal` is not trained; use `sporran reason`";
        Err(outside(crate::Error::Config(vec![Diagnostic::of_config("reasoner.kind", message)])))
    }

    fn open<'a>(&self, _: &'a KnowledgeBase) -> Result<Box<dyn Reasoner + 'a>> {
        Ok(Box::new(CausalReasoner::load(&self.0).map_err(outside)?))
    }
}

/// An error of this crate as one of a reasoner.
pub(super) fn outside(error: crate::Error) -> Error {
    Error::Other(Box::new(error))
}
