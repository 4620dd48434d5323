//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};
use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Usage;
use crate::{
    Failure, State,
    http::{Api, Body},
    models::{Embedded, Wanted},
    routes::vectors::{shortened, unit},
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.post::<EmbeddingsRequest, EmbeddingsResponse, _>("/v1/embeddings", "Embeds texts", embeddings)
}

/// Texts to embed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct EmbeddingsRequest {
    /// The texts.
    input: Input,
    /// The model. This server has one, whatever the name.
    #[serde(default)]
    #[allow(dead_code)]
    model: Option<String>,
    /// `float` or `base64`: 32-bit floats, little-endian.
    #[serde(default)]
    encoding_format: Option<Encoding>,
    /// The number of leading values to keep.
    #[serde(default)]
    dimensions: Option<usize>,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum Input {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
    /// Tokens, which are refused, because they are of another model's vocabulary.
    Tokens(#[allow(dead_code)] Vec<serde_json::Value>),
}

/// The form of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// Numbers.
    #[default]
    Float,
    /// The bytes of 32-bit floats, little-endian.
    Base64,
}

/// The vectors of texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct EmbeddingsResponse {
    /// `list`.
    object: &'static str,
    /// The vectors, in the order of the texts.
    data: Vec<Embedding>,
    /// The model.
    model: String,
    /// The tokens.
    usage: Usage,
}

/// The vector of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Embedding {
    /// `embedding`.
    object: &'static str,
    /// The place of the text in the request.
    index: usize,
    /// The vector.
    embedding: Vector,
}

/// A vector.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Vector {
    /// Numbers.
    Float(Vec<f32>),
    /// The bytes of 32-bit floats, little-endian, in base64.
    Base64(String),
}

fn texts(input: Input) -> Result<Vec<String>, Failure> {
    match input {
        Input::One(text) => Ok(vec![text]),
        Input::Many(texts) if !texts.is_empty() => Ok(texts),
        Input::Many(_) => Err(Failure::invalid("input", "`input`: expected at least one text, found none")),
        Input::Tokens(_) => {
            let message = "`input`: expected texts; token ids of another model mean nothing here";
            Err(Failure::invalid("input", message))
        }
    }
}

async fn embeddings(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<EmbeddingsRequest>,
) -> Result<Json<EmbeddingsResponse>, Failure> {
    let embedder = state.models.embedder()?;
    let found = embedder.embed(texts(request.input)?, None, Wanted::Vector).await?;
    let tokens = found.iter().map(|found| found.tokens).sum();
    let embedding = |(index, found): (usize, Embedded)| {
        let values = unit(shortened(found.values, request.dimensions)?);
        let embedding = match request.encoding_format.unwrap_or_default() {
            Encoding::Float => Vector::Float(values),
            Encoding::Base64 => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        };
        Ok(Embedding { object: "embedding", index, embedding })
    };
    let data = found.into_iter().enumerate().map(embedding).collect::<Result<_, Failure>>()?;
    let (model, usage) = (embedder.name().to_owned(), Usage::of_prompt(tokens));
    Ok(Json(EmbeddingsResponse { object: "list", data, model, usage }))
}
