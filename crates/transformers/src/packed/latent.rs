//! Keys and values that are made of one narrow vector for all heads (DeepSeek-AI 2024, "multi-head latent attention").

use sporran_kernels::{Norm, Rows};

use super::layers::{Linear, Machine};
use crate::architectures::llama::LatentSizes;

/// The projections to queries, keys and values.
#[derive(Debug)]
pub(super) struct Latent {
    pub(super) sizes: LatentSizes,
    pub(super) heads: usize,
    /// The projection to the narrow vector and its norm.
    pub(super) narrow_query: Option<(Linear, Norm)>,
    pub(super) query: Linear,
    pub(super) narrow_source: Linear,
    pub(super) source_norm: Norm,
    pub(super) source: Linear,
}

impl Latent {
    /// The queries, keys and values of the rows of `xs`, side by side. In each head the part that is turned comes first, and
    /// values are filled up with zeros.
    pub(super) fn forward(&self, machine: &mut Machine, xs: &Rows, out: &mut Rows) {
        let LatentSizes { sources, turned, plain, values, .. } = self.sizes;
        let (heads, width) = (self.heads, self.sizes.width());
        let (mut queries, mut narrow, mut source) = (Rows::default(), Rows::default(), Rows::default());
        match &self.narrow_query {
            Some((layer, norm)) => {
                layer.forward(machine, xs, &mut narrow);
                norm.forward(machine.core.isa, machine.core.pool, &mut narrow);
                self.query.forward(machine, &narrow, &mut queries);
            }
            None => self.query.forward(machine, xs, &mut queries),
        }
        self.narrow_source.forward(machine, xs, &mut narrow);
        let mut inner = Rows::new(xs.count(), sources);
        for row in 0..xs.count() {
            inner.row_mut(row).copy_from_slice(&narrow.row(row)[..sources]);
        }
        self.source_norm.forward(machine.core.isa, machine.core.pool, &mut inner);
        self.source.forward(machine, &inner, &mut source);
        out.reshape(xs.count(), 3 * heads * width);
        let blocks: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        out.each_part(machine.core.pool, &blocks, 3 * heads * width, &|row, _, mut part| {
            let (queries_out, rest) = part.row_mut(0).split_at_mut(heads * width);
            let (keys_out, values_out) = rest.split_at_mut(heads * width);
            let heads_out = queries_out.chunks_exact_mut(width).zip(keys_out.chunks_exact_mut(width));
            let heads_out = heads_out.zip(values_out.chunks_exact_mut(width));
            let shared = &narrow.row(row)[sources..];
            let heads_in = queries.row(row).chunks_exact(width);
            let heads_in = heads_in.zip(source.row(row).chunks_exact(plain + values));
            for (((query_out, key_out), value_out), (query, source)) in heads_out.zip(heads_in) {
                query_out[..turned].copy_from_slice(&query[plain..]);
                query_out[turned..].copy_from_slice(&query[..plain]);
                key_out[..turned].copy_from_slice(shared);
                key_out[turned..].copy_from_slice(&source[..plain]);
                value_out[..values].copy_from_slice(&source[plain..]);
                value_out[values..].fill(0.0);
            }
        });
    }

    /// Mixed values without the zeros.
    pub(super) fn narrowed(&self, mixed: &Rows) -> Rows {
        let (width, values) = (self.sizes.width(), self.sizes.values);
        let mut out = Rows::new(mixed.count(), self.heads * values);
        for row in 0..mixed.count() {
            let heads = mixed.row(row).chunks_exact(width).zip(out.row_mut(row).chunks_exact_mut(values));
            heads.for_each(|(from, to)| to.copy_from_slice(&from[..values]));
        }
        out
    }
}
