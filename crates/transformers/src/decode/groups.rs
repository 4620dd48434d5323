//! Diverse beam search (Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Scenes"): the beams
//! are followed in groups, one group after the other at every step, and a token loses for each beam of an earlier
//! group that took it at that step.
//!
//! Within a group the search is that of `transformers` 4 (`BeamSearchScorer`): a group ends when it has as many
//! finished sequences as beams and `early_stopping` is satisfied. Sequences at the maximum length count as finished,
//! and the finished sequences of all groups compete. To later groups, a group that has ended emits padding.

use rayon::prelude::*;
use sporran_checkpoint::Result;

use super::{
    EarlyStopping, Hypothesis,
    rules::Rules,
    scores::{self, Scored, log_sum_exp},
    sequences::Sequences,
    settings::GenerationSettings,
};

/// The score of a placeholder beam.
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
    for length in 1.. {
        let sources: Vec<Vec<usize>> = open
            .par_iter_mut()
            .zip(scores.par_chunks_exact_mut(rows_each * vocabulary))
            .map(|(search, rows)| search.step(rows, vocabulary, &rules[search.input]))
            .collect();
        let (mut kept, mut rows) = (Vec::with_capacity(open.len()), Vec::with_capacity(open.len() * beams));
        let count = open.len();
        let mut going_on = Vec::with_capacity(count);
        for (at, (search, sources)) in open.into_iter().zip(sources).enumerate() {
            let rules = &rules[search.input];
            let is_ended = rules.sink_ends(None);
            if !is_ended && length < rules.limit && search.groups.iter().any(|group| !group.over) {
                kept.push(at as u32);
                rows.extend(sources.iter().map(|beam| (at * rows_each + beam % rows_each) as u32));
                going_on.push(search);
            } else {
                let input = search.input;
                found[input] = search.finish(rules);
            }
        }
        open = going_on;
        if open.is_empty() {
            break;
        }
        if kept.len() < count {
            sequences.keep(&kept, &rows)?;
        } else {
            sequences.reorder(&rows)?;
        }
        rows_each = beams;
        let last: Vec<u32> = open.iter().flat_map(Search::last_tokens).collect();
        scores = sequences.next(&last)?;
    }
    Ok(found)
}

/// The search of one input.
struct Search {
    input: usize,
    prompt: usize,
    groups: Vec<Group>,
}

/// Some beams that compete with each other.
struct Group {
    /// The running sequences, prompts included, with their log-probabilities.
    running: Vec<(Vec<u32>, f32)>,
    finished: Finished,
    over: bool,
}

impl Search {
    fn new(rules: &Rules<'_>) -> Self {
        let (prompt, settings) = (rules.prompt, rules.settings);
        let size = settings.num_beams / settings.num_beam_groups;
        // All but a group's first beam begin as impossible, so that the first step takes different tokens.
        let beam = |i: usize| (prompt.to_vec(), if i == 0 { 0.0 } else { IMPOSSIBLE });
        let group = |_| Group {
            running: (0..size).map(beam).collect(),
            finished: Finished { places: size, longest: rules.limit, sequences: Vec::new() },
            over: false,
        };
        Self {
            input: rules.input,
            prompt: prompt.len(),
            groups: (0..settings.num_beam_groups).map(group).collect(),
        }
    }

    fn last_tokens(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().flat_map(Group::last_tokens)
    }

    /// Takes the scores of the next tokens (one row for each beam, or one row for all), and returns for each beam the
    /// one that it continues.
    fn step(&mut self, rows: &mut [f32], vocabulary: usize, rules: &Rules<'_>) -> Vec<usize> {
        let settings = rules.settings;
        let size = settings.num_beams / settings.num_beam_groups;
        let (mut sources, mut said) = (Vec::with_capacity(settings.num_beams), Vec::new());
        let normalisers: Vec<f32> = rows.par_chunks_exact(vocabulary).map(log_sum_exp).collect();
        let mut copy = Vec::new();
        for (at, group) in self.groups.iter_mut().enumerate() {
            let first = at * size;
            if group.over {
                sources.extend(first..first + size);
                said.resize(said.len() + size, rules.special.pad);
            } else {
                // One row for all is penalised differently for each group.
                let (rows, normalisers) = if rows.len() == vocabulary {
                    copy.clear();
                    copy.extend_from_slice(rows);
                    (copy.as_mut_slice(), normalisers.as_slice())
                } else {
                    (&mut rows[first * vocabulary..][..size * vocabulary], &normalisers[first..][..size])
                };
                penalise(rows, vocabulary, &said, settings.diversity_penalty);
                let from = group.step(rows, vocabulary, normalisers, rules, self.prompt);
                sources.extend(from.into_iter().map(|beam| first + beam));
                said.extend(group.last_tokens());
            }
        }
        sources
    }

    fn finish(self, rules: &Rules<'_>) -> Vec<Hypothesis> {
        let settings = rules.settings;
        let mut all: Vec<(f64, Vec<u32>)> = Vec::new();
        for mut group in self.groups {
            if !group.over && !rules.complete_only() {
                for (tokens, sum) in std::mem::take(&mut group.running) {
                    let length = tokens.len() - self.prompt;
                    group.finished.add(tokens, sum, length, settings);
                }
            }
            all.extend(group.finished.sequences);
        }
        // Among equal scores the one that finished last comes first.
        all.reverse();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(settings.num_return_sequences);
        let hypothesis = |(score, tokens): (f64, Vec<u32>)| Hypothesis {
            tokens: tokens[self.prompt..].to_vec(),
            score: score as f32,
        };
        all.into_iter().map(hypothesis).collect()
    }
}

impl Group {
    fn last_tokens(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|(tokens, _)| tokens[tokens.len() - 1])
    }

    /// Returns for each beam of the group the one that it continues.
    fn step(
        &mut self,
        rows: &mut [f32],
        vocabulary: usize,
        normalisers: &[f32],
        rules: &Rules<'_>,
        prompt: usize,
    ) -> Vec<usize> {
        let (settings, size, count) = (rules.settings, self.running.len(), rows.len() / vocabulary);
        let sequences: Vec<&[u32]> =
            self.running.iter().take(count).map(|(tokens, _)| tokens.as_slice()).collect();
        rules.apply_from(&sequences, rows, normalisers);
        let normalisers = rules.renormalised(rows, normalisers.to_vec());
        let length = self.running[0].0.len() + 1 - prompt;
        let wanted = (1 + rules.special.eos.len()).max(2) * size;
        let mut candidates: Vec<(usize, Scored)> = Vec::with_capacity(size * wanted);
        for (beam, (_, sum)) in self.running.iter().enumerate() {
            let row = &rows[beam % count * vocabulary..][..vocabulary];
            let best = scores::best(row, normalisers[beam % count], *sum, wanted);
            candidates.extend(best.into_iter().map(|candidate| (beam, candidate)));
        }
        candidates.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
        candidates.truncate(wanted);

        let (mut next, mut sources) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for (rank, (beam, Scored { token, score })) in candidates.iter().copied().enumerate() {
            let mut tokens = self.running[beam].0.clone();
            tokens.push(token);
            if rules.special.eos.contains(&token) {
                // Only the best candidates may finish; the others are continuations that replace them.
                if rank < size && score > f32::NEG_INFINITY {
                    self.finished.add(tokens, score, length, settings);
                }
            } else if next.len() < size {
                next.push((tokens, score));
                sources.push(beam);
            }
            if next.len() == size {
                break;
            }
        }
        self.running = next;
        self.over = self.finished.is_over(candidates[0].1.score, length, settings);
        sources
    }
}

/// Subtracts `penalty` from the scores of the tokens `said` in every row, once for each occurrence.
fn penalise(rows: &mut [f32], vocabulary: usize, said: &[u32], penalty: f32) {
    let mut said = said.to_vec();
    said.sort_unstable();
    for row in rows.chunks_exact_mut(vocabulary) {
        for same in said.chunk_by(|a, b| a == b) {
            if let Some(score) = row.get_mut(same[0] as usize) {
                *score -= penalty * same.len() as f32;
            }
        }
    }
}

/// The finished sequences of a group, at most `places` of them.
struct Finished {
    places: usize,
    /// New tokens of a sequence, at most.
    longest: usize,
    sequences: Vec<(f64, Vec<u32>)>,
}

impl Finished {
    fn worst(&self) -> f64 {
        self.sequences.iter().map(|(score, _)| *score).fold(1e9, f64::min)
    }

    /// Adds a sequence of `length` new tokens and the log-probability `sum`, if it is better than the worst or there
    /// is a place.
    fn add(&mut self, tokens: Vec<u32>, sum: f32, length: usize, settings: &GenerationSettings) {
        let score = f64::from(sum) / (length as f64).powf(settings.length_penalty);
        if self.sequences.len() == self.places {
            let worst = self.worst();
            if score <= worst {
                return;
            }
            if let Some(at) = self.sequences.iter().position(|(score, _)| *score == worst) {
                self.sequences.remove(at);
            }
        }
        self.sequences.push((score, tokens));
    }

    /// Whether no running sequence can improve the result, if the best candidate of `length` new tokens has the
    /// log-probability `best`.
    fn is_over(&self, best: f32, length: usize, settings: &GenerationSettings) -> bool {
        if self.sequences.len() < self.places {
            return false;
        }
        let length = match settings.early_stopping {
            EarlyStopping::Yes => return true,
            EarlyStopping::Never if settings.length_penalty > 0.0 => self.longest,
            _ => length,
        };
        self.worst() >= f64::from(best) / (length as f64).powf(settings.length_penalty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::GenerationOptions;
    use sporran_checkpoint::SpecialTokens;

    #[test]
    fn tokens_of_earlier_groups_are_penalised_each_time() {
        let mut rows = [0.0; 8];
        penalise(&mut rows, 4, &[2, 3, 2], 0.5);
        assert_eq!(rows, [0.0, 0.0, -1.0, -0.5, 0.0, 0.0, -1.0, -0.5]);
    }

    #[test]
    fn the_worst_sequence_makes_room() {
        let special = SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 };
        let options =
            GenerationOptions { num_beams: Some(2), length_penalty: Some(1.0), ..Default::default() };
        let settings = options.settings(&special, 10, 1).unwrap();
        let mut finished = Finished { places: 2, longest: 20, sequences: Vec::new() };
        finished.add(vec![4], -2.0, 1, &settings);
        assert!(!finished.is_over(-9.0, 2, &settings));
        finished.add(vec![5], -2.0, 2, &settings);
        // -1.5 at length 1 beats -2 and not -2 / 2.
        finished.add(vec![6], -1.5, 1, &settings);
        assert_eq!(finished.sequences, [(-1.0, vec![5]), (-1.5, vec![6])]);
        // -3 at length 2 would be -1.5, no better than the worst; -2.9 is.
        assert!(finished.is_over(-3.0, 2, &settings));
        assert!(!finished.is_over(-2.9, 2, &settings));
    }
}
