//! Relation extraction by an encoder-decoder that generates facts as text (REBEL; Huguet Cabot and Navigli
//! 2021, "REBEL: Relation Extraction By End-to-end Language generation").
//!
//! A [`TripletReader`] reads a sentence and generates its facts with their mentions, so it needs no mention
//! finder. Decoding is constrained to spans of the sentence and known relations.

mod constraint;
mod examples;
mod linear;
mod options;
mod reader;
mod train;

pub use examples::{outcomes, triplet_examples, writable};
pub use linear::{MARKS, Triplet};
pub use options::{TripletTraining, WrittenProperty};
pub use reader::{ReadTriplet, TRIPLETS, TripletOptions, TripletReader};
pub use train::TripletData;

#[cfg(test)]
mod tests;
