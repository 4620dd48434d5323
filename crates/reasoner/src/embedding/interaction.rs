//! Question vectors and their gradients.

use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa};

use super::{
    convolution::{self, Convolution, ConvolutionTraining},
    matrices::{self, Matrices},
    options::{EmbeddingOptions, ModelKind},
    parameters::{Parameters, RELATIONS, Shape},
    questions::{Question, mixed},
    vectors,
};

pub(super) use super::convolution::Memory;

/// The number of questions in one work unit.
const PIECE: usize = 32;

/// The dropout of one batch.
#[derive(Clone, Copy)]
pub(super) struct Dropouts {
    entity: Option<Dropout>,
    relation: Option<Dropout>,
    convolution: ConvolutionTraining,
    /// Dropout of the candidate entities.
    pub(super) candidate: Option<Dropout>,
}

impl Dropouts {
    pub(super) fn new(options: &EmbeddingOptions, seed: u64, epoch: usize, batch: usize) -> Self {
        let always = |rate: f64, purpose: u64| Dropout::new(rate, mixed(seed, epoch, batch, purpose));
        let any = |rate: f64, purpose: u64| (rate > 0.0).then(|| always(rate, purpose));
        Self {
            entity: any(options.entity_dropout, 1),
            relation: any(options.relation_dropout, 2),
            candidate: any(options.candidate_dropout, 3),
            convolution: ConvolutionTraining {
                maps: always(options.map_dropout, 4),
                hidden: always(options.hidden_dropout, 5),
                precision: options.training.precision,
            },
        }
    }
}

/// Activations for the backward pass.
pub(super) enum Cache {
    Vectors { heads: Vec<f32>, relations: Vec<f32> },
    Matrices(Matrices),
    Convolution(Box<Convolution>),
}

/// The rows of the questions' entities, (questions, dim).
fn heads(
    shape: &Shape,
    parameters: &Parameters,
    questions: &[Question],
    dropout: Option<&Dropout>,
) -> Vec<f32> {
    let dim = shape.dim;
    let mut heads = vec![0.0; questions.len() * dim];
    heads.par_chunks_mut(PIECE * dim).zip(questions.par_chunks(PIECE)).enumerate().for_each(
        |(piece, (heads, questions))| {
            for (head, question) in heads.chunks_exact_mut(dim).zip(questions) {
                parameters.entities.read(question.entity as usize, head);
            }
            if let Some(dropout) = dropout {
                dropout.apply(Isa::detected(), piece * PIECE * dim, heads);
            }
        },
    );
    heads
}

/// The rows of the questions' relations.
fn relations(
    shape: &Shape,
    parameters: &Parameters,
    questions: &[Question],
    dropout: Option<&Dropout>,
) -> Vec<f32> {
    let width = shape.relation_width();
    let table = &parameters.tensors[RELATIONS].values;
    let mut rows = Vec::with_capacity(questions.len() * width);
    for question in questions {
        rows.extend_from_slice(&table[question.relation as usize * width..][..width]);
    }
    if let Some(dropout) = dropout {
        dropout.apply(Isa::detected(), 0, &mut rows);
    }
    rows
}

/// Computes the question vectors, (questions, width of an entity's row). Inference passes no dropout.
/// `memory` is the buffer of an earlier batch.
pub(super) fn forward(
    shape: &Shape,
    parameters: &Parameters,
    questions: &[Question],
    dropouts: Option<&Dropouts>,
    memory: Memory,
) -> (Vec<f32>, Cache) {
    let of_relations = dropouts.and_then(|dropouts| dropouts.relation.as_ref());
    let heads = heads(shape, parameters, questions, dropouts.and_then(|dropouts| dropouts.entity.as_ref()));
    match shape.model {
        ModelKind::Rescal | ModelKind::TuckEr => {
            let (out, cache) = matrices::forward(shape, parameters, questions, heads, of_relations);
            (out, Cache::Matrices(cache))
        }
        ModelKind::ConvE => {
            let relations = relations(shape, parameters, questions, of_relations);
            let training = dropouts.map(|dropouts| dropouts.convolution);
            let (out, cache) = convolution::forward(shape, parameters, heads, relations, training, memory);
            (out, Cache::Convolution(Box::new(cache)))
        }
        model => {
            let relations = relations(shape, parameters, questions, of_relations);
            let (dim, width) = (shape.dim, shape.relation_width());
            let mut out = vec![0.0; heads.len()];
            let inputs = heads.par_chunks(PIECE * dim).zip(relations.par_chunks(PIECE * width));
            let work = out.par_chunks_mut(PIECE * dim).zip(inputs).zip(questions.par_chunks(PIECE));
            work.for_each(|((out, (heads, relations)), questions)| {
                let rows = heads.chunks_exact(dim).zip(relations.chunks_exact(width));
                for ((out, (head, relation)), question) in out.chunks_exact_mut(dim).zip(rows).zip(questions)
                {
                    vectors::forward(model, question.inverse, head, relation, out);
                }
            });
            (out, Cache::Vectors { heads, relations })
        }
    }
}

/// Computes the gradients of the questions' entity vectors, (questions, dim), from those of the question
/// vectors. Adds the gradients of the parameters.
pub(super) fn backward(
    shape: &Shape,
    parameters: &Parameters,
    questions: &[Question],
    dropouts: &Dropouts,
    (cache, to): (&mut Cache, &[f32]),
    gradients: &mut [Vec<f32>],
) -> Vec<f32> {
    let isa = Isa::detected();
    let of_relations = dropouts.relation.as_ref();
    let (mut to_heads, to_relations) = match cache {
        Cache::Matrices(matrices) => {
            (matrices.backward(shape, parameters, to, of_relations, gradients), Vec::new())
        }
        Cache::Convolution(convolution) => {
            convolution.backward(shape, parameters, to, dropouts.convolution, gradients)
        }
        Cache::Vectors { heads, relations } => {
            let (dim, width) = (shape.dim, shape.relation_width());
            let (mut to_heads, mut to_relations) = (vec![0.0; heads.len()], vec![0.0; relations.len()]);
            let inputs = heads.par_chunks(PIECE * dim).zip(relations.par_chunks(PIECE * width));
            let outs = to_heads.par_chunks_mut(PIECE * dim).zip(to_relations.par_chunks_mut(PIECE * width));
            let work = outs.zip(inputs).zip(to.par_chunks(PIECE * dim).zip(questions.par_chunks(PIECE)));
            work.for_each(|(((to_heads, to_relations), (heads, relations)), (to, questions))| {
                for (at, question) in questions.iter().enumerate() {
                    let (wide, thin) = (at * dim..(at + 1) * dim, at * width..(at + 1) * width);
                    vectors::backward(
                        shape.model,
                        question.inverse,
                        (&heads[wide.clone()], &relations[thin.clone()]),
                        &to[wide.clone()],
                        (&mut to_heads[wide], &mut to_relations[thin]),
                    );
                }
            });
            (to_heads, to_relations)
        }
    };
    if !to_relations.is_empty() {
        let mut to_relations = to_relations;
        if let Some(dropout) = of_relations {
            dropout.apply(isa, 0, &mut to_relations);
        }
        let width = shape.relation_width();
        for (question, to) in questions.iter().zip(to_relations.chunks_exact(width)) {
            let row = &mut gradients[RELATIONS][question.relation as usize * width..][..width];
            row.iter_mut().zip(to).for_each(|(sum, to)| *sum += to);
        }
    }
    if let Some(dropout) = &dropouts.entity {
        dropout.apply(isa, 0, &mut to_heads);
    }
    to_heads
}

/// Updates the running statistics of a batch, and returns its buffers.
pub(super) fn follow(cache: Cache, parameters: &mut Parameters) -> Memory {
    match cache {
        Cache::Convolution(convolution) => {
            convolution.follow(parameters);
            convolution.into_memory()
        }
        Cache::Vectors { .. } | Cache::Matrices(_) => Memory::default(),
    }
}
