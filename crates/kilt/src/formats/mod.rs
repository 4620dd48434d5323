//! File formats of other systems: corpora, queries, judgements, rankings and training data.
//!
//! Every reader streams and reports file, line and field of errors. JSON records keep fields that their
//! format does not define. [`convert`] converts between formats.

pub mod anserini;
pub mod beir;
mod collection;
pub mod convert;
mod document;
pub mod dpr;
pub mod elements;
pub mod gold;
pub mod judgements;
mod mapping;
pub mod passages;
pub mod psgs;
pub mod queries;
pub(crate) mod stream;
pub mod trec;

pub use collection::Collection;
pub use document::Document;
pub use mapping::PageMapping;
pub use trec::Qrel;

use crate::Result;

/// Ends an iterator after its first error.
fn until_error<T>(mut items: impl Iterator<Item = Result<T>>) -> impl Iterator<Item = Result<T>> {
    let mut failed = false;
    std::iter::from_fn(move || {
        let item = if failed { None } else { items.next() };
        failed |= matches!(item, Some(Err(_)));
        item
    })
}
