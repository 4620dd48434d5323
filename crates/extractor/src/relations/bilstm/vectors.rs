//! Pretrained word vectors, which are not trained further.

use std::{collections::HashMap, path::Path};

use candle_core::{Device, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};
use safetensors::{Dtype, tensor::TensorView};
use sporran_checkpoint::stored_values;
use sporran_kilt::{Error as Fault, jsonl};

use crate::error::{Error, Result};

/// The files of a model's folder with its vectors, and with their words, one a line.
const FILES: [&str; 2] = ["vectors.safetensors", "vectors.txt"];
const TENSOR: &str = "vectors";

/// Words with vectors of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    rows: FxHashMap<String, u32>,
    words: Vec<String>,
    /// (words, width)
    values: Vec<f32>,
    width: usize,
}

impl Vectors {
    /// Reads a file in the text format of GloVe or of word2vec, plain, gzip or zstd: in each line a word and its numbers, separated
    /// by single blanks. A first line of two integers is word2vec's header: the numbers of words and of values. Keeps the words
    /// of `wanted` in their own and in lower case, and the first `frequent` words of the file. The first of several equal words
    /// counts.
    ///
    /// # Errors
    /// Read errors; [`Fault::Record`] with line and field for another number of values or a value that is no finite number;
    /// [`Fault::Empty`] for a file without vectors.
    pub fn read(path: &Path, wanted: &FxHashSet<String>, frequent: usize) -> Result<Self> {
        let lower: FxHashSet<String> = wanted.iter().map(|word| word.to_lowercase()).collect();
        let mut vectors = Self::default();
        let mut seen = 0;
        for line in jsonl::open(path)?.lines() {
            let (line, text) = line?;
            let text = text.trim_end();
            let blanks = text.bytes().filter(|byte| *byte == b' ').count();
            if vectors.width == 0 {
                if let Some(width) = header(text).filter(|_| seen == 0) {
                    vectors.width = width;
                    continue;
                }
                vectors.width = blanks;
            }
            // A word of GloVe's can contain blanks.
            if blanks < vectors.width || vectors.width == 0 {
                let message =
                    format!("expected a word and {} numbers, found {blanks} numbers", vectors.width.max(1));
                return Err(Fault::record(path, line, "vector", message).into());
            }
            seen += 1;
            let (start, _) = text
                .rmatch_indices(' ')
                .nth(vectors.width - 1)
                .ok_or_else(|| Fault::record(path, line, "vector", "expected numbers, found none"))?;
            let (word, numbers) = text.split_at(start);
            let is_wanted = seen <= frequent || wanted.contains(word) || lower.contains(word);
            if !is_wanted || vectors.rows.contains_key(word) {
                continue;
            }
            for (at, number) in numbers[1..].split(' ').enumerate() {
                let value =
                    number.parse::<f32>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                        let message = format!("expected a finite number, found `{number}`");
                        Fault::record(path, line, format!("vector[{at}]"), message)
                    })?;
                vectors.values.push(value);
            }
            vectors.rows.insert(word.to_owned(), vectors.words.len() as u32);
            vectors.words.push(word.to_owned());
        }
        if seen == 0 {
            return Err(Fault::Empty { path: path.to_owned(), what: "word vector" }.into());
        }
        Ok(vectors)
    }

    /// The number of values of a vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The row of a word, as it is written or in lower case.
    #[must_use]
    pub fn row(&self, word: &str) -> Option<u32> {
        self.rows.get(word).or_else(|| self.rows.get(&word.to_lowercase())).copied()
    }

    /// The vector of a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.values[row as usize * self.width..][..self.width]
    }

    /// Writes the files of a folder.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILES[0]);
        let wrong = |error: safetensors::SafeTensorError| Error::Model {
            what: path.display().to_string(),
            expected: "vectors".into(),
            found: error.to_string(),
        };
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![self.words.len(), self.width], &bytes).map_err(wrong)?;
        let file = safetensors::serialize([(TENSOR, view)], None).map_err(wrong)?;
        jsonl::write(&path, &file)?;
        let mut words = self.words.join("\n");
        words.push('\n');
        Ok(jsonl::write(folder.join(FILES[1]), words.as_bytes())?)
    }

    /// Reads the files of a folder, with vectors of `width` values.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] if both files differ in the number of words, or for another width.
    pub fn load(folder: &Path, width: usize) -> Result<Self> {
        let path = folder.join(FILES[0]);
        let tensors: HashMap<String, Tensor> = candle_core::safetensors::load(&path, &Device::Cpu)
            .map_err(|source| Error::Weights { path: path.clone(), source: Box::new(source) })?;
        let list = folder.join(FILES[1]);
        let words: Vec<String> = jsonl::read_to_string(&list)?.lines().map(str::to_owned).collect();
        let unfit = |error| Error::unfit(&list, |_, _, _| "words", error);
        let values = stored_values(&tensors, TENSOR, &[words.len(), width]).map_err(unfit)?;
        let rows = words.iter().enumerate().map(|(row, word)| (word.clone(), row as u32)).collect();
        Ok(Self { rows, words, values, width })
    }
}

/// The number of values in word2vec's header.
fn header(text: &str) -> Option<usize> {
    let (count, width) = text.split_once(' ')?;
    count.parse::<usize>().ok()?;
    width.parse().ok().filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, wanted: &[&str], frequent: usize) -> Result<Vectors> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.txt");
        std::fs::write(&path, text).unwrap();
        let wanted = wanted.iter().map(|word| (*word).to_owned()).collect();
        Vectors::read(&path, &wanted, frequent)
    }

    const TEXT: &str = "the 1 2\nRome 3 4.5\nrome 5 -6e-1 \n. . 7 8\nthe 9 9\nbonn 0 1\n";

    #[test]
    fn only_words_that_occur_and_the_first_ones_are_kept_with_and_without_a_header() {
        for text in [TEXT.to_owned(), format!("6 2\n{TEXT}")] {
            let vectors = read(&text, &["Rome", "Bonn", "oslo"], 1).unwrap();
            assert_eq!((vectors.width(), vectors.len()), (2, 4));
            let vector = |word: &str| vectors.row(word).map(|row| vectors.vector(row).to_vec());
            assert_eq!(vector("Rome"), Some(vec![3.0, 4.5]));
            // Another case has the vector of the lower case.
            assert_eq!(vector("ROME"), Some(vec![5.0, -0.6]));
            assert_eq!(vector("Bonn"), Some(vec![0.0, 1.0]));
            assert_eq!(vector("the"), Some(vec![1.0, 2.0]));
            assert_eq!(vector("."), None);
            // A word with a blank.
            assert_eq!(read(&text, &[". ."], 0).unwrap().words, [". ."]);
        }
        // A word and one value are no header if the word is no number.
        assert_eq!(read("a 1\nb 2\n", &["b"], 0).unwrap().vector(0), [2.0]);
    }

    #[test]
    fn wrong_files_are_named_with_line_and_field() {
        let refused = |text: &str| read(text, &["a", "b"], 0).unwrap_err().to_string();
        for (text, expected) in [
            ("a 1 2\nb 1\n", "v.txt:2: field `vector`: expected a word and 2 numbers, found 1 numbers"),
            ("2 3\na 1 2\n", "v.txt:2: field `vector`: expected a word and 3 numbers, found 2 numbers"),
            ("a\n", "v.txt:1: field `vector`: expected a word and 1 numbers, found 0 numbers"),
            ("a 1 x\n", "v.txt:1: field `vector[1]`: expected a finite number, found `x`"),
            ("a NaN 1\n", "v.txt:1: field `vector[0]`: expected a finite number, found `NaN`"),
            ("2 3\n", "expected at least one word vector, found none"),
            ("", "expected at least one word vector, found none"),
        ] {
            let message = refused(text);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn vectors_survive_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let vectors = read(TEXT, &[], 9).unwrap();
        vectors.save(folder.path()).unwrap();
        assert_eq!(Vectors::load(folder.path(), 2).unwrap(), vectors);
        let error = Vectors::load(folder.path(), 3).unwrap_err().to_string();
        assert!(error.contains("vectors.txt") && error.contains("[5, 2]"), "{error}");
        std::fs::write(folder.path().join("vectors.txt"), "the\n").unwrap();
        assert!(Vectors::load(folder.path(), 2).is_err());
    }
}
