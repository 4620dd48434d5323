//! `tojson` of chat templates: Python's `json.dumps` without escapes of non-ASCII characters.

use std::io::{self, Write};

use minijinja::{
    Error, ErrorKind,
    value::{Kwargs, Value},
};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The filter, with Python's arguments `ensure_ascii`, `indent`, `separators` and `sort_keys`.
///
/// # Errors
/// For a value that JSON cannot hold, and for arguments of another type.
pub(super) fn to_json(value: Value, arguments: Kwargs) -> Result<String, Error> {
    let wrong = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let indent: Option<usize> = arguments.get("indent")?;
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let sort_keys: Option<bool> = arguments.get("sort_keys")?;
    if arguments.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        let message = "tojson: expected ensure_ascii=false, found true";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    arguments.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            let message = "tojson: expected two separators";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    let mut value = serde_json::to_value(&value).map_err(wrong)?;
    if sort_keys == Some(true) {
        value.sort_all_objects();
    }
    let mut bytes = Vec::new();
    let layout = Layout { item, key, indent, depth: 0, has_items: false };
    value.serialize(&mut Serializer::with_formatter(&mut bytes, layout)).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Where Python puts spaces and line breaks.
struct Layout {
    item: String,
    key: String,
    indent: Option<usize>,
    depth: usize,
    /// Whether the array or object opened last has items.
    has_items: bool,
}

impl Layout {
    fn break_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        writer.write_all(format!("\n{}", " ".repeat(indent * self.depth)).as_bytes())
    }

    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.break_line(writer)?;
        }
        self.has_items = true;
        writer.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.has_items = true;
        self.break_line(writer)
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }
}
