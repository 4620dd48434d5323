//! `GET /v1/models`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State as Shared},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    Failure, State,
    http::{Api, Parameter},
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    let id = Parameter { name: "id", kind: "string", required: true, summary: "The name of a model" };
    api.get::<Models, _>(
        "/v1/models",
        "The models: mounts with a generator, and models that are served by themselves",
        &[],
        list,
    )
    .get::<Model, _>("/v1/models/{id}", "A model", &[id], one)
}

/// The models.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Models {
    /// `list`.
    object: &'static str,
    /// The models.
    data: Vec<Model>,
}

/// A model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Model {
    /// The name.
    id: String,
    /// `model`.
    object: &'static str,
    /// The time at which it was loaded, in seconds since 1970.
    created: u64,
    /// `sporran`.
    owned_by: &'static str,
    /// What it does: `answer`, `embed`, `rerank` or `classify`.
    task: &'static str,
}

fn models(state: &State) -> Vec<Model> {
    let model = |id: &str, task, created| Model {
        id: id.to_owned(),
        object: "model",
        created,
        owned_by: "sporran",
        task,
    };
    let mounts = state.mounts();
    let (opened, loaded) = (mounts.opened(), state.models.opened());
    let answers =
        mounts.all().iter().filter(|mount| mount.answering().is_some_and(|found| found.generates()));
    let answers = answers.map(|mount| model(mount.name(), "answer", opened));
    answers.chain(state.models.names().into_iter().map(|(name, task)| model(name, task, loaded))).collect()
}

async fn list(Shared(state): Shared<Arc<State>>) -> Json<Models> {
    Json(Models { object: "list", data: models(&state) })
}

async fn one(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Result<Json<Model>, Failure> {
    let models = models(&state);
    let found = models.iter().find(|model| model.id == id).cloned();
    let known = models.iter().map(|model| model.id.as_str());
    found.map(Json).ok_or_else(|| Failure::not_found("model", &id, known))
}
