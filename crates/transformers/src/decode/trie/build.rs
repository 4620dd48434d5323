//! Building a trie: sequences in any order, sorted in runs of bounded memory, merged, and written level by level.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use sporran_checkpoint::{Error, Result};
use tempfile::NamedTempFile;

use super::{MAGIC, SAMPLE, TrieCounts, VERSION, places};

/// Gathers token sequences and writes them as a [`Trie`](super::Trie).
///
/// Sequences may come in any order and more than once; neither the order nor the memory changes the file. Sequences
/// that exceed the memory are sorted into temporary files in the target's folder. The tree itself, about 2.4
/// bytes a node, is held in memory before it is written.
#[derive(Debug)]
pub struct TrieBuilder {
    path: PathBuf,
    folder: PathBuf,
    vocabulary: u32,
    memory: usize,
    tokens: Vec<u32>,
    /// Where each gathered sequence ends in `tokens`.
    ends: Vec<usize>,
    runs: Vec<File>,
}

impl TrieBuilder {
    /// Sequences of tokens below `vocabulary`, to be written to `path`, with about `memory` bytes for sorting.
    ///
    /// # Errors
    /// [`Error::Options`] for an empty vocabulary.
    pub fn new(path: &Path, vocabulary: u32, memory: usize) -> Result<Self> {
        if vocabulary == 0 {
            let (expected, found) = ("at least 1".into(), "0".into());
            return Err(Error::Options { option: "vocabulary", expected, found });
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let (tokens, ends, runs) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { path: path.into(), folder, vocabulary, memory, tokens, ends, runs })
    }

    /// Adds a sequence.
    ///
    /// # Errors
    /// [`Error::Trie`] for a sequence without tokens or with a token outside the vocabulary, [`Error::Io`] where a
    /// temporary file cannot be written.
    pub fn push(&mut self, sequence: &[u32]) -> Result<()> {
        if sequence.is_empty() {
            return Err(self.wrong("at least one token in every sequence", "none"));
        }
        if let Some(token) = sequence.iter().find(|token| **token >= self.vocabulary) {
            return Err(self.wrong(format!("tokens below {}", self.vocabulary), token));
        }
        self.tokens.extend_from_slice(sequence);
        self.ends.push(self.tokens.len());
        if self.tokens.len() * 4 + self.ends.len() * 24 > self.memory {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes the file, which appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Trie`] where there is no sequence, [`Error::Io`] where a file cannot be read or written.
    pub fn finish(mut self) -> Result<TrieCounts> {
        let mut tree = Tree::new(self.vocabulary);
        if self.runs.is_empty() {
            self.sorted().for_each(|sequence| tree.push(sequence));
        } else {
            self.spill()?;
            self.merge(&mut tree)?;
        }
        if tree.counts.sequences == 0 {
            return Err(self.wrong("at least one sequence", "none"));
        }
        self.write(tree)
    }

    fn wrong(&self, expected: impl Into<String>, found: impl ToString) -> Error {
        Error::Trie { path: self.path.clone(), expected: expected.into(), found: found.to_string() }
    }

    /// The gathered sequences, sorted, with repetitions.
    fn sorted(&self) -> impl Iterator<Item = &[u32]> {
        let start = |at: usize| if at == 0 { 0 } else { self.ends[at - 1] };
        let mut order: Vec<&[u32]> =
            (0..self.ends.len()).map(|at| &self.tokens[start(at)..self.ends[at]]).collect();
        order.sort_unstable();
        order.into_iter()
    }

    /// Writes the gathered sequences to a temporary file: each sequence's length and tokens.
    fn spill(&mut self) -> Result<()> {
        let wrong = || Error::io(&self.folder, "write a temporary file to");
        let mut file = tempfile::tempfile_in(&self.folder).map_err(wrong())?;
        let mut writer = BufWriter::with_capacity(1 << 18, &mut file);
        for sequence in self.sorted() {
            let words = std::iter::once(sequence.len() as u32).chain(sequence.iter().copied());
            words.map(u32::to_le_bytes).try_for_each(|word| writer.write_all(&word)).map_err(wrong())?;
        }
        writer.flush().map_err(wrong())?;
        drop(writer);
        file.rewind().map_err(wrong())?;
        self.tokens.clear();
        self.ends.clear();
        self.runs.push(file);
        Ok(())
    }

    fn merge(&mut self, tree: &mut Tree) -> Result<()> {
        let wrong = || Error::io(&self.folder, "read a temporary file of");
        let mut readers: Vec<_> =
            self.runs.drain(..).map(|file| BufReader::with_capacity(1 << 16, file)).collect();
        let mut next = BinaryHeap::new();
        for (run, reader) in readers.iter_mut().enumerate() {
            next.extend(read(reader).map_err(wrong())?.map(|sequence| Reverse((sequence, run))));
        }
        while let Some(Reverse((sequence, run))) = next.pop() {
            tree.push(&sequence);
            next.extend(read(&mut readers[run]).map_err(wrong())?.map(|sequence| Reverse((sequence, run))));
        }
        Ok(())
    }

    fn write(&self, tree: Tree) -> Result<TrieCounts> {
        let Tree { counts, levels, open, .. } = tree;
        let mut bits = Bits::default();
        let (mut ends, mut tokens) = (Bits::default(), Vec::new());
        for (depth, mut level) in levels.into_iter().enumerate() {
            if depth <= open.len() {
                level.bits.push(false);
            }
            bits.append(&level.bits);
            ends.append(&level.ends);
            tokens.append(&mut level.tokens);
        }
        let parts = [bits.samples(), bits.bytes(), ends.bytes(), tokens];
        let json = serde_json::json!(counts).to_string() + "\n";

        let mut file = NamedTempFile::new_in(&self.folder).map_err(Error::io(&self.folder, "write to"))?;
        // The hash precedes the content that it covers, so the content is built in memory first. The length of the hash is fixed.
        let first = |hash: &str| format!("{MAGIC} {VERSION} {hash}\n");
        let start = first(&"0".repeat(blake3::OUT_LEN * 2)).len();
        let lengths = parts.each_ref().map(|part| part.len() as u64);
        let (starts, length) = places(start + json.len(), lengths)
            .ok_or_else(|| self.wrong("a trie that fits into memory", counts.nodes))?;
        let mut body = Vec::with_capacity(length - start);
        body.extend_from_slice(json.as_bytes());
        for (place, part) in starts.into_iter().zip(parts) {
            body.resize(place - start, 0);
            body.extend_from_slice(&part);
        }
        let wrong = || Error::io(&self.path, "write");
        file.write_all(first(&blake3::hash(&body).to_hex()).as_bytes()).map_err(wrong())?;
        file.write_all(&body).map_err(wrong())?;
        file.as_file().sync_all().map_err(wrong())?;
        file.persist(&self.path).map_err(|error| Error::io(&self.path, "write")(error.error))?;
        sporran_checkpoint::sync(&self.folder)?;
        Ok(counts)
    }
}

/// The next sequence of a run.
fn read(reader: &mut impl Read) -> std::io::Result<Option<Vec<u32>>> {
    let mut word = [0; 4];
    match reader.read_exact(&mut word) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut bytes = vec![0; u32::from_le_bytes(word) as usize * 4];
    reader.read_exact(&mut bytes)?;
    Ok(Some(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
}

/// The nodes of one depth, in the order of their sequences.
#[derive(Default)]
struct Level {
    bits: Bits,
    ends: Bits,
    tokens: Vec<u8>,
}

/// A tree that grows by sorted sequences.
struct Tree {
    counts: TrieCounts,
    levels: Vec<Level>,
    /// The last sequence, whose nodes may still get children.
    open: Vec<u32>,
    token_bytes: usize,
}

impl Tree {
    fn new(vocabulary: u32) -> Self {
        let counts = TrieCounts { sequences: 0, nodes: 1, longest: 0, vocabulary: vocabulary.into() };
        let token_bytes = counts.token_bytes() as usize;
        let mut root = Level::default();
        root.ends.push(false);
        Self { counts, levels: vec![root], open: Vec::new(), token_bytes }
    }

    fn push(&mut self, sequence: &[u32]) {
        let shared = self.open.iter().zip(sequence).take_while(|(a, b)| a == b).count();
        if shared == sequence.len() {
            return;
        }
        // The open nodes off the new sequence's path get no more children.
        for level in &mut self.levels[shared + 1..=self.open.len()] {
            level.bits.push(false);
        }
        if self.levels.len() <= sequence.len() {
            self.levels.resize_with(sequence.len() + 1, Level::default);
        }
        for (depth, token) in sequence.iter().enumerate().skip(shared) {
            self.levels[depth].bits.push(true);
            let level = &mut self.levels[depth + 1];
            level.tokens.extend_from_slice(&token.to_le_bytes()[..self.token_bytes]);
            level.ends.push(depth + 1 == sequence.len());
        }
        self.counts.sequences += 1;
        self.counts.nodes += (sequence.len() - shared) as u64;
        self.counts.longest = self.counts.longest.max(sequence.len() as u64);
        self.open.truncate(shared);
        self.open.extend_from_slice(&sequence[shared..]);
    }
}

/// Bits in a row.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
    length: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.length.is_multiple_of(64) {
            self.words.push(0);
        }
        if let Some(last) = self.words.last_mut() {
            *last |= u64::from(bit) << (self.length % 64);
        }
        self.length += 1;
    }

    fn append(&mut self, other: &Self) {
        let shift = self.length % 64;
        for word in &other.words {
            if let (Some(last), 1..) = (self.words.last_mut(), shift) {
                *last |= word << shift;
                self.words.push(word >> (64 - shift));
            } else {
                self.words.push(*word);
            }
        }
        self.length += other.length;
        self.words.truncate(self.length.div_ceil(64));
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The place of the first 0 and of every `SAMPLE`th after it.
    fn samples(&self) -> Vec<u8> {
        let (mut places, mut zeros) = (Vec::new(), 0);
        for at in 0..self.length {
            if self.words[at / 64] >> (at % 64) & 1 == 0 {
                if zeros % SAMPLE == 0 {
                    places.extend_from_slice(&(at as u64).to_le_bytes());
                }
                zeros += 1;
            }
        }
        places
    }
}
