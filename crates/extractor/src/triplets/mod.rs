//! Relation extraction by an encoder-decoder that writes facts as text (REBEL; Huguet Cabot and Navigli 2021, "REBEL:
//! Relation Extraction By End-to-end Language generation").
//!
//! A [`TripletReader`] reads a sentence and writes its facts with the mentions that they hold between, so that no mentions
//! have to be found before. It can only write spans of the sentence and relations that it knows.

mod constraint;
mod examples;
mod linear;
mod reader;

pub use examples::{outcomes, triplet_examples, writable};
pub use linear::{MARKS, Triplet};
pub use reader::{ReadTriplet, TRIPLETS, TripletOptions, TripletReader};

#[cfg(test)]
mod tests;
