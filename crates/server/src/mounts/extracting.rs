//! Facts and mentions of texts.

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_pipeline::{
    entity_linking::{LinkSystem, LinkingOptions},
    population::{FactSystem, PopulationOptions, Purpose, TextFact, TextMention},
};

use crate::{
    Failure, Result,
    work::{Setting, Worker, size},
};

/// Extracts facts and links mentions, with a thread.
pub(crate) struct Extracting {
    name: String,
    system: Arc<System>,
    worker: Worker<Read, Found>,
}

/// The models of a config.
enum System {
    /// They extract facts, and link mentions if the config has a linker.
    Facts(FactSystem),
    /// They link mentions.
    Links(LinkSystem),
}

/// A text, and what is wanted of it.
struct Read {
    text: String,
    with_facts: bool,
}

/// What a text has.
#[derive(Debug)]
enum Found {
    Facts(Vec<TextFact>),
    Mentions(Vec<TextMention>),
}

/// Texts to extract facts from, or whose mentions to link.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextsRequest {
    /// A text.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// Several texts.
    #[serde(default)]
    pub(crate) texts: Vec<String>,
    /// The mount; the first one that can by default.
    #[serde(default)]
    pub(crate) mount: Option<String>,
}

impl TextsRequest {
    fn texts(&self) -> Result<Vec<String>, Failure> {
        let texts: Vec<String> = self.text.iter().chain(&self.texts).cloned().collect();
        match texts.is_empty() {
            true => {
                Err(Failure::invalid("text", "`text`: expected a text, or several in `texts`, found none"))
            }
            false => Ok(texts),
        }
    }
}

/// The facts of texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FactsResponse {
    /// The mount that read the texts.
    pub(crate) mount: String,
    /// The facts of each text.
    pub(crate) results: Vec<TextFacts>,
}

/// The facts of a text. Offsets count Unicode scalar values.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TextFacts {
    /// The facts, by subject, object and property.
    pub(crate) facts: Vec<TextFact>,
}

/// The mentions of texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LinksResponse {
    /// The mount that read the texts.
    pub(crate) mount: String,
    /// The mentions of each text.
    pub(crate) results: Vec<TextLinks>,
}

/// The mentions of a text. Offsets count Unicode scalar values.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TextLinks {
    /// The mentions, by their start.
    pub(crate) mentions: Vec<TextMention>,
}

impl Extracting {
    /// Loads the models of a config of the workflow `population` or `entity-linking`, and starts a thread.
    ///
    /// # Errors
    /// Errors of the config and its models, and a system without threads.
    pub(crate) fn open(config: &Path, workflow: &str, setting: &Setting) -> Result<Self> {
        let (name, system) = match workflow {
            "entity-linking" => {
                let options = LinkingOptions::load_for_texts(config, &[])?;
                let system = System::Links(LinkSystem::open(&options)?);
                (options.name, system)
            }
            _ => {
                let options = PopulationOptions::load_for(config, &[], Purpose::Texts)?;
                let system = System::Facts(FactSystem::open(&options)?);
                (options.name, system)
            }
        };
        let system = Arc::new(system);
        let own = Arc::clone(&system);
        let worker = setting.worker(&format!("extract {name}"), move |items: &[Read]| {
            read(&own, items).map_err(Failure::internal)
        })?;
        Ok(Self { name, system, worker })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether facts are extracted.
    pub(crate) fn extracts_facts(&self) -> bool {
        matches!(&*self.system, System::Facts(_))
    }

    /// Whether mentions are linked to a knowledge base.
    pub(crate) fn links_mentions(&self) -> bool {
        match &*self.system {
            System::Facts(system) => system.links(),
            System::Links(_) => true,
        }
    }

    async fn read(&self, request: &TextsRequest, with_facts: bool) -> Result<Vec<Found>, Failure> {
        let item = |text: String| {
            let tokens = size(&text);
            (Read { text, with_facts }, tokens)
        };
        self.worker.all(request.texts()?.into_iter().map(item).collect()).await
    }

    /// The facts of texts.
    ///
    /// # Errors
    /// No text, a full queue, and errors of the models.
    pub(crate) async fn facts(&self, request: &TextsRequest) -> Result<FactsResponse, Failure> {
        let facts = |found| match found {
            Found::Facts(facts) => TextFacts { facts },
            Found::Mentions(_) => TextFacts { facts: Vec::new() },
        };
        let results = self.read(request, true).await?.into_iter().map(facts).collect();
        Ok(FactsResponse { mount: self.name.clone(), results })
    }

    /// The mentions of texts with their links.
    ///
    /// # Errors
    /// No text, a full queue, and errors of the models.
    pub(crate) async fn links(&self, request: &TextsRequest) -> Result<LinksResponse, Failure> {
        let mentions = |found| match found {
            Found::Mentions(mentions) => TextLinks { mentions },
            Found::Facts(_) => TextLinks { mentions: Vec::new() },
        };
        let results = self.read(request, false).await?.into_iter().map(mentions).collect();
        Ok(LinksResponse { mount: self.name.clone(), results })
    }
}

/// What each text has, in order. Texts of which the same is wanted are read together.
fn read(system: &System, items: &[Read]) -> sporran_pipeline::Result<Vec<Found>> {
    let texts = |with_facts: bool| -> Vec<&str> {
        items.iter().filter(|item| item.with_facts == with_facts).map(|item| item.text.as_str()).collect()
    };
    let (for_facts, for_mentions) = (texts(true), texts(false));
    let facts = match system {
        System::Facts(system) if !for_facts.is_empty() => system.facts(&for_facts)?,
        _ => Vec::new(),
    };
    let mentions = match system {
        _ if for_mentions.is_empty() => Vec::new(),
        System::Facts(system) => system.mentions(&for_mentions)?,
        System::Links(system) => system.mentions(&for_mentions)?,
    };
    let (mut facts, mut mentions) = (facts.into_iter(), mentions.into_iter());
    let found = |item: &Read| match item.with_facts {
        true => facts.next().map(Found::Facts),
        false => mentions.next().map(Found::Mentions),
    };
    Ok(items.iter().filter_map(found).collect())
}
