//! A retriever of the pages whose titles a model generates.

use std::sync::Arc;

use sporran_generator::{EntityTitle, WrittenTitle};
use sporran_kilt::{Hit, PassageId, PassageStore, Query, store::PageIndex};
use sporran_retriever::{Error, Result, Retriever, Titles};

/// Generates titles for a record's input, and retrieves their pages. The hit of a page is its first passage,
/// with the score of the title.
pub(crate) struct TitleRetriever {
    model: EntityTitle,
    titles: Titles,
    store: Arc<PassageStore>,
}

impl TitleRetriever {
    pub(crate) fn new(model: EntityTitle, titles: Titles, store: Arc<PassageStore>) -> Self {
        Self { model, titles, store }
    }

    /// The pages of a title: those with the same tokens, else the page with the same text. Unconstrained
    /// models can generate other tokens for the same text.
    fn pages(&self, title: &WrittenTitle) -> Vec<PageIndex> {
        let pages = self.titles.pages(&title.tokens);
        if pages.is_empty() { self.store.page_by_title(&title.text).into_iter().collect() } else { pages }
    }
}

impl Retriever for TitleRetriever {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let queries: Vec<Query> =
            queries.iter().map(|query| Query { text: query.input().to_owned(), ..query.clone() }).collect();
        let queries: Vec<&Query> = queries.iter().collect();
        let written = self
            .model
            .write(&queries, self.titles.trie())
            .map_err(|error| Error::Site(Box::new(crate::Error::from(error))))?;
        let hits = |titles: &Vec<WrittenTitle>| {
            let mut hits: Vec<Hit> = Vec::new();
            for title in titles {
                for page in self.pages(title) {
                    let passage = PassageId(self.store.passages_of(page).start);
                    if hits.iter().all(|hit| hit.passage != passage) {
                        hits.push(Hit { passage, score: title.score });
                    }
                }
            }
            hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
            hits.truncate(k);
            hits
        };
        Ok(written.iter().map(hits).collect())
    }
}
