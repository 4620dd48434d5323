//! Sentences and their pairs as inputs of the BiLSTM.

use std::{ops::Range, sync::Arc};

use sporran_training::PairTarget;

use super::{
    super::{
        Annotated, Candidates, RelationInput, Scores,
        candidates::{BETWEEN, distance_bucket},
        marking::class,
    },
    BilstmFile, BilstmShape, LayerEncoder, Pairing, layout,
};
use crate::{EntityType, MentionForm, error::Result, tagger::WordRows};

/// The words of a sentence.
#[derive(Clone, Debug)]
pub(super) enum Words {
    /// Rows of the word table.
    Hashed(Vec<WordRows>),
    /// The hidden states of an encoder's layers, (tokens, layers, width).
    Layers(Vec<f32>),
}

/// A sentence with its candidate pairs.
#[derive(Clone, Debug)]
pub struct ReadSentence {
    pub(super) words: Words,
    /// For each token the rows of its slots.
    pub(super) slots: Vec<[Vec<u32>; layout::TOKEN_SLOTS]>,
    pub(super) numbers: Vec<[f32; layout::TOKEN_NUMBERS]>,
    pub(super) pairs: Vec<ReadPair>,
}

/// Two mentions in text order, read once for both directions.
#[derive(Clone, Debug)]
pub(super) struct ReadPair {
    /// The token range to read, relative to the sentence.
    pub(super) tokens: Range<usize>,
    pub(super) first: Range<usize>,
    pub(super) second: Range<usize>,
    /// The rows for the numbers of tokens and of mentions between.
    between: [u32; 2],
    /// The rows of known properties.
    facts: Vec<u32>,
    /// The candidate indices of the pair from the first mention to the second, and back.
    candidates: [Option<usize>; 2],
}

impl ReadPair {
    /// The rows of a token's slots.
    pub(super) fn slots(&self, token: usize) -> [&[u32]; layout::PAIR_SLOTS] {
        let offset = |mention: &Range<usize>, first: u32| {
            let row = if token < mention.start {
                1 + distance_bucket(mention.start - token - 1)
            } else if token >= mention.end {
                1 + layout::OFFSETS / 2 + distance_bucket(token - mention.end)
            } else {
                0
            };
            (first + row) as usize
        };
        let one = |row: usize| &EVERY_ROW[row..=row];
        [
            one(offset(&self.first, layout::FIRST)),
            one(offset(&self.second, layout::SECOND)),
            &self.between[..1],
            &self.between[1..],
            &self.facts,
        ]
    }

    /// Whether a token is between both mentions.
    pub(super) fn is_between(&self, token: usize) -> bool {
        (self.first.end..self.second.start).contains(&token)
    }
}

/// All row indices, so that a slot with one row is a slice like any other.
static EVERY_ROW: [u32; layout::ROWS] = {
    let mut rows = [0; layout::ROWS];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = at as u32;
        at += 1;
    }
    rows
};

/// The known outputs of a pair: output indices with their values.
pub(super) type KnownOutputs = Vec<(usize, f32)>;

/// The pairs of a sentence with known outputs.
#[derive(Clone, Debug)]
pub struct RelationExample {
    pub(super) sentence: Arc<ReadSentence>,
    /// Pair indices with their known outputs.
    pub(super) pairs: Vec<(usize, KnownOutputs)>,
}

/// The largest number of pairs in a batch member, which limits batches of long sentences.
const PAIRS: usize = 64;

/// A property covers a pair of types from one in this many facts on.
const RARE: usize = 20;

/// Converts sentences to inputs.
#[derive(Clone, Debug)]
pub struct BilstmReader {
    shape: BilstmShape,
    labels: usize,
    kinds: Vec<Vec<(EntityType, EntityType)>>,
}

impl BilstmReader {
    /// The reader of a model.
    #[must_use]
    pub fn new(file: &BilstmFile) -> Self {
        Self { shape: file.shape.clone(), labels: file.properties.len(), kinds: file.kinds.clone() }
    }

    /// The pairs of types of each property in documents, if they have at least one in twenty of its facts.
    /// Empty if all pairs are classified.
    #[must_use]
    pub fn kinds(
        shape: &BilstmShape,
        labels: usize,
        documents: &[Annotated],
    ) -> Vec<Vec<(EntityType, EntityType)>> {
        if shape.pairs == Pairing::All {
            return Vec::new();
        }
        let mut counts: Vec<std::collections::BTreeMap<(EntityType, EntityType), usize>> =
            vec![Default::default(); labels];
        for annotated in documents {
            for fact in &annotated.facts {
                let Some(&(sentence, pair)) = fact.pairs.first() else { continue };
                *counts[fact.label].entry(annotated.candidates[sentence].kinds(pair)).or_default() += 1;
            }
        }
        let often = |counts: std::collections::BTreeMap<_, usize>| {
            let all: usize = counts.values().sum();
            counts.into_iter().filter(|(_, count)| count * RARE >= all).map(|(kinds, _)| kinds).collect()
        };
        counts.into_iter().map(often).collect()
    }

    fn allows(&self, label: usize, kinds: (EntityType, EntityType)) -> bool {
        self.kinds.get(label).is_none_or(|allowed| allowed.contains(&kinds))
    }

    /// Whether the network classifies a pair of a sentence for a property.
    #[must_use]
    pub fn asks(&self, candidates: &Candidates, pair: usize, label: usize) -> bool {
        self.allows(label, candidates.kinds(pair))
    }

    /// Sentences as inputs of the network. With an encoder, words are its hidden states.
    ///
    /// # Errors
    /// Errors of the encoder.
    pub fn sentences(
        &self,
        inputs: &[RelationInput<'_>],
        encoder: Option<&LayerEncoder>,
    ) -> Result<Vec<ReadSentence>> {
        let words: Vec<Vec<&str>> = inputs.iter().map(|input| words_of(*input)).collect();
        let words: Vec<Words> = match encoder {
            Some(encoder) => encoder.layers(&words)?.into_iter().map(Words::Layers).collect(),
            None => {
                let row = |(at, word): (usize, &&str)| self.shape.words.rows(word, at == 0);
                let rows = |words: &Vec<&str>| Words::Hashed(words.iter().enumerate().map(row).collect());
                words.iter().map(rows).collect()
            }
        };
        Ok(inputs.iter().zip(words).map(|(input, words)| self.sentence(*input, words)).collect())
    }

    fn sentence(&self, input: RelationInput<'_>, words: Words) -> ReadSentence {
        let (document, mentions, candidates) = input;
        let own = document.sentences[candidates.sentence].tokens.clone();
        let mut slots: Vec<[Vec<u32>; layout::TOKEN_SLOTS]> =
            vec![[vec![layout::CLASS], vec![], vec![]]; own.len()];
        let mut numbers = vec![[0.0; layout::TOKEN_NUMBERS]; own.len()];
        let place = |at: u32| {
            let tokens = &mentions[candidates.mentions[at as usize]].tokens;
            tokens.start - own.start..tokens.end - own.start
        };
        for (at, known) in candidates.known.iter().enumerate() {
            let mention = &mentions[candidates.mentions[at]];
            let form = if self.shape.enriched_types { mention.form } else { MentionForm::Name };
            let class = class(known.kind, form);
            let mut rows = [vec![layout::CLASS + 1 + class as u32], vec![], vec![]];
            let mut sure = [0.0; layout::TOKEN_NUMBERS];
            if self.shape.confidence {
                let far = |distance| layout::CHAIN + distance_bucket(distance).min(layout::CHAINS - 1);
                rows[1].extend(known.distance.map(far));
                sure = [known.chained, known.linked];
            }
            if self.shape.knowledge {
                let row = |hash: &u64| layout::TYPE + (hash % u64::from(layout::TYPES)) as u32;
                rows[2].extend(known.types.iter().map(row));
            }
            for token in place(at as u32) {
                slots[token].clone_from(&rows);
                numbers[token] = sure;
            }
        }
        let mut pairs: Vec<ReadPair> = Vec::new();
        let mut places = vec![None; candidates.mentions.len() * candidates.mentions.len()];
        for (number, ends) in candidates.pairs.iter().enumerate() {
            let kinds = candidates.kinds(number);
            if !(0..self.labels).any(|label| self.allows(label, kinds)) {
                continue;
            }
            let (left, right) = (ends.first.min(ends.second), ends.first.max(ends.second));
            let direction = usize::from(ends.first > ends.second);
            let at = *places[left as usize * candidates.mentions.len() + right as usize].get_or_insert_with(
                || {
                    pairs.push(self.pair((place(left), place(right)), right - left, own.len()));
                    pairs.len() - 1
                },
            );
            let pair = &mut pairs[at];
            pair.candidates[direction] = Some(number);
            if self.shape.knowledge {
                let base = layout::FACT + direction as u32 * layout::FACTS;
                let row = |hash: &u64| base + (hash % u64::from(layout::FACTS)) as u32;
                pair.facts.extend(candidates.facts[number].iter().map(row));
            }
        }
        ReadSentence { words, slots, numbers, pairs }
    }

    fn pair(&self, (first, second): (Range<usize>, Range<usize>), apart: u32, tokens: usize) -> ReadPair {
        let start = first.start.saturating_sub(self.shape.around);
        let end = (second.end.max(first.end) + self.shape.around).min(tokens);
        let gap = layout::GAP + distance_bucket(second.start.saturating_sub(first.end));
        let others = layout::OTHERS + apart.saturating_sub(1).min(BETWEEN - 1);
        ReadPair {
            tokens: start..end,
            first,
            second,
            between: [gap, others],
            facts: Vec::new(),
            candidates: [None; 2],
        }
    }

    /// The training examples of documents: the annotations of pairs. A fact without both links gives no
    /// target for links.
    ///
    /// # Errors
    /// Errors of the encoder.
    pub fn examples(
        &self,
        documents: &[Annotated],
        encoder: Option<&LayerEncoder>,
    ) -> Result<Vec<RelationExample>> {
        let mut examples = Vec::new();
        for annotated in documents {
            let known = |targets: &Vec<PairTarget>| !targets.is_empty();
            let numbers: Vec<usize> =
                (0..annotated.candidates.len()).filter(|&at| known(&annotated.targets[at])).collect();
            let inputs: Vec<RelationInput<'_>> = numbers
                .iter()
                .map(|&at| (&annotated.document, &*annotated.mentions, &annotated.candidates[at]))
                .collect();
            let sentences = self.sentences(&inputs, encoder)?;
            for ((number, input), sentence) in numbers.into_iter().zip(inputs).zip(sentences) {
                let mut outputs: Vec<KnownOutputs> = vec![Vec::new(); input.2.pairs.len()];
                for target in &annotated.targets[number] {
                    if !self.asks(input.2, target.pair, target.label) {
                        continue;
                    }
                    outputs[target.pair].push((target.label, target.value));
                    if target.value < 0.5 || annotated.is_linked(number, target.pair, target.label) {
                        outputs[target.pair].push((self.labels + target.label, target.value));
                    }
                }
                let sentence = Arc::new(sentence);
                let of = |(at, pair): (usize, &ReadPair)| {
                    let both = pair.candidates.iter().enumerate().flat_map(|(direction, number)| {
                        let own = number.map_or(&[][..], |number| outputs[number].as_slice());
                        own.iter().map(move |(output, value)| (direction * 2 * self.labels + output, *value))
                    });
                    let both: KnownOutputs = both.collect();
                    (!both.is_empty()).then_some((at, both))
                };
                let pairs: Vec<(usize, KnownOutputs)> =
                    sentence.pairs.iter().enumerate().filter_map(of).collect();
                let parts = pairs.chunks(PAIRS);
                examples.extend(
                    parts.map(|part| RelationExample { sentence: sentence.clone(), pairs: part.to_vec() }),
                );
            }
        }
        Ok(examples)
    }

    /// The scores of a sentence's candidates from the logits of the pairs. Pairs that are not classified have
    /// probability 0.
    #[must_use]
    pub fn scores(&self, input: RelationInput<'_>, sentence: &ReadSentence, logits: &[f32]) -> Scores {
        let labels = self.labels;
        let count = input.2.pairs.len() * labels;
        let (mut values, mut links) = (vec![0.0; count], vec![0.0; count]);
        for (pair, logits) in sentence.pairs.iter().zip(logits.chunks_exact(4 * labels.max(1))) {
            for (direction, number) in pair.candidates.iter().enumerate() {
                let Some(number) = *number else { continue };
                let kinds = input.2.kinds(number);
                let own = &logits[direction * 2 * labels..][..2 * labels];
                for label in (0..labels).filter(|&label| self.allows(label, kinds)) {
                    let probability = |logit: f32| 1.0 / (1.0 + (-logit).exp());
                    values[number * labels + label] = probability(own[label]);
                    links[number * labels + label] = probability(own[labels + label]);
                }
            }
        }
        Scores::new(labels, values).with_links(links)
    }
}

/// The words of a sentence.
fn words_of<'a>((document, _, candidates): RelationInput<'a>) -> Vec<&'a str> {
    document.sentences[candidates.sentence].tokens.clone().map(|at| document.word(at)).collect()
}
