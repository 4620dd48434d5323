//! Means and shares that may lack data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A mean or a share, or no value without data: no records, or a total of 0.
///
/// Serialises as a number or as null, and prints with the requested number of decimals, or as `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measure(Option<f64>);

impl Measure {
    /// The mean; no value for no data.
    pub fn mean(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut sum, mut count) = (0.0, 0u64);
        for value in values {
            sum += value;
            count += 1;
        }
        Self((count > 0).then(|| sum / count as f64))
    }

    /// The share of `part` in `whole`; no value for 0.
    pub fn share(part: usize, whole: usize) -> Self {
        Self((whole > 0).then(|| part as f64 / whole as f64))
    }

    /// The harmonic mean, as F1 of precision and recall: 0 if both are 0 or one has no data, no value if
    /// neither has.
    #[must_use]
    pub fn harmonic(self, other: Self) -> Self {
        let sum = self.or_zero() + other.or_zero();
        let mean = if sum == 0.0 { 0.0 } else { 2.0 * self.or_zero() * other.or_zero() / sum };
        Self(self.0.or(other.0).map(|_| mean))
    }

    /// The value.
    pub fn value(self) -> Option<f64> {
        self.0
    }

    /// The value, or 0 without data, for choosing a maximum.
    pub fn or_zero(self) -> f64 {
        self.0.unwrap_or(0.0)
    }

    /// The same in percent.
    #[must_use]
    pub fn percent(self) -> Self {
        Self(self.0.map(|value| value * 100.0))
    }
}

impl From<Option<f64>> for Measure {
    fn from(value: Option<f64>) -> Self {
        Self(value)
    }
}

impl From<f64> for Measure {
    fn from(value: f64) -> Self {
        Self(Some(value))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => value.fmt(f),
            // Numbers are right-aligned. A precision would truncate this text.
            None => f.pad_integral(true, "", "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_data_is_null_and_a_dash() {
        let (some, none) = (Measure::share(1, 4), Measure::share(0, 0));
        assert_eq!((some, none), (Measure::from(0.25), Measure::default()));
        assert_eq!((Measure::mean([1.0, 0.0]), Measure::mean([])), (0.5.into(), none));
        assert_eq!(serde_json::to_string(&[some, none]).unwrap(), "[0.25,null]");
        assert_eq!(serde_json::from_str::<[Measure; 2]>("[0.25,null]").unwrap(), [some, none]);
        assert_eq!(
            format!("{some:.3}|{none:.3}|{some:>6.1}|{none:>6.1}|{none:6.0}"),
            "0.250|-|   0.2|     -|     -"
        );
        assert_eq!(some.harmonic(0.75.into()), 0.375.into());
        assert_eq!((some.harmonic(none), none.harmonic(none)), (0.0.into(), none));
        assert_eq!((format!("{:.1}", some.percent()), none.percent()), ("25.0".into(), none));
        assert_eq!((some.value(), none.value(), none.or_zero()), (Some(0.25), None, 0.0));
    }
}
