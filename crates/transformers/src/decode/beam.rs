//! Beam search, with the scores, the order and the stopping of `transformers` 5.
//!
//! All arithmetic on scores is in f32, and "impossible" is a score of -1e9 rather than minus infinity, since both
//! decide which of two hypotheses wins. Ties go to the candidate of the lower beam, then of the lower token id.

use rayon::prelude::*;

use super::{EarlyStopping, Hypothesis, log_sum_exp, options::GenerationSettings, rules::Rules};
use crate::{
    cache::Cache,
    error::Result,
    seq2seq::{Memory, Seq2Seq},
};

/// What is added to a score so that it cannot win.
const IMPOSSIBLE: f32 = -1e9;

/// `num_return_sequences` hypotheses for each input of `memory`, best first.
pub(super) fn search(
    model: &dyn Seq2Seq,
    memory: &Memory,
    settings: &GenerationSettings,
) -> Result<Vec<Vec<Hypothesis>>> {
    let special = model.special_tokens();
    let rules = Rules::new(settings, &special.eos);
    let beams = settings.num_beams;
    let mut searches: Vec<Search> =
        (0..memory.size()).map(|_| Search::new(special.decoder_start, beams)).collect();
    let mut open: Vec<usize> = (0..searches.len()).collect();
    let mut memory = memory.clone();
    let mut cache = Cache::new();
    // Before the first step all beams of an input are equal, so one row stands for all of them.
    let mut rows_each = 1;
    for _ in 0..settings.max_new_tokens {
        let last: Vec<u32> = open.iter().flat_map(|i| searches[*i].last_tokens().take(rows_each)).collect();
        let mut scores = model.decode(&last, last.len(), &memory, &mut cache)?;
        let vocabulary = scores.len() / last.len();
        scores.par_chunks_exact_mut(vocabulary).enumerate().for_each(|(row, scores)| {
            let beam = &searches[open[row / rows_each]].running[row % rows_each];
            let normaliser = log_sum_exp(scores);
            scores.iter_mut().for_each(|score| *score -= normaliser);
            rules.apply(&beam.tokens, scores);
        });

        let mut kept_inputs = Vec::with_capacity(open.len());
        let mut kept_rows = Vec::with_capacity(open.len() * beams);
        for (at, input) in open.iter().enumerate() {
            let rows = &scores[at * rows_each * vocabulary..][..rows_each * vocabulary];
            let sources = searches[*input].step(rows, vocabulary, settings, &rules, special.eos.len());
            if searches[*input].is_open(settings) {
                kept_inputs.push(at as u32);
                kept_rows.extend(sources.iter().map(|beam| (at * rows_each + beam % rows_each) as u32));
            }
        }
        if kept_inputs.is_empty() {
            break;
        }
        if kept_inputs.len() < open.len() {
            memory = memory.select(&kept_inputs)?;
            cache.keep(&kept_inputs, &kept_rows)?;
            open = kept_inputs.into_iter().map(|at| open[at as usize]).collect();
        } else {
            cache.reorder(&kept_rows)?;
        }
        rows_each = beams;
    }
    Ok(searches.into_iter().map(|search| search.finish(settings.num_return_sequences)).collect())
}

/// A sequence, the decoder's start token first, with its score.
#[derive(Debug, Clone)]
struct Beam {
    tokens: Vec<u32>,
    score: f32,
    complete: bool,
}

/// The search of one input.
#[derive(Debug)]
struct Search {
    /// The sequences that go on, best first, by their log-probability.
    running: Vec<Beam>,
    /// The places for complete sequences, best first, by their score with the length penalty.
    finished: Vec<Beam>,
    /// Whether a running sequence may still become better than a finished one.
    improvable: bool,
}

/// A continuation of the running sequence `beam`.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    beam: usize,
    token: u32,
    score: f32,
}

impl Search {
    fn new(start: u32, beams: usize) -> Self {
        let beam = |score| Beam { tokens: vec![start], score, complete: false };
        // All but the first begin as impossible, so that the first step does not take the same token many times.
        let running = (0..beams).map(|i| beam(if i == 0 { 0.0 } else { IMPOSSIBLE })).collect();
        Self { running, finished: vec![beam(IMPOSSIBLE); beams], improvable: true }
    }

    fn last_tokens(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|beam| beam.tokens[beam.tokens.len() - 1])
    }

    /// Takes the log-probabilities of the next tokens (one row for each beam, or one row for all), and gives for
    /// each new running sequence the beam that it continues.
    fn step(
        &mut self,
        rows: &[f32],
        vocabulary: usize,
        settings: &GenerationSettings,
        rules: &Rules<'_>,
        end_tokens: usize,
    ) -> Vec<usize> {
        let beams = settings.num_beams;
        // So many that `beams` of them go on even if each beam is followed by every end token.
        let candidates = self.best(rows, vocabulary, (1 + end_tokens).max(2) * beams);
        let length = self.running[0].tokens.len();
        let ends: Vec<bool> =
            candidates.iter().map(|candidate| rules.ends(candidate.token, length)).collect();

        let running: Vec<f32> = std::iter::zip(&candidates, &ends)
            .map(|(candidate, ends)| candidate.score + if *ends { IMPOSSIBLE } else { 0.0 })
            .collect();
        let next: Vec<(usize, Beam)> = top(&running, beams)
            .into_iter()
            .map(|i| (candidates[i].beam, Beam { score: running[i], ..self.extended(candidates[i]) }))
            .collect();

        let full = self.is_full() && settings.early_stopping == EarlyStopping::Yes;
        let penalty = penalty(length, settings);
        let mut scores: Vec<f32> = self.finished.iter().map(|beam| beam.score).collect();
        for (rank, (candidate, ends)) in std::iter::zip(&candidates, &ends).enumerate() {
            let mut score = candidate.score / penalty;
            if full {
                score += IMPOSSIBLE;
            }
            if !self.improvable {
                score += IMPOSSIBLE;
            }
            // Only the best `beams` candidates may finish; the others are there to go on in their place.
            if !(*ends && rank < beams) {
                score += IMPOSSIBLE;
            }
            scores.push(score);
        }
        self.finished = top(&scores, beams)
            .into_iter()
            .map(|i| match i.checked_sub(beams) {
                None => self.finished[i].clone(),
                Some(rank) => {
                    let complete = ends[rank] && rank < beams;
                    Beam { score: scores[i], complete, ..self.extended(candidates[rank]) }
                }
            })
            .collect();

        let (sources, running) = next.into_iter().unzip();
        self.running = running;
        self.improvable = self.improvable && self.can_improve(settings);
        sources
    }

    /// Whether the best running sequence could still come before a finished one, as far as `early_stopping` asks.
    fn can_improve(&self, settings: &GenerationSettings) -> bool {
        let length = match settings.early_stopping {
            EarlyStopping::Never if settings.length_penalty > 0.0 => settings.max_new_tokens,
            _ => self.running[0].tokens.len() - 1,
        };
        let best = self.running[0].score / penalty(length, settings);
        let worst = self.finished.iter().map(|beam| beam.score).fold(f32::INFINITY, f32::min);
        self.finished.iter().any(|beam| best > if beam.complete { worst } else { IMPOSSIBLE })
    }

    fn is_full(&self) -> bool {
        self.finished.iter().all(|beam| beam.complete)
    }

    /// Whether another step could change the finished sequences.
    fn is_open(&self, settings: &GenerationSettings) -> bool {
        self.improvable && !(self.is_full() && settings.early_stopping == EarlyStopping::Yes)
    }

    fn extended(&self, candidate: Candidate) -> Beam {
        let source = &self.running[candidate.beam].tokens;
        let mut tokens = Vec::with_capacity(source.len() + 1);
        tokens.extend_from_slice(source);
        tokens.push(candidate.token);
        Beam { tokens, score: candidate.score, complete: false }
    }

    /// The `count` best continuations of all beams, best first.
    fn best(&self, rows: &[f32], vocabulary: usize, count: usize) -> Vec<Candidate> {
        let mut best: Vec<Candidate> = Vec::with_capacity(count + 1);
        for (beam, running) in self.running.iter().enumerate() {
            let row = if rows.len() == vocabulary { rows } else { &rows[beam * vocabulary..][..vocabulary] };
            for (token, log_probability) in row.iter().enumerate() {
                let score = log_probability + running.score;
                if best.len() == count && score <= best[count - 1].score {
                    continue;
                }
                let at = best.partition_point(|candidate| candidate.score >= score);
                best.insert(at, Candidate { beam, token: token as u32, score });
                best.truncate(count);
            }
        }
        best
    }

    fn finish(mut self, count: usize) -> Vec<Hypothesis> {
        self.finished.truncate(count);
        let hypothesis = |beam: Beam| Hypothesis { tokens: beam.tokens[1..].to_vec(), score: beam.score };
        self.finished.into_iter().map(hypothesis).collect()
    }
}

/// What the log-probability of a sequence of `length` new tokens is divided by.
fn penalty(length: usize, settings: &GenerationSettings) -> f32 {
    (length as f64).powf(settings.length_penalty) as f32
}

/// The positions of the `count` highest scores, highest first, ties by position.
fn top(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(count);
    order
}

#[cfg(test)]
mod tests {
    use super::{Search, top};
    use crate::{
        decode::{GenerationOptions, options::GenerationSettings, rules::Rules},
        tokens::SpecialTokens,
    };

    const EOS: [u32; 1] = [1];

    fn settings(options: GenerationOptions) -> GenerationSettings {
        let tokens = SpecialTokens { pad: 0, eos: EOS.to_vec(), bos: None, decoder_start: 0 };
        options.settings(&tokens, 4).unwrap()
    }

    fn step(search: &mut Search, probabilities: &[f32], settings: &GenerationSettings) -> Vec<usize> {
        let rows: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        search.step(&rows, 4, settings, &Rules::new(settings, &EOS), 1)
    }

    #[test]
    fn the_first_step_takes_different_tokens() {
        let settings = settings(GenerationOptions { num_beams: Some(2), ..Default::default() });
        let mut search = Search::new(0, 2);
        let sources = step(&mut search, &[0.1, 0.2, 0.3, 0.4], &settings);
        assert_eq!(sources, [0, 0]);
        assert_eq!(search.last_tokens().collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_sequence_that_ends_outside_the_best_beams_does_not_finish() {
        let settings = settings(GenerationOptions { num_beams: Some(2), ..Default::default() });
        let mut search = Search::new(0, 2);
        // The end token is third.
        step(&mut search, &[0.1, 0.2, 0.3, 0.4], &settings);
        assert!(search.finished.iter().all(|beam| !beam.complete));
        // Now it is the best continuation of the first beam: 0.4 * 0.7 = 0.28.
        step(&mut search, &[0.1, 0.7, 0.1, 0.1, 0.4, 0.1, 0.25, 0.25], &settings);
        assert!(search.finished[0].complete && !search.finished[1].complete);
        assert_eq!(search.finished[0].tokens, [0, 3, 1]);
        // Two new tokens and a length penalty of 1.
        assert!((search.finished[0].score - 0.28f32.ln() / 2.0).abs() < 1e-6);
    }

    #[test]
    fn the_length_penalty_decides_between_short_and_long() {
        let winner = |length_penalty| {
            let settings = settings(GenerationOptions {
                num_beams: Some(2),
                length_penalty: Some(length_penalty),
                max_new_tokens: Some(3),
                ..Default::default()
            });
            let mut search = Search::new(0, 2);
            step(&mut search, &[0.01, 0.45, 0.44, 0.1], &settings);
            for _ in 0..2 {
                step(&mut search, &[0.05, 0.05, 0.8, 0.1, 0.05, 0.05, 0.8, 0.1], &settings);
            }
            search.finish(1).remove(0).tokens
        };
        // ln 0.45 = -0.80 at length 1, ln(0.44 * 0.8 * 0.8) = -1.27 at length 3.
        assert_eq!(winner(0.0), [1]);
        assert_eq!(winner(1.0), [2, 2, 2]);
    }

    #[test]
    fn equal_scores_keep_their_order() {
        assert_eq!(top(&[1.0, 3.0, 1.0, 3.0], 3), [1, 3, 0]);
    }
}
