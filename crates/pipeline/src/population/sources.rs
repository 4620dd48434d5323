//! What populates: plain text, pages, KnowledgeNet's documents, read one after the other.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_extractor::{Document, Span};
use sporran_kilt::{Id, Page, Provenance, jsonl, knowledgenet};

use crate::Result;

/// A layout of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputFormat {
    /// Plain text; blocks between empty lines are read by themselves.
    Text,
    /// KILT's knowledge source: a page a line.
    Kilt,
    /// KnowledgeNet's documents, which are written again with other facts.
    Knowledgenet,
}

/// A document to read facts from, and where it comes from.
pub(super) struct Source {
    pub(super) document: Document,
    page: Id,
    title: Option<String>,
    /// The first code point of each paragraph in the document.
    paragraphs: Vec<usize>,
    /// The number of the first of them on its page.
    first: usize,
    pub(super) annotated: Option<knowledgenet::Document>,
}

impl Source {
    /// Where a span stands on its page: in paragraphs, counted as its source counts them.
    pub(super) fn provenance(&self, span: Span) -> Provenance {
        let paragraph = |at: usize| self.paragraphs.partition_point(|start| *start <= at).saturating_sub(1);
        let (start, end) = (paragraph(span.start), paragraph(span.end.saturating_sub(1)));
        let number = |at: usize| Some(Id::from((self.first + at) as i64));
        let place = |at: usize, paragraph: usize| Some(Id::from((at - self.paragraphs[paragraph]) as i64));
        Provenance {
            wikipedia_id: Some(self.page.clone()),
            title: self.title.clone(),
            start_paragraph_id: number(start),
            start_character: place(span.start, start),
            end_paragraph_id: number(end),
            end_character: place(span.end, end),
            ..Provenance::default()
        }
    }

    fn of_page(page: Page) -> Self {
        let (mut text, mut paragraphs, mut at) = (String::new(), Vec::new(), 0);
        for paragraph in &page.text {
            paragraphs.push(at);
            text.push_str(paragraph);
            // An empty line ends a sentence, whatever the paragraph ends with.
            text.push_str("\n\n");
            at += paragraph.chars().count() + 2;
        }
        if paragraphs.is_empty() {
            paragraphs.push(0);
        }
        Self {
            document: Document::new(page.wikipedia_id.to_string(), text),
            page: page.wikipedia_id,
            title: Some(page.wikipedia_title),
            paragraphs,
            first: 0,
            annotated: None,
        }
    }

    fn of_annotated(source: knowledgenet::Document) -> Self {
        Self {
            document: Document::new(source.id.to_string(), source.text.clone()),
            page: source.id.clone(),
            title: None,
            paragraphs: vec![0],
            first: 0,
            annotated: Some(source),
        }
    }
}

/// Portions of a file's documents: at most so many, and no more after so many characters.
const DOCUMENTS: usize = 64;
const CHARACTERS: usize = 1 << 17;

/// Hands a file's documents over in portions, which are cut the same way every time.
///
/// # Errors
/// Those of reading, with line and field, and those of `each`.
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
                tracing::warn!("{}: none of its {found} documents is of the folds {folds:?}", path.display());
            }
        }
        InputFormat::Text => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let (mut block, mut number, mut last) = (String::new(), 0, 0);
            let mut close = |block: &mut String| -> Result<()> {
                if !block.trim().is_empty() {
                    let text = std::mem::take(block);
                    take(Source {
                        document: Document::new(format!("{stem}:{number}"), text),
                        page: Id::from(stem.clone()),
                        title: None,
                        paragraphs: vec![0],
                        first: number,
                        annotated: None,
                    })?;
                    number += 1;
                }
                Ok(())
            };
            for line in jsonl::open(path)?.lines() {
                let (line, text) = line?;
                // Blank lines are passed over by the reader, which counts them.
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

    fn place(source: &Source, start: usize, end: usize) -> (i64, i64, i64) {
        let found = source.provenance(Span { start, end });
        let number = |id: &Option<Id>| id.as_ref().unwrap().number().unwrap();
        assert_eq!(number(&found.start_paragraph_id), number(&found.end_paragraph_id));
        (number(&found.start_paragraph_id), number(&found.start_character), number(&found.end_character))
    }

    #[test]
    fn blocks_of_a_text_are_its_paragraphs() {
        let all = read("a.txt", "Ann met\nBob.\n\n\nZoë left.\n", InputFormat::Text).unwrap();
        let texts: Vec<&str> = all.iter().map(|source| source.document.text.as_str()).collect();
        assert_eq!(texts, ["Ann met\nBob.", "Zoë left."]);
        assert_eq!(place(&all[1], 0, 3), (1, 0, 3));
        assert_eq!(all[1].page.text(), "a");
    }

    #[test]
    fn places_on_a_page_count_from_their_paragraph() {
        let page = r#"{"wikipedia_id":"7","wikipedia_title":"Zoë","text":["Zoë\n","Ann met 😀 Bob.\n"]}"#;
        let all = read("p.jsonl", page, InputFormat::Kilt).unwrap();
        let source = &all[0];
        // "Zoë", its line end and the empty line take six characters.
        assert_eq!(source.document.slice(Span { start: 6, end: 9 }), Some("Ann"));
        assert_eq!(place(source, 6, 9), (1, 0, 3));
        assert_eq!(place(source, 16, 19), (1, 10, 13));
        assert_eq!(source.provenance(Span { start: 0, end: 3 }).title.as_deref(), Some("Zoë"));
    }

    #[test]
    fn only_asked_folds_are_read_and_wrong_places_are_named() {
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
