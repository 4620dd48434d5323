//! Neural Bellman-Ford networks (Zhu et al., 2021), which score answers by the paths that lead to them.
//!
//! A question is an entity with a relation in one direction. It starts with its row at its entity and zeros
//! elsewhere. In each layer, a node sums messages from its neighbours: each neighbour's row times the row of
//! the edge's relation for this question (as in DistMult). A linear layer, layer normalisation, a rectifier
//! and a residual connection follow. So after layer `n`, a node's row depends on all paths of up to `n`
//! steps. Two more layers map a node's last row and the question's row to a score.
//!
//! Paths explain an answer. To first order, a message contributes its value times the gradient of the
//! answer's log-probability. The weight of a path is computed from its messages. [`GraphNetwork::explain`]
//! returns the paths with the largest weights.
//!
//! No parameter belongs to an entity. So a trained network works on any graph over its relations, including
//! new entities. During training, edges that would reveal the answers are hidden.

mod batch;
mod check;
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
