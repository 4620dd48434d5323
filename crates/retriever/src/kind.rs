//! What the options of every kind of retriever do.

use std::path::PathBuf;

use serde::Serialize;
use sporran_config::{Document, Overrides};

use crate::{
    PassageScorer, Result, Retriever,
    plan::{IndexPlan, PlannedPassages},
    site::{PartFolders, PartSite, Site},
};

/// The options of a kind of retriever.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait RetrieverKind {
    /// Reports wrong values and missing folders, without loading a model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);

    /// Adds the settings of model folders that the options override.
    ///
    /// # Errors
    /// Errors of a folder's files.
    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let _ = (key, found);
        Ok(())
    }

    /// Opens the retriever, building indexes that do not exist.
    ///
    /// # Errors
    /// Errors of an index or a model, each with its file.
    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>>;

    /// Opens the retriever over the parts of its index in the folders of shards, without a merge; `None` for kinds that cannot.
    ///
    /// # Errors
    /// [`crate::Error::Part`] for parts that are not those of all passages; errors of an index or a model.
    fn open_shards(
        &self,
        shards: &[(PathBuf, PartFolders)],
        site: &mut dyn Site,
    ) -> Result<Option<Box<dyn Retriever>>> {
        let _ = (shards, site);
        Ok(None)
    }

    /// The estimated resources of its indexes, and of those of its parts, in the order of their builds. Indexes of names and
    /// titles have no estimate.
    ///
    /// # Errors
    /// Errors of a model, and of the files of an index over the sample.
    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        let _ = passages;
        Ok(Vec::new())
    }

    /// The retrievers in it.
    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        Vec::new()
    }

    /// Builds a shard's parts of its indexes, and of those of the retrievers in it. The merge builds indexes without parts of
    /// the whole store.
    ///
    /// # Errors
    /// Errors of a model and of the part's files.
    fn build_parts(&self, site: &mut dyn PartSite) -> Result<()> {
        self.bases().into_iter().try_for_each(|base| base.build_parts(site))
    }

    /// Builds the indexes of vectors that do not exist, its own and those of the retrievers in it. Returns their number.
    ///
    /// # Errors
    /// As [`RetrieverKind::open`].
    fn build_vectors(&self, site: &mut dyn Site) -> Result<usize> {
        let built: Result<Vec<usize>> =
            self.bases().into_iter().map(|base| base.build_vectors(site)).collect();
        Ok(built?.into_iter().sum())
    }

    /// Whether scores are rounded by a model in batches of queries, so that shards have whole batches.
    fn has_batches(&self) -> bool {
        let bases = self.bases();
        bases.is_empty() || bases.into_iter().any(RetrieverKind::has_batches)
    }

    /// Opens it as a scorer of given passages; `None` for kinds that cannot score.
    ///
    /// # Errors
    /// As [`RetrieverKind::open`].
    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        let _ = site;
        Ok(None)
    }
}

/// Options with their kind, as the key of an index has them.
#[derive(Serialize)]
pub(crate) struct Tagged<'a, T> {
    pub(crate) kind: &'static str,
    #[serde(flatten)]
    pub(crate) options: &'a T,
}
