//! A file of inputs becomes files of results: chunk by chunk, journalled, resumed after a kill, skipped where it is there.

use std::{
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sporran_kilt::jsonl;

use crate::{
    Result,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::{
        folder::RunDir,
        inputs::{Inputs, hash_file},
        journal::Journal,
        key::StepKey,
    },
};

/// What is made of a file of inputs.
pub(crate) struct FileStep<'a> {
    /// The step, for the observer.
    pub(crate) title: String,
    /// What the files of the step in `work` are called.
    pub(crate) name: &'a str,
    /// All that the results depend on. The program's version and `name` are added.
    pub(crate) key: StepKey,
    /// The results, in the run's folder.
    pub(crate) outputs: Vec<PathBuf>,
    /// What the step reads.
    pub(crate) inputs: &'a Inputs,
}

/// How the results of a file are made.
pub(crate) trait FileWork {
    /// What a chunk of inputs becomes, as the journal keeps it. JSON has to keep it as it is.
    type Chunk: Serialize + DeserializeOwned;
    /// What is kept of a finished file beside its results.
    type Summary: Serialize + DeserializeOwned;

    /// Reads the inputs; called only where the results are not there. Gives the number of records, or nothing where inputs are
    /// read while chunks are made.
    ///
    /// # Errors
    /// Errors of the inputs.
    fn load(&mut self) -> Result<Option<usize>>;

    /// Adds every chunk, from the first on and cut the same way in every call.
    ///
    /// # Errors
    /// Errors of the inputs or a model; those of [`Chunks::add`].
    fn make(&mut self, chunks: &mut Chunks<'_, Self::Chunk>) -> Result<()>;

    /// Turns the complete journal into the results.
    ///
    /// # Errors
    /// Those of [`Journal::read`] and of writing.
    fn write(&mut self, root: &Path, journal: &Journal) -> Result<Self::Summary>;
}

/// The chunks of a step: those of the journal and those that are made now.
pub(crate) struct Chunks<'a, C> {
    journal: &'a mut Journal,
    /// Chunks that the journal had when the step began.
    known: usize,
    number: usize,
    records: usize,
    made: usize,
    advance: &'a mut dyn FnMut(u64),
    chunk: PhantomData<C>,
}

impl<C: Serialize> Chunks<'_, C> {
    /// Adds the next chunk, of so many records. It is made only where the journal lacks it.
    ///
    /// # Errors
    /// Those of `make`; [`crate::Error::Io`] where the disk refuses.
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

/// A file whose results are there.
#[derive(Debug)]
pub(crate) struct Finished<S> {
    /// BLAKE3 of each result, in the step's order.
    pub(crate) hashes: Vec<String>,
    /// Records of the file.
    pub(crate) records: usize,
    /// Records whose results were made in this call of the program.
    pub(crate) made: usize,
    /// Whether all was there from an earlier call.
    pub(crate) reused: bool,
    /// What the work keeps of the file.
    pub(crate) summary: S,
}

/// What `work/NAME.done.json` says of a finished step, which is skipped only if all of it agrees.
#[derive(Serialize, Deserialize)]
struct Done<S> {
    key: String,
    hashes: Vec<String>,
    records: usize,
    summary: S,
}

impl RunDir {
    /// Makes the results of a file, as far as they are not there.
    ///
    /// Where the key and the hashes of an earlier call agree, nothing is done. Otherwise chunks that the journal has are kept
    /// and the others are made. The results are written when all chunks are there, each of them whole.
    ///
    /// # Errors
    /// Those of `work`; [`sporran_kilt::Error::Changed`] where an input was written to meanwhile, of which nothing is kept.
    pub(crate) fn complete<W: FileWork>(
        &self,
        step: FileStep<'_>,
        work: &mut W,
        observe: &mut Observer<'_>,
    ) -> Result<Finished<W::Summary>> {
        let FileStep { title, name, key, outputs, inputs } = step;
        let key = key.input("program", env!("CARGO_PKG_VERSION")).input("file", name).digest();
        let hashes = || -> Result<Vec<String>> {
            outputs.iter().map(|path| hash_file(&self.root.join(path))).collect()
        };
        let path = self.work(&format!("{name}.done.json"));
        if let Ok(Done { key: known, hashes: written, records, summary }) = jsonl::read_json(&path)
            && known == key
            && hashes().is_ok_and(|found| found == written)
        {
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
        let done = Done { key, hashes: hashes()?, records, summary };
        jsonl::write_json(&path, &done)?;
        journal.remove()?;
        Ok(Finished { hashes: done.hashes, records, made, reused: false, summary: done.summary })
    }
}

/// Work on inputs in memory that become the lines of one file.
pub(crate) struct Lines<'a, I, F> {
    /// What becomes lines.
    pub(crate) inputs: &'a [I],
    /// Inputs that are read together.
    pub(crate) portion: usize,
    /// The lines of a portion, whose first input has this number.
    pub(crate) make: F,
    /// The file, in the run's folder.
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
    use std::fs;

    use super::*;
    use crate::Error;

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
        // Another key, and results that were changed.
        double(&folder, &inputs, "b", 9, &mut made).unwrap();
        assert_eq!(made.len(), 8);
        fs::write(&path, "0\n").unwrap();
        assert!(!double(&folder, &inputs, "b", 9, &mut made).unwrap().reused);
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
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
