//! What all requests share.

use std::sync::{Arc, PoisonError, RwLock};

use sporran_kilt::observe::Observer;

use crate::{
    Failure, Result, Stop,
    browse::{Browse, RunReport},
    http::Limited,
    metrics::Metrics,
    models::Models,
    mounts::Mounts,
    options::{Key, Limits, ServerOptions},
    work::Setting,
};

/// What all requests share: mounts, models, limits.
pub struct State {
    options: ServerOptions,
    setting: Setting,
    mounts: RwLock<Arc<Mounts>>,
    pub(crate) models: Models,
    browse: Browse,
    stop: Stop,
}

impl State {
    /// Opens what the options name.
    ///
    /// # Errors
    /// Errors of configs, documents and models.
    pub(crate) fn open(options: ServerOptions, stop: Stop, observe: &mut Observer<'_>) -> Result<Self> {
        let setting = Setting { limits: options.limits, metrics: Metrics::new() };
        // A wrong run is reported before an index is built or a model is loaded.
        let browse = Browse::open(&options.browse)?;
        let models = Models::open(&options.models, &setting)?;
        let mounts = Mounts::open(&options.mounts, &setting, observe)?;
        Ok(Self { options, setting, mounts: RwLock::new(Arc::new(mounts)), models, browse, stop })
    }

    /// What is mounted now. A request keeps what it got here, so that it ends with the index that it began with.
    pub(crate) fn mounts(&self) -> Arc<Mounts> {
        Arc::clone(&self.mounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens all mounts again, and serves them in place of the old ones, which end with the requests that use them. If one of
    /// them fails, the old ones stay.
    ///
    /// # Errors
    /// Errors of configs, documents and models, as when the server starts.
    pub fn reload(&self, observe: &mut Observer<'_>) -> Result<()> {
        let mounts = Arc::new(Mounts::open(&self.options.mounts, &self.setting, observe)?);
        *self.mounts.write().unwrap_or_else(PoisonError::into_inner) = mounts;
        Ok(())
    }

    /// The runs and the knowledge bases that the page shows.
    pub(crate) fn browse(&self) -> &Browse {
        &self.browse
    }

    /// The scores and the cost of a run, with the mount whose passages it retrieved from.
    ///
    /// # Errors
    /// A name that is not there, and a run that is being written.
    pub(crate) fn run_report(&self, name: &str) -> Result<RunReport, Failure> {
        let mounts = self.mounts();
        let stores =
            mounts.all().iter().filter_map(|mount| Some((mount.name(), mount.answering()?.store()?)));
        self.browse.run(name)?.report(stores)
    }

    /// The limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        self.options.key.as_ref()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.setting.metrics
    }

    /// Whether the server is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_called()
    }
}

impl Limited for Arc<State> {
    fn most_bytes(&self) -> usize {
        self.limits().body
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sporran_pipeline::workflows::answer::AskOptions;

    use super::*;

    #[test]
    fn a_request_ends_with_the_index_that_it_began_with() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        fs::create_dir(&notes).unwrap();
        fs::write(notes.join("a.md"), "# Tea\n\nTea is hot.\n").unwrap();
        let mounts = vec![AskOptions::new(vec![notes.clone()], folder.path().join("cache"))];
        let options = ServerOptions { mounts, ..ServerOptions::new() };
        let state = State::open(options, Stop::new(), &mut |_| {}).unwrap();
        let pages = |mounts: &Mounts| mounts.searching(None).unwrap().index().unwrap().pages();
        let old = state.mounts();
        fs::write(notes.join("b.md"), "# Coffee\n\nCoffee is black.\n").unwrap();
        state.reload(&mut |_| {}).unwrap();
        assert_eq!((pages(&old), pages(&state.mounts())), (1, 2));
    }
}
