//! Linear-chain conditional random fields (Lafferty et al. 2001) over the labels of a sequence, with exact marginals, exact
//! gradients and the best path.
//!
//! A sequence may be labelled in part: each token has a set of possible labels, and training
//! maximises the probability of all paths within the sets (Tsuboi et al. 2008). Sets of one label are full supervision.

use std::collections::HashMap;

use candle_core::Tensor;
use sporran_checkpoint::{Error, Result, stored_values};

/// Which labels may begin a sequence, and which may follow which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrfGrammar {
    labels: usize,
    starts: Vec<bool>,
    /// `follows[a * labels + b]`: whether b may come after a.
    follows: Vec<bool>,
}

impl CrfGrammar {
    /// Spans of `kinds` kinds in the BIO scheme (Ramshaw and Marcus 1995): label 0 is outside, 1 + 2 k begins a span of kind
    /// k, and 2 + 2 k, inside it, only comes after one of the two.
    ///
    /// # Panics
    /// For more than 15 kinds, whose labels would not fit a set of 32.
    #[must_use]
    pub fn bio(kinds: usize) -> Self {
        assert!(kinds <= 15);
        let labels = 1 + 2 * kinds;
        let is_inside = |label: usize| label > 0 && label.is_multiple_of(2);
        let starts = (0..labels).map(|label| !is_inside(label)).collect();
        let follows =
            |before: usize, label: usize| !is_inside(label) || before == label || before + 1 == label;
        let follows = (0..labels * labels).map(|at| follows(at / labels, at % labels)).collect();
        Self { labels, starts, follows }
    }

    /// The number of labels.
    #[must_use]
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The set of all labels.
    #[must_use]
    pub fn all(&self) -> u32 {
        u32::MAX >> (32 - self.labels)
    }
}

/// The names of the weights, under that of the field.
pub const CRF_WEIGHTS: [&str; 3] = ["transitions", "start", "end"];

/// A conditional random field: a grammar with the weights of its transitions.
#[derive(Clone, Debug)]
pub struct Crf {
    grammar: CrfGrammar,
    /// Exponentials; 0 for transitions that the grammar forbids.
    transitions: Vec<f64>,
    start: Vec<f64>,
    end: Vec<f64>,
}

/// Sums over all paths through a sequence, or over those in its sets of labels.
struct Sums {
    /// The logarithm of the sum of all paths' weights.
    log: f64,
    /// For each token the probability of each label.
    labels: Vec<f64>,
    /// The expected number of each transition.
    pairs: Vec<f64>,
}

impl Crf {
    /// A field with these weights, in the order of [`CRF_WEIGHTS`].
    #[must_use]
    pub fn new(grammar: CrfGrammar, [transitions, start, end]: [Vec<f32>; 3]) -> Self {
        let exp = |weight: f32, allowed: bool| if allowed { f64::from(weight).exp() } else { 0.0 };
        let transitions = transitions.iter().zip(&grammar.follows).map(|(w, ok)| exp(*w, *ok)).collect();
        let start = start.iter().zip(&grammar.starts).map(|(w, ok)| exp(*w, *ok)).collect();
        let end = end.into_iter().map(|weight| exp(weight, true)).collect();
        Self { grammar, transitions, start, end }
    }

    /// Takes the weights under `name` from `tensors`.
    ///
    /// # Errors
    /// [`Error::Stored`] where a tensor is missing or has another shape.
    pub fn open(grammar: CrfGrammar, name: &str, tensors: &HashMap<String, Tensor>) -> Result<Self> {
        let labels = grammar.labels;
        let weights = |at: usize| -> Result<Vec<f32>> {
            let shape: &[usize] = if at == 0 { &[labels, labels] } else { &[labels] };
            stored_values(tensors, &format!("{name}.{}", CRF_WEIGHTS[at]), shape)
        };
        Ok(Self::new(grammar.clone(), [weights(0)?, weights(1)?, weights(2)?]))
    }

    /// The grammar.
    #[must_use]
    pub fn grammar(&self) -> &CrfGrammar {
        &self.grammar
    }

    /// The exponentials of a token's scores less the greatest of those in its set, with that.
    fn weights(&self, scores: &[f32], allowed: u32, out: &mut [f64]) -> f64 {
        let is_in = |label: usize| allowed >> label & 1 == 1;
        let of = (0..self.grammar.labels).filter(|label| is_in(*label)).map(|label| f64::from(scores[label]));
        let greatest = of.fold(f64::NEG_INFINITY, f64::max);
        for (label, out) in out.iter_mut().enumerate() {
            *out = if is_in(label) { (f64::from(scores[label]) - greatest).exp() } else { 0.0 };
        }
        greatest
    }

    /// Forwards and backwards over a sequence; none where no path is in the sets. Both are scaled token by token, so that
    /// neither long sequences nor large scores overflow.
    fn sums(&self, scores: &[f32], allowed: Option<&[u32]>) -> Option<Sums> {
        let count = self.grammar.labels;
        let tokens = scores.len() / count;
        let all = self.grammar.all();
        let mut weights = vec![0.0; tokens * count];
        let mut forward = vec![0.0; tokens * count];
        let mut scales = vec![0.0; tokens];
        let mut log = 0.0;
        for token in 0..tokens {
            let set = allowed.map_or(all, |sets| sets[token] & all);
            let part = &mut weights[token * count..][..count];
            log += self.weights(&scores[token * count..][..count], set, part);
            let (before, rest) = forward.split_at_mut(token * count);
            let here = &mut rest[..count];
            for label in 0..count {
                here[label] = part[label]
                    * match token.checked_sub(1) {
                        None => self.start[label],
                        Some(last) => {
                            let before = &before[last * count..][..count];
                            (0..count).map(|from| before[from] * self.transitions[from * count + label]).sum()
                        }
                    };
            }
            let scale: f64 = here.iter().sum();
            if scale <= 0.0 {
                return None;
            }
            here.iter_mut().for_each(|value| *value /= scale);
            scales[token] = scale;
            log += scale.ln();
        }
        let mut labels = vec![0.0; tokens * count];
        let mut pairs = vec![0.0; count * count];
        if tokens == 0 {
            return Some(Sums { log: 0.0, labels, pairs });
        }
        let last = &forward[(tokens - 1) * count..];
        let total: f64 = last.iter().zip(&self.end).map(|(a, b)| a * b).sum();
        log += total.ln();
        let mut backward: Vec<f64> = self.end.iter().map(|end| end / total).collect();
        for token in (0..tokens).rev() {
            let here = &forward[token * count..][..count];
            for label in 0..count {
                labels[token * count + label] = here[label] * backward[label];
            }
            let Some(before) = token.checked_sub(1) else { break };
            let weights = &weights[token * count..][..count];
            let from_here: Vec<f64> =
                (0..count).map(|label| weights[label] * backward[label] / scales[token]).collect();
            let before = &forward[before * count..][..count];
            for from in 0..count {
                let mut sum = 0.0;
                for label in 0..count {
                    let way = self.transitions[from * count + label] * from_here[label];
                    pairs[from * count + label] += before[from] * way;
                    sum += way;
                }
                backward[from] = sum;
            }
        }
        Some(Sums { log, labels, pairs })
    }

    /// For each token the probability of each label, (tokens, labels), from the scores of the same shape.
    #[must_use]
    pub fn marginals(&self, scores: &[f32]) -> Vec<f32> {
        // Every grammar lets a sequence be outside throughout, so there is a path.
        self.sums(scores, None).map_or_else(Vec::new, |sums| sums.labels.iter().map(|p| *p as f32).collect())
    }

    /// The most probable path (Viterbi 1967); of two the one with the smaller label where they part last.
    #[must_use]
    pub fn best_path(&self, scores: &[f32]) -> Vec<usize> {
        let count = self.grammar.labels;
        let tokens = scores.len() / count;
        let log = |weights: &[f64]| weights.iter().map(|weight| weight.ln()).collect::<Vec<_>>();
        let (transitions, start, end) = (log(&self.transitions), log(&self.start), log(&self.end));
        let mut origins = vec![0u8; tokens * count];
        let mut best: Vec<f64> = Vec::new();
        for (token, scores) in scores.chunks_exact(count).enumerate() {
            let from_before = |label: usize, origin: &mut u8| {
                let mut greatest = f64::NEG_INFINITY;
                for from in 0..count {
                    let value = best[from] + transitions[from * count + label];
                    if value > greatest {
                        (greatest, *origin) = (value, from as u8);
                    }
                }
                greatest
            };
            let next = (0..count).map(|label| {
                let way = match token {
                    0 => start[label],
                    _ => from_before(label, &mut origins[token * count + label]),
                };
                way + f64::from(scores[label])
            });
            best = next.collect();
        }
        let mut label = 0;
        let mut greatest = f64::NEG_INFINITY;
        for (at, (value, end)) in best.iter().zip(&end).enumerate() {
            if value + end > greatest {
                (greatest, label) = (value + end, at);
            }
        }
        let mut path = vec![0; tokens];
        for token in (0..tokens).rev() {
            path[token] = label;
            label = origins[token * count + label] as usize;
        }
        path
    }
}

/// The gradients of a batch by the weights of the field.
#[derive(Debug)]
pub struct CrfGradients([Vec<f64>; 3]);

impl CrfGradients {
    /// Zero for each weight of a field of this grammar.
    #[must_use]
    pub fn zeros(grammar: &CrfGrammar) -> Self {
        let labels = grammar.labels;
        Self([vec![0.0; labels * labels], vec![0.0; labels], vec![0.0; labels]])
    }

    /// Those of each of [`CRF_WEIGHTS`].
    #[must_use]
    pub fn of_weights(&self) -> &[Vec<f64>; 3] {
        &self.0
    }
}

impl Crf {
    /// The negative logarithm of the probability that a sequence's labels are in `allowed`, a set of bits for each token, over
    /// `weight`. Its gradient by the scores is added to `to_scores`, and that by the field's weights to `gradients`.
    ///
    /// # Errors
    /// [`Error::Batch`] where no path is in the sets.
    pub fn learn(
        &self,
        scores: &[f32],
        allowed: &[u32],
        weight: f64,
        to_scores: &mut [f32],
        gradients: &mut CrfGradients,
    ) -> Result<f64> {
        let count = self.grammar.labels;
        let (Some(all), Some(some)) = (self.sums(scores, None), self.sums(scores, Some(allowed))) else {
            return Err(Error::Batch {
                expected: "labels that may follow one another".into(),
                found: format!("{allowed:?}"),
            });
        };
        for ((to_score, all), some) in to_scores.iter_mut().zip(&all.labels).zip(&some.labels) {
            *to_score += ((all - some) / weight) as f32;
        }
        let [transitions, start, end] = &mut gradients.0;
        let add = |sums: &mut [f64], all: &[f64], some: &[f64]| {
            for ((sum, all), some) in sums.iter_mut().zip(all).zip(some) {
                *sum += (all - some) / weight;
            }
        };
        add(transitions, &all.pairs, &some.pairs);
        if let Some(last) = allowed.len().checked_sub(1) {
            add(start, &all.labels[..count], &some.labels[..count]);
            add(end, &all.labels[last * count..], &some.labels[last * count..]);
        }
        Ok((all.log - some.log) / weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: usize = 2;
    const LABELS: usize = 5;

    fn wave(count: usize, pace: f64) -> Vec<f32> {
        (0..count).map(|at| (2.0 * ((at as f64 + 0.5) * pace).sin()) as f32).collect()
    }

    fn weights() -> [Vec<f32>; 3] {
        [wave(LABELS * LABELS, 0.7), wave(LABELS, 1.1), wave(LABELS, 1.7)]
    }

    /// Every path that the grammar allows, with the logarithm of its weight.
    fn paths(weights: &[Vec<f32>; 3], scores: &[f32]) -> Vec<(Vec<usize>, f64)> {
        let grammar = CrfGrammar::bio(KINDS);
        let tokens = scores.len() / LABELS;
        let of = |mut number: usize| {
            let mut path = Vec::new();
            for _ in 0..tokens {
                path.push(number % LABELS);
                number /= LABELS;
            }
            let steps = path.windows(2).all(|pair| grammar.follows[pair[0] * LABELS + pair[1]]);
            if !steps || !grammar.starts[path[0]] {
                return None;
            }
            let mut sum = f64::from(weights[1][path[0]]) + f64::from(weights[2][path[tokens - 1]]);
            sum += path.iter().enumerate().map(|(t, l)| f64::from(scores[t * LABELS + l])).sum::<f64>();
            sum += path.windows(2).map(|p| f64::from(weights[0][p[0] * LABELS + p[1]])).sum::<f64>();
            Some((path, sum))
        };
        (0..LABELS.pow(tokens as u32)).filter_map(of).collect()
    }

    #[test]
    fn an_inside_label_only_comes_after_its_own_span() {
        let grammar = CrfGrammar::bio(KINDS);
        let follows = |a: usize, b: usize| grammar.follows[a * LABELS + b];
        assert!(follows(1, 2) && follows(2, 2) && follows(4, 1) && follows(0, 3) && follows(2, 0));
        assert!(
            !follows(0, 2) && !follows(3, 2) && !follows(4, 2) && !grammar.starts[4] && grammar.starts[3]
        );
        assert_eq!(grammar.all(), 0b11111);
    }

    #[test]
    fn marginals_and_the_best_path_are_those_of_all_paths() {
        let (weights, scores) = (weights(), wave(4 * LABELS, 0.43));
        let crf = Crf::new(CrfGrammar::bio(KINDS), weights.clone());
        let paths = paths(&weights, &scores);
        let total: f64 = paths.iter().map(|(_, log)| log.exp()).sum();
        let found = crf.marginals(&scores);
        for token in 0..4 {
            for label in 0..LABELS {
                let through = paths.iter().filter(|(path, _)| path[token] == label);
                let expected = through.map(|(_, log)| log.exp()).sum::<f64>() / total;
                assert!((f64::from(found[token * LABELS + label]) - expected).abs() < 1e-6);
            }
        }
        let best = paths.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert_eq!(crf.best_path(&scores), best.0);
        assert!(crf.best_path(&[]).is_empty() && crf.marginals(&[]).is_empty());
    }

    #[test]
    fn the_loss_is_that_of_the_paths_in_the_sets_and_its_gradient_what_differences_show() {
        let (weights, scores) = (weights(), wave(4 * LABELS, 0.43));
        // The second token is known, the third is not outside, the others are unknown.
        let allowed = [0b11111, 0b00010, 0b11110, 0b11111];
        let loss = |weights: &[Vec<f32>; 3], scores: &[f32]| {
            let paths = paths(weights, scores);
            let is_in = |path: &[usize]| path.iter().zip(allowed).all(|(label, set)| set >> label & 1 == 1);
            let all: f64 = paths.iter().map(|(_, log)| log.exp()).sum();
            let some: f64 = paths.iter().filter(|(path, _)| is_in(path)).map(|(_, log)| log.exp()).sum();
            -(some / all).ln() / 3.0
        };
        let crf = Crf::new(CrfGrammar::bio(KINDS), weights.clone());
        let (mut to_scores, mut own) = (vec![0.0; scores.len()], CrfGradients::zeros(crf.grammar()));
        let found = crf.learn(&scores, &allowed, 3.0, &mut to_scores, &mut own).unwrap();
        assert!((found - loss(&weights, &scores)).abs() < 1e-7);
        let step = 1e-2;
        for at in 0..scores.len() {
            let moved = |sign: f32| {
                let mut scores = scores.clone();
                scores[at] += sign * step;
                loss(&weights, &scores)
            };
            let slope = (moved(1.0) - moved(-1.0)) / f64::from(2.0 * step);
            assert!((f64::from(to_scores[at]) - slope).abs() < 1e-4, "{at}");
        }
        for (which, name) in CRF_WEIGHTS.iter().enumerate() {
            let gradient = &own.of_weights()[which];
            for at in 0..weights[which].len() {
                let moved = |sign: f32| {
                    let mut weights = weights.clone();
                    weights[which][at] += sign * step;
                    loss(&weights, &scores)
                };
                let slope = (moved(1.0) - moved(-1.0)) / f64::from(2.0 * step);
                assert!((gradient[at] - slope).abs() < 1e-4, "{name} {at}");
            }
        }
    }

    #[test]
    fn long_sequences_and_great_scores_stay_within_numbers() {
        let crf = Crf::new(CrfGrammar::bio(KINDS), weights());
        let scores: Vec<f32> = wave(3000 * LABELS, 0.43).iter().map(|score| score * 300.0).collect();
        let found = crf.marginals(&scores);
        for token in found.chunks_exact(LABELS) {
            assert!((token.iter().sum::<f32>() - 1.0).abs() < 1e-3);
        }
        let (mut to_scores, mut own) = (vec![0.0; scores.len()], CrfGradients::zeros(crf.grammar()));
        let loss = crf.learn(&scores, &vec![1; 3000], 1.0, &mut to_scores, &mut own).unwrap();
        assert!(loss.is_finite() && to_scores.iter().all(|value| value.is_finite()));
        // An inside label cannot begin a sequence.
        assert!(crf.learn(&scores[..LABELS], &[0b100], 1.0, &mut to_scores, &mut own).is_err());
    }
}
