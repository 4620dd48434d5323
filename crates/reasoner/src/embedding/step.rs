//! One training step: gradients, then the optimiser.

use rayon::prelude::*;
use sporran_kernels::Isa;

use super::{
    among::among,
    batch::{Batch, ENTITIES, EntityPenalty, Shares, regularise},
    dense::{Contributions, Dense},
    interaction::{self, Dropouts},
    loss::Loss,
    negatives::among_negatives,
    optimizer::{State, Step},
    options::{EmbeddingOptions, ModelKind},
    parameters::{Parameters, RELATIONS, Shape},
    questions::mixed,
    relation_prediction::relate,
    sample::Sample,
    table::Rows,
    training_options::{Regime, TrainingOptions},
};
use crate::{Error, Result};

/// The epoch and batch of a step, from which its random seeds derive.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) seed: u64,
    pub(super) epoch: usize,
    pub(super) batch: usize,
}

/// The state that batches share.
pub(super) struct Stepper<'o> {
    shape: &'o Shape,
    options: &'o EmbeddingOptions,
    loss: Loss,
    penalty: EntityPenalty,
    gradients: Vec<Vec<f32>>,
    scores: Vec<f32>,
    /// The rows of the entity sample, if there is one.
    sampled: Vec<f32>,
    /// The rows of all entities, or of the sample, after dropout.
    dropped: Vec<f32>,
    memory: interaction::Memory,
}

/// The gradients of the entity vectors.
enum ToEntities {
    /// Computed from these block by block, for all entities.
    Dense(Box<Dense>),
    Sparse {
        rows: Vec<u32>,
        values: Vec<f32>,
    },
}

/// The gradients of a batch.
struct Gradients {
    loss: f64,
    entities: ToEntities,
    cache: interaction::Cache,
}

impl<'o> Stepper<'o> {
    pub(super) fn new(shape: &'o Shape, options: &'o EmbeddingOptions) -> Self {
        let training = &options.training;
        let gradients = shape.tensors().iter().map(|(_, [rows, width], _)| vec![0.0; rows * width]).collect();
        let (loss, penalty) = (Loss::new(training), EntityPenalty::new(shape, training));
        let (scores, sampled, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            shape,
            options,
            loss,
            penalty,
            gradients,
            scores,
            sampled,
            dropped,
            memory: interaction::Memory::default(),
        }
    }

    fn training(&self) -> &'o TrainingOptions {
        &self.options.training
    }

    /// Computes the gradients of a batch. Those of the tensors are in `self.gradients`.
    fn gradients(&mut self, parameters: &Parameters, batch: &Batch<'_>, place: Place) -> Result<Gradients> {
        let dropouts = Dropouts::new(self.options, place.seed, place.epoch, place.batch);
        self.gradients.par_iter_mut().for_each(|gradient| gradient.fill(0.0));
        let memory = std::mem::take(&mut self.memory);
        let asked = interaction::forward(self.shape, parameters, &batch.questions, Some(&dropouts), memory);
        let seed = mixed(place.seed, place.epoch, place.batch, 0);
        let training = self.training();
        if training.regime == Regime::NegativeSampling {
            return Ok(self.among_negatives(parameters, batch, asked, &dropouts, seed));
        }
        if let Some(drawn) = training.sampled_entities {
            let sample = Sample::new(batch, self.shape.entities, drawn, seed);
            return Ok(self.among_sample(parameters, batch, asked, &dropouts, sample));
        }
        let expected = "entities in 32 bits in memory";
        let table = parameters.entities.values().ok_or(Error::Storage { expected })?;
        let (loss, dense, cache) = self.among(parameters, (batch, batch), asked, &dropouts, (table, None));
        Ok(Gradients { loss, entities: ToEntities::Dense(Box::new(dense)), cache })
    }

    fn among_negatives(
        &mut self,
        parameters: &Parameters,
        batch: &Batch<'_>,
        (queries, mut cache): (Vec<f32>, interaction::Cache),
        dropouts: &Dropouts,
        seed: u64,
    ) -> Gradients {
        let comparison = self.shape.comparison();
        let shares = Shares::new(batch, self.shape.directions.rows());
        let table = &parameters.entities;
        let loss = (&self.loss, self.training());
        let sampled = among_negatives(comparison, loss, batch, &queries, table, (seed, dropouts.candidate));
        let to_heads = interaction::backward(
            self.shape,
            parameters,
            &batch.questions,
            dropouts,
            (&mut cache, &sampled.to_queries),
            &mut self.gradients,
        );
        let penalty = (&shares, self.penalty);
        let (rows, values) = sampled.to_entities(comparison, batch, (&queries, &to_heads), table, penalty);
        self.penalise_relations(parameters, &shares);
        Gradients { loss: sampled.loss, entities: ToEntities::Sparse { rows, values }, cache }
    }

    fn among_sample(
        &mut self,
        parameters: &Parameters,
        batch: &Batch<'_>,
        asked: (Vec<f32>, interaction::Cache),
        dropouts: &Dropouts,
        sample: Sample,
    ) -> Gradients {
        let width = self.shape.width();
        let mut table = std::mem::take(&mut self.sampled);
        table.resize(sample.entities.len() * width, 0.0);
        let rows = table.par_chunks_exact_mut(width).zip(&sample.entities);
        rows.for_each(|(row, entity)| parameters.entities.read(*entity as usize, row));
        let batches = (batch, &sample.placed(batch));
        let (loss, dense, cache) = self.among(parameters, batches, asked, dropouts, (&table, Some(&sample)));
        let size = ENTITIES * width;
        let mut values = vec![0.0; table.len()];
        let pieces = table.par_chunks(size).zip(values.par_chunks_mut(size)).enumerate();
        pieces.for_each(|(at, (rows, out))| dense.piece(at * ENTITIES, rows, out));
        self.sampled = table;
        self.scores = dense.among.into_buffer();
        Gradients { loss, entities: ToEntities::Sparse { rows: sample.entities, values }, cache }
    }

    /// Scores a batch against the entities whose rows are `table`. Returns the loss and the source of their
    /// gradients. The second batch is the first with entities renumbered to positions in the table.
    fn among(
        &mut self,
        parameters: &Parameters,
        (batch, placed): (&Batch<'_>, &Batch<'_>),
        (queries, mut cache): (Vec<f32>, interaction::Cache),
        dropouts: &Dropouts,
        (table, sample): (&[f32], Option<&Sample>),
    ) -> (f64, Dense, interaction::Cache) {
        let (shape, training) = (self.shape, self.training());
        let shares = Shares::new(placed, shape.directions.rows());
        if let Some(dropout) = &dropouts.candidate {
            self.dropped.resize(table.len(), 0.0);
            let size = ENTITIES * shape.width();
            let parts = self.dropped.par_chunks_mut(size).zip(table.par_chunks(size)).enumerate();
            parts.for_each(|(at, (part, rows))| {
                part.copy_from_slice(rows);
                dropout.apply(Isa::detected(), at * size, part);
            });
        }
        let buffer = std::mem::take(&mut self.scores);
        let seen = if dropouts.candidate.is_some() { &self.dropped } else { table };
        let loss = (&self.loss, training.precision);
        let among = among(shape.comparison(), loss, (placed, sample), &queries, seen, buffer);
        let mut to_heads = interaction::backward(
            shape,
            parameters,
            &batch.questions,
            dropouts,
            (&mut cache, &among.to_queries),
            &mut self.gradients,
        );
        self.penalise_relations(parameters, &shares);
        let (mut total, mut contributions) = (among.loss, Vec::new());
        let weight = training.relation_weight as f32;
        if weight > 0.0 {
            let tables = (&parameters.entities, &parameters.tensors[RELATIONS].values[..]);
            let related = relate(shape, tables, batch, weight, &mut self.gradients);
            total += related.loss;
            to_heads.iter_mut().zip(&related.to_heads).for_each(|(sum, to)| *sum += to);
            contributions.push(related.answers);
        }
        contributions.push(Contributions::new(placed.heads(), to_heads));
        let dense = Dense {
            among,
            queries,
            contributions,
            shares,
            penalty: self.penalty,
            candidate: dropouts.candidate,
            entities: table.len() / shape.width(),
            width: shape.width(),
            dim: shape.dim,
        };
        (total, dense, cache)
    }

    fn penalise_relations(&mut self, parameters: &Parameters, shares: &Shares) {
        let options = self.penalty.options;
        // RotatE's relations are angles, so their norm has no meaning.
        if options.relation == 0.0 || self.shape.model == ModelKind::RotatE {
            return;
        }
        let width = self.shape.relation_width();
        let rows = parameters.tensors[RELATIONS].values.par_chunks_exact(width);
        let gradients = self.gradients[RELATIONS].par_chunks_exact_mut(width);
        rows.zip(gradients).zip(&shares.relations).for_each(|((row, gradient), share)| {
            let weight = options.relation as f32 * if options.weighted { *share } else { 1.0 };
            if weight > 0.0 {
                regularise(options.power, weight, self.penalty.complex, row, gradient);
            }
        });
    }

    /// Runs one step. Returns the mean loss of the batch, without regularisation.
    pub(super) fn run(
        &mut self,
        parameters: &mut Parameters,
        batch: &Batch<'_>,
        place: Place,
        step: Step,
        states: &mut [State],
    ) -> Result<f64> {
        let Gradients { loss, entities, cache } = self.gradients(parameters, batch, place)?;
        let width = self.shape.width();
        match entities {
            ToEntities::Dense(dense) => {
                if let Rows::F32(values) = parameters.entities.rows_mut() {
                    let size = ENTITIES * width;
                    let pieces = values.par_chunks_mut(size).zip(states[0].pieces(size)).enumerate();
                    pieces.for_each(|(at, (values, (first, second)))| {
                        let mut gradient = vec![0.0; values.len()];
                        dense.piece(at * ENTITIES, values, &mut gradient);
                        step.update(values, &gradient, first, second);
                    });
                }
                self.scores = dense.among.into_buffer();
            }
            ToEntities::Sparse { rows, values: gradient } => match parameters.entities.rows_mut() {
                Rows::F32(values) => step.sparse(width, values, &rows, &gradient, &mut states[0]),
                Rows::F16(values) => {
                    let seed = mixed(place.seed, place.epoch, place.batch, 6);
                    step.sparse_halves(width, values, &rows, &gradient, &mut states[0], seed);
                }
                Rows::Mapped { .. } => return Err(Error::Storage { expected: "entities in memory" }),
            },
        }
        let tensors = parameters.tensors.iter_mut().zip(&self.gradients).zip(&mut states[1..]);
        for ((tensor, gradient), state) in tensors.filter(|((tensor, _), _)| tensor.trained) {
            step.dense(&mut tensor.values, gradient, state);
        }
        self.memory = interaction::follow(cache, parameters);
        Ok(loss)
    }
}

#[cfg(test)]
mod tests;
