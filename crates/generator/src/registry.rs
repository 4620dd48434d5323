//! The list of generator kinds.

use sporran_config::kinds;
use sporran_kilt::Dataset;
use sporran_transformers::{Takers, TakesModel};

use crate::{
    CausalOptions, ExtractiveOptions, FidOptions, MemNetOptions, RagSequenceOptions, RagTokenOptions,
    RemoteOptions, Seq2SeqOptions, TitleOptions, VerifierOptions, by_dataset::ByDatasetOptions,
    kind::GeneratorKind,
};

kinds! {
    /// `[generator]`, by `kind`.
    pub enum GeneratorOptions: dyn GeneratorKind {
        /// `kind = "seq2seq"`
        "seq2seq" => Seq2Seq(Seq2SeqOptions),
        /// `kind = "fid"`
        "fid" => Fid(FidOptions),
        /// `kind = "rag-sequence"`
        "rag-sequence" => RagSequence(RagSequenceOptions),
        /// `kind = "rag-token"`
        "rag-token" => RagToken(RagTokenOptions),
        /// `kind = "memnet"`: a transformer memory network.
        "memnet" => MemNet(MemNetOptions),
        /// `kind = "verifier"`: checks claims by labelling evidence.
        "verifier" => Verifier(VerifierOptions),
        /// `kind = "extractive"`: a span of the most relevant passage.
        "extractive" => Extractive(ExtractiveOptions),
        /// `kind = "causal"`: a decoder-only model, with examples or a chat template.
        "causal" => Causal(CausalOptions),
        /// `kind = "remote"`: a model at an HTTP endpoint, with examples.
        "remote" => Remote(RemoteOptions),
        /// `kind = "title"`: the title of the best passage's page.
        "title" => Title(TitleOptions),
        /// `kind = "by-dataset"`: some datasets have their own generator.
        "by-dataset" => ByDataset(ByDatasetOptions<GeneratorOptions>),
    }
}

/// The kinds with a model, and the types of models that they take.
pub(crate) const TAKERS: Takers = &[
    ("seq2seq", Seq2SeqOptions::TAKES),
    ("fid", FidOptions::TAKES),
    ("rag-sequence", RagSequenceOptions::TAKES),
    ("rag-token", RagTokenOptions::TAKES),
    ("memnet", MemNetOptions::TAKES),
    ("verifier", VerifierOptions::TAKES),
    ("extractive", ExtractiveOptions::TAKES),
    ("causal", CausalOptions::TAKES),
];

impl GeneratorOptions {
    /// The generator of a dataset's queries.
    #[must_use]
    pub fn of(&self, dataset: Option<Dataset>) -> &Self {
        match self {
            Self::ByDataset(options) => options.of(dataset),
            own => own,
        }
    }
}
