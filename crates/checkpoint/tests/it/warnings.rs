//! The warnings that a test's work gives.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// The warnings of a piece of work.
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// The result of the work, and the fields of every warning.
    pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let done = tracing::subscriber::with_default(Self(said.clone()), work);
        let said = said.lock().unwrap().clone();
        (done, said)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event as text.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
