//! Links, chains and known properties of the mentions of annotated documents.

use sporran_extractor::{
    AliasTable, Link,
    relations::{Annotated, Background, EntityFacts},
};
use sporran_kilt::knowledgenet;

use super::options::PopulationOptions;
use crate::Result;

/// The link of each mention of a document; `None` without a linker.
type Links = Option<Vec<Option<Link>>>;

/// Links the mentions of annotated documents. For a BiLSTM it also adds links, chains and known properties to the candidates.
///
/// The table of names for one half of the documents is built from the links of the other half. So names are as often unknown in
/// training as in new documents.
pub(super) fn background(
    options: &PopulationOptions,
    sources: &[knowledgenet::Document],
    documents: &mut [Annotated],
) -> Result<Vec<Links>> {
    let mut all: Vec<Links> = vec![None; documents.len()];
    let coreference = options.coreference.open(options.mentions.types.as_deref())?;
    for half in 0..2 {
        let others = sources.iter().enumerate().filter(|(at, _)| at % 2 != half).map(|(_, source)| source);
        let linker = match &options.linker {
            Some(linking) => {
                let linker = linking.with_table(AliasTable::build(others, &linking.names)?)?;
                let knowledge = EntityFacts::open(linking, linker.table())?;
                Some((linker, knowledge))
            }
            None => None,
        };
        for (annotated, document_links) in documents.iter_mut().zip(&mut all).skip(half).step_by(2) {
            let Annotated { document, mentions, candidates, .. } = annotated;
            let chains = match &coreference {
                Some(coreference) => coreference.chains(document, mentions)?,
                None => Vec::new(),
            };
            let (links, knowledge) = match &linker {
                Some((linker, knowledge)) => {
                    let known = knowledge.as_ref().map(|known| (linker.table(), known));
                    (linker.link(document, mentions, &chains), known)
                }
                None => (vec![None; mentions.len()], None),
            };
            if options.relations.uses_background() {
                let background = Background { chains: &chains, links: &links, knowledge };
                background.annotate(document, mentions, candidates);
            }
            *document_links = linker.is_some().then_some(links);
        }
    }
    Ok(all)
}
