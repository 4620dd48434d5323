//! What the options of every kind of generator do.

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::find_gguf;
use sporran_config::{Document, Override, Overrides};
use sporran_kilt::PassageStore;
use sporran_transformers::{
    CandleLm, Checkpoint, DeviceName, Engine, GenerationOptions, ModelType, Precision, TakesModel,
};

use crate::{Generator, Result};

/// The options of a kind of generator.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait GeneratorKind {
    /// The models that it loads. `key` is the path of the table.
    fn models(&self, key: &str) -> Vec<GeneratorModel<'_>>;

    /// The numbers of passages that it reads at most, each with the path of the table of its prompt.
    fn read_passages(&self, key: &str) -> Vec<(String, usize)> {
        self.models(key).into_iter().map(|model| (model.key, model.passages)).collect()
    }

    /// Reports wrong values and missing files besides the models.
    fn check(&self, key: &str, document: &mut Document<'_>) {
        let _ = (key, document);
    }

    /// Adds the settings of model folders that the options override.
    ///
    /// # Errors
    /// Errors of a folder's files.
    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let _ = (key, found);
        Ok(())
    }

    /// The source of an answer's provenance where the config does not choose one.
    fn provenance(&self) -> EvidenceSource {
        EvidenceSource::Ranking
    }

    /// The same for entity linking, where an answer is the title of a page.
    fn linking_provenance(&self) -> EvidenceSource {
        EvidenceSource::Title
    }

    /// Loads the generator.
    ///
    /// # Errors
    /// Errors of the models' files.
    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>>;
}

/// What generators share besides their options.
#[derive(Clone, Default)]
pub struct GeneratorContext {
    /// The passages, for kinds that read whole pages.
    pub store: Option<Arc<PassageStore>>,
    /// The seed of everything random.
    pub seed: u64,
}

/// A model of a generator.
#[derive(Clone, Debug)]
pub struct GeneratorModel<'a> {
    /// The path of the table whose key `model` names it.
    pub key: String,
    /// The model's folder.
    pub folder: &'a Path,
    /// The device.
    pub device: DeviceName,
    /// The data type of the weights.
    pub precision: Precision,
    /// The largest number of passages that it reads.
    pub passages: usize,
    /// The types of models that the kind takes.
    pub takes: &'static [ModelType],
}

impl<'a> GeneratorModel<'a> {
    /// The one model of a generator, in the table `key`.
    pub(crate) fn only<Options: TakesModel>(
        key: &str,
        folder: &'a Path,
        (device, precision): (DeviceName, Precision),
        passages: usize,
    ) -> Vec<Self> {
        let (key, takes) = (key.to_owned(), Options::TAKES);
        vec![Self { key, folder, device, precision, passages, takes }]
    }
}

/// The methods of [`GeneratorKind`] about the model, for options with one model, a prompt and generation options.
macro_rules! prompted_model {
    () => {
        fn models(&self, key: &str) -> Vec<$crate::GeneratorModel<'_>> {
            let passages = self.prompt.passages;
            $crate::GeneratorModel::only::<Self>(key, &self.model, (self.device, self.precision), passages)
        }

        fn overrides(&self, key: &str, found: &mut sporran_config::Overrides) -> $crate::Result<()> {
            $crate::generation_overrides(&self.generation, &self.model, key, found)
        }
    };
}
pub(crate) use prompted_model;

/// The source of an answer's provenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceSource {
    /// The passages that the generator used, best first, then the retriever's ranking.
    Ranking,
    /// The retriever's ranking, whatever the generator used.
    Retrieved,
    /// The passages that the generator read, and no others, in its order.
    Read,
    /// The one passage that the generator ranks first.
    Chosen,
    /// The page whose title equals the answer exactly; nothing if there is none.
    Title,
}

/// Adds the generation options that a model's folder sets to other values.
///
/// # Errors
/// Errors of the folder's files.
pub fn generation_overrides(
    options: &GenerationOptions,
    folder: &Path,
    key: &str,
    found: &mut Overrides,
) -> Result<()> {
    // A GGUF file has no generation options.
    if find_gguf(folder)?.is_none() {
        let defaults = match Engine::Auto.is_candle(folder)? {
            true => CandleLm::folder_defaults(folder)?,
            false => Checkpoint::open(folder)?.generation_defaults().clone(),
        };
        let replaced = options.replacing(&defaults);
        found.extend(replaced.into_iter().map(|(option, folder, config)| {
            (format!("{key}.generation.{option}"), Override { folder, config })
        }));
    }
    Ok(())
}
