//! The list of retriever kinds.

use sporran_config::kinds;

use crate::{
    dense::{DenseOptions, RemoteDenseOptions},
    entity::EntityRetrieverOptions,
    filter::FilteredOptions,
    hybrid::HybridOptions,
    iterative::IterativeRetrieverOptions,
    kind::RetrieverKind,
    sharded::ShardedOptions,
    sparse::{Bm25Options, TfIdfOptions},
};

kinds! {
    /// `[retriever]`, by `kind`. `Other` has the kinds that use other stages as well.
    pub enum RetrieverOptions<Other>: dyn RetrieverKind {
        /// `kind = "bm25"`
        "bm25" => Bm25(Bm25Options),
        /// `kind = "tfidf"`
        "tfidf" => TfIdf(TfIdfOptions),
        /// `kind = "dense"`
        "dense" => Dense(DenseOptions),
        /// `kind = "remote"`: dense retrieval with an encoder at an HTTP endpoint.
        "remote" => Remote(RemoteDenseOptions),
        /// `kind = "entity"`: the pages that a query names.
        "entity" => Entity(EntityRetrieverOptions<RetrieverOptions<Other>>),
        /// `kind = "filtered"`: the passages of a retriever whose metadata meet conditions.
        "filtered" => Filtered(FilteredOptions<RetrieverOptions<Other>>),
        /// `kind = "sharded"`: the indexes of shards of `sporran index`, without a merge.
        "sharded" => Sharded(ShardedOptions<RetrieverOptions<Other>>),
        /// `kind = "hybrid"`: the rankings of several retrievers, fused.
        "hybrid" => Hybrid(HybridOptions<RetrieverOptions<Other>>),
        /// `kind = "iterative"`: retrieves again with the results, and ranks pages that answer together.
        "iterative" => Iterative(IterativeRetrieverOptions<RetrieverOptions<Other>>),
    }
}
