//! The list of what is served.

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use sporran_kilt::{PassageStore, observe::Observer};
use sporran_pipeline::workflows::{
    answer::{AskOptions, Options},
    registry::workflow_of,
};

use super::{answering::Answering, completing::Completing, extracting::Extracting};
use crate::{Cause, Error, Failure, Result, work::Setting};

/// Something that is served under a name.
#[derive(Clone)]
pub struct Mount {
    name: String,
    mounted: Mounted,
}

/// The kinds of mounts.
#[derive(Clone)]
#[non_exhaustive]
pub enum Mounted {
    /// Answers and searches.
    Answers(Arc<Answering>),
    /// Facts and mentions of texts.
    Facts(Arc<Extracting>),
    /// Completion of triples over a knowledge base.
    Knowledge(Arc<Completing>),
}

/// All mounts, in the order of the command line.
#[derive(Clone, Default)]
pub struct Mounts {
    mounts: Vec<Mount>,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MountsResponse {
    /// The mounts.
    pub mounts: Vec<MountSummary>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MountSummary {
    /// The name.
    pub name: String,
    /// The kind: `answer`, `facts` or `knowledge`.
    pub kind: &'static str,
    /// What it can do: `search`, `answer` (answers in sentences), `facts`, `link`, `complete`.
    pub abilities: Vec<&'static str>,
    /// The number of documents of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<usize>,
    /// The number of passages of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passages: Option<usize>,
}

impl Mount {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    #[must_use]
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// What answers and searches here, if it is such a mount.
    #[must_use]
    pub fn answering(&self) -> Option<&Arc<Answering>> {
        match &self.mounted {
            Mounted::Answers(answering) => Some(answering),
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
                abilities.push("facts");
                abilities.extend(extracting.links_mentions().then_some("link"));
                "facts"
            }
            Mounted::Knowledge(_) => {
                abilities.push("complete");
                "knowledge"
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
            for mount in open(options, setting, observe)? {
                if mounts.iter().any(|known| known.name == mount.name) {
                    return Err(Error::Name { name: mount.name });
                }
                mounts.push(mount);
            }
        }
        Ok(Self { mounts })
    }

    /// All mounts.
    #[must_use]
    pub fn all(&self) -> &[Mount] {
        &self.mounts
    }

    /// What is mounted.
    #[must_use]
    pub fn summary(&self) -> MountsResponse {
        MountsResponse { mounts: self.mounts.iter().map(Mount::summary).collect() }
    }

    /// The mount of a name that has a generator; the first one without a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn generating(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        let all = || {
            self.mounts.iter().filter_map(|mount| match &mount.mounted {
                Mounted::Answers(answering) if answering.generates() => Some(answering),
                _ => None,
            })
        };
        let found = all().find(|answering| name.is_none_or(|name| answering.name() == name));
        found.ok_or_else(|| match name {
            Some(name) => Failure::not_found("model", name, all().map(|answering| answering.name())),
            None => Failure::new(Cause::NotFound, "no mount has a generator"),
        })
    }

    /// The mount of a name that answers and searches; the first one without a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn answering(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        let all = || {
            self.mounts.iter().filter_map(|mount| match &mount.mounted {
                Mounted::Answers(answering) => Some(answering),
                _ => None,
            })
        };
        let found = all().find(|answering| name.is_none_or(|name| answering.name() == name));
        found.ok_or_else(|| match name {
            Some(name) => Failure::not_found("index", name, all().map(|answering| answering.name())),
            None => Failure::new(Cause::NotFound, "nothing is mounted that answers"),
        })
    }

    /// The mount of a name that extracts facts; the first one without a name. With `links`, it must link mentions.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn extracting(&self, name: Option<&str>, links: bool) -> Result<&Arc<Extracting>, Failure> {
        let all = || {
            self.mounts.iter().filter_map(|mount| match &mount.mounted {
                Mounted::Facts(extracting) if !links || extracting.links_mentions() => Some(extracting),
                _ => None,
            })
        };
        let found = all().find(|extracting| name.is_none_or(|name| extracting.name() == name));
        let what = if links { "linker" } else { "extractor of facts" };
        found.ok_or_else(|| match name {
            Some(name) => Failure::not_found(what, name, all().map(|extracting| extracting.name())),
            None => Failure::new(Cause::NotFound, format!("no {what} is mounted")),
        })
    }

    /// The mount of a name that completes triples; the first one without a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn completing(&self, name: Option<&str>) -> Result<&Arc<Completing>, Failure> {
        let all = || {
            self.mounts.iter().filter_map(|mount| match &mount.mounted {
                Mounted::Knowledge(completing) => Some(completing),
                _ => None,
            })
        };
        let found = all().find(|completing| name.is_none_or(|name| completing.name() == name));
        found.ok_or_else(|| match name {
            Some(name) => {
                Failure::not_found("knowledge base", name, all().map(|completing| completing.name()))
            }
            None => Failure::new(Cause::NotFound, "no knowledge base is mounted"),
        })
    }
}

/// The workflows that are served.
const SERVED: [&str; 5] = ["answer", "population", "link-prediction", "graph-network", "rules"];

/// The mounts of an argument: the documents, or the config and those of its key `then` that are served.
fn open(options: &AskOptions, setting: &Setting, observe: &mut Observer<'_>) -> Result<Vec<Mount>> {
    let Some(config) = options.config() else {
        let name = options.sources.first().and_then(|path| path.canonicalize().ok());
        let name = name.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "documents".to_owned());
        let answering = Answering::open(name.clone(), options, setting, observe)?;
        return Ok(vec![Mount { name, mounted: Mounted::Answers(Arc::new(answering)) }]);
    };
    let workflow = workflow_of(config, &[])?.name;
    match workflow {
        "answer" => {
            let Options { general, .. } = Options::load_without_tasks(config, &[])?;
            let answering = Answering::open(general.name.clone(), options, setting, observe)?;
            let mut mounts =
                vec![Mount { name: general.name, mounted: Mounted::Answers(Arc::new(answering)) }];
            for then in general.then {
                let then = AskOptions { sources: vec![then], ..options.clone() };
                match open(&then, setting, observe) {
                    Ok(more) => mounts.extend(more),
                    Err(Error::Workflow { path, workflow, .. }) => {
                        tracing::warn!("{} is not served: its workflow is `{workflow}`", path.display());
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(mounts)
        }
        "population" => {
            let extracting = Extracting::open(config, setting)?;
            Ok(vec![Mount {
                name: extracting.name().to_owned(),
                mounted: Mounted::Facts(Arc::new(extracting)),
            }])
        }
        "link-prediction" | "graph-network" | "rules" => {
            let completing = Completing::open(config, workflow, setting)?;
            Ok(vec![Mount {
                name: completing.name().to_owned(),
                mounted: Mounted::Knowledge(Arc::new(completing)),
            }])
        }
        other => {
            let served = SERVED.map(|name| format!("`{name}`")).join(", ");
            Err(Error::Workflow { path: config.to_owned(), workflow: other.to_owned(), served })
        }
    }
}
