//! The attention of one head (Vaswani et al. 2017): softmax(Q K^T scale + bias) V.

use half::{
    f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};

use crate::{
    buffer::Lines,
    isa::{Isa, dispatch},
    math::{softmax_body, tanh},
    multiply::{View, panel},
    simd::{
        LANES, MOST_ROWS, Simd,
        microkernel::{sum_f16, sum_f32},
    },
};

/// The keys and values of one head of one input, packed for products: the keys in panels of 32 keys, the values in
/// panels of 32 columns.
#[derive(Clone, Copy, Debug)]
pub struct PackedHead<'a> {
    panels: PanelValues<'a>,
    count: usize,
    width: usize,
}

/// The largest value in f16.
const MOST: f32 = 65_504.0;

/// Panels in order.
#[derive(Clone, Copy, Debug)]
enum PanelValues<'a> {
    F32(&'a [f32]),
    /// In 16 bits (f16).
    F16(&'a [u16]),
}

impl PanelValues<'_> {
    /// The products of `rows` rows of `a`, `stride` apart, with the panel of `depth` inputs that starts at
    /// `start`.
    ///
    /// # Safety
    /// The machine must support `S`, and `a` must be valid for those rows.
    #[inline(always)]
    unsafe fn sum<S: Simd>(
        &self,
        (start, depth): (usize, usize),
        rows: usize,
        a: *const f32,
        stride: usize,
        out: &mut [[f32; LANES]],
    ) {
        // SAFETY: the contract, and a panel of `depth` inputs.
        unsafe {
            match self {
                Self::F32(values) => {
                    let panel = values[start..][..depth * LANES].as_ptr();
                    sum_f32::<S>(rows, depth, a, (stride, 1), panel, out);
                }
                Self::F16(values) => {
                    let panel = values[start..][..depth * LANES].as_ptr();
                    sum_f16::<S>(rows, depth, a, stride, panel, out);
                }
            }
        }
    }
}

impl<'a> PackedHead<'a> {
    /// The packed size of `count` keys and values of `width`.
    #[must_use]
    pub fn size(count: usize, width: usize) -> usize {
        Self::keys_size(count, width) + width.div_ceil(LANES) * LANES * count
    }

    fn keys_size(count: usize, width: usize) -> usize {
        count.div_ceil(LANES) * LANES * width
    }

    /// Packs rows of `from`, a key and a value each, into `out`, which must have [`size`](Self::size).
    ///
    /// # Panics
    /// If `out` has another size, or keys and values differ in number or width.
    pub fn pack(isa: Isa, from: &[f32], keys: View, values: View, out: &mut [f32]) {
        let (count, width) = (keys.rows, keys.columns);
        assert!(values.rows == count && values.columns == width && out.len() == Self::size(count, width));
        let (packed_keys, packed_values) = out.split_at_mut(Self::keys_size(count, width));
        for (at, out) in packed_keys.chunks_exact_mut(LANES * width).enumerate() {
            panel(isa, from, keys.transposed(), at, out);
        }
        for (at, out) in packed_values.chunks_exact_mut(LANES * count).enumerate() {
            panel(isa, from, values, at, out);
        }
    }

    /// [`pack`](Self::pack) in 16 bits (f16): half the memory, and half the reads in each decoding step.
    /// Larger values are clamped to 65,504.
    ///
    /// # Panics
    /// As for [`pack`](Self::pack).
    pub fn pack_halves(isa: Isa, from: &[f32], keys: View, values: View, out: &mut [u16]) {
        let (count, width) = (keys.rows, keys.columns);
        assert!(values.rows == count && values.columns == width && out.len() == Self::size(count, width));
        let (packed_keys, packed_values) = out.split_at_mut(Self::keys_size(count, width));
        let mut floats = Lines::zeroed(LANES * width.max(count));
        for (out, view, depth) in [(packed_keys, keys.transposed(), width), (packed_values, values, count)] {
            let floats = &mut floats[..LANES * depth];
            for (at, out) in out.chunks_exact_mut(LANES * depth).enumerate() {
                panel(isa, from, view, at, floats);
                floats.iter_mut().for_each(|value| *value = value.clamp(-MOST, MOST));
                out.reinterpret_cast_mut::<f16>().convert_from_f32_slice(floats);
            }
        }
    }

    /// Wraps the result of [`pack`](Self::pack).
    ///
    /// # Panics
    /// If `values` does not have the size of `count` and `width`.
    #[must_use]
    pub fn new(values: &'a [f32], count: usize, width: usize) -> Self {
        assert_eq!(values.len(), Self::size(count, width));
        Self { panels: PanelValues::F32(values), count, width }
    }

    /// Wraps the result of [`pack_halves`](Self::pack_halves).
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    #[must_use]
    pub fn of_halves(values: &'a [u16], count: usize, width: usize) -> Self {
        assert_eq!(values.len(), Self::size(count, width));
        Self { panels: PanelValues::F16(values), count, width }
    }

    /// The inner product of a query with each key, without scale and softmax.
    ///
    /// # Panics
    /// If the query has another width than the keys.
    #[must_use]
    pub fn products(&self, query: &[f32]) -> Vec<f32> {
        assert_eq!(query.len(), self.width);
        let mut products = vec![0f32; self.count.next_multiple_of(LANES)];
        let mut column = [0f32; LANES];
        for (panel, sums) in products.chunks_exact_mut(LANES).enumerate() {
            for (at, value) in query.iter().enumerate() {
                let start = (panel * self.width + at) * LANES;
                match self.panels {
                    PanelValues::F32(values) => column.copy_from_slice(&values[start..][..LANES]),
                    PanelValues::F16(values) => {
                        values[start..][..LANES].reinterpret_cast::<f16>().convert_to_f32_slice(&mut column);
                    }
                }
                sums.iter_mut().zip(&column).for_each(|(sum, key)| *sum += value * key);
            }
        }
        products.truncate(self.count);
        products
    }
}

/// `count` queries of one head, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// The values, starting with the first query.
    pub values: &'a [f32],
    /// The number of queries.
    pub count: usize,
    /// The distance between queries.
    pub stride: usize,
}

/// How the scores are made of the products of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The factor of the products, above 0.
    pub scale: f32,
    /// The bound `c` of the scores, above 0: a score `s` becomes `c tanh(s / c)` before a bias is added (Gemma Team
    /// 2024).
    pub cap: Option<f32>,
}

impl From<f32> for Scores {
    /// Scores without a bound.
    fn from(scale: f32) -> Self {
        Self { scale, cap: None }
    }
}

impl Scores {
    /// Bounds scores, which are then no more to be scaled.
    #[inline(always)]
    fn bound<S: Simd>(&mut self, scores: &mut [f32]) {
        if let Some(cap) = self.cap {
            let inner = self.scale / cap;
            scores.iter_mut().for_each(|score| *score = cap * tanh::<S>(*score * inner));
            *self = Self::from(1.0);
        }
    }
}

/// Biases added to the scores: `values[start + i * step..]` for query `i`, one a key.
#[derive(Clone, Copy, Debug)]
pub struct Distances<'a> {
    /// The values.
    pub values: &'a [f32],
    /// The start of the values of query 0.
    pub start: usize,
    /// From a query's values to those of the next: -1 where `values` has one for each distance, ascending.
    pub step: isize,
}

impl Distances<'_> {
    /// The biases of query `at`, on the scores of all keys from the first.
    #[inline(always)]
    fn of(&self, at: usize) -> &[f32] {
        &self.values[self.start.wrapping_add_signed(at as isize * self.step)..]
    }
}

/// Computes attention of every query over all keys of `head`. Calls `store` with the index of each query and its
/// output.
///
/// # Panics
/// If `queries` or `distances` are too short.
pub fn attend(
    isa: Isa,
    head: PackedHead<'_>,
    queries: Queries<'_>,
    how: Scores,
    distances: Option<Distances<'_>>,
    store: &mut dyn FnMut(usize, &[f32]),
) {
    #[inline(always)]
    fn body<S: Simd>(
        head: PackedHead<'_>,
        queries: Queries<'_>,
        how: Scores,
        distances: Option<Distances<'_>>,
        store: &mut dyn FnMut(usize, &[f32]),
    ) {
        let (count, width) = (head.count, head.width);
        let padded = count.next_multiple_of(LANES) + 16;
        let mut scores = vec![0f32; padded * S::ROWS.min(queries.count)];
        let mut mixed = vec![0f32; width.next_multiple_of(LANES) * S::ROWS.min(queries.count)];
        let mixed_width = width.next_multiple_of(LANES);
        let mut sums = [[0f32; LANES]; MOST_ROWS];
        let mut inverse = [0f32; MOST_ROWS];
        let tiles = queries.count.div_ceil(S::ROWS);
        for tile in 0..tiles {
            let (start, end) = (tile * queries.count / tiles, (tile + 1) * queries.count / tiles);
            let height = end - start;
            let q = &queries.values[start * queries.stride..(end - 1) * queries.stride + width];
            for at in 0..count.div_ceil(LANES) {
                let panel = (at * LANES * width, width);
                // SAFETY: `q` has `height` rows of `width` values; `dispatch` has checked `S`.
                unsafe { head.panels.sum::<S>(panel, height, q.as_ptr(), queries.stride, &mut sums) };
                for (scores, sums) in scores.chunks_exact_mut(padded).zip(&sums).take(height) {
                    scores[at * LANES..][..LANES].copy_from_slice(sums);
                }
            }
            for (row, scores) in scores.chunks_exact_mut(padded).take(height).enumerate() {
                let (scores, mut how) = (&mut scores[..count], how);
                how.bound::<S>(scores);
                inverse[row] = match distances {
                    Some(distances) => {
                        let bias = &distances.of(start + row)[..count];
                        scores
                            .iter_mut()
                            .zip(bias)
                            .for_each(|(score, bias)| *score = S::mul_add(*score, how.scale, *bias));
                        softmax_body::<S>(scores, 1.0)
                    }
                    None => softmax_body::<S>(scores, how.scale),
                };
            }
            for at in 0..width.div_ceil(LANES) {
                let panel = (PackedHead::keys_size(count, width) + at * LANES * count, count);
                // SAFETY: `scores` has `height` rows of at least `count` values.
                unsafe { head.panels.sum::<S>(panel, height, scores.as_ptr(), padded, &mut sums) };
                for ((row, sums), inverse) in sums.iter().enumerate().take(height).zip(&inverse) {
                    let out = &mut mixed[row * mixed_width + at * LANES..][..LANES];
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * inverse);
                }
            }
            for row in 0..height {
                store(start + row, &mixed[row * mixed_width..][..width]);
            }
        }
    }
    dispatch!(isa, body(
        head: PackedHead<'_>,
        queries: Queries<'_>,
        how: Scores,
        distances: Option<Distances<'_>>,
        store: &mut dyn FnMut(usize, &[f32]),
    ));
}

/// Computes one decoding step: a row of queries, `heads` next to each other, over keys at arbitrary places.
/// `steps[i]` has the keys of all heads and then the values. `biases` has one row a head, added to its
/// scores, the last key first. The outputs of all heads are written to `out`.
///
/// # Panics
/// If a width does not match.
pub fn attend_steps(
    isa: Isa,
    queries: &[f32],
    steps: &[&[f32]],
    heads: usize,
    how: Scores,
    biases: Option<&[Vec<f32>]>,
    out: &mut [f32],
) {
    #[inline(always)]
    fn body<S: Simd>(
        queries: &[f32],
        steps: &[&[f32]],
        heads: usize,
        how: Scores,
        biases: Option<&[Vec<f32>]>,
        out: &mut [f32],
    ) {
        let width = queries.len() / heads;
        let mut scores = vec![0f32; steps.len()];
        for head in 0..heads {
            let own = head * width..(head + 1) * width;
            let bias = biases.map(|biases| &biases[head]);
            for (score, step) in scores.iter_mut().zip(steps) {
                *score = dot::<S>(&queries[own.clone()], &step[own.clone()]);
            }
            let mut how = how;
            how.bound::<S>(&mut scores);
            for (at, score) in scores.iter_mut().enumerate() {
                let bias = bias.map_or(0.0, |bias| bias[steps.len() - 1 - at]);
                *score = S::mul_add(*score, how.scale, bias);
            }
            let inverse = softmax_body::<S>(&mut scores, 1.0);
            let out = &mut out[own];
            out.fill(0.0);
            for (score, step) in scores.iter().zip(steps) {
                let weight = score * inverse;
                let value = &step[queries.len() + head * width..][..width];
                out.iter_mut().zip(value).for_each(|(out, value)| *out = S::mul_add(weight, *value, *out));
            }
        }
    }
    dispatch!(isa, body(
        queries: &[f32],
        steps: &[&[f32]],
        heads: usize,
        how: Scores,
        biases: Option<&[Vec<f32>]>,
        out: &mut [f32],
    ));
}

#[inline(always)]
fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    const STEP: usize = LANES / 2;
    let mut lanes = [0f32; STEP];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<STEP>(), b.as_chunks::<STEP>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..STEP {
            lanes[i] = S::mul_add(a[i], b[i], lanes[i]);
        }
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn random(count: usize, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    /// The definition, in f64.
    fn expected(
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scale: f32,
        cap: Option<f32>,
        bias: impl Fn(usize) -> f32,
    ) -> Vec<f64> {
        let width = query.len();
        let weights: Vec<f64> = keys
            .chunks_exact(width)
            .enumerate()
            .map(|(at, key)| {
                let dot: f64 = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                let score = dot * f64::from(scale);
                let score = cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                (score + f64::from(bias(at))).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        (0..width)
            .map(|i| {
                let mixed: f64 =
                    weights.iter().enumerate().map(|(at, w)| w * f64::from(values[at * width + i])).sum();
                mixed / sum
            })
            .collect()
    }

    #[test]
    fn every_query_mixes_the_values_by_the_softmax_of_its_scores() {
        for isa in Isa::available() {
            for (queries, count, width) in [(1, 1, 4), (5, 33, 8), (13, 64, 64), (30, 70, 40)] {
                let (q, k, v) =
                    (random(queries * width, 1), random(count * width, 2), random(count * width, 3));
                let table = random(queries + count, 4);
                // Values that 16 bits represent exactly, so that both versions must agree.
                let [k, v] = [k, v]
                    .map(|values| values.iter().map(|x| f16::from_f32(*x).to_f32()).collect::<Vec<_>>());
                let mut packed = vec![f32::NAN; PackedHead::size(count, width)];
                let mut halves = vec![u16::MAX; PackedHead::size(count, width)];
                let view = View::packed(count, width);
                let values = View { offset: k.len(), ..view };
                let both = [k.clone(), v.clone()].concat();
                PackedHead::pack(isa, &both, view, values, &mut packed);
                PackedHead::pack_halves(isa, &both, view, values, &mut halves);
                let heads =
                    [PackedHead::new(&packed, count, width), PackedHead::of_halves(&halves, count, width)];
                let [products, of_halves] = heads.map(|head| head.products(&q[..width]));
                assert_eq!(products, of_halves);
                let (matrix, step) = (random(queries * count + 3, 5), count as isize);
                let distances = [
                    None,
                    Some(Distances { values: &table, start: queries - 1, step: -1 }),
                    Some(Distances { values: &matrix, start: 3, step }),
                ];
                let caps =
                    distances.iter().flat_map(|distances| [(*distances, None), (*distances, Some(0.7))]);
                let caps: Vec<_> = caps.collect();
                for (head, (distances, cap)) in
                    heads.iter().flat_map(|head| caps.iter().map(|cap| (*head, *cap)))
                {
                    let of = Queries { values: &q, count: queries, stride: width };
                    attend(isa, head, of, Scores { scale: 0.5, cap }, distances, &mut |at, mixed| {
                        let bias = |key: usize| {
                            distances.map_or(0.0, |d| {
                                d.values[(d.start as isize + at as isize * d.step) as usize + key]
                            })
                        };
                        let expected = expected(&q[at * width..][..width], &k, &v, 0.5, cap, bias);
                        for (found, expected) in mixed.iter().zip(&expected) {
                            assert!(
                                (f64::from(*found) - expected).abs() < 1e-5,
                                "{isa:?} {queries} {count} {width}"
                            );
                        }
                    });
                }
            }
        }
    }

    #[test]
    fn values_beyond_16_bits_stay_finite() {
        let (from, view) = ([1e6f32, -1e6], View::packed(1, 1));
        let mut halves = vec![0; PackedHead::size(1, 1)];
        PackedHead::pack_halves(Isa::Portable, &from, view, View { offset: 1, ..view }, &mut halves);
        let queries = Queries { values: &[1.0], count: 1, stride: 1 };
        let mut mixed = 0.0;
        attend(
            Isa::Portable,
            PackedHead::of_halves(&halves, 1, 1),
            queries,
            1.0.into(),
            None,
            &mut |_, values| {
                mixed = values[0];
            },
        );
        assert_eq!(mixed, -65_504.0);
    }

    #[test]
    fn keys_where_they_lie_give_the_same_as_packed_ones() {
        for isa in Isa::available() {
            for (count, heads, width) in [(1, 1, 4), (9, 2, 20), (33, 3, 64)] {
                let all = heads * width;
                let (q, kv) = (random(all, 1), random(count * 2 * all, 2));
                let steps: Vec<&[f32]> = kv.chunks_exact(2 * all).collect();
                let biases: Vec<Vec<f32>> = (0..heads).map(|head| random(count, 5 + head as u64)).collect();
                for cap in [None, Some(0.4)] {
                    let mut out = vec![0.0; all];
                    attend_steps(isa, &q, &steps, heads, Scores { scale: 0.3, cap }, Some(&biases), &mut out);
                    for (head, biases) in biases.iter().enumerate() {
                        let part = |from: usize| -> Vec<f32> {
                            steps.iter().flat_map(|step| &step[from..from + width]).copied().collect()
                        };
                        let (k, v) = (part(head * width), part(all + head * width));
                        let own = head * width..(head + 1) * width;
                        let bias = |key: usize| biases[count - 1 - key];
                        let expected = expected(&q[own.clone()], &k, &v, 0.3, cap, bias);
                        assert!(
                            out[own].iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5),
                            "{isa:?}"
                        );
                    }
                }
            }
        }
    }
}
