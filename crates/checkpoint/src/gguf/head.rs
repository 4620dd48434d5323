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
    check_alignment(path, &mut file)?;
    let content = Content::read(&mut file).map_err(|source| Error::Gguf { path: path.into(), source })?;
    Ok((content, file))
}

/// The greatest depth of lists in lists, and the greatest length of a name, that are looked into.
const DEEPEST: u32 = 8;
const LONGEST: u64 = 1 << 16;

/// Checks that tensors are laid out in steps of at least a byte, which the reader of the head assumes, and seeks back to
/// the beginning. That reader reports other errors.
fn check_alignment(path: &Path, file: &mut BufReader<File>) -> Result<()> {
    let alignment = alignment(file).unwrap_or(None);
    file.rewind().map_err(Error::io(path, "read"))?;
    match alignment {
        Some(0) => Err(Error::Config {
            path: path.into(),
            field: "general.alignment".into(),
            expected: "at least 1".into(),
            found: "0".into(),
        }),
        _ => Ok(()),
    }
}

/// The number of `general.alignment`, where the head has it.
fn alignment(file: &mut (impl Read + Seek)) -> std::io::Result<Option<u64>> {
    let mut head = [0; 8];
    file.read_exact(&mut head)?;
    // Version 1 counts in 32 bits.
    let width = if u32::from_le_bytes([head[4], head[5], head[6], head[7]]) == 1 { 4 } else { 8 };
    let _tensors = number(file, width)?;
    for _ in 0..number(file, width)? {
        let length = number(file, width)?;
        if length > LONGEST {
            return Ok(None);
        }
        let mut key = vec![0; length as usize];
        file.read_exact(&mut key)?;
        let kind = number(file, 4)?;
        if key == b"general.alignment" {
            let size = scalar(kind).unwrap_or(0);
            return if size == 0 { Ok(None) } else { number(file, size).map(Some) };
        }
        skip(file, kind, width, 0)?;
    }
    Ok(None)
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
