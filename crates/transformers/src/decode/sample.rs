//! Sampling: tokens drawn by their probability, after temperature, top-k, top-p and min-p in that order, as in `transformers`
//! (top-p: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration"; min-p: Nguyen et al. 2025, "Turning Up the Heat").

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    rules::Rules,
    scores::{self, Scored, log_sum_exp},
    settings::Sampling,
};

/// The random generator of the `nth` sequence of an input: a separate stream for the input's source tokens, or for its
/// index if these are not known.
pub(super) fn generator(rules: &Rules<'_>, sampling: &Sampling, nth: u64) -> ChaCha8Rng {
    let place = [rules.input as u32];
    let tokens = rules.source.unwrap_or(&place);
    // FNV-1a over the bytes.
    let mut stream = 0xcbf2_9ce4_8422_2325_u64;
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes()).chain(nth.to_le_bytes());
    bytes.for_each(|byte| stream = (stream ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut rng = ChaCha8Rng::seed_from_u64(sampling.seed);
    rng.set_stream(stream);
    rng
}

/// The tokens that may be sampled after `tokens`, with their log-probabilities.
pub(super) fn choices(
    rules: &Rules<'_>,
    sampling: &Sampling,
    tokens: &[u32],
    row: &mut [f32],
) -> Vec<Scored> {
    rules.apply(tokens, row);
    let mut choices = warp(row, 0.0, sampling);
    normalise(&mut choices);
    choices
}

/// Makes log-probabilities of the scores of `choices`.
pub(super) fn normalise(choices: &mut [Scored]) {
    let scores: Vec<f32> = choices.iter().map(|choice| choice.score).collect();
    let normaliser = log_sum_exp(&scores);
    choices.iter_mut().for_each(|choice| choice.score -= normaliser);
}

/// The tokens that temperature, top-k, top-p and min-p leave of `row` less `zero`, by token, with their scores.
pub(super) fn warp(row: &[f32], zero: f32, sampling: &Sampling) -> Vec<Scored> {
    let warped = |score: f32| (score - zero) / sampling.temperature;
    let least_score = match sampling.top_k {
        count if count > 0 && count < row.len() => {
            scores::best(row, 0.0, 0.0, count).last().map_or(f32::NEG_INFINITY, |last| warped(last.score))
        }
        _ => f32::NEG_INFINITY,
    };
    let mut left: Vec<Scored> = row
        .iter()
        .enumerate()
        .map(|(token, score)| Scored { token: token as u32, score: warped(*score) })
        .filter(|choice| choice.score > f32::NEG_INFINITY && choice.score >= least_score)
        .collect();
    if sampling.top_p < 1.0 && left.len() > sampling.least {
        left.sort_by(|a, b| a.score.total_cmp(&b.score).then(a.token.cmp(&b.token)));
        let max = left[left.len() - 1].score;
        let total: f64 = left.iter().map(|choice| f64::from(choice.score - max).exp()).sum();
        let mut sum = 0.0;
        let out = left.iter().take(left.len() - sampling.least).take_while(|choice| {
            sum += f64::from(choice.score - max).exp() / total;
            sum as f32 <= 1.0 - sampling.top_p
        });
        let out = out.count();
        left.drain(..out);
        left.sort_by_key(|choice| choice.token);
    }
    if sampling.min_p > 0.0 && left.len() > sampling.least {
        left.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.token.cmp(&b.token)));
        let max = left[0].score;
        let probable = left.iter().take_while(|choice| (choice.score - max).exp() >= sampling.min_p).count();
        left.truncate(probable.max(sampling.least));
        left.sort_by_key(|choice| choice.token);
    }
    left
}

/// One of `choices` by its log-probability; none where there are none.
pub(super) fn draw(choices: &[Scored], rng: &mut ChaCha8Rng) -> Option<Scored> {
    let total: f64 = choices.iter().map(|choice| f64::from(scores::exp(choice.score))).sum();
    let mut left = rng.random::<f64>() * total;
    for choice in choices {
        left -= f64::from(scores::exp(choice.score));
        if left < 0.0 {
            return Some(*choice);
        }
    }
    // Rounding can leave a little after the last.
    choices.last().copied()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn sampling(top_k: usize, top_p: f32) -> Sampling {
        Sampling { temperature: 2.0, top_k, top_p, min_p: 0.0, seed: 0, least: 1 }
    }

    fn tokens(choices: &[Scored]) -> Vec<u32> {
        choices.iter().map(|choice| choice.token).collect()
    }

    #[test]
    fn the_most_probable_tokens_are_left() {
        // Divided by 2: probabilities of 0.4, 0.1, 0, 0.3, 0.2 and 0.
        let mut row: Vec<f32> = [0.4f32, 0.1, 1e-30, 0.3, 0.2].iter().map(|p| 2.0 * p.ln()).collect();
        row.push(f32::NEG_INFINITY);
        assert_eq!(tokens(&warp(&row, 0.0, &sampling(0, 1.0))), [0, 1, 2, 3, 4]);
        assert_eq!(tokens(&warp(&row, 0.0, &sampling(3, 1.0))), [0, 3, 4]);
        // 0.4 + 0.3 reach 0.65, 0.4 alone does not.
        assert_eq!(tokens(&warp(&row, 0.0, &sampling(0, 0.65))), [0, 3]);
        // Of the three best 0.4 / 0.9 = 0.44 are enough for 0.42.
        assert_eq!(tokens(&warp(&row, 0.0, &sampling(3, 0.42))), [0]);
        assert_eq!(tokens(&warp(&row, 0.0, &sampling(0, 0.0))), [0]);
        let two = Sampling { least: 2, ..sampling(0, 0.0) };
        assert_eq!(tokens(&warp(&row, 0.0, &two)), [0, 3]);
        // 0.2 is half of 0.4, 0.1 a quarter.
        let min_p = |min_p: f32, least| Sampling { min_p, least, ..sampling(0, 1.0) };
        assert_eq!(tokens(&warp(&row, 0.0, &min_p(0.45, 1))), [0, 3, 4]);
        assert_eq!(tokens(&warp(&row, 0.0, &min_p(1.0, 1))), [0]);
        assert_eq!(tokens(&warp(&row, 0.0, &min_p(1.0, 2))), [0, 3]);
    }

    #[test]
    fn equal_scores_at_the_last_place_all_stay() {
        assert_eq!(tokens(&warp(&[1.0, 3.0, 1.0, 0.0], 0.5, &sampling(2, 1.0))), [0, 1, 2]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let probabilities = [0.5f64, 0.05, 0.25, 0.15, 0.05];
        let choices: Vec<Scored> = (0u32..)
            .zip(probabilities)
            .map(|(token, p)| Scored { token: 10 * token, score: p.ln() as f32 })
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (count, mut found) = (20_000, [0f64; 5]);
        for _ in 0..count {
            found[(draw(&choices, &mut rng).unwrap().token / 10) as usize] += 1.0;
        }
        let chi_square: f64 = found
            .iter()
            .zip(probabilities)
            .map(|(found, p)| (found - p * f64::from(count)).powi(2) / (p * f64::from(count)))
            .sum();
        // 18.5 is exceeded once in a thousand times with four degrees of freedom.
        assert!(chi_square < 18.5, "{chi_square}: {found:?}");
    }

    #[test]
    fn nothing_can_be_drawn_from_nothing() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        assert_eq!(draw(&[], &mut rng), None);
        assert_eq!(warp(&[f32::NAN, f32::NEG_INFINITY], 0.0, &sampling(0, 0.5)), []);
    }
}
