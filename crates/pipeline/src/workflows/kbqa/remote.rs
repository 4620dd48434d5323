//! A model at an endpoint, with demonstrations of other questions in its prompt. It generates answers separated by
//! commas.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Diagnostic, Document};
use sporran_generator::{RemoteGenerator, RemoteOptions};
use sporran_kilt::observe::Observer;
use sporran_reasoner::question::{Background, QuestionTraining, Reasoner, ReasonerKind};
use sporran_training::session::Trained;

use super::{
    causal::{InContext, shown},
    texts::{AnswerSplitter, outside},
};
use crate::Error;

/// `kind = "remote"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RemoteQuestions(pub Box<RemoteOptions>);

impl ReasonerKind for RemoteQuestions {
    /// The name of the model at the endpoint.
    fn model(&self) -> &Path {
        Path::new(&self.0.model)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.0.check_in(key, document);
    }

    fn is_trained(&self) -> bool {
        false
    }

    fn train(&self, _: &QuestionTraining<'_>, _: &mut Observer<'_>) -> sporran_reasoner::Result<Trained> {
        let message = "`remote` is not trained; use `sporran reason`";
        Err(outside(Error::Config(vec![Diagnostic::of_config("reasoner.kind", message)])))
    }

    fn open<'a>(&self, background: Background<'a>) -> sporran_reasoner::Result<Box<dyn Reasoner + 'a>> {
        let shown = shown(self.0.demonstrations.as_ref(), background.read)?;
        // The seed is that of waits only.
        let generator = RemoteGenerator::showing(&self.0, shown, 0);
        let generator = generator.map_err(|error| outside(error.into()))?;
        Ok(Box::new(InContext { generator, splitter: AnswerSplitter::new(background.kb) }))
    }
}
