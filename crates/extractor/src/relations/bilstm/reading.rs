//! Sentences and their pairs as inputs of the BiLSTM.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use rustc_hash::FxHashMap;
use sporran_training::PairTarget;

use super::{
    super::{Annotated, Candidates, Properties, RelationInput, Scores},
    BilstmFile, BilstmShape, KnownValues, LayerEncoder, Pairing, Positives, Vectors,
    features::{self, SentenceView, TAGS},
};
use crate::{
    EntityType,
    annotated::kinds_of as kinds_of_property,
    error::{Error, Result},
    tagger::WordRows,
};

/// The words of a sentence.
#[derive(Clone, Debug)]
pub(super) enum Words {
    /// Rows of the trained word table.
    Hashed(Vec<WordRows>),
    /// Rows of pretrained vectors; `None` for an unknown word, whose vector is 0.
    Pretrained(Vec<Option<u32>>),
}

/// A sentence with its candidate pairs.
#[derive(Clone, Debug)]
pub struct ReadSentence {
    pub(super) words: Words,
    /// The hidden states of an encoder's layers, (tokens, layers, width); empty without one.
    pub(super) layers: Vec<f32>,
    /// Feature 1 of each token.
    pub(super) tags: Vec<[f32; TAGS]>,
    pub(super) pairs: Vec<ReadPair>,
}

/// A subject and an object.
#[derive(Clone, Debug)]
pub(super) struct ReadPair {
    /// The token range to read, relative to the sentence.
    pub(super) tokens: Range<usize>,
    /// Features 2 to 8 of these tokens, (tokens, width).
    pub(super) features: Vec<f32>,
    /// The inputs of features 9 and 10 that are 1.
    pub(super) known: Vec<usize>,
    /// The index of the candidate.
    candidate: usize,
}

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

/// A property that KnowledgeNet does not have covers a pair of types from one in this many facts on.
const RARE: usize = 20;

/// The largest number of types and of properties that are inputs, the most frequent ones.
const VALUES: usize = 512;

/// Converts sentences to inputs.
#[derive(Clone, Debug)]
pub struct BilstmReader {
    file: BilstmFile,
    vectors: Option<Arc<Vectors>>,
    /// The positions of the types and properties among [`KnownValues`].
    types: FxHashMap<String, usize>,
    relations: FxHashMap<String, usize>,
}

impl BilstmReader {
    /// The reader of a model with these pretrained vectors, if it has any.
    #[must_use]
    pub fn new(file: &BilstmFile, vectors: Option<Arc<Vectors>>) -> Self {
        let places = |values: &[String]| values.iter().cloned().zip(0..).collect();
        let (types, relations) = (places(&file.known.types), places(&file.known.properties));
        Self { file: file.clone(), vectors, types, relations }
    }

    /// The possible properties.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.file.properties
    }

    /// The types of subjects and objects of each property ([`Pairing::ByType`]). Empty if all pairs are classified.
    #[must_use]
    pub fn kinds(
        shape: &BilstmShape,
        properties: &Properties,
        documents: &[Annotated],
    ) -> Vec<Vec<(EntityType, EntityType)>> {
        if shape.pairs == Pairing::All {
            return Vec::new();
        }
        let often = |label: usize| {
            let mut counts: BTreeMap<(EntityType, EntityType), usize> = BTreeMap::new();
            for annotated in documents {
                for fact in annotated.facts.iter().filter(|fact| fact.label == label) {
                    let Some(&(sentence, pair)) = fact.pairs.first() else { continue };
                    let (subject, object) = annotated.candidates[sentence].ends(pair);
                    let kind = |at: usize| annotated.mentions[at].kind;
                    *counts.entry((kind(subject), kind(object))).or_default() += 1;
                }
            }
            let all: usize = counts.values().sum();
            counts.into_iter().filter(|(_, count)| count * RARE >= all).map(|(kinds, _)| kinds).collect()
        };
        let of = |(label, property): (usize, &super::super::Property)| match kinds_of_property(&property.id) {
            // The paper's table has a person as the object of FOUNDED_BY.
            (Some(subject), object) => vec![(subject, object.unwrap_or(EntityType::Person))],
            (None, _) => often(label),
        };
        properties.all().iter().enumerate().map(of).collect()
    }

    /// The values of features 9 and 10 in documents, the most frequent ones.
    #[must_use]
    pub fn known_values(documents: &[Annotated]) -> KnownValues {
        let most = |values: &mut dyn Iterator<Item = &String>| -> Vec<String> {
            let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
            values.for_each(|value| *counts.entry(value).or_default() += 1);
            let mut counts: Vec<(&String, usize)> = counts.into_iter().collect();
            counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            counts.into_iter().take(VALUES).map(|(value, _)| value.clone()).collect()
        };
        let candidates = || documents.iter().flat_map(|annotated| &annotated.candidates);
        KnownValues {
            types: most(&mut candidates().flat_map(|own| &own.known).flat_map(|known| &known.types)),
            properties: most(&mut candidates().flat_map(|own| &own.facts).flatten()),
        }
    }

    fn allows(&self, label: usize, subject: &[EntityType], object: &[EntityType]) -> bool {
        self.file.kinds.get(label).is_none_or(|allowed| {
            allowed.iter().any(|(first, second)| subject.contains(first) && object.contains(second))
        })
    }

    /// Whether the network classifies a pair of a sentence for a property.
    #[must_use]
    pub fn asks(
        &self,
        (document, mentions, candidates): RelationInput<'_>,
        pair: usize,
        label: usize,
    ) -> bool {
        let (subject, object) = candidates.ends(pair);
        let kinds = |at: usize| features::kinds_of(document, &mentions[at]);
        self.allows(label, &kinds(subject), &kinds(object))
    }

    /// Sentences as inputs of the network. `encoder` is that of the model, if it has one.
    ///
    /// # Errors
    /// Errors of the encoder. [`Error::Misplaced`] for a document without a parse, if the model needs it.
    pub fn sentences(
        &self,
        inputs: &[RelationInput<'_>],
        encoder: Option<&LayerEncoder>,
    ) -> Result<Vec<ReadSentence>> {
        if let Some((document, ..)) = inputs.iter().find(|(document, ..)| document.parse().is_none())
            && self.file.parsed
        {
            return Err(Error::Misplaced {
                document: document.id.clone(),
                field: "parses".into(),
                message: "expected a dependency parse, because the model was trained with parses, found none"
                    .into(),
            });
        }
        let words: Vec<Vec<&str>> = inputs.iter().map(|input| words_of(*input)).collect();
        let layers = match encoder {
            Some(encoder) => encoder.layers(&words)?,
            None => vec![Vec::new(); inputs.len()],
        };
        let each = inputs.iter().zip(&words).zip(layers);
        Ok(each.map(|((input, words), layers)| self.sentence(*input, self.words(words), layers)).collect())
    }

    fn words(&self, words: &[&str]) -> Words {
        match &self.vectors {
            Some(vectors) => Words::Pretrained(words.iter().map(|word| vectors.row(word)).collect()),
            None => {
                let row = |(at, word): (usize, &&str)| self.file.shape.words.rows(word, at == 0);
                Words::Hashed(words.iter().enumerate().map(row).collect())
            }
        }
    }

    fn sentence(&self, input: RelationInput<'_>, words: Words, layers: Vec<f32>) -> ReadSentence {
        let (document, mentions, candidates) = input;
        let tokens = document.sentences[candidates.sentence].tokens.clone();
        let own: Vec<_> = candidates.mentions.iter().map(|at| &mentions[*at]).collect();
        let tags = features::tags(document, &own, tokens);
        let kinds: Vec<Vec<EntityType>> =
            own.iter().map(|mention| features::kinds_of(document, mention)).collect();
        let view = SentenceView::new(document, mentions, candidates, self.file.parsed);
        let is_read = |ends: (usize, usize)| {
            (0..self.file.properties.len()).any(|label| self.allows(label, &kinds[ends.0], &kinds[ends.1]))
        };
        let pair = |number: usize| {
            let ends = &candidates.pairs[number];
            let ends = (ends.first as usize, ends.second as usize);
            is_read(ends).then(|| self.pair(candidates, &view, number, ends))
        };
        let pairs = (0..candidates.pairs.len()).filter_map(pair).collect();
        ReadSentence { words, layers, tags, pairs }
    }

    fn pair(
        &self,
        candidates: &Candidates,
        view: &SentenceView<'_>,
        candidate: usize,
        (subject, object): (usize, usize),
    ) -> ReadPair {
        let tokens = match self.file.shape.around {
            None => 0..view.length,
            Some(around) => {
                let [first, second] = [&view.mentions[subject], &view.mentions[object]];
                let start = first.start.min(second.start).saturating_sub(around);
                start..first.end.max(second.end).saturating_add(around).min(view.length)
            }
        };
        let features = self.file.pair_features();
        let width = features.width();
        let values = features.values(view, subject, object);
        let types = self.types.len();
        let of = |end: usize, first: usize| {
            let own = candidates.known[end].types.iter();
            own.filter_map(|kind| self.types.get(kind)).map(move |place| first + place)
        };
        let properties =
            candidates.facts[candidate].iter().filter_map(|property| self.relations.get(property));
        let known = of(subject, 0).chain(of(object, types)).chain(properties.map(|place| 2 * types + place));
        let known = known.collect();
        let features = values[tokens.start * width..tokens.end * width].to_vec();
        ReadPair { tokens, features, known, candidate }
    }

    /// The training examples of documents: the annotations of pairs. The links of a pair are correct if it matches a fact with the
    /// same links.
    ///
    /// # Errors
    /// Those of [`Self::sentences`].
    pub fn examples<'d>(
        &self,
        documents: impl IntoIterator<Item = &'d Annotated>,
        encoder: Option<&LayerEncoder>,
        positives: Positives,
    ) -> Result<Vec<RelationExample>> {
        let labels = self.file.properties.len();
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
                    let PairTarget { pair, label, value, .. } = *target;
                    let is_positive = value > 0.5;
                    if is_positive
                        && positives == Positives::Exact
                        && !annotated.is_exact(number, pair, label)
                    {
                        continue;
                    }
                    if self.asks(input, pair, label) {
                        let is_right = is_positive && annotated.has_right_links(number, pair, label);
                        let links = f32::from(u8::from(is_right));
                        outputs[pair].extend([(label, value), (labels + label, links)]);
                    }
                }
                let sentence = Arc::new(sentence);
                let of = |(at, pair): (usize, &ReadPair)| {
                    let known = std::mem::take(&mut outputs[pair.candidate]);
                    (!known.is_empty()).then_some((at, known))
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
        let labels = self.file.properties.len();
        let count = input.2.pairs.len() * labels;
        let (mut values, mut links) = (vec![0.0; count], vec![0.0; count]);
        for (pair, own) in sentence.pairs.iter().zip(logits.chunks_exact(2 * labels.max(1))) {
            for label in (0..labels).filter(|&label| self.asks(input, pair.candidate, label)) {
                let probability = |logit: f32| 1.0 / (1.0 + (-logit).exp());
                values[pair.candidate * labels + label] = probability(own[label]);
                links[pair.candidate * labels + label] = probability(own[labels + label]);
            }
        }
        Scores::new(labels, values).with_links(links)
    }
}

/// The words of a sentence.
fn words_of<'a>((document, _, candidates): RelationInput<'a>) -> Vec<&'a str> {
    document.sentences[candidates.sentence].tokens.clone().map(|at| document.word(at)).collect()
}
