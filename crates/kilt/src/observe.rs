//! Progress events of a run. The program displays them; other callers can ignore them.

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The folder of the run. Finished work stays there if the run stops.
    Folder {
        /// The folder.
        path: std::path::PathBuf,
    },
    /// A step begins.
    Begin {
        /// The step, such as `index bm25`.
        step: String,
        /// The total number of units; 0 if unknown.
        total: u64,
        /// The unit.
        unit: Unit,
    },
    /// The step that began writes a checkpoint if an observer unwinds, and unwinds then. So it can be stopped without a loss.
    SavesIfStopped,
    /// Progress of the step.
    Advance {
        /// The number of finished units.
        done: u64,
        /// More information, such as a loss.
        note: Option<String>,
    },
    /// The step ended.
    End,
    /// A message, such as the maximum recall of a training.
    Note {
        /// The text of the message.
        text: String,
    },
    /// A step is skipped: its results are up to date.
    Skip {
        /// The step.
        step: String,
    },
}

/// The unit of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Records of a task file.
    Records,
    /// Passages.
    Passages,
    /// Steps, such as those of an optimizer.
    Steps,
}

/// Receives the events of a run.
pub type Observer<'a> = dyn FnMut(Event) + 'a;

/// Reports the beginning of a step.
pub fn begin(observe: &mut Observer<'_>, step: impl Into<String>, total: u64, unit: Unit) {
    observe(Event::Begin { step: step.into(), total, unit });
}

/// Reports the number of finished units of a step.
pub fn advance(observe: &mut Observer<'_>, done: u64) {
    observe(Event::Advance { done, note: None });
}
