//! Text that is put together with the lines and pages of its parts.

use sporran_kilt::passage::Mark;

use crate::Block;

/// A paragraph while its parts arrive. White space becomes one blank unless the text is preformatted.
#[derive(Default)]
pub(crate) struct Flow {
    text: String,
    marks: Vec<Mark>,
    /// Whether white space precedes the next part.
    blank: bool,
}

impl Flow {
    /// Adds a text that starts on a line (0 if unknown) of a page (0 if unknown). Each line end counts a line.
    pub(crate) fn push(&mut self, text: &str, line: u32, page: u32) {
        let mut line = line;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first.is_whitespace() || first == '\0' {
                line += u32::from(line > 0 && first == '\n');
                self.blank = true;
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let end = rest.find(|c: char| c.is_whitespace() || c == '\0').unwrap_or(rest.len());
            self.word(&rest[..end], line, page);
            rest = &rest[end..];
        }
    }

    fn word(&mut self, word: &str, line: u32, page: u32) {
        if std::mem::take(&mut self.blank) && !self.text.is_empty() {
            self.text.push(' ');
        }
        self.mark(line, page);
        self.text.push_str(word);
    }

    /// Adds a text with its white space.
    pub(crate) fn push_verbatim(&mut self, text: &str, line: u32, page: u32) {
        let mut line = line;
        for part in text.split_inclusive('\n') {
            if !part.trim().is_empty() {
                self.mark(line, page);
            }
            self.text.extend(part.chars().filter(|&c| c != '\r' && c != '\0'));
            line += u32::from(line > 0 && part.ends_with('\n'));
        }
    }

    fn mark(&mut self, line: u32, page: u32) {
        let is_new = self.marks.last().is_none_or(|mark| (mark.line, mark.page) != (line, page));
        if is_new && (line, page) != (0, 0) {
            self.marks.push(Mark { at: self.text.len() as u32, line, page });
        }
    }

    /// Adds white space.
    pub(crate) fn space(&mut self) {
        self.blank = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Ends the paragraph: a block if it has text.
    pub(crate) fn finish(&mut self, level: u8) -> Option<Block> {
        let Self { text, mut marks, .. } = std::mem::take(self);
        let end = text.trim_end().len();
        let start = text.len() - text.trim_start_matches(['\n', '\r']).len();
        if start >= end {
            return None;
        }
        if let Some(first) = marks.first_mut() {
            first.at = first.at.min(start as u32);
        }
        for mark in &mut marks {
            mark.at = mark.at.saturating_sub(start as u32);
        }
        Some(Block { level, text: text[start..end].to_owned(), marks })
    }
}

/// The rows of a table as one paragraph: a line for each.
pub(crate) fn table(rows: Vec<Block>) -> Option<Block> {
    rows.into_iter().reduce(|mut table, row| {
        table.text.push('\n');
        let shift = table.text.len() as u32;
        table.text.push_str(&row.text);
        let is_new = |mark: &Mark, last: Option<&Mark>| {
            last.is_none_or(|last| (last.line, last.page) != (mark.line, mark.page))
        };
        for mark in row.marks {
            let mark = Mark { at: mark.at + shift, ..mark };
            if is_new(&mark, table.marks.last()) {
                table.marks.push(mark);
            }
        }
        table
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: u32, line: u32) -> Mark {
        Mark { at, line, page: 0 }
    }

    #[test]
    fn white_space_is_one_blank_and_every_line_has_a_mark() {
        let mut flow = Flow::default();
        flow.push("  It is\n  very ", 3, 0);
        flow.push("hot", 4, 0);
        flow.push(".\n\nNow", 4, 0);
        let block = flow.finish(0).unwrap();
        assert_eq!(block.text, "It is very hot. Now");
        assert_eq!(block.marks, [mark(0, 3), mark(6, 4), mark(16, 6)]);
        assert!(flow.finish(0).is_none());
    }

    #[test]
    fn rows_are_lines_of_a_table() {
        let row = |text: &str, line| Block { level: 0, text: text.to_owned(), marks: vec![mark(0, line)] };
        let table = table(vec![row("a | b", 3), row("1 | 2", 3), row("4 | 5", 4)]).unwrap();
        assert_eq!(
            (table.text.as_str(), &table.marks[..]),
            ("a | b\n1 | 2\n4 | 5", &[mark(0, 3), mark(12, 4)][..])
        );
        assert!(super::table(Vec::new()).is_none());
    }

    #[test]
    fn preformatted_text_keeps_its_lines() {
        let mut flow = Flow::default();
        flow.push_verbatim("\n  a = 1\r\n\n  b = 2\n", 7, 0);
        let block = flow.finish(0).unwrap();
        assert_eq!(block.text, "  a = 1\n\n  b = 2");
        assert_eq!(block.marks, [mark(0, 8), mark(9, 10)]);
    }
}
