//! The lines of WordNet's files (`wndb(5WN)`).

use std::{
    path::{Path, PathBuf},
    str::SplitWhitespace,
};

use sporran_checkpoint::{Error, Result, json};

use super::{
    part::PartOfSpeech,
    pointers::{Pointer, Relation},
};

pub(super) fn read(path: &Path) -> Result<String> {
    json::text(path)?.ok_or_else(|| {
        let expected = "that WordNet 3.0 or NLTK's averaged_perceptron_tagger_eng has";
        Error::MissingFile { folder: path.into(), expected }
    })
}

/// A line's fields, which know where they are from.
pub(super) struct Fields<'a> {
    path: &'a Path,
    line: usize,
    fields: SplitWhitespace<'a>,
}

impl<'a> Fields<'a> {
    /// The fields of a line, counted from 1.
    pub(super) fn new(path: &'a Path, line: usize, text: &'a str) -> Self {
        Self { path, line, fields: text.split_whitespace() }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> Error {
        Error::Line { path: self.path.to_owned(), line: self.line, problem: problem.into() }
    }

    pub(super) fn next(&mut self, what: &str) -> Result<&'a str> {
        self.fields.next().ok_or_else(|| self.error(format!("the line ends before its {what}")))
    }

    fn number(&mut self, what: &str, radix: u32) -> Result<u32> {
        let field = self.next(what)?;
        u32::from_str_radix(field, radix)
            .map_err(|_| self.error(format!("the {what} {field:?} is no number")))
    }

    fn skip(&mut self, fields: u32, what: &str) -> Result<()> {
        (0..fields).try_for_each(|_| self.next(what).map(drop))
    }

    fn part(&mut self) -> Result<PartOfSpeech> {
        let field = self.next("part of speech")?;
        PartOfSpeech::of_letter(field).ok_or_else(|| self.error(format!("no part of speech is {field:?}")))
    }

    pub(super) fn rest(self) -> impl Iterator<Item = &'a str> {
        self.fields
    }
}

/// A line of an index file: a lemma in lower case, and the places of its synsets in the data file, the most frequent
/// first.
pub(super) struct IndexLine<'a> {
    pub(super) lemma: &'a str,
    pub(super) offsets: Vec<u32>,
}

impl<'a> IndexLine<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, file: PartOfSpeech) -> Result<Self> {
        let lemma = fields.next("lemma")?;
        if fields.part()? != file {
            return Err(fields.error(format!("the lemma {lemma:?} has another part of speech than its file")));
        }
        let synsets = fields.number("count of synsets", 10)?;
        let pointers = fields.number("count of pointers", 10)?;
        fields.skip(pointers, "pointer symbol")?;
        if synsets == 0 || fields.number("count of senses", 10)? != synsets {
            return Err(fields.error(format!("the counts of the synsets of {lemma:?} are zero or differ")));
        }
        fields.skip(1, "count of tagged senses")?;
        let offsets = (0..synsets).map(|_| fields.number("synset offset", 10)).collect::<Result<_>>()?;
        Ok(Self { lemma, offsets })
    }
}

/// A line of a data file: a synset.
pub(super) struct DataLine<'a> {
    pub(super) offset: u32,
    pub(super) lemmas: Vec<&'a str>,
    pub(super) pointers: Vec<Pointer>,
}

impl<'a> DataLine<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, file: PartOfSpeech) -> Result<Self> {
        let offset = fields.number("synset offset", 10)?;
        fields.skip(1, "lexicographer file")?;
        if fields.part()? != file {
            return Err(fields.error("the synset has another part of speech than its file"));
        }
        let lemmas = (0..fields.number("count of lemmas", 16)?).map(|_| {
            let lemma = without_marker(fields.next("lemma")?);
            fields.skip(1, "lexical id")?;
            Ok(lemma)
        });
        let lemmas = lemmas.collect::<Result<Vec<_>>>()?;
        if lemmas.is_empty() {
            return Err(fields.error("the synset has no lemma"));
        }
        let mut pointers = Vec::new();
        for _ in 0..fields.number("count of pointers", 10)? {
            pointers.extend(pointer(fields, lemmas.len())?);
        }
        Ok(Self { offset, lemmas, pointers })
    }
}

/// A pointer, where it is of a relation that the features need.
fn pointer(fields: &mut Fields<'_>, lemmas: usize) -> Result<Option<Pointer>> {
    let symbol = fields.next("pointer symbol")?;
    let offset = fields.number("pointer's offset", 10)?;
    let part = fields.part()?;
    let ends = fields.next("pointer's lemmas")?;
    let (Some(source), Some(target)) = (ends.get(..2), ends.get(2..)) else {
        return Err(fields.error(format!("the pointer's lemmas {ends:?} are not four digits")));
    };
    let lemma = |digits| {
        usize::from_str_radix(digits, 16).map_err(|_| fields.error(format!("no lemmas are {ends:?}")))
    };
    // 0000 joins two synsets, anything else a lemma of the one with a lemma of the other.
    let relation = match (symbol, lemma(source)?, lemma(target)?) {
        ("@", 0, 0) => Relation::Hypernym,
        ("~", 0, 0) => Relation::Hyponym,
        ("!", 0, 0) => return Ok(None),
        ("!", source, target) if (1..=lemmas).contains(&source) && target > 0 => {
            Relation::Antonym(target - 1)
        }
        ("!", ..) => {
            return Err(fields.error(format!("the antonym's lemmas {ends:?} are none of the synset's")));
        }
        _ => return Ok(None),
    };
    Ok(Some(Pointer { relation, part, offset }))
}

/// An adjective's name without its syntactic marker, as in `galore(ip)`.
fn without_marker(lemma: &str) -> &str {
    lemma.strip_suffix(')').and_then(|open| open.split_once('(')).map_or(lemma, |(name, _)| name)
}

/// The lines of a file, without the licence at its start: each one's number, the byte it starts at, and its text.
pub(super) fn entries(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut end = 0;
    let lines = (1..).zip(text.split_inclusive('\n')).map(move |(line, entry)| {
        let start = end;
        end += entry.len();
        (line, start, entry)
    });
    lines.filter(|(_, _, entry)| !entry.starts_with(' '))
}

/// The path of one of WordNet's files.
pub(super) fn path(folder: &Path, kind: &str, part: PartOfSpeech) -> PathBuf {
    folder.join(match kind {
        "exc" => format!("{}.exc", part.file()),
        _ => format!("{kind}.{}", part.file()),
    })
}
