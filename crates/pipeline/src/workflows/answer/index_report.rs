//! The report of `sporran index`.

use std::fmt;

use serde::Serialize;
use sporran_documents::Summary;
use sporran_kilt::counted;
use sporran_retriever::IndexRecall;

use super::assemble::Assembly;
use crate::source::store::PartHash;

/// The sizes and hashes of a passage store and its indexes.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// The number of pages.
    pub pages: usize,
    /// The number of passages.
    pub passages: usize,
    /// The bytes of the store.
    pub bytes: u64,
    /// The hash of the store.
    pub hash: String,
    /// The hashes of the store and of each index.
    pub parts: Vec<PartHash>,
    /// The recall of approximate indexes.
    pub recalls: Vec<IndexRecall>,
    /// What was read of the documents of the source; none for a source in KILT's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<Summary>,
}

impl IndexReport {
    /// The report of an opened config; none without a source.
    pub fn of(assembly: &Assembly) -> Option<Self> {
        let store = assembly.store.as_ref()?;
        Some(Self {
            pages: store.pages(),
            passages: store.len(),
            bytes: store.bytes(),
            hash: store.hash().to_owned(),
            parts: assembly.hashes.clone(),
            recalls: assembly.recalls.clone(),
            documents: assembly.documents().cloned(),
        })
    }
}

impl fmt::Display for IndexReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pages, passages) =
            (counted(self.pages as u64, "page"), counted(self.passages as u64, "passage"));
        writeln!(f, "{pages}, {passages}, {} bytes", self.bytes)?;
        for part in &self.parts {
            writeln!(f, "{:10} {}  {}", part.part, &part.blake3[..12], part.path.display())?;
        }
        for recall in &self.recalls {
            writeln!(f, "{recall}")?;
        }
        if let Some(documents) = &self.documents {
            writeln!(f, "{documents}")?;
            for line in documents.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}
