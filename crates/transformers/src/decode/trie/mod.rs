//! A set of token sequences, such as the titles of all pages, in which the tokens that may follow a beginning are found
//! in the order of their number.
//!
//! The file is a tree in level order (LOUDS; Jacobson 1989, "Space-efficient Static Trees and Graphs"): for every node
//! a 1 for each child and then a 0, the token of every node but the root, and a bit for every node that ends a
//! sequence. That is about 2.4 bytes a node with vocabularies of up to 65,536 tokens. Siblings stand together, sorted
//! by token.
//!
//! The first line is `sporran-trie VERSION BLAKE3`, the second a JSON object with the counts, and then come, each from
//! a multiple of 8 bytes, little-endian: the place of every 256th 0 (u64), the tree's bits, the ends' bits, the tokens
//! (u16 or u32). The BLAKE3 is that of everything after the first line.

mod build;

use std::{fs::File, path::Path, path::PathBuf};

pub use build::TrieBuilder;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};

use super::constraint::Constraint;

const MAGIC: &str = "sporran-trie";
const VERSION: u32 = 1;

/// The position of every `SAMPLE`-th zero of the tree is stored.
const SAMPLE: usize = 256;

/// A node of a [`Trie`]: a beginning that some sequences share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(u64);

/// The sizes of a trie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrieCounts {
    /// Different sequences.
    pub sequences: u64,
    /// Different beginnings, the empty one included.
    pub nodes: u64,
    /// Tokens of the longest sequence.
    pub longest: u64,
    /// Every token is below this.
    pub vocabulary: u64,
}

impl TrieCounts {
    fn token_bytes(&self) -> u64 {
        if self.vocabulary <= 1 << 16 { 2 } else { 4 }
    }

    /// The lengths of the four parts in bytes; nothing where the counts cannot be true.
    fn lengths(&self) -> Option<[u64; 4]> {
        let words = |bits: u64| bits.div_ceil(64).checked_mul(8);
        Some([
            self.nodes.div_ceil(SAMPLE as u64).checked_mul(8)?,
            words(self.nodes.checked_mul(2)?.checked_sub(1)?)?,
            words(self.nodes)?,
            self.nodes.checked_sub(1)?.checked_mul(self.token_bytes())?,
        ])
    }
}

/// Where the first line and the JSON object end, each with its line break, and where the parts begin.
fn places(json_end: usize, lengths: [u64; 4]) -> Option<([usize; 4], usize)> {
    let mut at = json_end;
    let mut starts = [0; 4];
    for (start, length) in starts.iter_mut().zip(lengths) {
        at = at.checked_next_multiple_of(8)?;
        *start = at;
        at = at.checked_add(usize::try_from(length).ok()?)?;
    }
    Some((starts, at))
}

/// A set of token sequences, mapped from a file.
#[derive(Debug)]
pub struct Trie {
    path: PathBuf,
    map: Mmap,
    counts: TrieCounts,
    /// Where the samples, the tree, the ends and the tokens begin.
    starts: [usize; 4],
    /// Where the hashed part begins.
    body: usize,
    hash: String,
}

impl Trie {
    /// Maps a file that a [`TrieBuilder`] has written, and checks its header and length.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Trie`] for another kind of file, another version, or a file of another length.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        // SAFETY: the mapping is read only, and every read of it is checked against its length. A file that another
        // process changes while it is mapped gives wrong sequences or a bus error, as with every reader that maps.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
        let wrong = |expected: String, found: String| Error::Trie { path: path.into(), expected, found };
        let not_one = || wrong(format!("a file that begins with `{MAGIC}`"), "another beginning".into());
        let (first, body) = line(&map, 0).ok_or_else(not_one)?;
        let mut words = first.split(' ');
        let (Some(MAGIC), Some(version), Some(hash)) = (words.next(), words.next(), words.next()) else {
            return Err(not_one());
        };
        if version.parse() != Ok(VERSION) {
            return Err(wrong(format!("version {VERSION}"), format!("version {version}")));
        }
        let no_counts = || wrong("the counts in the second line".into(), "something else".into());
        let (json, end) = line(&map, body).ok_or_else(no_counts)?;
        let counts: TrieCounts = serde_json::from_str(json).map_err(|_| no_counts())?;
        let (starts, length) =
            counts.lengths().and_then(|lengths| places(end, lengths)).ok_or_else(no_counts)?;
        if length != map.len() {
            return Err(wrong(format!("{length} bytes"), format!("{} bytes", map.len())));
        }
        let hash = hash.to_owned();
        Ok(Self { path: path.into(), map, counts, starts, body, hash })
    }

    /// Reads the whole file, and compares it with the hash in its first line.
    ///
    /// # Errors
    /// [`Error::Trie`] where they differ.
    pub fn verify(&self) -> Result<()> {
        let found = blake3::hash(&self.map[self.body..]).to_hex().to_string();
        if found == self.hash {
            return Ok(());
        }
        let expected = format!("content with the BLAKE3 {}", self.hash);
        Err(Error::Trie { path: self.path.clone(), expected, found })
    }

    /// Its sizes.
    #[must_use]
    pub fn counts(&self) -> &TrieCounts {
        &self.counts
    }

    /// The length of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// The empty beginning.
    #[must_use]
    pub fn root(&self) -> Node {
        Node(0)
    }

    /// Whether a beginning is a whole sequence.
    #[must_use]
    pub fn is_end(&self, node: Node) -> bool {
        self.word(2, node.0 / 64) >> (node.0 % 64) & 1 == 1
    }

    /// The tokens that may follow a beginning, ascending, each with the beginning that it makes.
    pub fn children(&self, node: Node) -> impl ExactSizeIterator<Item = (u32, Node)> + '_ {
        let (first, count) = self.range(node);
        (0..count).map(move |i| (self.token(first + u64::from(i)), Node(first + u64::from(i))))
    }

    /// The node after `token`, if a sequence has it.
    #[must_use]
    pub fn child(&self, node: Node, token: u32) -> Option<Node> {
        let (first, count) = self.range(node);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.token(first + u64::from(middle)).cmp(&token) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(Node(first + u64::from(middle))),
            }
        }
        None
    }

    /// The node of `tokens`, if a sequence begins with them.
    #[must_use]
    pub fn find(&self, tokens: &[u32]) -> Option<Node> {
        tokens.iter().try_fold(self.root(), |node, token| self.child(node, *token))
    }

    /// Whether `tokens` is one of the sequences.
    #[must_use]
    pub fn contains(&self, tokens: &[u32]) -> bool {
        self.find(tokens).is_some_and(|node| self.is_end(node))
    }

    /// The first child of a node and the number of them. In a damaged file they may be wrong, never out of bounds.
    fn range(&self, node: Node) -> (u64, u32) {
        let start = if node.0 == 0 { Some(0) } else { self.zero(node.0 - 1).map(|zero| zero + 1) };
        let (Some(start), Some(end)) = (start, self.zero(node.0)) else { return (0, 0) };
        // Before `start` there are as many zeros as nodes before this one; the ones are the nodes after the root.
        let (Some(ones), Some(count)) = (start.checked_sub(node.0), end.checked_sub(start)) else {
            return (0, 0);
        };
        match (ones + 1, u32::try_from(count)) {
            (first, Ok(count)) if first + u64::from(count) <= self.counts.nodes => (first, count),
            _ => (0, 0),
        }
    }

    /// The position of the 0 with `before` others before it.
    fn zero(&self, before: u64) -> Option<u64> {
        if before >= self.counts.nodes {
            return None;
        }
        let sample = self.word(0, before / SAMPLE as u64);
        // The sampled 0 is the first that is counted from its place on.
        let mut left = (before % SAMPLE as u64) as u32;
        let mut at = sample / 64;
        let words = (self.starts[2] - self.starts[1]) as u64 / 8;
        if at >= words {
            return None;
        }
        let mut zeros = !self.word(1, at) & (u64::MAX << (sample % 64));
        while left >= zeros.count_ones() {
            left -= zeros.count_ones();
            at += 1;
            if at >= words {
                return None;
            }
            zeros = !self.word(1, at);
        }
        for _ in 0..left {
            zeros &= zeros - 1;
        }
        Some(at * 64 + u64::from(zeros.trailing_zeros()))
    }

    /// The token of a node that is not the root.
    fn token(&self, node: u64) -> u32 {
        let width = self.counts.token_bytes() as usize;
        let start = self.starts[3] + (node.max(1) - 1) as usize * width;
        let mut bytes = [0; 4];
        if let Some(found) = self.map.get(start..start + width) {
            bytes[..width].copy_from_slice(found);
        }
        u32::from_le_bytes(bytes)
    }

    /// A word of a part; 0 beyond the end.
    fn word(&self, part: usize, at: u64) -> u64 {
        let start = usize::try_from(at).ok().and_then(|at| at.checked_mul(8)?.checked_add(self.starts[part]));
        let bytes = start.and_then(|start| self.map.get(start..)?.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The line that begins at `start`, without its end, and where the next one begins.
fn line(bytes: &[u8], start: usize) -> Option<(&str, usize)> {
    let rest = &bytes[start..];
    let end = rest.iter().take(4096).position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, start + end + 1))
}

/// Only sequences of a trie, each with its end token.
#[derive(Debug, Clone, Copy)]
pub struct TrieConstraint<'a> {
    trie: &'a Trie,
    begin: &'a [u32],
    end: u32,
}

impl<'a> TrieConstraint<'a> {
    /// `begin` precedes every sequence, as BART's `<s>` does; `end` is the end token, which follows it.
    #[must_use]
    pub fn new(trie: &'a Trie, begin: &'a [u32], end: u32) -> Self {
        Self { trie, begin, end }
    }
}

impl Constraint for TrieConstraint<'_> {
    fn allowed(&self, _: usize, tokens: &[u32], allowed: &mut Vec<u32>) {
        let Some(rest) = tokens.strip_prefix(self.begin) else {
            // The tokens are a proper prefix of `begin`, or differ from it.
            if self.begin.starts_with(tokens) {
                allowed.push(self.begin[tokens.len()]);
            }
            return;
        };
        if let Some(node) = self.trie.find(rest) {
            allowed.extend(self.trie.children(node).map(|(token, _)| token));
            if self.trie.is_end(node) && !allowed.contains(&self.end) {
                allowed.push(self.end);
            }
        }
    }

    fn complete_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn build(sequences: &[Vec<u32>], vocabulary: u32, memory: usize) -> (tempfile::TempDir, Trie) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("titles.trie");
        let mut builder = TrieBuilder::new(&path, vocabulary, memory).unwrap();
        sequences.iter().for_each(|sequence| builder.push(sequence).unwrap());
        let counts = builder.finish().unwrap();
        let trie = Trie::open(&path).unwrap();
        assert_eq!(&counts, trie.counts());
        trie.verify().unwrap();
        (folder, trie)
    }

    /// Every sequence of the trie, by walking it.
    fn walk(trie: &Trie, node: Node, tokens: &mut Vec<u32>, found: &mut Vec<Vec<u32>>) {
        if trie.is_end(node) {
            found.push(tokens.clone());
        }
        for (token, child) in trie.children(node) {
            assert_eq!(trie.child(node, token), Some(child));
            tokens.push(token);
            walk(trie, child, tokens, found);
            tokens.pop();
        }
    }

    #[test]
    fn what_was_put_in_is_found_sorted_and_once() {
        for (seed, count, vocabulary, memory) in
            [(1, 1, 9, 1 << 20), (2, 400, 12, 1 << 20), (3, 3000, 60_000, 4000), (4, 2000, 70_000, 100)]
        {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut sequence = || {
                let length = rng.random_range(1..7);
                (0..length).map(|_| rng.random_range(0..vocabulary)).collect::<Vec<u32>>()
            };
            let sequences: Vec<Vec<u32>> = (0..count).map(|_| sequence()).collect();
            let (_folder, trie) = build(&sequences, vocabulary, memory);
            let expected: BTreeSet<Vec<u32>> = sequences.iter().cloned().collect();
            let mut found = Vec::new();
            walk(&trie, trie.root(), &mut Vec::new(), &mut found);
            assert_eq!(found, expected.iter().cloned().collect::<Vec<_>>());
            assert_eq!(trie.counts().sequences, expected.len() as u64);
            for other in (0..200).map(|_| sequence()) {
                assert_eq!(trie.contains(&other), expected.contains(&other));
            }
        }
    }

    #[test]
    fn neither_order_nor_memory_changes_a_byte() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let mut sequences: Vec<Vec<u32>> =
            (0..500).map(|i| vec![rng.random_range(0..9), i % 7, rng.random_range(0..30)]).collect();
        let (_a, first) = build(&sequences, 100, 1 << 20);
        sequences.reverse();
        let (_b, second) = build(&sequences, 100, 900);
        assert_eq!(first.map[..], second.map[..]);
    }

    #[test]
    fn a_sequence_may_begin_another() {
        let (_folder, trie) = build(&[vec![5, 6, 7], vec![5], vec![5, 6, 2]], 10, 1 << 20);
        assert_eq!(
            (trie.contains(&[5]), trie.contains(&[5, 6]), trie.contains(&[5, 6, 7])),
            (true, false, true)
        );
        let node = trie.find(&[5, 6]).unwrap();
        assert_eq!(trie.children(node).map(|(token, _)| token).collect::<Vec<_>>(), [2, 7]);
        assert_eq!(trie.counts(), &TrieCounts { sequences: 3, nodes: 5, longest: 3, vocabulary: 10 });
    }

    #[test]
    fn only_whole_sequences_are_allowed_to_end() {
        let (_folder, trie) = build(&[vec![5, 6, 7], vec![5]], 10, 1 << 20);
        let allowed = |tokens: &[u32]| {
            let mut allowed = Vec::new();
            TrieConstraint::new(&trie, &[0], 1).allowed(0, tokens, &mut allowed);
            allowed
        };
        assert_eq!(allowed(&[]), [0]);
        assert_eq!(allowed(&[0]), [5]);
        assert_eq!(allowed(&[0, 5]), [6, 1]);
        assert_eq!(allowed(&[0, 5, 6]), [7]);
        assert_eq!(allowed(&[0, 5, 6, 7]), [1]);
        for over in [&[0, 5, 1][..], &[5], &[0, 4]] {
            assert_eq!(allowed(over), [0u32; 0], "{over:?}");
        }
    }

    #[test]
    fn files_that_are_no_trie_are_refused() {
        let (folder, trie) = build(&[vec![5, 6, 7], vec![5]], 10, 1 << 20);
        let path = folder.path().join("titles.trie");
        let bytes = trie.map.to_vec();
        drop(trie);
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Trie::open(&path).unwrap_err().to_string()
        };
        assert!(refused(b"{}").contains("begins with `sporran-trie`"));
        assert!(refused(&bytes[..bytes.len() - 1]).contains(&format!("expected {} bytes", bytes.len())));
        let text = String::from_utf8_lossy(&bytes).replacen("sporran-trie 1", "sporran-trie 2", 1);
        assert!(refused(text.as_bytes()).contains("expected version 1, found version 2"));
        // A flipped bit is found by `verify`, and until then gives wrong answers at worst.
        for at in bytes.len() - 70..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            if let Ok(trie) = Trie::open(&path) {
                let _ = trie.contains(&[5, 6, 7]);
                assert!(trie.verify().unwrap_err().to_string().contains("BLAKE3"));
            }
        }
        assert!(matches!(Trie::open(&folder.path().join("none")), Err(Error::Io { .. })));
    }

    #[test]
    fn sequences_that_cannot_be_kept_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("titles.trie");
        let mut builder = TrieBuilder::new(&path, 10, 1 << 20).unwrap();
        assert!(builder.push(&[]).unwrap_err().to_string().contains("at least one token"));
        assert!(builder.push(&[3, 10]).unwrap_err().to_string().contains("below 10"));
        assert!(builder.finish().unwrap_err().to_string().contains("at least one sequence"));
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}
