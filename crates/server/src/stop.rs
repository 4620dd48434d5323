//! The end of a server.

use std::sync::Arc;

use tokio::sync::watch;

/// Ends a server. Copies end the same server; any thread can call them.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// A server that is not to end yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Ends the server: it takes no new connections, answers what was begun, and ends.
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// Whether [`now`](Self::now) was called.
    #[must_use]
    pub fn is_called(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when [`now`](Self::now) was called.
    pub(crate) async fn called(&self) {
        let mut watched = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = watched.wait_for(|is_called| *is_called).await;
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
