//! The estimated duration of a training.

use std::time::{Duration, Instant};

/// The estimate needs `STEPS` steps and `SOON`, or at least one step and `LATE`.
const STEPS: u64 = 3;
const SOON: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(30);

/// The speed of a training in this process.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time after the first step of this process, and the number of steps until then.
    began: Option<(Instant, u64)>,
    is_estimated: bool,
}

impl Pace {
    /// The message after a step: first the number of steps, later one estimate of the remaining time.
    pub fn after(&mut self, done: u64, total: u64, unit: &str) -> Option<String> {
        let Some((began, first)) = self.began else {
            self.began = Some((Instant::now(), done));
            let already =
                if done > 1 { format!(", {} of them done before", done - 1) } else { String::new() };
            return Some(format!("{total} {unit}{already}"));
        };
        let estimate =
            self.estimate(began.elapsed(), done.saturating_sub(first), total.saturating_sub(done))?;
        Some(format!("about {estimate} for the other {} {unit}", total - done))
    }

    fn estimate(&mut self, elapsed: Duration, made: u64, left: u64) -> Option<String> {
        let is_known = (made >= STEPS && elapsed >= SOON) || (made > 0 && elapsed >= LATE);
        if self.is_estimated || !is_known || left == 0 {
            return None;
        }
        self.is_estimated = true;
        Some(rounded(elapsed.as_secs_f64() / made as f64 * left as f64))
    }
}

/// A duration in seconds, minutes or hours.
fn rounded(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{:.0} s", seconds.ceil()),
        seconds if seconds < 5400.0 => format!("{:.0} min", (seconds / 60.0).ceil()),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_first_and_the_time_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(1, 50, "steps").as_deref(), Some("50 steps"));
        assert_eq!(pace.after(2, 50, "steps"), None);
        assert_eq!(
            Pace::default().after(21, 50, "steps").as_deref(),
            Some("50 steps, 20 of them done before")
        );
        assert_eq!(pace.estimate(Duration::from_secs(1), 9, 40), None);
        assert_eq!(pace.estimate(Duration::from_secs(9), 2, 40), None);
        assert_eq!(pace.estimate(Duration::from_secs(9), 9, 40).as_deref(), Some("40 s"));
        assert_eq!(pace.estimate(Duration::from_secs(10), 10, 39), None);
        assert_eq!(Pace::default().estimate(LATE, 1, 10).as_deref(), Some("5 min"));
        assert_eq!(rounded(7200.0), "2.0 h");
    }
}
