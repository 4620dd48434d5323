//! Plain text: paragraphs are separated by blank lines.

use crate::{Block, Document, flow::Flow, is_wrapped};

/// The paragraphs of a text. A paragraph of lines that each stand alone, such as a list, keeps its ends of lines.
pub(crate) fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut paragraph: Vec<(u32, &str)> = Vec::new();
    for (at, line) in lines(text).enumerate() {
        if line.trim().is_empty() {
            document.blocks.extend(block(&std::mem::take(&mut paragraph)));
        } else {
            paragraph.push((at as u32 + 1, line));
        }
    }
    document.blocks.extend(block(&paragraph));
    document
}

/// The block of a paragraph's lines with their numbers; `None` without any.
fn block(paragraph: &[(u32, &str)]) -> Option<Block> {
    let mut flow = Flow::default();
    let texts: Vec<&str> = paragraph.iter().map(|(_, line)| *line).collect();
    let is_wrapped = is_wrapped(&texts);
    for (at, line) in paragraph {
        if is_wrapped {
            flow.space();
            flow.push(line, *at, 0);
        } else {
            flow.push_verbatim(line.trim_end(), *at, 0);
            flow.push_verbatim("\n", 0, 0);
        }
    }
    flow.finish(0)
}

/// Lines that end with a line feed, a carriage return or both.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let line = &rest[..end];
        let after = &rest[end..];
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..)).unwrap_or("");
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use sporran_kilt::passage::Mark;

    use super::*;

    #[test]
    fn blank_lines_separate_paragraphs_and_lines_are_counted() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["One", "two.", " ", "", "Three."].join(end);
            let document = read(&text);
            let texts: Vec<&str> = document.blocks.iter().map(|block| block.text.as_str()).collect();
            assert_eq!(texts, ["One two.", "Three."]);
            assert_eq!(document.blocks[1].marks, [Mark { at: 0, line: 5, page: 0 }], "{end:?}");
            assert_eq!(document.blocks[0].marks[1], Mark { at: 4, line: 2, page: 0 });
        }
    }

    #[test]
    fn lines_that_stand_alone_keep_their_ends() {
        let document = read("Boiler: oil\n  Roof: slate \nWell: tested monthly\n\nIt is\nold.");
        let texts: Vec<&str> = document.blocks.iter().map(|block| block.text.as_str()).collect();
        assert_eq!(texts, ["Boiler: oil\n  Roof: slate\nWell: tested monthly", "It is old."]);
        let marks: Vec<(u32, u32)> =
            document.blocks[0].marks.iter().map(|mark| (mark.at, mark.line)).collect();
        assert_eq!(marks, [(0, 1), (12, 2), (26, 3)]);
    }
}
