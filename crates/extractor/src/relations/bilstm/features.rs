//! The features of words, numbered as in section 4.1 of Mesquita et al. 2019.

use std::ops::Range;

use super::super::{Candidates, Known};
use crate::{Document, EntityType, Mention, MentionForm, SentenceGraph, pronouns::pronoun};

/// The values of feature 1: whether a token begins a mention, is inside one, or is outside; then the types of the mention.
pub(super) const TAGS: usize = 8;
/// The values of features 2 and 3, and of 5, 6 and 7: one for the subject and one for the object.
const BOTH: usize = 2;

/// The types of a mention: all that a pronoun can have, or its own.
pub(super) fn kinds_of(document: &Document, mention: &Mention) -> Vec<EntityType> {
    let known = match mention.form {
        MentionForm::Pronoun => pronoun(document.word(mention.tokens.start)),
        MentionForm::Name | MentionForm::Nominal => None,
    };
    known.map_or_else(|| vec![mention.kind], |known| known.kinds().to_vec())
}

/// Feature 1 of each token of a sentence: its position in a mention, and the mention's types.
pub(super) fn tags(document: &Document, mentions: &[&Mention], tokens: Range<usize>) -> Vec<[f32; TAGS]> {
    let mut tags = vec![[0.0; TAGS]; tokens.len()];
    for mention in mentions {
        for token in mention.tokens.clone() {
            let row = &mut tags[token - tokens.start];
            row[usize::from(token > mention.tokens.start)] = 1.0;
            for kind in kinds_of(document, mention) {
                row[3 + kind as usize] = 1.0;
            }
        }
    }
    for row in &mut tags {
        row[2] = if row[0] + row[1] > 0.0 { 0.0 } else { 1.0 };
    }
    tags
}

/// The features that depend on a subject and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairFeatures {
    /// Whether there are features 3 and 4, and 7 and 8.
    pub(super) parsed: bool,
    /// Whether there are features 5 to 8.
    pub(super) coreference: bool,
}

/// A sentence with the mentions and chains that features need.
pub(super) struct SentenceView<'a> {
    /// The number of its tokens.
    pub(super) length: usize,
    /// Its mentions as ranges of its tokens.
    pub(super) mentions: Vec<Range<usize>>,
    /// The chains of each.
    pub(super) known: &'a [Known],
    /// The parse; `None` without features of it.
    pub(super) graph: Option<SentenceGraph>,
}

impl<'a> SentenceView<'a> {
    pub(super) fn new(
        document: &Document,
        mentions: &[Mention],
        candidates: &'a Candidates,
        is_parsed: bool,
    ) -> Self {
        let tokens = document.sentences[candidates.sentence].tokens.clone();
        let place = |at: &usize| {
            let own = &mentions[*at].tokens;
            own.start - tokens.start..own.end - tokens.start
        };
        let parse = document.parse().filter(|_| is_parsed);
        Self {
            length: tokens.len(),
            mentions: candidates.mentions.iter().map(place).collect(),
            known: &candidates.known,
            graph: parse.map(|parse| SentenceGraph::new(parse, tokens.clone())),
        }
    }

    /// The mentions of a mention's chain in the sentence, itself included.
    fn chain(&self, mention: usize) -> Vec<usize> {
        match self.known[mention].chain {
            None => vec![mention],
            own => {
                (0..self.mentions.len()).filter(|at| *at == mention || self.known[*at].chain == own).collect()
            }
        }
    }

    /// Feature 5: the confidence that each token refers to a mention's entity. 1 in the mention; -1 outside of all mentions of its
    /// chain, and of those that may belong to it.
    fn confidence(&self, mention: usize) -> Vec<f32> {
        let mut values = vec![-1.0_f32; self.length];
        let own = self.known[mention].chain;
        for (at, (place, known)) in self.mentions.iter().zip(self.known).enumerate() {
            let maybe = known.others.iter().find(|(chain, _)| Some(*chain) == own).map(|(_, sure)| *sure);
            let sure = match own {
                _ if at == mention => Some(1.0),
                Some(_) if known.chain == own => Some(known.chained),
                _ => maybe,
            };
            for value in &mut values[place.clone()] {
                *value = value.max(sure.unwrap_or(-1.0));
            }
        }
        values
    }
}

/// The signed number of tokens from a range to a token: negative before it, 0 inside.
fn offset(token: usize, place: &Range<usize>) -> f32 {
    if token < place.start {
        -((place.start - token) as f32)
    } else {
        (token + 1).saturating_sub(place.end.max(place.start + 1)) as f32
    }
}

impl PairFeatures {
    /// The number of values of a token.
    pub(super) fn width(self) -> usize {
        let parsed = if self.parsed { BOTH + 1 } else { 0 };
        let coreference = if self.coreference { 2 * BOTH + parsed } else { 0 };
        BOTH + parsed + coreference
    }

    /// The values of all tokens of a sentence, (tokens, width): features 2, 3 and 4, then 5, 6, 7 and 8. Two values are those for
    /// the subject and for the object.
    pub(super) fn values(self, sentence: &SentenceView<'_>, subject: usize, object: usize) -> Vec<f32> {
        let ends = [subject, object];
        let places = |mentions: &[usize]| -> Vec<Range<usize>> {
            mentions.iter().map(|at| sentence.mentions[*at].clone()).collect()
        };
        let mut columns: Vec<Vec<f32>> = Vec::new();
        let alone = ends.map(|end| places(&[end]));
        columns.extend(alone.iter().map(|places| offsets(sentence.length, places)));
        columns.extend(self.of_parse(sentence, &alone));
        if self.coreference {
            columns.extend(ends.map(|end| sentence.confidence(end)));
            let chains = ends.map(|end| places(&sentence.chain(end)));
            columns.extend(chains.iter().map(|places| offsets(sentence.length, places)));
            columns.extend(self.of_parse(sentence, &chains));
        }
        let row = |token: usize| columns.iter().map(move |column| column[token]);
        (0..sentence.length).flat_map(row).collect()
    }

    /// Features 3 and 4, or 7 and 8: the number of edges to the nearest mention of the subject and of the object, and to the nearest
    /// token of the shortest path between both. The path includes all tokens of the two mentions that it connects.
    fn of_parse(self, sentence: &SentenceView<'_>, ends: &[Vec<Range<usize>>; 2]) -> Vec<Vec<f32>> {
        let (true, Some(graph)) = (self.parsed, &sentence.graph) else { return Vec::new() };
        let tokens = |places: &[Range<usize>]| -> Vec<usize> { places.iter().cloned().flatten().collect() };
        let [subject, object] = ends;
        let mut path = graph.path(tokens(subject), tokens(object));
        for (end, places) in [(path.first().copied(), subject), (path.last().copied(), object)] {
            let whole = end.and_then(|end| places.iter().find(|place| place.contains(&end)));
            path.extend(whole.cloned().into_iter().flatten());
        }
        let distances =
            [graph.distances(tokens(subject)), graph.distances(tokens(object)), graph.distances(path)];
        // The graph is connected, and each end has a token.
        distances.map(|all| all.into_iter().map(|edges| edges as f32).collect::<Vec<f32>>()).into()
    }
}

/// Features 2 or 6: the offset of each token to the nearest of some ranges, the first of equally near ones.
fn offsets(length: usize, places: &[Range<usize>]) -> Vec<f32> {
    let nearest = |token: usize| {
        let all = places.iter().map(|place| offset(token, place));
        all.min_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0)
    };
    (0..length).map(nearest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parse;

    /// The sentence of the paper's figure 3, with its mentions: she, her, husband, Christopher Nolan.
    fn figure() -> (Document, Vec<Mention>) {
        let mut document =
            Document::new("d", "She frequently collaborates with her husband Christopher Nolan");
        // Each token with its head: collaborates is the root, and Nolan depends on husband.
        let heads = [(0, 2), (1, 2), (3, 2), (5, 3), (4, 5), (7, 5), (6, 7)];
        document.set_parse(Parse::new(heads, vec![2]));
        let mention = |tokens: Range<usize>, form, kind| Mention {
            span: document.span(tokens.clone()),
            tokens,
            sentence: 0,
            kind,
            form,
            confidence: 1.0,
        };
        use EntityType::Person;
        let mentions = vec![
            mention(0..1, MentionForm::Pronoun, Person),
            mention(4..5, MentionForm::Pronoun, Person),
            mention(5..6, MentionForm::Nominal, Person),
            mention(6..8, MentionForm::Name, Person),
        ];
        (document, mentions)
    }

    /// Its candidates: `her` is in the chain of `she` with 0.7; `husband` may be Nolan with 0.2.
    fn candidates(mentions: &[Mention]) -> Candidates {
        let mut candidates = super::super::super::sentences(mentions).remove(0);
        let in_chain = |chain: usize, chained: f32| Known { chain: Some(chain), chained, ..Known::default() };
        candidates.known = vec![
            in_chain(0, 0.9),
            in_chain(0, 0.7),
            Known { others: vec![(1, 0.2)], ..Known::default() },
            in_chain(1, 1.0),
        ];
        candidates
    }

    /// The columns of the figure for she and Christopher Nolan.
    fn columns(features: PairFeatures) -> Vec<Vec<f32>> {
        let (document, mentions) = figure();
        let candidates = candidates(&mentions);
        let sentence = SentenceView::new(&document, &mentions, &candidates, features.parsed);
        let values = features.values(&sentence, 0, 3);
        assert_eq!(values.len(), 8 * features.width());
        (0..features.width())
            .map(|column| values.iter().skip(column).step_by(features.width()).copied().collect())
            .collect()
    }

    #[test]
    fn the_features_of_the_paper_s_figure_are_these() {
        let found = columns(PairFeatures { parsed: true, coreference: true });
        let expected: [&[f32]; 12] = [
            // 2: mention distance
            &[0., 1., 2., 3., 4., 5., 6., 7.],
            &[-6., -5., -4., -3., -2., -1., 0., 0.],
            // 3: length of the shortest dependency path
            &[0., 2., 1., 2., 4., 3., 5., 4.],
            &[4., 4., 3., 2., 2., 1., 0., 0.],
            // 4: distance to the shortest dependency path
            &[0., 1., 0., 0., 1., 0., 0., 0.],
            // 5: coreference confidence
            &[1., -1., -1., -1., 0.7, -1., -1., -1.],
            &[-1., -1., -1., -1., -1., 0.2, 1., 1.],
            // 6: coreference distance
            &[0., 1., 2., -1., 0., 1., 2., 3.],
            &[-6., -5., -4., -3., -2., -1., 0., 0.],
            // 7: length of the shortest dependency path to the chains
            &[0., 2., 1., 2., 0., 1., 3., 2.],
            &[4., 4., 3., 2., 2., 1., 0., 0.],
            // 8: distance to the shortest dependency path between the chains
            &[3., 3., 2., 1., 0., 0., 0., 0.],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn features_without_a_parse_or_without_coreference_are_left_out() {
        let all = columns(PairFeatures { parsed: true, coreference: true });
        let pick = |columns: &[usize]| columns.iter().map(|at| all[*at].clone()).collect::<Vec<_>>();
        assert_eq!(columns(PairFeatures { parsed: true, coreference: false }), pick(&[0, 1, 2, 3, 4]));
        assert_eq!(columns(PairFeatures { parsed: false, coreference: true }), pick(&[0, 1, 5, 6, 7, 8]));
        assert_eq!(columns(PairFeatures { parsed: false, coreference: false }), pick(&[0, 1]));
    }

    #[test]
    fn feature_1_has_the_position_in_a_mention_and_the_types() {
        let (document, mentions) = figure();
        let own: Vec<&Mention> = mentions.iter().collect();
        let (begin, inside, outside) = (
            [1., 0., 0., 1., 0., 0., 0., 0.],
            [0., 1., 0., 1., 0., 0., 0., 0.],
            [0., 0., 1., 0., 0., 0., 0., 0.],
        );
        assert_eq!(
            tags(&document, &own, 0..8),
            [begin, outside, outside, outside, begin, begin, begin, inside]
        );
        // A pronoun can have several types.
        let document = Document::new("d", "They said it.");
        let mentions = crate::proposals(&document);
        let own: Vec<&Mention> = mentions.iter().collect();
        let found = tags(&document, &own, 0..4);
        assert_eq!(found[0], [1., 0., 0., 1., 1., 0., 0., 0.]);
        assert_eq!(found[2], [1., 0., 0., 0., 1., 1., 0., 0.]);
    }
}
