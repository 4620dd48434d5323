//! Progress bars on standard error.

use std::{
    fmt,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use sporran_checkpoint::Progress as Download;
use sporran_kilt::printable;
use sporran_pipeline::{Event, Unit};

use crate::outcome::stderr;

/// The time between two log lines of a step whose bar is not drawn.
const PAUSE: Duration = Duration::from_secs(60);

/// Draws the events of a run: one bar per step, with rate and time left. If standard error is no terminal, a long step writes a
/// line once a minute, so that the log of a background run shows its progress.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// The unit of the bar.
    unit: Unit,
    /// When the step began or last wrote a line.
    written: Instant,
    quiet: bool,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { bar: None, unit: Unit::Steps, written: Instant::now(), quiet }
    }

    pub(crate) fn event(&mut self, event: Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::Begin { step, total, unit } => {
                let bar =
                    ProgressBar::with_draw_target((total > 0).then_some(total), ProgressDrawTarget::stderr());
                bar.set_style(style(unit));
                bar.set_message(step);
                bar.enable_steady_tick(Duration::from_millis(200));
                self.bar = Some(bar);
                self.unit = unit;
                self.written = Instant::now();
            }
            Event::Advance { done, note } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(done);
                    if let Some(note) = note {
                        bar.set_prefix(note);
                    }
                    if bar.is_hidden() && self.written.elapsed() >= PAUSE {
                        stderr(&format!("{}\n", line(bar, self.unit)));
                        self.written = Instant::now();
                    }
                }
            }
            Event::End => self.end(),
            Event::Note { text } => {
                let text = format!("{}\n", printable(&text));
                match &self.bar {
                    Some(bar) => bar.suspend(|| stderr(&text)),
                    None => stderr(&text),
                }
            }
            Event::Skip { step } => stderr(&format!("{step}: up to date, skipped\n")),
            _ => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            let took = bar.elapsed().as_secs_f64();
            let (step, count) = (bar.message(), bar.position());
            // Some steps do not count what they do.
            let done = if count == 0 { String::new() } else { format!("{} in ", amount(count, self.unit)) };
            bar.finish_and_clear();
            // This line is also written if standard error is no terminal and the bar was not drawn.
            stderr(&format!("{step}: {done}{took:.1} s\n"));
        }
    }
}

/// How far a step is, such as `train: 12 of 40 in 831 s, loss 5.02`.
fn line(bar: &ProgressBar, unit: Unit) -> String {
    let (step, done, note) = (bar.message(), amount(bar.position(), unit), bar.prefix());
    let of = bar.length().map_or(String::new(), |total| format!(" of {}", amount(total, unit)));
    let comma = if note.is_empty() { "" } else { ", " };
    format!("{step}: {done}{of} in {:.0} s{comma}{note}", bar.elapsed().as_secs_f64())
}

/// A number of units: `12`, or `1.68 KiB` of bytes.
fn amount(number: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => HumanBytes(number).to_string(),
        _ => number.to_string(),
    }
}

fn style(unit: Unit) -> ProgressStyle {
    let template = match unit {
        Unit::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left {prefix}",
        _ => "{msg} [{bar:30}] {human_pos}/{human_len} {rate} {eta} left {prefix}",
    };
    // indicatif accepts the templates above; the default style is a fallback.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", |state: &ProgressState, text: &mut dyn fmt::Write| {
            // The bar is usable without its rate.
            let _ = text.write_str(&rate(state.per_sec()));
        })
        .progress_chars("=> ")
}

/// A rate with three digits and a unit prefix, such as `1.05 M/s`.
fn rate(per_second: f64) -> String {
    const PREFIXES: [&str; 5] = ["", " k", " M", " G", " T"];
    let (mut value, mut prefix) = (per_second, 0);
    // A value that rounds to 1000 gets the next prefix.
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let decimals = if value >= 99.95 || value == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{}/s", PREFIXES[prefix])
}

/// Draws downloads, one bar per file.
pub(crate) struct Downloads {
    bar: Option<(String, ProgressBar)>,
    quiet: bool,
}

impl Downloads {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { bar: None, quiet }
    }

    pub(crate) fn show(&mut self, download: Download<'_>) {
        if self.quiet {
            return;
        }
        if self.bar.as_ref().is_none_or(|(file, _)| file != download.file) {
            self.finish();
            let bar = ProgressBar::with_draw_target(Some(download.total), ProgressDrawTarget::stderr());
            bar.set_style(style(Unit::Bytes));
            bar.set_message(download.file.to_owned());
            self.bar = Some((download.file.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_position(download.done);
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{amount, line, rate, style};
    use indicatif::{ProgressBar, ProgressDrawTarget};
    use sporran_pipeline::Unit;

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        for (value, text) in [
            (1_047_976.8, "1.05 M/s"),
            (0.0, "0/s"),
            (0.31, "0.31/s"),
            (12.34, "12.3/s"),
            (999.4, "999/s"),
            (999.6, "1.00 k/s"),
            (99_960.0, "100 k/s"),
            (999_700.0, "1.00 M/s"),
            (2.5e9, "2.50 G/s"),
        ] {
            assert_eq!(rate(value), text, "{value}");
        }
    }

    #[test]
    fn indicatif_accepts_the_templates() {
        let bar = ProgressBar::with_draw_target(Some(40), ProgressDrawTarget::hidden());
        bar.set_style(style(Unit::Steps));
        bar.set_message("train");
        bar.set_prefix("loss 5.02");
        bar.set_position(12);
        let written = line(&bar, Unit::Steps);
        assert!(written.starts_with("train: 12 of 40 in 0 s, loss 5.02"), "{written}");
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!(amount(1719, Unit::Bytes), "1.68 KiB");
        assert_eq!(amount(1719, Unit::Records), "1719");
    }
}
