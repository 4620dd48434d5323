//! The pointers between synsets.

use std::path::PathBuf;

use sporran_checkpoint::{Error, Result};

use super::{lists::Lists, part::PartOfSpeech};

/// How a synset is to another one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Relation {
    Hypernym,
    Hyponym,
    /// A lemma has this one of the other synset's, counted from 0, for its antonym.
    Antonym(usize),
}

/// A pointer as its line has it.
#[derive(Debug)]
pub(super) struct Pointer {
    pub(super) relation: Relation,
    pub(super) part: PartOfSpeech,
    pub(super) offset: u32,
}

/// All pointers of the data files, until all synsets are known.
#[derive(Default)]
pub(super) struct Pending {
    pointers: Vec<(u32, Pointer, PartOfSpeech, usize)>,
}

/// The pointers: lists of a synset's synsets, and for the antonyms of its lemma names.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    pub(super) hypernyms: Lists,
    pub(super) hyponyms: Lists,
    pub(super) antonyms: Lists,
}

impl Pending {
    /// Keeps the pointers of a synset that is in the file and line.
    pub(super) fn extend(&mut self, synset: u32, pointers: Vec<Pointer>, file: PartOfSpeech, line: usize) {
        self.pointers.extend(pointers.into_iter().map(|pointer| (synset, pointer, file, line)));
    }

    /// Resolves the targets of the pointers. `find` answers with the synset at a file's offset, `names` has each synset's lemma
    /// names in their order, and `path` gives a part of speech's data file.
    pub(super) fn resolve(
        self,
        find: impl Fn(PartOfSpeech, u32) -> Option<u32>,
        names: &[Box<[u32]>],
        path: impl Fn(PartOfSpeech) -> PathBuf,
    ) -> Result<Pointers> {
        let (mut hypernyms, mut hyponyms, mut antonyms) = (Vec::new(), Vec::new(), Vec::new());
        for (synset, Pointer { relation, part, offset }, file, line) in self.pointers {
            let error = |problem| Error::Line { path: path(file), line, problem };
            let other = find(part, offset).ok_or_else(|| {
                error(format!(
                    "a pointer leads to offset {offset} of the {} file, where no synset is",
                    part.file()
                ))
            })?;
            match relation {
                Relation::Hypernym => hypernyms.push((synset, other)),
                Relation::Hyponym => hyponyms.push((synset, other)),
                Relation::Antonym(lemma) => {
                    let name = names[other as usize].get(lemma);
                    let problem = || error(format!("an antonym is lemma {} of a synset of fewer", lemma + 1));
                    antonyms.push((synset, *name.ok_or_else(problem)?));
                }
            }
        }
        let lists = |pairs| Lists::new(names.len(), pairs);
        Ok(Pointers { hypernyms: lists(hypernyms), hyponyms: lists(hyponyms), antonyms: lists(antonyms) })
    }
}
