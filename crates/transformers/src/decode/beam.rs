//! Beam search, with the scores, the order and the stopping of `transformers` 5.
//!
//! All arithmetic on scores is in f32, and "impossible" is a score of -1e9 rather than minus infinity, since both
//! decide which of two hypotheses wins. Ties go to the candidate of the lower beam, then of the lower token id.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_checkpoint::Result;

use super::{
    EarlyStopping, Hypothesis,
    rules::Rules,
    sample,
    scores::{self, Scored},
    sequences::Sequences,
    settings::{GenerationSettings, Sampling},
};

/// Added to a score so that it cannot win.
const IMPOSSIBLE: f32 = -1e9;

/// `num_return_sequences` hypotheses for each input, best first.
pub(super) fn search(
    sequences: &mut dyn Sequences,
    rules: &[Rules<'_>],
    beams: usize,
) -> Result<Vec<Vec<Hypothesis>>> {
    let vocabulary = sequences.vocab_size();
    let mut open: Vec<Search> = rules.iter().map(Search::new).collect();
    let mut found: Vec<Vec<Hypothesis>> = vec![Vec::new(); open.len()];
    let mut scores = sequences.begin()?;
    // Before the first step all beams of an input are equal, so one row represents all of them.
    let mut rows_each = 1;
    loop {
        let sources: Vec<Vec<usize>> = open
            .par_iter_mut()
            .zip(scores.par_chunks_exact_mut(rows_each * vocabulary))
            .map(|(search, rows)| search.step(rows, vocabulary, &rules[search.input]))
            .collect();
        let (mut kept, mut rows) = (Vec::with_capacity(open.len()), Vec::with_capacity(open.len() * beams));
        let count = open.len();
        let mut going_on = Vec::with_capacity(count);
        for (at, (search, sources)) in open.into_iter().zip(sources).enumerate() {
            let input = search.input;
            let rules = &rules[input];
            if rules.sink_ends(None) {
                found[input] = search.interrupted(rules);
            } else if search.is_open(rules) {
                kept.push(at as u32);
                rows.extend(sources.iter().map(|beam| (at * rows_each + beam % rows_each) as u32));
                going_on.push(search);
            } else {
                found[input] = search.finish(rules);
            }
        }
        open = going_on;
        if open.is_empty() {
            return Ok(found);
        }
        if kept.len() < count {
            sequences.keep(&kept, &rows)?;
        } else if rows_each < beams || rows.iter().enumerate().any(|(at, row)| at != *row as usize) {
            sequences.reorder(&rows)?;
        }
        rows_each = beams;
        let last: Vec<u32> = open.iter().flat_map(Search::last_tokens).collect();
        scores = sequences.next(&last)?;
    }
}

/// A sequence, its prompt first, with its score.
#[derive(Debug, Clone)]
struct Beam {
    tokens: Vec<u32>,
    score: f32,
    complete: bool,
}

/// The search of one input.
#[derive(Debug)]
struct Search {
    input: usize,
    /// The number of tokens that every sequence begins with.
    prompt: usize,
    /// The sequences that go on, best first, by their log-probability.
    running: Vec<Beam>,
    /// The places for complete sequences, best first, by their score with the length penalty.
    finished: Vec<Beam>,
    /// Whether a running sequence may still become better than a finished one.
    improvable: bool,
    /// Samples candidates, if sampling is on.
    rng: Option<ChaCha8Rng>,
}

/// A continuation of the running sequence `beam`.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    beam: usize,
    token: u32,
    score: f32,
}

impl Search {
    fn new(rules: &Rules<'_>) -> Self {
        let (beams, prompt) = (rules.settings.num_beams, rules.prompt);
        let beam = |score| Beam { tokens: prompt.to_vec(), score, complete: false };
        // All but the first begin as impossible, so that the first step does not take the same token many times.
        let running = (0..beams).map(|i| beam(if i == 0 { 0.0 } else { IMPOSSIBLE })).collect();
        let finished = vec![beam(IMPOSSIBLE); beams];
        let rng = rules.settings.sampling.as_ref().map(|sampling| sample::generator(rules, sampling, 0));
        Self { input: rules.input, prompt: prompt.len(), running, finished, improvable: true, rng }
    }

    /// The number of new tokens of the running sequences.
    fn new_tokens(&self) -> usize {
        self.running[0].tokens.len() - self.prompt
    }

    fn last_tokens(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|beam| beam.tokens[beam.tokens.len() - 1])
    }

    /// Takes the scores of the next tokens (one row for each beam, or one row for all), and returns for each new
    /// running sequence the beam that it continues.
    fn step(&mut self, rows: &mut [f32], vocabulary: usize, rules: &Rules<'_>) -> Vec<usize> {
        let settings = rules.settings;
        let beams = settings.num_beams;
        let sequences: Vec<&[u32]> =
            self.running.iter().take(rows.len() / vocabulary).map(|beam| beam.tokens.as_slice()).collect();
        let normalisers = rules.apply_normalised(&sequences, rows);
        // Enough for `beams` of them to continue even if every end token follows each beam.
        let count = (1 + rules.special.eos.len()).max(2) * beams;
        let candidates = match &settings.sampling {
            None => self.best(rows, vocabulary, &rules.renormalised(rows, normalisers), count),
            Some(sampling) => {
                self.draw(rows, vocabulary, &normalisers, count, (sampling, settings.renormalises))
            }
        };
        let length = self.new_tokens() + 1;
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
        // Only the best `beams` candidates may finish; the others are continuations that replace them.
        let finishes = |rank: usize| ends[rank] && rank < beams && rules.counts(candidates[rank].token);
        for (rank, candidate) in candidates.iter().enumerate() {
            let mut score = candidate.score / penalty;
            if full {
                score += IMPOSSIBLE;
            }
            if !self.improvable {
                score += IMPOSSIBLE;
            }
            if !finishes(rank) {
                score += IMPOSSIBLE;
            }
            scores.push(score);
        }
        self.finished = top(&scores, beams)
            .into_iter()
            .map(|i| match i.checked_sub(beams) {
                None => self.finished[i].clone(),
                Some(rank) => {
                    Beam { score: scores[i], complete: finishes(rank), ..self.extended(candidates[rank]) }
                }
            })
            .collect();

        let (sources, running) = next.into_iter().unzip();
        self.running = running;
        self.improvable = self.improvable && self.can_improve(rules);
        sources
    }

    /// Whether the best running sequence could still rank before a finished one, according to `early_stopping`.
    fn can_improve(&self, rules: &Rules<'_>) -> bool {
        let settings = rules.settings;
        let length = match settings.early_stopping {
            EarlyStopping::Never if settings.length_penalty > 0.0 => rules.limit,
            _ => self.new_tokens(),
        };
        let best = self.running[0].score / penalty(length, settings);
        let worst = self.finished.iter().map(|beam| beam.score).fold(f32::INFINITY, f32::min);
        self.finished.iter().any(|beam| best > if beam.complete { worst } else { IMPOSSIBLE })
    }

    fn is_full(&self) -> bool {
        self.finished.iter().all(|beam| beam.complete)
    }

    /// Whether another step could change the finished sequences.
    fn is_open(&self, rules: &Rules<'_>) -> bool {
        self.improvable
            && self.new_tokens() < rules.limit
            && !(self.is_full() && rules.settings.early_stopping == EarlyStopping::Yes)
    }

    fn extended(&self, candidate: Candidate) -> Beam {
        let source = &self.running[candidate.beam].tokens;
        let mut tokens = Vec::with_capacity(source.len() + 1);
        tokens.extend_from_slice(source);
        tokens.push(candidate.token);
        Beam { tokens, score: candidate.score, complete: false }
    }

    /// Each running sequence with its scores and their normaliser; one row may stand for all.
    fn rows<'r>(
        &self,
        rows: &'r [f32],
        vocabulary: usize,
        normalisers: &[f32],
    ) -> Vec<(usize, f32, &'r [f32], f32)> {
        let count = rows.len() / vocabulary;
        let row = |beam: usize| &rows[beam % count * vocabulary..][..vocabulary];
        let beams = self.running.iter().enumerate();
        beams.map(|(beam, running)| (beam, running.score, row(beam), normalisers[beam % count])).collect()
    }

    /// The `count` best continuations of all beams, best first.
    fn best(&self, rows: &[f32], vocabulary: usize, normalisers: &[f32], count: usize) -> Vec<Candidate> {
        let rows = self.rows(rows, vocabulary, normalisers);
        let mut best: Vec<Candidate> = rows
            .into_par_iter()
            .flat_map_iter(|(beam, sum, row, normaliser)| {
                let candidate = move |Scored { token, score }| Candidate { beam, token, score };
                scores::best(row, normaliser, sum, count).into_iter().map(candidate)
            })
            .collect();
        // Stable: among equal scores the lower beam, then the lower token stays first.
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(count);
        best
    }

    /// `count` continuations of all beams, sampled without replacement. With `renormalises`, the tokens that sampling leaves to
    /// a beam share all probability.
    fn draw(
        &mut self,
        rows: &[f32],
        vocabulary: usize,
        normalisers: &[f32],
        count: usize,
        (sampling, renormalises): (&Sampling, bool),
    ) -> Vec<Candidate> {
        let rows = self.rows(rows, vocabulary, normalisers);
        let mut keyed: Vec<(f64, Candidate)> = Vec::new();
        if let Some(rng) = &mut self.rng {
            for (beam, sum, row, normaliser) in rows {
                let mut choices = sample::warp(row, normaliser, sampling);
                if renormalises {
                    sample::normalise(&mut choices);
                }
                for Scored { token, score } in choices {
                    let score = score + sum;
                    // The order of scores with Gumbel noise has the distribution of such samples.
                    let noise = -(-rng.random::<f64>().ln()).ln();
                    keyed.push((f64::from(score) + noise, Candidate { beam, token, score }));
                }
            }
        }
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut drawn: Vec<Candidate> =
            keyed.into_iter().map(|(_, candidate)| candidate).take(count).collect();
        // Where too little is possible, the rest cannot win.
        drawn.resize(count, Candidate { beam: 0, token: 0, score: f32::NEG_INFINITY });
        drawn
    }

    /// The finished sequences, or else the running ones.
    fn interrupted(mut self, rules: &Rules<'_>) -> Vec<Hypothesis> {
        if !self.finished.iter().any(|beam| beam.complete) {
            self.finished.clone_from(&self.running);
        }
        self.finish(rules)
    }

    fn finish(mut self, rules: &Rules<'_>) -> Vec<Hypothesis> {
        if rules.complete_only() {
            self.finished.retain(|beam| beam.complete);
        }
        self.finished.truncate(rules.settings.num_return_sequences);
        let hypothesis =
            |beam: Beam| Hypothesis { tokens: beam.tokens[self.prompt..].to_vec(), score: beam.score };
        self.finished.into_iter().map(hypothesis).collect()
    }
}

/// The divisor of the log-probability of a sequence of `length` new tokens.
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
    use crate::decode::{GenerationOptions, rules::Rules, settings::GenerationSettings};
    use sporran_checkpoint::SpecialTokens;

    fn special() -> SpecialTokens {
        SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 }
    }

    fn settings(options: GenerationOptions) -> GenerationSettings {
        options.settings(&special(), 4, 1).unwrap()
    }

    fn step(search: &mut Search, probabilities: &[f32], rules: &Rules<'_>) -> Vec<usize> {
        let mut rows: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        search.step(&mut rows, 4, rules)
    }

    #[test]
    fn the_first_step_takes_different_tokens() {
        let settings = settings(GenerationOptions { num_beams: Some(2), ..Default::default() });
        let special = special();
        let rules = Rules::new(&settings, &special, &[0], usize::MAX);
        let mut search = Search::new(&rules);
        let sources = step(&mut search, &[0.1, 0.2, 0.3, 0.4], &rules);
        assert_eq!(sources, [0, 0]);
        assert_eq!(search.last_tokens().collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_sequence_that_ends_outside_the_best_beams_does_not_finish() {
        let settings = settings(GenerationOptions { num_beams: Some(2), ..Default::default() });
        let special = special();
        let rules = Rules::new(&settings, &special, &[0], usize::MAX);
        let mut search = Search::new(&rules);
        // The end token is third.
        step(&mut search, &[0.1, 0.2, 0.3, 0.4], &rules);
        assert!(search.finished.iter().all(|beam| !beam.complete));
        // Now it is the best continuation of the first beam: 0.4 * 0.7 = 0.28.
        step(&mut search, &[0.1, 0.7, 0.1, 0.1, 0.4, 0.1, 0.25, 0.25], &rules);
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
            let special = special();
            let rules = Rules::new(&settings, &special, &[0], usize::MAX);
            let mut search = Search::new(&rules);
            step(&mut search, &[0.01, 0.45, 0.44, 0.1], &rules);
            for _ in 0..2 {
                step(&mut search, &[0.05, 0.05, 0.8, 0.1, 0.05, 0.05, 0.8, 0.1], &rules);
            }
            search.finish(&rules).remove(0).tokens
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
