//! The vocabulary of a released matching network, from its authors' files.

use std::{collections::HashMap, path::Path};

use sha1::{Digest, Sha1};
use sporran_checkpoint::{Error, Result, json};

/// The separator between the word and its number in each line of the file.
const SEPARATOR: &str = "<(-.-)>";
/// The escape of a line break inside a word.
const LINE_BREAK: &str = "@@NEWLINE@@";
/// The file of words.
pub(super) const WORDS: &str = "tokens.txt";
/// The file with the number of vectors shared by unknown words.
pub(super) const UNKNOWN: &str = "unk_count_namespaces.txt";

/// The words, and the vectors that unknown words share.
#[derive(Debug)]
pub(super) struct Vocabulary {
    words: HashMap<String, u32>,
    unknown: u64,
}

impl Vocabulary {
    /// Reads `tokens.txt` and `unk_count_namespaces.txt`.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(UNKNOWN);
        let text = json::required(&path)?;
        let wrong = |path: &Path, line: usize, expected: &str, found: &str| {
            let problem = format!("expected {expected}, found `{found}`");
            Error::Line { path: path.into(), line, problem }
        };
        let mut unknown = None;
        for (at, line) in text.lines().enumerate() {
            let expected = "a namespace and a number with `###` between";
            let (name, count) = line.split_once("###").ok_or_else(|| wrong(&path, at + 1, expected, line))?;
            if name == "tokens" {
                unknown = count.trim().parse().ok().filter(|count| *count > 0);
            }
        }
        let unknown =
            unknown.ok_or_else(|| wrong(&path, 1, "`tokens###` and at least 1 somewhere", "none"))?;
        let path = folder.join(WORDS);
        let text = json::required(&path)?;
        let mut words = HashMap::new();
        // Words may hold any character but a line break, so that only this one ends a line.
        for (at, line) in text.split_terminator('\n').enumerate() {
            let parts = line.rsplit_once(SEPARATOR).and_then(|(word, id)| Some((word, id.parse().ok()?)));
            let expected = "a word and its number with `<(-.-)>` between";
            let (word, id) = parts.ok_or_else(|| wrong(&path, at + 1, expected, line))?;
            words.insert(word.replace(LINE_BREAK, "\n"), id);
        }
        let found = Self { words, unknown };
        match (0..unknown).find(|at| !found.words.contains_key(&shared(*at))) {
            Some(at) => Err(wrong(&path, 1, &format!("`{}` somewhere", shared(at)), "none")),
            None => Ok(found),
        }
    }

    /// The greatest number plus one.
    pub(super) fn size(&self) -> usize {
        self.words.values().max().map_or(0, |greatest| *greatest as usize + 1)
    }

    /// A word's number. A word without a vector shares the number that its SHA-1 hash selects.
    pub(super) fn number(&self, word: &str) -> u32 {
        self.words.get(word).copied().unwrap_or_else(|| {
            let sum = Sha1::digest(word.as_bytes());
            let rest = sum.iter().fold(0, |rest, byte| (rest * 256 + u64::from(*byte)) % self.unknown);
            self.words.get(&shared(rest)).copied().unwrap_or_default()
        })
    }
}

fn shared(at: u64) -> String {
    format!("@@UNKNOWN#{at}@@")
}
