//! Weights as their file stores them, before they are packed.

use std::ops::Range;

use candle_core::{DType, quantized::GgmlDType};
use sporran_checkpoint::{MappedBytes, RawTensor};
use sporran_kernels::{Coding, Matrix, Precision, Stored, Table};

/// The weights of a tensor in the coding of its file.
pub(crate) struct StoredWeights<'a> {
    coding: Coding,
    bytes: MappedBytes<'a>,
}

/// The bytes of a table that are copied before their pages are released.
const TOGETHER: usize = 4 << 20;

impl<'a> StoredWeights<'a> {
    /// The weights that `bytes` are.
    pub(crate) fn new(coding: Coding, bytes: MappedBytes<'a>) -> Self {
        Self { coding, bytes }
    }

    /// Weights in f32.
    pub(crate) fn of_values(values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(Coding::F32, bytes.into())
    }

    /// Packs the rows of `inputs` weights of all `blocks`, one under the other.
    pub(super) fn pack(blocks: &[Self], inputs: usize, precision: Precision) -> Matrix {
        let releases: Vec<_> =
            blocks.iter().map(|block| move |part: &[u8]| block.bytes.release(part)).collect();
        let stored: Vec<Stored<'_>> = blocks
            .iter()
            .zip(&releases)
            .map(|(block, release)| Stored::new(block.coding, &block.bytes, inputs).releasing(release))
            .collect();
        Matrix::pack_stored(&stored, inputs, precision)
    }

    /// Packs the upper and the lower half of the rows of `inputs` weights.
    pub(super) fn pack_halves(&self, inputs: usize, precision: Precision) -> [Matrix; 2] {
        let (upper, lower) = self.bytes.split_at(self.bytes.len() / 2);
        [upper, lower].map(|bytes| {
            let release = |part: &[u8]| self.bytes.release(part);
            let stored = Stored::new(self.coding, bytes, inputs).releasing(&release);
            Matrix::pack_stored(&[stored], inputs, precision)
        })
    }

    /// Packs block `at` of `count` equal blocks of rows of `inputs` weights.
    pub(super) fn pack_block(
        &self,
        inputs: usize,
        (at, count): (usize, usize),
        precision: Precision,
    ) -> Matrix {
        let size = self.bytes.len() / count;
        let release = |part: &[u8]| self.bytes.release(part);
        let stored = Stored::new(self.coding, &self.bytes[at * size..][..size], inputs).releasing(&release);
        Matrix::pack_stored(&[stored], inputs, precision)
    }

    /// Packs columns of block `at` of `count` equal blocks of `inputs` rows, as rows: every column at a multiple of `step` after
    /// `first`. The weights are plain numbers.
    pub(super) fn pack_columns(
        &self,
        inputs: usize,
        (at, count): (usize, usize),
        (first, step): (usize, usize),
        precision: Precision,
    ) -> Matrix {
        let (weights, size) = self.coding.block();
        let size = size / weights;
        let block = &self.bytes[self.bytes.len() / count * at..][..self.bytes.len() / count];
        let row = block.len() / inputs;
        let mut turned = Vec::with_capacity(block.len() / step);
        for column in (first..row / size).step_by(step) {
            for start in (column * size..block.len()).step_by(row) {
                turned.extend_from_slice(&block[start..start + size]);
            }
        }
        self.bytes.release(block);
        Matrix::pack_stored(&[Stored::new(self.coding, &turned, inputs)], inputs, precision)
    }

    /// Packs blocks of rows of `inputs` weights, which are at these places.
    pub(super) fn pack_places(&self, inputs: usize, places: &[usize], precision: Precision) -> Matrix {
        let size = self.bytes.len() / places.len();
        let release = |part: &[u8]| self.bytes.release(part);
        let stored: Vec<Stored<'_>> = places
            .iter()
            .map(|place| {
                let bytes = &self.bytes[place * size..][..size];
                Stored::new(self.coding, bytes, inputs).releasing(&release)
            })
            .collect();
        Matrix::pack_stored(&stored, inputs, precision)
    }

    /// Packs ranges of rows of `inputs` weights, of one tensor after the other.
    pub(super) fn pack_ranges(
        parts: &[(&Self, &[Range<usize>])],
        inputs: usize,
        precision: Precision,
    ) -> Matrix {
        let releases: Vec<_> =
            parts.iter().map(|(stored, _)| move |part: &[u8]| stored.bytes.release(part)).collect();
        let mut all = Vec::new();
        for ((stored, ranges), release) in parts.iter().zip(&releases) {
            let (weights, size) = stored.coding.block();
            let row = inputs / weights * size;
            all.extend(ranges.iter().map(|rows| {
                let bytes = &stored.bytes[rows.start * row..rows.end * row];
                Stored::new(stored.coding, bytes, inputs).releasing(release)
            }));
        }
        Matrix::pack_stored(&all, inputs, precision)
    }

    /// The weights in f32.
    pub(crate) fn values(&self) -> Vec<f32> {
        let (weights, size) = self.coding.block();
        let mut values = vec![0.0; self.bytes.len() / size * weights];
        self.coding.decode(&self.bytes, &mut values);
        values
    }

    /// A table of rows of `width` weights.
    pub(super) fn table(&self, width: usize) -> Table {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for part in self.bytes.chunks(TOGETHER) {
            bytes.extend_from_slice(part);
            self.bytes.release(part);
        }
        Table::new(self.coding, bytes, width)
    }
}

impl<'a> From<RawTensor<'a>> for StoredWeights<'a> {
    fn from(raw: RawTensor<'a>) -> Self {
        let coding = match raw.dtype {
            DType::F16 => Coding::F16,
            DType::BF16 => Coding::Bf16,
            _ => Coding::F32,
        };
        Self::new(coding, raw.bytes)
    }
}

/// The coding of a tensor of a GGUF file; none if panels do not have it.
pub(crate) fn coding_of(kind: GgmlDType) -> Option<Coding> {
    Some(match kind {
        GgmlDType::F32 => Coding::F32,
        GgmlDType::F16 => Coding::F16,
        GgmlDType::BF16 => Coding::Bf16,
        GgmlDType::Q4_0 => Coding::Q4_0,
        GgmlDType::Q4_1 => Coding::Q4_1,
        GgmlDType::Q5_0 => Coding::Q5_0,
        GgmlDType::Q5_1 => Coding::Q5_1,
        GgmlDType::Q8_0 => Coding::Q8_0,
        GgmlDType::Q2K => Coding::Q2K,
        GgmlDType::Q3K => Coding::Q3K,
        GgmlDType::Q4K => Coding::Q4K,
        GgmlDType::Q5K => Coding::Q5K,
        GgmlDType::Q6K => Coding::Q6K,
        GgmlDType::Q8_1 | GgmlDType::Q8K => return None,
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor, quantized::QTensor};
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn every_coding_is_decoded_as_candle_decodes_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let values: Vec<f32> = (0..8 * 512).map(|_| rng.random_range(-1.0..1.0)).collect();
        let tensor = Tensor::from_vec(values, (8, 512), &Device::Cpu).unwrap();
        for kind in [
            GgmlDType::F32,
            GgmlDType::F16,
            GgmlDType::BF16,
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q2K,
            GgmlDType::Q3K,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            let quantised = QTensor::quantize(&tensor, kind).unwrap();
            let expected = quantised.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap();
            let expected: Vec<u32> =
                expected.to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
            let stored =
                StoredWeights::new(coding_of(kind).unwrap(), quantised.data().unwrap().into_owned().into());
            let found: Vec<u32> = stored.values().into_iter().map(f32::to_bits).collect();
            assert_eq!(found, expected, "{kind:?}");
        }
    }
}
