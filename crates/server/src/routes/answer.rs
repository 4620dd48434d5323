//! `POST /v1/answer` and `GET /v1/mounts`.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};

use crate::{
    Failure, State,
    http::{Api, Body},
    mounts::{AnswerRequest, AnswerResponse, MountsResponse},
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("Sporran")
        .post::<AnswerRequest, AnswerResponse, _>(
            "/v1/answer",
            "Answers a question with its provenance",
            answer,
        )
        .get::<MountsResponse, _>("/v1/mounts", "What is mounted, and what it can do", &[], mounts)
}

async fn answer(
    Shared(state): Shared<Arc<State>>,
    Body(request): Body<AnswerRequest>,
) -> Result<Json<AnswerResponse>, Failure> {
    let mounts = state.mounts();
    Ok(Json(mounts.answer(&request).await?))
}

async fn mounts(Shared(state): Shared<Arc<State>>) -> Json<MountsResponse> {
    Json(state.mounts().summary())
}
