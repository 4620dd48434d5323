//! Links, chains and known properties of the mentions of annotated documents.

use sporran_extractor::{
    AliasTable, Link,
    relations::{Annotated, Background, EntityFacts},
};
use sporran_kilt::knowledgenet;

use super::options::{AnnotationsOptions, PopulationOptions};
use crate::Result;

/// The link of each mention of a document; `None` without a linker.
type Links = Option<Vec<Option<Link>>>;

/// Links the mentions of annotated documents. For a BiLSTM it also adds links, chains and known properties to the candidates.
///
/// The table of names for one half of the documents is built from the links of the other half. So names are as often unknown in
/// training as in new documents. The table for documents of validation folds is built from all others.
pub(super) fn background(
    options: &PopulationOptions,
    annotations: &AnnotationsOptions,
    sources: &[knowledgenet::Document],
    documents: &mut [Annotated],
) -> Result<Vec<Links>> {
    let mut all: Vec<Links> = vec![None; documents.len()];
    let coreference = options.coreference.open(options.mentions.types.as_deref())?;
    const APART: usize = 2;
    let half_of = |at: usize, fold: i64| if annotations.is_apart(fold) { APART } else { at % 2 };
    let halves: Vec<usize> =
        sources.iter().enumerate().map(|(at, source)| half_of(at, source.fold)).collect();
    for half in 0..=APART {
        if !halves.contains(&half) {
            continue;
        }
        let is_other = |other: usize| other != half && other != APART;
        let others = sources.iter().zip(&halves).filter(|(_, own)| is_other(**own)).map(|(source, _)| source);
        let linker = match &options.linker {
            Some(linking) => {
                let linker = linking.with_table(AliasTable::build(others, &linking.names)?)?;
                let knowledge = EntityFacts::open(linking, linker.table())?;
                Some((linker, knowledge))
            }
            None => None,
        };
        let each = documents.iter_mut().zip(&mut all).zip(&halves);
        for ((annotated, document_links), _) in each.filter(|(_, own)| **own == half) {
            let Annotated { document, mentions, candidates, .. } = annotated;
            let chains = match &coreference {
                Some(coreference) => coreference.chains(document, mentions)?,
                None => Vec::new(),
            };
            let (links, knowledge) = match &linker {
                Some((linker, knowledge)) => (linker.link(document, mentions, &chains), knowledge.as_ref()),
                None => (vec![None; mentions.len()], None),
            };
            if options.relations.uses_background() {
                let background = Background { chains: &chains, links: &links, knowledge };
                background.annotate(candidates);
            }
            *document_links = linker.is_some().then_some(links);
        }
    }
    Ok(all)
}
