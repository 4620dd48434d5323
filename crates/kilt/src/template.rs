//! Text templates.

/// A text with fields `{name}`; `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// A field's index in the list of names.
    Field(usize),
}

impl Template {
    /// Parses a template; none if it has a field that is not in `names`, or no field at all.
    #[must_use]
    pub fn parse(template: &str, names: &[&str]) -> Option<Self> {
        Self::parse_any(template, names)
            .filter(|own| own.pieces.iter().any(|piece| matches!(piece, Piece::Field(_))))
    }

    /// The same for a template that may have no field.
    #[must_use]
    pub fn parse_any(template: &str, names: &[&str]) -> Option<Self> {
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
            let (name, after) = rest.split_once('}').filter(|_| brace == "{")?;
            let field = names.iter().position(|known| *known == name)?;
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
        Some(Self { pieces })
    }

    /// Whether the text has the field at this place of the list of names.
    #[must_use]
    pub fn has(&self, field: usize) -> bool {
        self.pieces.contains(&Piece::Field(field))
    }

    /// The text with its fields, given in the order of their names.
    #[must_use]
    pub fn fill(&self, fields: &[&str]) -> String {
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

    fn parse(template: &str) -> Option<Template> {
        Template::parse(template, &["title", "text"])
    }

    #[test]
    fn fields_and_braces_are_filled_in() {
        let fill = |template: &str| parse(template).unwrap().fill(&["A {b}", "c d"]);
        assert_eq!(fill("passage: {title} / {text}"), "passage: A {b} / c d");
        assert_eq!(fill("{text}{text}"), "c dc d");
        assert_eq!(fill("{{{text}}} é"), "{c d} é");
    }

    #[test]
    fn a_template_without_its_field_or_with_another_is_none() {
        for template in ["", "passage", "{{text}}", "{query}", "{text", "text}", "{ text }", "{text} }"] {
            assert_eq!(parse(template), None, "{template}");
        }
        let any = |template: &str| Template::parse_any(template, &["title", "text"]);
        assert_eq!(any("a{{b}}").unwrap().fill(&[]), "a{b}");
        assert!(any("{query}").is_none());
        let text = any("{text}").unwrap();
        assert!(text.has(1) && !text.has(0));
    }
}
