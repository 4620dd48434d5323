//! The agreement of annotators on the passages of sheets.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    candidates::gold_places,
    votes::{Subject, Votes},
};
use crate::{
    Error, Result, counted,
    scores::{
        Measure,
        agreement::{Agreement, PairAgreement, cohen_kappa, fleiss_kappa},
    },
};

/// The agreement of two annotators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The annotators.
    pub annotators: [String; 2],
    /// Cohen's kappa over the passages on which both voted.
    #[serde(flatten)]
    pub agreement: PairAgreement,
}

/// The votes of an annotator on gold passages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoldVotes {
    /// The annotator.
    pub annotator: String,
    /// The gold passages with a vote.
    pub passages: usize,
    /// Those with the vote `yes`.
    pub accepted: usize,
}

/// The agreement of all annotators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SheetAgreement {
    /// The annotators.
    pub annotators: Vec<String>,
    /// The passages with a vote.
    pub passages: usize,
    /// The mean of Cohen's kappa over the pairs of annotators that have one, as in the KILT paper.
    pub cohen: Measure,
    /// The pairs of annotators that voted on a common passage.
    pub pairs: Vec<Pair>,
    /// Fleiss' kappa over the passages with the largest number of votes. `None` if no passage has two.
    pub fleiss: Option<Agreement>,
    /// The votes of each annotator on gold passages; empty without a key.
    pub gold: Vec<GoldVotes>,
}

impl fmt::Display for SheetAgreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { annotators, passages, cohen, pairs, fleiss, gold } = self;
        writeln!(
            f,
            "{}, {} with a vote",
            counted(annotators.len() as u64, "annotator"),
            counted(*passages as u64, "passage")
        )?;
        for Pair { annotators: [first, second], agreement } in pairs {
            let PairAgreement { kappa, observed, expected, subjects } = agreement;
            writeln!(
                f,
                "Cohen's kappa of {first} and {second}: {kappa:.4} ({}, {observed:.4} equal, {expected:.4} by chance)",
                counted(*subjects as u64, "passage")
            )?;
        }
        let defined = pairs.iter().filter(|pair| pair.agreement.kappa.value().is_some()).count();
        writeln!(f, "Cohen's kappa, mean of {}: {cohen:.4}", counted(defined as u64, "pair"))?;
        match fleiss {
            Some(Agreement { kappa, subjects, votes, .. }) => {
                write!(
                    f,
                    "Fleiss' kappa: {kappa:.4} ({} of {})",
                    counted(*subjects as u64, "passage"),
                    counted(*votes as u64, "vote")
                )
            }
            None => write!(f, "Fleiss' kappa: -"),
        }?;
        gold.iter().try_for_each(|GoldVotes { annotator, passages, accepted }| {
            write!(f, "\n{annotator} accepted {accepted} of {}", counted(*passages as u64, "gold passage"))
        })
    }
}

/// The agreement of the votes in sheets, `yes` or `no`. `key` is that of the candidates; it names the gold passages.
///
/// # Errors
/// Read errors; [`Error::Record`] for another vote and for a second vote of an annotator on a passage; [`Error::Argument`] if no two annotators
/// voted on a common passage.
pub fn agreement(sheets: &[PathBuf], key: Option<&Path>) -> Result<SheetAgreement> {
    let Votes { annotators, subjects } = Votes::read(sheets)?;
    let gold = key.map(|key| gold_votes(key, &annotators, &subjects)).transpose()?.unwrap_or_default();
    let mut pairs = Vec::new();
    for (second, later) in annotators.iter().enumerate() {
        for (first, earlier) in annotators.iter().enumerate().take(second) {
            let both = |subject| label(subject, first).zip(label(subject, second));
            let votes: Vec<(&str, &str)> = subjects.iter().filter_map(both).collect();
            if !votes.is_empty() {
                let agreement = cohen_kappa(&votes)?;
                pairs.push(Pair { annotators: [earlier.clone(), later.clone()], agreement });
            }
        }
    }
    if pairs.is_empty() {
        let message = "votes: expected a passage on which two annotators voted, found none".to_owned();
        return Err(Error::Argument(message));
    }
    let labels: BTreeSet<&str> =
        subjects.iter().flat_map(|subject| &subject.votes).map(|vote| vote.label.as_str()).collect();
    let most = subjects.iter().map(|subject| subject.votes.len()).max().unwrap_or_default();
    let counts: Vec<Vec<u32>> = subjects
        .iter()
        .filter(|subject| subject.votes.len() == most)
        .map(|subject| {
            let count =
                |label: &&str| subject.votes.iter().filter(|vote| vote.label == *label).count() as u32;
            labels.iter().map(count).collect()
        })
        .collect();
    Ok(SheetAgreement {
        passages: subjects.iter().filter(|subject| !subject.votes.is_empty()).count(),
        cohen: Measure::mean(pairs.iter().filter_map(|pair| pair.agreement.kappa.value())),
        fleiss: if most < 2 { None } else { Some(fleiss_kappa(&counts)?) },
        pairs,
        annotators,
        gold,
    })
}

fn gold_votes(key: &Path, annotators: &[String], subjects: &[Subject]) -> Result<Vec<GoldVotes>> {
    let places = gold_places(key)?;
    let is_gold = |subject: &&Subject| places.contains(&(subject.id.clone(), subject.place.clone()));
    let gold: Vec<&Subject> = subjects.iter().filter(is_gold).collect();
    let of = |(annotator, name): (usize, &String)| {
        let votes: Vec<&str> = gold.iter().filter_map(|subject| label(subject, annotator)).collect();
        let accepted = votes.iter().filter(|vote| **vote == "yes").count();
        GoldVotes { annotator: name.clone(), passages: votes.len(), accepted }
    };
    Ok(annotators.iter().enumerate().map(of).collect())
}

/// The vote of an annotator on a passage.
fn label(subject: &Subject, annotator: usize) -> Option<&str> {
    subject.votes.iter().find(|vote| vote.annotator == annotator).map(|vote| vote.label.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{sheet::tests::row, votes::tests::written};

    #[test]
    fn kappas_are_those_of_a_computation_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let sheet = |name: &str, votes: [&str; 4]| {
            let rows: Vec<_> = ["a", "b", "c", "d"]
                .iter()
                .zip(votes)
                .map(|(id, vote)| row(id, "1", (vote != "-").then_some(vote)))
                .collect();
            written(folder.path(), name, &rows)
        };
        let sheets = [
            sheet("1.csv", ["yes", "yes", "no", "no"]),
            sheet("2.csv", ["yes", "no", "no", "no"]),
            sheet("3.csv", ["yes", "yes", "no", "-"]),
        ];
        let found = agreement(&sheets, None).unwrap();
        assert_eq!((found.annotators.len(), found.passages), (3, 4));
        // 1 and 2: 3 of 4 equal; by chance 1/2 x 1/4 + 1/2 x 3/4 = 1/2; kappa (3/4 - 1/2) / (1/2) = 1/2.
        // 1 and 3: equal, kappa 1. 2 and 3: 2 of 3 equal; by chance 1/3 x 2/3 + 2/3 x 1/3 = 4/9; kappa (2/9) / (5/9) = 2/5.
        let kappas: Vec<f64> = found.pairs.iter().map(|pair| pair.agreement.kappa.or_zero()).collect();
        for (found, expected) in kappas.iter().zip([0.5, 1.0, 0.4]) {
            assert!((found - expected).abs() < 1e-12, "{kappas:?}");
        }
        assert_eq!(kappas.len(), 3);
        assert!((found.cohen.or_zero() - 1.9 / 3.0).abs() < 1e-12);
        // Fleiss over a, b and c: observed (1 + 1/3 + 1) / 3 = 7/9; 5 of 9 votes are yes, by chance 41/81; kappa (22/81) / (40/81).
        let fleiss = found.fleiss.unwrap();
        assert_eq!((fleiss.subjects, fleiss.votes), (3, 3));
        assert!((fleiss.kappa.or_zero() - 0.55).abs() < 1e-12, "{fleiss:?}");
        let text = found.to_string();
        assert!(
            text.contains("mean of 3 pairs: 0.6333") && text.ends_with("(3 passages of 3 votes)"),
            "{text}"
        );
    }

    #[test]
    fn the_votes_on_gold_passages_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let sheet = |name: &str, votes: [&str; 2]| {
            written(folder.path(), name, &[row("a", "1", Some(votes[0])), row("b", "1", Some(votes[1]))])
        };
        let sheets = [sheet("1.csv", ["yes", "no"]), sheet("2.csv", ["no", "no"])];
        let key = folder.path().join("key.jsonl");
        let line = |id: &str, gold: bool| {
            format!(
                r#"{{"id":"{id}","wikipedia_id":"1","start_paragraph_id":1,"start_character":0,"end_paragraph_id":1,"end_character":20,"gold":{gold},"systems":[],"overlap":0.5}}"#
            )
        };
        std::fs::write(&key, [line("a", true), line("b", false)].join("\n")).unwrap();
        let found = agreement(&sheets, Some(&key)).unwrap();
        let counts: Vec<(usize, usize)> =
            found.gold.iter().map(|gold| (gold.passages, gold.accepted)).collect();
        assert_eq!(counts, [(1, 1), (1, 0)]);
        assert!(found.to_string().ends_with("2.csv accepted 0 of 1 gold passage"), "{found}");
        std::fs::write(&key, line("a", true).replace("true", "2")).unwrap();
        let message = agreement(&sheets, Some(&key)).unwrap_err().to_string();
        assert!(message.contains("key.jsonl:1: field `gold`"), "{message}");
    }

    #[test]
    fn a_single_annotator_has_no_agreement() {
        let folder = tempfile::tempdir().unwrap();
        let sheet = written(folder.path(), "1.csv", &[row("a", "1", Some("yes"))]);
        let message = agreement(&[sheet], None).unwrap_err().to_string();
        assert!(message.contains("two annotators"), "{message}");
    }
}
