//! The votes of single annotators on WOW++'s sentences, as in the pilot study of Eric et al. (2021, section 3.2).

use std::fmt;

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Error, Result, counted,
    scores::{
        Measure,
        agreement::{Agreement, fleiss_kappa},
    },
    wowpp::Dialogues,
};

/// Random samples of annotators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// The number of samples.
    pub count: u32,
    /// The number of annotators in a sample.
    pub size: usize,
    /// The random seed.
    pub seed: u64,
}

impl Default for Samples {
    /// 100 samples of 10 annotators, as in the paper.
    fn default() -> Self {
        Self { count: 100, size: 10, seed: 0 }
    }
}

/// The kappas of random samples of annotators.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampledKappas {
    /// The number of samples.
    pub samples: u32,
    /// The number of annotators in a sample.
    pub annotators: usize,
    /// The smallest kappa.
    pub lowest: Measure,
    /// The largest kappa.
    pub highest: Measure,
}

/// The gold sentences among the sentences with votes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GoldVotes {
    /// The gold sentences with votes.
    pub sentences: usize,
    /// Fleiss' kappa over them.
    pub agreement: Agreement,
    /// Those that all annotators chose.
    pub chosen_by_all: usize,
    /// The mean share of annotators that chose a gold sentence.
    pub mean_share: f64,
}

/// The votes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VotesReport {
    /// The sentences with votes.
    pub sentences: usize,
    /// The annotators of each sentence.
    pub annotators: usize,
    /// Fleiss' kappa over all sentences.
    pub agreement: Agreement,
    /// The kappas of random samples. `None` if there are no more annotators than a sample has.
    pub samples: Option<SampledKappas>,
    /// The sentences that no annotator chose.
    pub chosen_by_none: usize,
    /// The sentences that all annotators chose.
    pub chosen_by_all: usize,
    /// The gold sentences. `None` if none has votes.
    pub gold: Option<GoldVotes>,
}

impl VotesReport {
    /// Describes the `votes` of sentences. The votes of a sentence are a list in the order of the annotators. A vote is a
    /// boolean, 0 or 1, `relevant` or `notRelevant`, or `yes` or `no`. Sentences without votes are skipped. `None` if no sentence
    /// has votes.
    ///
    /// # Errors
    /// [`Error::Argument`] for other votes, for different numbers of votes, with fewer than two votes on a sentence, and for
    /// samples of fewer than two annotators or without samples.
    pub fn of(dialogues: &Dialogues, samples: Samples) -> Result<Option<Self>> {
        if samples.count == 0 || samples.size < 2 {
            let Samples { count, size, .. } = samples;
            let message =
                format!("samples: expected at least one of at least two annotators, found {count} of {size}");
            return Err(Error::Argument(message));
        }
        let (mut votes, mut gold) = (Vec::new(), Vec::new());
        for (id, dialogue) in &dialogues.0 {
            let places = dialogue.gold_places();
            for (at, sentence) in dialogue.annotated_sentences.iter().enumerate() {
                let Some(listed) = sentence.extra.get("votes").and_then(Value::as_array) else { continue };
                let own = listed.iter().map(is_chosen).collect::<Option<Vec<bool>>>().ok_or_else(|| {
                    Error::Argument(format!(
                        "dialogue `{id}`: field `annotated_sentences[{at}].votes`: expected booleans, 0 and 1, `relevant` and \
                         `notRelevant`, or `yes` and `no`"
                    ))
                })?;
                // The first of equal sentences is the gold one.
                if places.first() == Some(&at) {
                    gold.push(own.clone());
                }
                votes.push(own);
            }
        }
        let Some(first) = votes.first() else { return Ok(None) };
        let annotators = first.len();
        let agreement = kappa(&votes)?;
        let gold = if gold.is_empty() {
            None
        } else {
            let share = |votes: &Vec<bool>| chosen(votes) as f64 / annotators as f64;
            Some(GoldVotes {
                sentences: gold.len(),
                agreement: kappa(&gold)?,
                chosen_by_all: gold.iter().filter(|votes| chosen(votes) == annotators).count(),
                mean_share: Measure::mean(gold.iter().map(share)).or_zero(),
            })
        };
        Ok(Some(Self {
            sentences: votes.len(),
            annotators,
            agreement,
            samples: (annotators > samples.size).then(|| sampled(&votes, samples)).transpose()?,
            chosen_by_none: votes.iter().filter(|votes| chosen(votes) == 0).count(),
            chosen_by_all: votes.iter().filter(|votes| chosen(votes) == annotators).count(),
            gold,
        }))
    }
}

impl fmt::Display for VotesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sentences, annotators, agreement, chosen_by_none, chosen_by_all, .. } = self;
        writeln!(
            f,
            "votes of {} on {}: kappa {:.3} (z {:.1})",
            counted(*annotators as u64, "annotator"),
            counted(*sentences as u64, "sentence"),
            agreement.kappa,
            agreement.z
        )?;
        match &self.samples {
            Some(SampledKappas { samples, annotators, lowest, highest }) => writeln!(
                f,
                "{samples} random samples of {annotators} annotators: kappa from {lowest:.2} to {highest:.2}"
            )?,
            None => writeln!(f, "too few annotators for random samples")?,
        }
        write!(f, "chosen by nobody: {chosen_by_none}; by all: {chosen_by_all}")?;
        match &self.gold {
            Some(GoldVotes { sentences, agreement, chosen_by_all, mean_share }) => write!(
                f,
                "\n{sentences} gold sentences: kappa {:.3} (z {:.1}), chosen by all: {chosen_by_all}, mean share {mean_share:.2}",
                agreement.kappa, agreement.z
            ),
            None => write!(f, "\nno gold sentence has votes, so their agreement is left out"),
        }
    }
}

/// Whether a vote chooses the sentence. `None` for an unknown vote.
fn is_chosen(vote: &Value) -> Option<bool> {
    match vote {
        Value::Bool(is_chosen) => Some(*is_chosen),
        Value::Number(number) => match number.as_f64()? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
        Value::String(word) => match word.as_str() {
            "relevant" | "yes" => Some(true),
            "notRelevant" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn chosen(votes: &[bool]) -> usize {
    votes.iter().filter(|is_chosen| **is_chosen).count()
}

fn kappa(votes: &[Vec<bool>]) -> Result<Agreement> {
    let counts = |votes: &Vec<bool>| {
        let chosen = chosen(votes);
        vec![chosen as u32, (votes.len() - chosen) as u32]
    };
    fleiss_kappa(&votes.iter().map(counts).collect::<Vec<_>>())
}

/// The range of the kappas of random annotators. Each sample has its own random stream.
fn sampled(votes: &[Vec<bool>], samples: Samples) -> Result<SampledKappas> {
    let Samples { count, size, seed } = samples;
    let mut annotators: Vec<usize> = (0..votes.first().map_or(0, Vec::len)).collect();
    let (mut lowest, mut highest) = (None, None);
    for sample in 0..count {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(sample.into());
        annotators.sort_unstable();
        annotators.shuffle(&mut random);
        let own = |votes: &Vec<bool>| annotators[..size].iter().map(|&at| votes[at]).collect::<Vec<bool>>();
        let Some(found) = kappa(&votes.iter().map(own).collect::<Vec<_>>())?.kappa.value() else { continue };
        lowest = Some(lowest.map_or(found, |known: f64| known.min(found)));
        highest = Some(highest.map_or(found, |known: f64| known.max(found)));
    }
    Ok(SampledKappas { samples: count, annotators: size, lowest: lowest.into(), highest: highest.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dialogues(sentences: Value, gold: &str) -> Dialogues {
        let dialogue =
            json!({ "turns": [], "topic": "", "annotated_sentences": sentences, "gold_sentence": gold });
        serde_json::from_value(json!({ "d": dialogue })).unwrap()
    }

    fn sentence(label: &str, votes: Value) -> Value {
        json!({ "label": label, "confidence": 0.5, "votes": votes })
    }

    #[test]
    fn votes_are_counted_and_compared() {
        let sentences = json!([
            sentence("A", json!([true, true, true, true])),
            sentence("B", json!([0, 0, 0, 0])),
            sentence("C", json!(["relevant", "notRelevant", "yes", "no"])),
            { "label": "D", "confidence": 0.5 },
        ]);
        let samples = Samples { count: 50, size: 2, seed: 3 };
        let found = VotesReport::of(&dialogues(sentences, "C"), samples).unwrap().unwrap();
        assert_eq!((found.sentences, found.annotators), (3, 4));
        assert_eq!((found.chosen_by_none, found.chosen_by_all), (1, 1));
        // Observed: (1 + 1 + 1/3) / 3. Chosen: 6 of 12 votes, so 1/2 by chance.
        assert!((found.agreement.kappa.or_zero() - (7.0 / 9.0 - 0.5) / 0.5).abs() < 1e-12, "{found:?}");
        let gold = found.gold.unwrap();
        assert_eq!((gold.sentences, gold.chosen_by_all, gold.mean_share), (1, 0, 0.5));
        // Two pairs of six agree; half by chance.
        assert!((gold.agreement.kappa.or_zero() - (1.0 / 3.0 - 0.5) / 0.5).abs() < 1e-12, "{gold:?}");
        // Two annotators agree on all sentences, or disagree on C: (2/3 - 1/2) / (1/2).
        let sampled = found.samples.unwrap();
        assert_eq!((sampled.samples, sampled.annotators, sampled.highest), (50, 2, 1.0.into()));
        assert!((sampled.lowest.or_zero() - 1.0 / 3.0).abs() < 1e-12, "{sampled:?}");
    }

    #[test]
    fn samples_need_more_annotators_and_gold_needs_votes() {
        let sentences = json!([sentence("A", json!([true, false])), sentence("B", json!([false, false]))]);
        let found = VotesReport::of(&dialogues(sentences, "C"), Samples::default()).unwrap().unwrap();
        assert_eq!((found.samples, found.gold), (None, None));
        let text = found.to_string();
        assert!(text.contains("too few annotators") && text.contains("no gold sentence has votes"), "{text}");
        let none = dialogues(json!([{ "label": "A", "confidence": 0.5 }]), "A");
        assert_eq!(VotesReport::of(&none, Samples::default()).unwrap(), None);
    }

    #[test]
    fn unknown_and_uneven_votes_are_errors() {
        let error = |sentences: Value, samples: Samples| {
            VotesReport::of(&dialogues(sentences, "A"), samples).unwrap_err().to_string()
        };
        let wrong = error(json!([sentence("A", json!(["maybe", "yes"]))]), Samples::default());
        assert!(wrong.contains("dialogue `d`: field `annotated_sentences[0].votes`"), "{wrong}");
        let uneven = json!([sentence("A", json!([1, 0])), sentence("B", json!([1, 0, 1]))]);
        assert!(error(uneven, Samples::default()).contains("2 votes on each"));
        let few = Samples { size: 1, ..Samples::default() };
        assert!(error(json!([]), few).contains("at least two annotators"));
    }
}
