//! Inter-annotator agreement beyond chance: Cohen's kappa of two annotators (Cohen, "A coefficient of agreement for nominal
//! scales", 1960), Fleiss' kappa (Fleiss, "Measuring nominal scale agreement among
//! many raters", 1971), and its test (Fleiss, Nee and Landis, "Large sample variance of kappa in the case of different
//! sets of raters", 1979).

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use super::Measure;
use crate::{Error, Result, wowpp};

/// The agreement of annotators.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// 1 for perfect agreement, 0 for agreement at chance level. No value if all votes are equal: then chance agrees too.
    pub kappa: Measure,
    /// The mean share of pairs of votes that agree.
    pub observed: f64,
    /// The share of pairs that would agree by chance.
    pub expected: f64,
    /// Kappa over its standard error if annotators agree at chance level. Above 2.58 in absolute value, p is below 0.01 (two-sided).
    /// No value if all votes are equal.
    pub z: Measure,
    /// The number of items.
    pub subjects: usize,
    /// The number of votes on each item.
    pub votes: usize,
}

/// The share of the agreement beyond chance that annotators reach. No value where chance agreement is perfect, which is where
/// all votes are equal.
fn beyond_chance(observed: f64, expected: f64) -> Measure {
    (expected < 1.0).then(|| (observed - expected) / (1.0 - expected)).into()
}

/// Fleiss' kappa of `counts`: the votes of each subject by category.
///
/// ```
/// use sporran_kilt::scores::agreement::fleiss_kappa;
///
/// // Three annotators and two categories.
/// let agreement = fleiss_kappa(&[vec![3, 0], vec![0, 3], vec![3, 0]])?;
/// assert_eq!(agreement.kappa.value(), Some(1.0));
/// # Ok::<(), sporran_kilt::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] without subjects, with fewer than two votes on one, or with different numbers of votes or categories.
pub fn fleiss_kappa(counts: &[Vec<u32>]) -> Result<Agreement> {
    let wrong = |expected: &str, found: String| {
        Err(Error::Argument(format!("votes: expected {expected}, found {found}")))
    };
    let Some(first) = counts.first() else { return wrong("at least one subject", "none".into()) };
    let votes: u32 = first.iter().sum();
    if votes < 2 {
        return wrong("at least two votes on each subject", votes.to_string());
    }
    for row in counts {
        let found: u32 = row.iter().sum();
        if found != votes {
            return wrong(&format!("{votes} votes on each subject"), found.to_string());
        }
        if row.len() != first.len() {
            return wrong(&format!("{} categories", first.len()), row.len().to_string());
        }
    }
    let (n, subjects) = (f64::from(votes), counts.len() as f64);
    let agree = |row: &Vec<u32>| {
        let pairs: f64 = row.iter().map(|&count| f64::from(count) * (f64::from(count) - 1.0)).sum();
        pairs / (n * (n - 1.0))
    };
    let observed = counts.iter().map(agree).sum::<f64>() / subjects;
    let share =
        |category: usize| counts.iter().map(|row| f64::from(row[category])).sum::<f64>() / (n * subjects);
    let expected: f64 = (0..first.len()).map(|category| share(category).powi(2)).sum();
    let kappa = beyond_chance(observed, expected);
    let spread = 1.0 - expected;
    let skew: f64 = (0..first.len()).map(share).map(|p| p * (1.0 - p) * (1.0 - 2.0 * p)).sum();
    let variance = 2.0 * (spread * spread - skew) / (subjects * n * (n - 1.0) * spread * spread);
    let z = kappa.value().map(|kappa| kappa / variance.sqrt()).into();
    Ok(Agreement { kappa, observed, expected, z, subjects: counts.len(), votes: votes as usize })
}

/// The agreement of two annotators.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairAgreement {
    /// Cohen's kappa: 1 for perfect agreement, 0 for agreement at chance level. No value if all votes are equal.
    pub kappa: Measure,
    /// The share of equal votes.
    pub observed: f64,
    /// The share of votes that would be equal by chance, from each annotator's own shares of the categories.
    pub expected: f64,
    /// The number of items.
    pub subjects: usize,
}

/// Cohen's kappa of two annotators' votes on the same items.
///
/// ```
/// use sporran_kilt::scores::agreement::cohen_kappa;
///
/// // Three of four votes are equal, two by chance.
/// let votes = [("yes", "yes"), ("yes", "no"), ("no", "no"), ("no", "no")];
/// assert_eq!(cohen_kappa(&votes)?.kappa.value(), Some(0.5));
/// # Ok::<(), sporran_kilt::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] without items.
pub fn cohen_kappa<T: Ord>(votes: &[(T, T)]) -> Result<PairAgreement> {
    if votes.is_empty() {
        let message = "votes: expected at least one subject, found none".to_owned();
        return Err(Error::Argument(message));
    }
    let subjects = votes.len() as f64;
    let mut categories: BTreeMap<&T, [f64; 2]> = BTreeMap::new();
    for (first, second) in votes {
        categories.entry(first).or_default()[0] += 1.0;
        categories.entry(second).or_default()[1] += 1.0;
    }
    let observed = votes.iter().filter(|(first, second)| first == second).count() as f64 / subjects;
    let expected =
        categories.values().map(|[first, second]| first * second).sum::<f64>() / (subjects * subjects);
    let kappa = beyond_chance(observed, expected);
    Ok(PairAgreement { kappa, observed, expected, subjects: votes.len() })
}

/// The agreement of a file in WOW++'s layout, from the `votes` of its sentences: a list of the annotators'
/// labels, as words, numbers or booleans. Sentences without votes are skipped. `None` if no sentence has
/// votes.
///
/// # Errors
/// Read errors; [`Error::Argument`] if sentences have different numbers of votes.
pub fn of_wowpp(path: impl AsRef<Path>) -> Result<Option<Agreement>> {
    let dialogues = wowpp::load(path)?;
    let sentences = dialogues.0.iter().flat_map(|(_, dialogue)| &dialogue.annotated_sentences);
    let votes: Vec<Vec<String>> = sentences
        .filter_map(|sentence| sentence.extra.get("votes")?.as_array())
        .map(|votes| votes.iter().map(ToString::to_string).collect())
        .collect();
    if votes.is_empty() {
        return Ok(None);
    }
    let mut categories: Vec<&String> = votes.iter().flatten().collect();
    categories.sort();
    categories.dedup();
    let counts: Vec<Vec<u32>> = votes
        .iter()
        .map(|votes| {
            let count = |category: &&String| votes.iter().filter(|vote| vote == category).count() as u32;
            categories.iter().map(count).collect()
        })
        .collect();
    fleiss_kappa(&counts).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_ten_subjects_and_fourteen_raters_has_its_kappa() {
        // The usual worked example: kappa 0.210.
        let counts = [
            [0, 0, 0, 0, 14],
            [0, 2, 6, 4, 2],
            [0, 0, 3, 5, 6],
            [0, 3, 9, 2, 0],
            [2, 2, 8, 1, 1],
            [7, 7, 0, 0, 0],
            [3, 2, 6, 3, 0],
            [2, 5, 3, 2, 2],
            [6, 5, 2, 1, 0],
            [0, 2, 2, 3, 7],
        ];
        let counts: Vec<Vec<u32>> = counts.iter().map(|row| row.to_vec()).collect();
        let found = fleiss_kappa(&counts).unwrap();
        assert!((found.observed - 0.378).abs() < 5e-4 && (found.expected - 0.213).abs() < 5e-4, "{found:?}");
        assert!((found.kappa.or_zero() - 0.210).abs() < 5e-4);
        // The standard error is 0.01697.
        assert!((found.z.or_zero() - 12.374).abs() < 1e-3, "{found:?}");
        assert_eq!((found.subjects, found.votes), (10, 14));
    }

    #[test]
    fn full_agreement_is_1_and_an_even_split_is_below_chance() {
        assert_eq!(fleiss_kappa(&[vec![3, 0], vec![0, 3]]).unwrap().kappa, 1.0.into());
        // Observed 0, expected 1/2.
        let even = fleiss_kappa(&[vec![1, 1], vec![1, 1]]).unwrap();
        // With two equal categories the variance is 2 / (2 subjects x 2 votes x 1).
        assert_eq!((even.kappa, even.z), ((-1.0).into(), (-1.0 / 0.5f64.sqrt()).into()));
        let equal = fleiss_kappa(&[vec![3, 0], vec![3, 0]]).unwrap();
        assert_eq!((equal.kappa, equal.z, equal.observed), (Measure::default(), Measure::default(), 1.0));
    }

    #[test]
    fn cohens_kappa_has_the_values_of_computations_by_hand() {
        let votes = |counts: [[usize; 2]; 2]| {
            let mut votes = Vec::new();
            for (first, row) in counts.iter().enumerate() {
                for (second, &count) in row.iter().enumerate() {
                    votes.extend(std::iter::repeat_n((first, second), count));
                }
            }
            cohen_kappa(&votes).unwrap()
        };
        // 35 of 50 equal; by chance 25/50 x 30/50 + 25/50 x 20/50 = 1/2.
        let found = votes([[20, 5], [10, 15]]);
        assert!(
            (found.kappa.or_zero() - 0.4).abs() < 1e-12 && (found.expected - 0.5).abs() < 1e-12,
            "{found:?}"
        );
        assert_eq!((found.observed, found.subjects), (0.7, 50));
        // Never equal: 0 observed, 1/2 by chance. Always the same category: 1 by chance, so no value.
        assert_eq!(votes([[0, 1], [1, 0]]).kappa, (-1.0).into());
        assert_eq!(votes([[3, 0], [0, 0]]).kappa, Measure::default());
        // An annotator with one category only: 1/2 observed and by chance.
        assert_eq!(votes([[1, 0], [1, 0]]).kappa, 0.0.into());
        assert!(cohen_kappa::<u8>(&[]).unwrap_err().to_string().contains("at least one subject"));
    }

    #[test]
    fn votes_that_cannot_be_compared_are_refused() {
        for (counts, part) in [
            (vec![], "at least one subject"),
            (vec![vec![1, 0]], "at least two votes"),
            (vec![vec![2, 0], vec![2, 1]], "2 votes on each"),
            (vec![vec![2, 0], vec![2, 0, 0]], "2 categories"),
        ] {
            assert!(fleiss_kappa(&counts).unwrap_err().to_string().contains(part));
        }
    }

    #[test]
    fn votes_of_a_file_are_counted_where_there_are_some() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |votes: &str| {
            let sentence = format!(r#"{{"label": "T", "confidence": 0.5{votes}}}"#);
            let text = format!(
                r#"{{"d": {{"turns": [], "topic": "", "annotated_sentences": [{sentence}, {{"label": "U", "confidence": 1}}]}}}}"#
            );
            std::fs::write(file.path(), text).unwrap();
        };
        write("");
        assert_eq!(of_wowpp(file.path()).unwrap(), None);
        write(r#", "votes": ["yes", "no", "yes"]"#);
        let found = of_wowpp(file.path()).unwrap().unwrap();
        // Pairs that agree: 2 of 6 ordered ones; by chance (2/3)^2 + (1/3)^2 = 5/9.
        assert!((found.observed - 1.0 / 3.0).abs() < 1e-12 && (found.expected - 5.0 / 9.0).abs() < 1e-12);
    }
}
