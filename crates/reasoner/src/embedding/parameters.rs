//! The parameters of a model.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::Comparison;

use super::{
    optimizer::PIECE,
    options::{EmbeddingOptions, Initial, ModelKind, Norm, Storage},
    questions::Directions,
    table::{EntityTable, Rows},
};
use crate::{Error, Result};

/// A parameter other than the entity vectors.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) name: &'static str,
    pub(super) shape: [usize; 2],
    pub(super) values: Vec<f32>,
    /// Whether the optimiser updates it. Running statistics and fixed scales and shifts are not updated.
    pub(super) trained: bool,
}

/// Indices in [`Parameters::tensors`].
pub(super) const RELATIONS: usize = 0;
pub(super) const CORE: usize = 1;
pub(super) const FILTERS: usize = 1;
pub(super) const MAP_SCALE: usize = 2;
pub(super) const MAP_SHIFT: usize = 3;
pub(super) const PROJECTION: usize = 4;
pub(super) const HIDDEN_SCALE: usize = 5;
pub(super) const HIDDEN_SHIFT: usize = 6;
pub(super) const MAP_MEAN: usize = 7;
pub(super) const MAP_VARIANCE: usize = 8;
pub(super) const HIDDEN_MEAN: usize = 9;
pub(super) const HIDDEN_VARIANCE: usize = 10;

/// The shapes of a model's parameters.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) model: ModelKind,
    pub(super) entities: usize,
    pub(super) directions: Directions,
    pub(super) dim: usize,
    pub(super) relation_dim: usize,
    pub(super) norm: Option<Norm>,
    pub(super) height: usize,
    pub(super) filters: usize,
    pub(super) affine: bool,
}

impl Shape {
    pub(super) fn new(options: &EmbeddingOptions, entities: usize, relations: usize) -> Self {
        let EmbeddingOptions { model, dim, norm, height, filters, affine, reciprocal, .. } = *options;
        Self {
            model,
            entities,
            directions: Directions { relations, reciprocal },
            dim,
            relation_dim: options.relation_dim.unwrap_or(dim),
            norm,
            height,
            filters,
            affine,
        }
    }

    /// The length of an entity's row. ConvE's has a bias at its end.
    pub(super) fn width(&self) -> usize {
        self.dim + usize::from(self.model == ModelKind::ConvE)
    }

    /// The length of a relation's row.
    pub(super) fn relation_width(&self) -> usize {
        match self.model {
            ModelKind::TransE | ModelKind::DistMult | ModelKind::ComplEx | ModelKind::ConvE => self.dim,
            ModelKind::RotatE => self.dim / 2,
            ModelKind::Rescal => self.dim * self.dim,
            ModelKind::TuckEr => self.relation_dim,
        }
    }

    pub(super) fn comparison(&self) -> Comparison {
        match (self.model, self.norm) {
            (ModelKind::TransE, Some(Norm::L1)) => Comparison::L1,
            (ModelKind::RotatE, None | Some(Norm::L1)) => Comparison::Modulus,
            (ModelKind::TransE | ModelKind::RotatE, _) => Comparison::L2,
            _ => Comparison::Dot,
        }
    }

    /// Rows and columns of ConvE's picture, and positions of a map.
    pub(super) fn picture(&self) -> (usize, usize, usize) {
        let (rows, columns) = (2 * self.height, self.dim / self.height);
        (rows, columns, (rows - 2) * (columns - 2))
    }

    /// The name and shape of every tensor, and whether it is trained.
    pub(super) fn tensors(&self) -> Vec<(&'static str, [usize; 2], bool)> {
        let relations = ("relations", [self.directions.rows(), self.relation_width()], true);
        match self.model {
            ModelKind::TuckEr => vec![relations, ("core", [self.relation_dim, self.dim * self.dim], true)],
            ModelKind::ConvE => {
                let (_, _, places) = self.picture();
                let Self { filters, dim, affine, .. } = *self;
                vec![
                    relations,
                    ("filters", [filters, 9], true),
                    ("map-scale", [1, filters], affine),
                    ("map-shift", [1, filters], affine),
                    ("projection", [filters * places, dim], true),
                    ("hidden-scale", [1, dim], affine),
                    ("hidden-shift", [1, dim], affine),
                    ("map-mean", [1, filters], false),
                    ("map-variance", [1, filters], false),
                    ("hidden-mean", [1, dim], false),
                    ("hidden-variance", [1, dim], false),
                ]
            }
            _ => vec![relations],
        }
    }
}

/// The values of a model.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub(super) entities: EntityTable,
    pub(super) tensors: Vec<Tensor>,
}

/// A random source with a fixed order of values.
struct Draws {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Draws {
    fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self { rng, spare: None }
    }

    fn uniform(&mut self, bound: f64) -> f32 {
        (self.rng.random::<f64>().mul_add(2.0, -1.0) * bound) as f32
    }

    /// Box and Muller (1958).
    fn normal(&mut self, deviation: f64) -> f32 {
        let value = self.spare.take().unwrap_or_else(|| {
            let radius = (-2.0 * (1.0 - self.rng.random::<f64>()).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * self.rng.random::<f64>()).sin_cos();
            self.spare = Some(radius * sin);
            radius * cos
        });
        (value * deviation) as f32
    }
}

impl Parameters {
    /// Samples initial values.
    pub(super) fn new(shape: &Shape, options: &EmbeddingOptions, seed: u64) -> Self {
        let (count, width) = (shape.entities, shape.width());
        let mut draws = Draws::new(seed, 0);
        let mut draw = drawn(options, count, shape.dim);
        let mut value = |at: usize| if at % width < shape.dim { draw(&mut draws) } else { 0.0 };
        let rows = match options.storage {
            Storage::F32 => Rows::F32((0..count * width).map(value).collect()),
            Storage::F16 => Rows::F16((0..count * width).map(|at| half::f16::from_f32(value(at))).collect()),
        };
        let entities = EntityTable::new(count, width, rows);
        let tensors = shape
            .tensors()
            .into_iter()
            .enumerate()
            .map(|(at, (name, [rows, width], trained))| {
                let mut draws = Draws::new(seed, at as u64 + 1);
                let bound = |inputs: usize| 1.0 / (inputs as f64).sqrt();
                let mut draw: Box<dyn FnMut(&mut Draws) -> f32> = match name {
                    "relations" if shape.model == ModelKind::RotatE => {
                        Box::new(|draws| draws.uniform(std::f64::consts::PI))
                    }
                    "relations" => Box::new(drawn(options, rows, width)),
                    // A relation's matrix then has standard deviation 1 / sqrt(dim).
                    "core" => {
                        let relation = deviation(options, shape.directions.rows(), shape.relation_dim);
                        let scale = bound(shape.dim) * bound(shape.relation_dim) / relation;
                        Box::new(move |draws| draws.normal(scale))
                    }
                    "filters" => Box::new(move |draws| draws.uniform(bound(9))),
                    "projection" => Box::new(move |draws| draws.uniform(bound(rows))),
                    "map-shift" | "hidden-shift" | "map-mean" | "hidden-mean" => Box::new(|_| 0.0),
                    _ => Box::new(|_| 1.0),
                };
                let values = (0..rows * width).map(|_| draw(&mut draws)).collect();
                Tensor { name, shape: [rows, width], values, trained }
            })
            .collect();
        Self { entities, tensors }
    }

    /// Moves every value, running statistics included, towards that of `other`. A share `keep` of each stays.
    ///
    /// # Errors
    /// [`Error::Storage`] unless the entity vectors of both are in memory in 32 bits.
    pub(super) fn approach(&mut self, other: &Self, keep: f32) -> Result<()> {
        let expected = "entities in memory in 32 bits";
        let from = other.entities.values().ok_or(Error::Storage { expected })?;
        let Rows::F32(values) = self.entities.rows_mut() else { return Err(Error::Storage { expected }) };
        let tensors = self.tensors.iter_mut().zip(&other.tensors);
        let pairs = tensors.map(|(own, other)| (&mut own.values, other.values.as_slice()));
        for (values, from) in std::iter::once((values, from)).chain(pairs) {
            let pairs = values.par_iter_mut().with_min_len(PIECE).zip(from);
            pairs.for_each(|(value, from)| *value = keep * *value + (1.0 - keep) * from);
        }
        Ok(())
    }
}

/// The standard deviation of a table's initial values.
fn deviation(options: &EmbeddingOptions, rows: usize, columns: usize) -> f64 {
    let scale = options.initial_scale;
    match options.initial {
        Initial::Normal => scale,
        Initial::Uniform => scale / 3f64.sqrt(),
        Initial::XavierNormal | Initial::XavierUniform => scale * (2.0 / (rows + columns) as f64).sqrt(),
    }
}

fn drawn(options: &EmbeddingOptions, rows: usize, columns: usize) -> impl FnMut(&mut Draws) -> f32 + use<> {
    let deviation = deviation(options, rows, columns);
    let initial = options.initial;
    move |draws| match initial {
        Initial::Normal | Initial::XavierNormal => draws.normal(deviation),
        Initial::Uniform | Initial::XavierUniform => draws.uniform(deviation * 3f64.sqrt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_values_have_the_requested_deviation() {
        let options = |json| serde_json::from_value::<EmbeddingOptions>(json).unwrap();
        for (json, expected) in [
            (
                serde_json::json!({ "model": "distmult", "dim": 100, "initial": "normal", "initial-scale": 0.3 }),
                0.3,
            ),
            (
                serde_json::json!({ "model": "distmult", "dim": 100, "initial": "uniform", "initial-scale": 0.3 }),
                0.3 / 3f64.sqrt(),
            ),
            (serde_json::json!({ "model": "distmult", "dim": 100 }), (2.0 / 600f64).sqrt()),
            (
                serde_json::json!({ "model": "distmult", "dim": 100, "initial": "xavier-uniform" }),
                (2.0 / 600f64).sqrt(),
            ),
        ] {
            let options = options(json);
            let shape = Shape::new(&options, 500, 3);
            let parameters = Parameters::new(&shape, &options, 4);
            let values = parameters.entities.values().unwrap();
            let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64;
            assert!((square.sqrt() / expected - 1.0).abs() < 0.02, "{options:?} {}", square.sqrt());
            let again = Parameters::new(&shape, &options, 4);
            assert_eq!(again.entities.values(), parameters.entities.values());
        }
    }
}
