//! Greedy search: the best next token at every step.

use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};

use super::{
    Hypothesis,
    rules::Rules,
    scores::{Scored, argmax, log_sum_exp},
    sequences::Sequences,
};

/// One hypothesis for each input.
pub(super) fn search(sequences: &mut dyn Sequences, rules: &Rules<'_>) -> Result<Vec<Vec<Hypothesis>>> {
    let mut found: Vec<(Vec<u32>, f32)> =
        rules.prompts().iter().map(|prompt| (prompt.clone(), 0.0)).collect();
    let mut open: Vec<usize> = (0..found.len()).collect();
    let mut scores = sequences.begin()?;
    let vocabulary = sequences.vocab_size();
    loop {
        let best: Vec<Scored> = scores
            .par_chunks_exact_mut(vocabulary)
            .zip(&open)
            .map(|(scores, input)| {
                rules.apply(*input, &[&found[*input].0], scores);
                let best = argmax(scores);
                Scored { score: best.score - log_sum_exp(scores), ..best }
            })
            .collect();
        let mut kept = Vec::with_capacity(open.len());
        for (row, best) in best.iter().enumerate() {
            let (tokens, sum) = &mut found[open[row]];
            let new = tokens.len() + 1 - rules.prompts()[open[row]].len();
            // Minus infinity less minus infinity.
            if best.score.is_nan() {
                return Err(nothing_follows(new - 1));
            }
            *sum += best.score;
            tokens.push(best.token);
            if !rules.ends(open[row], best.token, new) {
                kept.push(row as u32);
            }
        }
        if kept.is_empty() {
            break;
        }
        if kept.len() < open.len() {
            sequences.keep(&kept, &kept)?;
            open = kept.into_iter().map(|row| open[row as usize]).collect();
        }
        let last: Vec<u32> = open.iter().map(|input| found[*input].0[found[*input].0.len() - 1]).collect();
        scores = sequences.next(&last)?;
    }
    let hypothesis = |((tokens, score), prompt): ((Vec<u32>, f32), &Vec<u32>)| {
        let counts = tokens.last().is_some_and(|last| rules.counts(*last));
        counts.then(|| Hypothesis { tokens: tokens[prompt.len()..].to_vec(), score }).into_iter().collect()
    };
    Ok(found.into_iter().zip(rules.prompts()).map(hypothesis).collect())
}

/// The error of a sequence that no token may follow.
pub(super) fn nothing_follows(new: usize) -> Error {
    Error::Options {
        option: "generation",
        expected: "rules that leave a token to go on with".into(),
        found: format!("none after {new} new tokens, or scores that are no numbers"),
    }
}
