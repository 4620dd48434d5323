//! The body of a request.

use std::io::Read as _;

use axum::{
    body::{Bytes, HttpBody},
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use flate2::read::MultiGzDecoder;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sporran_kilt::jsonl::plain_json;

use crate::{Cause, Failure};

/// A body in JSON. A wrong one is a [`Failure`] that names the field.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Limited> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = object(request, state).await?;
        let mut reader = serde_json::Deserializer::from_slice(&bytes);
        match named(&mut reader) {
            Ok(value) => {
                reader.end().map_err(|error| syntax(&error))?;
                Ok(Self(value))
            }
            // The reader says the same of a value of another type than that of a name as of a text that is not JSON.
            Err(failure) if failure.cause == Cause::Syntax => {
                let value: Value = serde_json::from_slice(&bytes).map_err(|error| syntax(&error))?;
                named(&value).map(Self)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// A body in JSON whose fields are those of two types, and others. Each type leaves the fields of the other to it, so that an
/// error names its field: serde's `flatten` forgets it.
#[derive(JsonSchema)]
#[schemars(rename = "{A}And{B}")]
pub(crate) struct Bodies<A, B> {
    /// The fields of the first type.
    #[schemars(flatten)]
    pub(crate) first: A,
    /// Those of the second.
    #[schemars(flatten)]
    pub(crate) second: B,
}

impl<A: DeserializeOwned, B: DeserializeOwned> Bodies<A, B> {
    /// Reads the fields of an object.
    ///
    /// # Errors
    /// A wrong field.
    pub(crate) fn of(fields: &Value) -> Result<Self, Failure> {
        Ok(Self { first: named(fields)?, second: named(fields)? })
    }
}

impl<A: DeserializeOwned, B: DeserializeOwned, S: Limited> FromRequest<S> for Bodies<A, B> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = object(request, state).await?;
        Self::of(&serde_json::from_slice(&bytes).map_err(|error| syntax(&error))?)
    }
}

/// What knows the largest number of bytes of a body.
pub(crate) trait Limited: Send + Sync {
    /// The number.
    fn most_bytes(&self) -> usize;
}

/// The bytes of a body that must be an object in JSON.
async fn object<S: Limited>(request: Request, state: &S) -> Result<Bytes, Failure> {
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // A browser asks before it sends JSON to another origin, and this server does not allow it. Other types are sent at once.
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("content-type: expected `application/json`, found `{kind}`");
        return Err(Failure::new(Cause::MediaType, message));
    }
    if request.body().size_hint().lower() == 0 && request.body().is_end_stream() {
        return Err(Failure::new(Cause::Syntax, "expected a body in JSON, found none"));
    }
    let bytes = whole(request, state).await?;
    // A list would be taken as the fields of the object in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Failure::new(Cause::Invalid, "expected a JSON object, found a list"));
    }
    Ok(bytes)
}

/// The bytes of a body, which may be compressed with gzip. The limit holds before and after that.
///
/// # Errors
/// A body that is too long or ends early, another encoding, and bytes that are not gzip.
pub(crate) async fn whole<S: Limited>(request: Request, state: &S) -> Result<Bytes, Failure> {
    let is_compressed = is_compressed(request.headers())?;
    let bytes =
        Bytes::from_request(request, state).await.map_err(|rejection| match rejection.status().as_u16() {
            413 => too_long(state.most_bytes()),
            _ => Failure::new(Cause::Syntax, "the body ended early"),
        })?;
    if is_compressed { expanded(&bytes, state.most_bytes()) } else { Ok(bytes) }
}

/// The failure of a body that is longer than `most` bytes.
pub(super) fn too_long(most: usize) -> Failure {
    let message = format!("the body is longer than the limit, `--max-body`, of {most} bytes");
    Failure::new(Cause::TooLarge, message)
}

/// Whether a body is compressed with gzip.
fn is_compressed(headers: &HeaderMap) -> Result<bool, Failure> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    match (encodings.next().map(|value| value.to_str().unwrap_or_default().trim()), encodings.next()) {
        (None, _) => Ok(false),
        (Some(one), None) if one.eq_ignore_ascii_case("identity") => Ok(false),
        (Some(one), None) if ["gzip", "x-gzip"].iter().any(|known| one.eq_ignore_ascii_case(known)) => {
            Ok(true)
        }
        (Some(one), _) => {
            let message = format!("content-encoding: expected `gzip` or none, found `{one}`");
            Err(Failure::new(Cause::MediaType, message))
        }
    }
}

/// The bytes that gzip has compressed, at most `most`.
fn expanded(bytes: &[u8], most: usize) -> Result<Bytes, Failure> {
    let mut whole = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut whole);
    if whole.len() > most {
        return Err(too_long(most));
    }
    match read {
        Ok(_) => Ok(whole.into()),
        Err(_) => Err(Failure::new(Cause::Syntax, "the body is not gzip, or ends early")),
    }
}

/// Reads a value. An error names the field.
///
/// # Errors
/// A wrong value.
pub(crate) fn named<'de, T: DeserializeOwned>(
    reader: impl serde::Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, Failure> {
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let field = error.path().to_string();
        let text = error.inner().to_string();
        if !error.inner().is_data() {
            return syntax(error.inner());
        }
        let words = plain_json(&text);
        match (missing(&text), field.as_str()) {
            (Some(name), ".") => Failure::invalid(name, format!("`{name}`: is missing")),
            (Some(name), _) => {
                Failure::invalid(&format!("{field}.{name}"), format!("`{field}.{name}`: is missing"))
            }
            (None, ".") => Failure::new(Cause::Invalid, words),
            (None, _) => Failure::invalid(&field, format!("`{field}`: {words}")),
        }
    })
}

/// The name of the field that an error of serde misses.
fn missing(text: &str) -> Option<&str> {
    text.strip_prefix("missing field `")?.split('`').next()
}

fn syntax(error: &serde_json::Error) -> Failure {
    let words = plain_json(&error.to_string());
    Failure::new(Cause::Syntax, format!("the body is not JSON: {words}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = GzEncoder::new(Vec::new(), Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_compressed_body_is_bounded_by_what_it_expands_to() {
        let bomb = gzip(&vec![b' '; 1 << 20]);
        assert!(bomb.len() < 5000);
        assert_eq!(expanded(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(expanded(&bomb, (1 << 20) - 1).unwrap_err().cause, Cause::TooLarge);
        for wrong in [&b"{}"[..], &bomb[..bomb.len() / 2], b""] {
            assert_eq!(expanded(wrong, 1 << 20).unwrap_err().cause, Cause::Syntax);
        }
    }

    #[test]
    fn only_gzip_is_expanded() {
        let is_compressed = |encodings: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for encoding in encodings {
                headers.append(header::CONTENT_ENCODING, encoding.parse().unwrap());
            }
            is_compressed(&headers).map_err(|failure| failure.cause)
        };
        assert_eq!((is_compressed(&[]), is_compressed(&["identity"])), (Ok(false), Ok(false)));
        assert_eq!((is_compressed(&["GZIP"]), is_compressed(&["x-gzip"])), (Ok(true), Ok(true)));
        for wrong in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"]] {
            assert_eq!(is_compressed(wrong), Err(Cause::MediaType));
        }
    }
}
