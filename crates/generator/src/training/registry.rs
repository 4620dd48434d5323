//! The list of generator kinds that `[train]` trains.

use sporran_transformers::{ModelType, Takers, TakesModel};

use super::GeneratorTrainer;
use crate::{
    CausalOptions, FidOptions, MemNetOptions, RagSequenceOptions, RagTokenOptions, Seq2SeqOptions,
    registry::GeneratorOptions,
};

/// Lists the kinds: a line has the value of the key `kind`, the variant of [`GeneratorOptions`] and the types of initial
/// models.
macro_rules! trained {
    ($($kind:literal => $variant:ident from $start:expr,)+) => {
        /// The names of the kinds that `[train]` trains.
        pub const TRAINED_KINDS: &[&str] = &[$($kind),+];

        /// The same kinds, with the types of the models that their training can start from.
        pub(super) const STARTERS: Takers = &[$(($kind, $start)),+];

        impl GeneratorOptions {
            /// The training of the kind; `None` for kinds that `[train]` cannot train.
            #[must_use]
            pub fn trainer(&self) -> Option<&dyn GeneratorTrainer> {
                match self {
                    $(Self::$variant(options) => Some(options),)+
                    _ => None,
                }
            }
        }
    };
}

trained! {
    "seq2seq" => Seq2Seq from Seq2SeqOptions::TAKES,
    "fid" => Fid from FidOptions::TAKES,
    "memnet" => MemNet from MemNetOptions::TAKES,
    "rag-token" => RagToken from RagTokenOptions::TAKES,
    "rag-sequence" => RagSequence from RagSequenceOptions::TAKES,
    "verifier" => Verifier from ModelType::ENCODERS,
    "extractive" => Extractive from ModelType::ENCODERS,
    "causal" => Causal from CausalOptions::TAKES,
}

/// The message for a kind that `[train]` cannot train.
#[must_use]
pub fn untrained() -> String {
    let names: Vec<String> = TRAINED_KINDS.iter().map(|kind| format!("`{kind}`")).collect();
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("expected {} or {last}: `[train]` supports these kinds", others.join(", "))
}

#[cfg(test)]
mod tests {
    use sporran_config::Kinds;

    use super::*;

    #[test]
    fn every_trained_kind_is_a_kind() {
        let kinds = GeneratorOptions::kinds();
        assert!(TRAINED_KINDS.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        assert!(untrained().ends_with("`extractive` or `causal`: `[train]` supports these kinds"));
    }
}
