//! The whole extraction pipeline: mentions, coreference, links, candidates, properties, facts.

mod options;

use rayon::prelude::*;

pub use options::RelationsOptions;

use crate::{
    Argument, Chain, Coreference, Document, Extractor, Fact, Link, Linker, Mention, MentionFinder, Result,
    Span,
    relations::{
        Background, Candidates, EntityFacts, PredictedProperty, Properties, RelationInput, RelationModel,
        Thresholds, decode, sentences,
    },
    triplets::{ReadTriplet, TripletReader},
};

/// The model that predicts properties.
pub enum Relations {
    /// A classifier of mention pairs.
    Pairs(Box<dyn RelationModel>),
    /// A model that generates facts with their mentions. It needs no previous mentions. If a generated span
    /// matches one, the fact has that mention's name and link.
    Triplets(Box<TripletReader>),
}

impl Relations {
    /// The possible properties.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        match self {
            Self::Pairs(model) => model.properties(),
            Self::Triplets(reader) => &reader.options().properties,
        }
    }

    fn thresholds(&self) -> &Thresholds {
        match self {
            Self::Pairs(model) => model.thresholds(),
            Self::Triplets(reader) => &reader.options().thresholds,
        }
    }

    fn link_thresholds(&self) -> Option<&Thresholds> {
        match self {
            Self::Pairs(model) => model.link_thresholds(),
            Self::Triplets(_) => None,
        }
    }
}

/// An extractor composed of parts.
pub struct FactExtractor {
    /// The mention finder.
    pub mentions: Box<dyn MentionFinder>,
    /// The coreference; without it each mention is a separate entity.
    pub coreference: Option<Box<dyn Coreference>>,
    /// The linker; without it facts have no links.
    pub linker: Option<Linker>,
    /// The facts known about possible entities, for models that use them.
    pub knowledge: Option<EntityFacts>,
    /// The model that predicts properties.
    pub relations: Relations,
}

/// The number of sentences prepared at once, so that memory does not grow with a document.
const PORTION: usize = 512;
/// A candidate fact below its property's threshold by at most this share is withheld instead of dropped.
const NEAR: f32 = 0.25;

/// The result for a document.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Populated {
    /// Its mentions, by start.
    pub mentions: Vec<Mention>,
    /// Its facts, by subject, object and property.
    pub facts: Vec<Fact>,
    /// Facts with a confidence just below the threshold, in the same order.
    pub withheld: Vec<Fact>,
}

/// A document's mentions with chains, links and candidates.
struct Prepared {
    mentions: Vec<Mention>,
    chains: Vec<Chain>,
    links: Vec<Option<Link>>,
    /// Empty if facts are generated with their mentions.
    candidates: Vec<Candidates>,
}

/// A subject or an object, and its mention.
type End = (Span, Option<usize>);

/// A candidate fact.
struct CandidateFact {
    sentence: usize,
    subject: End,
    object: End,
    label: usize,
    probability: f32,
    /// The probability that its links are correct; none if the model does not predict it.
    linked: Option<f32>,
}

impl FactExtractor {
    /// Extracts from documents; result `i` is that of `documents[i]`.
    ///
    /// # Errors
    /// Errors of a model.
    pub fn read(&self, documents: &[Document]) -> Result<Vec<Populated>> {
        let mentions = self.mentions.mentions(documents)?;
        let prepared: Vec<Prepared> = documents
            .par_iter()
            .zip(mentions)
            .map(|(document, mentions)| self.prepare(document, mentions))
            .collect::<Result<_>>()?;
        let low: Vec<f32> = self.relations.thresholds().all().iter().map(|value| value * NEAR).collect();
        let likely = match &self.relations {
            Relations::Pairs(model) => between(model.as_ref(), documents, &prepared, &Thresholds::new(low))?,
            Relations::Triplets(reader) => {
                let documents: Vec<&Document> = documents.iter().collect();
                let read = reader.read(&documents)?;
                let each = prepared.iter().zip(read);
                each.map(|(prepared, read)| at_mentions(prepared, &read, &low)).collect()
            }
        };
        let each = documents.iter().zip(prepared).zip(likely);
        Ok(each.map(|((document, prepared), likely)| self.populated(document, prepared, likely)).collect())
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
        let Relations::Pairs(_) = self.relations else {
            return Ok(Prepared { mentions, chains, links, candidates: Vec::new() });
        };
        let mut candidates = sentences(&mentions);
        let knowledge = self.knowledge.as_ref();
        Background { chains: &chains, links: &links, knowledge }.annotate(&mut candidates);
        Ok(Prepared { mentions, chains, links, candidates })
    }

    fn populated(&self, document: &Document, prepared: Prepared, likely: Vec<CandidateFact>) -> Populated {
        let Prepared { mentions, chains, links, .. } = prepared;
        let mut names: Vec<Span> = mentions.iter().map(|mention| mention.span).collect();
        for chain in &chains {
            for &(mention, _) in &chain.mentions {
                names[mention] = mentions[chain.representative].span;
            }
        }
        let properties = self.relations.properties().all();
        let thresholds = self.relations.thresholds().all();
        let includes_links = |likely: &CandidateFact| {
            let threshold = self.relations.link_thresholds().and_then(|all| all.all().get(likely.label));
            threshold.zip(likely.linked).is_none_or(|(threshold, linked)| linked >= *threshold)
        };
        let (mut facts, mut withheld) = (Vec::new(), Vec::new());
        for likely in likely {
            let link = |(_, mention): End| {
                mention.filter(|_| includes_links(&likely)).and_then(|at| links[at].as_ref())
            };
            let ends = [link(likely.subject), link(likely.object)];
            // No entity is its own spouse or part. One of two equal links is wrong, and it is unknown which.
            let same = matches!(ends, [Some(subject), Some(object)] if subject.entity == object.entity);
            let argument = |(span, mention): End, link: Option<&Link>| Argument {
                span,
                name: mention.map_or(span, |at| names[at]),
                link: link.filter(|_| !same).cloned(),
            };
            let fact = Fact {
                subject: argument(likely.subject, ends[0]),
                property: properties[likely.label].name.clone(),
                object: argument(likely.object, ends[1]),
                confidence: likely.probability,
                sentence: document.sentences[likely.sentence].span,
            };
            let is_sure = likely.probability >= thresholds[likely.label];
            if is_sure { facts.push(fact) } else { withheld.push(fact) }
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

/// A model's predictions for pairs of mentions, with probabilities of at least `low`.
fn between(
    model: &dyn RelationModel,
    documents: &[Document],
    prepared: &[Prepared],
    low: &Thresholds,
) -> Result<Vec<Vec<CandidateFact>>> {
    let inputs: Vec<(usize, RelationInput<'_>)> = documents
        .iter()
        .zip(prepared)
        .enumerate()
        .flat_map(|(at, (document, own))| {
            let of = move |candidates| (at, (document, own.mentions.as_slice(), candidates));
            own.candidates.iter().map(of)
        })
        .collect();
    let mut likely: Vec<Vec<CandidateFact>> = documents.iter().map(|_| Vec::new()).collect();
    for portion in inputs.chunks(PORTION) {
        let sentences: Vec<RelationInput<'_>> = portion.iter().map(|(_, input)| *input).collect();
        for (scores, (document, (_, mentions, candidates))) in
            model.score(&sentences)?.into_iter().zip(portion)
        {
            let joint = model.decided(scores, candidates);
            for PredictedProperty { pair, label, probability, linked } in
                decode(&joint, candidates.pairs.len(), low)
            {
                let end = |at: u32| {
                    let mention = candidates.mentions[at as usize];
                    (mentions[mention].span, Some(mention))
                };
                let ends = &candidates.pairs[pair];
                let (sentence, subject, object) = (candidates.sentence, end(ends.first), end(ends.second));
                likely[*document].push(CandidateFact {
                    sentence,
                    subject,
                    object,
                    label,
                    probability,
                    linked,
                });
            }
        }
    }
    Ok(likely)
}

/// The generated facts with confidences of at least `low`. Each end has the mention that contains it, or the
/// only one inside it.
fn at_mentions(prepared: &Prepared, read: &[ReadTriplet], low: &[f32]) -> Vec<CandidateFact> {
    let mentions = &prepared.mentions;
    let end = |span: Span| {
        let around = mentions.iter().position(|mention| mention.span.contains(span));
        let mut inside = (0..mentions.len()).filter(|&at| span.contains(mentions[at].span));
        (span, around.or_else(|| inside.next().filter(|_| inside.next().is_none())))
    };
    read.iter()
        .filter(|read| read.confidence >= low[read.triplet.label])
        .map(|read| CandidateFact {
            sentence: read.sentence,
            subject: end(read.triplet.head),
            object: end(read.triplet.tail),
            label: read.triplet.label,
            probability: read.confidence,
            linked: None,
        })
        .collect()
}

impl Extractor for FactExtractor {
    fn extract(&self, documents: &[Document]) -> Result<Vec<Vec<Fact>>> {
        Ok(self.read(documents)?.into_iter().map(|populated| populated.facts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AliasTableBuilder, LinkerOptions, RuleMentions,
        relations::{Property, Scores},
    };

    /// Predicts its only property for every pair.
    struct Always(Properties, Thresholds);

    impl RelationModel for Always {
        fn properties(&self) -> &Properties {
            &self.0
        }

        fn thresholds(&self) -> &Thresholds {
            &self.1
        }

        fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>> {
            Ok(inputs.iter().map(|(_, _, own)| Scores::new(1, vec![1.0; own.pairs.len()])).collect())
        }
    }

    #[test]
    fn a_fact_does_not_link_an_entity_to_itself() {
        let mut names = AliasTableBuilder::default();
        names.add("Paris", "Q90", 1.0);
        names.add("Lutetia", "Q90", 1.0);
        names.add("Gaul", "Q38060", 1.0);
        let property = Property { id: "6".into(), name: "HEADQUARTERS".into(), symmetric: true };
        let model = Always(Properties::new(vec![property]), Thresholds::even(1, 0.5));
        let fact_extractor = FactExtractor {
            mentions: Box::new(RuleMentions),
            coreference: None,
            linker: Some(Linker::new(names.build(), LinkerOptions::default())),
            knowledge: None,
            relations: Relations::Pairs(Box::new(model)),
        };
        let document = Document::new("d", "Lutetia is Paris in Gaul.");
        let read = fact_extractor.read(std::slice::from_ref(&document)).unwrap();
        let name = |argument: &Argument| {
            let link = argument.link.as_ref().map_or("none", |link| link.entity.as_str());
            format!("{} {link}", document.slice(argument.span).unwrap())
        };
        let facts: Vec<String> = read[0]
            .facts
            .iter()
            .map(|fact| format!("{}, {}", name(&fact.subject), name(&fact.object)))
            .collect();
        assert!(facts.contains(&"Lutetia none, Paris none".to_owned()), "{facts:?}");
        assert!(facts.contains(&"Lutetia Q90, Gaul Q38060".to_owned()), "{facts:?}");
        assert!(facts.contains(&"Gaul Q38060, Paris Q90".to_owned()), "{facts:?}");
    }
}
