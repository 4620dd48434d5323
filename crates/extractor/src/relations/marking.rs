//! A sentence with marked mentions as input of an encoder.

use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_transformers::EncoderRow;

use crate::{
    Document, EntityType, Mention, MentionForm, Span,
    error::{Error, Result},
};

/// The number of types times the number of forms.
pub(super) const CLASSES: usize = 15;

/// The marker tokens. The one before a mention encodes its type and form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Marking {
    tokens: Vec<String>,
}

impl Default for Marking {
    /// Unused tokens of BERT's vocabulary.
    fn default() -> Self {
        Self { tokens: (1..=CLASSES + 1).map(|at| format!("[unused{at}]")).collect() }
    }
}

impl TryFrom<Vec<String>> for Marking {
    type Error = String;
    fn try_from(tokens: Vec<String>) -> Result<Self, String> {
        if tokens.len() != CLASSES + 1 {
            return Err(format!("expected {} tokens, found {}", CLASSES + 1, tokens.len()));
        }
        Ok(Self { tokens })
    }
}

impl From<Marking> for Vec<String> {
    fn from(marking: Marking) -> Self {
        marking.tokens
    }
}

/// The ids of the marker tokens in a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Markers {
    open: Vec<u32>,
    close: u32,
}

/// A marked sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its tokens.
    pub row: EncoderRow,
    /// For each mention the position of the marker before it. Truncated mentions are missing at the end.
    pub marks: Vec<usize>,
}

impl Marking {
    /// The tokens.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Looks up the token ids.
    ///
    /// # Errors
    /// [`Error::Model`] if the tokenizer lacks a token.
    pub(super) fn markers(&self, tokenizer: &Tokenizer) -> Result<Markers> {
        let id = |token: &String| {
            tokenizer.token_id(token).ok_or_else(|| Error::Model {
                what: "the tokenizer".into(),
                expected: format!("a token `{token}` to mark mentions"),
                found: "none".into(),
            })
        };
        let mut open: Vec<u32> = self.tokens.iter().map(id).collect::<Result<_>>()?;
        let close = open.pop().unwrap_or_default();
        Ok(Markers { open, close })
    }
}

/// The index of a type and a form, below [`CLASSES`].
pub(super) fn class(kind: EntityType, form: MentionForm) -> usize {
    let kind = match kind {
        EntityType::Person => 0,
        EntityType::Organisation => 1,
        EntityType::Location => 2,
        EntityType::Date => 3,
        EntityType::Other => 4,
    };
    let form = match form {
        MentionForm::Name => 0,
        MentionForm::Pronoun => 1,
        MentionForm::Nominal => 2,
    };
    kind * 3 + form
}

impl Markers {
    /// The text of `span` with markers around `mentions`, which are ordered by their starts and are inside it; at most
    /// `max_tokens` tokens.
    pub(super) fn mark(
        &self,
        tokenizer: &Tokenizer,
        document: &Document,
        span: Span,
        mentions: &[&Mention],
        max_tokens: usize,
    ) -> Result<Marked> {
        let text = document.slice(span).unwrap_or_default();
        let tokens = tokenizer.encode_places(text)?;
        let (mut ids, mut marks) = (Vec::with_capacity(tokens.len() + 2 * mentions.len()), Vec::new());
        let mut open: Vec<usize> = Vec::new();
        for token in &tokens {
            // A token after the text closes all open mentions.
            let starts = token.place.as_ref().map_or(usize::MAX, |place| span.start + place.start);
            let ends = token.place.as_ref().map_or(usize::MAX, |place| span.start + place.end);
            if token.place.is_some() || !ids.is_empty() {
                while open.last().is_some_and(|&end| end <= starts) {
                    ids.push(self.close);
                    open.pop();
                }
                while let Some(mention) =
                    mentions.get(marks.len()).filter(|mention| mention.span.start < ends)
                {
                    marks.push(ids.len());
                    ids.push(self.open[class(mention.kind, mention.form)]);
                    open.push(mention.span.end);
                }
            }
            ids.push(token.id);
        }
        if ids.len() > max_tokens {
            let last = ids[ids.len() - 1];
            ids.truncate(max_tokens);
            ids[max_tokens - 1] = last;
            marks.retain(|&mark| mark + 1 < max_tokens);
        }
        let types = vec![0; ids.len()];
        Ok(Marked { row: EncoderRow { ids, types }, marks })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::proposals;

    /// Words of a sentence, and the markers; `[` and `]` enclose a text.
    pub(in crate::relations) fn tokenizer() -> Tokenizer {
        let mut vocabulary = serde_json::Map::new();
        let words = ["?", "<", ">", "ann", "met", "bob", "in", "1999", "he", "left", "."];
        let markers = Marking::default();
        for (id, token) in words.into_iter().chain(markers.tokens().iter().map(String::as_str)).enumerate() {
            vocabulary.insert(token.into(), id.into());
        }
        let special =
            |token: &str, id: usize| serde_json::json!({"id": token, "ids": [id], "tokens": [token]});
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "decoder": null, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": ">", "type_id": 0}}],
                "pair": [], "special_tokens": {"<": special("<", 1), ">": special(">", 2)}},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}});
        Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string()).unwrap()
    }

    fn marked(text: &str, max_tokens: usize) -> (Vec<u32>, Vec<usize>) {
        let document = Document::new("d", text);
        let mentions = proposals(&document);
        let markers = Marking::default().markers(&tokenizer()).unwrap();
        let span = document.sentences[0].span;
        let own: Vec<&Mention> = mentions.iter().filter(|mention| mention.sentence == 0).collect();
        let marked = markers.mark(&tokenizer(), &document, span, &own, max_tokens).unwrap();
        (marked.row.ids, marked.marks)
    }

    #[test]
    fn mentions_are_marked_by_their_kinds() {
        // Markers are 11 and on: another name 11 + 12, a person's pronoun 11 + 1, a date 11 + 9, the end 26.
        assert_eq!(marked("Ann met Bob", 99), (vec![1, 23, 3, 26, 4, 23, 5, 26, 2], vec![1, 5]));
        assert_eq!(marked("  He left in 1999.", 99).0, [1, 12, 8, 26, 9, 6, 20, 7, 26, 10, 2]);
    }

    #[test]
    fn what_is_too_long_loses_its_last_mentions_and_keeps_its_end() {
        assert_eq!(marked("Ann met Bob", 7), (vec![1, 23, 3, 26, 4, 23, 2], vec![1, 5]));
        assert_eq!(marked("Ann met Bob", 6), (vec![1, 23, 3, 26, 4, 2], vec![1]));
    }

    #[test]
    fn a_tokenizer_without_the_markers_is_refused() {
        let marking = Marking::try_from((0..16).map(|at| format!("m{at}")).collect::<Vec<_>>()).unwrap();
        assert!(marking.markers(&tokenizer()).unwrap_err().to_string().contains("`m0`"));
        assert!(Marking::try_from(vec!["a".to_owned()]).unwrap_err().contains("expected 16 tokens"));
    }
}
