//! Panels of coded weights, and their products with rows in f32.
//!
//! A panel has the weights of 32 outputs. It consists of the blocks of their coding, input after input, so that a
//! vector of an input's 32 weights is decoded at once:
//!
//! - for each block, 32 scales and, if the coding has them, 32 minima, in f16;
//! - for each 32 inputs of a block, the multiples of their groups, if the coding has them: 32 of the scale and then 32 of
//!   the minimum;
//! - then words of 32 bits, one for each output: the lower bits of successive inputs, and after them the upper bits.
//!
//! The first input has the lowest bits of a word. The upper bits of four inputs are as far from each other as their
//! lower bits, so that one shift of the word moves all four next to the lower ones.
//!
//! Plain numbers have no blocks: the 32 numbers of an input are next to each other. In bf16 two successive numbers of an
//! output are one word.
//!
//! A weight is `code * scale + plus`. The product is exact for every coding, so it makes no difference whether it is
//! rounded. Decoded weights are the numbers of [`Coding::decode`], and sums are made in the same order as those of a
//! panel in f32. So a product equals that of the decoded weights in f32, bit for bit.

use std::ops::Range;

use rayon::prelude::*;

use crate::{
    buffer::{Buffer, Lines},
    coding::{Block, Coding, Shape},
    isa::{Isa, dispatch},
    simd::{LANES, Simd, microkernel::tiles_of},
};

/// The inputs that are decoded with one shift of their word.
const FOUR: usize = 4;
/// The inputs whose codes are whole words; every block has whole units.
const UNIT: usize = 32;
/// Plain numbers are padded to a multiple of so many inputs.
const EIGHT: usize = 8;
/// The size of a word of each output, in bytes.
const WORDS: usize = 4 * LANES;

/// The weights of 32 outputs for one input.
type Weights = [f32; LANES];

/// Where a panel of blocks has what: sizes and offsets in bytes.
impl Shape {
    /// The size of a block's scales and minima.
    #[inline(always)]
    const fn head(&self) -> usize {
        2 * LANES * (1 + self.has_minimum as usize)
    }

    /// The size of a group's multiples.
    #[inline(always)]
    const fn group_head(&self) -> usize {
        LANES * self.has_multiples as usize * (1 + (self.has_minimum && !self.has_halves) as usize)
    }

    /// The size of the multiples of a unit.
    #[inline(always)]
    const fn unit_head(&self) -> usize {
        UNIT / self.group * self.group_head()
    }

    #[inline(always)]
    const fn unit_size(&self) -> usize {
        self.unit_head() + WORDS * (self.low + self.high)
    }

    #[inline(always)]
    const fn block_size(&self) -> usize {
        self.head() + self.block / UNIT * self.unit_size()
    }

    /// The offset of the unit of input `at`.
    #[inline(always)]
    const fn unit_place(&self, at: usize) -> usize {
        at / self.block * self.block_size() + self.head() + at % self.block / UNIT * self.unit_size()
    }

    /// The offset of the multiples of input `at`.
    #[inline(always)]
    const fn multiples_place(&self, at: usize) -> usize {
        self.unit_place(at) + at % UNIT / self.group * self.group_head()
    }

    /// The offset of the words of the unit of input `at`.
    #[inline(always)]
    const fn words_place(&self, at: usize) -> usize {
        self.unit_place(at) + self.unit_head()
    }

    /// The inputs in a word of lower bits.
    #[inline(always)]
    const fn each(&self) -> usize {
        32 / self.low
    }

    /// Where the lower bits of an input of a unit are: the number of the word, and the lowest bit.
    #[inline(always)]
    const fn low_place(&self, input: usize) -> (usize, usize) {
        (input / self.each(), input % self.each() * self.low)
    }

    /// Where the upper bits of an input of a unit are.
    #[inline(always)]
    const fn high_place(&self, input: usize) -> (usize, usize) {
        let each = 32 / self.high;
        let (four, at) = (input % each / FOUR, input % FOUR);
        // The upper bits of so many fours fit between two inputs of a four.
        let between = self.low / self.high;
        let first = four % between * self.high + four / between * FOUR * self.low;
        (self.low + input / each, first + at * self.low)
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
                    let place = self.multiples_place(start + group * self.group) + lane;
                    panel[place] = multiples.0 as u8;
                    if self.has_halves {
                        panel[place] |= multiples.1 << 4;
                    } else if self.has_minimum {
                        panel[place + LANES] = multiples.1;
                    }
                }
            }
            for (unit, codes) in block.codes[..self.block].chunks_exact(UNIT).enumerate() {
                let mut words = [0u32; 8];
                for (input, code) in codes.iter().enumerate() {
                    let (word, bit) = self.low_place(input);
                    words[word] |= (u32::from(*code) & mask(self.low)) << bit;
                    if self.high > 0 {
                        let (word, bit) = self.high_place(input);
                        words[word] |= (u32::from(*code) >> self.low) << bit;
                    }
                }
                let place = self.words_place(start + unit * UNIT) + 4 * lane;
                for (number, word) in words[..self.low + self.high].iter().enumerate() {
                    panel[place + number * WORDS..][..4].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }

    /// The multiples of the scale and of the minimum, of those at `multiples`, for output `lane`.
    ///
    /// # Safety
    /// `multiples` must be valid for the multiples of a group.
    #[inline(always)]
    unsafe fn multiples(&self, multiples: *const u8, lane: usize) -> (i8, u8) {
        // SAFETY: a group has one or two rows of multiples where there are any.
        unsafe {
            match (self.has_multiples, self.has_halves, self.has_minimum) {
                (false, ..) => (0, 0),
                (_, true, _) => ((*multiples.add(lane) & 15) as i8, *multiples.add(lane) >> 4),
                (.., true) => (*multiples.add(lane) as i8, *multiples.add(LANES + lane)),
                _ => (*multiples.add(lane) as i8, 0),
            }
        }
    }

    /// The code of an input of a unit whose words are `words`, for output `lane`.
    fn code(&self, words: &[u8], input: usize, lane: usize) -> u8 {
        let bits = |(word, bit): (usize, usize), count: usize| {
            let bytes = words[word * WORDS + 4 * lane..].first_chunk().expect("a whole word");
            (u32::from_le_bytes(*bytes) >> bit & mask(count)) as u8
        };
        let low = bits(self.low_place(input), self.low);
        if self.high == 0 { low } else { low | bits(self.high_place(input), self.high) << self.low }
    }
}

#[inline(always)]
const fn mask(bits: usize) -> u32 {
    (1 << bits) - 1
}

/// The size of a panel with `depth` inputs.
const fn size(coding: Coding, depth: usize) -> usize {
    match coding.shape() {
        Some(shape) => depth / shape.block * shape.block_size(),
        None => depth.next_multiple_of(EIGHT) * LANES * coding.block().1,
    }
}

/// The offset of plain number `input` of output `lane`, in bytes.
#[inline(always)]
const fn number_place(coding: Coding, input: usize, lane: usize) -> usize {
    match coding {
        Coding::Bf16 => input / 2 * WORDS + 4 * lane + 2 * (input % 2),
        _ => (input * LANES + lane) * coding.block().1,
    }
}

/// Writes a row into lane `lane` of a panel of zeros.
fn fill(coding: Coding, row: &[u8], lane: usize, panel: &mut [u8]) {
    match coding.shape() {
        Some(shape) => shape.fill(coding, row, lane, panel),
        None => {
            let size = coding.block().1;
            for (input, number) in row.chunks_exact(size).enumerate() {
                panel[number_place(coding, input, lane)..][..size].copy_from_slice(number);
            }
        }
    }
}

/// A coding that kernels are compiled for.
trait Layout {
    const CODING: Coding;
    const SHAPE: Option<Shape> = Self::CODING.shape();
}

macro_rules! layouts {
    ($($name:ident)*) => {
        $(
            struct $name;

            impl Layout for $name {
                const CODING: Coding = Coding::$name;
            }
        )*

        /// Takes the weights of inputs of a panel, as [`walk`] does, for a coding.
        ///
        /// # Safety
        /// As for [`walk`].
        #[inline(always)]
        unsafe fn walk_of<S: Simd>(
            coding: Coding,
            panel: *const u8,
            inputs: Range<usize>,
            to: &mut impl Take<S>,
        ) {
            // SAFETY: the contract.
            unsafe {
                match coding {
                    $(Coding::$name => walk::<S, $name>(panel, inputs, to),)*
                }
            }
        }
    };
}

layouts!(F32 F16 Bf16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K);

/// What decoded weights are given to, input after input.
trait Take<S: Simd> {
    /// Takes the weights of an input, counted from the first of the walk on.
    ///
    /// # Safety
    /// The machine must have `S`, and the input must be one of the walk.
    unsafe fn take(&mut self, input: usize, weights: S::Floats);
}

/// The sums of one row, which stay in registers.
struct RowSums<'a, S: Simd> {
    row: &'a [f32],
    sums: S::Floats,
}

impl<S: Simd> Take<S> for RowSums<'_, S> {
    #[inline(always)]
    unsafe fn take(&mut self, input: usize, weights: S::Floats) {
        // SAFETY: the walk has the inputs of the row, and the contract.
        unsafe { self.sums = S::add_product(self.sums, *self.row.get_unchecked(input), weights) };
    }
}

/// A panel in f32.
struct Decoded<'a>(&'a mut [Weights]);

impl<S: Simd> Take<S> for Decoded<'_> {
    #[inline(always)]
    unsafe fn take(&mut self, input: usize, weights: S::Floats) {
        // SAFETY: the walk has as many inputs as there are weights, and the contract.
        unsafe { S::store_floats(self.0.get_unchecked_mut(input).as_mut_ptr(), weights) };
    }
}

/// What makes weights of the codes of a group.
struct Scales {
    /// The scales of each input of a four, whose codes are not shifted: they are so many times too large.
    by: [Weights; FOUR],
    plus: Weights,
}

/// The scales of the group of input `at`.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for that group.
#[inline(always)]
unsafe fn scales<S: Simd, L: Layout>(shape: Shape, panel: *const u8, at: usize) -> Scales {
    let mut scales = Scales { by: [[0.0; LANES]; FOUR], plus: [0.0; LANES] };
    // SAFETY: the offsets are inside the panel by the contract.
    unsafe {
        let head = panel.add(at / shape.block * shape.block_size());
        S::store_floats(scales.by[0].as_mut_ptr(), S::load_halves(head.cast()));
        if shape.has_minimum {
            S::store_floats(scales.plus.as_mut_ptr(), S::load_halves(head.add(2 * LANES).cast()));
        }
        let multiples = panel.add(shape.multiples_place(at));
        for lane in 0..LANES {
            let (by, plus) =
                shape.scale(scales.by[0][lane], scales.plus[lane], shape.multiples(multiples, lane));
            let plus = if shape.has_minimum { plus } else { -(by * shape.zero as f32) };
            (scales.by[0][lane], scales.plus[lane]) = (by, plus);
        }
    }
    let [first, others @ ..] = &mut scales.by;
    for (at, others) in others.iter_mut().enumerate() {
        let part = 1.0 / (1u32 << (shape.low * (at + 1))) as f32;
        for (other, first) in others.iter_mut().zip(&*first) {
            *other = first * part;
        }
    }
    scales
}

/// Decodes `inputs` of a panel, from a multiple of [`UNIT`] on, and gives their weights to `to`.
///
/// # Safety
/// The machine must have `S`, and `panel` must be valid for the inputs.
#[inline(always)]
unsafe fn walk<S: Simd, L: Layout>(panel: *const u8, inputs: Range<usize>, to: &mut impl Take<S>) {
    // SAFETY: the contract. No closures: see `microkernel::tiles`.
    unsafe {
        let Some(shape) = L::SHAPE else { return walk_numbers::<S, L>(panel, inputs, to) };
        for start in inputs.clone().step_by(shape.group) {
            let scales = scales::<S, L>(shape, panel, start);
            let words = panel.add(shape.words_place(start));
            for four in 0..shape.group / FOUR {
                // The number in the unit, and in the walk.
                let (input, first) = (start % UNIT + four * FOUR, start - inputs.start + four * FOUR);
                let (word, bit) = shape.low_place(input);
                let low = S::shift_right(S::load_words(words.add(word * WORDS).cast()), bit as u32);
                let mut high = low;
                if shape.high > 0 {
                    let (word, bit) = shape.high_place(input);
                    high = S::load_words(words.add(word * WORDS).cast());
                    high = if bit < shape.low {
                        S::shift_left(high, (shape.low - bit) as u32)
                    } else {
                        S::shift_right(high, (bit - shape.low) as u32)
                    };
                }
                for at in 0..FOUR {
                    let place = shape.low * at;
                    let mut by = at;
                    let mut code = if place + shape.low == 32 {
                        // As a signed integer it would be negative.
                        by = 0;
                        S::shift_right(low, place as u32)
                    } else {
                        S::and(low, mask(shape.low) << place)
                    };
                    if shape.high > 0 {
                        let bits = S::and(high, mask(shape.high) << (shape.low + place));
                        code = S::or(code, bits);
                    }
                    let plus = S::load_floats(scales.plus.as_ptr());
                    let by = S::load_floats(scales.by[by].as_ptr());
                    to.take(first + at, S::add_products(plus, S::integers(code), by));
                }
            }
        }
    }
}

/// [`walk`] over plain numbers.
///
/// # Safety
/// As for that.
#[inline(always)]
unsafe fn walk_numbers<S: Simd, L: Layout>(panel: *const u8, inputs: Range<usize>, to: &mut impl Take<S>) {
    // SAFETY: the contract; panels are padded to eight inputs.
    unsafe {
        let numbers = panel.add(number_place(L::CODING, inputs.start, 0));
        let count = inputs.len();
        match L::CODING {
            Coding::F16 => {
                for input in 0..count {
                    to.take(input, S::load_halves(numbers.cast::<u16>().add(input * LANES)));
                }
            }
            Coding::Bf16 => {
                for pair in 0..count / 2 {
                    let words = S::load_words(numbers.cast::<u32>().add(pair * LANES));
                    to.take(2 * pair, S::floats(S::shift_left(words, 16)));
                    to.take(2 * pair + 1, S::floats(S::and(words, 0xffff_0000)));
                }
                if count % 2 == 1 {
                    let words = S::load_words(numbers.cast::<u32>().add(count / 2 * LANES));
                    to.take(count - 1, S::floats(S::shift_left(words, 16)));
                }
            }
            _ => {
                for input in 0..count {
                    to.take(input, S::load_floats(numbers.cast::<f32>().add(input * LANES)));
                }
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
            for (input, out) in out.iter_mut().enumerate() {
                let number = &panel[number_place(coding, input, lane)..][..size];
                coding.decode(number, std::slice::from_mut(out));
            }
            return;
        };
        let half = |at: usize| half::f16::from_le_bytes([panel[at], panel[at + 1]]).to_f32();
        for (group, out) in out.chunks_exact_mut(shape.group).enumerate() {
            let start = group * shape.group;
            let head = start / shape.block * shape.block_size() + 2 * lane;
            let minimum = if shape.has_minimum { half(head + 2 * LANES) } else { 0.0 };
            let multiples = &panel[shape.multiples_place(start)..][..shape.group_head()];
            // SAFETY: those of a whole group.
            let multiples = unsafe { shape.multiples(multiples.as_ptr(), lane) };
            let scale = shape.scale(half(head), minimum, multiples);
            let words = &panel[shape.words_place(start)..];
            for (input, out) in out.iter_mut().enumerate() {
                *out = shape.value(shape.code(words, start % UNIT + input, lane), scale);
            }
        }
    }

    /// The sums of a strip: `out[r]` is its row `r` times panel `at`.
    ///
    /// # Safety
    /// The machine must have `S`, the set `isa`.
    ///
    /// # Panics
    /// If the depth is not that of the panels, or the strip or `out` has too few rows.
    #[inline(always)]
    pub(crate) unsafe fn sum<S: Simd>(
        &self,
        isa: Isa,
        at: usize,
        strip: Strip<'_>,
        out: &mut [[f32; LANES]],
    ) {
        let Strip { values, rows, stride, depth } = strip;
        assert!(depth == self.depth && rows <= out.len());
        assert!(rows > 0 && values.len() >= (rows - 1) * stride + depth);
        if rows == 1 {
            return self.sum_row(isa, at, &values[..depth], &mut out[0]);
        }
        let mut block = Lines::zeroed(S::PIECE.min(depth).next_multiple_of(UNIT) * LANES);
        for tile in tiles_of::<S>(rows, depth, UNIT, false) {
            if tile.rows.start == 0 {
                let Range { start, end } = tile.steps();
                self.decode_inputs(isa, at, start, &mut block.as_chunks_mut().0[..end - start]);
            }
            // SAFETY: the contract, the assertions, and a block with the steps of the tile.
            unsafe { tile.sum_block::<S>(values.as_ptr(), stride, block.as_ptr(), out) };
        }
    }

    /// `row` times panel `at`.
    fn sum_row(&self, isa: Isa, at: usize, row: &[f32], out: &mut Weights) {
        #[inline(always)]
        fn body<S: Simd>(coding: Coding, panel: &[u8], row: &[f32], out: &mut Weights) {
            // SAFETY: `dispatch` has checked that the machine has `S`; the panel is whole and as deep as the row.
            unsafe {
                let mut sums = RowSums::<S> { row, sums: S::zero_floats() };
                walk_of::<S>(coding, panel.as_ptr(), 0..row.len(), &mut sums);
                S::store_floats(out.as_mut_ptr(), sums.sums);
            }
        }
        let (coding, panel) = self.panel(at);
        dispatch!(isa, body(coding: Coding, panel: &[u8], row: &[f32], out: &mut Weights));
    }

    /// Decodes inputs of panel `at` from `start` on, which is a multiple of [`UNIT`].
    fn decode_inputs(&self, isa: Isa, at: usize, start: usize, out: &mut [Weights]) {
        #[inline(always)]
        fn body<S: Simd>(coding: Coding, panel: &[u8], start: usize, out: &mut [Weights]) {
            // SAFETY: `dispatch` has checked that the machine has `S`; the panel is whole and has the inputs.
            unsafe { walk_of::<S>(coding, panel.as_ptr(), start..start + out.len(), &mut Decoded(out)) };
        }
        assert!(start.is_multiple_of(UNIT) && start + out.len() <= self.depth);
        let (coding, panel) = self.panel(at);
        dispatch!(isa, body(coding: Coding, panel: &[u8], start: usize, out: &mut [Weights]));
    }

    /// Decodes `panels` in the layout of panels in f32.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn decode(&self, isa: Isa, panels: Range<usize>) -> Lines {
        let mut values = Lines::zeroed(panels.len() * self.depth * LANES);
        for (at, out) in panels.zip(values.as_chunks_mut().0.chunks_exact_mut(self.depth)) {
            self.decode_inputs(isa, at, 0, out);
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
            // In f32, AMX rounds differently from the other sets, which it leaves few rows to.
            let fewest = if Isa::detected() == Isa::Amx { 48 } else { 1 };
            for count in [1, 2, 3, 7, 40, 48, 55, 70].into_iter().filter(|&count| count >= fewest) {
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
