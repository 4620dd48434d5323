//! Completion of triples over a knowledge base.

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_pipeline::{
    Config,
    link_prediction::{AskOptions, LinkAnswer, LinkPredictor, LinkQuestion, LinksOptions, NetworkConfig},
    rules::RulesOptions,
};

use crate::{
    Failure, Result,
    work::{Setting, Worker},
};

/// The number of answers, and of the chains of each, that a request gets by default.
const ANSWERS: usize = 10;
const CHAINS: usize = 3;

/// Completes triples, with a thread.
pub(crate) struct Completing {
    name: String,
    predictor: Arc<LinkPredictor>,
    worker: Worker<Ask, Vec<LinkAnswer>>,
    most: usize,
}

/// A question with the form of its answers.
struct Ask {
    question: LinkQuestion,
    options: AskOptions,
}

/// A triple without its subject or without its object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteRequest {
    /// The name of the subject; without it, subjects are the answers.
    #[serde(default)]
    pub(crate) subject: Option<String>,
    /// The name of the relation.
    pub(crate) relation: String,
    /// The name of the object; without it, objects are the answers.
    #[serde(default)]
    pub(crate) object: Option<String>,
    /// The number of answers; 10 by default.
    #[serde(default)]
    pub(crate) answers: Option<usize>,
    /// The number of chains of an answer; 3 by default.
    #[serde(default)]
    pub(crate) chains: Option<usize>,
    /// Whether entities of known triples are answers too.
    #[serde(default)]
    pub(crate) known: bool,
    /// The mount; the first knowledge base by default.
    #[serde(default)]
    pub(crate) mount: Option<String>,
}

/// The entities that complete a triple.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CompleteResponse {
    /// The mount that answered.
    pub(crate) mount: String,
    /// The entities, best first.
    pub(crate) answers: Vec<LinkAnswer>,
}

impl Completing {
    /// Opens the knowledge base and the model of a config of the workflow `link-prediction`, `graph-network` or `rules`, after
    /// its training, and starts a thread.
    ///
    /// # Errors
    /// Errors of the config, the knowledge base and the model, and a system without threads.
    pub(crate) fn open(config: &Path, workflow: &str, setting: &Setting) -> Result<Self> {
        let (name, predictor) = match workflow {
            "rules" => {
                let options = RulesOptions::load(config, &[])?;
                let rules = options.model.clone().unwrap_or_else(|| options.folder().join("rules.tsv"));
                let predictor = LinkPredictor::open(&options.kb, None, Some(&rules))?;
                (options.name, predictor)
            }
            "graph-network" => {
                let options = NetworkConfig::load(config, &[])?;
                let folder = options.output.join(&options.name);
                let predictor =
                    LinkPredictor::open(&options.data.saved_in(&folder), Some(&folder.join("model")), None)?;
                (options.name, predictor)
            }
            _ => {
                let options = LinksOptions::load(config, &[])?;
                let folder = options.folder();
                let predictor =
                    LinkPredictor::open(&options.data.saved_in(&folder), Some(&folder.join("model")), None)?;
                (options.name, predictor)
            }
        };
        let (predictor, most) = (Arc::new(predictor), setting.limits.hits);
        let own = Arc::clone(&predictor);
        let worker = setting.worker(&format!("complete {name}"), move |items: &[Ask]| {
            let answer = |item: &Ask| {
                let query =
                    own.resolve(&item.question).map_err(|message| Failure::invalid("question", message))?;
                let found = own.ask(&[query], item.options).map_err(Failure::internal)?;
                Ok(found.into_iter().next().unwrap_or_default())
            };
            items.iter().map(answer).collect()
        })?;
        Ok(Self { name, predictor, worker, most })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The entities that complete a triple.
    ///
    /// # Errors
    /// Names that the knowledge base lacks, too many answers, a full queue, and errors of the model.
    pub(crate) async fn complete(&self, request: CompleteRequest) -> Result<CompleteResponse, Failure> {
        let CompleteRequest { subject, relation, object, answers, chains, known, .. } = request;
        let within = |field: &str, value: Option<usize>, default: usize| match value.unwrap_or(default) {
            count if count == 0 || count > self.most => {
                Err(Failure::invalid(field, format!("`{field}`: expected 1 to {}, found {count}", self.most)))
            }
            count => Ok(count),
        };
        let options = AskOptions {
            answers: within("answers", answers, ANSWERS)?,
            chains: within("chains", chains, CHAINS)?,
            known,
        };
        let question = LinkQuestion { subject, relation, object };
        // Names are looked up before a place in the queue is taken.
        self.predictor.resolve(&question).map_err(|message| Failure::invalid("question", message))?;
        let answers = self.worker.one(Ask { question, options }, 1).await?;
        Ok(CompleteResponse { mount: self.name.clone(), answers })
    }
}
