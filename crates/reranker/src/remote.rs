//! A reranker at an HTTP endpoint.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_config::Document;
use sporran_kilt::{Passage, Query};
use sporran_remote::{Call, Client, Endpoint, RequestOptions, Route, check_endpoint};

use crate::{Reranker, Result, kind::RerankerKind, passage_text};

/// The form of requests for scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RerankApi {
    /// `v1/rerank`, as Jina, Cohere, vLLM and llama.cpp have it: `query` and `documents`.
    #[default]
    Rerank,
    /// `rerank` of TEI, which is next to `v1`: `query` and `texts`. Scores are logits.
    Tei,
}

/// `kind = "remote"`: a reranker at an HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteRerankerOptions {
    /// The address, such as `http://localhost:8000/v1`. One without a path gets `/v1`.
    pub base_url: String,
    /// The name of the model at the endpoint.
    pub model: String,
    /// The name of the environment variable that has the key; none for an endpoint without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The form of requests: `rerank` or `tei`.
    #[serde(default)]
    pub api: RerankApi,
    /// Passages of a request, at most. Several requests score the passages of a query at the same time.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub batch_size: usize,
    /// `[reranker.requests]`: concurrency, repetitions, limits, the cache of responses, and prices.
    #[serde(default)]
    pub requests: RequestOptions,
}

fn batch_size() -> usize {
    32
}

/// A reranker at an endpoint.
pub struct RemoteReranker {
    client: Client,
    api: RerankApi,
    batch_size: usize,
}

impl RemoteReranker {
    /// Opens a client. Sends nothing.
    ///
    /// # Errors
    /// [`crate::Error::Remote`] for an option that cannot be used, and a variable without a key.
    pub fn open(options: &RemoteRerankerOptions) -> Result<Self> {
        let client = Client::open(&Endpoint {
            base_url: &options.base_url,
            model: &options.model,
            api_key_env: options.api_key_env.as_deref(),
            requests: &options.requests,
            seed: 0,
        })?;
        Ok(Self { client, api: options.api, batch_size: options.batch_size.max(1) })
    }

    fn call(&self, query: &Query, passages: &[&Passage]) -> Call {
        let texts: Vec<String> = passages.iter().map(|passage| passage_text(passage)).collect();
        let query = &query.text;
        match self.api {
            RerankApi::Rerank => {
                let (model, count) = (self.client.model(), texts.len());
                let body = json!({
                    "model": model, "query": query, "documents": texts, "top_n": count, "return_documents": false,
                });
                Call { route: Route::Rerank, body }
            }
            RerankApi::Tei => {
                let body = json!({ "query": query, "texts": texts, "raw_scores": true, "truncate": true });
                Call { route: Route::RerankAtRoot, body }
            }
        }
    }
}

/// Reads the scores of `count` texts, which come in any order.
///
/// # Errors
/// What was expected and found, where a text has no score, several, or one that is no number.
fn scores(response: &Value, count: usize) -> Result<Vec<f32>, String> {
    // TEI's list is the response itself.
    let results = if response.is_array() { response } else { &response["results"] };
    let results = results.as_array().ok_or("`results`: expected a list of scores, found none")?;
    if results.len() != count {
        return Err(format!("expected a score for each of {count} texts, found {}", results.len()));
    }
    let mut scores: Vec<Option<f32>> = vec![None; count];
    for result in results {
        let index = result["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let Some(place) = index.and_then(|index| scores.get_mut(index)) else {
            let found = &result["index"];
            return Err(format!("`index`: expected the number of one of {count} texts, found {found}"));
        };
        let score = [&result["relevance_score"], &result["score"]].into_iter().find_map(Value::as_f64);
        let score = score.map(|score| score as f32).filter(|score| score.is_finite());
        let score = score.ok_or_else(|| {
            let found = if result["score"].is_null() { &result["relevance_score"] } else { &result["score"] };
            format!("`relevance_score`: expected a number, found {found}")
        })?;
        if place.replace(score).is_some() {
            return Err(format!("`index`: expected each text once, found {} twice", result["index"]));
        }
    }
    // As many different places as there are texts: all.
    Ok(scores.into_iter().flatten().collect())
}

impl Reranker for RemoteReranker {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let batches: Vec<&[&Passage]> = passages.chunks(self.batch_size).collect();
        let found = self.client.each(batches.len(), |at, stop| {
            let batch = batches[at];
            self.client.ask(&self.call(query, batch), &|response| scores(response, batch.len()), stop)
        })?;
        Ok(found.concat())
    }
}

impl RerankerKind for RemoteRerankerOptions {
    fn folder(&self) -> Option<&Path> {
        None
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_endpoint(key, (&self.base_url, &self.model, self.api_key_env.as_deref()), document);
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(RemoteReranker::open(self)?))
    }
}

#[cfg(test)]
#[path = "../../remote/tests/it/server.rs"]
mod server;

#[cfg(test)]
mod tests {
    use super::{
        server::{Reply, Server},
        *,
    };

    fn options(url: &str, api: RerankApi) -> RemoteRerankerOptions {
        let requests = RequestOptions { use_cache: false, ..RequestOptions::default() };
        RemoteRerankerOptions {
            base_url: url.to_owned(),
            model: "m".to_owned(),
            api_key_env: None,
            api,
            batch_size: 2,
            requests,
        }
    }

    #[test]
    fn scores_come_back_to_their_passages_in_any_order() {
        let server = Server::start(|_, asked| {
            // The score of a text is its length; the last text comes first.
            let (name, score) = match asked.path.as_str() {
                "/v1/rerank" => ("documents", "relevance_score"),
                _ => ("texts", "score"),
            };
            let texts = asked.body[name].as_array().unwrap();
            let result = |(at, text): (usize, &Value)| {
                let mut result = json!({ "index": at });
                result[score] = text.as_str().unwrap().len().into();
                result
            };
            let results: Vec<Value> = texts.iter().enumerate().map(result).rev().collect();
            Reply::Json(if name == "texts" { results.into() } else { json!({ "results": results }) })
        });
        let passages = ["a", "aaaa", "aa", "", "aaa"].map(Passage::of_text);
        let passages: Vec<&Passage> = passages.iter().collect();
        for api in [RerankApi::Rerank, RerankApi::Tei] {
            let reranker = RemoteReranker::open(&options(&server.url, api)).unwrap();
            let found = reranker.score(&Query::of_text("q", "who?"), &passages).unwrap();
            assert_eq!(found, [1.0, 4.0, 2.0, 0.0, 3.0]);
            assert!(reranker.score(&Query::of_text("q", "who?"), &[]).unwrap().is_empty());
        }
        let paths: Vec<String> = server.asked().into_iter().map(|asked| asked.path).collect();
        assert_eq!(paths.iter().filter(|path| *path == "/rerank").count(), 3);
        assert_eq!(server.asked()[0].body["model"], "m");
    }

    #[test]
    fn scores_that_are_missing_double_or_no_numbers_are_errors() {
        let of = |results: Value| scores(&json!({ "results": results }), 2).unwrap_err();
        let score = |index: i64| json!({ "index": index, "relevance_score": 1.0 });
        assert_eq!(of(json!([score(0)])), "expected a score for each of 2 texts, found 1");
        assert_eq!(of(json!([score(0), score(0)])), "`index`: expected each text once, found 0 twice");
        assert_eq!(
            of(json!([score(0), score(2)])),
            "`index`: expected the number of one of 2 texts, found 2"
        );
        assert!(of(json!([score(0), score(-1)])).contains("found -1"));
        let none = json!({ "index": 1, "score": null, "relevance_score": "NaN" });
        assert_eq!(of(json!([score(0), none])), "`relevance_score`: expected a number, found \"NaN\"");
        assert!(of(json!([score(0), { "index": 1, "score": 1e300 }])).contains("found 1e+300"));
        assert!(scores(&json!({}), 2).unwrap_err().contains("found none"));
        let found = scores(&json!([{ "index": 1, "score": 2 }, { "index": 0, "score": -1 }]), 2);
        assert_eq!(found, Ok(vec![-1.0, 2.0]));
    }
}
