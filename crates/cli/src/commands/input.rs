//! Numbered lines of standard input, in portions.

use std::io::{self, BufRead, Read, StdinLock};

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
};

/// A portion takes no further line once it has this many bytes, so that long lines do not fill the memory.
const PORTION_BYTES: usize = 16 << 20;
/// Bytes of the longest line that is read.
const LINE_BYTES: u64 = 1 << 30;

/// Checks that a count is at least 1.
pub(super) fn at_least_one(option: &str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(Error::Usage(format!("{option}: expected at least 1, found 0")));
    }
    Ok(())
}

/// Reads lines; errors name the line's number.
pub(super) struct Lines<R> {
    reader: R,
    line: u64,
    portion: usize,
    portion_bytes: usize,
    line_bytes: u64,
}

impl Lines<StdinLock<'static>> {
    /// Standard input, of which at most `portion` lines are read before the first of them is answered.
    pub(super) fn stdin(portion: usize) -> Self {
        interrupt::keep(Kept::Lines);
        Self {
            reader: io::stdin().lock(),
            line: 0,
            portion,
            portion_bytes: PORTION_BYTES,
            line_bytes: LINE_BYTES,
        }
    }
}

impl<R: BufRead> Lines<R> {
    /// Parses the lines with `parse` and passes them to `answer`, one portion at a time and in order. If a line cannot be
    /// read or parsed, the lines before it are answered before the error is returned.
    pub(super) fn each_portion<T>(
        &mut self,
        mut parse: impl FnMut(String) -> Result<T, String>,
        mut answer: impl FnMut(&[T]) -> Result<()>,
    ) -> Result<()> {
        loop {
            let mut parsed = Vec::new();
            let (mut bytes, mut end) = (0, None);
            while parsed.len() < self.portion && bytes < self.portion_bytes && end.is_none() {
                match self.next(&mut bytes, &mut parse) {
                    Ok(Some(item)) => parsed.push(item),
                    Ok(None) => end = Some(Ok(())),
                    Err(error) => end = Some(Err(error)),
                }
            }
            if !parsed.is_empty() {
                answer(&parsed)?;
                interrupt::answered(parsed.len());
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn next<T>(
        &mut self,
        read: &mut usize,
        parse: &mut impl FnMut(String) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let mut bytes = Vec::new();
        let found = self.reader.by_ref().take(self.line_bytes + 1).read_until(b'\n', &mut bytes);
        if found.map_err(|source| Error::Stream { stream: "standard input", source })? == 0 {
            return Ok(None);
        }
        *read += bytes.len();
        self.line += 1;
        let line = self.line;
        let wrong = |message| Error::Line { line, message };
        if bytes.len() as u64 > self.line_bytes {
            return Err(wrong(format!("expected at most {} bytes in a line, found more", self.line_bytes)));
        }
        if bytes.ends_with(b"\n") {
            bytes.pop();
            if bytes.ends_with(b"\r") {
                bytes.pop();
            }
        }
        if line == 1 && bytes.starts_with("\u{feff}".as_bytes()) {
            bytes.drain(..'\u{feff}'.len_utf8());
        }
        if line == 1 && matches!(bytes[..], [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) {
            return Err(wrong("expected text in UTF-8, found UTF-16".to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            wrong(format!("invalid UTF-8 at byte {}", error.utf8_error().valid_up_to() + 1))
        })?;
        parse(text).map(Some).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    fn portions(bytes: &[u8], portion: usize) -> (Vec<Vec<String>>, Option<String>) {
        let mut seen = Vec::new();
        let mut lines = Lines { reader: bytes, line: 0, portion, portion_bytes: 6, line_bytes: 8 };
        let parse = |text: String| if text == "bad" { Err("is bad".into()) } else { Ok(text) };
        let end = lines.each_portion(parse, |texts| {
            seen.push(texts.to_vec());
            Ok(())
        });
        (seen, end.err().map(|error| error.to_string()))
    }

    #[test]
    fn lines_come_in_portions_without_their_ends() {
        let (seen, end) = portions(b"a\r\n\nb", 2);
        assert_eq!(seen, [vec!["a", ""], vec!["b"]]);
        assert_eq!(end, None);
        assert!(portions(b"", 2).0.is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let (seen, end) = portions("\u{feff}a\n\u{feff}b\n".as_bytes(), 2);
        assert_eq!((seen, end), (vec![vec!["a".to_owned(), "\u{feff}b".to_owned()]], None));
        let (_, end) = portions(b"\xff\xfea\0\n\0", 2);
        assert_eq!(end.unwrap(), "standard input:1: expected text in UTF-8, found UTF-16");
    }

    #[test]
    fn long_lines_make_small_portions_and_too_long_lines_are_an_error() {
        let (seen, end) = portions(b"12345\nabcdefg\nb\nc", 9);
        assert_eq!(seen, [vec!["12345"], vec!["abcdefg"], vec!["b", "c"]]);
        assert_eq!(end, None);
        let (seen, end) = portions(b"a\n123456789\nb\n", 9);
        assert_eq!(seen, [["a"]]);
        assert_eq!(end.unwrap(), "standard input:2: expected at most 8 bytes in a line, found more");
    }

    #[test]
    fn the_lines_before_a_wrong_line_are_answered() {
        let (seen, end) = portions(b"a\nb\nc\nbad\nd\n", 2);
        assert_eq!(seen, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(end.unwrap(), "standard input:4: is bad");
        let (seen, end) = portions(b"a\nx\xff\n", 9);
        assert_eq!(seen, [["a"]]);
        assert_eq!(end.unwrap(), "standard input:2: invalid UTF-8 at byte 2");
    }
}
