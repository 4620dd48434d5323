//! The rows of the feature embedding table.

use super::super::{
    candidates::{BETWEEN, DISTANCES},
    marking::CLASSES,
};

/// Embedding slots of a token that do not depend on the pair: the class of its mention, the distance to its
/// chain's representative, and the types of its possible entities.
pub(super) const TOKEN_SLOTS: usize = 3;
/// Numeric features after them: the confidences of the mention's chain and link.
pub(super) const TOKEN_NUMBERS: usize = 2;
/// Embedding slots of a token that depend on the pair: the distances to both mentions, the tokens and the
/// mentions between these, and the properties of a knowledge base between them.
pub(super) const PAIR_SLOTS: usize = 5;
/// The numeric feature after them: whether the token is between both mentions.
pub(super) const PAIR_NUMBERS: usize = 1;

/// Classes of mentions; the first row is for tokens outside of mentions.
pub(super) const CLASS: u32 = 0;
/// Sentences between a mention and its chain's representative: 0, 1, 2, 3-4, more.
pub(super) const CHAIN: u32 = CLASS + 1 + CLASSES as u32;
pub(super) const CHAINS: u32 = 5;
/// Types, by their hashes.
pub(super) const TYPE: u32 = CHAIN + CHAINS;
pub(super) const TYPES: u32 = 512;
/// Distances to the first and to the second mention: inside it, and in either direction.
pub(super) const FIRST: u32 = TYPE + TYPES;
pub(super) const OFFSETS: u32 = 2 * DISTANCES + 1;
pub(super) const SECOND: u32 = FIRST + OFFSETS;
/// Tokens between both.
pub(super) const GAP: u32 = SECOND + OFFSETS;
/// Mentions between both.
pub(super) const OTHERS: u32 = GAP + DISTANCES;
/// Known properties by their hashes, in both directions.
pub(super) const FACT: u32 = OTHERS + BETWEEN;
pub(super) const FACTS: u32 = 64;
/// All rows.
pub(super) const ROWS: usize = (FACT + 2 * FACTS) as usize;
