//! From probabilities to predicted properties.

use sporran_transformers::StatePair;

use super::{Properties, Thresholds};

/// The probability of each property for each pair of a sentence.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Scores {
    labels: usize,
    values: Vec<f32>,
    /// The probability that a fact's links are correct, in the order of `values`; empty if the model does not
    /// predict it.
    links: Vec<f32>,
}

/// A predicted property of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedProperty {
    /// The index of the pair.
    pub pair: usize,
    /// The index of the property.
    pub label: usize,
    /// Its probability.
    pub probability: f32,
    /// The probability that its links are correct; none if the model does not predict it.
    pub linked: Option<f32>,
}

impl Scores {
    /// From one probability for each of `labels`, pair by pair.
    #[must_use]
    pub fn new(labels: usize, values: Vec<f32>) -> Self {
        Self { labels, values, links: Vec::new() }
    }

    /// The same with a probability for the links of each.
    #[must_use]
    pub fn with_links(self, links: Vec<f32>) -> Self {
        Self { links, ..self }
    }

    /// The probability that the links of property `label` of pair `pair` are correct; 0 if there is no such pair.
    #[must_use]
    pub fn of_links(&self, pair: usize, label: usize) -> f32 {
        self.links.get(pair * self.labels + label).copied().unwrap_or(0.0)
    }

    /// The probability of property `label` for pair `pair`; 0 if there is no such pair.
    #[must_use]
    pub fn of(&self, pair: usize, label: usize) -> f32 {
        self.values.get(pair * self.labels + label).copied().unwrap_or(0.0)
    }

    /// The weighted mean of the logits of several scores of the same pairs, as probabilities.
    #[must_use]
    pub fn averaged(parts: &[(Self, f32)]) -> Self {
        // Beyond any model's confidence, and finite.
        const LEAST: f32 = 1e-7;
        let logit = |p: f32| {
            let p = p.clamp(LEAST, 1.0 - LEAST);
            (p / (1.0 - p)).ln()
        };
        let Some((first, _)) = parts.first() else { return Self::default() };
        let weights: f32 = parts.iter().map(|(_, weight)| weight).sum();
        let mean = |at: usize| {
            let sum: f32 = parts.iter().map(|(scores, weight)| weight * logit(scores.values[at])).sum();
            1.0 / (1.0 + (-sum / weights).exp())
        };
        Self::new(first.labels, (0..first.values.len()).map(mean).collect())
    }

    /// Combines both directions of two mentions. A symmetric property gets the mean of both. Otherwise the
    /// less probable direction is removed.
    #[must_use]
    pub fn joint(mut self, pairs: &[StatePair], properties: &Properties) -> Self {
        let before = self.clone();
        for (at, pair) in pairs.iter().enumerate() {
            let is_reverse = |other: &StatePair| (other.first, other.second) == (pair.second, pair.first);
            let Some(reverse) = pairs.iter().position(is_reverse) else { continue };
            for (label, property) in properties.all().iter().enumerate() {
                let (own, other) = (before.of(at, label), before.of(reverse, label));
                if let Some(value) = self.values.get_mut(at * self.labels + label) {
                    if property.symmetric {
                        *value = (own + other) / 2.0;
                    } else if other > own {
                        *value = 0.0;
                    }
                }
            }
        }
        self
    }
}

/// The predicted properties, pair by pair.
#[must_use]
pub fn decode(scores: &Scores, pairs: usize, thresholds: &Thresholds) -> Vec<PredictedProperty> {
    let mut stated = Vec::new();
    for pair in 0..pairs {
        for (label, threshold) in thresholds.all().iter().enumerate() {
            let probability = scores.of(pair, label);
            if probability >= *threshold {
                let linked = scores.links.get(pair * scores.labels + label).copied();
                stated.push(PredictedProperty { pair, label, probability, linked });
            }
        }
    }
    stated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relations::Property;

    fn properties() -> Properties {
        let property = |id: &str, symmetric| Property { id: id.into(), name: id.into(), symmetric };
        serde_json::from_value(
            serde_json::to_value([property("SPOUSE", true), property("CHILD_OF", false)]).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn directions_are_decided_together() {
        let pair = |first, second| StatePair { first, second, features: vec![0] };
        let pairs = [pair(0, 1), pair(1, 0), pair(0, 2)];
        let scores = Scores::new(2, vec![0.9, 0.6, 0.3, 0.8, 0.4, 0.7]);
        let joint = scores.joint(&pairs, &properties());
        let thresholds = Thresholds::new(vec![0.5, 0.5]);
        let stated: Vec<(usize, usize)> =
            decode(&joint, 3, &thresholds).into_iter().map(|stated| (stated.pair, stated.label)).collect();
        // Spouses have 0.6 in both directions. Of the two children only the more probable stays. A date is no
        // subject.
        assert_eq!(stated, [(0, 0), (1, 0), (1, 1), (2, 1)]);
    }
}
