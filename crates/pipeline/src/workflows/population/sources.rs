//! Input documents: plain text, pages and KnowledgeNet's documents, as a stream.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_extractor::{Document, Span};
use sporran_kilt::{
    Id, Page, ParagraphKind, Provenance, jsonl, knowledgenet,
    passage::{ABSTRACT, section_name},
};

use crate::{Result, source::pages::Pages};

/// The format of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InputFormat {
    /// Plain text. Each block between empty lines is a document.
    Text,
    /// KILT's knowledge source: one page in each line.
    Kilt,
    /// KnowledgeNet's documents. The output has them with the extracted facts.
    Knowledgenet,
}

/// An input document and its origin.
pub(super) struct Source {
    pub(super) document: Document,
    /// The page of the document, if the input is pages.
    page: Option<OwnPage>,
    pub(super) annotated: Option<knowledgenet::Document>,
}

/// A page as a document.
struct OwnPage {
    id: Id,
    title: String,
    /// For each paragraph, its first code point in the document, and the header of its section.
    paragraphs: Vec<(usize, String)>,
}

impl Source {
    /// The provenance of a span; `None` if the document has no page. Documents that are pages have exact
    /// offsets. Others have offsets only if the page contains the same words.
    pub(super) fn provenance(&self, span: Span, pages: &Pages) -> Option<Provenance> {
        let Some(page) = &self.page else {
            let page = pages.listed(&self.document.id)?;
            return Some(pages.provenance(&page, self.document.slice(span)));
        };
        let paragraph =
            |at: usize| page.paragraphs.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        let (start, end) = (paragraph(span.start), paragraph(span.end.saturating_sub(1)));
        let place = |at: usize, paragraph: usize| Some(Id::from((at - page.paragraphs[paragraph].0) as i64));
        Some(Provenance {
            wikipedia_id: Some(page.id.clone()),
            title: Some(page.title.clone()),
            section: Some(page.paragraphs[start].1.clone()),
            start_paragraph_id: Some(Id::from(start as i64)),
            start_character: place(span.start, start),
            end_paragraph_id: Some(Id::from(end as i64)),
            end_character: place(span.end, end),
            ..Provenance::default()
        })
    }

    fn of_page(page: Page) -> Self {
        let (mut text, mut paragraphs, mut at) = (String::new(), Vec::new(), 0);
        let mut section = ABSTRACT;
        for paragraph in &page.text {
            if matches!(ParagraphKind::of(paragraph), ParagraphKind::Header | ParagraphKind::Heading) {
                section = section_name(paragraph.trim());
            }
            paragraphs.push((at, section.to_owned()));
            text.push_str(paragraph);
            // An empty line always ends a sentence.
            text.push_str("\n\n");
            at += paragraph.chars().count() + 2;
        }
        if paragraphs.is_empty() {
            paragraphs.push((0, section.to_owned()));
        }
        Self {
            document: Document::new(page.wikipedia_id.to_string(), text),
            page: Some(OwnPage { id: page.wikipedia_id, title: page.wikipedia_title, paragraphs }),
            annotated: None,
        }
    }

    fn of_annotated(source: knowledgenet::Document) -> Self {
        let document = Document::new(source.id.to_string(), source.text.clone());
        Self { document, page: None, annotated: Some(source) }
    }
}

/// The limits of a portion: a number of documents, and a number of characters after which it ends.
const DOCUMENTS: usize = 64;
const CHARACTERS: usize = 1 << 17;

/// Calls `each` with portions of a file's documents. The portions are the same in every run.
///
/// # Errors
/// Errors of reading, with line and field, and those of `each`.
pub(super) fn each_portion(
    path: &Path,
    format: InputFormat,
    folds: &[i64],
    mut each: impl FnMut(Vec<Source>) -> Result<()>,
) -> Result<()> {
    let (mut portion, mut characters) = (Vec::new(), 0);
    let mut take = |source: Source| -> Result<()> {
        characters += source.document.len();
        portion.push(source);
        if portion.len() == DOCUMENTS || characters >= CHARACTERS {
            characters = 0;
            each(std::mem::take(&mut portion))?;
        }
        Ok(())
    };
    match format {
        InputFormat::Kilt => {
            for page in jsonl::open(path)?.records::<Page>() {
                take(Source::of_page(page?))?;
            }
        }
        InputFormat::Knowledgenet => {
            let (mut found, mut taken) = (0, 0);
            for document in knowledgenet::annotated(path)? {
                let document = document?;
                found += 1;
                if folds.is_empty() || folds.contains(&document.fold) {
                    taken += 1;
                    take(Source::of_annotated(document))?;
                }
            }
            if taken == 0 && found > 0 {
                let path = path.display();
                let message =
                    format!("{path}: expected documents of the folds {folds:?}, found {found} of others");
                return Err(sporran_kilt::Error::Argument(message).into());
            }
        }
        InputFormat::Text => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let (mut block, mut number, mut last) = (String::new(), 0, 0);
            let mut close = |block: &mut String| -> Result<()> {
                if !block.trim().is_empty() {
                    let text = std::mem::take(block);
                    let document = Document::new(format!("{stem}:{number}"), text);
                    take(Source { document, page: None, annotated: None })?;
                    number += 1;
                }
                Ok(())
            };
            for line in jsonl::open(path)?.lines() {
                let (line, text) = line?;
                // The reader skips blank lines, but counts them.
                if line > last + 1 {
                    close(&mut block)?;
                }
                last = line;
                if !block.is_empty() {
                    block.push('\n');
                }
                block.push_str(&text);
            }
            close(&mut block)?;
        }
    }
    if !portion.is_empty() {
        each(portion)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str, format: InputFormat) -> Result<Vec<Source>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mut all = Vec::new();
        each_portion(&path, format, &[4], |portion| {
            all.extend(portion);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn blocks_of_a_text_are_documents_that_the_table_may_know() {
        let all = read("a.txt", "Ann met\nBob.\n\n\nZoë left.\n", InputFormat::Text).unwrap();
        let texts: Vec<&str> = all.iter().map(|source| source.document.text.as_str()).collect();
        assert_eq!(texts, ["Ann met\nBob.", "Zoë left."]);
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("pages.tsv");
        std::fs::write(&table, "a:1\t77\n").unwrap();
        let pages = Pages::open(None, Some(&table), &mut |_| {}).unwrap();
        let whole = Span { start: 0, end: 3 };
        assert_eq!(all[0].provenance(whole, &pages), None);
        let known = all[1].provenance(whole, &pages).unwrap();
        assert_eq!((known.wikipedia_id, known.start_paragraph_id), (Some("77".into()), None));
    }

    #[test]
    fn places_on_a_page_count_from_their_paragraph() {
        let page = r#"{"wikipedia_id":"7","wikipedia_title":"Zoë","text":["Zoë\n","Section::::Life.\n","Ann met 😀 Bob.\n"]}"#;
        let all = read("p.jsonl", page, InputFormat::Kilt).unwrap();
        let source = &all[0];
        let place = |start: usize, end: usize| {
            let found = source.provenance(Span { start, end }, &Pages::default()).unwrap();
            let number = |id: &Option<Id>| id.as_ref().unwrap().number().unwrap();
            assert_eq!(number(&found.start_paragraph_id), number(&found.end_paragraph_id));
            assert_eq!(found.title.as_deref(), Some("Zoë"));
            let numbers =
                [&found.start_paragraph_id, &found.start_character, &found.end_character].map(number);
            (numbers, found.section.unwrap())
        };
        // "Zoë" takes six characters with its line end and the empty line, the header nineteen.
        assert_eq!(source.document.slice(Span { start: 25, end: 28 }), Some("Ann"));
        assert_eq!(place(25, 28), ([2, 0, 3], "Section::::Life.".to_owned()));
        assert_eq!(place(35, 38).0, [2, 10, 13]);
        assert_eq!(place(0, 3), ([0, 0, 3], ABSTRACT.to_owned()));
    }

    #[test]
    fn only_the_given_folds_are_read_and_wrong_places_are_reported() {
        let document = |fold: i64, end: usize| {
            format!(
                r#"{{"fold":{fold},"documentId":"d{fold}","documentText":"Ann.","passages":[{{"passageId":"p","passageStart":0,"passageEnd":{end},"passageText":"Ann.","exhaustivelyAnnotatedProperties":[],"facts":[]}}]}}"#
            )
        };
        let text = format!("{}\n{}\n", document(1, 4), document(4, 4));
        assert_eq!(read("k.json", &text, InputFormat::Knowledgenet).unwrap().len(), 1);
        let error = read("k.json", &document(4, 5), InputFormat::Knowledgenet).err().unwrap().to_string();
        assert!(error.contains(":1") && error.contains("passages[0]") && error.contains("0 to 5"), "{error}");
        assert!(read("k.json", "{\"fold\":4}\n", InputFormat::Knowledgenet).is_err());
        assert_eq!(read("t.txt", "", InputFormat::Text).unwrap().len(), 0);
    }
}
