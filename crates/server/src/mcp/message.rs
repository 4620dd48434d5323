//! What is wrong with a message before it is a request of the protocol.

use rmcp::{
    ErrorData,
    model::{JsonRpcError, RequestId},
};
use serde_json::{Map, Value};
use sporran_kilt::jsonl::plain_json;

/// Checks that a text is one message of JSON-RPC 2.0.
///
/// # Errors
/// The answer to a text that is not: a parse error, or an invalid request, with the message's id if it has one.
pub(super) fn checked(text: &[u8]) -> Result<(), Box<JsonRpcError>> {
    let value: Value = serde_json::from_slice(text).map_err(|error| {
        let words = plain_json(&error.to_string());
        refused(None, ErrorData::parse_error(format!("the message is not JSON: {words}"), None))
    })?;
    let Value::Object(message) = value else { return Err(invalid(None, "expected one JSON object")) };
    let id = id(&message);
    match wrong(&message) {
        Some(expected) => Err(invalid(id, expected)),
        None => Ok(()),
    }
}

/// The answer to a message that is no request.
pub(super) fn invalid(id: Option<RequestId>, expected: &str) -> Box<JsonRpcError> {
    refused(id, ErrorData::invalid_request(expected.to_owned(), None))
}

fn refused(id: Option<RequestId>, error: ErrorData) -> Box<JsonRpcError> {
    Box::new(JsonRpcError::new(id, error))
}

fn id(message: &Map<String, Value>) -> Option<RequestId> {
    message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok())
}

/// What a message should be that it is not.
fn wrong(message: &Map<String, Value>) -> Option<&'static str> {
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Some("`jsonrpc`: expected `2.0`");
    }
    if message.contains_key("id") && id(message).is_none() {
        return Some("`id`: expected a text or a whole number");
    }
    match message.get("method") {
        Some(Value::String(_)) => {}
        Some(_) => return Some("`method`: expected a text"),
        // The answer of a client.
        None if message.contains_key("id")
            && (message.contains_key("result") || message.contains_key("error")) =>
        {
            return None;
        }
        None => return Some("`method`: is missing"),
    }
    match message.get("params") {
        None | Some(Value::Object(_)) => None,
        Some(_) => Some("`params`: expected an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_answered_with_the_code_of_json_rpc() {
        let code =
            |text: &str| checked(text.as_bytes()).map_err(|error| (error.error.code.0, error.id.is_some()));
        for whole in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
        ] {
            assert_eq!(code(whole), Ok(()), "{whole}");
        }
        for text in ["{", "hello", "", "\u{feff}x", r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#] {
            assert_eq!(code(text), Err((-32700, false)), "{text}");
        }
        for (text, has_id) in [
            ("[]", false),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, false),
            ("3", false),
            ("{}", false),
            (r#"{"id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":3}"#, true),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, false),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, false),
        ] {
            assert_eq!(code(text), Err((-32600, has_id)), "{text}");
        }
        assert_eq!(code(&"[".repeat(10_000)), Err((-32700, false)));
    }
}
