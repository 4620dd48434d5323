//! Checks of prediction files, alone or with their inputs and the knowledge source, and the archive for a submission.

mod shape;

use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use sporran_kilt::{Dataset, Id, PassageStore, Record, Split, jsonl};

pub use shape::shape;

use crate::{
    Error, Result,
    run_dir::folder::check_finished,
    tasks::{files::task_files, options::TasksOptions},
};

/// A file of predictions and its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inputs.
    pub input: PathBuf,
    /// The predictions.
    pub predictions: PathBuf,
    /// The name of both.
    pub name: String,
}

/// The largest number of listed mistakes of a file.
const LISTED: usize = 20;

/// Pairs the task files of a folder with the predictions of the same names in another folder. Without
/// `datasets`, pairs all datasets.
///
/// # Errors
/// [`Error::Config`] for a folder without task files, [`Error::Unfinished`] for predictions of an unfinished run,
/// [`Error::Submission`] for inputs without predictions.
pub fn pair(inputs: &Path, predictions: &Path, split: Split, datasets: &[Dataset]) -> Result<Vec<Entry>> {
    let tasks = TasksOptions {
        folder: Some(inputs.to_owned()),
        split: Some(split),
        datasets: datasets.to_vec(),
        ..TasksOptions::default()
    };
    let mut missing = Vec::new();
    let mut entries = Vec::new();
    for task in task_files(&tasks, "inputs")? {
        let path = predictions.join(&task.name);
        check_finished(&path)?;
        if path.is_file() {
            entries.push(Entry { input: task.path, predictions: path, name: task.name });
        } else {
            missing.push(format!("{}: no file of predictions for {}", path.display(), task.path.display()));
        }
    }
    if missing.is_empty() { Ok(entries) } else { Err(Error::Submission(missing)) }
}

/// The mistakes of a file of predictions, by line: missing, unknown and duplicate ids, and the mistakes of
/// [`shape`]. Empty for a valid file.
///
/// # Errors
/// Errors of reading; [`Error::Unfinished`] for a file of an unfinished run.
pub fn check(entry: &Entry, store: Option<&PassageStore>) -> Result<Vec<String>> {
    check_finished(&entry.predictions)?;
    let mut expected: FxHashMap<Id, bool> = FxHashMap::default();
    for record in jsonl::open(&entry.input)?.records::<Record>() {
        expected.insert(record?.id, false);
    }
    faults(&entry.predictions, Some(expected), store)
}

/// The mistakes of a file of predictions without its inputs: no prediction, duplicate ids, and the mistakes
/// of [`shape`]. Empty for a valid file.
///
/// # Errors
/// Errors of reading; [`Error::Unfinished`] for a file of an unfinished run.
pub fn check_file(predictions: &Path, store: Option<&PassageStore>) -> Result<Vec<String>> {
    check_finished(predictions)?;
    faults(predictions, None, store)
}

fn faults(
    predictions: &Path,
    mut expected: Option<FxHashMap<Id, bool>>,
    store: Option<&PassageStore>,
) -> Result<Vec<String>> {
    let path = predictions.display();
    let mut faults = Vec::new();
    let mut seen: FxHashMap<Id, u64> = FxHashMap::default();
    let mut reader = jsonl::open(predictions)?;
    let file = reader.file();
    // KILT's scorer parses every line, so a blank one ends it. Of several in a row, the first is told.
    let blank = |line: u64| format!("{path}:{line}: expected a prediction, found a blank line");
    let mut last = 0;
    loop {
        let next = match reader.next_line()? {
            Some((line, bytes)) => Some((line, jsonl::utf8(&file, line, bytes)?.to_owned())),
            None => None,
        };
        let Some((line, text)) = next else {
            faults.extend((last + 1..=reader.line()).take(1).map(blank));
            break;
        };
        faults.extend((last + 1..line).take(1).map(blank));
        last = line;
        let record: Record = match jsonl::parse(&file, line, text.as_bytes()) {
            Ok(record) => record,
            Err(error) => {
                faults.push(error.to_string());
                // A wrong prediction is not a missing one.
                if let Some((id, expected)) = id_of(&text).zip(expected.as_mut()) {
                    expected.entry(id).and_modify(|found| *found = true);
                }
                continue;
            }
        };
        let mut fault =
            |field: &str, message: String| faults.push(format!("{path}:{line}: field `{field}`: {message}"));
        match expected.as_mut().map(|expected| expected.get_mut(&record.id)) {
            Some(None) => fault("id", format!("`{}` is not among the inputs", record.id)),
            Some(Some(found)) => *found = true,
            None => {}
        }
        if let Some(first) = seen.insert(record.id.clone(), line) {
            fault("id", format!("expected ids that differ, found `{}` of line {first} again", record.id));
        }
        shape(&record, store, &mut fault);
    }
    if last == 0 {
        faults.clear();
        faults.push(format!("{path}:1: expected a prediction, found an empty file"));
    }
    let absent = expected.into_iter().flatten().filter(|(_, found)| !found);
    let mut missing: Vec<String> = absent.map(|(id, _)| id.text().into_owned()).collect();
    missing.sort();
    faults.extend(missing.into_iter().map(|id| format!("{path}: no prediction for the input's id `{id}`")));
    if faults.len() > LISTED {
        let more = faults.len() - LISTED;
        faults.truncate(LISTED);
        faults.push(format!("{path}: and {more} more"));
    }
    Ok(faults)
}

/// The id of a line that is no record for another reason.
fn id_of(line: &str) -> Option<Id> {
    #[derive(Deserialize)]
    struct WithId {
        id: Id,
    }

    serde_json::from_str(line).ok().map(|WithId { id }| id)
}

/// Checks predictions and packs them into one `.tar.gz`. The same predictions give the same bytes.
///
/// # Errors
/// [`Error::Submission`] with all mistakes of [`check`]. Then nothing is written.
pub fn pack(entries: &[Entry], archive: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for entry in entries {
        faults.extend(check(entry, None)?);
    }
    if !faults.is_empty() {
        return Err(Error::Submission(faults));
    }
    let fail = |path: &Path| Error::io(path, "write");
    let mut tar = tar::Builder::new(GzBuilder::new().write(Vec::new(), Compression::best()));
    for entry in entries {
        let text = jsonl::read_to_string(&entry.predictions)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, &entry.name, text.as_bytes()).map_err(fail(archive))?;
    }
    let bytes = tar.into_inner().and_then(|gzip| gzip.finish()).map_err(fail(archive))?;
    // The extension of the archive must not cause a second compression.
    let folder = archive.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(fail(folder))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(fail(folder))?;
    std::io::Write::write_all(&mut file, &bytes).map_err(fail(archive))?;
    file.as_file().sync_all().map_err(fail(archive))?;
    file.persist(archive).map_err(|error| fail(archive)(error.error))?;
    Ok(sporran_kilt::folder::sync(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(folder: &Path, predictions: &str) -> Entry {
        let input = folder.join("nq-test_without_answers-kilt.jsonl");
        std::fs::write(&input, "{\"id\":\"a\",\"input\":\"q\"}\n{\"id\":2,\"input\":\"q\"}\n").unwrap();
        let path = folder.join("p.jsonl");
        std::fs::write(&path, predictions).unwrap();
        Entry { input, predictions: path, name: "nq-test_without_answers-kilt.jsonl".into() }
    }

    #[test]
    fn good_predictions_pass_and_pack_to_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"id\":\"2\",\"output\":[{\"answer\":\"x\",\"provenance\":[{\"wikipedia_id\":\"1\"}]}]}\n\
                     {\"id\":\"a\",\"output\":[{\"answer\":\"\",\"provenance\":[]}]}\n";
        let entry = entry(folder.path(), lines);
        assert_eq!(check(&entry, None).unwrap(), Vec::<String>::new());
        let (one, two) = (folder.path().join("1.tar.gz"), folder.path().join("2.tar.gz"));
        pack(std::slice::from_ref(&entry), &one).unwrap();
        pack(&[entry], &two).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(&one).unwrap()));
        let mut file = archive.entries().unwrap().next().unwrap().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, lines);
    }

    #[test]
    fn a_system_of_some_datasets_is_paired_with_these_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (inputs, predictions) = (folder.path().join("inputs"), folder.path().join("predictions"));
        for (folder, names) in [(&inputs, &["nq", "trex"][..]), (&predictions, &["nq"])] {
            std::fs::create_dir(folder).unwrap();
            names.iter().for_each(|name| {
                std::fs::write(folder.join(format!("{name}-dev-kilt.jsonl")), "{\"id\":\"a\"}\n").unwrap();
            });
        }
        let names = |datasets: &[Dataset]| {
            let entries = pair(&inputs, &predictions, Split::Dev, datasets)?;
            Ok::<_, Error>(entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[Dataset::Nq]).unwrap(), ["nq-dev-kilt.jsonl"]);
        assert!(
            matches!(names(&[]), Err(Error::Submission(missing)) if missing.len() == 1 && missing[0].contains("trex"))
        );
        assert!(matches!(names(&[Dataset::Wow]), Err(Error::Config(_))));
    }

    #[test]
    fn every_mistake_is_listed_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"id\":\"a\",\"output\":[{\"answer\":\"x\"}]}\n\
                     {\"id\":\"a\",\"output\":[]}\n{\"id\":\"z\",\"output\":[{\"provenance\":[{\"title\":\"T\"}]}]}\nnot json\n";
        let entry = entry(folder.path(), lines);
        let faults = check(&entry, None).unwrap();
        let expected = [
            "p.jsonl:1: field `output[0].provenance`",
            "p.jsonl:2: field `id`: expected ids that differ, found `a` of line 1 again",
            "p.jsonl:2: field `output`: expected exactly one, found 0",
            "p.jsonl:3: field `id`: `z` is not among the inputs",
            "p.jsonl:3: field `output[0].answer`",
            "p.jsonl:3: field `output[0].provenance[0].wikipedia_id`",
            "p.jsonl:4: not JSON: ",
            "no prediction for the input's id `2`",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault}");
        }
        let whole = r#"{"id":1,"output":[{"answer":"x","provenance":[{"wikipedia_id":"1"}]}]}"#;
        let other = whole.replace("\"id\":1", "\"id\":2");
        // A section that is not a string does not hide other mistakes. An empty file is a mistake.
        let section = r#"{"id":1,"output":[{"answer":"x","provenance":[{"wikipedia_id":"1","section":3}]}]}"#;
        for (text, expected) in [
            (format!("{section}\n"), "p.jsonl:1: field `output[0].provenance[0].section`: "),
            (String::new(), "p.jsonl:1: expected a prediction, found an empty file"),
            ("\n \n".to_owned(), "expected a prediction, found an empty file"),
            (format!("{whole}\n \n{other}\n"), "p.jsonl:2: expected a prediction, found a blank line"),
            (format!("{whole}\n\n"), "p.jsonl:2: expected a prediction, found a blank line"),
        ] {
            let path = folder.path().join("other/p.jsonl");
            jsonl::write(&path, text.as_bytes()).unwrap();
            let alone = check_file(&path, None).unwrap();
            assert!(alone.len() == 1 && alone[0].contains(expected), "{alone:?}");
        }
        // Without inputs, any ids are valid.
        let alone = check_file(&entry.predictions, None).unwrap();
        assert_eq!(alone.len(), 6, "{alone:#?}");
        assert!(matches!(pack(&[entry], &folder.path().join("x.tar.gz")), Err(Error::Submission(_))));
        assert!(!folder.path().join("x.tar.gz").exists());
    }
}
