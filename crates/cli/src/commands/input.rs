//! Lines of standard input, in portions, with their numbers.

use std::io::{self, BufRead, StdinLock};

use crate::error::{Error, Result};

/// Reads lines; an error says which one it is about.
pub(super) struct Lines<R> {
    reader: R,
    line: u64,
    portion: usize,
}

impl Lines<StdinLock<'static>> {
    /// Standard input, of which `portion` lines are worked on together.
    pub(super) fn stdin(portion: usize) -> Self {
        Self { reader: io::stdin().lock(), line: 0, portion }
    }
}

impl<R: BufRead> Lines<R> {
    /// Gives `answer` what `parse` makes of the lines, a portion at a time. The lines before one that cannot be read or
    /// parsed are answered before the error is given back.
    pub(super) fn each_portion<T>(
        &mut self,
        mut parse: impl FnMut(String) -> Result<T, String>,
        mut answer: impl FnMut(&[T]) -> Result<()>,
    ) -> Result<()> {
        loop {
            let mut parsed = Vec::with_capacity(self.portion);
            let mut end = None;
            while parsed.len() < self.portion && end.is_none() {
                match self.next(&mut parse) {
                    Ok(Some(item)) => parsed.push(item),
                    Ok(None) => end = Some(Ok(())),
                    Err(error) => end = Some(Err(error)),
                }
            }
            if !parsed.is_empty() {
                answer(&parsed)?;
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn next<T>(&mut self, parse: &mut impl FnMut(String) -> Result<T, String>) -> Result<Option<T>> {
        let mut bytes = Vec::new();
        let read = self.reader.read_until(b'\n', &mut bytes);
        if read.map_err(|source| Error::Stream { stream: "standard input", source })? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let line = self.line;
        let wrong = |message| Error::Line { line, message };
        if bytes.ends_with(b"\n") {
            bytes.pop();
            if bytes.ends_with(b"\r") {
                bytes.pop();
            }
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
        let mut lines = Lines { reader: bytes, line: 0, portion };
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
    fn a_wrong_line_is_named_after_those_before_it_are_answered() {
        let (seen, end) = portions(b"a\nb\nc\nbad\nd\n", 2);
        assert_eq!(seen, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(end.unwrap(), "standard input:4: is bad");
        let (seen, end) = portions(b"a\nx\xff\n", 9);
        assert_eq!(seen, [["a"]]);
        assert_eq!(end.unwrap(), "standard input:2: invalid UTF-8 at byte 2");
    }
}
