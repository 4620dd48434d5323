//! Plain text: paragraphs are separated by blank lines.

use crate::{Document, flow::Flow};

/// The paragraphs of a text.
pub(crate) fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut flow = Flow::default();
    for (at, line) in lines(text).enumerate() {
        if line.trim().is_empty() {
            document.blocks.extend(flow.finish(0));
        } else {
            flow.space();
            flow.push(line, at as u32 + 1, 0);
        }
    }
    document.blocks.extend(flow.finish(0));
    document
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
}
