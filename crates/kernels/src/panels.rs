//! Panels of coded weights, and their products with rows in f32.
//!
//! A panel has the weights of 32 outputs. It consists of the blocks of their coding, input after input, so that a
//! vector of an input's 32 weights is decoded at once:
//!
//! - for each block, 32 scales and, if the coding has them, 32 minima, in f16;
//! - for each group of a block, 32 multiples of the scale and of the minimum, if the coding has them;
//! - for each eight inputs of a group, the lower bits of their codes, then the upper ones. A byte has the bits of
//!   as many successive inputs of one output as fit.
//!
//! Plain numbers have no blocks: the 32 numbers of an input are next to each other.
//!
//! Decoded weights are the numbers of [`Coding::decode`], and sums are made in the same order as those of a panel in
//! f32. So a product equals that of the decoded weights in f32, bit for bit.

use std::ops::Range;

use rayon::prelude::*;

use crate::{
    buffer::{Buffer, Lines},
    coding::{Block, Coding, Shape},
    isa::{Isa, dispatch},
    simd::{LANES, Simd, microkernel::tiles_of},
};

/// The number of inputs that are decoded at once.
const EIGHT: usize = 8;
/// A multiple of the inputs of every group.
const UNIT: usize = 32;

/// Eight inputs of 32 outputs.
type Eight = [[f32; LANES]; EIGHT];

/// The bits of a panel of blocks: sizes and offsets in bytes.
impl Shape {
    /// The size of a block's scales and minima.
    const fn head(&self) -> usize {
        2 * LANES * (1 + self.has_minimum as usize)
    }

    /// The size of a group's multiples.
    const fn group_head(&self) -> usize {
        LANES * self.has_multiples as usize * (1 + (self.has_minimum && !self.has_halves) as usize)
    }

    /// The size of the codes of eight inputs.
    const fn eight(&self) -> usize {
        LANES * (self.low + self.high)
    }

    const fn group_size(&self) -> usize {
        self.group_head() + self.group / EIGHT * self.eight()
    }

    const fn block_size(&self) -> usize {
        self.head() + self.block / self.group * self.group_size()
    }

    /// The offset of the group of input `at`.
    #[inline(always)]
    const fn group_place(&self, at: usize) -> usize {
        at / self.block * self.block_size() + self.head() + at % self.block / self.group * self.group_size()
    }

    /// The offset of the codes of the eight inputs of input `at`.
    #[inline(always)]
    const fn place(&self, at: usize) -> usize {
        self.group_place(at) + self.group_head() + at % self.group / EIGHT * self.eight()
    }

    /// Writes a row into lane `lane` of a panel of zeros.
    fn fill(&self, coding: Coding, row: &[u8], lane: usize, panel: &mut [u8]) {
        let mut block = Block::new();
        for (number, bytes) in row.chunks_exact(coding.block().1).enumerate() {
            block.read(coding, bytes);
            let start = number * self.block;
            let mut put = |at: usize, half: u16| panel[at..at + 2].copy_from_slice(&half.to_le_bytes());
            let head = number * self.block_size() + 2 * lane;
            put(head, block.scale);
            if self.has_minimum {
                put(head + 2 * LANES, block.minimum);
            }
            if self.has_multiples {
                for (group, multiples) in block.multiples[..self.block / self.group].iter().enumerate() {
                    let place = self.group_place(start + group * self.group) + lane;
                    panel[place] = multiples.0 as u8;
                    if self.has_halves {
                        panel[place] |= multiples.1 << 4;
                    } else if self.has_minimum {
                        panel[place + LANES] = multiples.1;
                    }
                }
            }
            for (eight, codes) in block.codes[..self.block].chunks_exact(EIGHT).enumerate() {
                let bytes = &mut panel[self.place(start + eight * EIGHT) + lane..];
                for (input, code) in codes.iter().enumerate() {
                    let (low, high) = (code & mask(self.low), code.checked_shr(self.low as u32).unwrap_or(0));
                    for (first, width, bits) in [(0, self.low, low), (self.low, self.high, high)] {
                        if width > 0 {
                            let each = 8 / width;
                            bytes[(first + input / each) * LANES] |= bits << (input % each * width);
                        }
                    }
                }
            }
        }
    }

    /// The multiples of the scale and of the minimum in the group at `group`, for output `lane`.
    ///
    /// # Safety
    /// `group` must be valid for the head of a group.
    #[inline(always)]
    unsafe fn multiples(&self, group: *const u8, lane: usize) -> (i8, u8) {
        // SAFETY: a group has one or two rows of multiples where there are any.
        unsafe {
            match (self.has_multiples, self.has_halves, self.has_minimum) {
                (false, ..) => (0, 0),
                (_, true, _) => ((*group.add(lane) & 15) as i8, *group.add(lane) >> 4),
                (.., true) => (*group.add(lane) as i8, *group.add(LANES + lane)),
                _ => (*group.add(lane) as i8, 0),
            }
        }
    }

    /// The code of an input, of the eight inputs at `codes`, for output `lane`.
    ///
    /// # Safety
    /// `codes` must be valid for eight inputs.
    #[inline(always)]
    unsafe fn code(&self, codes: *const u8, input: usize, lane: usize) -> u8 {
        // SAFETY: eight inputs have `low + high` rows of bytes.
        unsafe {
            let each = 8 / self.low;
            let byte = *codes.add(input / each * LANES + lane);
            let mut code = byte >> (input % each * self.low) & mask(self.low);
            if self.high > 0 {
                let each = 8 / self.high;
                let byte = *codes.add((self.low + input / each) * LANES + lane);
                code |= (byte >> (input % each * self.high) & mask(self.high)) << self.low;
            }
            code
        }
    }
}

#[inline(always)]
const fn mask(bits: usize) -> u8 {
    (0xff_u16 >> (8 - bits)) as u8
}

/// The size of a panel with `depth` inputs. Plain numbers are padded to eight inputs.
const fn size(coding: Coding, depth: usize) -> usize {
    match coding.shape() {
        Some(shape) => depth / shape.block * shape.block_size(),
        None => depth.next_multiple_of(EIGHT) * LANES * coding.block().1,
    }
}

/// Writes a row into lane `lane` of a panel of zeros.
fn fill(coding: Coding, row: &[u8], lane: usize, panel: &mut [u8]) {
    match coding.shape() {
        Some(shape) => shape.fill(coding, row, lane, panel),
        None => {
            let size = coding.block().1;
            for (numbers, number) in panel.chunks_exact_mut(size * LANES).zip(row.chunks_exact(size)) {
                numbers[lane * size..][..size].copy_from_slice(number);
            }
        }
    }
}

/// A coding that kernels are compiled for.
trait Layout {
    const CODING: Coding;
    const SHAPE: Option<Shape> = Self::CODING.shape();
    /// The number of inputs that share their scales.
    const GROUP: usize = match Self::SHAPE {
        Some(shape) => shape.group,
        None => EIGHT,
    };
}

macro_rules! layouts {
    ($($name:ident)*) => {
        $(
            struct $name;

            impl Layout for $name {
                const CODING: Coding = Coding::$name;
            }
        )*

        /// The sums of one row, as [`sum_row`] makes them, for a coding.
        ///
        /// # Safety
        /// As for [`sum_row`].
        #[inline(always)]
        unsafe fn sum_row_of<S: Simd>(coding: Coding, row: &[f32], panel: *const u8, out: &mut [f32; LANES]) {
            // SAFETY: the contract.
            unsafe {
                match coding {
                    $(Coding::$name => sum_row::<S, $name>(row, panel, out),)*
                }
            }
        }

        /// Decodes inputs of a panel, as [`decode`] does, for a coding.
        ///
        /// # Safety
        /// As for [`decode`].
        #[inline(always)]
        unsafe fn decode_of<S: Simd>(coding: Coding, panel: *const u8, inputs: Range<usize>, out: &mut [Eight]) {
            // SAFETY: the contract.
            unsafe {
                match coding {
                    $(Coding::$name => decode::<S, $name>(panel, inputs, out),)*
                }
            }
        }
    };
}

layouts!(F32 F16 Bf16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K);

/// The scales of a group, and what is added to its weights.
#[derive(Clone, Copy)]
struct Scales {
    by: [f32; LANES],
    plus: [f32; LANES],
}

/// The scales of the group of input `at`.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for that group.
#[inline(always)]
unsafe fn scales<S: Simd, L: Layout>(panel: *const u8, at: usize) -> Scales {
    let mut scales = Scales { by: [0.0; LANES], plus: [0.0; LANES] };
    let Some(shape) = L::SHAPE else { return scales };
    // SAFETY: the offsets are inside the panel by the contract.
    unsafe {
        let head = panel.add(at / shape.block * shape.block_size());
        S::store_floats(scales.by.as_mut_ptr(), S::load_halves(head.cast()));
        if shape.has_minimum {
            S::store_floats(scales.plus.as_mut_ptr(), S::load_halves(head.add(2 * LANES).cast()));
        }
        if shape.has_multiples {
            let group = panel.add(shape.group_place(at));
            for lane in 0..LANES {
                let (by, plus) = (scales.by[lane], scales.plus[lane]);
                let multiples = shape.multiples(group, lane);
                (scales.by[lane], scales.plus[lane]) = shape.scale(by, plus, multiples);
            }
        }
    }
    scales
}

/// Decodes the eight inputs from `at` on, whose group has `scales`.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for those inputs.
#[inline(always)]
unsafe fn decode_eight<S: Simd, L: Layout>(panel: *const u8, at: usize, scales: &Scales, out: &mut Eight) {
    // SAFETY: the codes or numbers of eight inputs are inside the panel by the contract.
    unsafe {
        let Some(shape) = L::SHAPE else {
            let numbers = panel.add(at * LANES * L::CODING.block().1);
            for (input, out) in out.iter_mut().enumerate() {
                let halves = numbers.cast::<u16>().add(input * LANES);
                match L::CODING {
                    Coding::F16 => S::store_floats(out.as_mut_ptr(), S::load_halves(halves)),
                    Coding::Bf16 => {
                        for (lane, out) in out.iter_mut().enumerate() {
                            *out = f32::from_bits(u32::from(*halves.add(lane)) << 16);
                        }
                    }
                    _ => *out = numbers.cast::<[f32; LANES]>().add(input).read_unaligned(),
                }
            }
            return;
        };
        let codes = panel.add(shape.place(at));
        // The compiler unrolls the inner loop, and makes vectors of the outer one.
        for lane in 0..LANES {
            for (input, out) in out.iter_mut().enumerate() {
                let scale = (scales.by[lane], scales.plus[lane]);
                out[lane] = shape.value(shape.code(codes, input, lane), scale);
            }
        }
    }
}

/// Decodes `inputs` of a panel, of which the first is that of a group.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for the inputs, rounded up to eight.
#[inline(always)]
unsafe fn decode<S: Simd, L: Layout>(panel: *const u8, inputs: Range<usize>, out: &mut [Eight]) {
    for (group, out) in out[..inputs.len().div_ceil(EIGHT)].chunks_mut(L::GROUP / EIGHT).enumerate() {
        let start = inputs.start + group * L::GROUP;
        // SAFETY: the contract.
        unsafe {
            let scales = scales::<S, L>(panel, start);
            for (eight, out) in out.iter_mut().enumerate() {
                decode_eight::<S, L>(panel, start + eight * EIGHT, &scales, out);
            }
        }
    }
}

/// Rows of inputs for a product with a panel.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) stride: usize,
    pub(crate) depth: usize,
}

/// The sums of one row, which stay in registers while the panel is decoded.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for the inputs of the row, rounded up to eight.
#[inline(always)]
unsafe fn sum_row<S: Simd, L: Layout>(row: &[f32], panel: *const u8, out: &mut [f32; LANES]) {
    // SAFETY: inputs of the row, and the contract. No closures: see `microkernel::tiles`.
    unsafe {
        let mut sum = S::zero_floats();
        let mut weights = [[0f32; LANES]; EIGHT];
        for (group, values) in row.chunks(L::GROUP).enumerate() {
            let start = group * L::GROUP;
            let scales = scales::<S, L>(panel, start);
            for (eight, values) in values.chunks(EIGHT).enumerate() {
                decode_eight::<S, L>(panel, start + eight * EIGHT, &scales, &mut weights);
                for (value, weights) in values.iter().zip(&weights) {
                    sum = S::add_product(sum, *value, S::load_floats(weights.as_ptr()));
                }
            }
        }
        S::store_floats(out.as_mut_ptr(), sum);
    }
}

/// `values`, eight inputs at a time.
fn eights(values: &mut [f32]) -> &mut [Eight] {
    values.as_chunks_mut::<LANES>().0.as_chunks_mut::<EIGHT>().0
}

/// Panels of weights, each in one coding.
#[derive(Debug)]
pub(crate) struct CodedPanels {
    bytes: Buffer<u8>,
    /// The coding of each panel, and its offset.
    panels: Vec<(Coding, usize)>,
    depth: usize,
}

impl CodedPanels {
    /// Packs rows of `depth` weights, each with its coding, so many together; `done` is told how many are packed. A panel
    /// with rows of several codings is kept in f32.
    pub(crate) fn pack(
        rows: &[(Coding, &[u8])],
        depth: usize,
        together: usize,
        mut done: impl FnMut(usize),
    ) -> Self {
        let mut panels = Vec::with_capacity(rows.len().div_ceil(LANES));
        let mut end = 0;
        for rows in rows.chunks(LANES) {
            let first = rows[0].0;
            let coding = if rows.iter().all(|(coding, _)| *coding == first) { first } else { Coding::F32 };
            panels.push((coding, end));
            end += size(coding, depth);
        }
        let mut bytes = Buffer::zeroed(end);
        let mut rest = bytes.values_mut();
        let mut packed = 0;
        for (panels, rows) in panels.chunks(together / LANES).zip(rows.chunks(together)) {
            let mut parts = Vec::with_capacity(panels.len());
            for ((coding, _), rows) in panels.iter().zip(rows.chunks(LANES)) {
                let (part, others) = rest.split_at_mut(size(*coding, depth));
                parts.push((*coding, part, rows));
                rest = others;
            }
            parts.into_par_iter().for_each(|(coding, panel, rows)| {
                for (lane, (own, row)) in rows.iter().enumerate() {
                    if *own == coding {
                        fill(coding, row, lane, panel);
                        continue;
                    }
                    let mut values = vec![0.0; depth];
                    own.decode(row, &mut values);
                    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    fill(coding, &bytes, lane, panel);
                }
            });
            packed += rows.len();
            done(packed);
        }
        Self { bytes, panels, depth }
    }

    fn panel(&self, at: usize) -> (Coding, &[u8]) {
        let (coding, start) = self.panels[at];
        (coding, &self.bytes[start..][..size(coding, self.depth)])
    }

    /// Decodes the weights of output `at`.
    pub(crate) fn output(&self, at: usize, out: &mut [f32]) {
        let (coding, panel) = self.panel(at / LANES);
        let lane = at % LANES;
        let Some(shape) = coding.shape() else {
            let size = coding.block().1;
            for (out, numbers) in out.iter_mut().zip(panel.chunks_exact(size * LANES)) {
                coding.decode(&numbers[lane * size..][..size], std::slice::from_mut(out));
            }
            return;
        };
        let half = |at: usize| half::f16::from_le_bytes([panel[at], panel[at + 1]]).to_f32();
        for (group, out) in out.chunks_exact_mut(shape.group).enumerate() {
            let start = group * shape.group;
            let head = start / shape.block * shape.block_size() + 2 * lane;
            let minimum = if shape.has_minimum { half(head + 2 * LANES) } else { 0.0 };
            let group = &panel[shape.group_place(start)..][..shape.group_size()];
            // SAFETY: a whole group.
            let multiples = unsafe { shape.multiples(group.as_ptr(), lane) };
            let scale = shape.scale(half(head), minimum, multiples);
            for (eight, out) in out.chunks_exact_mut(EIGHT).enumerate() {
                let codes = &panel[shape.place(start + eight * EIGHT)..][..shape.eight()];
                for (input, out) in out.iter_mut().enumerate() {
                    // SAFETY: `codes` are those of eight inputs.
                    *out = shape.value(unsafe { shape.code(codes.as_ptr(), input, lane) }, scale);
                }
            }
        }
    }

    /// The sums of a strip: `out[r]` is its row `r` times panel `at`.
    ///
    /// # Safety
    /// The machine must have `S`.
    ///
    /// # Panics
    /// If the depth is not that of the panels, or the strip or `out` has too few rows.
    #[inline(always)]
    pub(crate) unsafe fn sum<S: Simd>(&self, at: usize, strip: Strip<'_>, out: &mut [[f32; LANES]]) {
        let Strip { values, rows, stride, depth } = strip;
        assert!(depth == self.depth && rows <= out.len());
        assert!(rows > 0 && values.len() >= (rows - 1) * stride + depth);
        let (coding, panel) = self.panel(at);
        // SAFETY: the contract, a whole panel, and the assertions.
        unsafe {
            if rows == 1 {
                return sum_row_of::<S>(coding, &values[..depth], panel.as_ptr(), &mut out[0]);
            }
            let mut block = Lines::zeroed(S::PIECE.min(depth).next_multiple_of(UNIT) * LANES);
            for tile in tiles_of::<S>(rows, depth, UNIT, false) {
                if tile.rows.start == 0 {
                    decode_of::<S>(coding, panel.as_ptr(), tile.steps(), eights(&mut block));
                }
                tile.sum_block::<S>(values.as_ptr(), stride, block.as_ptr(), out);
            }
        }
    }

    /// Decodes `panels` in the layout of panels in f32. At the end the result has values that mean nothing.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn decode(&self, isa: Isa, panels: Range<usize>) -> Lines {
        #[inline(always)]
        fn body<S: Simd>(all: &CodedPanels, at: usize, out: &mut [f32]) {
            let (coding, panel) = all.panel(at);
            // SAFETY: `dispatch` has checked that the machine has `S`, and the panel is whole.
            unsafe { decode_of::<S>(coding, panel.as_ptr(), 0..all.depth, eights(out)) };
        }
        let all = self;
        let mut values = Lines::zeroed((panels.len() * self.depth + EIGHT) * LANES);
        for (number, at) in panels.enumerate() {
            let out = &mut values[number * self.depth * LANES..];
            dispatch!(isa, body(all: &CodedPanels, at: usize, out: &mut [f32]));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Machine, Matrix, Precision, Product, Rows, Stored, ThreadPool};

    const ALL: [Coding; 13] = [
        Coding::F32,
        Coding::F16,
        Coding::Bf16,
        Coding::Q4_0,
        Coding::Q4_1,
        Coding::Q5_0,
        Coding::Q5_1,
        Coding::Q8_0,
        Coding::Q2K,
        Coding::Q3K,
        Coding::Q4K,
        Coding::Q5K,
        Coding::Q6K,
    ];

    /// Random bytes whose scales are finite and of about 1: the exponents of f16 are those of 0.25 to 4.
    fn random(coding: Coding, count: usize, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..coding.size(count).unwrap()).map(|_| rng.random()).collect();
        let places: &[usize] = match coding {
            Coding::F32 | Coding::Bf16 | Coding::F16 => &[],
            Coding::Q4_0 | Coding::Q5_0 | Coding::Q8_0 => &[0],
            Coding::Q4_1 | Coding::Q5_1 | Coding::Q4K | Coding::Q5K => &[0, 2],
            Coding::Q2K => &[80, 82],
            Coding::Q3K => &[108],
            Coding::Q6K => &[208],
        };
        for block in bytes.chunks_exact_mut(coding.block().1) {
            for place in places {
                let high = &mut block[place + 1];
                *high = (*high & 0x83) | (0x38 + (*high & 8));
            }
            let number = rng.random_range(-2.0f32..2.0);
            match coding {
                Coding::F32 => block.copy_from_slice(&number.to_le_bytes()),
                Coding::F16 => block.copy_from_slice(&half::f16::from_f32(number).to_le_bytes()),
                Coding::Bf16 => block.copy_from_slice(&half::bf16::from_f32(number).to_le_bytes()),
                _ => {}
            }
        }
        bytes
    }

    fn decoded(coding: Coding, bytes: &[u8], count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        coding.decode(bytes, &mut values);
        values
    }

    fn inputs(count: usize, width: usize, rng: &mut ChaCha8Rng) -> Rows {
        let mut rows = Rows::new(count, width);
        (0..count).for_each(|at| rows.row_mut(at).fill_with(|| rng.random_range(-1.0..1.0)));
        rows
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn products_equal_those_of_the_decoded_weights_for_every_number_of_rows() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for coding in ALL {
            let block = coding.block().0;
            // One block, several blocks and pieces, and panels that are not full. Plain numbers have any depth.
            for (blocks, outputs) in
                [(1, 5), (if block == 1 { 37 } else { 3 }, 70), (1_100 / block.min(100), 33)]
            {
                let depth = blocks * block;
                let bytes = random(coding, outputs * depth, &mut rng);
                let weights = decoded(coding, &bytes, outputs * depth);
                let matrix =
                    Matrix::pack_stored(&[Stored::new(coding, &bytes, depth)], depth, Precision::F32);
                let plain = Matrix::pack(&[&weights], depth, Precision::F32);
                for isa in Isa::available() {
                    for count in (1..14).chain([31, 47, 48, 65, 200]) {
                        let input = inputs(count, depth, &mut rng);
                        let mut values = [&matrix, &plain]
                            .map(|matrix| Product::new(matrix).values(&mut Machine::new(isa), &input));
                        let [found, expected] = &mut values;
                        assert_eq!(bits(found), bits(expected), "{coding:?} {isa:?} {count} {depth}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_weights_of_an_output_come_back() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for coding in ALL {
            let (depth, outputs) = (2 * coding.block().0, 40);
            let bytes = random(coding, outputs * depth, &mut rng);
            let weights = decoded(coding, &bytes, outputs * depth);
            let matrix = Matrix::pack_stored(&[Stored::new(coding, &bytes, depth)], depth, Precision::F32);
            for (at, expected) in weights.chunks_exact(depth).enumerate() {
                let mut out = vec![0.0; depth];
                matrix.output(at, &mut out);
                assert_eq!(bits(&out), bits(expected), "{coding:?} {at}");
            }
        }
    }

    #[test]
    fn blocks_of_several_codings_are_one_matrix() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let depth = 256;
        // The second panel has the last rows of one coding and the first of the next.
        let parts = [(Coding::Q4K, 40), (Coding::Q6K, 24), (Coding::F16, 32), (Coding::F32, 3)];
        let bytes = parts.map(|(coding, outputs)| random(coding, outputs * depth, &mut rng));
        let stored: Vec<Stored<'_>> =
            parts.iter().zip(&bytes).map(|((coding, _), bytes)| Stored::new(*coding, bytes, depth)).collect();
        let weights: Vec<f32> = parts
            .iter()
            .zip(&bytes)
            .flat_map(|((coding, outputs), bytes)| decoded(*coding, bytes, outputs * depth))
            .collect();
        let input = inputs(5, depth, &mut rng);
        for precision in [Precision::F32, Precision::Int8] {
            let matrix = Matrix::pack_stored(&stored, depth, precision);
            let plain = Matrix::pack(&[&weights], depth, precision);
            let [found, expected] =
                [&matrix, &plain].map(|matrix| Product::new(matrix).values(&mut Machine::default(), &input));
            assert_eq!(bits(&found), bits(&expected), "{precision:?}");
        }
    }

    #[test]
    fn neither_threads_nor_other_rows_change_a_row() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let pool: &'static ThreadPool = Box::leak(Box::new(ThreadPool::new(3)));
        for coding in [Coding::Q4_1, Coding::Q6K, Coding::Bf16] {
            let (depth, outputs) = (768, 130);
            let bytes = random(coding, outputs * depth, &mut rng);
            let matrix = Matrix::pack_stored(&[Stored::new(coding, &bytes, depth)], depth, Precision::F32);
            let input = inputs(70, depth, &mut rng);
            let all = Product::new(&matrix).values(&mut Machine::alone(), &input);
            for count in [1, 2, 3, 7, 40, 70] {
                let mut machine = Machine::default();
                machine.pool = pool;
                let mut out = Rows::new(count, outputs);
                Product::new(&matrix).run(&mut machine, &input, 70 - count..70, &mut out, 0);
                for row in 0..count {
                    let expected = &all[(70 - count + row) * outputs..][..outputs];
                    assert_eq!(bits(out.row(row)), bits(expected), "{coding:?} {count}");
                }
            }
        }
    }

    #[test]
    fn a_panel_is_hardly_larger_than_its_rows() {
        for coding in ALL {
            let depth = 512;
            let rows = LANES * coding.size(depth).unwrap();
            assert!(
                (rows..rows * 104 / 100).contains(&size(coding, depth)) || size(coding, depth) == rows,
                "{coding:?}"
            );
        }
    }
}
