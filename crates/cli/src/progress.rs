//! Progress bars on standard error.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sporran_checkpoint::Progress as Download;
use sporran_pipeline::{Event, Unit};

/// Between two lines of a step whose bar is not drawn.
const PAUSE: Duration = Duration::from_secs(60);

/// Draws the events of a run, one bar a step, with rate and time left. Where standard error is no terminal, a step that takes long
/// says once a minute how far it is, so that the log of a run in the background tells it.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// When the step last wrote a line, or began.
    told: Instant,
    quiet: bool,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { bar: None, told: Instant::now(), quiet }
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
                self.told = Instant::now();
            }
            Event::Advance { done, note } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(done);
                    if let Some(note) = note {
                        bar.set_prefix(note);
                    }
                    if bar.is_hidden() && self.told.elapsed() >= PAUSE {
                        eprintln!("{}", line(bar));
                        self.told = Instant::now();
                    }
                }
            }
            Event::End => self.end(),
            Event::Note { text } => match &self.bar {
                Some(bar) => bar.suspend(|| eprintln!("{text}")),
                None => eprintln!("{text}"),
            },
            Event::Skip { step } => eprintln!("{step}: there already, from the same inputs"),
            _ => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            let took = bar.elapsed().as_secs_f64();
            let (step, done) = (bar.message(), bar.position());
            bar.finish_and_clear();
            // A line stays even where standard error is no terminal and the bar was not drawn.
            eprintln!("{step}: {done} in {took:.1} s");
        }
    }
}

/// How far a step is, such as `train: 12 of 40 in 831 s, loss 5.02`.
fn line(bar: &ProgressBar) -> String {
    let (step, done, note) = (bar.message(), bar.position(), bar.prefix());
    let of = bar.length().map_or(String::new(), |total| format!(" of {total}"));
    let comma = if note.is_empty() { "" } else { ", " };
    format!("{step}: {done}{of} in {:.0} s{comma}{note}", bar.elapsed().as_secs_f64())
}

fn style(unit: Unit) -> ProgressStyle {
    let template = match unit {
        Unit::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left {prefix}",
        _ => "{msg} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta} left {prefix}",
    };
    // The templates above are constants that indicatif accepts; its default style is what is left otherwise.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// Draws downloads, one bar a file.
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
