//! Multi-head attention from projected queries, keys and values to mixed values.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa, SoftmaxRows};

use super::product::{View, add_product, product};
use super::{norm::dot, values, with_values};

/// Dropout of attention weights: which ones is a function of the seed and the weight's place, so that the backward
/// pass finds the same ones without a stored mask.
#[derive(Debug, Clone, Copy)]
pub struct AttentionDropout {
    /// The share of the weights that is dropped.
    pub rate: f64,
    /// The seed of dropout.
    pub seed: u64,
}

impl AttentionDropout {
    /// Multiplies each of `weights`, the first of which has the number `first`, by 0 or 1 / (1 - rate).
    fn apply(self, weights: &mut [f32], first: usize) {
        if self.rate == 0.0 {
            return;
        }
        let threshold = (self.rate * 2f64.powi(32)) as u64;
        let kept = (1.0 / (1.0 - self.rate)) as f32;
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight *= if mix(self.seed ^ (first + i) as u64) >> 32 < threshold { 0.0 } else { kept };
        }
    }
}

/// The finaliser of SplitMix64 (Steele et al. 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The sizes of one attention: `batch` times `heads` products of (queries, width) with (keys, width). Heads that follow each
/// other share one of `groups` of keys and values.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    width: usize,
}

impl Sizes {
    /// The values of one row of queries.
    fn inner(&self) -> usize {
        self.heads * self.width
    }

    /// The values of one row of keys with values.
    fn both(&self) -> usize {
        2 * self.groups * self.width
    }

    /// The place of a head's group in a row of keys.
    fn group(&self, head: usize) -> usize {
        head / (self.heads / self.groups) * self.width
    }

    /// The scores of one batch member.
    fn scores(&self) -> usize {
        self.heads * self.queries * self.keys
    }

    fn query(&self, head: usize) -> View {
        View::rows(head * self.width, self.queries, self.width, self.inner())
    }

    fn key(&self, head: usize) -> View {
        View::rows(self.group(head), self.keys, self.width, self.both())
    }

    fn value(&self, head: usize) -> View {
        View::rows(self.both() / 2 + self.group(head), self.keys, self.width, self.both())
    }

    fn score(&self, head: usize) -> View {
        View::rows(head * self.queries * self.keys, self.queries, self.keys, self.keys)
    }
}

/// A bias of (1 or b, 1 or h, 1 or t, s), and the offset of a query's row in it.
#[derive(Debug, Clone, Copy)]
struct BiasLayout {
    batch: usize,
    heads: usize,
    queries: usize,
}

impl BiasLayout {
    fn row(&self, batch: usize, head: usize, query: usize, keys: usize) -> usize {
        let at = |size: usize, index: usize| if size == 1 { 0 } else { index };
        let (b, h, t) = (at(self.batch, batch), at(self.heads, head), at(self.queries, query));
        ((b * self.heads + h) * self.queries + t) * keys
    }

    fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }
}

struct Attention {
    sizes: Sizes,
    bias: BiasLayout,
    scale: f32,
    dropout: AttentionDropout,
    /// The softmax weights (b, h, t, s), which the forward pass leaves for the backward pass.
    weights: OnceLock<Vec<f32>>,
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (queries, pairs, bias) = (values(s1, l1)?, values(s2, l2)?, values(s3, l3)?);
        let n = self.sizes;
        let (of_queries, of_pairs) = (n.queries * n.inner(), n.keys * n.both());
        let mut out = vec![0.0; n.batch * of_queries];
        let mut weights = vec![0.0; n.batch * n.scores()];
        let work = out.par_chunks_mut(of_queries).zip(weights.par_chunks_mut(n.scores()));
        work.enumerate().for_each(|(b, (out, weights))| {
            let queries = &queries[b * of_queries..][..of_queries];
            let pairs = &pairs[b * of_pairs..][..of_pairs];
            let (mut dropped, mut sums) = (Vec::new(), vec![0.0; n.queries]);
            let softmax = SoftmaxRows { width: n.keys, scale: 1.0, dropout: Dropout::new(0.0, 0), first: 0 };
            for h in 0..n.heads {
                let keys = n.key(h).transposed();
                product((weights, n.score(h)), (queries, n.query(h)), (pairs, keys), self.scale);
                let mine = &mut weights[n.score(h).offset..][..n.queries * n.keys];
                for (t, row) in mine.chunks_exact_mut(n.keys).enumerate() {
                    let bias = &bias[self.bias.row(b, h, t, n.keys)..][..n.keys];
                    row.iter_mut().zip(bias).for_each(|(x, y)| *x += y);
                }
                softmax.forward(Isa::detected(), mine, &mut sums);
                dropped.clear();
                dropped.extend_from_slice(mine);
                self.dropout.apply(&mut dropped, b * n.scores() + n.score(h).offset);
                let view = View::rows(0, n.queries, n.keys, n.keys);
                product((out, n.query(h)), (&dropped, view), (pairs, n.value(h)), 1.0);
            }
        });
        // The forward pass of an operation runs once.
        let _ = self.weights.set(weights);
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(
        &self,
        queries: &Tensor,
        pairs: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let Some(weights) = self.weights.get() else {
            candle_core::bail!("attention: the backward pass came before the forward pass");
        };
        let gradient = gradient.contiguous()?;
        let (to_queries, to_pairs, to_scores) = with_values(queries, |q| {
            with_values(pairs, |kv| with_values(&gradient, |g| Ok(self.backward(q, kv, g, weights))))
        })?;
        let to_bias = bias.track_op().then(|| {
            let sums = if self.bias.rows() * self.sizes.keys == to_scores.len() {
                to_scores
            } else {
                self.sum_to_bias(&to_scores)
            };
            Tensor::from_vec(sums, bias.shape(), &Device::Cpu)
        });
        Ok((
            Some(Tensor::from_vec(to_queries, queries.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(to_pairs, pairs.shape(), &Device::Cpu)?),
            to_bias.transpose()?,
        ))
    }
}

impl Attention {
    /// The gradients of queries, of keys with values, and of the scores. With weights p, dropped weights d and
    /// output gradient g: dv = d^T g, dp = dropped (g v^T), ds = p (dp - sum(p dp)), dq = ds k, dk = ds^T q.
    fn backward(
        &self,
        queries: &[f32],
        pairs: &[f32],
        gradient: &[f32],
        weights: &[f32],
    ) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let n = self.sizes;
        let (of_queries, of_pairs) = (n.queries * n.inner(), n.keys * n.both());
        let mut to_queries = vec![0.0; queries.len()];
        let mut to_pairs = vec![0.0; pairs.len()];
        let mut to_scores = vec![0.0; weights.len()];
        let work = to_queries
            .par_chunks_mut(of_queries)
            .zip(to_pairs.par_chunks_mut(of_pairs))
            .zip(to_scores.par_chunks_mut(n.scores()));
        work.enumerate().for_each(|(b, ((to_queries, to_pairs), to_scores))| {
            let queries = &queries[b * of_queries..][..of_queries];
            let pairs = &pairs[b * of_pairs..][..of_pairs];
            let gradient = &gradient[b * of_queries..][..of_queries];
            let mut dropped = Vec::new();
            for h in 0..n.heads {
                let first = n.score(h).offset;
                let size = n.queries * n.keys;
                let weights = &weights[b * n.scores() + first..][..size];
                dropped.clear();
                dropped.extend_from_slice(weights);
                self.dropout.apply(&mut dropped, b * n.scores() + first);
                let view = View::rows(0, n.queries, n.keys, n.keys);
                let shares = (&dropped[..], view.transposed());
                add_product((to_pairs, n.value(h)), shares, (gradient, n.query(h)), 1.0);
                product(
                    (to_scores, n.score(h)),
                    (gradient, n.query(h)),
                    (pairs, n.value(h).transposed()),
                    1.0,
                );
                let mine = &mut to_scores[first..][..size];
                self.dropout.apply(mine, b * n.scores() + first);
                for (d, p) in mine.chunks_exact_mut(n.keys).zip(weights.chunks_exact(n.keys)) {
                    let mean = dot(d, p);
                    d.iter_mut().zip(p).for_each(|(d, p)| *d = p * (*d - mean));
                }
                product((to_queries, n.query(h)), (to_scores, n.score(h)), (pairs, n.key(h)), self.scale);
                let scores = n.score(h).transposed();
                add_product((to_pairs, n.key(h)), (to_scores, scores), (queries, n.query(h)), self.scale);
            }
        });
        (to_queries, to_pairs, to_scores)
    }

    /// Sums the gradient of the scores over the dimensions that the bias was broadcast along.
    fn sum_to_bias(&self, to_scores: &[f32]) -> Vec<f32> {
        let n = self.sizes;
        let mut sums = vec![0.0; self.bias.rows() * n.keys];
        for (i, row) in to_scores.chunks_exact(n.keys).enumerate() {
            let (t, h, b) = (i % n.queries, i / n.queries % n.heads, i / n.queries / n.heads);
            let sum = &mut sums[self.bias.row(b, h, t, n.keys)..][..n.keys];
            sum.iter_mut().zip(row).for_each(|(a, b)| *a += b);
        }
        sums
    }
}

/// softmax(`scale` Q K^T + `bias`) V for every head, back in one row a query. Heads that follow each other share a group (Ainslie
/// et al. 2023).
///
/// `queries` (b, t, h w); `pairs` (b, s, 2 g w) has the keys of groups in its first and the values in its second half; `bias`
/// is (1 or b, 1 or h, 1 or t, s). Gives (b, t, h w). All f32 in main memory.
pub fn attention(
    queries: &Tensor,
    pairs: &Tensor,
    bias: &Tensor,
    (heads, groups): (usize, usize),
    scale: f64,
    dropout: AttentionDropout,
) -> Result<Tensor> {
    let (batch, length, inner) = queries.dims3()?;
    let (sources, keys, both) = pairs.dims3()?;
    let (bias_batch, bias_heads, bias_queries, bias_keys) = bias.dims4()?;
    let fits = |size: usize, full: usize| size == 1 || size == full;
    if sources != batch
        || heads == 0
        || groups == 0
        || heads % groups != 0
        || inner % heads != 0
        || both != 2 * groups * (inner / heads)
        || bias_keys != keys
        || !(fits(bias_batch, batch) && fits(bias_heads, heads) && fits(bias_queries, length))
    {
        candle_core::bail!(
            "attention of {heads} heads in {groups} groups: queries {:?}, keys with values {:?} and bias {:?} do not fit",
            queries.shape(),
            pairs.shape(),
            bias.shape()
        );
    }
    let operation = Attention {
        sizes: Sizes { batch, heads, groups, queries: length, keys, width: inner / heads },
        bias: BiasLayout { batch: bias_batch, heads: bias_heads, queries: bias_queries },
        scale: scale as f32,
        dropout,
        weights: OnceLock::new(),
    };
    queries.contiguous()?.apply_op3(&pairs.contiguous()?, &bias.contiguous()?, operation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};
    use candle_core::D;

    const NONE: AttentionDropout = AttentionDropout { rate: 0.0, seed: 0 };

    /// The same in elementary operations.
    fn composed(q: &Tensor, kv: &Tensor, bias: &Tensor, heads: usize, scale: f64) -> Result<Tensor> {
        let (batch, length, inner) = q.dims3()?;
        let split =
            |x: &Tensor| x.reshape((batch, x.dim(1)?, heads, inner / heads))?.transpose(1, 2)?.contiguous();
        let (k, v) = (
            split(&kv.narrow(2, 0, inner)?.contiguous()?)?,
            split(&kv.narrow(2, inner, inner)?.contiguous()?)?,
        );
        let scores = (split(q)?.matmul(&k.t()?)? * scale)?.broadcast_add(bias)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        weights.matmul(&v)?.transpose(1, 2)?.reshape((batch, length, inner))
    }

    #[test]
    fn values_and_gradients_equal_those_of_the_composition_for_every_kind_of_bias() {
        for bias in [[2, 2, 3, 4], [1, 2, 3, 4], [2, 1, 1, 4], [1, 1, 1, 4]] {
            let inputs = [wave(&[2, 3, 6], 0.9), wave(&[2, 4, 12], 0.7), wave(&bias, 1.1)];
            let fused = gradients(&inputs, |x| attention(&x[0], &x[1], &x[2], (2, 2), 0.6, NONE));
            let plain = gradients(&inputs, |x| composed(&x[0], &x[1], &x[2], 2, 0.6));
            assert_close(&fused, &plain);
        }
    }

    #[test]
    fn heads_share_the_keys_and_values_of_their_group() {
        // 4 heads of width 3 in 2 groups.
        let inputs = [wave(&[2, 3, 12], 0.9), wave(&[2, 5, 12], 0.7), wave(&[1, 1, 3, 5], 1.1)];
        let fused = gradients(&inputs, |x| attention(&x[0], &x[1], &x[2], (4, 2), 0.6, NONE));
        let plain = gradients(&inputs, |x| {
            let heads = x[1].reshape((2, 5, 2, 2, 1, 3))?.broadcast_as((2, 5, 2, 2, 2, 3))?;
            composed(&x[0], &heads.reshape((2, 5, 24))?, &x[2], 4, 0.6)
        });
        assert_close(&fused, &plain);
    }

    #[test]
    fn dropout_repeats_and_its_gradient_is_that_of_the_dropped_weights() {
        let dropout = AttentionDropout { rate: 0.4, seed: 11 };
        let inputs = [wave(&[1, 2, 4], 0.9), wave(&[1, 3, 8], 0.7), wave(&[1, 1, 1, 3], 0.2)];
        let run = |x: &[Tensor]| attention(&x[0], &x[1], &x[2], (2, 2), 1.0, dropout);
        let first = gradients(&inputs, run);
        assert_eq!(first, gradients(&inputs, run));
        // Numerically: the gradient of the wave-weighted sum by each value of the queries.
        let step = 1e-2f32;
        let loss = |q: Vec<f32>| -> f32 {
            let q = Tensor::from_vec(q, (1, 2, 4), &Device::Cpu).unwrap();
            let out = run(&[q, inputs[1].clone(), inputs[2].clone()]).unwrap();
            let weight = wave(out.dims(), 2.0);
            (out * weight).unwrap().sum_all().unwrap().to_scalar().unwrap()
        };
        let base: Vec<f32> = inputs[0].flatten_all().unwrap().to_vec1().unwrap();
        for i in 0..base.len() {
            let (mut up, mut down) = (base.clone(), base.clone());
            up[i] += step;
            down[i] -= step;
            let slope = (loss(up) - loss(down)) / (2.0 * step);
            assert!((slope - first[1][i]).abs() < 2e-3, "{i}: {slope} {}", first[1][i]);
        }
    }

    #[test]
    fn dropout_drops_at_its_rate_and_keeps_the_mean() {
        let mut weights = vec![1.0; 20_000];
        AttentionDropout { rate: 0.3, seed: 5 }.apply(&mut weights, 0);
        let zeros = weights.iter().filter(|w| **w == 0.0).count();
        // The standard deviation of the count is 65.
        assert!((5700..6300).contains(&zeros), "{zeros}");
        assert!(weights.iter().all(|w| *w == 0.0 || (*w - 1.0 / 0.7).abs() < 1e-6));
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error() {
        let run = |q: &[usize], kv: &[usize], b: &[usize]| {
            attention(&wave(q, 1.0), &wave(kv, 1.0), &wave(b, 1.0), (2, 2), 1.0, NONE)
        };
        assert!(run(&[2, 3, 6], &[2, 4, 10], &[1, 1, 1, 4]).is_err());
        assert!(run(&[2, 3, 6], &[2, 4, 12], &[1, 1, 1, 5]).is_err());
        assert!(run(&[2, 3, 6], &[1, 4, 12], &[1, 1, 1, 4]).is_err());
    }
}
