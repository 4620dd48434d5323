//! The place of a sentence of a passage in its file.

use std::ops::Range;

use sporran_kilt::{FilePlace, Passage, PassageStore};

use super::{answer::heading, citations::CELLS};

/// The number of bytes of the headings with which a text starts. Evidence shows them as its section.
pub(super) fn headings(passage: &Passage) -> usize {
    let Passage { section, text, .. } = passage;
    let names: Vec<&str> = heading(section).split(" > ").collect();
    let length = |from: usize| {
        let start = names[from..].join(" ");
        let rest = text.strip_prefix(&start).filter(|_| !start.is_empty())?;
        let text = rest.trim_start();
        (rest.len() > text.len() && !text.is_empty()).then(|| start.len() + rest.len() - text.len())
    };
    (0..names.len()).find_map(length).unwrap_or(0)
}

/// A part of a paragraph in the text of a passage.
pub(super) struct Piece {
    /// Its bytes of the text.
    pub(super) range: Range<usize>,
    paragraph: u32,
    /// The byte of the paragraph at which it starts.
    from: usize,
}

/// The parts of paragraphs that are the text of a passage, in order.
pub(super) fn pieces(store: &PassageStore, passage: &Passage) -> Vec<Piece> {
    let mut start = 0;
    let piece = |(paragraph, bytes): (u32, Range<usize>)| {
        let range = start..start + bytes.len();
        // One blank or the end of a line joins the pieces.
        start = range.end + 1;
        Piece { range, paragraph, from: bytes.start }
    };
    store.pieces(passage.id).map(piece).collect()
}

/// Whether the file of a passage has a piece on several lines, or it is rows of a table of a format without lines.
pub(super) fn has_lines(store: &PassageStore, passage: &Passage, piece: &Piece) -> bool {
    let text = passage.text.get(piece.range.clone()).unwrap_or_default();
    // A passage can end inside its last row.
    if text.lines().count() > 1 && text.lines().take(2).all(|line| line.contains(CELLS)) {
        return true;
    }
    let page = store.page_of(passage.id);
    let line = |byte: usize| store.file_place(page, piece.paragraph, byte as u32).line;
    line(piece.from) != line((piece.from + piece.range.len()).saturating_sub(1))
}

/// The place of a byte of a passage's text: that of the passage, with the line and the page of the byte.
pub(super) fn place(store: &PassageStore, passage: &Passage, pieces: &[Piece], byte: usize) -> FilePlace {
    let Some(piece) = pieces.iter().find(|piece| byte < piece.range.end) else { return passage.file.clone() };
    let byte = piece.from + byte.saturating_sub(piece.range.start);
    store.file_place(store.page_of(passage.id), piece.paragraph, byte as u32)
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{
        PassageSplit,
        passage::{Unit, Windows},
        store::BuildOptions,
    };

    use super::*;

    #[test]
    fn a_sentence_has_the_line_and_the_page_of_its_paragraph() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let page = r#"{"wikipedia_id":"1","wikipedia_title":"Tea","text":["Tea","Heading::::Making","Boil water. Pour it.","BULLET::::- two leaves","It is hot.","It is hot."],"file":"tea.pdf","places":[[[0,1,1]],[[0,2,1]],[[0,4,1],[12,5,1]],[[0,9,2]],[[0,12,3]],[[0,14,4]]]}"#;
        std::fs::write(&source, page).unwrap();
        let split = PassageSplit::Windows(Windows { unit: Unit::Words, size: 50, overlap: 0 });
        let build = BuildOptions { source, redirects: None, split };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let passage = store.passage(sporran_kilt::PassageId(0));
        assert_eq!(passage.text, "Making Boil water. Pour it. two leaves It is hot. It is hot.");
        let pieces = pieces(&store, &passage);
        let parts: Vec<&str> = pieces.iter().map(|piece| &passage.text[piece.range.clone()]).collect();
        assert_eq!(parts, ["Making", "Boil water. Pour it.", "two leaves", "It is hot.", "It is hot."]);
        for (sentence, line, page) in
            [("Boil", 4, 1), ("Pour it.", 5, 1), ("two leaves", 9, 2), ("It is hot.", 12, 3)]
        {
            let start = passage.text.find(sentence).unwrap();
            let found = place(&store, &passage, &pieces, start);
            assert_eq!((found.line, found.page), (Some(line), Some(page)), "{sentence}");
        }
        let lined: Vec<bool> = pieces.iter().map(|piece| has_lines(&store, &passage, piece)).collect();
        assert_eq!(lined, [false, true, false, false, false]);
        // The second of two equal sentences has its own place.
        let start = passage.text.rfind("It is hot.").unwrap();
        let found = place(&store, &passage, &pieces, start);
        assert_eq!((found.line, found.page), (Some(14), Some(4)));
    }

    #[test]
    fn rows_of_a_format_without_lines_stand_alone() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let rows: String = (1..9).map(|row| format!("\\n{row} | keeper {row}")).collect();
        let page = format!(
            r#"{{"wikipedia_id":"1","wikipedia_title":"Log","text":["Log","day | name{rows}"],"file":"log.docx"}}"#
        );
        std::fs::write(&source, page).unwrap();
        let split = PassageSplit::Windows(Windows { unit: Unit::Words, size: 18, overlap: 0 });
        let build = BuildOptions { source, redirects: None, split };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let passage = store.passage(sporran_kilt::PassageId(1));
        let pieces = pieces(&store, &passage);
        let texts: Vec<&str> = pieces.iter().map(|piece| &passage.text[piece.range.clone()]).collect();
        // The header and the row in which the passage starts are whole.
        assert_eq!(texts[0], "day | name");
        assert!(texts[1].starts_with("4 | keeper 4\n5 | keeper 5"), "{texts:?}");
        assert!(!has_lines(&store, &passage, &pieces[0]) && has_lines(&store, &passage, &pieces[1]));
    }

    #[test]
    fn the_headings_of_a_text_are_those_of_its_section() {
        let length = |section: &str, text: &str| {
            headings(&Passage { section: section.into(), ..Passage::of_text(text) })
        };
        assert_eq!(length("Travel > Trains", "Travel Trains First class."), "Travel Trains ".len());
        assert_eq!(length("Travel > Trains", "Trains First class."), "Trains ".len());
        assert_eq!(length("Section::::Life.", "Life She was born."), "Life ".len());
        for (section, text) in [
            ("Travel", "Travels are long."),
            ("Travel", "Travel"),
            ("Travel", "By train."),
            ("", " It rains."),
            ("Section::::Abstract.", "Abstract. It rains."),
        ] {
            assert_eq!(length(section, text), 0, "{section}: {text}");
        }
    }
}
