//! Predicted evidence against gold evidence, as in KILT's `eval_retrieval`; page level and finer in one pass.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use memchr::memmem;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    PerRecord,
    aligned::{self, Aligned, Columns, Fault, Scoring},
    answer::{self, Answers, push_normalised},
    depth::Depth,
    kilt::{HELD, gold_outputs},
    line::{Field, Line, Output, Rows},
    provenance::{Evidence, RankKeys},
    trim,
};
use crate::{Error, Result};

/// The options of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Depths of the rank, each at least 1.
    pub ks: Vec<usize>,
    /// The kinds of evidence to score, in one pass.
    pub rank_keys: Vec<RankKeys>,
}

impl Default for Options {
    /// Pages, at 1, 5, 10 and 20, as in KILT.
    fn default() -> Self {
        Self { ks: vec![1, 5, 10, 20], rank_keys: vec![RankKeys::page()] }
    }
}

/// The flat report of one kind of evidence; serialises as one object of names and means.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The fields of a rank key.
    pub rank_keys: RankKeys,
    /// `Rprec`, `entity_in_input` and then the scores at each k, with their means.
    pub scores: Vec<(String, f64)>,
}

impl Report {
    /// A score's mean, `None` if there is none of that name.
    pub fn score(&self, name: &str) -> Option<f64> {
        self.scores.iter().find(|(known, _)| known == name).map(|&(_, mean)| mean)
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.scores.len()))?;
        for (name, mean) in &self.scores {
            map.serialize_entry(name, mean)?;
        }
        map.end()
    }
}

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The means and the scores of each record under the report's names, in the order of the rank keys.
    pub reports: Vec<(Report, PerRecord)>,
    /// The number of predicted items, compared with the requested depths, in the order of the rank keys.
    pub depths: Vec<Depth>,
    /// Ids of predictions without a gold record; they are not scored.
    pub unknown: Vec<String>,
}

/// Scores evidence alone, at several levels in one pass: KILT's `eval_retrieval`.
///
/// Predicted outputs without the field `provenance` are dropped first. Exactly one must remain.
///
/// ```
/// use sporran_kilt::scores::retrieval;
///
/// let folder = tempfile::tempdir()?;
/// let (gold, guess) = (folder.path().join("gold.jsonl"), folder.path().join("guess.jsonl"));
/// std::fs::write(&gold, r#"{"id": "q", "output": [{"answer": "Oslo", "provenance": [{"wikipedia_id": "1"}]}]}"#)?;
/// let ranking = r#"{"id": "q", "output": [{"provenance": [{"wikipedia_id": "2"}, {"wikipedia_id": "1"}]}]}"#;
/// std::fs::write(&guess, ranking)?;
///
/// let evaluation = retrieval::evaluate(&gold, &guess, &retrieval::Options::default())?;
/// let (report, _records) = &evaluation.reports[0];
/// assert_eq!((report.score("Rprec"), report.score("recall@5")), (Some(0.0), Some(1.0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a k of 0 or without any rank key or k; a duplicate id in either file, a gold id without a
/// prediction, a gold record without the field `output`, a prediction without exactly one output with `provenance`, a field
/// of a rank key that no gold provenance has, and read errors.
pub fn evaluate(gold: impl AsRef<Path>, guess: impl AsRef<Path>, options: &Options) -> Result<Evaluation> {
    let mut columns = Columns::new(true);
    let scoring = EvidenceScoring::new(options, &mut columns)?;
    let Aligned { records, unknown } = aligned::score(gold.as_ref(), guess.as_ref(), &scoring, &columns)?;
    scoring.evaluation(options, &records, unknown)
}

pub(super) struct EvidenceScoring {
    ks: Vec<usize>,
    /// For each kind of evidence the columns of its rank key, the same in gold and predictions.
    columns: Vec<Vec<usize>>,
    /// Whether a gold record has evidence.
    has_evidence: AtomicBool,
    /// For each of `columns`, whether an item of gold evidence has that field.
    held: Vec<Vec<AtomicBool>>,
    /// Of predictions.
    text: usize,
    /// Of gold.
    title: usize,
}

pub(super) struct GoldEvidence {
    levels: Box<[Evidence]>,
    /// Normalised titles of the gold pages.
    titles: Box<[Box<[u8]>]>,
    entity_in_input: bool,
}

/// The depth in the context at which something is found, counted from 1.
#[derive(Default)]
struct Depths {
    answer: Option<usize>,
    entity: Option<usize>,
    both: Option<usize>,
}

impl EvidenceScoring {
    /// # Errors
    /// [`Error::Argument`] for a k of 0 or without any rank key or k.
    pub(super) fn new(options: &Options, columns: &mut Columns) -> Result<Self> {
        let mut ks = options.ks.clone();
        ks.sort_unstable();
        ks.dedup();
        if ks.first().is_none_or(|&least| least == 0) {
            return Err(Error::Argument(format!(
                "ks: expected depths of at least 1, found {:?}",
                options.ks
            )));
        }
        if options.rank_keys.is_empty() {
            return Err(Error::Argument("rank-keys: expected at least one, found none".into()));
        }
        let keys = options.rank_keys.iter();
        let shared: Vec<Vec<usize>> =
            keys.map(|keys| keys.names().iter().map(|name| columns.shared(name)).collect()).collect();
        let (text, title) = (columns.guess.column("text"), columns.gold.column("title"));
        let held =
            shared.iter().map(|columns| columns.iter().map(|_| AtomicBool::default()).collect()).collect();
        Ok(Self { ks, columns: shared, has_evidence: AtomicBool::default(), held, text, title })
    }

    /// The means of the values.
    ///
    /// # Errors
    /// [`Error::Argument`] for a field of a rank key that no item of gold evidence has: every score would be 0.
    pub(super) fn evaluation(
        &self,
        options: &Options,
        records: &PerRecord,
        unknown: Vec<String>,
    ) -> Result<Evaluation> {
        self.check_held(options)?;
        let names = self.level_names();
        // The number of predicted items follows the scores of a level.
        let width = names.len() + 1;
        let (mut reports, mut depths) = (Vec::new(), Vec::new());
        for (level, rank_keys) in options.rank_keys.iter().enumerate() {
            let start = level * width;
            depths.push(Depth::new(records.at(start + names.len()), &self.ks));
            let records = records.select(start..start + names.len(), names.clone());
            let scores =
                names.iter().cloned().enumerate().map(|(at, name)| (name, records.mean_at(at))).collect();
            reports.push((Report { rank_keys: rank_keys.clone(), scores }, records));
        }
        Ok(Evaluation { reports, depths, unknown })
    }

    fn check_held(&self, options: &Options) -> Result<()> {
        if !self.has_evidence.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (keys, held) in options.rank_keys.iter().zip(&self.held) {
            let missing = keys.names().iter().zip(held).find(|(_, held)| !held.load(Ordering::Relaxed));
            if let Some((name, _)) = missing {
                return Err(Error::Argument(format!("rank-keys: no gold provenance has the field `{name}`")));
            }
        }
        Ok(())
    }

    /// Notes which fields of the rank keys the items of gold evidence have.
    fn note_held<'l, 'a: 'l>(&self, rows: impl Iterator<Item = &'l [Field<'a>]>) {
        for row in rows {
            if !self.has_evidence.load(Ordering::Relaxed) {
                self.has_evidence.store(true, Ordering::Relaxed);
            }
            for (columns, held) in self.columns.iter().zip(&self.held) {
                for (&column, held) in columns.iter().zip(held) {
                    // Most rows change nothing, and a load does not take the line from another core.
                    if row[column].key().is_some() && !held.load(Ordering::Relaxed) {
                        held.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// The names for one kind of evidence.
    fn level_names(&self) -> Vec<String> {
        let mut names = vec!["Rprec".to_owned(), "entity_in_input".to_owned()];
        for &k in &self.ks {
            names.push(format!("precision@{k}"));
            names.push(format!("answer_in_context@{k}"));
            names.push(format!("answer_and_ent_in_context@{k}"));
            names.push(format!("entity_in_context@{k}"));
            if k > 1 {
                names.push(format!("recall@{k}"));
                names.push(format!("success_rate@{k}"));
            }
        }
        names
    }

    fn depths(
        &self,
        answers: &Answers,
        gold: &GoldEvidence,
        output: Output<'_, '_>,
        haystack: &mut Haystack,
    ) -> Depths {
        let mut depths = Depths::default();
        let deepest = self.ks.last().copied().unwrap_or_default();
        let rows = output.provenance.into_iter().flat_map(Rows::iter);
        for (depth, row) in (1..=deepest).zip(rows) {
            let Some(text) = row[self.text].text() else { continue };
            let text = haystack.read(text);
            let answer = answers.normalised().any(|answer| text.contains(answer));
            let entity = gold.titles.iter().any(|title| text.contains(title));
            if answer {
                depths.answer.get_or_insert(depth);
            }
            if entity {
                depths.entity.get_or_insert(depth);
            }
            if answer && entity {
                depths.both = Some(depth);
                break;
            }
        }
        depths
    }

    /// The stored part of a gold record, without its answers.
    pub(super) fn gold_evidence(
        &self,
        line: &Line<'_>,
        haystack: &mut Haystack,
    ) -> Result<GoldEvidence, Fault> {
        let rows = gold_outputs(line)?.filter_map(|output| output.provenance);
        self.note_held(rows.clone().flat_map(Rows::iter));
        let mut titles: Vec<Box<[u8]>> = Vec::new();
        for title in rows.clone().flat_map(Rows::iter).filter_map(|row| row[self.title].text()) {
            if !trim(title).is_empty() {
                let text = &mut haystack.text;
                text.clear();
                push_normalised(title, text);
                if titles.iter().all(|known| **known != **text) {
                    titles.push(text.as_slice().into());
                }
            }
        }
        let input = line.input.as_deref().filter(|_| !titles.is_empty());
        let entity_in_input = input.is_some_and(|input| {
            let text = &mut haystack.text;
            text.clear();
            push_normalised(input, text);
            titles.iter().any(|title| memmem::find(text, title).is_some())
        });
        Ok(GoldEvidence {
            levels: self.columns.iter().map(|columns| Evidence::from_rows(rows.clone(), columns)).collect(),
            entity_in_input,
            titles: titles.into(),
        })
    }

    /// Computes the values of a record.
    pub(super) fn figures(
        &self,
        answers: &Answers,
        gold: &GoldEvidence,
        guess: &Line<'_>,
        haystack: &mut Haystack,
        row: &mut [f64],
    ) -> Result<(), Fault> {
        let outputs = guess.outputs().into_iter().flatten().filter(|output| output.provenance.is_some());
        let mut first = outputs.clone();
        let (Some(output), None) = (first.next(), first.next()) else {
            let found = outputs.count();
            return Err((
                "output".into(),
                format!("expected exactly one output with provenance, found {found}"),
            ));
        };
        let depths = self.depths(answers, gold, output, haystack);
        let flag =
            |depth: Option<usize>, k: usize| if depth.is_some_and(|depth| depth <= k) { 1.0 } else { 0.0 };
        let mut places = row.iter_mut();
        let mut put = |figures: &[f64]| {
            figures.iter().zip(&mut places).for_each(|(&figure, place)| *place = figure);
        };
        for (evidence, columns) in gold.levels.iter().zip(&self.columns) {
            let rank = evidence.rank_rows(output.provenance, columns);
            put(&[rank.r_precision, if gold.entity_in_input { 1.0 } else { 0.0 }]);
            for &k in &self.ks {
                put(&[
                    rank.precision(k),
                    flag(depths.answer, k),
                    flag(depths.both, k),
                    flag(depths.entity, k),
                ]);
                if k > 1 {
                    put(&[rank.recall(k), rank.success(k)]);
                }
            }
            put(&[rank.held as f64]);
        }
        Ok(())
    }
}

/// Reusable buffers for scoring.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) haystack: Haystack,
    pub(super) answers: answer::Buffers,
}

/// A normalised text in which several short ones are searched.
pub(super) struct Haystack {
    text: Vec<u8>,
    /// Whether the text has a pair of neighbouring bytes, at [`place`](Self::place). Most short texts have a
    /// pair that the long text lacks, and this check is cheaper than preparing a search.
    pairs: [bool; 1024],
}

impl Default for Haystack {
    fn default() -> Self {
        Self { text: Vec::new(), pairs: [false; 1024] }
    }
}

impl Haystack {
    fn read(&mut self, text: &str) -> &Self {
        self.text.clear();
        push_normalised(text, &mut self.text);
        self.pairs.fill(false);
        for pair in self.text.windows(2) {
            self.pairs[Self::place(pair)] = true;
        }
        self
    }

    /// Equal pairs have equal indices; different pairs of letters have different ones.
    fn place(pair: &[u8]) -> usize {
        usize::from(pair[0] & 31) << 5 | usize::from(pair[1] & 31)
    }

    fn contains(&self, needle: &[u8]) -> bool {
        let may = needle.windows(2).all(|pair| self.pairs[Self::place(pair)]);
        may && memmem::find(&self.text, needle).is_some()
    }
}

impl Scoring for EvidenceScoring {
    type Gold = (Answers, GoldEvidence);
    type Buffers = Buffers;

    fn names(&self) -> Vec<String> {
        let level = || self.level_names().into_iter().chain([HELD.to_owned()]);
        self.columns.iter().flat_map(|_| level()).collect()
    }

    fn gold(&self, line: &Line<'_>, buffers: &mut Buffers) -> Result<Self::Gold, Fault> {
        let answers = gold_outputs(line)?.filter_map(|output| output.answer.text());
        let answers = Answers::new_in(answers, &mut buffers.answers);
        Ok((answers, self.gold_evidence(line, &mut buffers.haystack)?))
    }

    fn score(
        &self,
        (answers, evidence): &Self::Gold,
        guess: &Line<'_>,
        buffers: &mut Buffers,
        row: &mut [f64],
    ) -> Result<(), Fault> {
        self.figures(answers, evidence, guess, &mut buffers.haystack, row)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::kilt::tests::{GOLD, files},
        *,
    };

    #[test]
    fn context_is_read_to_the_depth_of_each_k() {
        let guess = r#"{"id": 1, "output": [{"answer": "x"}, {"provenance": [{"wikipedia_id": 5}, {"wikipedia_id": 9, "text": "the Ann"}, {"wikipedia_id": 10, "text": "ann of rome"}]}]}
{"id": "b", "output": [{"provenance": []}]}
"#;
        let (_folder, gold, guess) = files(GOLD, guess);
        let options = Options {
            ks: vec![5, 1, 2],
            rank_keys: vec![RankKeys::page(), "wikipedia_id,title".parse().unwrap()],
        };
        let evaluation = evaluate(gold, guess, &options).unwrap();
        let page = &evaluation.reports[0].0;
        let figure = |name| page.score(name).unwrap();
        assert_eq!((figure("Rprec"), figure("precision@2"), figure("recall@2")), (0.5, 0.25, 0.5));
        assert_eq!((figure("answer_in_context@1"), figure("answer_in_context@2")), (0.0, 0.5));
        assert_eq!((figure("entity_in_context@2"), figure("answer_and_ent_in_context@5")), (0.0, 0.5));
        assert_eq!((figure("entity_in_input"), page.score("recall@1")), (0.5, None));
        // No predicted item carries a title.
        let depth = |max, beyond: &[usize]| Depth { min: 0, max, beyond: beyond.into() };
        assert_eq!(evaluation.depths, [depth(3, &[5]), depth(0, &[1, 2, 5])]);
        assert_eq!(evaluation.reports[1].0.score("recall@5"), Some(0.0));
    }

    #[test]
    fn a_rank_key_that_no_gold_evidence_has_is_an_error() {
        let guess = r#"{"id": 1, "output": [{"provenance": [{"wikipedia_id": 5}]}]}
{"id": "b", "output": [{"provenance": []}]}
"#;
        let (_folder, gold, guess) = files(GOLD, guess);
        let options =
            Options { rank_keys: vec!["wikipedia_id,section".parse().unwrap()], ..Options::default() };
        let message = evaluate(gold, guess, &options).unwrap_err().to_string();
        assert_eq!(message, "rank-keys: no gold provenance has the field `section`");
    }

    #[test]
    fn a_prediction_needs_one_output_with_provenance_and_a_k_is_at_least_1() {
        let one = r#"{"id": 1, "output": [{"answer": "Ann"}]}"#;
        let (_folder, gold, guess) = files(GOLD, one);
        let message = evaluate(&gold, &guess, &Options::default()).unwrap_err().to_string();
        assert!(message.contains("expected exactly one output with provenance, found 0"), "{message}");
        let options = Options { ks: vec![0], ..Options::default() };
        assert!(matches!(evaluate(gold, guess, &options), Err(Error::Argument(_))));
    }
}
