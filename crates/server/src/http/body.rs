//! The body and the query of a request.

use axum::{
    body::{Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, Request},
    http::{header, request::Parts},
};
use serde::de::DeserializeOwned;
use sporran_kilt::jsonl::plain_json;

use crate::{Cause, Failure};

/// A body in JSON. A wrong one is a [`Failure`] that names the field.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        // A browser asks before it sends JSON to another origin, and this server does not allow it. Other types are sent at once.
        if !kind.eq_ignore_ascii_case("application/json") {
            let message = format!("content-type: expected `application/json`, found `{kind}`");
            return Err(Failure::new(Cause::MediaType, message));
        }
        if request.body().size_hint().lower() == 0 && request.body().is_end_stream() {
            return Err(Failure::new(Cause::Syntax, "expected a body in JSON, found none"));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            match rejection.status().as_u16() {
                413 => Failure::new(Cause::TooLarge, "the body is longer than the limit, `--max-body`"),
                _ => Failure::new(Cause::Syntax, "the body ended early"),
            }
        })?;
        // A list would be taken as the fields of the object in their order.
        if bytes.trim_ascii_start().starts_with(b"[") {
            return Err(Failure::new(Cause::Invalid, "expected a JSON object, found a list"));
        }
        let mut reader = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let field = error.path().to_string();
            let words = plain_json(&error.inner().to_string());
            match error.inner().is_data() {
                true if field == "." => Failure::new(Cause::Invalid, words),
                true => Failure::invalid(&field, format!("`{field}`: {words}")),
                false => Failure::new(Cause::Syntax, format!("the body is not JSON: {words}")),
            }
        })?;
        reader.end().map_err(|error| {
            let words = plain_json(&error.to_string());
            Failure::new(Cause::Syntax, format!("the body is not JSON: {words}"))
        })?;
        Ok(Self(value))
    }
}

/// The values in the query of an address. A wrong one is a [`Failure`] that names the parameter.
pub(crate) struct Queries<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Queries<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let found = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        // The text of axum ends with the cause, which names the parameter.
        found.map(|query| Self(query.0)).map_err(|error| {
            let text = error.body_text();
            let cause = text.split_once("query string: ").map_or(text.as_str(), |(_, cause)| cause);
            Failure::new(Cause::Invalid, format!("the query of the address: {cause}"))
        })
    }
}
