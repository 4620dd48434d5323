//! Greedy search: the best next token at every step.

use super::{Hypothesis, log_sum_exp, options::GenerationSettings, rules::Rules};
use crate::{
    cache::Cache,
    error::Result,
    seq2seq::{Memory, Seq2Seq},
};

/// One hypothesis for each input of `memory`.
pub(super) fn search(
    model: &dyn Seq2Seq,
    memory: &Memory,
    settings: &GenerationSettings,
) -> Result<Vec<Vec<Hypothesis>>> {
    let special = model.special_tokens();
    let rules = Rules::new(settings, &special.eos);
    // Each sequence begins with the decoder's start token.
    let mut sequences = vec![(vec![special.decoder_start], 0f32); memory.size()];
    let mut open: Vec<usize> = (0..sequences.len()).collect();
    let mut memory = memory.clone();
    let mut cache = Cache::new();
    while !open.is_empty() {
        let last: Vec<u32> = open.iter().map(|i| sequences[*i].0[sequences[*i].0.len() - 1]).collect();
        let mut logits = model.decode(&last, last.len(), &memory, &mut cache)?;
        let vocabulary = logits.len() / open.len();
        let mut kept = Vec::with_capacity(open.len());
        for (row, scores) in logits.chunks_exact_mut(vocabulary).enumerate() {
            let (tokens, sum) = &mut sequences[open[row]];
            rules.apply(tokens, scores);
            let best = argmax(scores);
            *sum += scores[best] - log_sum_exp(scores);
            tokens.push(best as u32);
            if !rules.ends(best as u32, tokens.len() - 1) {
                kept.push(row as u32);
            }
        }
        if kept.len() < open.len() && !kept.is_empty() {
            memory = memory.select(&kept)?;
            cache.keep(&kept, &kept)?;
        }
        open = kept.into_iter().map(|row| open[row as usize]).collect();
    }
    let hypothesis =
        |(tokens, score): (Vec<u32>, f32)| vec![Hypothesis { tokens: tokens[1..].to_vec(), score }];
    Ok(sequences.into_iter().map(hypothesis).collect())
}

/// The first of the highest scores.
fn argmax(scores: &[f32]) -> usize {
    let mut best = 0;
    for (i, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::argmax;

    #[test]
    fn the_first_of_equal_scores_is_taken() {
        assert_eq!(argmax(&[f32::NEG_INFINITY, 2.0, 1.0, 2.0]), 1);
    }
}
