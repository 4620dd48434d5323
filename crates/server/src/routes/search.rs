//! Searches in the form of Pyserini and Anserini, and of Search-R1.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State as Shared},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::Hit;

use crate::{
    Failure, State,
    http::{Api, Body, Parameter, Queries},
    mounts::{Document, DocumentResponse, SearchResponse},
    work::aside,
};

/// The number of hits of a search that sets none.
const HITS: usize = 10;
/// The number of results of Search-R1's server that sets none.
const TOP: usize = 3;

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    let index = Parameter {
        name: "index",
        kind: "string",
        required: true,
        summary: "The name of a mount with an index",
    };
    let query = Parameter { name: "query", kind: "string", required: true, summary: "The query" };
    let hits = Parameter {
        name: "hits",
        kind: "integer",
        required: false,
        summary: "The number of hits; 10 by default",
    };
    let id = Parameter {
        name: "id",
        kind: "string",
        required: true,
        summary: "The id of a document or a passage",
    };
    api.group("Search")
        .get::<SearchResponse, _>(
            "/v1/{index}/search",
            "The best passages for a query, as Pyserini and Anserini return them",
            &[index, query, hits],
            search,
        )
        .get::<DocumentResponse, _>(
            "/v1/{index}/doc/{*id}",
            "A document or a passage",
            &[index, id],
            document,
        )
        .post::<RetrieveRequest, RetrieveResponse, _>(
            "/retrieve",
            "The best passages for several queries, as Search-R1 and verl ask for them",
            retrieve,
        )
}

#[derive(Deserialize)]
struct Search {
    query: String,
    hits: Option<usize>,
}

async fn search(
    Shared(state): Shared<Arc<State>>,
    Path(index): Path<String>,
    Queries(Search { query, hits }): Queries<Search>,
) -> Result<Json<SearchResponse>, Failure> {
    let hits = hits.unwrap_or(state.limits().hits.min(HITS));
    Ok(Json(state.mounts().searching(Some(&index))?.search(query, hits).await?))
}

async fn document(
    Shared(state): Shared<Arc<State>>,
    Path((index, id)): Path<(String, String)>,
) -> Result<Json<DocumentResponse>, Failure> {
    let answering = Arc::clone(state.mounts().searching(Some(&index))?);
    Ok(Json(aside(move || answering.document(&id)).await?))
}

/// Queries, as Search-R1 sends them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct RetrieveRequest {
    /// The queries.
    queries: Vec<String>,
    /// The number of passages for each; 3 by default. The server limits it, and its product with the number of queries.
    #[serde(default)]
    topk: Option<usize>,
    /// Whether each passage comes with its score.
    #[serde(default)]
    return_scores: bool,
    /// The mount; the first one with an index by default.
    #[serde(default)]
    mount: Option<String>,
}

/// The passages of each query, best first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct RetrieveResponse {
    /// Item `i` has the passages of query `i`.
    result: Vec<Vec<Retrieved>>,
}

/// A passage, with its score if the request asks for it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Retrieved {
    /// With its score.
    Scored {
        /// The passage.
        document: RetrievedDocument,
        /// The score.
        score: f32,
    },
    /// Without.
    Plain(RetrievedDocument),
}

/// A passage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct RetrievedDocument {
    /// The id.
    id: String,
    /// The title, a line break and the text.
    contents: String,
}

async fn retrieve(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<RetrieveRequest>,
) -> Result<Json<RetrieveResponse>, Failure> {
    let RetrieveRequest { queries, topk, return_scores, mount } = request;
    let answering = Arc::clone(state.mounts().searching(mount.as_deref())?);
    let count = topk.unwrap_or(state.limits().hits.min(TOP));
    let hits = answering.hits(&queries, (["queries", "topk"], count)).await?;
    let result = move || {
        let store = answering.index()?;
        let retrieved = |hit: &Hit| {
            let Document { id, contents, .. } = Document::of_passage(store, hit.passage);
            let document = RetrievedDocument { id, contents };
            match return_scores {
                true => Retrieved::Scored { document, score: hit.score },
                false => Retrieved::Plain(document),
            }
        };
        Ok(hits.iter().map(|hits| hits.iter().map(retrieved).collect()).collect())
    };
    Ok(Json(RetrieveResponse { result: aside(result).await? }))
}
