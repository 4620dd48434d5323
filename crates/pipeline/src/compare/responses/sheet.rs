//! Sheets for annotators: a table, the same as a page, and the key.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use sporran_kilt::{Error as KiltError, Id, Record, StagedFolder, counted, csv, hash_json, jsonl};

use super::{DIMENSIONS, Key, KeyRow, ROW, SHEET, VoteKind};
use crate::{Result, html, workflows::knowledge_selection::WITHOUT_SENTENCE};

/// A sheet to write.
#[derive(Clone, Debug)]
pub struct SheetOptions {
    /// The predictions of both systems in KILT's layout. Both have the same ids.
    pub predictions: [PathBuf; 2],
    /// The names of the systems, which only the key has.
    pub names: [String; 2],
    /// What annotators vote on.
    pub kind: VoteKind,
    /// The number of records in the sheet, a random sample. The default is all.
    pub limit: Option<usize>,
    /// The seed of the sample and of all orders.
    pub seed: u64,
}

/// A written sheet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sheet {
    /// The folder, with `sheet.csv`, `sheet.html` and `key.json`.
    pub folder: PathBuf,
    /// The code of the sheet.
    pub sheet: String,
    /// The number of records.
    pub records: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of records that are left out, because a system had no sentence for its response.
    pub left_out: usize,
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        write!(
            f,
            "{} for {}: {folder}/sheet.csv and {folder}/sheet.html",
            counted(self.rows as u64, "row"),
            counted(self.records as u64, "record")
        )?;
        if self.left_out > 0 {
            write!(f, "\nleft out: {} without a sentence", counted(self.left_out as u64, "record"))?;
        }
        write!(f, "\nkeep {folder}/key.json from the annotators")
    }
}

/// A record with the response of each system.
struct Item {
    id: Id,
    context: String,
    responses: [String; 2],
}

/// A row as annotators see it.
#[derive(Serialize)]
struct Shown<'a> {
    row: usize,
    context: &'a str,
    responses: Vec<&'a str>,
}

/// The content of the page.
#[derive(Serialize)]
struct Content<'a> {
    sheet: &'a str,
    rows: &'a [Shown<'a>],
    dimensions: [&'static str; 2],
    votes: [&'static str; 3],
    is_rating: bool,
}

/// Writes a sheet into a new folder.
///
/// # Errors
/// Errors of the files, with line and field: a record without an id, an input or an answer, an id twice, another input of the
/// same id; [`KiltError::MissingPrediction`] for an id that only one file has; an error for a folder that exists.
pub fn write_sheet(options: &SheetOptions, folder: &Path) -> Result<Sheet> {
    if folder.exists() {
        let message =
            format!("{}: expected a new folder for the sheet, found an existing one", folder.display());
        return Err(KiltError::Argument(message).into());
    }
    if options.names[0] == options.names[1] {
        let message = format!("expected two names of systems, found `{}` twice", options.names[0]);
        return Err(KiltError::Argument(message).into());
    }
    let (mut items, left_out) = items(&options.predictions)?;
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    items.shuffle(&mut random);
    items.truncate(options.limit.unwrap_or(usize::MAX));
    let mut orders: Vec<(usize, Vec<usize>)> = match options.kind {
        VoteKind::Preference => (0..items.len())
            .map(|item| (item, if random.random_bool(0.5) { vec![0, 1] } else { vec![1, 0] }))
            .collect(),
        VoteKind::Rating => (0..items.len()).flat_map(|item| [(item, vec![0]), (item, vec![1])]).collect(),
    };
    if options.kind == VoteKind::Rating {
        orders.shuffle(&mut random);
    }
    let rows: Vec<Shown<'_>> = (1..)
        .zip(&orders)
        .map(|(row, (item, systems))| Shown {
            row,
            context: &items[*item].context,
            responses: systems.iter().map(|system| items[*item].responses[*system].as_str()).collect(),
        })
        .collect();
    let sheet = hash_json(&(options.kind, &rows))[..8].to_owned();
    let key = Key {
        sheet: sheet.clone(),
        kind: options.kind,
        seed: options.seed,
        systems: options.names.clone(),
        files: options.predictions.clone(),
        rows: orders
            .iter()
            .map(|(item, systems)| KeyRow { id: items[*item].id.clone(), systems: systems.clone() })
            .collect(),
    };
    let content = Content {
        sheet: &sheet,
        rows: &rows,
        dimensions: DIMENSIONS,
        votes: options.kind.votes(),
        is_rating: options.kind == VoteKind::Rating,
    };
    let staged = StagedFolder::create(folder)?;
    let path = |name: &str| staged.path().join(name);
    jsonl::write(path("sheet.csv"), table(&sheet, &rows, options.kind).as_bytes())?;
    jsonl::write(path("sheet.html"), html::page("Responses", html::SHEET, &content).as_bytes())?;
    jsonl::write_json(path("key.json"), &key)?;
    staged.commit()?;
    Ok(Sheet { folder: folder.to_owned(), sheet, records: items.len(), rows: rows.len(), left_out })
}

/// The table. It begins with a byte order mark, without which spreadsheets read UTF-8 as another encoding.
fn table(sheet: &str, rows: &[Shown<'_>], kind: VoteKind) -> String {
    let responses: &[&str] = match kind {
        VoteKind::Preference => &["response 1", "response 2"],
        VoteKind::Rating => &["response"],
    };
    let header: Vec<&str> =
        [SHEET, ROW, "context"].iter().chain(responses).chain(&DIMENSIONS).copied().collect();
    let mut text = format!("\u{feff}{}", csv::line(&header));
    for Shown { row, context, responses } in rows {
        let row = row.to_string();
        let cells = [sheet, row.as_str(), context].into_iter().chain(responses.iter().copied());
        let cells: Vec<&str> = cells.chain(DIMENSIONS.map(|_| "")).collect();
        text.push_str(&csv::line(&cells));
    }
    text
}

/// The records of both files by id, in the order of the first file, and the number of those that are left out because a response
/// has no sentence.
fn items(paths: &[PathBuf; 2]) -> Result<(Vec<Item>, usize)> {
    let first = answered(&paths[0])?;
    let second = answered(&paths[1])?;
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for (at, answer) in second.iter().enumerate() {
        places.insert(answer.id.text().into_owned(), at);
    }
    let known: FxHashSet<String> = first.iter().map(|answer| answer.id.text().into_owned()).collect();
    let lacking = |path: &Path, ids: Vec<String>| match ids.first() {
        Some(id) => Err(KiltError::MissingPrediction { path: path.into(), id: id.clone(), count: ids.len() }),
        None => Ok(()),
    };
    let of_first = first.iter().map(|answer| answer.id.text().into_owned());
    lacking(&paths[1], of_first.filter(|id| !places.contains_key(id)).collect())?;
    let of_second = second.iter().map(|answer| answer.id.text().into_owned());
    lacking(&paths[0], of_second.filter(|id| !known.contains(id)).collect())?;
    let mut items = Vec::with_capacity(first.len());
    let mut left_out = 0;
    for answer in first {
        let other = &second[places[answer.id.text().as_ref()]];
        if answer.lacks_sentence || other.lacks_sentence {
            left_out += 1;
            continue;
        }
        let context = match (answer.input, &other.input) {
            (Some(input), Some(other_input)) if input != *other_input => {
                let message =
                    format!("expected the input of the same id in {}, found another", paths[0].display());
                return Err(KiltError::record(&paths[1], other.line, "input", message).into());
            }
            (Some(input), _) => input,
            (None, Some(input)) => input.clone(),
            (None, None) => {
                let message = "expected the context of the response, found none";
                return Err(KiltError::record(&paths[0], answer.line, "input", message).into());
            }
        };
        items.push(Item { id: answer.id, context, responses: [answer.response, other.response.clone()] });
    }
    if items.is_empty() {
        let what = if left_out > 0 { "record with a sentence" } else { "record" };
        return Err(KiltError::Empty { path: paths[0].clone(), what }.into());
    }
    Ok((items, left_out))
}

/// A prediction with its line.
struct Answered {
    line: u64,
    id: Id,
    input: Option<String>,
    response: String,
    /// Whether the dialogue had no sentence for the generator.
    lacks_sentence: bool,
}

fn answered(path: &Path) -> Result<Vec<Answered>> {
    let mut lines: FxHashMap<String, u64> = FxHashMap::default();
    let mut found = Vec::new();
    for record in jsonl::open(path)?.numbered::<Record>() {
        let (line, record) = record?;
        let Some(response) = record.outputs().first().and_then(|output| output.answer.clone()) else {
            let message = "expected the response, found none";
            return Err(KiltError::record(path, line, "output[0].answer", message).into());
        };
        let id = record.id.text().into_owned();
        if let Some(first) = lines.insert(id.clone(), line) {
            return Err(KiltError::DuplicateId { path: path.into(), line, first, field: "id", id }.into());
        }
        let lacks_sentence = record.meta.as_ref().is_some_and(|meta| meta[WITHOUT_SENTENCE] == true);
        found.push(Answered { line, id: record.id, input: record.input, response, lacks_sentence });
    }
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two files of predictions and the options of a sheet of them. The response of system `s` to dialogue `i` is `s-i`.
    pub(crate) fn options(folder: &Path, count: usize, kind: VoteKind) -> SheetOptions {
        let predictions = ["a", "b"].map(|system| {
            let path = folder.join(format!("{system}.jsonl"));
            let line = |at: usize| {
                format!(r#"{{"id":"d{at}","input":"turn {at}\nnext, <b>","output":[{{"answer":"{system}-{at}"}}]}}"#)
            };
            std::fs::write(&path, (0..count).map(line).collect::<Vec<_>>().join("\n")).unwrap();
            path
        });
        let names = ["tf-idf", "reranker"].map(str::to_owned);
        SheetOptions { predictions, names, kind, limit: None, seed: 3 }
    }

    fn read_key(folder: &Path) -> Key {
        jsonl::read_json(folder.join("key.json")).unwrap()
    }

    #[test]
    fn a_row_has_both_responses_in_the_order_of_the_key() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("sheet");
        let written = write_sheet(&options(place.path(), 40, VoteKind::Preference), &folder).unwrap();
        assert_eq!((written.records, written.rows), (40, 40));
        let key = read_key(&folder);
        let table = csv::Table::read(folder.join("sheet.csv")).unwrap();
        let column = |name: &str| table.column(name).unwrap();
        let mut firsts = 0;
        for (row, of_key) in table.rows().iter().zip(&key.rows) {
            let number = of_key.id.text().trim_start_matches('d').to_owned();
            assert_eq!(row.cell(column("context")), format!("turn {number}\nnext, <b>"));
            for (shown, system) in of_key.systems.iter().enumerate() {
                let name = ["a", "b"][*system];
                assert_eq!(row.cell(column(&format!("response {}", shown + 1))), format!("{name}-{number}"));
            }
            firsts += usize::from(of_key.systems == [0, 1]);
            assert_eq!(
                (row.cell(column("sheet")), row.cell(column("informative"))),
                (written.sheet.as_str(), "")
            );
        }
        // 40 fair coins: 8 to 32 with a probability of more than 0.9998.
        assert!((8..=32).contains(&firsts), "{firsts}");
        let page = std::fs::read_to_string(folder.join("sheet.html")).unwrap();
        assert!(page.contains("next, &lt;b&gt;") && page.contains(&written.sheet));
        for foreign in ["http", "src=", "@import", "tf-idf", "reranker", "a.jsonl"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(!std::fs::read_to_string(folder.join("sheet.csv")).unwrap().contains("reranker"));
    }

    #[test]
    fn ratings_have_a_row_for_each_response_and_a_seed_gives_the_same_sheet() {
        let place = tempfile::tempdir().unwrap();
        let mut options = options(place.path(), 9, VoteKind::Rating);
        options.limit = Some(5);
        let [one, two, three] = ["1", "2", "3"].map(|name| place.path().join(name));
        let written = write_sheet(&options, &one).unwrap();
        assert_eq!((written.records, written.rows), (5, 10));
        let key = read_key(&one);
        let mut shown: Vec<(String, usize)> =
            key.rows.iter().map(|row| (row.id.text().into_owned(), row.systems[0])).collect();
        assert!(!shown.is_sorted());
        shown.sort();
        shown.dedup();
        assert_eq!(shown.len(), 10);
        assert_eq!(write_sheet(&options, &two).unwrap().sheet, written.sheet);
        options.seed = 4;
        assert_ne!(write_sheet(&options, &three).unwrap().sheet, written.sheet);
        // An existing folder can have filled sheets.
        assert!(write_sheet(&options, &three).unwrap_err().to_string().contains("expected a new folder"));
    }

    #[test]
    fn records_without_a_sentence_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let options = options(place.path(), 3, VoteKind::Rating);
        let text = std::fs::read_to_string(&options.predictions[1]).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let without = |line: &str| line.replacen('{', r#"{"meta":{"without_sentence":true},"#, 1);
        std::fs::write(
            &options.predictions[1],
            [&without(&lines[0]), &lines[1], &lines[2]].map(String::as_str).join("\n"),
        )
        .unwrap();
        let written = write_sheet(&options, &place.path().join("sheet")).unwrap();
        assert_eq!((written.records, written.rows, written.left_out), (2, 4, 1));
        assert!(written.to_string().contains("left out: 1 record without a sentence"), "{written}");
        assert!(read_key(&place.path().join("sheet")).rows.iter().all(|row| row.id.text() != "d0"));
        std::fs::write(
            &options.predictions[1],
            lines.iter().map(|line| without(line)).collect::<Vec<_>>().join("\n"),
        )
        .unwrap();
        let error = write_sheet(&options, &place.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("record with a sentence"), "{error}");
    }

    #[test]
    fn files_that_do_not_fit_are_refused_with_line_and_field() {
        let place = tempfile::tempdir().unwrap();
        let options = options(place.path(), 2, VoteKind::Preference);
        let error = |second: &str| {
            std::fs::write(&options.predictions[1], second).unwrap();
            let folder = place.path().join("sheet");
            let message = write_sheet(&options, &folder).unwrap_err().to_string();
            assert!(!folder.exists());
            message
        };
        let line = |id: &str, rest: &str| format!("{{\"id\":\"{id}\"{rest}}}\n");
        let answer = ",\"output\":[{\"answer\":\"x\"}]";
        let one = line("d0", answer);
        assert!(error(&one).contains("b.jsonl: no prediction for id `d1` (1 of"));
        let three = format!("{one}{}{}", line("d1", answer), line("d2", answer));
        assert!(error(&three).contains("a.jsonl: no prediction for id `d2`"));
        assert!(error(&format!("{one}{}", line("d1", ""))).contains("b.jsonl:2: field `output[0].answer`"));
        assert!(error(&format!("{one}{one}")).contains("b.jsonl:2: field `id`: `d0` stands on line 1"));
        let other = format!("{one}{}", line("d1", &format!(",\"input\":\"another\"{answer}")));
        assert!(error(&other).contains("b.jsonl:2: field `input`: expected the input of the same id"));
    }
}
