//! Facts, mentions and triples.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};

use crate::{
    Failure, State,
    http::{Api, Body},
    mounts::{CompleteRequest, CompleteResponse, FactsResponse, LinksResponse, TextsRequest},
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("Sporran")
        .post::<TextsRequest, FactsResponse, _>("/v1/facts", "The facts of texts with their places", facts)
        .post::<TextsRequest, LinksResponse, _>("/v1/link", "The mentions of texts with their entities", link)
        .post::<CompleteRequest, CompleteResponse, _>(
            "/v1/kb/complete",
            "The entities that complete a triple, with the rules and paths that explain them",
            complete,
        )
}

async fn facts(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<TextsRequest>,
) -> Result<Json<FactsResponse>, Failure> {
    Ok(Json(state.mounts().extracting(request.mount.as_deref())?.facts(&request).await?))
}

async fn link(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<TextsRequest>,
) -> Result<Json<LinksResponse>, Failure> {
    Ok(Json(state.mounts().linking(request.mount.as_deref())?.links(&request).await?))
}

async fn complete(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<CompleteRequest>,
) -> Result<Json<CompleteResponse>, Failure> {
    let mounts = state.mounts();
    let mount = request.mount.clone();
    Ok(Json(mounts.completing(mount.as_deref())?.complete(request).await?))
}
