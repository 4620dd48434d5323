//! Settings of other servers that this one does not have.

use serde_json::{Map, Value, json};

use crate::Failure;

/// Refuses the first of `names` that a request sets to more than nothing.
///
/// # Errors
/// Such a setting.
pub(super) fn refuse(others: &Map<String, Value>, names: &[&str]) -> Result<(), Failure> {
    let found =
        others.iter().find(|(field, value)| names.contains(&field.as_str()) && !is_nothing(field, value));
    found.map_or(Ok(()), |(field, value)| {
        Err(Failure::invalid(field, format!("`{field}`: expected none, found {value}")))
    })
}

/// Whether a value of a setting asks for nothing.
fn is_nothing(field: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        // `"logprobs": 0` asks for the log-probability of each token.
        Value::Number(_) if field == "logprobs" => false,
        Value::Number(number) => {
            let nothing = if matches!(field, "best_of" | "length_penalty") { 1.0 } else { 0.0 };
            number.as_f64() == Some(nothing)
        }
        Value::String(text) => {
            text.is_empty()
                || (matches!(field, "tool_choice" | "function_call")
                    && matches!(text.as_str(), "none" | "auto"))
        }
        Value::Array(items) => items.is_empty() || (field == "modalities" && *items == [json!("text")]),
        Value::Object(fields) => {
            fields.is_empty() || (field == "response_format" && *value == json!({ "type": "text" }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_asks_for_something_is_named() {
        let refused = |value: Value| {
            let fields = value.as_object().unwrap().clone();
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            refuse(&fields, &names).map_err(|failure| failure.field.unwrap())
        };
        for nothing in [
            json!({ "tools": [] }),
            json!({ "tool_choice": "auto" }),
            json!({ "best_of": 1 }),
            json!({ "presence_penalty": 0.0 }),
            json!({ "modalities": ["text"] }),
            json!({ "response_format": { "type": "text" } }),
            json!({ "logprobs": null }),
            json!({ "logprobs": false }),
            json!({ "length_penalty": 1.0 }),
        ] {
            assert_eq!(refused(nothing.clone()), Ok(()), "{nothing}");
        }
        for something in [
            json!({ "tools": [{ "type": "function" }] }),
            json!({ "tool_choice": "required" }),
            json!({ "logprobs": 0 }),
            json!({ "modalities": ["audio"] }),
            json!({ "response_format": { "type": "json_object" } }),
            json!({ "length_penalty": 1.1 }),
            json!({ "suffix": "end" }),
        ] {
            let field = something.as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!(refused(something), Err(field));
        }
        let others = json!({ "user": "me" });
        assert_eq!(refuse(others.as_object().unwrap(), &["tools"]), Ok(()));
    }
}
