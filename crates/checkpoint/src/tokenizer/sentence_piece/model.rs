//! SentencePiece's file: a message of protocol buffers (`sentencepiece_model.proto`) with pieces and settings.

/// An error in a file: the offset of the field, and the problem.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("SentencePiece model, byte {at}: {problem}")]
pub(super) struct Fault {
    at: usize,
    problem: &'static str,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Normal,
    Unknown,
    /// A token that steers the model and is no text.
    Control,
    /// A text that is always one token.
    UserDefined,
    Byte,
    Unused,
}

/// A piece of the vocabulary; its id is its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: PieceKind,
}

/// How texts are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
}

/// A model with the settings that tokenization depends on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Model {
    pub(super) pieces: Vec<Piece>,
    pub(super) algorithm: Algorithm,
    pub(super) byte_fallback: bool,
    pub(super) unknown: i32,
    pub(super) begin: i32,
    pub(super) end: i32,
    pub(super) unknown_piece: String,
    pub(super) begin_piece: String,
    pub(super) end_piece: String,
    /// The rules of the normaliser, compiled; empty where it changes no character.
    pub(super) charsmap: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
    pub(super) whitespace_is_suffix: bool,
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
    Fixed64,
}

/// The fields of a message.
struct Fields<'a> {
    bytes: &'a [u8],
    /// The offset of the next field, in the message.
    at: usize,
    /// The offset of the message in the file.
    start: usize,
}

impl<'a> Fields<'a> {
    fn fault(&self, problem: &'static str) -> Fault {
        Fault { at: self.start + self.at, problem }
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.fault("the file ends in a number"))?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.fault("a number of more than 64 bits"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let (bytes, at) = (self.bytes, self.at);
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
        let part = end.and_then(|end| bytes.get(at..end));
        let part = part.ok_or_else(|| self.fault("a field is longer than the file"))?;
        self.at += part.len();
        Ok(part)
    }

    /// The next field: its number, its value and the offset of its value in the file.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>, usize)>, Fault> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = self.number()?;
                let at = self.start + self.at;
                return Ok(Some((key >> 3, Value::Bytes(self.take(length)?), at)));
            }
            5 => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(self.take(4)?);
                Value::Fixed32(bytes)
            }
            _ => return Err(self.fault("expected the type of a field")),
        };
        Ok(Some((key >> 3, value, self.start + self.at)))
    }
}

/// A number of 32 bits with a sign, which protocol buffers write in 64.
fn signed(number: u64) -> i32 {
    number as u32 as i32
}

fn text(bytes: &[u8], at: usize) -> Result<String, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| Fault { at, problem: "expected text in UTF-8" })?;
    Ok(text.to_owned())
}

impl Model {
    /// Reads a file's content.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        // The defaults of the format.
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: Algorithm::Unigram,
            byte_fallback: false,
            unknown: 0,
            begin: 1,
            end: 2,
            unknown_piece: "<unk>".into(),
            begin_piece: "<s>".into(),
            end_piece: "</s>".into(),
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            whitespace_is_suffix: false,
        };
        let mut fields = Fields { bytes, at: 0, start: 0 };
        while let Some((field, value, start)) = fields.next()? {
            let Value::Bytes(bytes) = value else { continue };
            let inner = Fields { bytes, at: 0, start };
            match field {
                1 => model.pieces.push(piece(inner)?),
                2 => model.trainer(inner)?,
                3 => model.normalizer(inner)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err(Fault { at: 0, problem: "expected pieces, found none" });
        }
        Ok(model)
    }

    fn trainer(&mut self, mut fields: Fields<'_>) -> Result<(), Fault> {
        while let Some((field, value, at)) = fields.next()? {
            match (field, value) {
                (3, Value::Number(1)) => self.algorithm = Algorithm::Unigram,
                (3, Value::Number(2)) => self.algorithm = Algorithm::Bpe,
                (3, _) => return Err(Fault { at, problem: "expected a model of the type unigram or BPE" }),
                (24, Value::Number(value)) => self.whitespace_is_suffix = value != 0,
                (35, Value::Number(value)) => self.byte_fallback = value != 0,
                (40, Value::Number(id)) => self.unknown = signed(id),
                (41, Value::Number(id)) => self.begin = signed(id),
                (42, Value::Number(id)) => self.end = signed(id),
                (45, Value::Bytes(bytes)) => self.unknown_piece = text(bytes, at)?,
                (46, Value::Bytes(bytes)) => self.begin_piece = text(bytes, at)?,
                (47, Value::Bytes(bytes)) => self.end_piece = text(bytes, at)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, mut fields: Fields<'_>) -> Result<(), Fault> {
        while let Some((field, value, at)) = fields.next()? {
            match (field, value) {
                (2, Value::Bytes(bytes)) => {
                    // The size of the trie that begins the rules, in bytes.
                    let size = bytes.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
                    if !bytes.is_empty()
                        && size.is_none_or(|size| !size.is_multiple_of(4) || size > bytes.len() - 4)
                    {
                        return Err(Fault {
                            at,
                            problem: "the rules of the normaliser are shorter than their trie",
                        });
                    }
                    self.charsmap = bytes.to_vec();
                }
                (3, Value::Number(value)) => self.add_dummy_prefix = value != 0,
                (4, Value::Number(value)) => self.remove_extra_whitespaces = value != 0,
                (5, Value::Number(value)) => self.escape_whitespaces = value != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn piece(mut fields: Fields<'_>) -> Result<Piece, Fault> {
    let start = fields.start;
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    while let Some((field, value, at)) = fields.next()? {
        match (field, value) {
            (1, Value::Bytes(bytes)) => piece.text = text(bytes, at)?,
            (2, Value::Fixed32(bytes)) => piece.score = f32::from_le_bytes(bytes),
            (3, Value::Number(kind)) => {
                piece.kind = match kind {
                    1 => PieceKind::Normal,
                    2 => PieceKind::Unknown,
                    3 => PieceKind::Control,
                    4 => PieceKind::UserDefined,
                    5 => PieceKind::Unused,
                    6 => PieceKind::Byte,
                    _ => return Err(Fault { at, problem: "expected the kind of a piece" }),
                };
            }
            _ => {}
        }
    }
    if !piece.score.is_finite() {
        return Err(Fault { at: start, problem: "expected a finite score" });
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Fault, Model, Piece, PieceKind};

    /// A field of bytes.
    fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![field << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend(content);
        out
    }

    fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
        let score = [&[2 << 3 | 5][..], &score.to_le_bytes()].concat();
        bytes(1, &[bytes(1, text.as_bytes()), score, vec![3 << 3, kind]].concat())
    }

    #[test]
    fn pieces_and_settings_are_read_and_the_rest_has_defaults() {
        // trainer: model_type 2, unk_id (field 40) -1 in ten bytes; normalizer: add_dummy_prefix false.
        let unknown = [&[0xc0, 0x02][..], &[0xff; 9], &[1]].concat();
        let trainer = bytes(2, &[vec![3 << 3, 2], unknown].concat());
        let file =
            [piece("<unk>", 0.0, 2), piece("\u{2581}a", -1.5, 1), trainer, bytes(3, &[3 << 3, 0])].concat();
        let model = Model::read(&file).unwrap();
        let expected = Piece { text: "\u{2581}a".into(), score: -1.5, kind: PieceKind::Normal };
        assert_eq!((model.pieces.len(), &model.pieces[1]), (2, &expected));
        assert_eq!((model.algorithm, model.unknown, model.begin, model.end), (Algorithm::Bpe, -1, 1, 2));
        assert!(!model.add_dummy_prefix && model.remove_extra_whitespaces && !model.byte_fallback);
        assert_eq!((model.unknown_piece.as_str(), model.charsmap.len()), ("<unk>", 0));
    }

    #[test]
    fn a_damaged_file_is_an_error_or_a_shorter_model() {
        let file = [piece("<unk>", 0.0, 2), piece("a", -1.0, 1), bytes(2, &[3 << 3, 1])].concat();
        for length in 0..file.len() {
            if let Ok(model) = Model::read(&file[..length]) {
                assert!(model.pieces.len() <= 2);
            }
        }
        for at in 0..file.len() {
            for value in 0..=255 {
                let mut changed = file.clone();
                changed[at] = value;
                let _ = Model::read(&changed);
            }
        }
        assert_eq!(Model::read(b"").unwrap_err(), Fault { at: 0, problem: "expected pieces, found none" });
        let infinite = piece("a", f32::INFINITY, 1);
        assert_eq!(Model::read(&infinite).unwrap_err(), Fault { at: 2, problem: "expected a finite score" });
        // A trie of 400 bytes in rules of 5.
        let rules = [piece("a", 0.0, 1), bytes(3, &bytes(2, &[0x90, 1, 0, 0, 0]))].concat();
        assert!(Model::read(&rules).unwrap_err().to_string().contains("shorter than their trie"));
    }
}
