//! Texts with fields to fill in.

use crate::{Error, Result};

/// A text in which `{name}` stands for a field, `{{` and `}}` for braces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// A field's place in the list of names.
    Field(usize),
}

impl Template {
    /// Reads the value of an option. At least one of the fields `names` must be in it, and no other.
    ///
    /// # Errors
    /// [`Error::Option`], with `expected` for what was expected.
    pub(crate) fn parse(
        option: &'static str,
        expected: &'static str,
        template: &str,
        names: &[&str],
    ) -> Result<Self> {
        let wrong = || Error::Option { option, expected, found: format!("`{template}`") };
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                text.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = rest.split_once('}').filter(|_| brace == "{").ok_or_else(wrong)?;
            let field = names.iter().position(|known| *known == name).ok_or_else(wrong)?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Field(field));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if pieces.iter().any(|piece| matches!(piece, Piece::Field(_))) {
            Ok(Self { pieces })
        } else {
            Err(wrong())
        }
    }

    /// The text with its fields, given in the order of their names.
    pub(crate) fn fill(&self, fields: &[&str]) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Field(field) => fields[*field],
        });
        pieces.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(template: &str) -> Result<Template> {
        Template::parse("passage-template", "a template", template, &["title", "text"])
    }

    #[test]
    fn fields_and_braces_are_filled_in() {
        let fill = |template: &str| parse(template).unwrap().fill(&["A {b}", "c d"]);
        assert_eq!(fill("passage: {title} / {text}"), "passage: A {b} / c d");
        assert_eq!(fill("{text}{text}"), "c dc d");
        assert_eq!(fill("{{{text}}} é"), "{c d} é");
    }

    #[test]
    fn a_template_without_its_field_or_with_another_is_an_error() {
        for template in ["", "passage", "{{text}}", "{query}", "{text", "text}", "{ text }", "{text} }"] {
            assert!(
                matches!(parse(template), Err(Error::Option { option: "passage-template", .. })),
                "{template}"
            );
        }
    }
}
