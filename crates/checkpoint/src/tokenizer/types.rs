//! Whether a folder's tokenizer gives a model token types.

use std::path::Path;

use serde::Deserialize;

use crate::{
    error::Result,
    json::{self, parse},
};

/// The classes of `transformers` that give none where the folder does not name its inputs, without `Tokenizer` and
/// `Fast`.
const WITHOUT: [&str; 6] = ["DistilBert", "Roberta", "XLMRoberta", "MPNet", "Camembert", "TokenizersBackend"];

/// Whether the model of `folder` gets token types: as the `model_input_names` of its `tokenizer_config.json` say, or else
/// as the class of its tokenizer has it in `transformers`.
///
/// # Errors
/// Those of reading the file.
pub(super) fn are_given(folder: &Path) -> Result<bool> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Fields {
        model_input_names: Option<Vec<String>>,
        tokenizer_class: Option<String>,
    }
    let path = folder.join("tokenizer_config.json");
    let Some(text) = json::text(&path)? else { return Ok(true) };
    let fields: Fields = parse(&path, &text)?;
    Ok(match (fields.model_input_names, fields.tokenizer_class) {
        (Some(names), _) => names.iter().any(|name| name == "token_type_ids"),
        (None, Some(class)) => {
            let class = class.strip_suffix("Fast").unwrap_or(&class);
            !WITHOUT.contains(&class.strip_suffix("Tokenizer").unwrap_or(class))
        }
        (None, None) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::are_given;

    #[test]
    fn names_of_inputs_decide_and_then_the_class() {
        for (text, expected) in [
            (r#"{"model_input_names": ["input_ids", "attention_mask"]}"#, false),
            (r#"{"model_input_names": ["input_ids", "token_type_ids"]}"#, true),
            (r#"{"tokenizer_class": "DistilBertTokenizer", "model_input_names": ["token_type_ids"]}"#, true),
            (r#"{"tokenizer_class": "BertTokenizerFast", "model_input_names": null}"#, true),
            (r#"{"tokenizer_class": "DistilBertTokenizerFast"}"#, false),
            (r#"{"tokenizer_class": "TokenizersBackend"}"#, false),
            // The class of transformers 4, whose files do not name the inputs and which had types.
            (r#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#, true),
            ("{}", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("tokenizer_config.json"), text).unwrap();
            assert_eq!(are_given(folder.path()).unwrap(), expected, "{text}");
        }
        assert!(are_given(tempfile::tempdir().unwrap().path()).unwrap());
    }
}
