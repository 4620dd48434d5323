//! Documents with annotated mentions, for the training and evaluation of taggers.

use std::{collections::BTreeMap, ops::Range};

use sporran_kilt::{docred, knowledgenet};

use crate::{Document, EntityType, Span, pronouns::is_pronoun};

/// A document with annotated mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotated {
    /// The document.
    pub document: Document,
    /// Names and dates in order, as token ranges without overlaps.
    pub mentions: Vec<(Range<usize>, EntityType)>,
    /// Whether all mentions are annotated. If not, unmarked tokens are unknown.
    pub complete: bool,
}

impl Annotated {
    /// Reconstructs the text of a DocRED document from its tokens, with natural spacing. Numbers (`NUM`) are
    /// no mentions here.
    #[must_use]
    pub fn from_docred(record: &docred::Document) -> Self {
        let mut text = String::new();
        let mut characters = 0;
        let mut places: Vec<Vec<Span>> = Vec::with_capacity(record.sentences.len());
        for sentence in &record.sentences {
            let mut spans = Vec::with_capacity(sentence.len());
            let mut quoted = false;
            for (at, token) in sentence.iter().enumerate() {
                let token = token.trim();
                let before = at.checked_sub(1).map(|at| sentence[at].trim());
                if !text.is_empty() && is_apart(before, token, quoted) {
                    text.push(' ');
                    characters += 1;
                }
                if token == "\"" {
                    quoted = !quoted;
                }
                let start = characters;
                text.push_str(token);
                characters += token.chars().count();
                spans.push(Span { start, end: characters });
            }
            places.push(spans);
        }
        let document = Document::new(record.title.clone(), text);
        let mentions = record.entities.iter().flatten().filter_map(|mention| {
            let kind = kind_of(&mention.kind)?;
            let spans = &places[mention.sentence][mention.tokens.0..mention.tokens.1];
            let span = Span { start: spans.first()?.start, end: spans.last()?.end };
            Some((span, kind))
        });
        let mentions = in_order(&document, mentions);
        Self { document, mentions, complete: true }
    }

    /// The names and dates of a KnowledgeNet document's facts, with the types that the property requires.
    /// Pronouns are no mentions here. Tokens outside of facts are unknown.
    #[must_use]
    pub fn from_knowledgenet(record: &knowledgenet::Document) -> Self {
        let document = Document::new(record.id.to_string(), record.text.clone());
        let mentions = record.passages.iter().flat_map(|passage| &passage.facts).flat_map(|fact| {
            let (subject, object) = kinds_of(&fact.property.to_string());
            [
                (Span { start: fact.subject_start, end: fact.subject_end }, subject),
                (Span { start: fact.object_start, end: fact.object_end }, object),
            ]
        });
        let mentions = mentions.filter_map(|(span, kind)| Some((span, kind?)));
        let mentions =
            mentions.filter(|(span, _)| document.slice(*span).is_some_and(|text| !is_pronoun(text)));
        let mentions = in_order(&document, mentions);
        Self { document, mentions, complete: false }
    }
}

/// Whether a blank precedes a token.
fn is_apart(before: Option<&str>, token: &str, quoted: bool) -> bool {
    // The first token of a sentence.
    let Some(before) = before else { return true };
    let digits = |word: &str, last: bool| {
        let of = if last { word.chars().next_back() } else { word.chars().next() };
        of.is_some_and(|character| character.is_ascii_digit())
    };
    match token {
        "," | "." | ":" | ";" | "!" | "?" | ")" | "]" | "}" | "%" | "'s" | "’s" | "n't" | "'re" | "'ve"
        | "'ll" | "'d" | "'m" | "-" | "/" | "”" | "'" | "’" | "..." => return false,
        "\"" if quoted => return false,
        "–" | "—" if digits(before, true) => return false,
        _ => {}
    }
    match before {
        "(" | "[" | "{" | "-" | "/" | "“" | "$" | "£" | "€" | "#" => false,
        // `quoted` is the state before this token: whether a quotation is open.
        "\"" if quoted => false,
        "–" | "—" if digits(token, false) => false,
        _ => true,
    }
}

/// Returns the non-empty token ranges of spans in order; of two that overlap the longer.
fn in_order(
    document: &Document,
    spans: impl Iterator<Item = (Span, EntityType)>,
) -> Vec<(Range<usize>, EntityType)> {
    let mut found: BTreeMap<(usize, usize), EntityType> = BTreeMap::new();
    for (span, kind) in spans {
        let tokens = document.tokens_of(span);
        // A span over a sentence boundary is an error of the annotation or of the sentence splitter.
        let whole =
            !tokens.is_empty() && document.sentence_of(tokens.start) == document.sentence_of(tokens.end - 1);
        if whole {
            found.insert((tokens.start, tokens.end), kind);
        }
    }
    let mut mentions: Vec<(Range<usize>, EntityType)> = Vec::new();
    for ((start, end), kind) in found {
        match mentions.last_mut().filter(|(last, _)| last.end > start) {
            Some(last) if end - start > last.0.len() => *last = (start..end, kind),
            Some(_) => {}
            None => mentions.push((start..end, kind)),
        }
    }
    mentions
}

fn kind_of(name: &str) -> Option<EntityType> {
    Some(match name {
        "PER" => EntityType::Person,
        "ORG" => EntityType::Organisation,
        "LOC" => EntityType::Location,
        "TIME" => EntityType::Date,
        "MISC" => EntityType::Other,
        _ => return None,
    })
}

/// The entity types of a KnowledgeNet property's subject and object; none if ambiguous.
pub(crate) fn kinds_of(property: &str) -> (Option<EntityType>, Option<EntityType>) {
    use EntityType::{Date, Location, Organisation, Person};
    let (subject, object) = match property {
        // SUBSIDIARY_OF
        "1" => (Organisation, Organisation),
        // FOUNDED_BY: a person or an organisation
        "2" => return (Some(Organisation), None),
        // EMPLOYEE_OR_MEMBER_OF, EDUCATED_AT, POLITICAL_AFFILIATION
        "3" | "9" | "45" => (Person, Organisation),
        // CEO
        "4" => (Organisation, Person),
        // DATE_FOUNDED
        "5" => (Organisation, Date),
        // HEADQUARTERS
        "6" => (Organisation, Location),
        // NATIONALITY, PLACE_OF_RESIDENCE, PLACE_OF_BIRTH
        "10" | "11" | "12" => (Person, Location),
        // DATE_OF_DEATH, DATE_OF_BIRTH
        "14" | "15" => (Person, Date),
        // SPOUSE, CHILD_OF
        "25" | "34" => (Person, Person),
        _ => return (None, None),
    };
    (Some(subject), Some(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_document_of_docred_reads_as_people_write() {
        let words = "Ann \" Bee \" Lee ( born 3 May 1900 – 1950 ) left London - based Acme 's $ 5 .";
        let name = |start: usize, end: usize, kind: &str| docred::Mention {
            name: String::new(),
            tokens: (start, end),
            sentence: 0,
            kind: kind.into(),
        };
        let sentence: Vec<String> = words.split(' ').map(Into::into).collect();
        let at = |word: &str| sentence.iter().position(|other| other == word).unwrap();
        let record = docred::Document {
            title: "t".into(),
            entities: vec![
                vec![name(0, 5, "PER")],
                vec![name(at("London"), at("London") + 1, "LOC")],
                vec![name(at("5"), at("5") + 1, "NUM")],
            ],
            sentences: vec![sentence, vec!["Then".into()]],
            relations: vec![],
        };
        let made = Annotated::from_docred(&record);
        assert_eq!(
            made.document.text,
            "Ann \"Bee\" Lee (born 3 May 1900–1950) left London-based Acme's $5. Then"
        );
        let of = |at: usize| made.document.slice(made.document.span(made.mentions[at].0.clone())).unwrap();
        assert_eq!((of(0), of(1), made.mentions.len()), ("Ann \"Bee\" Lee", "London", 2));
        assert!(made.complete && made.mentions[1].1 == EntityType::Location);
    }

    #[test]
    fn the_facts_of_a_knowledgenet_document_give_names_and_dates() {
        let line = r#"{"fold":1,"documentId":"1","documentText":"Ann Lee met Bob. She was born in 1950.","passages":[
            {"passageId":"1:0:16","passageStart":0,"passageEnd":16,"passageText":"Ann Lee met Bob.",
             "exhaustivelyAnnotatedProperties":[],"facts":[
             {"propertyId":"25","subjectStart":0,"subjectEnd":7,"objectStart":12,"objectEnd":15},
             {"propertyId":"15","subjectStart":17,"subjectEnd":20,"objectStart":33,"objectEnd":37}]}]}"#;
        let made = Annotated::from_knowledgenet(&serde_json::from_str(line).unwrap());
        let found: Vec<(&str, EntityType)> = made
            .mentions
            .iter()
            .map(|(tokens, kind)| (made.document.slice(made.document.span(tokens.clone())).unwrap(), *kind))
            .collect();
        assert_eq!(
            found,
            [("Ann Lee", EntityType::Person), ("Bob", EntityType::Person), ("1950", EntityType::Date)]
        );
        assert!(!made.complete);
    }
}
