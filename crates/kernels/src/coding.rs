//! Codings of weights: plain numbers, and the blocks of integers in GGUF files.
//!
//! The blocks are those of llama.cpp (`ggml-common.h`). A block holds the weights of 32 or 256 inputs of one output. A
//! group of 16 or 32 of them shares a scale and, in some codings, a minimum. A weight is
//! `(code - zero) * scale + plus`, where `code` has 2 to 8 bits.

use half::{bf16, f16};

/// The greatest number of weights in a block.
const MOST: usize = 256;
/// The most groups of a block.
const GROUPS: usize = 16;

/// How weights are stored. The blocks of GGUF files have llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Little-endian f32.
    F32,
    /// Little-endian f16.
    F16,
    /// Little-endian bf16.
    Bf16,
    /// 4 bits; a scale for 32 weights.
    Q4_0,
    /// 4 bits; a scale and a minimum for 32 weights.
    Q4_1,
    /// 5 bits; a scale for 32 weights.
    Q5_0,
    /// 5 bits; a scale and a minimum for 32 weights.
    Q5_1,
    /// 8 bits; a scale for 32 weights.
    Q8_0,
    /// 2 bits; for 16 weights a scale and a minimum of 4 bits, which are multiples of those of 256 weights.
    Q2K,
    /// 3 bits; for 16 weights a scale of 6 bits, a multiple of that of 256 weights.
    Q3K,
    /// 4 bits; for 32 weights a scale and a minimum of 6 bits, which are multiples of those of 256 weights.
    Q4K,
    /// 5 bits, otherwise as [`Q4K`](Self::Q4K).
    Q5K,
    /// 6 bits; for 16 weights a scale of 8 bits, a multiple of that of 256 weights.
    Q6K,
}

/// What a coding stores for a block and for a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The weights of a block, and of a group.
    pub(crate) block: usize,
    pub(crate) group: usize,
    /// The lower and the upper bits of a code, which are stored apart.
    pub(crate) low: usize,
    pub(crate) high: usize,
    /// The code of 0.
    pub(crate) zero: i32,
    /// Whether there are minima.
    pub(crate) has_minimum: bool,
    /// Whether a group has multiples of the block's scale and minimum.
    pub(crate) has_multiples: bool,
    /// Whether the two multiples are the halves of a byte.
    pub(crate) has_halves: bool,
}

impl Shape {
    /// A coding whose least code is 0 has minima; blocks of several groups have multiples.
    const fn new(block: usize, group: usize, (low, high): (usize, usize), zero: i32) -> Self {
        let (has_minimum, has_multiples) = (zero == 0, block > group);
        let has_halves = has_multiples && has_minimum && low == 2;
        Self { block, group, low, high, zero, has_minimum, has_multiples, has_halves }
    }

    /// The scale of a group, and what is added to its weights.
    #[inline(always)]
    pub(crate) fn scale(&self, scale: f32, minimum: f32, multiples: (i8, u8)) -> (f32, f32) {
        if self.has_multiples {
            (scale * f32::from(multiples.0), -(minimum * f32::from(multiples.1)))
        } else {
            (scale, minimum)
        }
    }

    /// The weight of a code.
    #[inline(always)]
    pub(crate) fn value(&self, code: u8, (scale, plus): (f32, f32)) -> f32 {
        let value = (i32::from(code) - self.zero) as f32 * scale;
        if self.has_minimum { value + plus } else { value }
    }
}

/// One block, its codes in the order of the inputs.
pub(crate) struct Block {
    pub(crate) codes: [u8; MOST],
    /// The bits of two f16.
    pub(crate) scale: u16,
    pub(crate) minimum: u16,
    /// For each group, the multiples of the scale and of the minimum.
    pub(crate) multiples: [(i8, u8); GROUPS],
}

impl Coding {
    /// The number of weights in a block, and its size in bytes.
    #[must_use]
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2K => (256, 84),
            Self::Q3K => (256, 110),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// The size in bytes of `count` weights, or none if they are not whole blocks.
    #[must_use]
    pub fn size(self, count: usize) -> Option<usize> {
        let (weights, bytes) = self.block();
        count.is_multiple_of(weights).then(|| count / weights * bytes)
    }

    /// What is stored for a block and a group; none for plain numbers.
    pub(crate) const fn shape(self) -> Option<Shape> {
        Some(match self {
            Self::F32 | Self::F16 | Self::Bf16 => return None,
            Self::Q4_0 => Shape::new(32, 32, (4, 0), 8),
            Self::Q4_1 => Shape::new(32, 32, (4, 0), 0),
            Self::Q5_0 => Shape::new(32, 32, (4, 1), 16),
            Self::Q5_1 => Shape::new(32, 32, (4, 1), 0),
            Self::Q8_0 => Shape::new(32, 32, (8, 0), 128),
            Self::Q2K => Shape::new(MOST, 16, (2, 0), 0),
            Self::Q3K => Shape::new(MOST, 16, (2, 1), 4),
            Self::Q4K => Shape::new(MOST, 32, (4, 0), 0),
            Self::Q5K => Shape::new(MOST, 32, (4, 1), 0),
            Self::Q6K => Shape::new(MOST, 16, (4, 2), 32),
        })
    }

    /// The weights that `bytes` stand for.
    ///
    /// # Panics
    /// If `bytes` are not those of as many weights.
    pub fn decode(self, bytes: &[u8], weights: &mut [f32]) {
        assert_eq!(self.size(weights.len()), Some(bytes.len()), "bytes of as many weights");
        let Some(shape) = self.shape() else { return self.decode_numbers(bytes, weights) };
        let mut block = Block::new();
        let blocks = bytes.chunks_exact(self.block().1).zip(weights.chunks_exact_mut(shape.block));
        for (bytes, weights) in blocks {
            block.read(self, bytes);
            let (scale, minimum) =
                (f16::from_bits(block.scale).to_f32(), f16::from_bits(block.minimum).to_f32());
            let groups = weights.chunks_exact_mut(shape.group).zip(block.codes.chunks_exact(shape.group));
            for ((weights, codes), multiples) in groups.zip(block.multiples) {
                let scale = shape.scale(scale, minimum, multiples);
                weights.iter_mut().zip(codes).for_each(|(weight, code)| *weight = shape.value(*code, scale));
            }
        }
    }

    fn decode_numbers(self, bytes: &[u8], weights: &mut [f32]) {
        if self == Self::F32 {
            let numbers = bytes.as_chunks::<4>().0.iter();
            return weights
                .iter_mut()
                .zip(numbers)
                .for_each(|(weight, bytes)| *weight = f32::from_le_bytes(*bytes));
        }
        for (weight, bytes) in weights.iter_mut().zip(bytes.as_chunks::<2>().0) {
            let bits = u16::from_le_bytes(*bytes);
            *weight = match self {
                Self::F16 => f16::from_bits(bits).to_f32(),
                _ => bf16::from_bits(bits).to_f32(),
            };
        }
    }
}

impl Block {
    pub(crate) fn new() -> Self {
        Self { codes: [0; MOST], scale: 0, minimum: 0, multiples: [(0, 0); GROUPS] }
    }

    /// Reads a block of `coding`, which is not one of plain numbers.
    pub(crate) fn read(&mut self, coding: Coding, bytes: &[u8]) {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let bits = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        match coding {
            Coding::F32 | Coding::F16 | Coding::Bf16 => unreachable!("plain numbers have no blocks"),
            Coding::Q4_0 => {
                self.scale = half(0);
                self.read_halves(&bytes[2..], 0);
            }
            Coding::Q4_1 => {
                (self.scale, self.minimum) = (half(0), half(2));
                self.read_halves(&bytes[4..], 0);
            }
            Coding::Q5_0 => {
                self.scale = half(0);
                self.read_halves(&bytes[6..], bits(2));
            }
            Coding::Q5_1 => {
                (self.scale, self.minimum) = (half(0), half(2));
                self.read_halves(&bytes[8..], bits(4));
            }
            Coding::Q8_0 => {
                self.scale = half(0);
                // Signed numbers, from -128 on.
                self.codes.iter_mut().zip(&bytes[2..34]).for_each(|(code, byte)| *code = byte ^ 0x80);
            }
            Coding::Q2K => {
                (self.scale, self.minimum) = (half(80), half(82));
                self.read_pairs(&bytes[16..80], &[0; 32]);
                for (multiples, byte) in self.multiples.iter_mut().zip(&bytes[..16]) {
                    *multiples = ((byte & 15) as i8, byte >> 4);
                }
            }
            Coding::Q3K => {
                self.scale = half(108);
                self.read_pairs(&bytes[32..96], &bytes[..32]);
                let packed = &bytes[96..108];
                for (at, multiples) in self.multiples.iter_mut().enumerate() {
                    let low = (packed[at % 8] >> (at / 8 * 4)) & 15;
                    let high = (packed[8 + at % 4] >> (at / 4 * 2)) & 3;
                    *multiples = ((low | high << 4) as i8 - 32, 0);
                }
            }
            Coding::Q4K => {
                (self.scale, self.minimum) = (half(0), half(2));
                self.read_six_bits(&bytes[4..16]);
                self.read_quarters(&bytes[16..144], &[0; 32]);
            }
            Coding::Q5K => {
                (self.scale, self.minimum) = (half(0), half(2));
                self.read_six_bits(&bytes[4..16]);
                self.read_quarters(&bytes[48..176], &bytes[16..48]);
            }
            Coding::Q6K => {
                self.scale = half(208);
                self.multiples
                    .iter_mut()
                    .zip(&bytes[192..208])
                    .for_each(|(multiples, byte)| *multiples = (*byte as i8, 0));
                let parts = self.codes.chunks_exact_mut(128).zip(bytes[..128].chunks_exact(64));
                for ((codes, low), high) in parts.zip(bytes[128..192].chunks_exact(32)) {
                    for (at, code) in codes.iter_mut().enumerate() {
                        let low = (low[at % 64] >> (at / 64 * 4)) & 15;
                        let high = (high[at % 32] >> (at / 32 * 2)) & 3;
                        *code = low | high << 4;
                    }
                }
            }
        }
    }

    /// 32 codes: the first half in the lower bits of 16 bytes, the second in the upper ones; bit `i` of `high` is the
    /// fifth of code `i`.
    fn read_halves(&mut self, low: &[u8], high: u32) {
        for (at, code) in self.codes[..32].iter_mut().enumerate() {
            let low = (low[at % 16] >> (at / 16 * 4)) & 15;
            *code = low | (((high >> at) & 1) as u8) << 4;
        }
    }

    /// Codes of two bits: 128 in the four pairs of bits of 32 bytes, and each third bit from those of `high`.
    fn read_pairs(&mut self, low: &[u8], high: &[u8]) {
        for (at, code) in self.codes.iter_mut().enumerate() {
            let low = (low[at / 128 * 32 + at % 32] >> (at / 32 % 4 * 2)) & 3;
            *code = low | ((high[at % 32] >> (at / 32)) & 1) << 2;
        }
    }

    /// Codes of four bits: 64 in the two halves of 32 bytes, and each fifth bit from those of `high`.
    fn read_quarters(&mut self, low: &[u8], high: &[u8]) {
        for (at, code) in self.codes.iter_mut().enumerate() {
            let low = (low[at / 64 * 32 + at % 32] >> (at / 32 % 2 * 4)) & 15;
            *code = low | ((high[at % 32] >> (at / 32)) & 1) << 4;
        }
    }

    /// Eight scales and eight minima of six bits.
    fn read_six_bits(&mut self, packed: &[u8]) {
        for (at, multiples) in self.multiples[..8].iter_mut().enumerate() {
            let (scale, minimum) = if at < 4 {
                (packed[at] & 63, packed[at + 4] & 63)
            } else {
                let (both, scale, minimum) = (packed[at + 4], packed[at - 4], packed[at]);
                (both & 15 | scale >> 6 << 4, both >> 4 | minimum >> 6 << 4)
            };
            *multiples = (scale as i8, minimum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weights of one block.
    fn weights(coding: Coding, bytes: &[u8]) -> Vec<f32> {
        let mut weights = vec![f32::NAN; coding.block().0];
        coding.decode(bytes, &mut weights);
        weights
    }

    /// Bytes of an f16: 0.5, 2 and -1.
    const HALF: [u8; 2] = [0x00, 0x38];
    const TWO: [u8; 2] = [0x00, 0x40];
    const MINUS_ONE: [u8; 2] = [0x00, 0xbc];

    #[test]
    fn plain_numbers_are_widened() {
        assert_eq!(weights(Coding::F32, &(-7.25f32).to_le_bytes()), [-7.25]);
        assert_eq!(weights(Coding::F16, &HALF), [0.5]);
        // The smallest f16, 2^-24.
        assert_eq!(weights(Coding::F16, &[1, 0]), [2f32.powi(-24)]);
        assert_eq!(weights(Coding::Bf16, &[0x40, 0xc0]), [-3.0]);
    }

    #[test]
    fn blocks_of_32_have_a_scale_and_perhaps_a_minimum() {
        let nibbles: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
        let both = |first: fn(usize) -> f32| -> Vec<f32> { (0..16).map(first).collect() };
        let found = weights(Coding::Q4_0, &[&HALF[..], &nibbles].concat());
        assert_eq!(found[..16], both(|i| 0.5 * (i as f32 - 8.0)));
        assert_eq!(found[16..], both(|i| 0.5 * (7.0 - i as f32)));
        let found = weights(Coding::Q4_1, &[&HALF[..], &MINUS_ONE, &nibbles].concat());
        assert_eq!(found[..16], both(|i| 0.5 * i as f32 - 1.0));
        assert_eq!(found[16..], both(|i| 0.5 * (15 - i) as f32 - 1.0));
        // The fifth bits of the codes 0, 9 and 31.
        let high = [1, 2, 0, 0x80];
        let fifth = |i: usize| if [0, 9, 31].contains(&i) { 16 } else { 0 };
        let code = |i: usize| if i < 16 { i + fifth(i) } else { 31 - i + fifth(i) };
        let found = weights(Coding::Q5_0, &[&TWO[..], &high, &nibbles].concat());
        assert!(
            found.iter().enumerate().all(|(i, weight)| *weight == 2.0 * (code(i) as f32 - 16.0)),
            "{found:?}"
        );
        let found = weights(Coding::Q5_1, &[&TWO[..], &MINUS_ONE, &high, &nibbles].concat());
        assert!(
            found.iter().enumerate().all(|(i, weight)| *weight == 2.0 * code(i) as f32 - 1.0),
            "{found:?}"
        );
        let bytes: Vec<u8> = (0..32).map(|i| (16 - i) as i8 as u8).collect();
        let found = weights(Coding::Q8_0, &[&HALF[..], &bytes].concat());
        assert!(found.iter().enumerate().all(|(i, weight)| *weight == 0.5 * (16.0 - i as f32)), "{found:?}");
    }

    #[test]
    fn blocks_of_256_have_multiples_of_a_scale() {
        // All codes are 1, those of inputs 32 to 63 are 2 (bits 2 and 3 of the first 32 bytes).
        let mut pairs = vec![0b01_01_01_01u8; 64];
        pairs[..32].fill(0b01_01_10_01);
        let mut multiples = [0x21u8; 16];
        multiples[3] = 0x53;
        let found = weights(Coding::Q2K, &[&multiples[..], &pairs, &HALF, &TWO].concat());
        assert_eq!(
            (found[0], found[32], found[48], found[255]),
            (0.5 - 4.0, 1.0 - 4.0, 3.0 - 10.0, 0.5 - 4.0)
        );

        // Every third bit is set except for inputs 96 to 127: then 4 is taken off.
        let third = [0b1111_0111u8; 32];
        // Low bits 0 of all, upper bits 2: 32 - 32 = 0. Group 15 has low bits 5, group 2 upper bits 3: 48 - 32.
        let mut packed = [0u8; 12];
        packed[7] = 0x50;
        packed[8..].copy_from_slice(&[0b10_10_10_10; 4]);
        packed[10] = 0b10_10_10_11;
        let found = weights(Coding::Q3K, &[&third[..], &pairs, &packed, &HALF].concat());
        assert_eq!((found[0], found[32], found[63], found[240]), (0.0, 16.0, 0.0, 2.5));
        packed[6] = 1;
        let found = weights(Coding::Q3K, &[&third[..], &pairs, &packed, &HALF].concat());
        // Group 6 is inputs 96 to 111, with code 1 - 4.
        assert_eq!(found[96], 0.5 * -3.0);

        // Scales 1 to 8 in six bits, where those from the fifth on are in four and two bits; minima 40 and then 3.
        let six = [1, 2, 3, 4, 40, 3, 3, 3, 0x35, 0x36, 0x37, 0x38];
        let nibbles: Vec<u8> = (0..128).map(|i| if i < 32 { 0x71 } else { 0x22 }).collect();
        let found = weights(Coding::Q4K, &[&HALF[..], &TWO, &six, &nibbles].concat());
        assert_eq!((found[0], found[32], found[64]), (0.5 - 80.0, 7.0 - 6.0, 3.0 - 6.0));
        assert_eq!((found[128], found[255]), (2.5 * 2.0 - 6.0, 4.0 * 2.0 - 6.0));
        // Upper bits of the scale of group 4 (those above 63 of byte 0), and the fifth bit of inputs 32 to 63.
        let mut six = six;
        six[0] |= 0x40;
        let found = weights(Coding::Q5K, &[&HALF[..], &TWO, &six, &[2; 32], &nibbles].concat());
        assert_eq!((found[0], found[32], found[64]), (0.5 - 80.0, 23.0 - 6.0, 3.0 - 6.0));
        assert_eq!(found[128], 0.5 * 21.0 * 2.0 - 6.0);

        // Input 0 has 5 | 2 << 4, input 32 has 9 | 1 << 4, input 64 has 3, input 96 has 12 | 3 << 4.
        let (mut low, mut high, mut scales) = ([0u8; 128], [0u8; 64], [1i8; 16]);
        (low[0], low[32], high[0]) = (0x35, 0xc9, 0b11_00_01_10);
        (scales[0], scales[2]) = (-3, 100);
        let scales: Vec<u8> = scales.iter().map(|scale| *scale as u8).collect();
        let found = weights(Coding::Q6K, &[&low[..], &high, &scales, &HALF].concat());
        assert_eq!((found[0], found[32]), (0.5 * -3.0 * 5.0, 50.0 * -7.0));
        assert_eq!((found[64], found[96], found[128]), (0.5 * (3.0 - 32.0), 0.5 * 28.0, -16.0));
    }
}
