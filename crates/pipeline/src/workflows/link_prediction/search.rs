//! Hyper-parameters drawn from ranges by a seed.

use std::path::PathBuf;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sporran_reasoner::embedding::EmbeddingOptions;

use super::options::{LinksOptions, SearchOptions};
use crate::{Error, Result};

/// A training of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Its number, from 0, which is the config as it is.
    pub trial: usize,
    /// The keys that were drawn, with their values.
    pub drawn: Map<String, Value>,
    /// The best pass and its mean reciprocal rank on the valid part.
    pub best: Option<(usize, f64)>,
    /// Passes done.
    pub epochs: usize,
    /// The folder of its model.
    pub model: PathBuf,
}

/// The settings of trial number `trial`; they do not depend on other trials.
pub(super) fn drawn(
    options: &LinksOptions,
    search: &SearchOptions,
    trial: usize,
) -> Result<(Map<String, Value>, EmbeddingOptions)> {
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    rng.set_stream(trial as u64);
    let (mut values, mut embedding) = (Map::new(), options.embedding.clone());
    if trial == 0 {
        return Ok((values, embedding));
    }
    for range in &search.range {
        let value = match (range.low, range.high) {
            (Some(low), Some(high)) if range.log => json!(rng.random_range(low.ln()..high.ln()).exp()),
            (Some(low), Some(high)) => json!(rng.random_range(low..high)),
            _ => range.among.choose(&mut rng).cloned().unwrap_or_default(),
        };
        embedding = range.set(&embedding, value.clone()).map_err(|message| {
            let origin = format!("trial {trial}");
            Error::Config(vec![sporran_config::Diagnostic {
                origin,
                line: 0,
                key: range.key.clone(),
                message,
            }])
        })?;
        values.insert(range.key.clone(), value);
    }
    Ok((values, embedding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflows::link_prediction::RangeOptions;

    #[test]
    fn trials_are_drawn_from_their_ranges_each_by_itself() {
        let options: LinksOptions = serde_json::from_value(json!({
            "name": "s", "seed": 3, "data": { "folder": "." }, "embedding": { "model": "complex", "dim": 8 }
        }))
        .unwrap();
        let range = |json| serde_json::from_value::<RangeOptions>(json).unwrap();
        let search = SearchOptions {
            trials: 5,
            range: vec![
                range(json!({ "key": "training.learning-rate", "low": 0.001, "high": 1.0, "log": true })),
                range(json!({ "key": "dim", "among": [8, 16] })),
                range(json!({ "key": "training.batch-size", "low": 10.0, "high": 20.0 })),
            ],
        };
        assert_eq!(drawn(&options, &search, 0).unwrap().1, options.embedding);
        let mut rates = Vec::new();
        for trial in 1..40 {
            let (values, embedding) = drawn(&options, &search, trial).unwrap();
            assert_eq!(drawn(&options, &search, trial).unwrap().0, values);
            assert!([8, 16].contains(&embedding.dim) && (10..=20).contains(&embedding.training.batch_size));
            rates.push(embedding.training.learning_rate);
        }
        assert!(rates.iter().all(|rate| (0.001..1.0).contains(rate)));
        // Evenly by logarithm, a third of them lies in each power of ten.
        let small = rates.iter().filter(|rate| **rate < 0.01).count();
        assert!((5..25).contains(&small), "{rates:?}");
    }
}
