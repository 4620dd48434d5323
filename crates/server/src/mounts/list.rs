//! The list of what is served.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::Serialize;
use sporran_kilt::{PassageStore, observe::Observer};
use sporran_pipeline::workflows::{answer::AskOptions, registry::workflow_of};

use super::{
    answer::{AnswerRequest, AnswerResponse},
    answering::Answering,
    completing::Completing,
    extracting::Extracting,
    questioning::Questioning,
};
use crate::{Cause, Error, Failure, Result, clock::now, work::Setting};

/// No mount's name: `/v1/models/search` would be the model `search`.
const RESERVED: &str = "models";

/// Something that is served under a name.
#[derive(Clone)]
pub(crate) struct Mount {
    name: String,
    mounted: Mounted,
}

/// The kinds of mounts.
#[derive(Clone)]
enum Mounted {
    /// Answers and searches.
    Answers(Arc<Answering>),
    /// Facts of texts, and entities of their mentions.
    Facts(Arc<Extracting>),
    /// Completion of triples over a knowledge base.
    Knowledge(Arc<Completing>),
    /// Questions over a knowledge base.
    Questions(Arc<Questioning>),
}

/// All mounts, in the order of the command line.
#[derive(Clone, Default)]
pub(crate) struct Mounts {
    mounts: Vec<Mount>,
    opened: u64,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MountsResponse {
    /// The mounts.
    pub(crate) mounts: Vec<MountSummary>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct MountSummary {
    /// The name.
    pub(crate) name: String,
    /// The kind: `answer`, `facts`, `links`, `knowledge` or `questions`.
    pub(crate) kind: &'static str,
    /// What it can do: `search`, `answer` (answers in sentences), `facts`, `link`, `complete`, `reason` (answers over a knowledge
    /// base).
    pub(crate) abilities: Vec<&'static str>,
    /// The number of documents of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) documents: Option<usize>,
    /// The number of passages of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) passages: Option<usize>,
}

impl Mount {
    fn answers(answering: Answering) -> Self {
        Self { name: answering.name().to_owned(), mounted: Mounted::Answers(Arc::new(answering)) }
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What answers and searches here, if it is such a mount.
    pub(crate) fn answering(&self) -> Option<&Arc<Answering>> {
        match &self.mounted {
            Mounted::Answers(answering) => Some(answering),
            _ => None,
        }
    }

    /// What answers questions over a knowledge base, if it is such a mount.
    fn questioning(&self) -> Option<&Arc<Questioning>> {
        match &self.mounted {
            Mounted::Questions(questioning) => Some(questioning),
            _ => None,
        }
    }

    pub(crate) fn summary(&self) -> MountSummary {
        let (mut abilities, mut documents, mut passages) = (Vec::new(), None, None);
        let kind = match &self.mounted {
            Mounted::Answers(answering) => {
                abilities.extend(answering.searches().then_some("search"));
                abilities.extend(answering.generates().then_some("answer"));
                documents = answering.store().map(PassageStore::pages);
                passages = answering.store().map(PassageStore::len);
                "answer"
            }
            Mounted::Facts(extracting) => {
                abilities.extend(extracting.extracts_facts().then_some("facts"));
                abilities.extend(extracting.links_mentions().then_some("link"));
                if extracting.extracts_facts() { "facts" } else { "links" }
            }
            Mounted::Knowledge(_) => {
                abilities.push("complete");
                "knowledge"
            }
            Mounted::Questions(_) => {
                abilities.push("reason");
                "questions"
            }
        };
        MountSummary { name: self.name.clone(), kind, abilities, documents, passages }
    }
}

impl Mounts {
    /// Opens all mounts. Builds missing indexes.
    ///
    /// # Errors
    /// Errors of the configs, the documents and the models, and two mounts with one name.
    pub(crate) fn open(
        options: &[AskOptions],
        setting: &Setting,
        observe: &mut Observer<'_>,
    ) -> Result<Self> {
        let mut mounts: Vec<Mount> = Vec::new();
        for options in options {
            // A server runs for long. What it keeps must not grow with each question.
            let options = AskOptions { keep_responses: false, ..options.clone() };
            for mount in open(&options, setting, observe, &mut Vec::new())? {
                if mounts.iter().any(|known| known.name == mount.name) {
                    return Err(Error::Name { name: mount.name });
                }
                if mount.name == RESERVED {
                    return Err(Error::Reserved { name: RESERVED });
                }
                mounts.push(mount);
            }
        }
        Ok(Self { mounts, opened: now() })
    }

    /// The time at which they were opened, in seconds since 1970.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// All mounts.
    pub(crate) fn all(&self) -> &[Mount] {
        &self.mounts
    }

    /// What is mounted.
    pub(crate) fn summary(&self) -> MountsResponse {
        MountsResponse { mounts: self.mounts.iter().map(Mount::summary).collect() }
    }

    /// What has an index, of a name or the first one.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn searching(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        self.find("index", name, |mount| mount.answering().filter(|answering| answering.searches()))
    }

    /// What has a generator, of a name or the first one.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn generating(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        self.find("generator", name, |mount| mount.answering().filter(|answering| answering.generates()))
    }

    /// Answers a question with the mount that it names; without one with the first that has a generator, or else the first that
    /// has an index, or else the first knowledge base for questions.
    ///
    /// # Errors
    /// A name that is not there, and those of the mount.
    pub(crate) async fn answer(&self, request: &AnswerRequest) -> Result<AnswerResponse, Failure> {
        let name = request.mount.as_deref();
        let generates = |mount: &&Mount| mount.answering().is_some_and(|answering| answering.generates());
        let mut all = self.mounts.iter().filter(|_| name.is_none());
        let first = all.clone().find(generates).or_else(|| all.find(|mount| mount.answering().is_some()));
        let can = |mount: &Mount| mount.answering().is_some() || mount.questioning().is_some();
        let what = "index, generator or knowledge base for questions";
        let found = first.map_or_else(|| self.find(what, name, |mount| can(mount).then_some(mount)), Ok)?;
        match &found.mounted {
            Mounted::Questions(questioning) => questioning.answer(request).await,
            Mounted::Answers(answering) => answering.answer(request).await,
            _ => Err(Failure::not_found(what, found.name(), [])),
        }
    }

    /// What extracts facts, of a name or the first one.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn extracting(&self, name: Option<&str>) -> Result<&Arc<Extracting>, Failure> {
        self.reading("extractor of facts", name, Extracting::extracts_facts)
    }

    /// What links mentions, of a name or the first one.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn linking(&self, name: Option<&str>) -> Result<&Arc<Extracting>, Failure> {
        self.reading("linker", name, Extracting::links_mentions)
    }

    fn reading(
        &self,
        what: &str,
        name: Option<&str>,
        can: fn(&Extracting) -> bool,
    ) -> Result<&Arc<Extracting>, Failure> {
        self.find(what, name, |mount| match &mount.mounted {
            Mounted::Facts(extracting) if can(extracting) => Some(extracting),
            _ => None,
        })
    }

    /// What completes triples, of a name or the first one.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn completing(&self, name: Option<&str>) -> Result<&Arc<Completing>, Failure> {
        self.find("knowledge base", name, |mount| match &mount.mounted {
            Mounted::Knowledge(completing) => Some(completing),
            _ => None,
        })
    }

    /// The mount of a name, or the first one, among those that `fits` takes. `what` is what they are.
    fn find<'m, T>(
        &'m self,
        what: &str,
        name: Option<&str>,
        fits: impl Fn(&'m Mount) -> Option<&'m T>,
    ) -> Result<&'m T, Failure> {
        let mut all = self.mounts.iter().filter_map(|mount| Some((mount.name(), fits(mount)?)));
        let found = all.find(|(known, _)| name.is_none_or(|name| *known == name));
        found.map(|(_, found)| found).ok_or_else(|| match name {
            Some(name) => {
                let known = self.mounts.iter().filter(|mount| fits(mount).is_some()).map(Mount::name);
                Failure::not_found(what, name, known)
            }
            None => Failure::new(Cause::NotFound, format!("no {what} is mounted")),
        })
    }
}

/// The workflows that are served.
const SERVED: [&str; 7] =
    ["answer", "population", "entity-linking", "link-prediction", "graph-network", "rules", "kbqa"];

/// The mounts of an argument: the documents, or the config and those of its key `then` that are served. `above`: the configs
/// that led to it.
fn open(
    options: &AskOptions,
    setting: &Setting,
    observe: &mut Observer<'_>,
    above: &mut Vec<PathBuf>,
) -> Result<Vec<Mount>> {
    let Some(config) = options.config() else {
        let answering = Answering::open(Some(name_of(options)), options, setting, observe)?;
        return Ok(vec![Mount::answers(answering)]);
    };
    let own = config.canonicalize().unwrap_or_else(|_| config.to_owned());
    if above.contains(&own) {
        return Err(Error::Circle { path: config.to_owned() });
    }
    let workflow = workflow_of(config, &[])?.name;
    match workflow {
        "answer" => {
            let answering = Answering::open(None, options, setting, observe)?;
            let configs = answering.then().to_vec();
            let mut mounts = vec![Mount::answers(answering)];
            above.push(own);
            for then in configs {
                let then = AskOptions { sources: vec![then], ..options.clone() };
                match open(&then, setting, observe, above) {
                    Ok(more) => mounts.extend(more),
                    Err(Error::Workflow { path, workflow, .. }) => {
                        tracing::warn!("{} is not served: its workflow is `{workflow}`", path.display());
                    }
                    Err(error) => return Err(error),
                }
            }
            above.pop();
            Ok(mounts)
        }
        "population" | "entity-linking" => {
            let extracting = Extracting::open(config, workflow, setting)?;
            let (name, mounted) = (extracting.name().to_owned(), Mounted::Facts(Arc::new(extracting)));
            Ok(vec![Mount { name, mounted }])
        }
        "link-prediction" | "graph-network" | "rules" => {
            let completing = Completing::open(config, workflow, setting)?;
            let (name, mounted) = (completing.name().to_owned(), Mounted::Knowledge(Arc::new(completing)));
            Ok(vec![Mount { name, mounted }])
        }
        "kbqa" => {
            let questioning = Questioning::open(config, setting, observe)?;
            let (name, mounted) = (questioning.name().to_owned(), Mounted::Questions(Arc::new(questioning)));
            Ok(vec![Mount { name, mounted }])
        }
        other => {
            let served = SERVED.map(|name| format!("`{name}`")).join(", ");
            Err(Error::Workflow { path: config.to_owned(), workflow: other.to_owned(), served })
        }
    }
}

/// The name of documents: that of the first file or folder. The name of a model alone: that of its file, without the ending, or
/// its folder, or its name at an endpoint.
fn name_of(options: &AskOptions) -> String {
    let own = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = match (options.sources.first(), &options.generator) {
        (Some(source), _) => own(source).file_name().map(|name| name.to_string_lossy().into_owned()),
        (None, Some(model)) => {
            let path = own(model);
            let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
            name.map(|name| name.to_string_lossy().into_owned())
        }
        (None, None) => options.endpoint.as_ref().map(|endpoint| endpoint.model.clone()),
    };
    name.unwrap_or_else(|| "documents".to_owned())
}
