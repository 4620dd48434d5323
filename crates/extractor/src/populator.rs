//! The whole chain: mentions, coreference, links, candidates, properties, facts.

use rayon::prelude::*;

use crate::{
    Argument, Chain, Coreference, Document, Extractor, Fact, Link, Linker, Mention, MentionFinder,
    MentionForm, Result, Span, proposals,
    relations::{
        Asked, Background, Candidates, EntityFacts, RelationModel, Stated, Thresholds, decode, sentences,
    },
};

/// Names, dates and pronouns as [`proposals`] finds them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proposals;

impl MentionFinder for Proposals {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        Ok(documents.par_iter().map(proposals).collect())
    }
}

/// Only those mentions that another finder finds which are put in one of some ways.
pub struct Formed {
    /// What finds mentions.
    pub finder: Box<dyn MentionFinder>,
    /// How those are put that stay.
    pub forms: Vec<MentionForm>,
}

impl MentionFinder for Formed {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        let mut found = self.finder.mentions(documents)?;
        found.iter_mut().for_each(|own| own.retain(|mention| self.forms.contains(&mention.form)));
        Ok(found)
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
    /// What is known of the entities that names may mean, for models that read it.
    pub knowledge: Option<EntityFacts>,
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

/// A document's mentions with all that is known of them.
struct Prepared {
    mentions: Vec<Mention>,
    chains: Vec<Chain>,
    links: Vec<Option<Link>>,
    candidates: Vec<Candidates>,
}

impl Populator {
    /// Reads documents; result `i` is that of `documents[i]`.
    ///
    /// # Errors
    /// Where a model fails.
    pub fn read(&self, documents: &[Document]) -> Result<Vec<Populated>> {
        let mentions = self.mentions.mentions(documents)?;
        let prepared: Vec<Prepared> = documents
            .par_iter()
            .zip(mentions)
            .map(|(document, mentions)| self.prepare(document, mentions))
            .collect::<Result<_>>()?;
        let asked: Vec<Asked<'_>> = documents
            .iter()
            .zip(&prepared)
            .flat_map(|(document, own)| {
                own.candidates.iter().map(move |candidates| (document, own.mentions.as_slice(), candidates))
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
        let each = documents.iter().zip(prepared);
        Ok(each
            .map(|(document, prepared)| {
                let found = likely.by_ref().take(prepared.candidates.len()).collect();
                self.populated(document, prepared, found)
            })
            .collect())
    }

    fn prepare(&self, document: &Document, mentions: Vec<Mention>) -> Result<Prepared> {
        let chains: Vec<Chain> = match &self.coreference {
            Some(coreference) => coreference.chains(document, &mentions)?,
            None => Vec::new(),
        };
        let links = match &self.linker {
            Some(linker) => linker.link(document, &mentions, &chains),
            None => vec![None; mentions.len()],
        };
        let mut candidates = sentences(&mentions);
        let names = self.linker.as_ref().map(Linker::table);
        let background =
            Background { chains: &chains, links: &links, knowledge: names.zip(self.knowledge.as_ref()) };
        background.tell(document, &mentions, &mut candidates);
        Ok(Prepared { mentions, chains, links, candidates })
    }

    fn populated(&self, document: &Document, prepared: Prepared, found: Vec<Vec<Stated>>) -> Populated {
        let Prepared { mentions, chains, links, candidates } = prepared;
        let mut names: Vec<Span> = mentions.iter().map(|mention| mention.span).collect();
        for chain in &chains {
            for &(mention, _) in &chain.mentions {
                names[mention] = mentions[chain.representative].span;
            }
        }
        let properties = self.relations.properties().all();
        let thresholds = self.relations.thresholds().all();
        let told = |stated: &Stated| {
            let threshold = self.relations.link_thresholds().and_then(|all| all.all().get(stated.label));
            threshold.zip(stated.linked).is_none_or(|(threshold, linked)| linked >= *threshold)
        };
        let (mut facts, mut withheld) = (Vec::new(), Vec::new());
        for (candidates, found) in candidates.iter().zip(found) {
            for stated in found {
                let argument = |at: u32| {
                    let at = candidates.mentions[at as usize];
                    let link = if told(&stated) { links[at].clone() } else { None };
                    Argument { span: mentions[at].span, name: names[at], link }
                };
                let ends = &candidates.pairs[stated.pair];
                let fact = Fact {
                    subject: argument(ends.first),
                    property: properties[stated.label].name.clone(),
                    object: argument(ends.second),
                    confidence: stated.probability,
                    sentence: document.sentences[candidates.sentence].span,
                };
                let is_sure = stated.probability >= thresholds[stated.label];
                if is_sure { facts.push(fact) } else { withheld.push(fact) }
            }
        }
        for list in [&mut facts, &mut withheld] {
            list.sort_by(|a, b| {
                let place = |fact: &Fact| (fact.subject.span, fact.object.span);
                place(a).cmp(&place(b)).then_with(|| a.property.cmp(&b.property))
            });
        }
        Populated { mentions, facts, withheld }
    }
}

impl Extractor for Populator {
    fn extract(&self, documents: &[Document]) -> Result<Vec<Vec<Fact>>> {
        Ok(self.read(documents)?.into_iter().map(|populated| populated.facts).collect())
    }
}
