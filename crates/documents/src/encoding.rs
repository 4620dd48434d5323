//! The encoding of text files.

use std::io::{self, BufRead, Read};

use encoding_rs::{CoderResult, Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// The bytes of a file that decide whether it is text.
pub(crate) const HEAD: usize = 8192;

/// A file's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    /// What had to be guessed.
    pub(crate) note: Option<String>,
}

/// The encoding that a byte order mark names, or that the zero bytes of UTF-16 show. `None` for UTF-8 and for encodings of
/// single bytes.
pub(crate) fn wide(head: &[u8]) -> Option<&'static Encoding> {
    if head.starts_with(&[0xff, 0xfe, 0, 0]) {
        return None;
    }
    if let Some((encoding, _)) = Encoding::for_bom(head) {
        return (encoding != UTF_8).then_some(encoding);
    }
    let head = &head[..head.len().min(HEAD) / 2 * 2];
    let zeros = |first: usize| head.iter().skip(first).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd, pairs) = (zeros(0), zeros(1), head.len() / 2);
    // Text in Latin letters has a zero byte in nearly every pair.
    let is = |many: usize, few: usize| pairs >= 2 && many * 10 > pairs * 7 && few * 8 <= pairs;
    if is(odd, even) { Some(UTF_16LE) } else { is(even, odd).then_some(UTF_16BE) }
}

/// Whether bytes are no text: zero bytes, or many control characters.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    if wide(bytes).is_some() {
        return false;
    }
    let head = &bytes[..bytes.len().min(HEAD)];
    let control = |byte: &&u8| matches!(byte, 0x01..=0x08 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
    head.contains(&0) || head.iter().filter(control).count() * 50 > head.len()
}

/// The text of a file. UTF-8 and UTF-16 are detected. Lines that are neither have the encoding `declared`, or the most
/// likely one.
///
/// # Errors
/// A message for bytes that are no text.
pub(crate) fn decode(bytes: &[u8], declared: Option<&str>) -> Result<Decoded, String> {
    if let Some(encoding) = wide(bytes) {
        let (text, _, is_damaged) = encoding.decode(bytes);
        let is_marked = Encoding::for_bom(bytes).is_some();
        let note = match (is_damaged, is_marked) {
            (true, _) => Some(format!("has invalid {}; wrong characters are replaced", encoding.name())),
            (false, false) => Some(format!("has no byte order mark; it was read as {}", encoding.name())),
            (false, true) => None,
        };
        return Ok(Decoded { text: text.into_owned(), note });
    }
    if is_binary(bytes) {
        return Err("expected text, found a binary file".to_owned());
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Decoded { text: text.to_owned(), note: None });
    }
    let encoding = declared.and_then(|label| Encoding::for_label(label.trim().as_bytes()));
    let encoding = encoding.filter(|&encoding| encoding != UTF_8 && encoding.is_ascii_compatible());
    if let Some(encoding) = encoding {
        let (text, _, is_damaged) = encoding.decode(bytes);
        let note =
            is_damaged.then(|| format!("has invalid {}; wrong characters are replaced", encoding.name()));
        return Ok(Decoded { text: text.into_owned(), note });
    }
    let lines = || bytes.split_inclusive(|&byte| byte == b'\n');
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    let (mut is_mixed, mut count) = (false, 0);
    for line in lines() {
        match std::str::from_utf8(line) {
            Ok(line) => is_mixed |= !line.is_ascii(),
            Err(_) => {
                count += 1;
                detector.feed(line, false);
            }
        }
    }
    detector.feed(b"", true);
    let encoding = detector.guess(None, chardetng::Utf8Detection::Deny);
    let mut text = String::with_capacity(bytes.len());
    for line in lines() {
        match std::str::from_utf8(line) {
            Ok(line) => text.push_str(line),
            Err(_) => text.push_str(&encoding.decode_without_bom_handling(line).0),
        }
    }
    let note = match is_mixed {
        true if count == 1 => {
            format!("mixes encodings; 1 line that is not UTF-8 was read as {}", encoding.name())
        }
        true => format!("mixes encodings; {count} lines that are not UTF-8 were read as {}", encoding.name()),
        false => format!("is not UTF-8; it was read as {}", encoding.name()),
    };
    Ok(Decoded { text, note: Some(note) })
}

/// A line of a table as text. A line that is not UTF-8 is read as Windows' Latin letters; `guessed` is set then.
pub(crate) fn line(bytes: &[u8], guessed: &mut bool) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            *guessed = true;
            encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()
        }
    }
}

/// Bytes of UTF-16 as UTF-8 while they are read.
pub(crate) struct Transcoded<R> {
    input: R,
    decoder: Decoder,
    ready: Vec<u8>,
    at: usize,
    done: bool,
}

impl<R: BufRead> Transcoded<R> {
    pub(crate) fn new(input: R, encoding: &'static Encoding) -> Self {
        Self {
            input,
            decoder: encoding.new_decoder_with_bom_removal(),
            ready: Vec::new(),
            at: 0,
            done: false,
        }
    }
}

impl<R: BufRead> Read for Transcoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.ready.len() && !self.done {
            let bytes = self.input.fill_buf()?;
            let last = bytes.is_empty();
            let length = self.decoder.max_utf8_buffer_length(bytes.len());
            self.ready.resize(length.unwrap_or(bytes.len() * 3 + 16), 0);
            let (result, read, written, _) = self.decoder.decode_to_utf8(bytes, &mut self.ready, last);
            self.input.consume(read);
            self.ready.truncate(written);
            self.at = 0;
            self.done = last && result == CoderResult::InputEmpty;
        }
        let count = buffer.len().min(self.ready.len() - self.at);
        buffer[..count].copy_from_slice(&self.ready[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Text whose lines end with carriage returns alone, with line feeds in place of them.
pub(crate) struct Returns<R>(pub(crate) R);

impl<R: Read> Read for Returns<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        buffer[..count].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, little: bool, mark: bool) -> Vec<u8> {
        let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
        units.flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    }

    #[test]
    fn utf_8_and_utf_16_are_detected() {
        for (little, mark) in [(true, true), (true, false), (false, true), (false, false)] {
            let bytes = utf16("Zoë sang 😀\nonce", little, mark);
            let decoded = decode(&bytes, None).unwrap();
            assert_eq!((decoded.text.as_str(), decoded.note.is_none()), ("Zoë sang 😀\nonce", mark));
            let encoding = wide(&bytes).unwrap();
            let mut text = String::new();
            let reader = io::BufReader::with_capacity(3, &bytes[..]);
            Transcoded::new(reader, encoding).read_to_string(&mut text).unwrap();
            assert_eq!(text, "Zoë sang 😀\nonce");
        }
        let decoded = decode(b"\xef\xbb\xbfZo\xc3\xab", None).unwrap();
        assert_eq!(decoded, Decoded { text: "Zoë".into(), note: None });
    }

    #[test]
    fn other_encodings_are_guessed_by_line_or_declared() {
        let decoded = decode(b"Caf\xe9 cr\xe8me, s'il vous pla\xeet. D\xe9j\xe0 vu.\n", None).unwrap();
        assert_eq!(decoded.text, "Café crème, s'il vous plaît. Déjà vu.\n");
        assert!(decoded.note.unwrap().contains("read as windows-1252"));
        let decoded = decode(b"Zo\xc3\xab\nCaf\xe9 cr\xe8me\n", None).unwrap();
        assert_eq!(decoded.text, "Zoë\nCafé crème\n");
        assert!(decoded.note.unwrap().starts_with("mixes encodings; 1 line that"));
        let decoded = decode(b"\xcf\xf0\xe8\xe2\xe5\xf2", Some("windows-1251")).unwrap();
        assert_eq!(decoded, Decoded { text: "Привет".into(), note: None });
        let mut guessed = false;
        assert_eq!((line(b"caf\xe9", &mut guessed).as_str(), guessed), ("café", true));
    }

    #[test]
    fn binary_files_are_no_text() {
        for bytes in
            [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], b"\x7fELF\x02\x01\x01\0\0\0", &[1, 2, 3, 4, 5, 6]]
        {
            assert!(decode(bytes, None).is_err(), "{bytes:?}");
        }
        assert!(decode(b"", None).unwrap().text.is_empty());
    }
}
