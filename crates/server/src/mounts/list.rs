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
        answers(&self.mounted)
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
            for mount in open(options, false, setting, observe)? {
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
        self.find("model", name, |mounted| answers(mounted).filter(|answering| answering.generates()))
    }

    /// The mount of a name that searches; the first one without a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn searching(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        self.find("index", name, |mounted| answers(mounted).filter(|answering| answering.searches()))
    }

    /// The mount of a name that answers. Without a name, the first one with a generator, or else the first one with an index.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn answering(&self, name: Option<&str>) -> Result<&Arc<Answering>, Failure> {
        match name {
            Some(_) => self.find("index", name, answers),
            None => self.generating(None).or_else(|_| self.searching(None)),
        }
    }

    /// The mount of a name that extracts facts; the first one without a name. With `links`, it must link mentions.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn extracting(&self, name: Option<&str>, links: bool) -> Result<&Arc<Extracting>, Failure> {
        let what = if links { "linker" } else { "extractor of facts" };
        self.find(what, name, |mounted| match mounted {
            Mounted::Facts(extracting) if !links || extracting.links_mentions() => Some(extracting),
            _ => None,
        })
    }

    /// The mount of a name that completes triples; the first one without a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn completing(&self, name: Option<&str>) -> Result<&Arc<Completing>, Failure> {
        self.find("knowledge base", name, |mounted| match mounted {
            Mounted::Knowledge(completing) => Some(completing),
            _ => None,
        })
    }

    /// The mount of a name among those that fit; the first one without a name.
    fn find<'m, T>(
        &'m self,
        what: &str,
        name: Option<&str>,
        fits: impl Fn(&'m Mounted) -> Option<&'m Arc<T>>,
    ) -> Result<&'m Arc<T>, Failure> {
        let all = || self.mounts.iter().filter_map(|mount| Some((mount.name(), fits(&mount.mounted)?)));
        let found = all().find(|(known, _)| name.is_none_or(|name| name == *known));
        found.map(|(_, found)| found).ok_or_else(|| match name {
            Some(name) => Failure::not_found(what, name, all().map(|(known, _)| known)),
            None => Failure::new(Cause::NotFound, format!("no {what} is mounted")),
        })
    }
}

/// What answers and searches, if it is such a mount.
fn answers(mounted: &Mounted) -> Option<&Arc<Answering>> {
    match mounted {
        Mounted::Answers(answering) => Some(answering),
        _ => None,
    }
}

/// The workflows that are served.
const SERVED: [&str; 5] = ["answer", "population", "link-prediction", "graph-network", "rules"];

/// The mounts of an argument: the documents, or the config and those of its key `then` that are served.
///
/// `follows`: whether a key `then` names the config. Such a config answers nothing, as in a run, so that no config follows itself.
fn open(
    options: &AskOptions,
    follows: bool,
    setting: &Setting,
    observe: &mut Observer<'_>,
) -> Result<Vec<Mount>> {
    let Some(config) = options.config() else {
        let name = name_of(options);
        let answering = Answering::open(name.clone(), options, setting, observe)?;
        return Ok(vec![Mount { name, mounted: Mounted::Answers(Arc::new(answering)) }]);
    };
    let workflow = workflow_of(config, &[])?.name;
    match workflow {
        "answer" if !follows => {
            let Options { general, .. } = Options::load_without_tasks(config, &[])?;
            let answering = Answering::open(general.name.clone(), options, setting, observe)?;
            let mut mounts =
                vec![Mount { name: general.name, mounted: Mounted::Answers(Arc::new(answering)) }];
            for then in general.then {
                let then = AskOptions { sources: vec![then], ..options.clone() };
                match open(&then, true, setting, observe) {
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
