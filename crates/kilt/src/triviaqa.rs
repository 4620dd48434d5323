//! TriviaQA's questions, which KILT's files lack.
//!
//! KILT publishes TriviaQA (Joshi et al., 2017) with ids and gold only. The questions are in TriviaQA's
//! `qa/wikipedia-{train,dev,test-without-answers}.json` under `QuestionId`.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use crate::{
    Error, Id, Record, Result, counted,
    formats::{elements::Elements, stream::Stream},
    jsonl,
    open_record::open_record,
};

/// An element of `Data` in a TriviaQA file.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The id that KILT uses.
    pub id: Id,
    /// The question.
    pub text: String,
    /// The other fields: the answer, the evidence.
    pub extra: Map<String, Value>,
}

open_record!(Question, required { id = "QuestionId", text = "Question" }, optional {});

/// Questions by id.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    texts: FxHashMap<String, String>,
    paths: Vec<PathBuf>,
}

impl Questions {
    /// Loads TriviaQA's files: JSON, plain or compressed, or the published archive (`.tar`, `.tar.gz`, `.tgz`), of
    /// which the `.json` files outside `evidence` are read. Without a file there are no questions.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Compressed`], [`Error::Utf8`]; [`Error::Record`] for JSON that is not TriviaQA's or an id
    /// with two questions; [`Error::Empty`] for a file without a question.
    pub fn open(paths: &[impl AsRef<Path>]) -> Result<Self> {
        let mut questions = Self::default();
        for path in paths.iter().map(AsRef::as_ref) {
            let before = questions.texts.len();
            let mut read = 0;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if [".tar", ".tar.gz", ".tgz"].iter().any(|ending| name.ends_with(ending)) {
                read += questions.archive(path)?;
            } else {
                read += questions.file(Stream::open(path)?)?;
            }
            if read == 0 {
                return Err(Error::Empty { path: path.to_owned(), what: "question" });
            }
            tracing::debug!(path = %path.display(), read, new = questions.texts.len() - before, "questions read");
            questions.paths.push(path.to_owned());
        }
        Ok(questions)
    }

    fn archive(&mut self, path: &Path) -> Result<u64> {
        let mut stream = Stream::open(path)?;
        let mut read = 0;
        // Without a line: the archive itself is damaged.
        let fail = |source| Error::compressed(path, 0, source);
        let mut archive = tar::Archive::new(stream.as_read());
        for entry in archive.entries().map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let member = entry.path().map_err(fail)?.into_owned();
            let evidence = member.components().any(|part| part.as_os_str() == "evidence");
            if entry.header().entry_type().is_file()
                && !evidence
                && member.extension().is_some_and(|ending| ending == "json")
            {
                read += self.file(Stream::member(path.join(member), entry))?;
            }
        }
        Ok(read)
    }

    fn file(&mut self, stream: Stream<'_>) -> Result<u64> {
        let path = stream.path().to_owned();
        let mut read = 0;
        for question in Elements::start(stream, Some("Data"))?.records::<Question>() {
            let (line, Question { id, text, .. }) = question?;
            if text.trim().is_empty() {
                let field = format!("Data[{read}].Question");
                return Err(Error::record(
                    &path,
                    line,
                    field,
                    format!("expected a question for `{id}`, found none"),
                ));
            }
            let id = id.text().into_owned();
            match self.texts.get(&id) {
                Some(other) if *other != text => {
                    let message = format!("`{id}` asks `{text}` here and `{other}` before");
                    return Err(Error::record(&path, line, format!("Data[{read}].Question"), message));
                }
                Some(_) => {}
                None => {
                    self.texts.insert(id, text);
                }
            }
            read += 1;
        }
        Ok(read)
    }

    /// Number of questions.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The question with that id.
    pub fn text(&self, id: &Id) -> Option<&str> {
        self.texts.get(&*id.text()).map(String::as_str)
    }
}

/// Hands over the lines and the records of a task file, with a question for each record without input. Without questions, the
/// records are unchanged. Returns the number of records.
///
/// # Errors
/// Any error of the reader or of `put`; [`Error::Record`] for the first id without a question, with their number.
pub fn join(
    input: &Path,
    questions: &Questions,
    put: &mut dyn FnMut(u64, &Record) -> Result<()>,
) -> Result<u64> {
    let mut count = 0;
    let mut missing = 0u64;
    let mut first: Option<(u64, Id)> = None;
    for record in jsonl::open(input)?.numbered::<Record>() {
        let (line, mut record) = record?;
        count += 1;
        let blank = record.input.as_deref().unwrap_or_default().trim().is_empty();
        if blank && !questions.is_empty() {
            match questions.text(&record.id) {
                Some(text) => {
                    record.extra.shift_remove("input");
                    record.input = Some(text.to_owned());
                }
                None => {
                    missing += 1;
                    first.get_or_insert_with(|| (line, record.id.clone()));
                }
            }
        }
        put(line, &record)?;
    }
    if let Some((line, id)) = first {
        let paths: Vec<String> = questions.paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!(
            "{missing} of {} without a question in {}; the first is `{id}`",
            counted(count, "record"),
            paths.join(", ")
        );
        return Err(Error::record(input, line, "input", message));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::jsonl::Writer;

    const TRAIN: &str = r#"{"Data": [
        {"Answer": {"Value": "Laker"}, "Question": "Who took 19 wickets?", "QuestionId": "sfq_1", "EntityPages": []},
        {"Question": "Which \"one\"?", "QuestionId": "tc_2"}
    ], "Domain": "Wikipedia", "Version": 1.0}"#;
    const DEV: &str = r#"{"Data":[{"Question":"Why?","QuestionId":"qf_3"},{"Question":"Who took 19 wickets?","QuestionId":"sfq_1"}]}"#;
    const TASK: &str = "{\"id\":\"sfq_1\",\"output\":[{\"answer\":\"a\"}]}\n{\"id\":\"qf_3\",\"input\":null,\"x\":1}\n{\"id\":\"own\",\"input\":\"kept\"}\n";

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        let mut writer = Writer::create(&path).unwrap();
        writer.bytes(text.as_bytes()).unwrap();
        writer.finish().unwrap();
        path
    }

    fn joined(folder: &Path, task: &Path, questions: &Questions) -> Result<String> {
        let path = folder.join("out.jsonl");
        let mut writer = Writer::create(&path)?;
        join(task, questions, &mut |_, record| writer.record(record))?;
        writer.finish()?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn questions_are_joined_by_id_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [
            write(folder.path(), "wikipedia-train.json", TRAIN),
            write(folder.path(), "wikipedia-dev.json.gz", DEV),
        ];
        let task = write(folder.path(), "triviaqa-dev_id-kilt.jsonl", TASK);
        let questions = Questions::open(&paths).unwrap();
        assert_eq!(questions.len(), 3);
        let expected = "{\"id\":\"sfq_1\",\"input\":\"Who took 19 wickets?\",\"output\":[{\"answer\":\"a\"}]}\n{\"id\":\"qf_3\",\"input\":\"Why?\",\"x\":1}\n{\"id\":\"own\",\"input\":\"kept\"}\n";
        assert_eq!(joined(folder.path(), &task, &questions).unwrap(), expected);
        let copy = joined(folder.path(), &task, &Questions::default()).unwrap();
        let values = |text: &str| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(values(&copy), values(TASK));
    }

    #[test]
    fn the_published_archive_is_read_without_its_evidence_and_named_where_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        for (name, gzip) in [("triviaqa-rc.tar.gz", true), ("triviaqa-rc.tar", false)] {
            let mut builder = tar::Builder::new(Vec::new());
            for (name, text) in [
                ("evidence/wikipedia/a.json", "not JSON"),
                ("qa/wikipedia-train.json", TRAIN),
                ("README", "text"),
                ("qa/wikipedia-dev.json", DEV),
            ] {
                let mut header = tar::Header::new_gnu();
                header.set_size(text.len() as u64);
                header.set_mode(0o644);
                builder.append_data(&mut header, name, text.as_bytes()).unwrap();
            }
            let bytes = builder.into_inner().unwrap();
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).unwrap();
            if gzip {
                let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                encoder.write_all(&bytes).unwrap();
                encoder.finish().unwrap();
            } else {
                (&file).write_all(&bytes).unwrap();
            }
            let questions = Questions::open(&[&path]).unwrap();
            assert_eq!(questions.text(&Id::from(" tc_2 ")), Some("Which \"one\"?"));
            assert_eq!(questions.len(), 3);
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
            let error = Questions::open(&[&path]).unwrap_err();
            assert!(matches!(error, Error::Compressed { .. }), "{error:?}");
        }
    }

    #[test]
    fn missing_questions_are_counted_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let task = write(folder.path(), "t.jsonl", "{\"id\":\"tc_2\"}\n\n{\"id\":\"x\"}\n{\"id\":\"y\"}\n");
        let path = write(folder.path(), "train.json", TRAIN);
        let questions = Questions::open(&[&path]).unwrap();
        let message = joined(folder.path(), &task, &questions).unwrap_err().to_string();
        assert!(
            message.contains("t.jsonl:3: field `input`: 2 of 3 records without a question in "),
            "{message}"
        );
        assert!(message.ends_with("the first is `x`"), "{message}");
        assert!(!folder.path().join("out.jsonl").exists());
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            ("{\"Data\":[\n{\"QuestionId\":\"a\"}]}", "q.json:2: field `Data[0]`: missing field `Question`"),
            ("{\"Data\":[\n{\"QuestionId\":\"a\",\"Question\":7}]}", "q.json:2: field `Data[0].Question`: "),
            (
                "{\"Data\":[\n{\"QuestionId\":\"a\",\"Question\":\" \"}]}",
                "field `Data[0].Question`: expected a question for `a`",
            ),
            (
                "{\"Data\":[{\"QuestionId\":\"a\",\"Question\":\"p\"},\n{\"QuestionId\":\"a\",\"Question\":\"q\"}]}",
                "q.json:2: field `Data[1].Question`: `a` asks `q` here and `p` before",
            ),
            ("{\"data\":[]}", "field `Data`: expected an array under the key `Data`"),
            ("{\"Data\":[]}", "expected at least one question"),
        ];
        for (text, expected) in cases {
            let path = write(folder.path(), "q.json", text);
            let message = Questions::open(&[&path]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
