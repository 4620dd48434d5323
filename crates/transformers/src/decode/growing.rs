//! Search without beams: a sequence grows by the most probable token (greedy search), or by sampled tokens.

use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};

use super::{
    Hypothesis,
    rules::Rules,
    sample::{choices, draw, generator},
    scores::{Scored, argmax, log_sum_exp},
    sequences::Sequences,
};

/// `num_return_sequences` hypotheses for each input, in the order of drawing.
pub(super) fn search(sequences: &mut dyn Sequences, rules: &[Rules<'_>]) -> Result<Vec<Vec<Hypothesis>>> {
    if rules.is_empty() {
        // Models refuse a batch without inputs.
        return sequences.begin().map(|_| Vec::new());
    }
    let mut found: Vec<Growing> = rules.iter().map(Growing::new).collect();
    let mut open: Vec<usize> = (0..found.len()).collect();
    let mut batch = Growth::default();
    loop {
        let inputs = rules.iter().copied().zip(&mut found).enumerate();
        let mut inputs: Vec<(Rules<'_>, &mut Growing)> = inputs
            .filter(|(input, _)| open.binary_search(input).is_ok())
            .map(|(_, followed)| followed)
            .collect();
        for grown in batch.grow(sequences, &mut inputs)? {
            grown?;
        }
        let mut kept = Vec::with_capacity(open.len());
        for (at, (rules, growing)) in inputs.iter_mut().enumerate() {
            if rules.sink_ends(growing.token()) {
                growing.end();
            }
            if !growing.is_over() {
                kept.push(at as u32);
            }
        }
        if kept.is_empty() {
            break;
        }
        let each = found[open[kept[0] as usize]].sequences.len();
        batch.keep(sequences, &kept, each)?;
        open = kept.into_iter().map(|at| open[at as usize]).collect();
    }
    Ok(found.into_iter().zip(rules).map(|(growing, rules)| growing.hypotheses(rules)).collect())
}

/// The rows of a batch of inputs whose sequences grow.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The number of inputs that the model has read.
    begun: usize,
    /// The rows for each of them.
    rows_each: usize,
}

impl Growth {
    /// The number of inputs that the model has read.
    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    /// Adds a token to every sequence of `inputs`. Those that the model has not read come last, and `sequences` begins them.
    /// Result `i` is an error where no token may follow in input `i`.
    ///
    /// # Errors
    /// Errors of the model.
    pub(super) fn grow(
        &mut self,
        sequences: &mut dyn Sequences,
        inputs: &mut [(Rules<'_>, &mut Growing)],
    ) -> Result<Vec<Result<()>>> {
        let vocabulary = sequences.vocab_size();
        let mut scores = Vec::new();
        if self.begun > 0 {
            let begun = inputs[..self.begun].iter();
            let last: Vec<u32> = begun.flat_map(|(_, growing)| growing.last_tokens()).collect();
            scores = sequences.next(&last)?;
        }
        if self.begun < inputs.len() {
            let others = sequences.begin()?;
            if scores.is_empty() {
                // One row represents all sequences of an input.
                self.rows_each = 1;
                scores = others;
            } else {
                scores.extend(others);
            }
        }
        self.begun = inputs.len();
        let rows = scores.par_chunks_exact_mut(self.rows_each * vocabulary);
        let grow = |((rules, growing), rows): (&mut (Rules<'_>, &mut Growing), &mut [f32])| {
            growing.grow(rules, rows, vocabulary)
        };
        Ok(inputs.par_iter_mut().zip(rows).map(grow).collect())
    }

    /// Follows the inputs `kept` only, which the model has read, in that order, with `each` rows for each of them.
    ///
    /// # Errors
    /// Errors of the model.
    pub(super) fn keep(&mut self, sequences: &mut dyn Sequences, kept: &[u32], each: usize) -> Result<()> {
        let before = self.rows_each;
        let rows_of = |at: &u32| {
            let first = *at as usize * before;
            (0..each).map(move |nth| (first + nth % before) as u32)
        };
        let rows: Vec<u32> = kept.iter().flat_map(rows_of).collect();
        if kept.len() < self.begun {
            sequences.keep(kept, &rows)?;
        } else if before < each {
            sequences.reorder(&rows)?;
        }
        (self.begun, self.rows_each) = (kept.len(), each);
        Ok(())
    }
}

/// The sequences of an input: one, or some that are sampled.
#[derive(Debug)]
pub(super) struct Growing {
    sequences: Vec<Sequence>,
}

#[derive(Debug)]
struct Sequence {
    /// The prompt and the new tokens.
    tokens: Vec<u32>,
    score: f32,
    is_over: bool,
    /// Draws the tokens if they are sampled.
    rng: Option<ChaCha8Rng>,
}

impl Growing {
    /// The prompt of an input.
    pub(super) fn new(rules: &Rules<'_>) -> Self {
        let sampling = rules.settings.sampling.as_ref();
        let sequence = |nth: usize| Sequence {
            tokens: rules.prompt.to_vec(),
            score: 0.0,
            is_over: false,
            rng: sampling.map(|sampling| generator(rules, sampling, nth as u64)),
        };
        Self { sequences: (0..rules.settings.num_return_sequences).map(sequence).collect() }
    }

    /// Adds a token to every sequence that is not over. `scores` has a row for each sequence, or one for all.
    fn grow(&mut self, rules: &Rules<'_>, scores: &mut [f32], vocabulary: usize) -> Result<()> {
        let sampling = rules.settings.sampling.as_ref();
        if let Some(sampling) = sampling.filter(|_| scores.len() < self.sequences.len() * vocabulary) {
            let choices = choices(rules, sampling, &self.sequences[0].tokens, scores);
            let draw = |rng: &mut Option<ChaCha8Rng>| rng.as_mut().and_then(|rng| draw(&choices, rng));
            return self.sequences.iter_mut().try_for_each(|sequence| {
                let next = draw(&mut sequence.rng);
                sequence.push(next, rules)
            });
        }
        for (sequence, row) in self.sequences.iter_mut().zip(scores.chunks_exact_mut(vocabulary)) {
            if sequence.is_over {
                continue;
            }
            let next = match (sampling, &mut sequence.rng) {
                (Some(sampling), Some(rng)) => draw(&choices(rules, sampling, &sequence.tokens, row), rng),
                _ => most_probable(rules, &sequence.tokens, row),
            };
            sequence.push(next, rules)?;
        }
        Ok(())
    }

    /// The last token of every sequence.
    fn last_tokens(&self) -> impl Iterator<Item = u32> {
        self.sequences.iter().filter_map(|sequence| sequence.tokens.last().copied())
    }

    /// The last token, where there is one sequence.
    pub(super) fn token(&self) -> Option<u32> {
        match self.sequences.as_slice() {
            [one] => one.tokens.last().copied(),
            _ => None,
        }
    }

    /// Whether every sequence is over. Until then the input keeps the rows of all of them.
    pub(super) fn is_over(&self) -> bool {
        self.sequences.iter().all(|sequence| sequence.is_over)
    }

    /// Ends every sequence.
    fn end(&mut self) {
        self.sequences.iter_mut().for_each(|sequence| sequence.is_over = true);
    }

    /// The sequences that count, without the prompt.
    pub(super) fn hypotheses(self, rules: &Rules<'_>) -> Vec<Hypothesis> {
        let counts = |sequence: &Sequence| sequence.tokens.last().is_some_and(|last| rules.counts(*last));
        let hypothesis = |sequence: Sequence| Hypothesis {
            tokens: sequence.tokens[rules.prompt.len()..].to_vec(),
            score: sequence.score,
        };
        self.sequences.into_iter().filter(counts).map(hypothesis).collect()
    }
}

impl Sequence {
    fn push(&mut self, next: Option<Scored>, rules: &Rules<'_>) -> Result<()> {
        let new = self.tokens.len() - rules.prompt.len();
        let Some(Scored { token, score }) = next else { return Err(nothing_follows(new)) };
        self.score += score;
        self.tokens.push(token);
        self.is_over = rules.ends(token, new + 1);
        Ok(())
    }
}

/// The most probable token after `tokens` with its log-probability; none where no token may follow.
fn most_probable(rules: &Rules<'_>, tokens: &[u32], scores: &mut [f32]) -> Option<Scored> {
    rules.apply(tokens, scores);
    let best = argmax(scores);
    let score = best.score - log_sum_exp(scores);
    // Minus infinity less minus infinity.
    (!score.is_nan()).then_some(Scored { score, ..best })
}

/// The error of a sequence that no token may follow.
fn nothing_follows(new: usize) -> Error {
    Error::Options {
        option: "generation",
        expected: "rules that leave a token to go on with".into(),
        found: format!("none after {new} new tokens, or scores that are no numbers"),
    }
}
