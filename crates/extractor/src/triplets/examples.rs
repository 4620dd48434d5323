//! Training and evaluation data for sentences' facts from annotated documents.

use sporran_kilt::knowledgenet;
use sporran_training::Row;

use super::{ReadTriplet, Triplet, TripletReader, constraint::MAX_WORDS};
use crate::{
    Document, Result, Span,
    relations::{Annotated, GoldFact, Outcomes, Properties},
};

/// The sentence of an annotated fact, and the fact with whole-word spans. None if its ends are not in one
/// sentence, overlap, or are too long.
fn written(document: &Document, fact: &GoldFact) -> Option<(usize, Triplet)> {
    let (subject, object) = (document.tokens_of(fact.subject), document.tokens_of(fact.object));
    let is_span = |words: &std::ops::Range<usize>| (1..=MAX_WORDS).contains(&words.len());
    if !is_span(&subject) || !is_span(&object) {
        return None;
    }
    let sentence = document.sentence_of(subject.start)?;
    let words = &document.sentences[sentence].tokens;
    let is_inside = |part: &std::ops::Range<usize>| words.start <= part.start && part.end <= words.end;
    let triplet = Triplet {
        head: document.span(subject.clone()),
        tail: document.span(object.clone()),
        label: fact.label,
    };
    (is_inside(&subject) && is_inside(&object) && !triplet.head.overlaps(triplet.tail))
        .then_some((sentence, triplet))
}

/// The number of a document's facts that can be generated, and of all its facts.
#[must_use]
pub fn writable(document: &Annotated) -> (usize, usize) {
    let is_written = |fact: &&GoldFact| written(&document.document, fact).is_some();
    (document.facts.iter().filter(is_written).count(), document.facts.len())
}

/// Training examples: the sentences of a document's passages with their annotated facts, tokenized by
/// `reader`. Of a symmetric property, the fact whose head comes first is generated.
///
/// Every sentence of an annotated passage is an example, including those without facts. A sequence cannot
/// express unknown facts, so properties that a passage is not annotated for count as absent. This lowers the
/// confidence of such properties. Thresholds compensate, because only exhaustively annotated passages
/// [evaluate](outcomes) a property.
///
/// # Errors
/// Errors of the tokenizer.
pub fn triplet_examples(
    source: &knowledgenet::Document,
    annotated: &Annotated,
    reader: &TripletReader,
) -> Result<Vec<Row>> {
    let document = &annotated.document;
    let mut facts: Vec<Vec<Triplet>> = vec![Vec::new(); document.sentences.len()];
    for (sentence, triplet) in annotated.facts.iter().filter_map(|fact| written(document, fact)) {
        let is_symmetric = reader.options().properties.all()[triplet.label].symmetric;
        let turned = Triplet { head: triplet.tail, tail: triplet.head, ..triplet };
        facts[sentence].push(if is_symmetric { triplet.min(turned) } else { triplet });
    }
    let is_annotated = |place: Span| {
        let annotated = source.passages.iter().filter(|passage| !passage.exhaustive.is_empty());
        annotated
            .map(|passage| Span { start: passage.start, end: passage.end })
            .any(|passage| passage.overlaps(place))
    };
    let sentences = document.sentences.iter().zip(facts);
    sentences
        .filter(|(sentence, facts)| !facts.is_empty() || is_annotated(sentence.span))
        .map(|(sentence, facts)| {
            Ok(Row { source: reader.source(document, sentence)?, target: reader.target(document, &facts)? })
        })
        .collect()
}

/// Adds a document's predictions to each property's outcomes, passage by passage as in KnowledgeNet's
/// evaluator. Facts match if both mentions overlap. Only a passage with exhaustive annotation of a property
/// counts wrong predictions.
pub fn outcomes(
    source: &knowledgenet::Document,
    properties: &Properties,
    read: &[ReadTriplet],
    outcomes: &mut [Outcomes],
) {
    for passage in &source.passages {
        let place = Span { start: passage.start, end: passage.end };
        let gold: Vec<Triplet> = passage
            .facts
            .iter()
            .filter_map(|fact| {
                let label = properties.position(&fact.property.text())?;
                let head = Span { start: fact.subject_start, end: fact.subject_end };
                Some(Triplet { head, tail: Span { start: fact.object_start, end: fact.object_end }, label })
            })
            .collect();
        let is_inside =
            |read: &&ReadTriplet| place.contains(read.triplet.head) && place.contains(read.triplet.tail);
        let read: Vec<&ReadTriplet> = read.iter().filter(is_inside).collect();
        let alike = |a: &Triplet, b: &Triplet| {
            a.label == b.label && a.head.overlaps(b.head) && a.tail.overlaps(b.tail)
        };
        for fact in &gold {
            let same = read.iter().filter(|read| alike(fact, &read.triplet)).map(|read| read.confidence);
            outcomes[fact.label].gold.push(same.fold(0.0, f32::max));
        }
        for property in &passage.exhaustive {
            let Some(label) = properties.position(&property.id.text()) else { continue };
            for read in read.iter().filter(|read| read.triplet.label == label) {
                let is_right = gold.iter().any(|fact| alike(fact, &read.triplet));
                outcomes[label].predicted.push((read.confidence, is_right));
            }
        }
    }
}
