//! DeBERTa's attention to distances, without padding.

use std::ops::Range;

use sporran_kernels::{Isa, Rows, Scaled, TrainingPrecision, View, multiply_matrices};

use crate::architectures::bert::Disentangled;

/// The embeddings of distances, as each layer projects them.
#[derive(Debug)]
pub(super) struct DistanceRows {
    pub(super) settings: Disentangled,
    /// For each layer.
    pub(super) layers: Vec<ProjectedDistances>,
}

/// The projections of one layer, (2 * span, d) each.
#[derive(Debug)]
pub(super) struct ProjectedDistances {
    /// What a query reads.
    pub(super) keys: Option<Vec<f32>>,
    /// What reads a key.
    pub(super) queries: Option<Vec<f32>>,
}

/// Queries of one input, with their positions.
pub(super) struct Asked<'a> {
    pub(super) rows: &'a Rows,
    pub(super) range: Range<usize>,
    pub(super) offsets: &'a [usize],
}

/// The columns of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadColumns {
    pub(super) head: usize,
    pub(super) heads: usize,
    pub(super) width: usize,
}

impl HeadColumns {
    /// The first column of the queries, keys or values.
    pub(super) fn start(self, which: usize) -> usize {
        (which * self.heads + self.head) * self.width
    }
}

impl DistanceRows {
    /// The biases of `layer` on the scores of one head: for each asked query, one for each key of `inputs` in `rows`.
    pub(super) fn biases(
        &self,
        isa: Isa,
        (layer, scale): (usize, f32),
        columns: HeadColumns,
        (inputs, rows): (&Rows, Range<usize>),
        asked: &Asked<'_>,
    ) -> Vec<f32> {
        let count = rows.len();
        let last = count as i64 - 1;
        let first = self.settings.row(-last);
        let places: Vec<usize> = (-last..=last).map(|distance| self.settings.row(distance) - first).collect();
        let read = 1 + places[places.len() - 1];
        let mut biases = vec![0f32; asked.range.len() * count];
        let mut products = vec![0f32; asked.range.len().max(count) * read];
        let stride = columns.heads * columns.width;
        let multiply = |table: &[f32], from: &Rows, view: View, products: &mut [f32]| {
            let of = View::rows(first * stride + columns.start(0), read, columns.width, stride).transposed();
            let out = View::packed(view.rows, read);
            let scaled = Scaled { scale, adds: false };
            let precision = TrainingPrecision::F32;
            multiply_matrices(isa, 1, precision, (products, out), (from.values(), view), (table, of), scaled);
        };
        let place = |offset: usize, key: usize| places[count - 1 + offset - key];
        if let Some(table) = &self.layers[layer].keys {
            let view = asked.rows.view(asked.range.clone(), columns.start(0), columns.width);
            multiply(table, asked.rows, view, &mut products);
            for ((biases, offset), products) in
                biases.chunks_exact_mut(count).zip(asked.offsets).zip(products.chunks_exact(read))
            {
                biases.iter_mut().enumerate().for_each(|(key, bias)| *bias += products[place(*offset, key)]);
            }
        }
        if let Some(table) = &self.layers[layer].queries {
            multiply(table, inputs, inputs.view(rows, columns.start(1), columns.width), &mut products);
            for (biases, offset) in biases.chunks_exact_mut(count).zip(asked.offsets) {
                for (key, bias) in biases.iter_mut().enumerate() {
                    *bias += products[key * read + place(*offset, key)];
                }
            }
        }
        biases
    }
}
