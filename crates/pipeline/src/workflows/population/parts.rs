//! Loads the components of a config.

use sporran_extractor::{FactExtractor, relations::EntityFacts};

use super::options::PopulationOptions;
use crate::Result;

/// Loads all components of the config.
pub(super) fn open(options: &PopulationOptions) -> Result<FactExtractor> {
    let (linker, knowledge) = match &options.linker {
        Some(linking) => {
            let linker = linking.open()?;
            let knowledge = EntityFacts::open(linking, linker.table())?;
            (Some(linker), knowledge)
        }
        None => (None, None),
    };
    Ok(FactExtractor {
        mentions: options.mentions.open()?,
        coreference: options.coreference.open(options.mentions.types.as_deref())?,
        linker,
        knowledge,
        relations: options.relations.open()?,
    })
}
