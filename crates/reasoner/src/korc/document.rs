//! Documents with linked mentions: pages of a knowledge source, and DocRED's documents.

use std::path::Path;

use rustc_hash::FxHashSet;
use sporran_kilt::{
    Id, Page, ParagraphKind, Provenance, docred as layout, jsonl,
    kb::{EntityId, KnowledgeBase, Part, Triple},
};

use super::{
    anonymise::places,
    links::{Links, Vertex, only},
    names::Entities,
};
use crate::Result;

/// The mention of an entity in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The entity.
    pub entity: EntityId,
}

/// A text with its mentions and the triples between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Unique among the documents.
    pub id: String,
    /// The title.
    pub title: String,
    /// The text.
    pub text: String,
    /// Mentions in order of position, without overlaps.
    pub mentions: Vec<Mention>,
    /// The triples that the text expresses between mentioned entities; sorted.
    pub relations: Vec<Triple>,
    /// The provenance in the knowledge source, if the text is from a page. It has no title, because that may
    /// reveal a hidden entity.
    pub place: Option<Provenance>,
}

impl Document {
    /// The mentioned entities, each once, in ascending order.
    pub fn entities(&self) -> Vec<EntityId> {
        let mut entities: Vec<EntityId> = self.mentions.iter().map(|mention| mention.entity).collect();
        entities.sort_unstable();
        entities.dedup();
        entities
    }
}

/// Reads a knowledge source as documents of at most `sentences` sentences of running text; 0 keeps a page
/// whole.
///
/// Mentions are the anchors, and the names of the page's entity. The triples are those of the knowledge base
/// between two mentions, one of which is the page's entity. If it is `implied`, the text need not name it.
///
/// # Errors
/// Read errors, with line and field.
pub fn pages(
    path: &Path,
    sentences: usize,
    implied: bool,
    kb: &KnowledgeBase,
    entities: &Entities,
) -> Result<Vec<Document>> {
    let known = kb.index(&[Part::Train]);
    let mut documents = Vec::new();
    for page in jsonl::open(path)?.records::<Page>() {
        let page = page?;
        let Some(own) = entities.by_title(&page.wikipedia_title) else { continue };
        for (number, piece) in pieces(&page, sentences, entities).into_iter().enumerate() {
            let Piece { text, mut mentions, start, end } = piece;
            name_mentions(&text, own, entities.names(own), &mut mentions);
            mentions.sort_unstable();
            let is_there = implied || mentions.iter().any(|mention| mention.entity == own);
            let others: FxHashSet<EntityId> =
                mentions.iter().map(|mention| mention.entity).filter(|&entity| entity != own).collect();
            let objects = known.relations_of(own).flat_map(|(relation, objects)| {
                objects.iter().map(move |&object| Triple { subject: own, relation, object })
            });
            let subjects = known.relations_to(own).flat_map(|(relation, subjects)| {
                subjects.iter().map(move |&subject| Triple { subject, relation, object: own })
            });
            let mut relations: Vec<Triple> = objects
                .chain(subjects)
                .filter(|triple| {
                    is_there && (others.contains(&triple.subject) || others.contains(&triple.object))
                })
                .collect();
            relations.sort_unstable();
            relations.dedup();
            documents.push(Document {
                id: format!("{}-{number}", page.wikipedia_id.text()),
                title: page.wikipedia_title.clone(),
                text,
                mentions,
                relations,
                place: Some(Provenance {
                    wikipedia_id: Some(page.wikipedia_id.clone()),
                    start_paragraph_id: Some(Id::from(start.0 as i64)),
                    start_character: Some(Id::from(start.1 as i64)),
                    end_paragraph_id: Some(Id::from(end.0 as i64)),
                    end_character: Some(Id::from(end.1 as i64)),
                    ..Provenance::default()
                }),
            });
        }
    }
    Ok(documents)
}

/// Consecutive sentences of a page.
#[derive(Default)]
struct Piece {
    text: String,
    /// The anchors in it.
    mentions: Vec<Mention>,
    /// The paragraph and the character where it starts.
    start: (usize, usize),
    /// The paragraph and character where it ends.
    end: (usize, usize),
}

/// Splits the running text of a page into parts of `sentences` sentences.
fn pieces(page: &Page, sentences: usize, entities: &Entities) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut held = 0;
    for (number, paragraph) in page.text.iter().enumerate().skip(1) {
        if ParagraphKind::of(paragraph) != ParagraphKind::Text {
            continue;
        }
        let anchors: Vec<Mention> = page
            .anchors
            .iter()
            .flatten()
            .filter(|anchor| anchor.paragraph_id == Some(number as i64))
            .filter_map(|anchor| {
                let entity = entities.by_title(&decoded(anchor.href.as_deref()?))?;
                let (start, end) = (anchor.start?, anchor.end?);
                let byte = |at: i64| Some(byte_of(paragraph, usize::try_from(at).ok()?));
                Some(Mention { start: byte(start)?, end: byte(end)?, entity })
            })
            .filter(|mention| mention.start < mention.end && mention.end <= paragraph.len())
            .collect();
        let spans: Vec<(usize, usize)> = anchors.iter().map(|mention| (mention.start, mention.end)).collect();
        for (start, end) in sentence_spans(paragraph, &spans) {
            let character = |byte: usize| (number, paragraph[..byte].chars().count());
            if pieces.is_empty() || (sentences > 0 && held == sentences) {
                pieces.push(Piece { start: character(start), ..Piece::default() });
                held = 0;
            }
            let Some(piece) = pieces.last_mut() else { continue };
            piece.end = character(end);
            let Piece { text, mentions, .. } = piece;
            if !text.is_empty() {
                text.push(' ');
            }
            let shift = text.len();
            text.push_str(&paragraph[start..end]);
            let inside = anchors.iter().filter(|mention| start <= mention.start && mention.end <= end);
            mentions.extend(inside.map(|mention| Mention {
                start: mention.start - start + shift,
                end: mention.end - start + shift,
                ..*mention
            }));
            held += 1;
        }
    }
    pieces
}

/// The byte offset of a character; the text's length beyond its end.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

/// The sentences of a paragraph. A sentence ends at a full stop after a word of at least three letters, if a
/// blank and a capital follow, and never inside one of the `names`, such as "Warner Bros. Records".
fn sentence_spans(paragraph: &str, names: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut start = 0;
    for (at, _) in paragraph.match_indices(". ") {
        let word = paragraph[..at].chars().rev().take_while(|c| c.is_alphanumeric()).count();
        let bracket = paragraph[..at].ends_with([')', '"']);
        let capital = paragraph[at + 2..].chars().next().is_some_and(|c| c.is_uppercase() || c == '[');
        let is_inside = names.iter().any(|&(from, to)| from <= at && at + 2 < to);
        if (word >= 3 || bracket) && capital && !is_inside {
            spans.push((start, at + 1));
            start = at + 2;
        }
    }
    let end = paragraph.trim_end().len();
    if start < end {
        spans.push((start, end));
    }
    spans
}

/// Decodes part of a URL to a title.
pub(super) fn decoded(href: &str) -> String {
    let bytes = href.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| href.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(hex.unwrap_or(bytes[at]));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Adds the mentions of an entity by name, longest names first, where no other mention is.
pub(super) fn name_mentions(text: &str, entity: EntityId, names: &[String], mentions: &mut Vec<Mention>) {
    let mut names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| name.chars().count() > 2).collect();
    names.sort_unstable_by_key(|name| (std::cmp::Reverse(name.len()), *name));
    for name in names {
        for (start, end) in places(text, name) {
            let free = mentions.iter().all(|mention| mention.end <= start || end <= mention.start);
            if free {
                mentions.push(Mention { start, end, entity });
            }
        }
    }
}

/// Whether a span consists of whole words.
pub(super) fn is_word(text: &str, start: usize, end: usize) -> bool {
    !text[..start].chars().next_back().is_some_and(char::is_alphanumeric)
        && !text[end..].chars().next().is_some_and(char::is_alphanumeric)
}

/// Reads DocRED's layout. A vertex is linked to the entity that its mentions link to, by the first source of `links`
/// that knows one. Vertices without a link, and relations that the knowledge base lacks, are skipped.
///
/// # Errors
/// Read errors; an index of a sentence, token or vertex that is out of range.
pub fn docred(path: &Path, kb: &KnowledgeBase, links: &Links<'_>) -> Result<Vec<Document>> {
    let records = layout::load(path)?;
    let documents = records.into_iter().enumerate().map(|(number, record)| {
        let (text, tokens) = joined(&record.sentences);
        let place = |mention: &layout::Mention| {
            let (first, end) = mention.tokens;
            let tokens = &tokens[mention.sentence];
            (tokens[first].0, tokens[end - 1].1)
        };
        let vertices: Vec<Vertex> = record
            .entities
            .iter()
            .map(|vertex| Vertex {
                mentions: vertex.iter().map(place).collect(),
                is_value: vertex.iter().all(|mention| matches!(mention.kind.as_str(), "TIME" | "NUM")),
            })
            .collect();
        let by_linker = links.linker.map(|linker| linker.link(&text, &vertices)).unwrap_or_default();
        let linked: Vec<Option<EntityId>> = record
            .entities
            .iter()
            .enumerate()
            .map(|(at, vertex)| {
                let names = || vertex.iter().map(|mention| mention.name.as_str());
                let hyperlink = only(names().filter_map(|name| links.hyperlinks.of(&record.title, name)));
                let by_linker = || kb.entity(by_linker.get(at)?.as_deref()?);
                let by_name = || only(names().filter_map(|name| links.entities.by_name(name)));
                hyperlink.or_else(by_linker).or_else(by_name)
            })
            .collect();
        let mut mentions: Vec<Mention> = linked
            .iter()
            .zip(&vertices)
            .filter_map(|(entity, vertex)| Some(((*entity)?, vertex)))
            .flat_map(|(entity, vertex)| {
                vertex.mentions.iter().map(move |&(start, end)| Mention { start, end, entity })
            })
            .collect();
        mentions
            .sort_unstable_by_key(|mention| (mention.start, std::cmp::Reverse(mention.end), mention.entity));
        let mut free = 0;
        mentions.retain(|mention| {
            let keep = free <= mention.start;
            if keep {
                free = mention.end;
            }
            keep
        });
        let triple = |label: &layout::Relation| {
            let (subject, object) = (linked[label.head]?, linked[label.tail]?);
            Some(Triple { subject, relation: kb.relation(&label.property)?, object })
        };
        let mut relations: Vec<Triple> = record.relations.iter().filter_map(triple).collect();
        relations.sort_unstable();
        relations.dedup();
        Document {
            id: format!("docred-{number}"),
            title: record.title,
            text,
            mentions,
            relations,
            place: None,
        }
    });
    Ok(documents.collect())
}

/// Joins sentences of tokens to running text, with the span of each token.
fn joined(sentences: &[Vec<String>]) -> (String, Vec<Vec<(usize, usize)>>) {
    let mut text = String::new();
    let mut places = Vec::with_capacity(sentences.len());
    for sentence in sentences {
        let mut tokens = Vec::with_capacity(sentence.len());
        for token in sentence {
            let closes =
                matches!(token.as_str(), "." | "," | ";" | ":" | ")" | "]" | "%" | "?" | "!" | "'s" | "n't");
            if !(text.is_empty() || closes || text.ends_with(['(', '['])) {
                text.push(' ');
            }
            let start = text.len();
            text.push_str(token);
            tokens.push((start, text.len()));
        }
        places.push(tokens);
    }
    (text, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_stops_that_are_no_initials() {
        let text = "J. R. Smith lived in Bonn. They sang. Now [x] ended (in 1900). The end.\n";
        let found: Vec<&str> =
            sentence_spans(text, &[]).into_iter().map(|(start, end)| &text[start..end]).collect();
        assert_eq!(
            found,
            ["J. R. Smith lived in Bonn.", "They sang.", "Now [x] ended (in 1900).", "The end."]
        );
        let text = "He left Warner Bros. Records. He sang.";
        assert_eq!(sentence_spans(text, &[(8, 28)]), [(0, 29), (30, 38)]);
    }

    #[test]
    fn a_piece_of_a_page_has_its_position() {
        let page: Page = serde_json::from_str(
            r#"{"wikipedia_id":"7","wikipedia_title":"Zoë","text":["Zoë\n","Zoë 😀 sang. They left. Then Zoë returned.\n",
                "Section::::Life.\n","BULLET::::- item\n","They lived on.\n"]}"#,
        )
        .unwrap();
        let found: Vec<_> = pieces(&page, 2, &Entities::default())
            .into_iter()
            .map(|piece| (piece.text, piece.start, piece.end))
            .collect();
        let expected = [
            ("Zoë 😀 sang. They left.".to_owned(), (1, 0), (1, 22)),
            ("Then Zoë returned. They lived on.".to_owned(), (1, 23), (4, 14)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_says_facts_of_its_pages_entity_if_it_names_it_or_these_are_implied() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut kb = KnowledgeBase::default();
        kb.add_entity("Q0").unwrap();
        kb.add_entity("Q1").unwrap();
        kb.add_relation("P1").unwrap();
        kb.add(Part::Train, Triple::new(0, 0, 1)).unwrap();
        let table = write("e.tsv", "id\tlabel\ttitle\nQ0\tAnna\tAnna\nQ1\tRome\tRome\n");
        let tables = crate::korc::EntityTables { tables: vec![table], ..Default::default() };
        let entities = Entities::load(&tables, &kb).unwrap();
        let page = serde_json::json!({ "wikipedia_id": "1", "wikipedia_title": "Anna",
            "text": ["Anna", "Anna loves Rome. She left Rome."], "anchors": [
            { "text": "Rome", "href": "Rome", "paragraph_id": 1, "start": 11, "end": 15 },
            { "text": "Rome", "href": "Rome", "paragraph_id": 1, "start": 26, "end": 30 }] });
        let source = write("pages.jsonl", &page.to_string());
        let said = |implied: bool| -> Vec<usize> {
            let documents = pages(&source, 1, implied, &kb, &entities).unwrap();
            documents.iter().map(|document| document.relations.len()).collect()
        };
        assert_eq!((said(false), said(true)), (vec![1, 0], vec![1, 1]));
    }

    #[test]
    fn names_are_found_as_whole_words_where_nothing_is_linked() {
        let text = "Ann Lee met Leeds. Lee left.";
        let mut mentions = vec![Mention { start: 12, end: 17, entity: EntityId(9) }];
        name_mentions(text, EntityId(1), &["Lee".into(), "Ann Lee".into()], &mut mentions);
        mentions.sort_unstable();
        let found: Vec<&str> = mentions.iter().map(|mention| &text[mention.start..mention.end]).collect();
        assert_eq!(found, ["Ann Lee", "Leeds", "Lee"]);
    }

    /// Links "She" to Q3, and nothing else.
    struct Linker;

    impl crate::korc::MentionLinker for Linker {
        fn link(&self, text: &str, vertices: &[Vertex]) -> Vec<Option<String>> {
            let has_her =
                |vertex: &Vertex| vertex.mentions.iter().any(|&(start, end)| &text[start..end] == "She");
            vertices.iter().map(|vertex| has_her(vertex).then(|| "Q3".to_owned())).collect()
        }
    }

    #[test]
    fn vertices_are_linked_by_hyperlinks_then_by_the_linker_then_by_unique_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut kb = KnowledgeBase::default();
        for id in ["Q0", "Q1", "Q2", "Q3", "Q4"] {
            kb.add_entity(id).unwrap();
        }
        kb.add_relation("P1").unwrap();
        // Two entities are called Ann, and one Rome.
        let table = "id\tlabel\ttitle\nQ0\tAnn\tAnn (singer)\nQ1\tAnn\tAnn (town)\nQ2\tRome\tRome\nQ3\tBo\tBo\nQ4\tPaul\tPaul\n";
        let tables = crate::korc::EntityTables { tables: vec![write("e.tsv", table)], ..Default::default() };
        let entities = Entities::load(&tables, &kb).unwrap();
        let documents = write(
            "d.json",
            r#"[{"title":"Bo","sents":[["Ann","saw","Rome","."],["She","saw","Paul","and","Nobody","."]],
            "vertexSet":[[{"name":"Ann","pos":[0,1],"sent_id":0,"type":"PER"}],
                [{"name":"Rome","pos":[2,3],"sent_id":0,"type":"LOC"}],
                [{"name":"She","pos":[0,1],"sent_id":1,"type":"PER"}],
                [{"name":"Paul","pos":[2,3],"sent_id":1,"type":"PER"}],
                [{"name":"Nobody","pos":[4,5],"sent_id":1,"type":"PER"}]],
            "labels":[{"h":0,"t":1,"r":"P1"},{"h":2,"t":3,"r":"P1"},{"h":4,"t":3,"r":"P1"},{"h":0,"t":3,"r":"P9"}]}]"#,
        );
        let source = write(
            "pages.jsonl",
            &serde_json::json!({ "wikipedia_id": "1", "wikipedia_title": "Bo", "text": ["Bo"], "anchors": [
                { "text": "Ann", "href": "Ann%20%28town%29" }, { "text": "Paul", "href": "Paul" },
                { "text": "Paul", "href": "Rome" }, { "text": "Nobody", "href": "No%20page" }] })
            .to_string(),
        );
        let titles: FxHashSet<String> = ["Bo".to_owned()].into_iter().collect();
        let hyperlinks = crate::korc::Hyperlinks::read(&source, &titles, &entities).unwrap();
        assert_eq!(
            (hyperlinks.of("Bo", "Ann"), hyperlinks.of("Bo", "Bo")),
            (Some(EntityId(1)), Some(EntityId(3)))
        );
        assert_eq!((hyperlinks.of("Bo", "Paul"), hyperlinks.of("Ann", "Ann")), (None, None));
        let links = Links { entities: &entities, hyperlinks, linker: Some(&Linker) };
        let read = docred(&documents, &kb, &links).unwrap();
        let found: Vec<(&str, u32)> = read[0]
            .mentions
            .iter()
            .map(|mention| (&read[0].text[mention.start..mention.end], mention.entity.0))
            .collect();
        assert_eq!(found, [("Ann", 1), ("Rome", 2), ("She", 3), ("Paul", 4)]);
        assert_eq!(read[0].relations, [Triple::new(1, 0, 2), Triple::new(3, 0, 4)]);
        let read = docred(&documents, &kb, &Links::by_names(&entities)).unwrap();
        let found: Vec<u32> = read[0].mentions.iter().map(|mention| mention.entity.0).collect();
        assert_eq!(found, [2, 4]);
    }

    #[test]
    fn addresses_are_decoded_and_tokens_joined() {
        assert_eq!(decoded("S%C3%A3o%20Tom%C3%A9"), "São Tomé");
        assert_eq!(decoded("100%"), "100%");
        let sentence: Vec<String> = ["He", "(", "Al", ")", "left", "."].map(str::to_owned).to_vec();
        let (text, places) = joined(&[sentence]);
        assert_eq!(text, "He (Al) left.");
        assert_eq!(places[0][2], (4, 6));
    }
}
