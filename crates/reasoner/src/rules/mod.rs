//! Rules of a knowledge base: mined from paths, written as text, and applied with explanations.
//!
//! A rule is `speaks(X,Y) <= lives(X,A), language(A,Y)` or has constants, `speaks(X,French) <=
//! lives(X,Paris)`. [`mine()`] mines them, [`RuleBase`] applies them, [`save`] and [`load`] write and read
//! them. [`load_human`] reads rules that people wrote or scored.

mod apply;
mod file;
mod graph;
mod human;
mod mine;
mod rank;
mod rule;

pub use apply::{Aggregation, ApplyOptions, Explanation, Prediction, RuleBase};
pub use file::{load, save, text};
pub use graph::{Edge, Graph, Step};
pub use human::{HumanRules, load_human};
pub use mine::{MineOptions, MineProgress, mine};
pub use rank::RuleScorer;
pub use rule::{Clause, Rule, Shape, Side};
