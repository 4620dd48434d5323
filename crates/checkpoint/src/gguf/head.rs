//! The head of a GGUF file: its metadata and the positions of its tensors.

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::Path,
};

use candle_core::quantized::gguf_file::Content;

use crate::{
    error::{Error, Result},
    pointer,
};

/// The metadata and the list of tensors of a file, and the opened file.
pub(super) fn head(path: &Path) -> Result<(Content, BufReader<File>)> {
    let mut file = BufReader::new(File::open(path).map_err(Error::io(path, "open"))?);
    let mut beginning = Vec::new();
    file.by_ref().take(1024).read_to_end(&mut beginning).map_err(Error::io(path, "read"))?;
    pointer::check(path, &beginning)?;
    file.rewind().map_err(Error::io(path, "read"))?;
    check_head(path, &mut file)?;
    let content = Content::read(&mut file).map_err(|source| Error::gguf(path, &source))?;
    Ok((content, file))
}

/// The greatest depth of lists in lists, and the greatest length of a name, that are looked into.
const DEEPEST: u32 = 8;
const LONGEST: u64 = 1 << 16;

/// Checks what the reader of the head assumes or does not name, and seeks back to the beginning: tensors are laid out in steps of
/// at least a byte, and have types that can be read. That reader reports other errors.
fn check_head(path: &Path, file: &mut BufReader<File>) -> Result<()> {
    let mut seen = Seen::default();
    // An end of the file here is one for that reader too.
    let _ = seen.read(file);
    file.rewind().map_err(Error::io(path, "read"))?;
    if seen.alignment == Some(0) {
        return Err(Error::Config {
            path: path.into(),
            field: "general.alignment".into(),
            expected: "at least 1".into(),
            found: "0".into(),
        });
    }
    match seen.foreign {
        Some((tensor, kind)) => {
            let name = FOREIGN.iter().find(|(number, _)| *number == kind);
            Err(Error::Config {
                path: path.into(),
                field: format!("{tensor}.type"),
                expected: "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, or Q2_K to Q8_K".into(),
                found: name.map_or_else(|| format!("the type {kind}"), |(_, name)| (*name).to_owned()),
            })
        }
        None => Ok(()),
    }
}

/// The numbers of the types that can be read.
const KNOWN: [u64; 15] = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 30];

/// The names of other types, by their numbers.
const FOREIGN: [(u64, &str); 18] = [
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

/// What a head says of the layout of tensors.
#[derive(Default)]
struct Seen {
    /// The number of `general.alignment`.
    alignment: Option<u64>,
    /// The first tensor of a type that cannot be read, and the type's number.
    foreign: Option<(String, u64)>,
}

impl Seen {
    fn read(&mut self, file: &mut (impl Read + Seek)) -> std::io::Result<()> {
        let mut head = [0; 8];
        file.read_exact(&mut head)?;
        // Version 1 counts in 32 bits.
        let width = if u32::from_le_bytes([head[4], head[5], head[6], head[7]]) == 1 { 4 } else { 8 };
        let tensors = number(file, width)?;
        for _ in 0..number(file, width)? {
            let key = name(file, width)?;
            let kind = number(file, 4)?;
            match scalar(kind) {
                Some(size) if key == b"general.alignment" => self.alignment = Some(number(file, size)?),
                _ => skip(file, kind, width, 0)?,
            }
        }
        for _ in 0..tensors {
            let tensor = name(file, width)?;
            for _ in 0..number(file, 4)? {
                let _size = number(file, width)?;
            }
            let kind = number(file, 4)?;
            let _offset = number(file, 8)?;
            if !KNOWN.contains(&kind) {
                self.foreign = Some((String::from_utf8_lossy(&tensor).into_owned(), kind));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A name after its length.
fn name(file: &mut impl Read, width: usize) -> std::io::Result<Vec<u8>> {
    let length = number(file, width)?;
    if length > LONGEST {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut name = vec![0; length as usize];
    file.read_exact(&mut name)?;
    Ok(name)
}

/// An unsigned little-endian number of `width` bytes.
fn number(file: &mut impl Read, width: usize) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes[..width])?;
    Ok(u64::from_le_bytes(bytes))
}

/// The bytes of a value of a fixed size.
fn scalar(kind: u64) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Skips a value.
fn skip(file: &mut (impl Read + Seek), kind: u64, width: usize, depth: u32) -> std::io::Result<()> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let past = |file: &mut dyn Seek, bytes: Option<u64>| {
        let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(invalid)?;
        file.seek_relative(bytes)
    };
    match (kind, scalar(kind)) {
        (_, Some(size)) => past(file, Some(size as u64)),
        (8, _) => {
            let length = number(file, width)?;
            past(file, Some(length))
        }
        (9, _) if depth < DEEPEST => {
            let (kind, count) = (number(file, 4)?, number(file, width)?);
            match scalar(kind) {
                Some(size) => past(file, count.checked_mul(size as u64)),
                None => (0..count).try_for_each(|_| skip(file, kind, width, depth + 1)),
            }
        }
        _ => Err(invalid()),
    }
}
