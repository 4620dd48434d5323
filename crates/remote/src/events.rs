//! Server-sent events: the parts of a response that is streamed.

use std::io::{BufRead, Result};

/// The longest line of a stream, in bytes.
const LONGEST: u64 = 16 << 20;

/// Reads the data of events, one after another.
pub(crate) struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader }
    }

    /// The data of the next event; none at the end of the stream. An event that the end cuts has no blank line after it, and
    /// is not returned.
    ///
    /// # Errors
    /// Errors of the connection, lines that are not UTF-8, and lines beyond 16 MiB.
    pub(crate) fn next_data(&mut self) -> Result<Option<String>> {
        let mut data: Option<String> = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = std::io::Read::take(&mut self.reader, LONGEST).read_until(b'\n', &mut line)?;
            if read as u64 == LONGEST {
                return Err(std::io::Error::other("a line of the stream is longer than 16 MiB"));
            }
            if line.last() != Some(&b'\n') {
                return Ok(None);
            }
            let text = std::str::from_utf8(&line).map_err(std::io::Error::other)?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                if data.is_some() {
                    return Ok(data);
                }
                continue;
            }
            // Other fields (`event`, `id`, `retry`) and comments say nothing about the response.
            if let Some(more) = text.strip_prefix("data:") {
                let more = more.strip_prefix(' ').unwrap_or(more);
                match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(more);
                    }
                    None => data = Some(more.to_owned()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut events = Events::new(text.as_bytes());
        std::iter::from_fn(|| events.next_data().unwrap()).collect()
    }

    #[test]
    fn events_are_their_data_and_a_cut_one_is_none() {
        let stream =
            ": hello\n\ndata: {\"a\":1}\r\n\r\nevent: x\nid: 3\ndata:one\ndata: two\n\n\n\ndata: [DONE]\n\n";
        assert_eq!(all(stream), ["{\"a\":1}", "one\ntwo", "[DONE]"]);
        assert_eq!(all("data: a\n\ndata: b\n"), ["a"]);
        assert_eq!(all("data: a\n\ndata: b"), ["a"]);
        assert!(Events::new(&b"data: \xff\n\n"[..]).next_data().is_err());
    }
}
