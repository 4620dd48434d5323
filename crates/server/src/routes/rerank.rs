//! Rerankers in the forms of Jina and Cohere.

use std::sync::Arc;

use axum::{Extension, Json, extract::State as Shared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Failure, State,
    http::{Api, Body, RequestId},
    models::Score,
    routes::others::refuse,
    work::size,
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("Rerank")
        .post::<RerankRequest, JinaResponse, _>(
            "/v1/rerank",
            "Ranks documents for a query, as Jina's API",
            jina,
        )
        .post::<RerankRequest, CohereResponse, _>(
            "/v2/rerank",
            "Ranks documents for a query, as Cohere's API",
            cohere,
        )
}

/// Documents to rank for a query.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct RerankRequest {
    /// The query.
    query: String,
    /// The documents.
    documents: Vec<RankedDocument>,
    /// The number of documents to return; all by default.
    #[serde(default)]
    #[schemars(range(min = 1))]
    top_n: Option<usize>,
    /// Whether results have their documents.
    #[serde(default)]
    return_documents: Option<bool>,
    /// The number of tokens after which a document is cut. The model cuts a query with its document, and this must not be less.
    #[serde(default)]
    max_tokens_per_doc: Option<usize>,
    /// Other settings. Those that would change the ranking are refused.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Settings of Jina's and Cohere's APIs that would change the ranking, and that this server does not have.
const REFUSED: [&str; 4] = ["max_chunks_per_doc", "rank_fields", "max_doc_length", "return_embeddings"];

/// A document.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or an object with `text`")]
enum RankedDocument {
    /// Its text.
    Text(String),
    /// Its text, in an object.
    Object {
        /// The text.
        text: String,
    },
}

impl RankedDocument {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// A document in a ranking.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct RankedResult {
    /// The place of the document in the request.
    index: usize,
    /// The document.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
    /// The score.
    relevance_score: f32,
}

/// A ranking in Jina's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct JinaResponse {
    /// The model.
    model: String,
    /// The documents, best first.
    results: Vec<RankedResult>,
    /// The tokens, estimated from the bytes.
    usage: JinaUsage,
}

/// The tokens of a ranking.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct JinaUsage {
    /// The tokens.
    total_tokens: usize,
}

/// A ranking in Cohere's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct CohereResponse {
    /// The id.
    id: String,
    /// The documents, best first.
    results: Vec<RankedResult>,
    /// The version of the API, and what it would cost.
    meta: Value,
}

/// The ranking of a request, the name of the model, and the size of the texts.
async fn ranked(
    state: &State,
    request: RerankRequest,
    with_documents: bool,
) -> Result<(Vec<RankedResult>, String, usize), Failure> {
    let RerankRequest { query, documents, top_n, max_tokens_per_doc, others, .. } = request;
    refuse(&others, &REFUSED)?;
    if others.get("truncation") == Some(&Value::Bool(false)) {
        let message = "`truncation`: expected `true`; this endpoint cuts long texts";
        return Err(Failure::invalid("truncation", message));
    }
    if documents.is_empty() {
        return Err(Failure::invalid("documents", "`documents`: expected at least one document, found none"));
    }
    if top_n == Some(0) {
        return Err(Failure::invalid("top_n", "`top_n`: expected at least 1, found 0"));
    }
    let texts: Vec<String> = documents.into_iter().map(RankedDocument::into_text).collect();
    let tokens = texts.iter().map(|text| size(&query) + size(text)).sum();
    let reranker = state.models.reranker()?;
    let least = reranker.max_tokens().unwrap_or(usize::MAX);
    if let Some(found) = max_tokens_per_doc.filter(|found| *found < least) {
        let message = match reranker.max_tokens() {
            Some(least) => format!(
                "`max_tokens_per_doc`: expected at least {least}, the tokens that the model reads, found {found}"
            ),
            None => format!("`max_tokens_per_doc`: expected none with this model, found {found}"),
        };
        return Err(Failure::invalid("max_tokens_per_doc", message));
    }
    let kept = with_documents.then(|| texts.clone());
    let scores = reranker.scores(&query, texts).await?;
    let mut order: Vec<(usize, Score)> = scores.into_iter().enumerate().collect();
    order.sort_by(|a, b| {
        b.1.score.total_cmp(&a.1.score).then(b.1.raw.total_cmp(&a.1.raw)).then(a.0.cmp(&b.0))
    });
    order.truncate(top_n.unwrap_or(usize::MAX));
    let result = |(index, score): (usize, Score)| {
        let document = kept.as_ref().and_then(|texts| texts.get(index)).map(|text| json!({ "text": text }));
        RankedResult { index, document, relevance_score: score.score }
    };
    Ok((order.into_iter().map(result).collect(), reranker.name().to_owned(), tokens))
}

async fn jina(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<RerankRequest>,
) -> Result<Json<JinaResponse>, Failure> {
    let with_documents = request.return_documents.unwrap_or(true);
    let (results, model, total_tokens) = ranked(&state, request, with_documents).await?;
    Ok(Json(JinaResponse { model, results, usage: JinaUsage { total_tokens } }))
}

async fn cohere(
    Shared(state): Shared<Arc<State>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Body(request): Body<RerankRequest>,
) -> Result<Json<CohereResponse>, Failure> {
    let with_documents = request.return_documents.unwrap_or(false);
    let (results, ..) = ranked(&state, request, with_documents).await?;
    let meta = json!({ "api_version": { "version": "2" }, "billed_units": { "search_units": 1 } });
    Ok(Json(CohereResponse { id, results, meta }))
}
