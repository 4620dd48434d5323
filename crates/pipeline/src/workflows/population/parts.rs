//! Loads the components of a config.

use sporran_extractor::{
    FactExtractor, Linker, LinkingOptions, Relations,
    relations::{EntityFacts, open as open_relations},
    triplets::{TRIPLETS, TripletReader, TripletTraining},
};

use super::options::{PopulationOptions, RelationsOptions};
use crate::Result;

/// Loads all components of the config.
pub(super) fn open(options: &PopulationOptions) -> Result<FactExtractor> {
    let relations = &options.relations;
    let (linker, knowledge) = match &options.linker {
        Some(linking) => {
            let linker = linking.open()?;
            let knowledge = knowledge(linking, &linker)?;
            (Some(linker), knowledge)
        }
        None => (None, None),
    };
    Ok(FactExtractor {
        mentions: options.mentions.open()?,
        coreference: options.coreference.open(options.mentions.types.as_deref())?,
        linker,
        knowledge,
        relations: self::relations(relations)?,
    })
}

/// The relation classifier.
fn relations(options: &RelationsOptions) -> Result<Relations> {
    let RelationsOptions { model, device, precision, seq2seq, .. } = options;
    Ok(if seq2seq.is_some() || model.join(TRIPLETS).is_file() {
        let named = seq2seq.as_ref().and_then(TripletTraining::of_config);
        Relations::Triplets(TripletReader::load(model, named, *device, *precision)?.into())
    } else {
        Relations::Pairs(open_relations(model, *device, *precision)?)
    })
}

/// The types and relations of the linker's entities; `None` if the config has no file of them.
pub(super) fn knowledge(linking: &LinkingOptions, linker: &Linker) -> Result<Option<EntityFacts>> {
    Ok(EntityFacts::open(linking.types.as_deref(), linking.facts.as_deref(), linker.table())?)
}
