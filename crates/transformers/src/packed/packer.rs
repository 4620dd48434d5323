//! Reads the tensors of a checkpoint and packs them.

use std::ops::Range;

use sporran_checkpoint::Result;
use sporran_kernels::{Norm, Precision, Table};

use super::{kv_cache::Heads, layers::Linear, weights::StoredWeights};

/// Reads the weights of a tensor by its name. Each tensor is read once, and dropped when it is packed.
pub(super) type Read<'a> = &'a mut dyn FnMut(&str) -> Result<StoredWeights<'a>>;

/// Where the weights come from and how they are kept.
pub(super) struct Packer<'a> {
    pub(super) read: Read<'a>,
    pub(super) precision: Precision,
}

impl Packer<'_> {
    /// The values of a tensor in f32.
    pub(super) fn values(&mut self, name: &str) -> Result<Vec<f32>> {
        Ok((self.read)(name)?.values())
    }

    /// A table of rows of `width` values.
    pub(super) fn table(&mut self, name: &str, width: usize) -> Result<Table> {
        Ok((self.read)(name)?.table(width))
    }

    /// One layer from those called `names`, one under the other.
    pub(super) fn linear(&mut self, names: &[String], inputs: usize, bias: bool) -> Result<Linear> {
        let blocks: Result<Vec<StoredWeights<'_>>> =
            names.iter().map(|name| (self.read)(&format!("{name}.weight"))).collect();
        let matrix = StoredWeights::pack(&blocks?, inputs, self.precision);
        if !bias {
            return Ok(Linear { matrix, bias: None });
        }
        let mut values = Vec::with_capacity(matrix.outputs());
        for name in names {
            values.extend(self.values(&format!("{name}.bias"))?);
        }
        Ok(Linear { matrix, bias: Some(values) })
    }

    /// One layer from those called `names`, one under the other, each of which has outputs in groups that read a group of inputs
    /// alone.
    pub(super) fn grouped(&mut self, names: &[(String, usize)], inputs: usize) -> Result<Linear> {
        let (mut blocks, mut bias) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, groups) in names {
            let stored = self.values(&format!("{name}.weight"))?;
            let width = inputs / groups;
            let outputs = stored.len() / width;
            let mut dense = vec![0.0; outputs * inputs];
            for (row, own) in stored.chunks_exact(width).enumerate() {
                let group = row / (outputs / groups);
                dense[row * inputs + group * width..][..width].copy_from_slice(own);
            }
            blocks.push(StoredWeights::of_values(&dense));
            bias.extend(self.values(&format!("{name}.bias"))?);
        }
        Ok(Linear { matrix: StoredWeights::pack(&blocks, inputs, self.precision), bias: Some(bias) })
    }

    /// Two layers of `outputs` each from one tensor, in which one lies under the other.
    pub(super) fn halves(
        &mut self,
        name: &str,
        (inputs, outputs): (usize, usize),
        has_bias: bool,
    ) -> Result<[Linear; 2]> {
        let weight = (self.read)(&format!("{name}.weight"))?;
        let [upper, lower] = weight.pack_halves(inputs, self.precision);
        let mut bias = if has_bias { Some(self.values(&format!("{name}.bias"))?) } else { None };
        let second = bias.as_mut().map(|bias| bias.split_off(outputs));
        Ok([Linear { matrix: upper, bias }, Linear { matrix: lower, bias: second }])
    }

    /// Layer `at` of `count`, whose rows lie one under the other in one tensor.
    pub(super) fn block(&mut self, name: &str, inputs: usize, place: (usize, usize)) -> Result<Linear> {
        let weight = (self.read)(name)?;
        Ok(Linear { matrix: weight.pack_block(inputs, place, self.precision), bias: None })
    }

    /// For each of `count` blocks of one tensor, `step` layers that it has as columns, with biases in another tensor: the first
    /// layer has every column at a multiple of `step`, the next one those after these. The tensor is read once.
    pub(super) fn columns(
        &mut self,
        name: &str,
        inputs: usize,
        count: usize,
        step: usize,
    ) -> Result<Vec<Vec<Linear>>> {
        let biases = self.values(&format!("{name}_bias"))?;
        let size = biases.len() / count;
        let weight = (self.read)(name)?;
        let layer = |at: usize, first: usize| {
            let matrix = weight.pack_columns(inputs, (at, count), (first, step), self.precision);
            let own = biases[at * size..][..size].iter().skip(first).step_by(step).copied().collect();
            Linear { matrix, bias: Some(own) }
        };
        Ok((0..count).map(|at| (0..step).map(|first| layer(at, first)).collect()).collect())
    }

    /// A layer from blocks of outputs, which one tensor has at these places.
    pub(super) fn placed(
        &mut self,
        name: &str,
        inputs: usize,
        places: &[usize],
        has_bias: bool,
    ) -> Result<Linear> {
        let weight = (self.read)(&format!("{name}.weight"))?;
        let matrix = weight.pack_places(inputs, places, self.precision);
        if !has_bias {
            return Ok(Linear { matrix, bias: None });
        }
        let values = self.values(&format!("{name}.bias"))?;
        let size = values.len() / places.len();
        let bias = places.iter().flat_map(|place| &values[place * size..][..size]).copied().collect();
        Ok(Linear { matrix, bias: Some(bias) })
    }

    /// Layers from ranges of the outputs of one tensor.
    pub(super) fn parts<const COUNT: usize>(
        &mut self,
        name: &str,
        inputs: usize,
        parts: [(&[Range<usize>], Precision); COUNT],
        has_bias: bool,
    ) -> Result<[Linear; COUNT]> {
        let weight = (self.read)(&format!("{name}.weight"))?;
        let bias = if has_bias { Some(self.values(&format!("{name}.bias"))?) } else { None };
        Ok(parts.map(|(ranges, precision)| Linear {
            matrix: StoredWeights::pack_ranges(&[(&weight, ranges)], inputs, precision),
            bias: bias.as_deref().map(|bias| picked(bias, ranges)),
        }))
    }

    /// Queries, keys and values as one layer, and as another the gates, each of which lies after the query of its head.
    pub(super) fn gated(
        &mut self,
        names: [String; 3],
        inputs: usize,
        Heads { heads, groups, width }: Heads,
        has_bias: bool,
    ) -> Result<[Linear; 2]> {
        let half = |which: usize| -> Vec<Range<usize>> {
            let start = |head: usize| (2 * head + which) * width;
            (0..heads).map(|head| start(head)..start(head) + width).collect()
        };
        let (queries, gates, others) = (half(0), half(1), 0..groups * width);
        let others = std::slice::from_ref(&others);
        let [query, key, value] = names.each_ref().map(|name| format!("{name}.weight"));
        let [query, key, value] = [(self.read)(&query)?, (self.read)(&key)?, (self.read)(&value)?];
        let all = [(&query, &queries[..]), (&key, others), (&value, others)];
        let inner = StoredWeights::pack_ranges(&all, inputs, self.precision);
        let gate = StoredWeights::pack_ranges(&[(&query, &gates)], inputs, self.precision);
        if !has_bias {
            return Ok([Linear { matrix: inner, bias: None }, Linear { matrix: gate, bias: None }]);
        }
        let [query, key, value] = names.map(|name| format!("{name}.bias"));
        let query = self.values(&query)?;
        let biases = [picked(&query, &queries), self.values(&key)?, self.values(&value)?].concat();
        let gates = picked(&query, &gates);
        Ok([Linear { matrix: inner, bias: Some(biases) }, Linear { matrix: gate, bias: Some(gates) }])
    }

    /// The head that scores words, and the table of their embeddings where it is another one than the head's. They come
    /// first.
    pub(super) fn words(
        &mut self,
        table: &str,
        head: Option<&str>,
        width: usize,
    ) -> Result<(Linear, Option<Table>)> {
        let packed = self.linear(&[head.unwrap_or(table).into()], width, false)?;
        let embeddings = head.map(|_| self.table(&format!("{table}.weight"), width)).transpose()?;
        Ok((packed, embeddings))
    }

    pub(super) fn norm(&mut self, name: &str, bias: bool, eps: f64) -> Result<Norm> {
        let weight = self.values(&format!("{name}.weight"))?;
        let bias = if bias { Some(self.values(&format!("{name}.bias"))?) } else { None };
        Ok(Norm { weight, bias, eps: eps as f32 })
    }
}

/// The values in these ranges, one after the other.
fn picked(values: &[f32], ranges: &[Range<usize>]) -> Vec<f32> {
    ranges.iter().flat_map(|range| &values[range.clone()]).copied().collect()
}

pub(super) fn named(prefix: &str, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{prefix}.{name}")).collect()
}
