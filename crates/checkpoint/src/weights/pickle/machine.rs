//! The stack machine that runs a pickle, without the instructions that call functions.

use std::collections::HashMap;

use super::{Fault, Global, Storage, View};

/// The most dimensions of a tensor.
const MAX_RANK: usize = 16;

/// A value; the numbers are places in the machine's tables, and texts are ranges of the pickle.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    Float,
    Text(usize, usize),
    Global(Global),
    Tuple(usize),
    List(usize),
    Dict(usize),
    Storage(usize),
    Tensor(usize),
}

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    pub(super) at: usize,
    /// The offset of the instruction that is being done.
    start: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    tuples: Vec<Vec<Value>>,
    pub(super) lists: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Vec<(Value, Value)>>,
    pub(super) storages: Vec<Storage>,
    /// The storages by their keys.
    keys: HashMap<&'a str, usize>,
    pub(super) views: Vec<View>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            start: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            tuples: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            storages: Vec::new(),
            keys: HashMap::new(),
            views: Vec::new(),
        }
    }

    /// Runs to the end instruction, and returns the remaining value.
    pub(super) fn run(&mut self) -> Result<Value, Fault> {
        loop {
            self.start = self.at;
            let [code] = self.take::<1>()?;
            match code {
                0x80 => {
                    let [version] = self.take()?;
                    if version != 2 {
                        return Err(self.fault("protocol 2", format!("protocol {version}")));
                    }
                }
                b'.' => return self.pop(),
                b'N' => self.stack.push(Value::None),
                0x88 | 0x89 => self.stack.push(Value::Bool),
                b'K' => {
                    let [value] = self.take()?;
                    self.stack.push(Value::Int(value.into()));
                }
                b'M' => {
                    let value = u16::from_le_bytes(self.take()?);
                    self.stack.push(Value::Int(value.into()));
                }
                b'J' => {
                    let value = i32::from_le_bytes(self.take()?);
                    self.stack.push(Value::Int(value.into()));
                }
                0x8a => self.long()?,
                b'G' => {
                    self.take::<8>()?;
                    self.stack.push(Value::Float);
                }
                b'X' => {
                    let length = u32::from_le_bytes(self.take()?) as usize;
                    let (start, end) = self.range(length)?;
                    self.text(start, end)?;
                    self.stack.push(Value::Text(start, end));
                }
                b'c' => self.global()?,
                b'(' => self.marks.push(self.stack.len()),
                b')' => self.tuple(Vec::new()),
                0x85..=0x87 => {
                    let count = usize::from(code - 0x84);
                    let first = self.stack.len().checked_sub(count).filter(|first| *first >= self.floor());
                    let Some(first) = first else {
                        return Err(self.fault("values for a tuple", "too few"));
                    };
                    let items = self.stack.split_off(first);
                    self.tuple(items);
                }
                b't' => {
                    let items = self.pop_to_mark()?;
                    self.tuple(items);
                }
                b']' => {
                    self.stack.push(Value::List(self.lists.len()));
                    self.lists.push(Vec::new());
                }
                b'a' => {
                    let item = self.pop()?;
                    let list = self.top_list()?;
                    self.lists[list].push(item);
                }
                b'e' => {
                    let items = self.pop_to_mark()?;
                    let list = self.top_list()?;
                    self.lists[list].extend(items);
                }
                b'}' => self.empty_dict(),
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    let dict = self.top_dict()?;
                    self.dicts[dict].push((key, value));
                }
                b'u' => {
                    let items = self.pop_to_mark()?;
                    let dict = self.top_dict()?;
                    let (pairs, rest) = items.as_chunks::<2>();
                    if !rest.is_empty() {
                        return Err(self.fault("keys with values", "a key without a value"));
                    }
                    self.dicts[dict].extend(pairs.iter().map(|&[key, value]| (key, value)));
                }
                b'q' => {
                    let [place] = self.take()?;
                    self.keep(place.into())?;
                }
                b'r' => {
                    let place = u32::from_le_bytes(self.take()?);
                    self.keep(place)?;
                }
                b'h' => {
                    let [place] = self.take()?;
                    self.recall(place.into())?;
                }
                b'j' => {
                    let place = u32::from_le_bytes(self.take()?);
                    self.recall(place)?;
                }
                b'Q' => self.persistent()?,
                b'R' => self.reduce()?,
                b'b' => {
                    // The attributes of an ordered dictionary: a state dictionary's versions, which nothing needs.
                    self.pop()?;
                    self.top_dict()?;
                }
                other => {
                    return Err(self.fault("an instruction that tensors need", format!("{other:#04x}")));
                }
            }
        }
    }

    pub(super) fn fault(&self, expected: &str, found: impl Into<String>) -> Fault {
        Fault { at: self.start, expected: expected.into(), found: found.into() }
    }

    pub(super) fn describe(&self, value: Value) -> String {
        match value {
            Value::None => "none".into(),
            Value::Bool => "a truth value".into(),
            Value::Int(value) => value.to_string(),
            Value::Float => "a number".into(),
            Value::Text(start, end) => {
                let text = self.text(start, end).unwrap_or_default();
                format!("the text `{}`", text.chars().take(80).collect::<String>())
            }
            Value::Global(_) => "a name".into(),
            Value::Tuple(_) => "a tuple".into(),
            Value::List(_) => "a list".into(),
            Value::Dict(_) => "a dictionary".into(),
            Value::Storage(_) => "a storage".into(),
            Value::Tensor(_) => "a tensor".into(),
        }
    }

    fn range(&mut self, length: usize) -> Result<(usize, usize), Fault> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.fault(&format!("{length} more bytes"), "the end"));
        };
        let start = self.at;
        self.at = end;
        Ok((start, end))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (start, _) = self.range(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[start..start + N]);
        Ok(bytes)
    }

    pub(super) fn text(&self, start: usize, end: usize) -> Result<&'a str, Fault> {
        std::str::from_utf8(&self.bytes[start..end]).map_err(|_| self.fault("text in UTF-8", "other bytes"))
    }

    /// Values below the last mark are not those of this part of the program.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        if self.stack.len() <= self.floor() {
            return Err(self.fault("a value on the stack", "none"));
        }
        self.stack.pop().ok_or_else(|| self.fault("a value on the stack", "none"))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Fault> {
        let mark = self.marks.pop().ok_or_else(|| self.fault("a mark on the stack", "none"))?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&self) -> Result<Value, Fault> {
        let top = self.stack.get(self.floor()..).and_then(<[Value]>::last);
        top.copied().ok_or_else(|| self.fault("a value on the stack", "none"))
    }

    fn top_list(&self) -> Result<usize, Fault> {
        match self.top()? {
            Value::List(list) => Ok(list),
            other => Err(self.fault("a list", self.describe(other))),
        }
    }

    fn top_dict(&self) -> Result<usize, Fault> {
        match self.top()? {
            Value::Dict(dict) => Ok(dict),
            other => Err(self.fault("a dictionary", self.describe(other))),
        }
    }

    fn tuple(&mut self, items: Vec<Value>) {
        self.stack.push(Value::Tuple(self.tuples.len()));
        self.tuples.push(items);
    }

    fn empty_dict(&mut self) {
        self.stack.push(Value::Dict(self.dicts.len()));
        self.dicts.push(Vec::new());
    }

    fn keep(&mut self, place: u32) -> Result<(), Fault> {
        let top = self.top()?;
        self.memo.insert(place, top);
        Ok(())
    }

    fn recall(&mut self, place: u32) -> Result<(), Fault> {
        let value = self.memo.get(&place).copied();
        let value = value.ok_or_else(|| self.fault("a value that was kept", format!("none at {place}")))?;
        self.stack.push(value);
        Ok(())
    }

    /// A whole number of up to eight bytes.
    fn long(&mut self) -> Result<(), Fault> {
        let [length] = self.take()?;
        let (start, end) = self.range(length.into())?;
        let digits = &self.bytes[start..end];
        if digits.len() > 8 {
            return Err(self.fault("a number of at most 8 bytes", format!("{length}")));
        }
        let fill = if digits.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut bytes = [fill; 8];
        bytes[..digits.len()].copy_from_slice(digits);
        self.stack.push(Value::Int(i64::from_le_bytes(bytes)));
        Ok(())
    }

    fn line(&mut self) -> Result<&'a str, Fault> {
        let rest = &self.bytes[self.at..];
        let length = memchr::memchr(b'\n', rest).ok_or_else(|| self.fault("a line", "the end"))?;
        let start = self.at;
        self.at += length + 1;
        self.text(start, start + length)
    }

    fn global(&mut self) -> Result<(), Fault> {
        let (module, name) = (self.line()?, self.line()?);
        let global = Global::named(module, name).ok_or_else(|| {
            let shown: String = format!("{module}.{name}").chars().take(120).collect();
            self.fault("a name that tensors need", format!("`{shown}`, which is not called"))
        })?;
        self.stack.push(Value::Global(global));
        Ok(())
    }

    /// `('storage', type, key, device, count)`, and in older files a view, which must be none.
    fn persistent(&mut self) -> Result<(), Fault> {
        let id = self.pop()?;
        let items: Option<&[Value]> = match id {
            Value::Tuple(tuple) => Some(&self.tuples[tuple]),
            _ => None,
        };
        let Some(
            &[
                Value::Text(tag, tag_end),
                Value::Global(Global::Storage(dtype)),
                Value::Text(start, end),
                _,
                Value::Int(count),
                ref rest @ ..,
            ],
        ) = items
        else {
            return Err(self.fault("the description of a storage", self.describe(id)));
        };
        if !matches!(rest, [] | [Value::None]) {
            return Err(self.fault("a whole storage", "a view of another"));
        }
        let tag = self.text(tag, tag_end)?;
        let key = self.text(start, end)?;
        let count = usize::try_from(count).ok().filter(|_| tag == "storage");
        let count = count.ok_or_else(|| self.fault("the description of a storage", format!("`{tag}`")))?;
        let storage = match self.keys.get(key) {
            Some(&storage) => {
                let known = &self.storages[storage];
                if known.dtype != dtype || known.count != count {
                    return Err(self.fault(&format!("one description of storage `{key}`"), "two"));
                }
                storage
            }
            None => {
                self.storages.push(Storage { key: key.into(), dtype, count });
                self.keys.insert(key, self.storages.len() - 1);
                self.storages.len() - 1
            }
        };
        self.stack.push(Value::Storage(storage));
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), Fault> {
        let arguments = self.pop()?;
        let callee = self.pop()?;
        let (Value::Global(global), Value::Tuple(tuple)) = (callee, arguments) else {
            let found = format!("{} with {}", self.describe(callee), self.describe(arguments));
            return Err(self.fault("a name that tensors need, and its arguments", found));
        };
        match (global, self.tuples[tuple].as_slice()) {
            (Global::OrderedDict, []) => self.empty_dict(),
            (Global::Tensor, &[Value::Storage(storage), Value::Int(offset), shape, strides])
            | (Global::TensorV2, &[Value::Storage(storage), Value::Int(offset), shape, strides, _, _]) => {
                let view = self.view(storage, offset, shape, strides)?;
                self.stack.push(Value::Tensor(self.views.len()));
                self.views.push(view);
            }
            (Global::Parameter, &[tensor @ Value::Tensor(_), _, _]) => self.stack.push(tensor),
            (_, arguments) => {
                let found = format!("{} others", arguments.len());
                return Err(self.fault(&format!("the arguments of {global:?}"), found));
            }
        }
        Ok(())
    }

    /// A view, checked to be inside its storage.
    fn view(&self, storage: usize, offset: i64, shape: Value, strides: Value) -> Result<View, Fault> {
        let (shape, strides) = (self.sizes(shape)?, self.sizes(strides)?);
        let count = self.storages[storage].count;
        let offset = usize::try_from(offset).ok();
        let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let end = std::iter::zip(&shape, &strides).try_fold(offset.unwrap_or(0), |end, (&size, &stride)| {
            size.saturating_sub(1).checked_mul(stride).and_then(|far| far.checked_add(end))
        });
        match (offset, elements, end) {
            (Some(offset), Some(elements), Some(end))
                if shape.len() == strides.len()
                    && offset <= count
                    && elements <= count
                    && (elements == 0 || end < count) =>
            {
                Ok(View { storage, offset, shape, strides })
            }
            _ => Err(self.fault(
                &format!("a tensor inside a storage of {count} elements"),
                format!("shape {shape:?} with strides {strides:?}"),
            )),
        }
    }

    fn sizes(&self, value: Value) -> Result<Vec<usize>, Fault> {
        let Value::Tuple(tuple) = value else {
            return Err(self.fault("a tuple of sizes", self.describe(value)));
        };
        let items = &self.tuples[tuple];
        if items.len() > MAX_RANK {
            return Err(self.fault(&format!("at most {MAX_RANK} dimensions"), items.len().to_string()));
        }
        let size = |item: &Value| match *item {
            Value::Int(size) => usize::try_from(size).map_err(|_| self.fault("a size", size.to_string())),
            other => Err(self.fault("a size", self.describe(other))),
        };
        items.iter().map(size).collect()
    }
}
