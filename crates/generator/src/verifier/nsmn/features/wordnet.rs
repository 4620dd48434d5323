//! WordNet (Miller 1995) in memory, asked as nltk's reader is.

use std::{collections::HashMap, path::Path};

use sporran_checkpoint::Result;

use super::{
    part::PartOfSpeech,
    pointers::{Pending, Pointers},
    records::{self, DataLine, Fields, IndexLine, entries, read},
};

/// One part of speech's words.
#[derive(Debug, Default)]
struct Words {
    /// A lemma's synsets, the most frequent first.
    synsets: HashMap<Box<str>, Box<[u32]>>,
    /// An irregular form's lemmas.
    exceptions: HashMap<Box<str>, Box<[Box<str>]>>,
}

/// A WordNet database. Its synsets are numbered from 0.
#[derive(Debug, Default)]
pub(super) struct WordNet {
    names: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
    words: [Words; 4],
    /// Each synset's lemma names.
    lemmas: Vec<Box<[u32]>>,
    pointers: Pointers,
}

impl WordNet {
    /// Reads a folder with the files `index.*`, `data.*` and `*.exc` of the format of WordNet 3.0.
    ///
    /// # Errors
    ///
    /// Where a file cannot be read or is not in the format.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let mut wordnet = Self::default();
        let mut pending = Pending::default();
        let mut places: [HashMap<u32, u32>; 4] = Default::default();
        for part in PartOfSpeech::ALL {
            places[part as usize] = wordnet.read_data(folder, part, &mut pending)?;
        }
        let find = |part: PartOfSpeech, offset| places[part as usize].get(&offset).copied();
        wordnet.pointers =
            pending.resolve(find, &wordnet.lemmas, |part| records::path(folder, "data", part))?;
        for part in PartOfSpeech::ALL {
            wordnet.words[part as usize] = read_words(folder, part, &places[part as usize])?;
        }
        Ok(wordnet)
    }

    /// Reads a data file; the answer has the synset at each offset.
    fn read_data(
        &mut self,
        folder: &Path,
        part: PartOfSpeech,
        pending: &mut Pending,
    ) -> Result<HashMap<u32, u32>> {
        let path = records::path(folder, "data", part);
        let text = read(&path)?;
        let mut places = HashMap::new();
        for (line, start, entry) in entries(&text) {
            // The gloss follows the bar.
            let (record, _) = entry.split_once('|').unwrap_or((entry, ""));
            let mut fields = Fields::new(&path, line, record);
            let DataLine { offset, lemmas, pointers } = DataLine::read(&mut fields, part)?;
            // The offset is where the line starts, so that a file whose line ends were changed is found out.
            if start != offset as usize {
                return Err(
                    fields.error(format!("the synset's offset {offset} is not where it is in the file"))
                );
            }
            let synset = self.lemmas.len() as u32;
            let names = lemmas.into_iter().map(|lemma| self.intern(lemma)).collect();
            self.lemmas.push(names);
            places.insert(offset, synset);
            pending.extend(synset, pointers, part, line);
        }
        Ok(places)
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// The synsets of a word of a part of speech, in any form of it. As nltk 3.8 and earlier do, the endings are taken off
    /// again and again where no lemma is found.
    #[must_use]
    pub(super) fn synsets(&self, word: &str, part: PartOfSpeech) -> Vec<u32> {
        let word = word.to_lowercase();
        let lemmas = &self.words[part as usize].synsets;
        let forms = self.base_forms(&word, part);
        forms.iter().flat_map(|form| &lemmas[form.as_str()]).copied().collect()
    }

    /// The synsets of a word, in the parts of speech's order.
    #[must_use]
    pub(super) fn all_synsets(&self, word: &str) -> Vec<u32> {
        PartOfSpeech::ALL.into_iter().flat_map(|part| self.synsets(word, part)).collect()
    }

    /// The lemmas that a form in lower case may be one of.
    fn base_forms(&self, form: &str, part: PartOfSpeech) -> Vec<String> {
        let Words { synsets, exceptions } = &self.words[part as usize];
        let known = |forms: &mut dyn Iterator<Item = &str>| {
            let mut found: Vec<String> = Vec::new();
            for form in forms {
                if synsets.contains_key(form) && !found.iter().any(|other| other == form) {
                    found.push(form.to_owned());
                }
            }
            found
        };
        let itself = [form];
        if let Some(lemmas) = exceptions.get(form) {
            return known(&mut itself.into_iter().chain(lemmas.iter().map(|lemma| &**lemma)));
        }
        let detached = |form: &str| {
            let stem = |(old, new): &(&str, &str)| form.strip_suffix(old).map(|stem| format!("{stem}{new}"));
            part.detachments().iter().filter_map(stem).collect::<Vec<_>>()
        };
        let mut forms = detached(form);
        let mut found = known(&mut itself.into_iter().chain(forms.iter().map(String::as_str)));
        while found.is_empty() && !forms.is_empty() {
            forms = forms.iter().flat_map(|form| detached(form)).collect();
            found = known(&mut forms.iter().map(String::as_str));
        }
        found
    }

    /// How many synsets there are.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.lemmas.len()
    }

    /// A synset's lemma names, as they are written, with underscores for spaces.
    pub(super) fn lemma_names(&self, synset: u32) -> impl Iterator<Item = &str> {
        self.lemma_ids(synset).iter().map(|&name| self.name(name))
    }

    fn name(&self, name: u32) -> &str {
        &self.names[name as usize]
    }

    /// All lemma names. `lemma_ids` and `antonym_ids` return indices into it.
    pub(super) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    pub(super) fn name_id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub(super) fn lemma_ids(&self, synset: u32) -> &[u32] {
        &self.lemmas[synset as usize]
    }

    pub(super) fn antonym_ids(&self, synset: u32) -> &[u32] {
        self.pointers.antonyms.row(synset)
    }

    pub(super) fn pointers(&self) -> &Pointers {
        &self.pointers
    }
}

/// Reads a part of speech's index and its list of exceptions. `places` has the synset at each offset of the data file.
fn read_words(folder: &Path, part: PartOfSpeech, places: &HashMap<u32, u32>) -> Result<Words> {
    let mut words = Words::default();
    let path = records::path(folder, "index", part);
    for (line, _, entry) in entries(&read(&path)?) {
        let mut fields = Fields::new(&path, line, entry);
        let IndexLine { lemma, offsets } = IndexLine::read(&mut fields, part)?;
        let synset = |offset| {
            let missing = || fields.error(format!("the lemma {lemma:?} has no synset at offset {offset}"));
            places.get(&offset).copied().ok_or_else(missing)
        };
        words.synsets.insert(lemma.into(), offsets.into_iter().map(synset).collect::<Result<_>>()?);
    }
    let path = records::path(folder, "exc", part);
    for (line, entry) in (1..).zip(read(&path)?.lines()) {
        let mut fields = Fields::new(&path, line, entry);
        let form = fields.next("form")?;
        words.exceptions.insert(form.into(), fields.rest().map(Box::from).collect());
    }
    Ok(words)
}
