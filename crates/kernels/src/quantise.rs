//! Quantisation to 8 bits: weights with one scale an output, inputs with one a row.

use crate::{
    isa::{Isa, dispatch},
    math::{ROUND, each_row},
    matrix::Input,
    simd::{LANES, Simd},
    thread_pool::ThreadPool,
};

/// Buffers for 8-bit rows, reused by later products.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    values: Vec<u8>,
    scales: Vec<f32>,
}

/// Quantises the weights of one output into lane `lane` of its panel, and returns its scale and offset.
pub(crate) fn quantise_output(row: &[f32], lane: usize, panel: &mut [i8]) -> (f32, i32) {
    let scale = scale_of(row);
    let inverse = 1.0 / scale;
    let mut sum = 0;
    for (quad, weights) in row.chunks(4).enumerate() {
        for (i, weight) in weights.iter().enumerate() {
            let value = (weight * inverse + ROUND).to_bits() as i8;
            panel[quad * 4 * LANES + lane * 4 + i] = value;
            sum += i32::from(value);
        }
    }
    (scale, 128 * sum)
}

/// The scale that maps the largest absolute value of `row` to 127.
#[inline(always)]
pub(crate) fn scale_of(row: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if value.abs() > *lane { value.abs() } else { *lane };
        }
    }
    let greatest = rest.iter().map(|value| value.abs()).chain(lanes).fold(0f32, f32::max);
    if greatest > 0.0 { greatest / 127.0 } else { 1.0 }
}

/// Quantises rows to 8 bits: 128 for 0, and 127 away from it for the largest absolute value of a row. If
/// tiles read them in 16 bits, the second and the third of four are swapped, as required by
/// [`Simd::tile_i8`].
pub(crate) fn quantise<'a>(
    isa: Isa,
    pool: &ThreadPool,
    values: &[f32],
    stride: usize,
    width: usize,
    scratch: &'a mut Scratch,
) -> Input<'a> {
    #[inline(always)]
    fn body<S: Simd>(row: &[f32], out: &mut [u8]) -> f32 {
        let scale = scale_of(row);
        let inverse = 1.0 / scale;
        // Rounded by an addition, whose low byte is the integer; not fused, so that every machine rounds
        // equally.
        let round = |value: f32| ((value * inverse + ROUND).to_bits() as u8).wrapping_add(128);
        if S::INPUT == 1 {
            out.iter_mut().zip(row).for_each(|(out, value)| *out = round(*value));
            return scale;
        }
        let (quads, rest) = row.as_chunks::<4>();
        let mut last = [0.0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let places = out.as_chunks_mut::<8>().0.iter_mut();
        for (place, [a, b, c, d]) in places.zip(quads.iter().chain([&last])) {
            *place = [round(*a), 0, round(*c), 0, round(*b), 0, round(*d), 0];
        }
        scale
    }
    fn one(isa: Isa, row: &[f32], out: &mut [u8]) -> f32 {
        dispatch!(isa, body(row: &[f32], out: &mut [u8]) -> f32)
    }
    #[inline(always)]
    fn size<S: Simd>() -> usize {
        S::INPUT
    }

    struct Shared(*mut u8, *mut f32);
    // SAFETY: the pointers are only used for the rows of a part, which no other part uses.
    unsafe impl Sync for Shared {}

    let count = values.len() / stride;
    // A cache line between rows, as in `Rows`.
    let used = width.next_multiple_of(4) * dispatch!(isa, size() -> usize);
    let bytes = used.next_multiple_of(64) + 64;
    scratch.values.resize(scratch.values.len().max(count * bytes), 0);
    scratch.scales.resize(scratch.scales.len().max(count), 0.0);
    let shared = Shared(scratch.values.as_mut_ptr(), scratch.scales.as_mut_ptr());
    let shared = &shared;
    each_row(pool, count, &|at| {
        // SAFETY: row `at` is inside the memory sized above, and belongs to this part alone.
        let out = unsafe { std::slice::from_raw_parts_mut(shared.0.add(at * bytes), used) };
        let scale = one(isa, &values[at * stride..][..width], out);
        // SAFETY: as above.
        unsafe { *shared.1.add(at) = scale };
    });
    Input::Int8 { values: &scratch.values, stride: bytes, scales: &scratch.scales }
}
