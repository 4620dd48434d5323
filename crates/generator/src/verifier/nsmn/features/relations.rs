//! How near the words of WordNet are to each other.
//!
//! The release collects all hyponyms' names of a text's words and looks a token up among them. As there can be tens of
//! thousands, here the token's own synsets are followed upwards to those of the text's words, which says the same. Hypernyms
//! are few, and followed from the text's words.

use std::collections::HashMap;

use super::{lists::Lists, stem::stem, wordnet::WordNet};

/// The lemma names and their stems, numbered: a name has WordNet's number.
#[derive(Debug)]
pub(super) struct Terms {
    /// The stems that are no lemma names.
    more: HashMap<Box<str>, u32>,
    /// Each name's stem.
    stems: Vec<u32>,
    /// The synsets of which a term is a lemma name or a stem of one.
    synsets: Lists,
    not: u32,
}

impl Terms {
    pub(super) fn new(wordnet: &WordNet) -> Self {
        let names = wordnet.names();
        let mut more = HashMap::new();
        let mut number = |stem: String| {
            wordnet.name_id(&stem).unwrap_or_else(|| {
                let next = (names.len() + more.len()) as u32;
                *more.entry(stem.into()).or_insert(next)
            })
        };
        let stems: Vec<u32> = names.iter().map(|name| number(stem(name))).collect();
        let not = number("not".to_owned());
        let pairs = (0..wordnet.len() as u32).flat_map(|synset| {
            let stems = &stems;
            wordnet
                .lemma_ids(synset)
                .iter()
                .flat_map(move |&name| [(name, synset), (stems[name as usize], synset)])
        });
        let pairs = pairs.collect();
        let synsets = Lists::new(names.len() + more.len(), pairs);
        Self { more, stems, synsets, not }
    }

    /// A term's number, if it is one.
    pub(super) fn id(&self, wordnet: &WordNet, term: &str) -> Option<u32> {
        wordnet.name_id(term).or_else(|| self.more.get(term).copied())
    }

    /// The term `not`.
    pub(super) fn not(&self) -> u32 {
        self.not
    }

    /// The stem of a lemma name.
    pub(super) fn stem(&self, name: u32) -> u32 {
        self.stems[name as usize]
    }

    pub(super) fn synsets(&self, term: u32) -> &[u32] {
        self.synsets.row(term)
    }
}

/// Whether each synset leads into a circle of the relation. The release's recursion fails there, and it leaves the synset
/// out.
pub(super) fn endless(relation: &Lists) -> Vec<bool> {
    let rows = relation.rows();
    let sources = relation.reversed(rows as usize);
    // Synsets are done from the ends on: one that waits for ever is in a circle or before one.
    let mut waiting: Vec<usize> = (0..rows).map(|synset| relation.row(synset).len()).collect();
    let mut done: Vec<u32> = (0..rows).filter(|&synset| waiting[synset as usize] == 0).collect();
    while let Some(synset) = done.pop() {
        for &source in sources.row(synset) {
            let waiting = &mut waiting[source as usize];
            *waiting -= 1;
            if *waiting == 0 {
                done.push(source);
            }
        }
    }
    waiting.into_iter().map(|left| left > 0).collect()
}

/// The synsets that the lists lead to from a synset, with the least number of steps, from 1 on. Meant for upward lists, by
/// which few are reached.
pub(super) fn reached(lists: &Lists, synset: u32) -> impl Iterator<Item = (u32, usize)> {
    let mut found = vec![(synset, 0)];
    let mut next = 0;
    while let Some(&(at, steps)) = found.get(next) {
        next += 1;
        for &other in lists.row(at) {
            if !found.iter().any(|&(known, _)| known == other) {
                found.push((other, steps + 1));
            }
        }
    }
    found.into_iter().skip(1)
}
