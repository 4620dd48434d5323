//! Steps that compute the results of one input file. A step works in chunks with a journal, resumes after a
//! kill, and is skipped if its results are up to date.

use std::{
    fs, io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sporran_kilt::{
    jsonl,
    observe::{Event, Observer, Unit, advance, begin},
};

use crate::{
    Error, Result,
    run_dir::{
        folder::RunDir,
        inputs::{Inputs, hash_file},
        journal::Journal,
        key::StepKey,
    },
};

/// The step of an input file.
pub(crate) struct FileStep<'a> {
    /// The title of the step, for the observer.
    pub(crate) title: String,
    /// The name of its files in `work`.
    pub(crate) name: &'a str,
    /// The key of the results. The program's version and `name` are added to it.
    pub(crate) key: StepKey,
    /// The result files, relative to the run's folder.
    pub(crate) outputs: Vec<PathBuf>,
    /// The inputs of the step.
    pub(crate) inputs: &'a Inputs,
}

/// Computes the results of a file.
pub(crate) trait FileWork {
    /// The result of a chunk. The journal stores it as JSON, which must not lose information.
    type Chunk: Serialize + DeserializeOwned;
    /// Information about a finished file, in addition to its results.
    type Summary: Serialize + DeserializeOwned;

    /// Reads the inputs, if the results are not up to date. Returns the number of records, or `None` if the
    /// inputs are streamed.
    ///
    /// # Errors
    /// Errors of the inputs.
    fn load(&mut self) -> Result<Option<usize>>;

    /// Adds all chunks, from the first. They must be the same in every call.
    ///
    /// # Errors
    /// Errors of the inputs or a model; those of [`Chunks::add`].
    fn make(&mut self, chunks: &mut Chunks<'_, Self::Chunk>) -> Result<()>;

    /// Writes the results from the complete journal.
    ///
    /// # Errors
    /// Those of [`Journal::read`] and of writing.
    fn write(&mut self, root: &Path, journal: &Journal) -> Result<Self::Summary>;
}

/// The chunks of a step: those of the journal and new ones.
pub(crate) struct Chunks<'a, C> {
    journal: &'a mut Journal,
    /// The number of chunks in the journal at the beginning of the step.
    known: usize,
    number: usize,
    records: usize,
    made: usize,
    advance: &'a mut dyn FnMut(u64),
    chunk: PhantomData<C>,
}

impl<C: Serialize> Chunks<'_, C> {
    /// Adds the next chunk, of `records` records. Calls `make` only if the journal does not have it.
    ///
    /// # Errors
    /// Those of `make`; [`crate::Error::Io`] for file system errors.
    pub(crate) fn add(&mut self, records: usize, make: impl FnOnce() -> Result<C>) -> Result<()> {
        if self.number >= self.known {
            self.journal.push(&make()?, records)?;
            self.made += records;
        }
        self.number += 1;
        self.records += records;
        (self.advance)(self.records as u64);
        Ok(())
    }
}

/// A finished file.
#[derive(Debug)]
pub(crate) struct Finished<S> {
    /// The BLAKE3 hashes of the results, in the order of `outputs`.
    pub(crate) hashes: Vec<String>,
    /// The number of records.
    pub(crate) records: usize,
    /// The number of records that this process computed.
    pub(crate) made: usize,
    /// Whether the results are of an earlier process.
    pub(crate) reused: bool,
    /// The summary of the work.
    pub(crate) summary: S,
}

/// The content of `work/NAME.done.json`. A step is skipped only if all of it matches.
#[derive(Serialize, Deserialize)]
struct FinishedStep<S> {
    key: String,
    hashes: Vec<String>,
    records: usize,
    summary: S,
}

/// The digest of the key of a step: of `key`, the program's version and the name of the step.
pub(crate) fn step_digest(key: StepKey, name: &str) -> String {
    key.input("program", env!("CARGO_PKG_VERSION")).input("file", name).digest()
}

impl RunDir {
    /// Takes results that are in the folder for those of a step with this digest, so that [`complete`](Self::complete) skips
    /// the step.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if a result cannot be read.
    pub(crate) fn adopt<S: Serialize>(
        &self,
        name: &str,
        digest: String,
        outputs: &[PathBuf],
        records: usize,
        summary: S,
    ) -> Result<Finished<S>> {
        let hashes: Result<Vec<String>> =
            outputs.iter().map(|path| hash_file(&self.root.join(path))).collect();
        let done = FinishedStep { key: digest, hashes: hashes?, records, summary };
        jsonl::write_json(self.work(&format!("{name}.done.json")), &done)?;
        self.remove_work(&format!("{name}.journal"))?;
        Ok(Finished { hashes: done.hashes, records, made: records, reused: false, summary: done.summary })
    }

    /// Removes a file of the folder `work`, if there is one.
    pub(crate) fn remove_work(&self, file: &str) -> Result<()> {
        let path = self.work(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(&path, "remove")(error)),
            _ => Ok(()),
        }
    }

    /// Computes the missing results of a file.
    ///
    /// If the key and the hashes of an earlier call match, does nothing. Otherwise computes the chunks that
    /// the journal does not have, then writes the results. Each result file is replaced as a whole.
    ///
    /// # Errors
    /// Those of `work`; [`sporran_kilt::Error::Changed`] if an input changed, and then no result is kept.
    pub(crate) fn complete<W: FileWork>(
        &self,
        step: FileStep<'_>,
        work: &mut W,
        observe: &mut Observer<'_>,
    ) -> Result<Finished<W::Summary>> {
        let FileStep { title, name, key, outputs, inputs } = step;
        let key = step_digest(key, name);
        let hashes = || -> Result<Vec<String>> {
            outputs.iter().map(|path| hash_file(&self.root.join(path))).collect()
        };
        let path = self.work(&format!("{name}.done.json"));
        if let Ok(FinishedStep { key: known, hashes: written, records, summary }) = jsonl::read_json(&path)
            && known == key
            && hashes().is_ok_and(|found| found == written)
        {
            // That of a process that was killed after the results were complete.
            self.remove_work(&format!("{name}.journal"))?;
            observe(Event::Skip { step: title });
            return Ok(Finished { hashes: written, records, made: 0, reused: true, summary });
        }
        let total = work.load()?;
        inputs.verify()?;
        let mut journal = Journal::open(&self.work(&format!("{name}.journal")), &key, total)?;
        begin(observe, title, total.unwrap_or_default() as u64, Unit::Records);
        let known = journal.chunks();
        let mut chunks = Chunks {
            journal: &mut journal,
            known,
            number: 0,
            records: 0,
            made: 0,
            advance: &mut |done| advance(observe, done),
            chunk: PhantomData,
        };
        work.make(&mut chunks)?;
        let (records, made) = (chunks.records, chunks.made);
        if total.is_none()
            && let Err(error) = inputs.verify()
        {
            journal.remove()?;
            return Err(error.into());
        }
        let summary = work.write(&self.root, &journal)?;
        observe(Event::End);
        let done = FinishedStep { key, hashes: hashes()?, records, summary };
        jsonl::write_json(&path, &done)?;
        journal.remove()?;
        Ok(Finished { hashes: done.hashes, records, made, reused: false, summary: done.summary })
    }
}

/// Computes the lines of one file from inputs in memory.
pub(crate) struct Lines<'a, I, F> {
    /// The inputs.
    pub(crate) inputs: &'a [I],
    /// The number of inputs in a portion.
    pub(crate) portion: usize,
    /// Computes the lines of a portion from the index of its first input.
    pub(crate) make: F,
    /// The output file, relative to the run's folder.
    pub(crate) path: &'a Path,
}

impl<I, T, F> FileWork for Lines<'_, I, F>
where
    T: Serialize + DeserializeOwned,
    F: FnMut(usize, &[I]) -> Result<Vec<T>>,
{
    type Chunk = Vec<T>;
    type Summary = ();

    fn load(&mut self) -> Result<Option<usize>> {
        Ok(Some(self.inputs.len()))
    }

    fn make(&mut self, chunks: &mut Chunks<'_, Vec<T>>) -> Result<()> {
        for (at, portion) in self.inputs.chunks(self.portion).enumerate() {
            chunks.add(portion.len(), || (self.make)(at * self.portion, portion))?;
        }
        Ok(())
    }

    fn write(&mut self, root: &Path, journal: &Journal) -> Result<()> {
        let mut writer = jsonl::Writer::create(root.join(self.path))?;
        journal.read(|lines: Vec<T>| {
            lines.iter().try_for_each(|line| writer.record(line))?;
            Ok(())
        })?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles numbers in portions of two, and fails before the portion that begins at `until`.
    fn double(
        folder: &RunDir,
        inputs: &Inputs,
        key: &str,
        until: usize,
        made: &mut Vec<usize>,
    ) -> Result<Finished<()>> {
        let numbers: Vec<u32> = (0..7).collect();
        let path = Path::new("predictions/n.jsonl");
        let make = |at: usize, portion: &[u32]| -> Result<Vec<u32>> {
            if at >= until {
                return Err(Error::io(path, "read")(std::io::Error::other("killed")));
            }
            made.push(at);
            Ok(portion.iter().map(|number| 2 * number).collect())
        };
        let key = StepKey::new("double", &toml::Table::new()).unwrap().input("key", key);
        let step =
            FileStep { title: "double".into(), name: "n", key, outputs: vec![path.to_owned()], inputs };
        folder.complete(step, &mut Lines { inputs: &numbers, portion: 2, make, path }, &mut |_| {})
    }

    #[test]
    fn what_is_there_is_not_made_again_and_a_kill_costs_a_portion() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunDir::open(place.path().join("r")).unwrap();
        let (inputs, mut made) = (Inputs::default(), Vec::new());
        let path = folder.root.join("predictions/n.jsonl");
        assert!(double(&folder, &inputs, "a", 4, &mut made).is_err());
        assert!(!path.exists());
        let finished = double(&folder, &inputs, "a", 9, &mut made).unwrap();
        assert_eq!((finished.records, finished.made, finished.reused), (7, 3, false));
        assert_eq!(made, [0, 2, 4, 6]);
        let whole = fs::read_to_string(&path).unwrap();
        assert_eq!(whole, "0\n2\n4\n6\n8\n10\n12\n");
        assert!(!folder.work("n.journal").exists());
        let again = double(&folder, &inputs, "a", 0, &mut made).unwrap();
        assert_eq!((again.records, again.made, again.reused), (7, 0, true));
        assert_eq!(again.hashes, finished.hashes);
        // Another key, and changed results.
        double(&folder, &inputs, "b", 9, &mut made).unwrap();
        assert_eq!(made.len(), 8);
        fs::write(&path, "0\n").unwrap();
        assert!(!double(&folder, &inputs, "b", 9, &mut made).unwrap().reused);
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    }

    #[test]
    fn complete_results_leave_no_journal() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunDir::open(place.path().join("r")).unwrap();
        let (inputs, mut made) = (Inputs::default(), Vec::new());
        let journal = folder.work("n.journal");
        double(&folder, &inputs, "a", 9, &mut made).unwrap();
        // As a kill between the results and the removal leaves it.
        Journal::open(&journal, "a", Some(7)).unwrap();
        assert!(double(&folder, &inputs, "a", 9, &mut made).unwrap().reused);
        assert!(!journal.exists());
        Journal::open(&journal, "b", Some(7)).unwrap();
        let outputs = ["predictions/n.jsonl".into()];
        folder.adopt("n", "c".to_owned(), &outputs, 7, ()).unwrap();
        assert!(!journal.exists());
    }

    #[test]
    fn an_input_that_changed_before_the_first_chunk_is_named() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunDir::open(place.path().join("r")).unwrap();
        let input = place.path().join("input");
        fs::write(&input, "a").unwrap();
        let mut inputs = Inputs::default();
        inputs.file(&input).unwrap();
        fs::write(&input, "bc").unwrap();
        let error = double(&folder, &inputs, "a", 9, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Kilt(sporran_kilt::Error::Changed { .. })), "{error}");
        assert!(!folder.work("n.done.json").exists());
    }
}
