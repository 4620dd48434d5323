//! The choice of passages to annotate: of each system, the best passages that share words with an answer, and the gold
//! passages. The KILT paper has four systems and four passages a question.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::{
    passages::{AnswerWords, Fault, passage_of},
    sheet::{Place, Row, SheetWriter},
};
use crate::{
    Dataset, Error, Example, Id, Passage, PassageStore, Provenance, Query, Record, Result, counted,
    formats::{
        convert::passage_id,
        trec::{RankedDocument, read_rankings},
    },
    jsonl::{self, Writer},
};

/// A system whose passages are candidates.
#[derive(Clone, Debug)]
pub struct System {
    /// The name, for the key.
    pub name: String,
    /// Predictions with provenance in KILT's layout, or a run in TREC's format over passages of the store. Detected by
    /// the first character.
    pub path: PathBuf,
}

/// The parameters of a choice of candidates.
#[derive(Clone, Debug)]
pub struct CandidateRequest {
    /// The task file with answers.
    pub tasks: PathBuf,
    /// The systems, in this order.
    pub systems: Vec<System>,
    /// The number of passages of each system; 1 in the paper.
    pub per_system: usize,
    /// The number of ranks of each system to look at.
    pub depth: usize,
    /// The smallest share of an answer's words in a system's passage; 0.1 in the paper.
    pub min_overlap: f64,
    /// Whether the gold passages are candidates, as for Natural Questions in the paper. They need no overlap.
    pub with_gold: bool,
    /// The seed of the order of a record's candidates.
    pub seed: u64,
    /// The sheet to write.
    pub output: PathBuf,
    /// The key to write: the systems of each candidate, and whether it is gold. Annotators must not see it.
    pub key: Option<PathBuf>,
}

/// The counts of a choice of candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CandidateSummary {
    /// Records read.
    pub records: u64,
    /// Records without a candidate.
    pub without_candidates: u64,
    /// Rows of the sheet.
    pub rows: u64,
    /// Rows with a gold passage.
    pub gold: u64,
    /// The rows that each system chose.
    pub systems: Vec<Chosen>,
}

/// The number of candidates that a system chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// The name of the system.
    pub system: String,
    /// The number of rows.
    pub rows: u64,
}

impl fmt::Display for CandidateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, without_candidates, rows, gold, systems } = self;
        write!(f, "{} of {}, ", counted(*rows, "row"), counted(*records, "record"))?;
        write!(f, "{} without a candidate; ", counted(*without_candidates, "record"))?;
        f.write_str(&counted(*gold, "gold passage"))?;
        systems.iter().try_for_each(|chosen| write!(f, ", {} of {}", chosen.rows, chosen.system))
    }
}

/// A line of the key.
#[derive(Serialize)]
struct KeyLine<'a> {
    id: &'a Id,
    #[serde(flatten)]
    place: Place,
    gold: bool,
    /// The systems that rank it as high as their own choices.
    systems: Vec<&'a str>,
    /// The share of an answer's words that it has.
    overlap: f64,
}

/// The part of a line of the key that marks gold passages.
#[derive(Deserialize)]
struct KeyPlace {
    id: Id,
    wikipedia_id: Id,
    start_paragraph_id: u32,
    start_character: u32,
    end_paragraph_id: u32,
    end_character: u32,
    gold: bool,
}

/// The record's id and the place of each gold passage of a key.
///
/// # Errors
/// Read errors with file, line and field.
pub(super) fn gold_places(key: &Path) -> Result<FxHashSet<(String, Place)>> {
    let mut places = FxHashSet::default();
    for line in jsonl::open(key)?.records::<KeyPlace>() {
        let line = line?;
        if line.gold {
            let place = Place {
                wikipedia_id: line.wikipedia_id,
                start_paragraph_id: line.start_paragraph_id,
                start_character: line.start_character,
                end_paragraph_id: line.end_paragraph_id,
                end_character: line.end_character,
            };
            places.insert((line.id.text().into_owned(), place));
        }
    }
    Ok(places)
}

/// A candidate of a record.
struct Candidate {
    passage: Passage,
    gold: bool,
    systems: Vec<usize>,
    overlap: f64,
}

/// Writes a sheet of candidate passages for the records of a task file. Files stream. Rankings may be in another order than the
/// records; those that come too early wait in memory.
///
/// # Errors
/// [`Error::Argument`] for a wrong number and without systems; read and write errors with file, line and field: an id twice, a
/// prediction without exactly one output, a page, paragraph or passage that the store lacks. [`Error::Argument`] for a system
/// without a ranking for any record.
pub fn candidates(request: &CandidateRequest, store: &PassageStore) -> Result<CandidateSummary> {
    request.check()?;
    let mut rankings =
        request.systems.iter().map(|system| Rankings::open(&system.path)).collect::<Result<Vec<_>>>()?;
    let names = request.systems.iter().map(|system| Chosen { system: system.name.clone(), rows: 0 });
    let mut summary = CandidateSummary { systems: names.collect(), ..CandidateSummary::default() };
    let mut sheet = SheetWriter::create(&request.output)?;
    let mut key = request.key.as_deref().map(Writer::create).transpose()?;
    let dataset = request.tasks.file_name().and_then(|name| Dataset::of_file_name(&name.to_string_lossy()));
    let mut seen: FxHashMap<String, u64> = FxHashMap::default();
    for record in jsonl::open(&request.tasks)?.numbered::<Record>() {
        let (line, record) = record?;
        let id = record.id.text().into_owned();
        if let Some(first) = seen.insert(id.clone(), line) {
            return Err(Error::DuplicateId { path: request.tasks.clone(), line, first, field: "id", id });
        }
        let query = Query::from_record(&record, dataset)
            .map_err(|(field, message)| Error::record(&request.tasks, line, field, message))?;
        let example = Example { query, gold: record.output.unwrap_or_default() };
        let mut chosen = request.choose(line, &example, &mut rankings, store, &mut summary)?;
        summary.records += 1;
        summary.without_candidates += u64::from(chosen.is_empty());
        summary.rows += chosen.len() as u64;
        summary.gold += chosen.iter().filter(|candidate| candidate.gold).count() as u64;
        // The order of a record's candidates depends on no other record.
        let hash = crate::hash_json(&(request.seed, &id));
        let seed = u64::from_str_radix(hash.get(..16).unwrap_or_default(), 16).unwrap_or(request.seed);
        chosen.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let answers: Vec<String> = example.answers().into_iter().map(str::to_owned).collect();
        for candidate in chosen {
            if let Some(key) = &mut key {
                let systems = candidate.systems.iter().map(|&at| request.systems[at].name.as_str());
                key.record(&KeyLine {
                    id: &example.query.id,
                    place: Place::of(&candidate.passage),
                    gold: candidate.gold,
                    systems: systems.collect(),
                    overlap: candidate.overlap,
                })?;
            }
            sheet.row(&row(&example, &answers, candidate.passage))?;
        }
    }
    if summary.records == 0 {
        return Err(Error::Empty { path: request.tasks.clone(), what: "record" });
    }
    if let Some(ranking) = rankings.iter().find(|ranking| !ranking.is_used) {
        let (path, tasks) = (ranking.path.display(), request.tasks.display());
        let message = format!("{path}: expected a ranking for a record of {tasks}, found none");
        return Err(Error::Argument(message));
    }
    store.sound()?;
    if let Some(key) = key {
        key.finish()?;
    }
    sheet.finish()?;
    Ok(summary)
}

/// A row that waits for its vote.
fn row(example: &Example, answers: &[String], passage: Passage) -> Row {
    let place = Place::of(&passage);
    Row {
        id: example.query.id.clone(),
        input: example.query.text.clone(),
        answers: answers.to_vec(),
        wikipedia_id: place.wikipedia_id,
        start_paragraph_id: place.start_paragraph_id,
        start_character: place.start_character,
        end_paragraph_id: place.end_paragraph_id,
        end_character: place.end_character,
        title: passage.title,
        section: passage.section,
        text: passage.text,
        annotator: None,
        vote: None,
        span: None,
    }
}

impl CandidateRequest {
    fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::Argument(message));
        if self.systems.is_empty() {
            return wrong("expected at least one system, found none".to_owned());
        }
        for (at, system) in self.systems.iter().enumerate() {
            if self.systems[..at].iter().any(|earlier| earlier.name == system.name) {
                return wrong(format!("systems: expected different names, found `{}` twice", system.name));
            }
            if system.path.as_os_str() == "-" {
                return wrong(format!("system `{}`: expected a file, found standard input", system.name));
            }
        }
        if self.per_system == 0 || self.depth == 0 {
            let (passages, depth) = (self.per_system, self.depth);
            return wrong(format!(
                "expected at least one passage a system and a depth of at least 1, found {passages} and {depth}"
            ));
        }
        if !(0.0..=1.0).contains(&self.min_overlap) {
            return wrong(format!("overlap: expected a number from 0 to 1, found {}", self.min_overlap));
        }
        Ok(())
    }

    /// The candidates of a record: gold, then those of each system.
    fn choose(
        &self,
        line: u64,
        example: &Example,
        rankings: &mut [Rankings],
        store: &PassageStore,
        summary: &mut CandidateSummary,
    ) -> Result<Vec<Candidate>> {
        let words = AnswerWords::new(example.answers());
        let mut chosen: Vec<Candidate> = Vec::new();
        let gold = example.gold.iter().enumerate().filter(|_| self.with_gold);
        for (output, item, at) in gold
            .flat_map(|(at, output)| output.evidence().iter().enumerate().map(move |(i, item)| (at, item, i)))
        {
            let passage = passage_of(item, &words, store)
                .map_err(|fault| wrong(&self.tasks, line, (output, at), fault))?;
            if find(&mut chosen, &passage).is_none() {
                let overlap = words.overlap(&passage.text);
                chosen.push(Candidate { passage, gold: true, systems: Vec::new(), overlap });
            }
        }
        for (system, ranking) in rankings.iter_mut().enumerate() {
            let Some(ranked) = ranking.take(&example.query.id.text())? else { continue };
            let mut own = 0;
            for rank in 0..ranked.len().min(self.depth) {
                if own == self.per_system {
                    break;
                }
                let passage = ranked.passage(rank, &ranking.path, &words, store)?;
                let overlap = words.overlap(&passage.text);
                if overlap < self.min_overlap {
                    continue;
                }
                match find(&mut chosen, &passage) {
                    Some(known) if known.systems.contains(&system) => {}
                    Some(known) => known.systems.push(system),
                    None => {
                        own += 1;
                        summary.systems[system].rows += 1;
                        chosen.push(Candidate { passage, gold: false, systems: vec![system], overlap });
                    }
                }
            }
        }
        Ok(chosen)
    }
}

fn find<'c>(chosen: &'c mut [Candidate], passage: &Passage) -> Option<&'c mut Candidate> {
    let place = Place::of(passage);
    chosen.iter_mut().find(|known| Place::of(&known.passage) == place)
}

/// The error of an item of evidence, by the places of its output and of itself.
fn wrong(path: &Path, line: u64, (output, item): (usize, usize), (field, message): Fault) -> Error {
    Error::record(path, line, format!("output[{output}].provenance[{item}].{field}"), message)
}

/// The ranking of a record by a system, best first.
enum Ranked {
    /// A prediction and its line.
    Predicted(u64, Vec<Provenance>),
    /// The documents of a run.
    Documents(Vec<RankedDocument>),
}

impl Ranked {
    fn len(&self) -> usize {
        match self {
            Self::Predicted(_, items) => items.len(),
            Self::Documents(documents) => documents.len(),
        }
    }

    fn passage(
        &self,
        rank: usize,
        path: &Path,
        words: &AnswerWords,
        store: &PassageStore,
    ) -> Result<Passage> {
        match self {
            Self::Predicted(line, items) => {
                passage_of(&items[rank], words, store).map_err(|fault| wrong(path, *line, (0, rank), fault))
            }
            Self::Documents(documents) => {
                let RankedDocument { id, line, .. } = &documents[rank];
                Ok(store.passage(passage_id(path, (*line, false), id, store)?))
            }
        }
    }
}

/// A whole page as an item of evidence.
fn page(document: RankedDocument) -> Provenance {
    Provenance { wikipedia_id: Some(Id::Text(document.id)), ..Provenance::default() }
}

/// The rankings of a system, read as far as they were asked for.
struct Rankings {
    path: PathBuf,
    rest: Box<dyn Iterator<Item = Result<(String, Ranked)>>>,
    /// Rankings of records that were not asked for yet.
    waiting: FxHashMap<String, Ranked>,
    is_used: bool,
}

impl Rankings {
    fn open(path: &Path) -> Result<Self> {
        let is_json = match jsonl::open(path)?.next_line()? {
            Some((_, line)) => line.trim_ascii_start().starts_with(b"{"),
            None => return Err(Error::Empty { path: path.to_owned(), what: "ranking" }),
        };
        let rest: Box<dyn Iterator<Item = Result<(String, Ranked)>>> = if is_json {
            Box::new(predictions(path)?)
        } else {
            Box::new(read_rankings(path)?.map(|ranking| {
                ranking.map(|ranking| {
                    let ranked = match ranking.of_pages {
                        true => {
                            Ranked::Predicted(ranking.line, ranking.documents.into_iter().map(page).collect())
                        }
                        false => Ranked::Documents(ranking.documents),
                    };
                    (ranking.query.trim().to_owned(), ranked)
                })
            }))
        };
        Ok(Self { path: path.to_owned(), rest, waiting: FxHashMap::default(), is_used: false })
    }

    /// The ranking of a record, if there is one.
    fn take(&mut self, id: &str) -> Result<Option<Ranked>> {
        let mut found = self.waiting.remove(id);
        while found.is_none() {
            let Some(next) = self.rest.next() else { break };
            let (other, ranked) = next?;
            if other == id {
                found = Some(ranked);
            } else {
                self.waiting.insert(other, ranked);
            }
        }
        self.is_used |= found.is_some();
        Ok(found)
    }
}

/// The evidence of predictions with their ids.
fn predictions(path: &Path) -> Result<impl Iterator<Item = Result<(String, Ranked)>> + use<>> {
    let records = jsonl::open(path)?.numbered::<Record>();
    let path = path.to_owned();
    let mut seen: FxHashMap<String, u64> = FxHashMap::default();
    Ok(records.map(move |record| {
        let (line, record) = record?;
        let id = record.id.text().into_owned();
        if let Some(first) = seen.insert(id.clone(), line) {
            return Err(Error::DuplicateId { path: path.clone(), line, first, field: "id", id });
        }
        let count = record.outputs().len();
        match record.output.and_then(|mut outputs| outputs.pop()) {
            Some(output) if count == 1 => {
                Ok((id, Ranked::Predicted(line, output.provenance.unwrap_or_default())))
            }
            _ => {
                let message = format!("expected exactly one output, found {count}");
                Err(Error::record(&path, line, "output", message))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{passages::tests::store, sheet},
        *,
    };
    use crate::PassageSplit;

    const TASKS: &str = r#"{"id":"a","input":"capital?","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"2"}]}]}
{"id":"b","input":"town?","output":[{"answer":"Bergen"}]}
"#;

    /// Passages 0 to 2 are the paragraphs of page 1, 3 is that of page 2.
    fn request(folder: &Path) -> CandidateRequest {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        // The first system ranks b before a, the second has nothing for b.
        let predictions = r#"{"id":"b","output":[{"answer":"","provenance":[{"wikipedia_id":"1"}]}]}
{"id":"a","output":[{"answer":"","provenance":[{"wikipedia_id":"2"},{"wikipedia_id":"1","start_paragraph_id":2,"start_character":0,"end_paragraph_id":2,"end_character":20}]}]}
"#;
        let run = "a Q0 1 1 3.0 t\na Q0 0 2 2.0 t\na Q0 3 3 1.0 t\n";
        let system = |name: &str, path| System { name: name.into(), path };
        CandidateRequest {
            tasks: write("nq-dev-kilt.jsonl", TASKS),
            systems: vec![
                system("pages", write("p.jsonl", predictions)),
                system("run", write("r.trec", run)),
            ],
            per_system: 1,
            depth: 10,
            min_overlap: 0.1,
            with_gold: true,
            seed: 7,
            output: folder.join("sheet.jsonl"),
            key: Some(folder.join("key.jsonl")),
        }
    }

    #[test]
    fn candidates_are_gold_and_the_best_overlapping_passages_of_each_system() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let request = request(folder.path());
        let summary = candidates(&request, &store).unwrap();
        let rows: Vec<Row> = sheet::read(&request.output).unwrap().map(|row| row.unwrap().1).collect();
        let mut texts: Vec<(String, &str)> =
            rows.iter().map(|row| (row.id.text().into_owned(), row.text.as_str())).collect();
        texts.sort();
        // The run's passages 1 and 3 are candidates already, passage 0 has no word of the answer.
        let expected = [("a", "Its capital is Oslo."), ("a", "Oslo lies by a fjord."), ("b", "Bergen")];
        assert_eq!(texts, expected.map(|(id, text)| (id.to_owned(), text)));
        assert!(rows.iter().all(|row| row.vote.is_none()));
        let chosen = |system: &str, rows| Chosen { system: system.into(), rows };
        let expected = CandidateSummary {
            records: 2,
            without_candidates: 0,
            rows: 3,
            gold: 1,
            systems: vec![chosen("pages", 2), chosen("run", 0)],
        };
        assert_eq!(summary, expected);
        let key = std::fs::read_to_string(folder.path().join("key.jsonl")).unwrap();
        let gold = key.lines().find(|line| line.contains(r#""gold":true"#)).unwrap();
        assert!(
            gold.contains(r#""wikipedia_id":"2""#) && gold.contains(r#""systems":["pages","run"]"#),
            "{gold}"
        );
        assert!(gold.ends_with(r#""overlap":1.0}"#), "{gold}");
        let places = gold_places(&folder.path().join("key.jsonl")).unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.id.to_string(), row.place())).collect();
        let gold: Vec<_> =
            found.iter().filter(|&place| places.contains(place)).map(|(id, _)| id.as_str()).collect();
        assert_eq!((places.len(), gold), (1, vec!["a"]));
    }

    #[test]
    fn without_gold_and_overlap_each_system_gives_its_best_passages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let request = CandidateRequest { with_gold: false, min_overlap: 0.0, ..request(folder.path()) };
        let summary = candidates(&request, &store).unwrap();
        // Of a: passage 3 of the first system, passage 1 of the second. Of b: the best passage of the page.
        assert_eq!((summary.rows, summary.gold), (3, 0));
        assert_eq!((summary.systems[0].rows, summary.systems[1].rows), (2, 1));
    }

    #[test]
    fn the_seed_decides_the_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let order = |seed| {
            let request =
                CandidateRequest { seed, min_overlap: 0.0, per_system: 2, ..request(folder.path()) };
            candidates(&request, &store).unwrap();
            std::fs::read_to_string(&request.output).unwrap()
        };
        assert_eq!(order(3), order(3));
        let orders: std::collections::BTreeSet<String> = (0..20).map(order).collect();
        assert!(orders.len() > 1);
    }

    #[test]
    fn wrong_inputs_name_their_place_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let twice = format!("{TASKS}{TASKS}");
        let cases = [
            (
                0,
                "{\"id\":\"a\",\"output\":[]}\n",
                "p.jsonl:1: field `output`: expected exactly one output, found 0",
            ),
            (
                0,
                "{\"id\":\"a\",\"output\":[{\"provenance\":[{\"wikipedia_id\":\"9\"}]}]}\n",
                "p.jsonl:1: field `output[0].provenance[0].wikipedia_id`: expected a page of the store, found `9`",
            ),
            (
                0,
                "{\"id\":\"zz\",\"output\":[{\"provenance\":[]}]}\n",
                "p.jsonl: expected a ranking for a record of",
            ),
            (1, "a Q0 99 1 3.0 t\n", "r.trec:1: field `document`: expected a passage of the store"),
            (1, "\n", "r.trec: expected at least one ranking, found none"),
            (2, twice.as_str(), "nq-dev-kilt.jsonl:3: field `id`: `a` stands on line 1 already"),
            (2, "{\"id\":\"a\"}\n", "nq-dev-kilt.jsonl:1: field `input`"),
        ];
        for (file, text, expected) in cases {
            let request = request(folder.path());
            let path = if file == 2 { &request.tasks } else { &request.systems[file].path };
            std::fs::write(path, text).unwrap();
            let message = candidates(&request, &store).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
            assert!(!request.output.exists() && !folder.path().join("key.jsonl").exists());
        }
        let request = CandidateRequest { min_overlap: 1.5, ..request(folder.path()) };
        assert!(candidates(&request, &store).unwrap_err().to_string().contains("found 1.5"));
    }
}
