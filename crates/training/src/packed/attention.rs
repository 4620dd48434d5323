//! The attention of packed sequences. Each sequence is one piece of work; its heads follow each other.

use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa, SoftmaxRows};
use sporran_transformers::fused::product::{View, product_alone};

/// The attention of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention<'a> {
    /// The number of tokens of each sequence.
    pub(super) lengths: &'a [usize],
    pub(super) heads: usize,
    /// The width of one head.
    pub(super) width: usize,
    pub(super) scale: f32,
    pub(super) dropout: Dropout,
}

/// A sequence's place in the batch.
struct Place {
    length: usize,
    /// The number of its first weight, for dropout.
    first: usize,
}

/// Room for the products of one sequence.
#[derive(Default)]
struct Room {
    scores: Vec<f32>,
    others: Vec<f32>,
    pulls: Vec<f32>,
}

/// Cuts `values` into parts of `sizes`.
fn parts(mut values: &[f32], sizes: impl Iterator<Item = usize>) -> Vec<&[f32]> {
    sizes
        .map(|size| {
            let (part, rest) = values.split_at(size);
            values = rest;
            part
        })
        .collect()
}

fn parts_mut(mut values: &mut [f32], sizes: impl Iterator<Item = usize>) -> Vec<&mut [f32]> {
    sizes
        .map(|size| {
            let (part, rest) = std::mem::take(&mut values).split_at_mut(size);
            values = rest;
            part
        })
        .collect()
}

impl<'a> Attention<'a> {
    fn states(&self) -> usize {
        self.heads * self.width
    }

    fn places(&self) -> Vec<Place> {
        let mut first = 0;
        let place = |&length: &usize| {
            let place = Place { length, first };
            first += self.heads * length * length;
            place
        };
        self.lengths.iter().map(place).collect()
    }

    fn sizes(&self, width: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.lengths.iter().map(move |length| length * width)
    }

    fn softmax(&self, place: &Place, head: usize) -> SoftmaxRows {
        SoftmaxRows {
            width: place.length,
            scale: self.scale,
            dropout: self.dropout,
            first: place.first + head * place.length * place.length,
        }
    }

    /// Head `head` of part `part` (queries, keys, values) of `length` tokens' projections.
    fn projected(&self, length: usize, part: usize, head: usize) -> View {
        View::rows(part * self.states() + head * self.width, length, self.width, 3 * self.states())
    }

    fn mixed(&self, length: usize, head: usize) -> View {
        View::rows(head * self.width, length, self.width, self.states())
    }

    /// From queries, keys and values (tokens, 3 states) to mixed values (tokens, states), with the logarithms of the
    /// sums of the exponentials of all scores.
    pub(super) fn forward(&self, projected: &[f32], mixed: &mut [f32], sums: &mut [f32]) {
        let isa = Isa::detected();
        let work = self
            .places()
            .into_par_iter()
            .zip(parts(projected, self.sizes(3 * self.states())))
            .zip(parts_mut(mixed, self.sizes(self.states())))
            .zip(parts_mut(sums, self.sizes(self.heads)));
        work.for_each_init(Room::default, |room, (((place, projected), mixed), sums)| {
            let length = place.length;
            room.scores.resize(length * length, 0.0);
            let square = View::rows(0, length, length, length);
            for (head, sums) in sums.chunks_exact_mut(length).enumerate() {
                let keys = self.projected(length, 1, head).transposed();
                product_alone(
                    (&mut room.scores, square),
                    (projected, self.projected(length, 0, head)),
                    (projected, keys),
                );
                let scores = &mut room.scores[..length * length];
                self.softmax(&place, head).forward(isa, scores, sums);
                product_alone(
                    (mixed, self.mixed(length, head)),
                    (scores, square),
                    (projected, self.projected(length, 2, head)),
                );
            }
        });
    }

    /// The gradient of queries, keys and values from that of the mixed values. With weights p, dropped weights d and
    /// gradient g: dv = d^T g, dd = g v^T, ds = p (dropped dd - g mixed), dq = ds k, dk = ds^T q.
    pub(super) fn backward(
        &self,
        projected: &[f32],
        mixed: &[f32],
        sums: &[f32],
        gradient: &[f32],
        to_projected: &mut [f32],
    ) {
        let isa = Isa::detected();
        let work = self
            .places()
            .into_par_iter()
            .zip(parts(projected, self.sizes(3 * self.states())))
            .zip(parts(mixed, self.sizes(self.states())))
            .zip(parts(sums, self.sizes(self.heads)))
            .zip(parts(gradient, self.sizes(self.states())))
            .zip(parts_mut(to_projected, self.sizes(3 * self.states())));
        work.for_each_init(Room::default, |room, (((((place, projected), mixed), sums), gradient), out)| {
            let length = place.length;
            room.scores.resize(length * length, 0.0);
            room.others.resize(length * length, 0.0);
            room.pulls.resize(length, 0.0);
            let square = View::rows(0, length, length, length);
            for (head, sums) in sums.chunks_exact(length).enumerate() {
                let part = |part: usize| self.projected(length, part, head);
                let (own, softmax) = (self.mixed(length, head), self.softmax(&place, head));
                product_alone(
                    (&mut room.scores, square),
                    (projected, part(0)),
                    (projected, part(1).transposed()),
                );
                let (weights, others) =
                    (&mut room.scores[..length * length], &mut room.others[..length * length]);
                softmax.again(isa, sums, weights, others);
                product_alone((out, part(2)), (others, square.transposed()), (gradient, own));
                product_alone((others, square), (gradient, own), (projected, part(2).transposed()));
                let pulls = &mut room.pulls[..length];
                for (token, pull) in pulls.iter_mut().enumerate() {
                    let at = token * self.states() + head * self.width;
                    let (mixed, gradient) = (&mixed[at..at + self.width], &gradient[at..at + self.width]);
                    *pull = mixed.iter().zip(gradient).map(|(a, b)| a * b).sum();
                }
                softmax.backward(isa, weights, pulls, others);
                product_alone((out, part(0)), (others, square), (projected, part(1)));
                product_alone((out, part(1)), (others, square.transposed()), (projected, part(0)));
            }
        });
    }
}
