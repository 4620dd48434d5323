//! Neural Bellman-Ford networks (Zhu et al., 2021): what a question's answers are is read off the paths that lead to them.
//!
//! A question, an entity with a relation in one of its directions, starts with its own row at its entity and zeros elsewhere. Each
//! layer lets every node take its neighbours' rows, each multiplied by a row that the step between them has for this question
//! (the messages of DistMult, summed), then a linear layer over what it had and what it took, layer normalisation, a rectifier,
//! and what it had is added. So behind layer `n` a node's row tells of all paths of up to `n` steps. Two layers over a node's
//! last row and the question's give its score.
//!
//! Why an answer is given can be told by paths: to first order a message counts its value times the gradient of the logarithm of the
//! answer's chance, and a path what its messages count. [`GraphNetwork::explain`] finds the paths that count most.
//!
//! Nothing belongs to an entity: a trained network answers over any graph of its relations, new entities included. While it
//! learns, it does not see the edges that would give the answers away.

mod batch;
mod model;
mod options;
mod parameters;
mod pass;
mod paths;
mod trainer;

pub use model::{GraphNetwork, Network};
pub use options::{NetworkOptions, NetworkTraining};
pub use paths::Path;
pub use trainer::{NetworkLearning, train};
