//! The list of kinds of reranker trainings.

use sporran_config::kinds;

use super::{
    EncoderOptions, MaskedLmOptions, NoOptions, RerankerTrainingKind, TunedBiEncoderOptions,
    TunedCrossEncoderOptions,
};

kinds! {
    /// `[reranker-training]`, by `kind`.
    pub enum RerankerTraining: dyn RerankerTrainingKind {
        /// `kind = "tfidf"`: tf-idf. Document frequencies are counted over the sentences and the turns of the training data; each
        /// sentence and each turn is a document. Makes a reranker of kind `tfidf`.
        "tfidf" => TfIdf(NoOptions),
        /// `kind = "cosine"`: the vectors of a frozen encoder. Makes a reranker of kind `cosine`, or with `[combine]` one of
        /// kind `combined`.
        "cosine" => Cosine(EncoderOptions),
        /// `kind = "masked-lm"`: the vectors of an encoder after masked language modelling on the dialogues and sentences.
        /// Makes a reranker of kind `cosine`.
        "masked-lm" => MaskedLm(MaskedLmOptions),
        /// `kind = "cross-encoder"`: an encoder that is trained to score pairs of a context and a sentence. Makes a reranker
        /// of kind `cross-encoder`, or with `[combine]` one of kind `combined`.
        "cross-encoder" => CrossEncoder(TunedCrossEncoderOptions),
        /// `kind = "bi-encoder"`: an encoder that is trained to map a context close to its relevant sentences. Makes a
        /// reranker of kind `cosine`, or with `[combine]` one of kind `combined`.
        "bi-encoder" => BiEncoder(TunedBiEncoderOptions),
    }
}
