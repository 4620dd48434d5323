//! An inverted index of some passages in memory, and the runs that are merged into the whole index.
//!
//! A run has the terms of its passages in bytewise order. For each term: its length and bytes, the number of
//! passages, the first of them, and the length of the rest. Then for each passage the difference from the
//! previous one, doubled, plus 1 if the term occurs once; otherwise its count follows. All numbers are
//! varints.

use std::{
    collections::BinaryHeap,
    io::{self, Read},
};

use rustc_hash::FxHashMap;

use super::varint;

/// A term in a passage, and how often.
#[derive(Clone, Copy)]
struct Posting {
    term: u32,
    passage: u32,
    count: u32,
}

/// Counts the terms of passages. The vocabulary is kept after a run, so that the next run finds known words.
#[derive(Default)]
pub(crate) struct SegmentBuilder {
    vocabulary: FxHashMap<Box<[u8]>, u32>,
    /// For each term, the index of its last posting.
    last: Vec<u32>,
    postings: Vec<Posting>,
    /// The start of the current passage's postings.
    start: usize,
    /// Terms of the current passage, repetitions included.
    length: u32,
    lengths: Vec<u32>,
    first: u32,
}

impl SegmentBuilder {
    /// The id of a term in this builder.
    pub(crate) fn intern(&mut self, term: &[u8]) -> u32 {
        if let Some(&id) = self.vocabulary.get(term) {
            return id;
        }
        let id = self.last.len() as u32;
        self.vocabulary.insert(term.into(), id);
        self.last.push(u32::MAX);
        id
    }

    /// The number of terms.
    pub(crate) fn vocabulary_len(&self) -> usize {
        self.last.len()
    }

    /// Starts a run whose first passage is this.
    pub(crate) fn start_run(&mut self, first: u32) {
        self.first = first;
    }

    /// Adds at least one occurrence of a term in the current passage, saturating at 2^31 - 1.
    pub(crate) fn count(&mut self, term: u32, times: u32) {
        self.length = self.length.saturating_add(times);
        let place = &mut self.last[term as usize];
        match self.postings.get_mut(*place as usize) {
            Some(posting) if *place as usize >= self.start && posting.term == term => {
                posting.count = posting.count.saturating_add(times).min(i32::MAX as u32);
            }
            _ => {
                *place = self.postings.len() as u32;
                let passage = self.first + self.lengths.len() as u32;
                self.postings.push(Posting { term, passage, count: times.min(i32::MAX as u32) });
            }
        }
    }

    /// Ends the current passage.
    pub(crate) fn finish_passage(&mut self) {
        self.lengths.push(self.length);
        self.length = 0;
        self.start = self.postings.len();
    }

    /// The run of all passages since the last one, and each passage's length in terms.
    pub(crate) fn finish_run(&mut self) -> Run {
        let mut starts = vec![0u32; self.last.len() + 1];
        for posting in &self.postings {
            starts[posting.term as usize + 1] += 1;
        }
        let mut terms: Vec<(&[u8], u32)> = self
            .vocabulary
            .iter()
            .filter(|&(_, &id)| starts[id as usize + 1] > 0)
            .map(|(term, &id)| (&**term, id))
            .collect();
        terms.sort_unstable();
        for term in 1..starts.len() {
            starts[term] += starts[term - 1];
        }
        let mut by_term = vec![(0, 0); self.postings.len()];
        let mut ends = starts.clone();
        for posting in &self.postings {
            let end = &mut ends[posting.term as usize];
            by_term[*end as usize] = (posting.passage, posting.count);
            *end += 1;
        }

        let mut bytes = Vec::with_capacity(self.postings.len() * 3 + terms.len() * 12);
        let mut payload = Vec::new();
        for (term, id) in terms {
            let postings = &by_term[starts[id as usize] as usize..starts[id as usize + 1] as usize];
            write_payload(term, postings, &mut payload, &mut bytes);
        }
        let postings = self.postings.len() as u64;
        self.postings.clear();
        self.start = 0;
        // Indices of the previous run must not match those of the next.
        self.last.fill(u32::MAX);
        Run { first: self.first, bytes, postings, lengths: std::mem::take(&mut self.lengths) }
    }
}

/// Appends a term with at least one posting to a run.
pub(super) fn write_term(term: &[u8], postings: &[(u32, u32)], bytes: &mut Vec<u8>) {
    write_payload(term, postings, &mut Vec::new(), bytes);
}

/// As [`write_term`], with memory for its postings.
fn write_payload(term: &[u8], postings: &[(u32, u32)], payload: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    let first = postings.first().map_or(0, |&(passage, _)| passage);
    payload.clear();
    encode(first, postings, payload);
    varint::write(term.len() as u64, bytes);
    bytes.extend_from_slice(term);
    varint::write(postings.len() as u64, bytes);
    varint::write(u64::from(first), bytes);
    varint::write(payload.len() as u64, bytes);
    bytes.extend_from_slice(payload);
}

/// Encodes the differences and counts of a term's postings.
fn encode(first: u32, postings: &[(u32, u32)], out: &mut Vec<u8>) {
    let mut before = first;
    for &(passage, count) in postings {
        varint::write(u64::from(passage - before) << 1 | u64::from(count == 1), out);
        if count != 1 {
            varint::write(u64::from(count), out);
        }
        before = passage;
    }
}

/// A sorted run; see the module's documentation.
pub(crate) struct Run {
    /// The first of its passages.
    pub(crate) first: u32,
    /// Its terms and postings.
    pub(crate) bytes: Vec<u8>,
    /// The number of postings.
    pub(crate) postings: u64,
    /// The number of terms of each passage.
    pub(crate) lengths: Vec<u32>,
}

/// A run during merging, at its current term.
struct Head {
    /// The term's first eight bytes, big-endian: nearly every comparison ends here.
    prefix: u64,
    term: Vec<u8>,
    run: usize,
}

impl Head {
    fn key(&self) -> (u64, &[u8], usize) {
        (self.prefix, &self.term, self.run)
    }
}

impl Ord for Head {
    /// The smallest term is the greatest head, as required by `BinaryHeap`; earlier runs come first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

/// Merges runs, in the order of their passages, into terms with all their postings.
pub(crate) struct Merge<R> {
    runs: Vec<R>,
    heads: BinaryHeap<Head>,
    term: Vec<u8>,
    payload: Vec<u8>,
}

impl<R: Read> Merge<R> {
    /// Starts with the first term of each run.
    pub(crate) fn new(mut runs: Vec<R>) -> io::Result<Self> {
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, source) in runs.iter_mut().enumerate() {
            let mut head = Head { prefix: 0, term: Vec::new(), run };
            if read_term(source, &mut head)? {
                heads.push(head);
            }
        }
        Ok(Self { runs, heads, term: Vec::new(), payload: Vec::new() })
    }

    /// The next term with its postings `(passage, count)`, which replace what is in `postings`; none at the end.
    pub(crate) fn next(&mut self, postings: &mut Vec<(u32, u32)>) -> io::Result<Option<&[u8]>> {
        let Some(head) = self.heads.peek() else { return Ok(None) };
        self.term.clone_from(&head.term);
        postings.clear();
        while let Some(mut head) = self.heads.peek_mut() {
            if head.term != self.term {
                break;
            }
            let source = &mut self.runs[head.run];
            read_postings(source, &mut self.payload, postings)?;
            if !read_term(source, &mut head)? {
                std::collections::binary_heap::PeekMut::pop(head);
            }
        }
        Ok(Some(&self.term))
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a run of postings is damaged")
}

fn read_varint(source: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        source.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7F) << shift;
        if byte[0] < 0x80 {
            return Ok(value);
        }
    }
    Err(damaged())
}

/// Reads the next term into a head; false at the end of the run.
fn read_term(source: &mut impl Read, head: &mut Head) -> io::Result<bool> {
    let length = match read_varint(source) {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    };
    head.term.resize(length, 0);
    source.read_exact(&mut head.term)?;
    let mut prefix = [0; 8];
    let known = length.min(8);
    prefix[..known].copy_from_slice(&head.term[..known]);
    head.prefix = u64::from_be_bytes(prefix);
    Ok(true)
}

/// Appends the postings of the term that was just read.
fn read_postings(
    source: &mut impl Read,
    payload: &mut Vec<u8>,
    postings: &mut Vec<(u32, u32)>,
) -> io::Result<()> {
    let count = read_varint(source)?;
    let mut passage = read_varint(source)? as u32;
    payload.resize(read_varint(source)? as usize, 0);
    source.read_exact(payload)?;
    let mut rest = payload.as_slice();
    for _ in 0..count {
        let code = varint::read(&mut rest).ok_or_else(damaged)?;
        passage = passage.wrapping_add((code >> 1) as u32);
        let count = if code & 1 == 1 { 1 } else { varint::read(&mut rest).ok_or_else(damaged)? as u32 };
        postings.push((passage, count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Every term's postings, by counting in a map.
    fn naive(passages: &[Vec<String>]) -> BTreeMap<Vec<u8>, Vec<(u32, u32)>> {
        let mut all: BTreeMap<Vec<u8>, Vec<(u32, u32)>> = BTreeMap::new();
        for (passage, terms) in passages.iter().enumerate() {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            for term in terms {
                *counts.entry(term).or_default() += 1;
            }
            for (term, count) in counts {
                all.entry(term.as_bytes().to_vec()).or_default().push((passage as u32, count));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn merged_runs_hold_every_posting_once(
            passages in prop::collection::vec(prop::collection::vec("[ab]{0,12}", 0..8), 1..30),
            cuts in prop::collection::vec(1usize..10, 1..30),
        ) {
            let mut builder = SegmentBuilder::default();
            let (mut runs, mut lengths, mut at) = (Vec::new(), Vec::new(), 0);
            for cut in cuts.iter().chain(std::iter::once(&passages.len())) {
                let end = passages.len().min(at + cut);
                builder.start_run(at as u32);
                for terms in &passages[at..end] {
                    for term in terms {
                        let id = builder.intern(term.as_bytes());
                        builder.count(id, 1);
                    }
                    builder.finish_passage();
                }
                let run = builder.finish_run();
                prop_assert_eq!(run.first, at as u32);
                lengths.extend(run.lengths);
                runs.push(io::Cursor::new(run.bytes));
                at = end;
            }
            let expected: Vec<u32> = passages.iter().map(|terms| terms.len() as u32).collect();
            prop_assert_eq!(lengths, expected);
            let mut merge = Merge::new(runs).unwrap();
            let (mut found, mut postings) = (Vec::new(), Vec::new());
            while let Some(term) = merge.next(&mut postings).unwrap() {
                found.push((term.to_vec(), postings.clone()));
            }
            let expected: Vec<_> = naive(&passages).into_iter().collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_run_that_was_cut_off_is_an_error() {
        let mut builder = SegmentBuilder::default();
        let id = builder.intern(b"term");
        builder.count(id, 1);
        builder.finish_passage();
        let mut bytes = builder.finish_run().bytes;
        bytes.pop();
        let mut merge = Merge::new(vec![io::Cursor::new(bytes)]).unwrap();
        assert_eq!(merge.next(&mut Vec::new()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
