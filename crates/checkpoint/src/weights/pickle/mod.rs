//! The pickle of a PyTorch file, read as data.
//!
//! A pickle is a program for a stack machine, which can call whatever it names. This machine knows the
//! instructions of protocol 2 that `torch.save` writes for tensors, and the few names that it writes for them.
//! These names are never looked up: they describe the layout of a tensor in its storage. Any other name or instruction is an
//! error. Values are kept in tables and refer to each other by number, so nesting costs no stack and the
//! result of a pickle is at most a small multiple of its size.

mod machine;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use safetensors::Dtype;

use machine::{Machine, Value};

/// An error in a pickle, with its position.
#[derive(Debug)]
pub(super) struct Fault {
    /// The offset of the instruction in the pickle.
    pub(super) at: usize,
    /// The expected content.
    pub(super) expected: String,
    /// The found content.
    pub(super) found: String,
}

/// A run of bytes that tensors share.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    /// The name of the record that holds it.
    pub(super) key: String,
    /// The type of its elements.
    pub(super) dtype: Dtype,
    /// The number of its elements.
    pub(super) count: usize,
}

/// A tensor, as a view of a storage; everything is counted in elements.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The index of the storage.
    pub(super) storage: usize,
    /// The first element.
    pub(super) offset: usize,
    /// The shape.
    pub(super) shape: Vec<usize>,
    /// The distance from one index of a dimension to the next.
    pub(super) strides: Vec<usize>,
}

/// A pickled dictionary of tensors.
#[derive(Debug)]
pub(super) struct StateDict {
    /// The storages, by number.
    pub(super) storages: Vec<Storage>,
    /// The tensors, in the order of the pickle.
    pub(super) tensors: Vec<(String, View)>,
}

/// Reads a pickle whose value is a dictionary of tensors, and the number of bytes that it takes. Where a trainer has saved
/// more than a model, the model's tensors are a dictionary under `model` there, or under `model_dict` by DPR's code.
pub(super) fn state_dict(bytes: &[u8]) -> Result<(StateDict, usize), Fault> {
    let mut machine = Machine::new(bytes);
    let value = machine.run()?;
    let end = machine.at;
    let Value::Dict(dict) = value else {
        return Err(machine.fault("a dictionary of tensors", machine.describe(value)));
    };
    let mut dict = dict;
    for &(key, value) in &machine.dicts[dict] {
        if let (Value::Text(start, end), Value::Dict(inner)) = (key, value)
            && ["model", "model_dict"].contains(&machine.text(start, end)?)
        {
            dict = inner;
        }
    }
    let mut tensors = Vec::new();
    let mut seen = HashSet::new();
    for &(key, value) in &machine.dicts[dict] {
        let name = match key {
            Value::Text(start, end) => machine.text(start, end)?,
            other => return Err(machine.fault("a name for each tensor", machine.describe(other))),
        };
        let Value::Tensor(view) = value else {
            return Err(machine.fault(&format!("a tensor as `{name}`"), machine.describe(value)));
        };
        // Names that differ stand apart in the file, so together they are no longer than it.
        if !seen.insert(name) {
            return Err(machine.fault("each name once", format!("`{name}` twice")));
        }
        tensors.push((name.to_owned(), machine.views[view].clone()));
    }
    Ok((StateDict { storages: machine.storages, tensors }, end))
}

/// Reads a pickle of plain values, and returns the number of bytes that it takes.
pub(super) fn skip(bytes: &[u8]) -> Result<usize, Fault> {
    let mut machine = Machine::new(bytes);
    machine.run()?;
    Ok(machine.at)
}

/// Reads a pickled list of texts, and the number of bytes that it takes.
pub(super) fn texts(bytes: &[u8]) -> Result<(Vec<String>, usize), Fault> {
    let mut machine = Machine::new(bytes);
    let value = machine.run()?;
    let Value::List(list) = value else {
        return Err(machine.fault("a list of names", machine.describe(value)));
    };
    let mut texts = Vec::new();
    let mut seen = HashSet::new();
    for &item in &machine.lists[list] {
        let Value::Text(start, end) = item else {
            return Err(machine.fault("a list of names", machine.describe(item)));
        };
        let text = machine.text(start, end)?;
        if !seen.insert(text) {
            return Err(machine.fault("each name once", format!("`{text}` twice")));
        }
        texts.push(text.to_owned());
    }
    Ok((texts, machine.at))
}

/// The names that a pickle of tensors may use.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Global {
    /// `collections.OrderedDict`
    OrderedDict,
    /// `torch._utils._rebuild_tensor` (storage, offset, shape, strides)
    Tensor,
    /// `torch._utils._rebuild_tensor_v2` (the same, requires_grad, hooks)
    TensorV2,
    /// `torch._utils._rebuild_parameter` (tensor, requires_grad, hooks)
    Parameter,
    /// `torch.FloatStorage` and its like
    Storage(Dtype),
}

impl Global {
    fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch._utils", "_rebuild_tensor") => Self::Tensor,
            ("torch._utils", "_rebuild_tensor_v2") => Self::TensorV2,
            ("torch._utils", "_rebuild_parameter") => Self::Parameter,
            ("torch", storage) => Self::Storage(match storage {
                "DoubleStorage" => Dtype::F64,
                "FloatStorage" => Dtype::F32,
                "HalfStorage" => Dtype::F16,
                "BFloat16Storage" => Dtype::BF16,
                "LongStorage" => Dtype::I64,
                "IntStorage" => Dtype::I32,
                "ShortStorage" => Dtype::I16,
                "CharStorage" => Dtype::I8,
                "ByteStorage" => Dtype::U8,
                "BoolStorage" => Dtype::BOOL,
                _ => return None,
            }),
            _ => return None,
        })
    }
}
