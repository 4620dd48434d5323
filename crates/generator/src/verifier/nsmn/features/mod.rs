//! The word features of a released network in addition to word vectors: a word's WordNet relations to the words of the
//! other text, and five values of a number.

mod digits;
mod lists;
mod numbers;
mod part;
mod pointers;
mod records;
mod relations;
mod stem;
mod stem_tables;
mod tagger;
#[cfg(test)]
mod tests;
mod wordnet;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use sporran_checkpoint::Result;

use lists::Lists;
use numbers::{NUMBER_FEATURES, NumberTable};
use part::PartOfSpeech;
use relations::{Terms, endless, reached};
use stem::stem;
use tagger::PerceptronTagger;
use wordnet::WordNet;

/// The features of a token: three values for each of ten relations to the other text, then a number's five.
pub(super) const FEATURES: usize = 3 * RELATIONS + NUMBER_FEATURES;

const RELATIONS: usize = 10;

// The relations' places. A token's ancestor is the other text's word whose hyponym the token is.
const EXACT_MATCH: usize = 0;
const ANTONYM: usize = 1;
const ANCESTOR: usize = 2;
const DESCENDANT: usize = 3;
/// Of one step, two steps, and more.
const HYPONYM: [usize; 3] = [4, 6, 8];
const HYPERNYM: [usize; 3] = [5, 7, 9];

/// The resources for the features.
#[derive(Debug)]
pub(super) struct Features {
    tagger: PerceptronTagger,
    wordnet: WordNet,
    terms: Terms,
    /// The synsets that have a synset for a hyponym.
    above: Lists,
    endless_hyponyms: Vec<bool>,
    endless_hypernyms: Vec<bool>,
    numbers: NumberTable,
}

/// A text's words as the other text's tokens see them. All terms are numbers of [`Terms`].
#[derive(Default)]
struct Text {
    tokens: Vec<Token>,
    /// The stems of the words that have synsets.
    words: Vec<Vec<u32>>,
    /// The words' synsets and their synonyms', each with the words (places in `words`) it is of.
    synsets: HashMap<u32, Vec<u32>>,
    /// The hypernyms of those.
    hypernyms: HashMap<u32, Hypernym>,
    antonyms: HashSet<u32>,
    lemmas: HashSet<u32>,
}

/// A hypernym of a text's words.
struct Hypernym {
    /// From the nearest of the words' synsets.
    steps: usize,
    /// The words that have it for a hypernym however many steps are taken.
    words: Vec<u32>,
}

struct Token {
    /// The token itself and its stem.
    stems: Vec<u32>,
    /// The lemma names of its synsets.
    lemmas: Vec<u32>,
}

impl Features {
    /// Reads a folder with the files of WordNet 3.0 and those of nltk's tagger (see [`WordNet::open`] and
    /// [`PerceptronTagger::open`]).
    ///
    /// # Errors
    ///
    /// Where a file cannot be read or is not in its format.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let tagger = PerceptronTagger::open(folder)?;
        let wordnet = WordNet::open(folder)?;
        let terms = Terms::new(&wordnet);
        let pointers = wordnet.pointers();
        Ok(Self {
            above: pointers.hyponyms.reversed(wordnet.len()),
            endless_hyponyms: endless(&pointers.hyponyms),
            endless_hypernyms: endless(&pointers.hypernyms),
            numbers: NumberTable::new(),
            tagger,
            terms,
            wordnet,
        })
    }

    /// The features of the premise's tokens and of the hypothesis's.
    ///
    /// The relations are, in this order: exact match, antonym, ancestor, descendant, hyponym in one step, hypernym in one
    /// step, hyponym in two, hypernym in two, hyponym in more, hypernym in more. A relation's values are 0 or 1: whether a
    /// premise's token has it, whether a hypothesis's has it, and whether the token has it.
    #[must_use]
    pub(super) fn of(
        &self,
        premise: &[&str],
        hypothesis: &[&str],
    ) -> (Vec<[f32; FEATURES]>, Vec<[f32; FEATURES]>) {
        let (first, second) = (self.text(premise), self.text(hypothesis));
        (self.rows(premise, &first, &second, 0), self.rows(hypothesis, &second, &first, 1))
    }

    fn text(&self, tokens: &[&str]) -> Text {
        let mut text = Text::default();
        let mut seen = HashSet::new();
        for (token, tag) in tokens.iter().zip(self.tagger.tag(tokens)) {
            let stems = self.stems(token);
            // A word whose tag is no part of speech of WordNet's has no synsets here, but it can match.
            if let Some(part) = PartOfSpeech::of_tag(tag)
                && seen.insert((*token, part))
            {
                text.words.push(stems.clone());
                self.add_synsets(&mut text, token, part);
            }
            let lemmas = self.lemmas(token);
            text.lemmas.extend(&lemmas);
            text.tokens.push(Token { stems, lemmas });
        }
        text
    }

    /// Adds the synsets of the last word's synonyms, which are its own ones and those of the other lemmas of these.
    fn add_synsets(&self, text: &mut Text, word: &str, part: PartOfSpeech) {
        let place = text.words.len() as u32 - 1;
        let own = self.wordnet.synsets(word, part);
        let synonyms: HashSet<&str> =
            own.iter().flat_map(|&synset| self.wordnet.lemma_names(synset)).collect();
        let synsets: HashSet<u32> =
            synonyms.into_iter().flat_map(|lemma| self.wordnet.synsets(lemma, part)).collect();
        for synset in synsets {
            for &antonym in self.wordnet.antonym_ids(synset) {
                text.antonyms.extend([antonym, self.terms.stem(antonym)]);
            }
            text.synsets.entry(synset).or_default().push(place);
            for (other, steps) in reached(&self.wordnet.pointers().hypernyms, synset) {
                let hypernym = text.hypernyms.entry(other).or_insert(Hypernym { steps, words: Vec::new() });
                hypernym.steps = hypernym.steps.min(steps);
                if !self.endless_hypernyms[synset as usize] && hypernym.words.last() != Some(&place) {
                    hypernym.words.push(place);
                }
            }
        }
    }

    /// A token's terms: the release lowers the case of the stem only.
    fn stems(&self, token: &str) -> Vec<u32> {
        [token, &stem(token)].into_iter().filter_map(|term| self.terms.id(&self.wordnet, term)).collect()
    }

    /// The terms that an exact match compares. A word that is not in WordNet never matches.
    fn lemmas(&self, token: &str) -> Vec<u32> {
        let token = token.to_lowercase();
        let synsets = self.wordnet.all_synsets(&token);
        let mut lemmas: Vec<u32> =
            synsets.iter().flat_map(|&synset| self.wordnet.lemma_ids(synset)).copied().collect();
        if token == "n't" {
            lemmas.push(self.terms.not());
        }
        lemmas
    }

    /// The features of a text's tokens; `side` is the place of its values among a relation's.
    fn rows(&self, tokens: &[&str], text: &Text, other: &Text, side: usize) -> Vec<[f32; FEATURES]> {
        let rows = tokens.iter().zip(&text.tokens).map(|(token, Token { stems, lemmas })| {
            let mut row = [0.0; FEATURES];
            let mut set = |relation: usize| {
                row[3 * relation + side] = 1.0;
                row[3 * relation + 2] = 1.0;
            };
            if lemmas.iter().any(|lemma| other.lemmas.contains(lemma)) {
                set(EXACT_MATCH);
            }
            if stems.iter().any(|stem| other.antonyms.contains(stem)) {
                set(ANTONYM);
            }
            if let Some(level) = self.hyponym_level(stems, other) {
                set(ANCESTOR);
                set(HYPONYM[level]);
            }
            if let Some(level) = self.hypernym_level(stems, other) {
                set(DESCENDANT);
                set(HYPERNYM[level]);
            }
            row[3 * RELATIONS..].copy_from_slice(&self.numbers.of(token));
            row
        });
        rows.collect()
    }

    /// Whether a token with the stems is a hyponym of one of the text's words: 0 of one step, 1 of two, 2 of more.
    fn hyponym_level(&self, stems: &[u32], text: &Text) -> Option<usize> {
        let levels = stems.iter().flat_map(|&stem| {
            let synsets = self.terms.synsets(stem).iter().flat_map(|&synset| reached(&self.above, synset));
            synsets.filter_map(move |(synset, steps)| {
                let words = text.synsets.get(&synset)?;
                let words = if self.endless_hyponyms[synset as usize] { &[] } else { &words[..] };
                text.level(steps, words, stem)
            })
        });
        levels.min()
    }

    /// The same of hypernyms.
    fn hypernym_level(&self, stems: &[u32], text: &Text) -> Option<usize> {
        let levels = stems.iter().flat_map(|&stem| {
            let hypernyms = self.terms.synsets(stem).iter().filter_map(|synset| text.hypernyms.get(synset));
            hypernyms.filter_map(move |Hypernym { steps, words }| text.level(*steps, words, stem))
        });
        levels.min()
    }
}

impl Text {
    /// The level of a stem that the words reach in `steps` steps. The release excludes the word's own stems only above two
    /// steps.
    fn level(&self, steps: usize, words: &[u32], stem: u32) -> Option<usize> {
        let counts = steps <= 2 || words.iter().any(|&word| !self.words[word as usize].contains(&stem));
        counts.then(|| (steps - 1).min(2))
    }
}
