//! The table of embedded features: which rows are whose.

use super::super::{
    candidates::{BETWEEN, DISTANCES},
    marking::CLASSES,
};

/// Slots of embedded features that a token has whatever pair is asked for: its mention's class, how far its mention is from its
/// chain's name, and the types of what its mention may mean.
pub(super) const TOKEN_SLOTS: usize = 3;
/// Numbers behind them: how sure the mention's chain is, and its link.
pub(super) const TOKEN_NUMBERS: usize = 2;
/// Slots of a token of a pair: the distances to both mentions, the tokens and the mentions between these, and the properties
/// that a knowledge base has between them.
pub(super) const PAIR_SLOTS: usize = 5;
/// The number behind them: whether the token stands between both mentions.
pub(super) const PAIR_NUMBERS: usize = 1;

/// Classes of mentions; the row before them is that of tokens outside.
pub(super) const CLASS: u32 = 0;
/// Sentences between a mention and its chain's name: 0, 1, 2, 3-4, more.
pub(super) const CHAIN: u32 = CLASS + 1 + CLASSES as u32;
pub(super) const CHAINS: u32 = 5;
/// Types, by their hashes.
pub(super) const TYPE: u32 = CHAIN + CHAINS;
pub(super) const TYPES: u32 = 512;
/// Distances to the first and to the second mention: within it, and in either direction.
pub(super) const FIRST: u32 = TYPE + TYPES;
pub(super) const OFFSETS: u32 = 2 * DISTANCES + 1;
pub(super) const SECOND: u32 = FIRST + OFFSETS;
/// Tokens between both.
pub(super) const GAP: u32 = SECOND + OFFSETS;
/// Mentions between both.
pub(super) const OTHERS: u32 = GAP + DISTANCES;
/// Known properties by their hashes, forth and back.
pub(super) const FACT: u32 = OTHERS + BETWEEN;
pub(super) const FACTS: u32 = 64;
/// All rows.
pub(super) const ROWS: usize = (FACT + 2 * FACTS) as usize;
