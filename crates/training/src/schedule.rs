//! The learning rate as a function of the optimiser step: a linear warm-up, then a decay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The decay of the learning rate after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// Stays at its peak.
    Constant,
    /// Falls in a straight line to zero at the last step.
    #[default]
    Linear,
    /// Falls along half a cosine to zero at the last step (Loshchilov and Hutter 2017, without restarts).
    Cosine,
}

/// A learning-rate schedule over a known number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    peak: f64,
    warmup: u64,
    total: u64,
    decay: Decay,
}

impl Schedule {
    /// A schedule that climbs to `peak` over `warmup` steps and then decays until step `total`.
    pub fn new(peak: f64, warmup: u64, total: u64, decay: Decay) -> Self {
        Self { peak, warmup, total, decay }
    }

    /// The learning rate of step `step`; the first step is 1, so that no step is wasted on a rate of zero.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * step as f64 / self.warmup as f64;
        }
        let span = self.total.saturating_sub(self.warmup);
        let done = if span == 0 { 0.0 } else { ((step - self.warmup) as f64 / span as f64).min(1.0) };
        self.peak
            * match self.decay {
                Decay::Constant => 1.0,
                Decay::Linear => 1.0 - done,
                Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_a_line_through_the_origin_that_meets_the_peak() {
        let schedule = Schedule::new(0.8, 4, 12, Decay::Constant);
        let rates: Vec<f64> = (1..=5).map(|step| schedule.rate(step)).collect();
        assert_eq!(rates, [0.2, 0.4, 0.6000000000000001, 0.8, 0.8]);
    }

    #[test]
    fn linear_decay_loses_equal_parts_and_ends_at_zero() {
        let schedule = Schedule::new(0.8, 4, 12, Decay::Linear);
        // Eight steps of decay: half of them done at step 8, all at step 12 and after.
        assert_eq!(schedule.rate(4), 0.8);
        assert_eq!(schedule.rate(8), 0.4);
        assert_eq!(schedule.rate(12), 0.0);
        assert_eq!(schedule.rate(20), 0.0);
    }

    #[test]
    fn cosine_decay_is_half_way_down_in_the_middle() {
        let schedule = Schedule::new(2.0, 0, 8, Decay::Cosine);
        assert_eq!(schedule.rate(0), 2.0);
        assert!((schedule.rate(4) - 1.0).abs() < 1e-12);
        // cos(pi / 4) = 0.7071..: 2 * (1 + 0.70711) / 2 = 1.70711
        assert!((schedule.rate(2) - 1.707_106_781).abs() < 1e-9);
        assert!(schedule.rate(8).abs() < 1e-12);
    }

    #[test]
    fn a_schedule_that_is_all_warm_up_reaches_its_peak() {
        let schedule = Schedule::new(1.0, 5, 5, Decay::Linear);
        assert_eq!(schedule.rate(5), 1.0);
    }
}
