//! The subset of N-Triples (W3C, 2014) that knowledge bases need.
//!
//! IRIs and blank nodes become names. Entities and direct properties of Wikidata are named by the last part
//! of the IRI (`Q42`, `P31`), as in every Wikidata data set. Literals are not entities. `rdfs:label`,
//! `skos:prefLabel` and `schema:name` give labels, `skos:altLabel` gives aliases, if they are English or
//! without a language. Triples with other literals are left out, and their number is a warning.

use std::{borrow::Cow, path::Path};

use super::{KnowledgeBase, Part, Triple};
use crate::{Error, Result, counted, jsonl};

const LABELS: [&str; 3] = [
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
];
const ALIASES: &str = "http://www.w3.org/2004/02/skos/core#altLabel";
const WIKIDATA: [&str; 2] = ["http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"];

/// A term of a triple.
#[derive(Debug, PartialEq)]
enum Term<'t> {
    Iri(Cow<'t, str>),
    Blank(&'t str),
    Literal { text: Cow<'t, str>, language: Option<&'t str> },
}

impl Term<'_> {
    /// Its name in a knowledge base; literals have none.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Iri(iri) => Some(WIKIDATA.iter().find_map(|start| iri.strip_prefix(start)).unwrap_or(iri)),
            Self::Blank(label) => Some(label),
            Self::Literal { .. } => None,
        }
    }
}

impl KnowledgeBase {
    pub(super) fn load_ntriples(&mut self, path: &Path, part: Part) -> Result<()> {
        let mut reader = jsonl::open(path)?;
        // Labels may come before the triples of their entities.
        let mut called = Vec::new();
        let mut left_out = 0u64;
        while let Some((line, bytes)) = reader.next_line()? {
            let text = jsonl::utf8(path, line, bytes)?;
            let fail = |(field, message): (&str, String)| Error::record(path, line, field, message);
            let Some([subject, relation, object]) = statement(text).map_err(fail)? else { continue };
            let (Some(subject), Term::Iri(iri)) = (subject.name(), &relation) else { continue };
            let (Some(name), Some(object_name)) = (relation.name(), object.name()) else {
                if let Term::Literal { text, language } = object {
                    let is_label = LABELS.contains(&iri.as_ref());
                    let ours = language.is_none_or(|tag| tag.eq_ignore_ascii_case("en"));
                    let is_name = is_label || *iri == ALIASES;
                    if ours && is_name {
                        called.push((subject.to_owned(), text.into_owned(), is_label));
                    }
                    left_out += u64::from(!is_name);
                }
                continue;
            };
            let triple = Triple {
                subject: self.add_entity(subject)?,
                relation: self.add_relation(name)?,
                object: self.add_entity(object_name)?,
            };
            self.add(part, triple)?;
        }
        if left_out > 0 {
            let file = path.display();
            tracing::warn!(%file, "{} with a literal for an object left out", counted(left_out, "triple"));
        }
        for (name, label, is_label) in called {
            if let Some(id) = self.entity(&name) {
                if is_label { self.set_label(id, &label) } else { self.add_alias(id, &label) }
            }
            if let Some(id) = self.relation(&name) {
                if is_label {
                    self.set_relation_label(id, &label)
                } else {
                    self.add_relation_alias(id, &label)
                }
            }
        }
        Ok(())
    }
}

type Wrong<'f> = (&'f str, String);

/// The three terms of a line; `None` for a comment.
fn statement(line: &str) -> Result<Option<[Term<'_>; 3]>, Wrong<'static>> {
    let mut rest = line.trim();
    if rest.starts_with('#') {
        return Ok(None);
    }
    let mut next = |field: &'static str| {
        let (term, after) = term(rest).map_err(|message| (field, message))?;
        rest = after.trim_start();
        Ok::<_, Wrong<'static>>(term)
    };
    let terms = [next("subject")?, next("relation")?, next("object")?];
    if matches!(terms[0], Term::Literal { .. }) {
        return Err(("subject", "expected an IRI or a blank node, found a literal".into()));
    }
    if !matches!(terms[1], Term::Iri(_)) {
        return Err(("relation", "expected an IRI, found another term".into()));
    }
    match rest.strip_prefix('.').map(str::trim_start) {
        Some(end) if end.is_empty() || end.starts_with('#') => Ok(Some(terms)),
        _ => Err((".", format!("expected `.` after the object, found `{}`", short(rest)))),
    }
}

fn short(text: &str) -> String {
    text.chars().take(20).collect()
}

/// Splits the first term from a text.
fn term(text: &str) -> Result<(Term<'_>, &str), String> {
    if let Some(rest) = text.strip_prefix('<') {
        let end = rest.find('>').ok_or("expected `>` at the end of an IRI, found none")?;
        return Ok((Term::Iri(unescaped(&rest[..end])?), &rest[end + 1..]));
    }
    if text.starts_with("_:") {
        // The label of a blank node may contain dots but does not end with one.
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let label = text[..end].trim_end_matches('.');
        return Ok((Term::Blank(label), &text[label.len()..]));
    }
    let Some(rest) = text.strip_prefix('"') else {
        return Err(format!("expected `<`, `_:` or `\"`, found `{}`", short(text)));
    };
    let mut escaped = false;
    let end = rest
        .bytes()
        .position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })
        .ok_or("expected `\"` at the end of a literal, found none")?;
    let text = unescaped(&rest[..end])?;
    let rest = &rest[end + 1..];
    if let Some(tagged) = rest.strip_prefix('@') {
        let end = tagged.find(char::is_whitespace).unwrap_or(tagged.len());
        return Ok((Term::Literal { text, language: Some(&tagged[..end]) }, &tagged[end..]));
    }
    let rest = match rest.strip_prefix("^^") {
        Some(datatype) => term(datatype)?.1,
        None => rest,
    };
    Ok((Term::Literal { text, language: None }, rest))
}

fn unescaped(text: &str) -> Result<Cow<'_, str>, String> {
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            out.push(next);
            continue;
        }
        let digits = match chars.next() {
            Some('t') => Ok('\t'),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some(kept @ ('"' | '\'' | '\\')) => Ok(kept),
            Some('u') => Err(4),
            Some('U') => Err(8),
            other => return Err(format!("expected an escape, found `\\{}`", other.unwrap_or(' '))),
        };
        out.push(match digits {
            Ok(plain) => plain,
            Err(count) => {
                let code: String = chars.by_ref().take(count).collect();
                let number = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == count);
                number.and_then(char::from_u32).ok_or_else(|| {
                    format!("expected {count} hexadecimal digits of a character, found `{code}`")
                })?
            }
        });
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::{EntityId, RelationId};

    fn load(text: &str) -> Result<KnowledgeBase> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("facts.nt");
        std::fs::write(&path, text).unwrap();
        KnowledgeBase::open(&path)
    }

    #[test]
    fn statements_labels_and_comments_are_distinguished() {
        let kb = load(concat!(
            "# Douglas Adams\n",
            "<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2000/01/rdf-schema#label> \"Douglas \\\"DNA\\\" Adams\"@en .\n",
            "<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2000/01/rdf-schema#label> \"Adams, D.\"@de .\n",
            "<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2004/02/skos/core#altLabel> \"Bop Ad \\u00fc\"@en .\n",
            "<http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P31> <http://www.wikidata.org/entity/Q5> .\n",
            "<http://www.wikidata.org/prop/direct/P31> <http://schema.org/name> \"instance of\" .\n",
            "<http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P569> \"1952-03-11\"^^<http://www.w3.org/2001/XMLSchema#date> . # born\n",
            "_:b1\t<http://example.org/knows> _:b.2.\n",
        ))
        .unwrap();
        assert_eq!(kb.triples(Part::Train), [Triple::new(0, 0, 1), Triple::new(2, 1, 3)]);
        assert_eq!(kb.labels(EntityId(0)), ["Douglas \"DNA\" Adams", "Bop Ad ü"]);
        assert_eq!(kb.relation_label(RelationId(0)), "instance of");
        assert_eq!(kb.entity_name(EntityId(1)), "Q5");
        assert_eq!(kb.relation_name(RelationId(1)), "http://example.org/knows");
        assert_eq!(kb.entity_name(EntityId(3)), "_:b.2");
    }

    #[test]
    fn errors_name_line_and_field() {
        let cases = [
            ("<a> <b> c .\n", "1: field `object`: expected `<`, `_:` or `\"`, found `c .`"),
            ("<a> <b> <c>\n", "1: expected `.` after the object"),
            ("<a> <b> <c .\n", "1: field `object`: expected `>`"),
            ("<a> <b> <c> .\n\"a\" <b> <c> .\n", "2: field `subject`: expected an IRI or a blank node"),
            ("<a> _:b <c> .\n", "1: field `relation`: expected an IRI"),
            ("<a> <b> \"c\\q\" .\n", "1: field `object`: expected an escape, found `\\q`"),
            ("<a> <b> \"\\u12\" .\n", "field `object`: expected 4 hexadecimal digits"),
        ];
        for (text, expected) in cases {
            let message = load(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(load("# nothing\n").unwrap_err().to_string().contains("at least one triple"));
    }
}
