//! The figures of filled sheets.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rustc_hash::FxHashSet;
use serde::Serialize;
use sporran_kilt::{
    Error as KiltError, counted, csv, jsonl,
    scores::{
        agreement::{Agreement, fleiss_kappa},
        significance::{self, Interval, Rounds, interval, sign_test},
    },
};

use super::{DIMENSIONS, Key, ROW, SHEET, VoteKind};
use crate::Result;

/// The figures of the filled sheets of all annotators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VoteReport {
    /// What annotators voted on.
    pub kind: VoteKind,
    /// The names of the systems.
    pub systems: [String; 2],
    /// The number of annotators.
    pub annotators: usize,
    /// The number of rows of a sheet.
    pub rows: usize,
    /// The figures of each dimension.
    pub dimensions: Vec<VoteFigures>,
}

/// The figures of a dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum VoteFigures {
    /// Of preferences.
    Preference(PreferenceFigures),
    /// Of ratings.
    Rating(RatingFigures),
}

/// The preferences in a dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreferenceFigures {
    /// The dimension.
    pub dimension: &'static str,
    /// The number of votes.
    pub votes: usize,
    /// The number of cells without a vote.
    pub unanswered: usize,
    /// The number of votes for each system.
    pub preferred: [usize; 2],
    /// The number of votes for neither.
    pub ties: usize,
    /// The number of records on which a system has more votes than the other.
    pub records_won: [usize; 2],
    /// The probability of such a split of records, or of a more uneven one, if the systems are equal: the exact sign test.
    pub p_value: f64,
    /// The mean over records of the share of votes for the first system minus that for the second, with its bootstrap
    /// interval.
    pub difference: Interval,
    /// The agreement on the rows that all annotators voted on; none with one annotator.
    pub agreement: Option<Agreement>,
}

/// The ratings in a dimension, from 0 to 2.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatingFigures {
    /// The dimension.
    pub dimension: &'static str,
    /// The number of votes.
    pub votes: usize,
    /// The number of cells without a vote.
    pub unanswered: usize,
    /// The mean over records of each system's mean rating, with its bootstrap interval.
    pub means: [Interval; 2],
    /// The first mean minus the second on the records that both systems have ratings for, with its p-value.
    pub difference: significance::Comparison,
    /// The agreement on the rows that all annotators rated; none with one annotator.
    pub agreement: Option<Agreement>,
}

/// The votes of one dimension: by row and annotator, the number of the vote in [`VoteKind::votes`].
type Votes = Vec<Vec<Option<usize>>>;

/// Reads filled sheets, one for each annotator, and computes their figures. Of a sheet only the columns `sheet`, `row` and the
/// dimensions are read, so a table from the page is as good as the whole table. An empty cell is no vote.
///
/// # Errors
/// [`KiltError::Record`] with line and field for a row of another sheet, a row that does not exist or stands there twice, and
/// a vote that is not allowed; [`KiltError::Argument`] for one file twice; an error without votes; errors of the files.
pub fn read_votes(key: &Path, sheets: &[PathBuf], rounds: Rounds) -> Result<VoteReport> {
    let place = key;
    let key: Key = jsonl::read_json(key)?;
    let shown = if key.kind == VoteKind::Preference { 2 } else { 1 };
    if let Some(at) = key
        .rows
        .iter()
        .position(|row| row.systems.len() != shown || row.systems.iter().any(|system| *system > 1))
    {
        let message = format!("expected {shown} of the systems 0 and 1");
        return Err(KiltError::record(place, 1, format!("rows[{at}].systems"), message).into());
    }
    let mut known = FxHashSet::default();
    for sheet in sheets {
        // One file counts once, also under two names.
        if !known.insert(sheet.canonicalize().unwrap_or_else(|_| sheet.clone())) {
            let message =
                format!("sheets: expected a file for each annotator, found {} twice", sheet.display());
            return Err(KiltError::Argument(message).into());
        }
    }
    let mut votes: [Votes; 2] = [vec![Vec::new(); key.rows.len()], vec![Vec::new(); key.rows.len()]];
    for sheet in sheets {
        let own = filled(&key, sheet)?;
        for (all, own) in votes.iter_mut().zip(own) {
            all.iter_mut().zip(own).for_each(|(row, vote)| row.push(vote));
        }
    }
    let mut dimensions = Vec::new();
    for (dimension, votes) in DIMENSIONS.into_iter().zip(&votes) {
        dimensions.push(match key.kind {
            VoteKind::Preference => VoteFigures::Preference(preferences(dimension, &key, votes, rounds)?),
            VoteKind::Rating => VoteFigures::Rating(ratings(dimension, &key, votes, rounds)?),
        });
    }
    Ok(VoteReport {
        kind: key.kind,
        systems: key.systems,
        annotators: sheets.len(),
        rows: key.rows.len(),
        dimensions,
    })
}

/// The votes of an annotator for each dimension and row.
fn filled(key: &Key, path: &Path) -> Result<[Vec<Option<usize>>; 2]> {
    let table = csv::Table::read(path)?;
    let (sheet, row) = (table.column(SHEET)?, table.column(ROW)?);
    let columns = [table.column(DIMENSIONS[0])?, table.column(DIMENSIONS[1])?];
    let mut votes = [vec![None; key.rows.len()], vec![None; key.rows.len()]];
    let mut lines = vec![None; key.rows.len()];
    for cells in table.rows() {
        let wrong = |field: &str, message: String| KiltError::record(path, cells.line, field, message);
        let found = cells.cell(sheet).trim();
        if found != key.sheet {
            let message = format!("expected the sheet of the key, {}, found `{found}`", key.sheet);
            return Err(wrong(SHEET, message).into());
        }
        let number = cells.cell(row).trim();
        let Some(at) = number.parse::<usize>().ok().filter(|at| (1..=key.rows.len()).contains(at)) else {
            let message = format!("expected a number from 1 to {}, found `{number}`", key.rows.len());
            return Err(wrong(ROW, message).into());
        };
        if let Some(first) = lines[at - 1].replace(cells.line) {
            return Err(wrong(ROW, format!("row {at} stands on line {first} already")).into());
        }
        for (dimension, (column, votes)) in DIMENSIONS.into_iter().zip(columns.into_iter().zip(&mut votes)) {
            let vote = cells.cell(column).trim().to_lowercase();
            if vote.is_empty() {
                continue;
            }
            let allowed = key.kind.votes();
            let Some(place) = allowed.iter().position(|other| *other == vote) else {
                let [a, b, c] = allowed;
                let message = format!("expected `{a}`, `{b}`, `{c}` or an empty cell, found `{vote}`");
                return Err(wrong(dimension, message).into());
            };
            votes[at - 1] = Some(place);
        }
    }
    Ok(votes)
}

fn preferences(
    dimension: &'static str,
    key: &Key,
    votes: &Votes,
    rounds: Rounds,
) -> Result<PreferenceFigures> {
    let (mut preferred, mut ties, mut records_won) = ([0; 2], 0, [0; 2]);
    let mut differences = Vec::new();
    let mut counts: Vec<Vec<u32>> = Vec::new();
    for (row, votes) in key.rows.iter().zip(votes) {
        // The votes for the first system, for the second and for neither.
        let mut own = [0u32; 3];
        for vote in votes.iter().flatten() {
            own[row.systems.get(*vote).copied().unwrap_or(2)] += 1;
        }
        preferred[0] += own[0] as usize;
        preferred[1] += own[1] as usize;
        ties += own[2] as usize;
        let count: u32 = own.iter().sum();
        if count > 0 {
            differences.push((f64::from(own[0]) - f64::from(own[1])) / f64::from(count));
        }
        match own[0].cmp(&own[1]) {
            std::cmp::Ordering::Greater => records_won[0] += 1,
            std::cmp::Ordering::Less => records_won[1] += 1,
            std::cmp::Ordering::Equal => {}
        }
        if votes.len() > 1 && votes.iter().all(Option::is_some) {
            counts.push(own.to_vec());
        }
    }
    Ok(PreferenceFigures {
        dimension,
        votes: preferred[0] + preferred[1] + ties,
        unanswered: votes.iter().flatten().filter(|vote| vote.is_none()).count(),
        preferred,
        ties,
        records_won,
        p_value: sign_test(records_won[0] as u64, records_won[1] as u64),
        difference: interval(&voted(dimension, differences)?, rounds)?,
        agreement: agreement(&counts)?,
    })
}

fn ratings(dimension: &'static str, key: &Key, votes: &Votes, rounds: Rounds) -> Result<RatingFigures> {
    // The mean rating of each record and system.
    let mut means: Vec<(String, [Option<f64>; 2])> = Vec::new();
    let mut counts: Vec<Vec<u32>> = Vec::new();
    for (row, votes) in key.rows.iter().zip(votes) {
        let given: Vec<usize> = votes.iter().flatten().copied().collect();
        let mean = (!given.is_empty()).then(|| given.iter().sum::<usize>() as f64 / given.len() as f64);
        let id = row.id.text().into_owned();
        let place = means.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            means.push((id, [None; 2]));
            means.len() - 1
        });
        means[place].1[row.systems[0]] = mean;
        if votes.len() > 1 && votes.iter().all(Option::is_some) {
            let mut own = vec![0; 3];
            given.iter().for_each(|vote| own[*vote] += 1);
            counts.push(own);
        }
    }
    let of = |system: usize| voted(dimension, means.iter().filter_map(|(_, means)| means[system]).collect());
    let both: Vec<[f64; 2]> =
        means.iter().filter_map(|(_, [first, second])| Some([(*first)?, (*second)?])).collect();
    let side = |system: usize| both.iter().map(|pair| pair[system]).collect::<Vec<_>>();
    Ok(RatingFigures {
        dimension,
        votes: votes.iter().flatten().flatten().count(),
        unanswered: votes.iter().flatten().filter(|vote| vote.is_none()).count(),
        means: [interval(&of(0)?, rounds)?, interval(&of(1)?, rounds)?],
        difference: significance::compare(&voted(dimension, side(0))?, &side(1), rounds)?,
        agreement: agreement(&counts)?,
    })
}

/// The values, of which there must be one.
fn voted(dimension: &'static str, values: Vec<f64>) -> Result<Vec<f64>> {
    if values.is_empty() {
        let message = format!("votes: expected at least one in the column `{dimension}`, found none");
        return Err(KiltError::Argument(message).into());
    }
    Ok(values)
}

fn agreement(counts: &[Vec<u32>]) -> Result<Option<Agreement>> {
    if counts.is_empty() { Ok(None) } else { Ok(Some(fleiss_kappa(counts)?)) }
}

impl fmt::Display for VoteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", counted(self.annotators as u64, "annotator"), counted(self.rows as u64, "row"))?;
        for figures in &self.dimensions {
            match figures {
                VoteFigures::Preference(figures) => figures.write(&self.systems, f)?,
                VoteFigures::Rating(figures) => figures.write(&self.systems, f)?,
            }
        }
        Ok(())
    }
}

impl PreferenceFigures {
    fn write(&self, systems: &[String; 2], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |count: usize| 100.0 * count as f64 / self.votes as f64;
        write!(
            f,
            "\n{}: {}, {} without",
            self.dimension,
            counted(self.votes as u64, "vote"),
            self.unanswered
        )?;
        for (name, count) in systems.iter().zip(self.preferred) {
            write!(f, "\n  {name:20} {:5.1}%  {count}", share(count))?;
        }
        write!(f, "\n  {:20} {:5.1}%  {}", "tie", share(self.ties), self.ties)?;
        let [first, second] = self.records_won;
        write!(f, "\n  records won {first} to {second}, sign test p = {:.4}", self.p_value)?;
        let Interval { mean, low, high } = self.difference;
        write!(f, "\n  difference {mean:+.3} [{low:+.3}, {high:+.3}]")?;
        write_agreement(self.agreement.as_ref(), f)
    }
}

impl RatingFigures {
    fn write(&self, systems: &[String; 2], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\n{}: {}, {} without",
            self.dimension,
            counted(self.votes as u64, "vote"),
            self.unanswered
        )?;
        for (name, Interval { mean, low, high }) in systems.iter().zip(self.means) {
            write!(f, "\n  {name:20} {mean:.2} [{low:.2}, {high:.2}]")?;
        }
        let significance::Comparison { difference: Interval { mean, low, high }, p_value } = self.difference;
        write!(f, "\n  difference {mean:+.2} [{low:+.2}, {high:+.2}], p = {p_value:.4}")?;
        write_agreement(self.agreement.as_ref(), f)
    }
}

fn write_agreement(agreement: Option<&Agreement>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match agreement {
        Some(Agreement { kappa, observed, subjects, .. }) => {
            write!(
                f,
                "\n  Fleiss' kappa {kappa:.3}, observed agreement {observed:.3}, {}",
                counted(*subjects as u64, "row")
            )
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::responses::{sheet::tests::options, write_sheet};

    const ROUNDS: Rounds = Rounds { count: 200, seed: 1, level: 0.95 };

    /// A sheet of `count` records, its key, and a place for filled sheets.
    fn sheet(count: usize, kind: VoteKind) -> (tempfile::TempDir, PathBuf, Key) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("sheet");
        write_sheet(&options(place.path(), count, kind), &folder).unwrap();
        let path = folder.join("key.json");
        let key = jsonl::read_json(&path).unwrap();
        (place, path, key)
    }

    /// Writes a filled sheet; `vote` gives both cells of a row.
    fn fill(path: &Path, key: &Key, vote: impl Fn(usize) -> [String; 2]) {
        let mut text = csv::line(&["row", "sheet", "appropriate", "informative", "note"]);
        for at in 0..key.rows.len() {
            let [a, b] = vote(at);
            text.push_str(&csv::line(&[(at + 1).to_string(), key.sheet.clone(), a, b, "x".into()]));
        }
        std::fs::write(path, text).unwrap();
    }

    /// The vote for a system in a row.
    fn vote_for(key: &Key, row: usize, system: usize) -> String {
        (key.rows[row].systems.iter().position(|other| *other == system).unwrap() + 1).to_string()
    }

    #[test]
    fn preferences_are_counted_by_system_and_not_by_place() {
        let (place, path, key) = sheet(5, VoteKind::Preference);
        let [one, two] = ["one.csv", "two.csv"].map(|name| place.path().join(name));
        // Appropriate: system 1 wins rows 0 to 3, a tie in row 4. Informative: the annotators differ.
        let appropriate = |row: usize| if row < 4 { vote_for(&key, row, 1) } else { " Tie ".to_owned() };
        fill(&one, &key, |row| [appropriate(row), vote_for(&key, row, 0)]);
        fill(&two, &key, |row| {
            let informative = if row == 0 { String::new() } else { vote_for(&key, row, 1) };
            [appropriate(row), informative]
        });
        let report = read_votes(&path, &[one, two], ROUNDS).unwrap();
        assert_eq!((report.annotators, report.rows), (2, 5));
        let [VoteFigures::Preference(appropriate), VoteFigures::Preference(informative)] =
            &report.dimensions[..]
        else {
            panic!("{report:?}");
        };
        assert_eq!((appropriate.preferred, appropriate.ties, appropriate.votes), ([0, 8], 2, 10));
        assert_eq!(appropriate.records_won, [0, 4]);
        // 2 / 2^4
        assert!((appropriate.p_value - 0.125).abs() < 1e-12);
        assert!((appropriate.difference.mean + 0.8).abs() < 1e-12);
        assert_eq!(appropriate.agreement.unwrap().kappa, 1.0.into());
        assert_eq!((informative.preferred, informative.votes, informative.unanswered), ([5, 4], 9, 1));
        // One row has one vote, for system 0; the others have one for each.
        assert_eq!(informative.records_won, [1, 0]);
        assert!((informative.p_value - 1.0).abs() < 1e-12);
        assert!((informative.difference.mean - 0.2).abs() < 1e-12);
        let agreement = informative.agreement.unwrap();
        assert_eq!((agreement.subjects, agreement.observed, agreement.kappa), (4, 0.0, (-1.0).into()));
        let text = report.to_string();
        assert!(text.contains("tf-idf                 0.0%  0") && text.contains("tie"), "{text}");
    }

    #[test]
    fn ratings_have_means_over_records() {
        let (place, path, key) = sheet(4, VoteKind::Rating);
        let [one, two] = ["one.csv", "two.csv"].map(|name| place.path().join(name));
        // Appropriate: system 0 has 1 and 2 from the annotators, system 1 has 0 from both. Informative: 2 everywhere.
        let rating = |row: usize, annotator: usize| match key.rows[row].systems[0] {
            0 => (1 + annotator).to_string(),
            _ => "0".to_owned(),
        };
        fill(&one, &key, |row| [rating(row, 0), "2".into()]);
        fill(&two, &key, |row| [rating(row, 1), "2".into()]);
        let report = read_votes(&path, &[one, two], ROUNDS).unwrap();
        let [VoteFigures::Rating(appropriate), VoteFigures::Rating(informative)] = &report.dimensions[..]
        else {
            panic!("{report:?}");
        };
        assert_eq!(appropriate.votes, 16);
        assert_eq!((appropriate.means[0].mean, appropriate.means[1].mean), (1.5, 0.0));
        assert_eq!(appropriate.difference.difference.mean, 1.5);
        // Half of the rows agree. By chance: (4/16)^2 + (4/16)^2 + (8/16)^2 = 3/8.
        let agreement = appropriate.agreement.unwrap();
        assert!((agreement.observed - 0.5).abs() < 1e-12 && (agreement.expected - 0.375).abs() < 1e-12);
        assert_eq!((informative.means[0].mean, informative.difference.difference.mean), (2.0, 0.0));
        assert!(report.to_string().contains("reranker             0.00 [0.00, 0.00]"), "{report}");
    }

    #[test]
    fn wrong_sheets_are_refused_with_line_and_field() {
        let (place, path, key) = sheet(2, VoteKind::Preference);
        let filled = place.path().join("filled.csv");
        let error = |rows: &str| {
            std::fs::write(&filled, format!("sheet,row,appropriate,informative\n{rows}")).unwrap();
            read_votes(&path, std::slice::from_ref(&filled), ROUNDS).unwrap_err().to_string()
        };
        let twice = [filled.clone(), place.path().join("./filled.csv")];
        std::fs::write(&filled, "").unwrap();
        let message = read_votes(&path, &twice, ROUNDS).unwrap_err().to_string();
        assert!(
            message.contains("expected a file for each annotator") && message.ends_with("twice"),
            "{message}"
        );
        let code = &key.sheet;
        assert!(
            error("other,1,1,1\n").contains("filled.csv:2: field `sheet`: expected the sheet of the key")
        );
        for row in ["0", "3", "x"] {
            let found = error(&format!("{code},{row},1,1\n"));
            assert!(found.contains(":2: field `row`: expected a number from 1 to 2"), "{found}");
        }
        let twice = error(&format!("{code},1,1,1\n{code},1,1,1\n"));
        assert!(twice.contains(":3: field `row`: row 1 stands on line 2 already"), "{twice}");
        let vote = error(&format!("{code},1,1,1\n{code},2,1,both\n"));
        assert!(
            vote.contains(":3: field `informative`: expected `1`, `2`, `tie` or an empty cell"),
            "{vote}"
        );
        assert!(error(&format!("{code},1,1,\n")).contains("in the column `informative`, found none"));
        std::fs::write(&filled, "sheet,row,appropriate\n").unwrap();
        let column = read_votes(&path, std::slice::from_ref(&filled), ROUNDS).unwrap_err().to_string();
        assert!(column.contains("field `informative`: expected a column of this name"), "{column}");
    }
}
