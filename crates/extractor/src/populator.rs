//! The whole chain: mentions, coreference, links, candidates, properties, facts.

use rayon::prelude::*;

use crate::{
    Argument, Chain, Coreference, Document, Extractor, Fact, Linker, Mention, MentionFinder, Result, Span,
    proposals,
    relations::{Asked, Candidates, RelationModel, Thresholds, decode, sentences},
};

/// Names, dates and pronouns as [`proposals`] finds them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proposals;

impl MentionFinder for Proposals {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        Ok(documents.par_iter().map(proposals).collect())
    }
}

/// An extractor of parts.
pub struct Populator {
    /// What finds mentions.
    pub mentions: Box<dyn MentionFinder>,
    /// What puts mentions of one entity together; without it each stands for itself.
    pub coreference: Option<Box<dyn Coreference>>,
    /// What links them; without it facts have no links.
    pub linker: Option<Linker>,
    /// What tells which properties hold.
    pub relations: Box<dyn RelationModel>,
}

/// Sentences that are read before the next ones are made ready, so that memory does not grow with a document.
const PORTION: usize = 512;
/// What is nearer to a property's threshold than this share of it is withheld rather than passed over.
const NEAR: f32 = 0.25;

/// What was made of a document.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Populated {
    /// Its mentions, by their starts.
    pub mentions: Vec<Mention>,
    /// Its facts, by subject, object and property.
    pub facts: Vec<Fact>,
    /// What would be a fact if it were surer, in the same order.
    pub withheld: Vec<Fact>,
}

impl Populator {
    /// Reads documents; result `i` is that of `documents[i]`.
    ///
    /// # Errors
    /// Where a model fails.
    pub fn read(&self, documents: &[Document]) -> Result<Vec<Populated>> {
        let mentions = self.mentions.mentions(documents)?;
        let candidates: Vec<Vec<Candidates>> = mentions.iter().map(|mentions| sentences(mentions)).collect();
        let asked: Vec<Asked<'_>> = documents
            .iter()
            .zip(&mentions)
            .zip(&candidates)
            .flat_map(|((document, mentions), own)| {
                own.iter().map(move |candidates| (document, mentions.as_slice(), candidates))
            })
            .collect();
        let properties = self.relations.properties();
        let low: Vec<f32> = self.relations.thresholds().all().iter().map(|value| value * NEAR).collect();
        let low = Thresholds::new(low);
        let mut likely = Vec::with_capacity(asked.len());
        for portion in asked.chunks(PORTION) {
            for (scores, (_, _, candidates)) in self.relations.score(portion)?.into_iter().zip(portion) {
                let joint = scores.joint(&candidates.pairs, properties);
                likely.push(decode(&joint, candidates.pairs.len(), &low));
            }
        }
        let mut likely = likely.into_iter();
        documents
            .iter()
            .zip(mentions)
            .zip(&candidates)
            .map(|((document, mentions), own)| {
                let found = likely.by_ref().take(own.len()).collect();
                self.populated(document, mentions, found, own)
            })
            .collect()
    }

    fn populated(
        &self,
        document: &Document,
        mentions: Vec<Mention>,
        found: Vec<Vec<(usize, usize, f32)>>,
        candidates: &[Candidates],
    ) -> Result<Populated> {
        let chains: Vec<Chain> = match &self.coreference {
            Some(coreference) => coreference.chains(document, &mentions)?,
            None => Vec::new(),
        };
        let links = match &self.linker {
            Some(linker) => linker.link(document, &mentions, &chains),
            None => vec![None; mentions.len()],
        };
        let mut names: Vec<Span> = mentions.iter().map(|mention| mention.span).collect();
        for chain in &chains {
            for &(mention, _) in &chain.mentions {
                names[mention] = mentions[chain.representative].span;
            }
        }
        let properties = self.relations.properties().all();
        let thresholds = self.relations.thresholds().all();
        let (mut facts, mut withheld) = (Vec::new(), Vec::new());
        for (candidates, found) in candidates.iter().zip(found) {
            for (pair, label, confidence) in found {
                let argument = |at: u32| {
                    let at = candidates.mentions[at as usize];
                    Argument { span: mentions[at].span, name: names[at], link: links[at].clone() }
                };
                let ends = &candidates.pairs[pair];
                let fact = Fact {
                    subject: argument(ends.first),
                    property: properties[label].name.clone(),
                    object: argument(ends.second),
                    confidence,
                    sentence: document.sentences[candidates.sentence].span,
                };
                if confidence >= thresholds[label] { facts.push(fact) } else { withheld.push(fact) }
            }
        }
        for list in [&mut facts, &mut withheld] {
            list.sort_by(|a, b| {
                let place = |fact: &Fact| (fact.subject.span, fact.object.span);
                place(a).cmp(&place(b)).then_with(|| a.property.cmp(&b.property))
            });
        }
        Ok(Populated { mentions, facts, withheld })
    }
}

impl Extractor for Populator {
    fn extract(&self, documents: &[Document]) -> Result<Vec<Vec<Fact>>> {
        Ok(self.read(documents)?.into_iter().map(|populated| populated.facts).collect())
    }
}
