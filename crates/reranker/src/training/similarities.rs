//! The similarities of `[combine]`: rerankers whose scores are standardised and summed with trained weights.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sporran_kilt::Error;

use super::{
    RerankerSession,
    untrained::{write_cosine, write_tfidf},
    weights::{Scores, listwise_weights, summed},
};
use crate::{PagePool, QuerySource, QueryView, Result, Saved, SavedPart, open, standardise};

/// A similarity: a view of the reranker in a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Similarity {
    folder: &'static str,
    view: QueryView,
}

/// Writes the rerankers of `[combine]` into folders in that of the model, and returns their similarities. `from` is the
/// encoder of the cosine.
pub(super) fn write_similarities(
    session: &RerankerSession<'_>,
    from: &Path,
    max_tokens: Option<usize>,
) -> Result<Vec<Similarity>> {
    let RerankerSession { queries, combine, model, .. } = *session;
    let part = |name: &str| -> Result<PathBuf> {
        let part = model.join(name);
        fs::create_dir_all(&part).map_err(|error| Error::io(&part, "create", error))?;
        Ok(part)
    };
    let mut made = Vec::new();
    // The whole query, then its last turns.
    let sources = || {
        std::iter::once(QuerySource::Query)
            .chain(combine.turns.iter().map(|&count| QuerySource::LastTurns(count)))
    };
    let pools = || {
        [None, Some(PagePool::Best), Some(PagePool::Mean)]
            .into_iter()
            .filter(|pool| pool.is_none() || combine.article)
    };
    if combine.tfidf {
        write_tfidf(queries, false, &part("tfidf")?)?;
        made.extend(views("tfidf", sources(), pools));
    }
    if combine.title {
        write_tfidf(queries, true, &part("title")?)?;
        made.extend(views("title", sources(), || std::iter::once(None)));
    }
    if combine.cosine {
        write_cosine(from, max_tokens, &part("cosine")?)?;
        made.extend(views("cosine", sources(), pools));
        if combine.central {
            made.push(Similarity {
                folder: "cosine",
                view: QueryView { source: QuerySource::Passages, pool: None },
            });
        }
    }
    for (folder, wanted, saved) in
        [("named", combine.named, Saved::TitleMatch), ("place", combine.place, Saved::PositionPrior)]
    {
        if wanted {
            saved.write(&part(folder)?)?;
            made.push(Similarity { folder, view: QueryView::default() });
        }
    }
    Ok(made)
}

/// The similarities of a reranker: each source with each pooling.
fn views<P: Iterator<Item = Option<PagePool>>>(
    folder: &'static str,
    sources: impl Iterator<Item = QuerySource>,
    pools: impl Fn() -> P,
) -> Vec<Similarity> {
    sources
        .flat_map(|source| pools().map(move |pool| Similarity { folder, view: QueryView { source, pool } }))
        .collect()
}

/// The scores of similarities, standardised to mean 0 and standard deviation 1 over the passages of a query. Similarities of
/// one folder must be adjacent.
fn standardised(similarities: &[Similarity], session: &RerankerSession<'_>) -> Result<Scores> {
    let mut scores = Vec::with_capacity(similarities.len());
    for same in similarities.chunk_by(|a, b| a.folder == b.folder) {
        let reranker = open(&session.model.join(same[0].folder), session.computing)?;
        let views: Vec<QueryView> = same.iter().map(|similarity| similarity.view).collect();
        let mut of = vec![Vec::with_capacity(session.queries.len()); same.len()];
        for graded in session.queries {
            let passages: Vec<_> = graded.passages.iter().collect();
            let found = QueryView::scores(&views, &*reranker, &graded.query, &passages)?;
            for (mut scores, of) in found.into_iter().zip(&mut of) {
                standardise(&mut scores);
                of.push(scores);
            }
        }
        scores.extend(of);
    }
    Ok(scores)
}

/// Similarities with their scores and their trained weights.
pub(super) struct WeightedSimilarities {
    similarities: Vec<Similarity>,
    scores: Scores,
    weights: Vec<f64>,
}

impl WeightedSimilarities {
    /// Trains the weights with a listwise loss.
    pub(super) fn train(similarities: Vec<Similarity>, session: &RerankerSession<'_>) -> Result<Self> {
        let scores = standardised(&similarities, session)?;
        let weights = listwise_weights(&scores, session.queries);
        tracing::info!(?similarities, ?weights, "similarities");
        Ok(Self { similarities, scores, weights })
    }

    /// The weighted sums of the passages' scores, by query.
    pub(super) fn sums(&self) -> Vec<Vec<f32>> {
        summed(&self.scores, &self.weights)
    }

    /// The parts of the combined reranker.
    pub(super) fn parts(&self) -> impl Iterator<Item = SavedPart> {
        self.similarities.iter().zip(&self.weights).map(|(similarity, weight)| SavedPart {
            folder: similarity.folder.into(),
            view: similarity.view,
            weight: *weight as f32,
            standardised: true,
        })
    }
}
