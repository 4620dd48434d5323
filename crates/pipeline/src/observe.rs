//! What a run tells while it works; the program draws it, a library caller may ignore it.

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The work has a folder: what is finished there is kept, whenever the work ends.
    Folder {
        /// The folder.
        path: std::path::PathBuf,
    },
    /// A step begins: what it does and how much of what there is to do, 0 if that is not known.
    Begin {
        /// The step, such as `index bm25`.
        step: String,
        /// Units in all.
        total: u64,
        /// What is counted.
        unit: Unit,
    },
    /// The step has come this far.
    Advance {
        /// Units done, of the total.
        done: u64,
        /// More to say, such as a loss.
        note: Option<String>,
    },
    /// The step ended.
    End,
    /// Something that is known before the end, such as what a training cannot exceed.
    Note {
        /// The sentence.
        text: String,
    },
    /// A step was not needed: what it would make is there, from the same inputs.
    Skip {
        /// The step.
        step: String,
    },
}

/// What a step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Records of a task file.
    Records,
    /// Passages.
    Passages,
    /// The number of optimizer steps.
    Steps,
}

/// Receives the events of a run.
pub type Observer<'a> = dyn FnMut(Event) + 'a;

pub(crate) fn begin(observe: &mut Observer<'_>, step: impl Into<String>, total: u64, unit: Unit) {
    observe(Event::Begin { step: step.into(), total, unit });
}

pub(crate) fn advance(observe: &mut Observer<'_>, done: u64) {
    observe(Event::Advance { done, note: None });
}
