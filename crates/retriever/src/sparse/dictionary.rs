//! The dictionary: from a term to its postings.
//!
//! Terms are numbered in bytewise order. The file `terms` has an [`Entry`] for each, `names` their bytes, and
//! `slots` an open-addressing hash table (a power of two of slots, linear probing, MurmurHash3) of their
//! numbers plus 1.

use super::murmur::murmur3_32;
use crate::{
    Error, Result,
    layout::{Files, Folder, Mapped, Section, SectionWriter},
};

const TERMS: &str = "terms";
const NAMES: &str = "names";
const SLOTS: &str = "slots";

/// The dictionary entry of a term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The start of its bytes in `names`.
    pub(crate) name: u64,
    /// The start of its postings in `postings`.
    pub(crate) postings: u64,
    /// The first of its blocks in `blocks`.
    pub(crate) blocks: u32,
    /// The number of passages with this term.
    pub(crate) passages: u32,
    /// Its greatest impact in any passage.
    pub(crate) impact: f32,
}

impl Entry {
    const BYTES: usize = 28;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.name.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.postings.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.passages.to_le_bytes());
        bytes[24..].copy_from_slice(&self.impact.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Self {
            name: u64_at(0),
            postings: u64_at(8),
            blocks: u32_at(16),
            passages: u32_at(20),
            impact: f32::from_bits(u32_at(24)),
        }
    }
}

/// Writes a dictionary's files for terms in ascending order.
pub(crate) struct DictionaryWriter {
    terms: SectionWriter,
    names: SectionWriter,
    slots: SectionWriter,
    named: u64,
    hashes: Vec<u32>,
}

impl DictionaryWriter {
    /// Starts the files.
    pub(crate) fn create(folder: &Folder) -> Result<Self> {
        Ok(Self {
            terms: folder.section(TERMS)?,
            names: folder.section(NAMES)?,
            slots: folder.section(SLOTS)?,
            named: 0,
            hashes: Vec::new(),
        })
    }

    /// Adds the next term; sets its entry's `name`.
    pub(crate) fn put(&mut self, term: &[u8], entry: Entry) -> Result<()> {
        self.terms.put(&Entry { name: self.named, ..entry }.to_bytes())?;
        self.names.put(term)?;
        self.named += term.len() as u64;
        // One number is reserved for empty slots.
        if self.hashes.len() == u32::MAX as usize - 1 {
            return Err(Error::TooLarge { what: "terms", most: u64::from(u32::MAX) - 1 });
        }
        self.hashes.push(murmur3_32(term));
        Ok(())
    }

    /// Writes the hash table and ends the files; also returns the number of terms.
    pub(crate) fn finish(mut self) -> Result<(u32, [Section; 3])> {
        let size = (self.hashes.len() * 3 / 2 + 1).next_power_of_two();
        let mut slots = vec![0u32; size];
        for (number, &hash) in self.hashes.iter().enumerate() {
            let mut slot = hash as usize & (size - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = number as u32 + 1;
        }
        for slot in slots {
            self.slots.put(&slot.to_le_bytes())?;
        }
        let terms = self.hashes.len() as u32;
        Ok((terms, [self.terms.finish()?, self.names.finish()?, self.slots.finish()?]))
    }
}

/// A memory-mapped dictionary.
pub(crate) struct Dictionary {
    terms: Mapped,
    names: Mapped,
    slots: Mapped,
}

impl Dictionary {
    /// Opens the files of an index with that many terms.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for inconsistent lengths, and those of [`Files::take`].
    pub(crate) fn open(files: &mut Files, count: u32) -> Result<Self> {
        let terms = files.take(TERMS)?;
        let expected = u64::from(count) * Entry::BYTES as u64;
        if terms.len() as u64 != expected {
            return Err(
                terms.corrupt(format!("expected {expected} bytes for {count} terms, found {}", terms.len()))
            );
        }
        let slots = files.take(SLOTS)?;
        // The table must be a power of two and have an empty slot, or probing would not end.
        let (places, rest) = slots.as_chunks::<4>();
        if !places.len().is_power_of_two() || !rest.is_empty() || places.len() <= count as usize {
            return Err(slots.corrupt(format!("a hash table cannot have {} bytes", slots.len())));
        }
        Ok(Self { terms, names: files.take(NAMES)?, slots })
    }

    /// The bytes and the entry of a term by its number.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such term.
    pub(crate) fn term(&self, number: u32) -> Result<(&[u8], Entry)> {
        let (terms, _) = self.terms.as_chunks::<{ Entry::BYTES }>();
        let entry = terms.get(number as usize).map(Entry::from_bytes);
        let end = terms
            .get(number as usize + 1)
            .map_or(self.names.len() as u64, |next| Entry::from_bytes(next).name);
        let term = entry.and_then(|entry| Some((self.names.get(entry.name as usize..end as usize)?, entry)));
        term.ok_or_else(|| self.terms.corrupt(format!("term {number} has no name")))
    }

    /// The entry of a term, with its number; none for an unknown term.
    pub(crate) fn find(&self, term: &[u8]) -> Option<(u32, Entry)> {
        let (slots, _) = self.slots.as_chunks::<4>();
        let (terms, _) = self.terms.as_chunks::<{ Entry::BYTES }>();
        let mask = slots.len() - 1;
        let first = murmur3_32(term) as usize & mask;
        for step in 0..slots.len() {
            let number = u32::from_le_bytes(slots[(first + step) & mask]).checked_sub(1)?;
            let entry = Entry::from_bytes(terms.get(number as usize)?);
            let end = terms
                .get(number as usize + 1)
                .map_or(self.names.len() as u64, |next| Entry::from_bytes(next).name);
            if self.names.get(entry.name as usize..end as usize) == Some(term) {
                return Some((number, entry));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{super::header::Header, *};
    use crate::layout;

    proptest! {
        #[test]
        fn every_term_is_found_and_no_other(
            terms in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..4), 0..60),
            others in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..30),
        ) {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("index");
            let folder = Folder::create("bm25", (&path).into()).unwrap();
            let mut writer = DictionaryWriter::create(&folder).unwrap();
            let entry = |number: usize| Entry {
                name: 0,
                postings: number as u64 * 7,
                blocks: number as u32,
                passages: 1,
                impact: 0.5,
            };
            for (number, term) in terms.iter().enumerate() {
                writer.put(term, entry(number)).unwrap();
            }
            let (count, sections) = writer.finish().unwrap();
            prop_assert_eq!(count as usize, terms.len());
            let header = Header {
                kind: "bm25".into(),
                options: serde_json::Value::Null,
                passages: 1,
                passages_hash: String::new(),
                terms: count,
                postings: 0,
                tokens: 0,
                sections: sections.into(),
            };
            folder.finish(&header).unwrap();
            let (_, mut files) = layout::open::<Header>(&path, "bm25", "").unwrap();
            let dictionary = Dictionary::open(&mut files, count).unwrap();
            for (number, term) in terms.iter().enumerate() {
                let (found, at) = dictionary.find(term).unwrap();
                prop_assert_eq!((found as usize, Entry { name: 0, ..at }), (number, entry(number)));
            }
            let known: BTreeSet<_> = terms.iter().collect();
            for other in others.iter().filter(|other| !known.contains(other)) {
                prop_assert_eq!(dictionary.find(other), None);
            }
        }
    }
}
