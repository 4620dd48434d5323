//! The API of text-embeddings-inference.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_checkpoint::VectorSimilarity;

use crate::{
    Cause, Failure, State,
    http::{Api, Bodies, Body, named},
    models::{Classified, Embedded, Embedder, Score, Wanted},
    routes::{
        cutting::{Cutting, Reading},
        vectors::{shortened, unit},
    },
    work::aside,
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("text-embeddings-inference")
        .post::<RootRequest, RootResponse, _>("/", "Embeds texts, or compares a text with others", root)
        .post::<EmbedRequest, Vec<Vec<f32>>, _>("/embed", "Embeds texts", embed)
        .post::<EmbedAllRequest, Vec<Vec<Vec<f32>>>, _>(
            "/embed_all",
            "The hidden states of all tokens",
            embed_all,
        )
        .post::<SimilarityRequest, Vec<f32>, _>(
            "/similarity",
            "Compares a text with others by their vectors",
            similarity,
        )
        .post::<RerankRequest, Vec<Rank>, _>("/rerank", "Ranks texts for a query", rerank)
        .post::<PredictRequest, PredictResponse, _>("/predict", "Classifies texts or pairs of texts", predict)
        .post::<TokenizeRequest, Vec<Vec<Token>>, _>("/tokenize", "The tokens of texts", tokenize)
        .get::<Value, _>("/info", "The models and the limits", &[], info)
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(super) enum Texts {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
}

impl Texts {
    /// The texts.
    ///
    /// # Errors
    /// None.
    pub(super) fn all(self, field: &str) -> Result<Vec<String>, Failure> {
        match self {
            Self::One(text) => Ok(vec![text]),
            Self::Many(texts) if texts.is_empty() => {
                Err(Failure::invalid(field, format!("`{field}`: expected at least one text, found none")))
            }
            Self::Many(texts) => Ok(texts),
        }
    }
}

/// Texts to embed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Embed {
    /// The texts.
    inputs: Texts,
    /// Whether vectors get the length 1.
    #[serde(default = "yes")]
    normalize: bool,
    /// The number of leading values to keep.
    #[serde(default)]
    dimensions: Option<usize>,
}

type EmbedRequest = Bodies<Embed, Reading>;

fn yes() -> bool {
    true
}

/// Texts whose tokens to embed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct EmbedAll {
    /// The texts.
    inputs: Texts,
}

type EmbedAllRequest = Bodies<EmbedAll, Reading>;

/// A text to compare with others.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct SimilarityRequest {
    /// The texts.
    inputs: Compared,
    /// How they are read.
    #[serde(default)]
    parameters: Option<Reading>,
}

/// A text and those to compare it with.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Compared {
    /// The text.
    source_sentence: String,
    /// The others.
    sentences: Vec<String>,
}

/// Texts to embed, or a text to compare with others: `source_sentence` and `sentences`.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "it describes what `root` reads")]
enum RootRequest {
    /// Texts to embed.
    Embed(EmbedRequest),
    /// A text to compare with others.
    Similarity(SimilarityRequest),
}

/// Vectors, or similarities.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum RootResponse {
    /// Vectors.
    Vectors(Vec<Vec<f32>>),
    /// Similarities.
    Similarities(Vec<f32>),
}

async fn root(shared: Shared<Arc<State>>, Body(request): Body<Value>) -> Result<Json<RootResponse>, Failure> {
    Ok(Json(match request["inputs"].is_object() {
        false => RootResponse::Vectors(embed(shared, Bodies::of(&request)?).await?.0),
        true => RootResponse::Similarities(similarity(shared, Body(named(&request)?)).await?.0),
    }))
}

async fn read(
    embedder: &Embedder,
    inputs: Vec<String>,
    reading: &Reading,
    wanted: Wanted,
) -> Result<Vec<Embedded>, Failure> {
    reading.truncation_direction.checked()?;
    let prompt = reading.prompt_name.as_deref().map(|name| embedder.prompt(name)).transpose()?;
    let found = embedder.embed(inputs, prompt.as_deref(), wanted).await?;
    let cut =
        found.iter().find(|found| found.whole > found.tokens).filter(|_| reading.truncate == Some(false));
    match cut {
        None => Ok(found),
        Some(Embedded { tokens, whole, .. }) => {
            let message = format!("`inputs`: expected at most {tokens} tokens in a text, found {whole}");
            Err(Failure { field: Some("inputs".to_owned()), ..Failure::new(Cause::TooLarge, message) })
        }
    }
}

async fn embed(
    Shared(state): Shared<Arc<State>>,
    Bodies { first: request, second: reading }: EmbedRequest,
) -> Result<Json<Vec<Vec<f32>>>, Failure> {
    let embedder = state.models.embedder()?;
    let found = read(embedder, request.inputs.all("inputs")?, &reading, Wanted::Vector).await?;
    let vector = |found: Embedded| {
        let values = shortened(found.values, request.dimensions)?;
        Ok(if request.normalize { unit(values) } else { values })
    };
    Ok(Json(found.into_iter().map(vector).collect::<Result<_, Failure>>()?))
}

async fn embed_all(
    Shared(state): Shared<Arc<State>>,
    Bodies { first: EmbedAll { inputs }, second: reading }: EmbedAllRequest,
) -> Result<Json<Vec<Vec<Vec<f32>>>>, Failure> {
    let embedder = state.models.embedder()?;
    let found = read(embedder, inputs.all("inputs")?, &reading, Wanted::States).await?;
    let width = embedder.encoder().state_width().max(1);
    let states = |found: Embedded| found.values.chunks_exact(width).map(<[f32]>::to_vec).collect();
    Ok(Json(found.into_iter().map(states).collect()))
}

async fn similarity(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<SimilarityRequest>,
) -> Result<Json<Vec<f32>>, Failure> {
    let embedder = state.models.embedder()?;
    let Compared { source_sentence, sentences } = request.inputs;
    if sentences.is_empty() {
        return Err(Failure::invalid(
            "inputs.sentences",
            "`inputs.sentences`: expected at least one text, found none",
        ));
    }
    let texts = std::iter::once(source_sentence).chain(sentences).collect();
    let found = read(embedder, texts, &request.parameters.unwrap_or_default(), Wanted::Vector).await?;
    let Some((source, others)) = found.split_first() else { return Ok(Json(Vec::new())) };
    let cosine = |other: &Embedded| VectorSimilarity::Cosine.of(&source.values, &other.values);
    Ok(Json(others.iter().map(cosine).collect()))
}

/// Texts to rank for a query.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Rerank {
    /// The query.
    query: String,
    /// The texts.
    texts: Vec<String>,
    /// Whether scores are those before the activation.
    #[serde(default)]
    raw_scores: bool,
    /// Whether ranks have their texts.
    #[serde(default)]
    return_text: bool,
}

type RerankRequest = Bodies<Rerank, Cutting>;

/// A text in a ranking.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Rank {
    /// The place of the text in the request.
    index: usize,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The score.
    score: f32,
}

async fn rerank(
    Shared(state): Shared<Arc<State>>,
    Bodies { first: request, second: cutting }: RerankRequest,
) -> Result<Json<Vec<Rank>>, Failure> {
    cutting.checked()?;
    let texts = Texts::Many(request.texts).all("texts")?;
    let kept = request.return_text.then(|| texts.clone());
    let scores = state.models.reranker()?.scores(&request.query, texts).await?;
    let rank = |(index, Score { raw, score }): (usize, Score)| Rank {
        index,
        text: kept.as_ref().and_then(|texts| texts.get(index).cloned()),
        score: if request.raw_scores { raw } else { score },
    };
    let mut ranks: Vec<Rank> = scores.into_iter().enumerate().map(rank).collect();
    ranks.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    Ok(Json(ranks))
}

/// Texts to classify.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Predict {
    /// A text, a pair of texts, or a list of these as lists.
    inputs: PredictInputs,
    /// Whether scores are logits.
    #[serde(default)]
    raw_scores: bool,
}

type PredictRequest = Bodies<Predict, Cutting>;

/// A text, a pair of texts, or a list of these as lists.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, a pair of texts, or a list of lists of one text or two")]
enum PredictInputs {
    /// A text.
    One(String),
    /// A pair of texts.
    Pair(Vec<String>),
    /// Lists of one text or two.
    Many(Vec<Vec<String>>),
}

/// The labels of a text with their scores, best first; a list of them for several texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum PredictResponse {
    /// Of one text.
    One(Vec<Prediction>),
    /// Of each text.
    Many(Vec<Vec<Prediction>>),
}

/// A label with its score.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Prediction {
    /// The score.
    score: f32,
    /// The label.
    label: String,
}

fn classified(texts: Vec<String>) -> Result<Classified, Failure> {
    let count = texts.len();
    let mut texts = texts.into_iter();
    match (texts.next(), texts.next()) {
        (Some(first), second) if count <= 2 => Ok(Classified { first, second }),
        _ => {
            let message = format!("`inputs`: expected one text or two, found {count}");
            Err(Failure::invalid("inputs", message))
        }
    }
}

async fn predict(
    Shared(state): Shared<Arc<State>>,
    Bodies { first: request, second: cutting }: PredictRequest,
) -> Result<Json<PredictResponse>, Failure> {
    cutting.checked()?;
    let classifier = state.models.classifier()?;
    let (is_one, items) = match request.inputs {
        PredictInputs::One(first) => (true, vec![Classified { first, second: None }]),
        PredictInputs::Pair(texts) => (true, vec![classified(texts)?]),
        PredictInputs::Many(many) => (false, many.into_iter().map(classified).collect::<Result<_, _>>()?),
    };
    let labels = classifier.labels().to_vec();
    let predictions = |scores: Vec<f32>| {
        let both = scores.into_iter().zip(&labels);
        let mut all: Vec<Prediction> =
            both.map(|(score, label)| Prediction { score, label: label.clone() }).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all
    };
    let found = classifier.classify(items, request.raw_scores).await?;
    let mut found: Vec<Vec<Prediction>> = found.into_iter().map(predictions).collect();
    Ok(Json(match is_one {
        true => PredictResponse::One(found.pop().unwrap_or_default()),
        false => PredictResponse::Many(found),
    }))
}

/// Texts to split into tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct TokenizeRequest {
    /// The texts.
    inputs: Texts,
    /// Whether special tokens surround each text.
    #[serde(default = "yes")]
    add_special_tokens: bool,
    /// The name of the model's prompt before each text.
    #[serde(default)]
    prompt_name: Option<String>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
struct Token {
    /// The id.
    id: u32,
    /// The text: that of the input, or the token's name for a special token.
    text: String,
    /// Whether it is a special token.
    special: bool,
    /// The first character; none for a special token.
    start: Option<usize>,
    /// The character after the last one; none for a special token.
    stop: Option<usize>,
}

async fn tokenize(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<TokenizeRequest>,
) -> Result<Json<Vec<Vec<Token>>>, Failure> {
    let embedder = state.models.embedder()?;
    let encoder = embedder.encoder().clone();
    let mut texts = request.inputs.all("inputs")?;
    if let Some(name) = &request.prompt_name {
        let prompt = embedder.prompt(name)?;
        texts.iter_mut().for_each(|text| text.insert_str(0, &prompt));
    }
    let tokens = move || {
        let of = |text: &String| tokens(encoder.tokenizer(), text, request.add_special_tokens);
        texts.iter().map(of).collect::<tokenizers::Result<Vec<_>>>()
    };
    Ok(Json(aside(move || tokens().map_err(Failure::internal)).await?))
}

fn tokens(
    tokenizer: &sporran_checkpoint::Tokenizer,
    text: &str,
    with_special: bool,
) -> tokenizers::Result<Vec<Token>> {
    let found = tokenizer.inner().encode_char_offsets(text, with_special)?;
    let characters: Vec<char> = text.chars().collect();
    let token = |at: usize| {
        let (start, stop) = found.get_offsets()[at];
        let special = found.get_special_tokens_mask()[at] == 1;
        Token {
            id: found.get_ids()[at],
            text: match special {
                true => found.get_tokens()[at].clone(),
                false => characters.get(start..stop).map(|part| part.iter().collect()).unwrap_or_default(),
            },
            special,
            start: (!special).then_some(start),
            stop: (!special).then_some(stop),
        }
    };
    Ok((0..found.len()).map(token).collect())
}

async fn info(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    let models = &state.models;
    let served = &state.options().models;
    let limits = state.limits();
    let (mut id, mut kind, mut length) = (Value::Null, json!({}), None);
    if let Ok(classifier) = models.classifier() {
        (id, kind) = (classifier.name().into(), json!({ "classifier": labels(classifier.labels()) }));
    }
    if let Ok(reranker) = models.reranker() {
        (id, kind) = (reranker.name().into(), json!({ "reranker": labels(&["LABEL_0".to_owned()]) }));
    }
    if let Ok(embedder) = models.embedder() {
        (id, kind) =
            (embedder.name().into(), json!({ "embedding": { "pooling": embedder.encoder().pooling() } }));
        length = Some(embedder.encoder().max_tokens());
    }
    let dtype = serde_json::to_value(served.precision).unwrap_or_default();
    Json(json!({
        "model_id": id,
        "model_sha": null,
        "served_model_name": id,
        "model_dtype": dtype,
        "model_type": kind,
        "max_concurrent_requests": limits.connections,
        "max_input_length": length,
        "max_batch_tokens": limits.batch_tokens,
        "max_batch_requests": null,
        "max_client_batch_size": limits.waiting,
        "auto_truncate": true,
        "tokenization_workers": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
    }))
}

fn labels(labels: &[String]) -> Value {
    let by_id: serde_json::Map<String, Value> =
        labels.iter().enumerate().map(|(id, label)| (id.to_string(), label.as_str().into())).collect();
    let by_label: serde_json::Map<String, Value> =
        labels.iter().enumerate().map(|(id, label)| (label.clone(), id.into())).collect();
    json!({ "id2label": by_id, "label2id": by_label })
}
