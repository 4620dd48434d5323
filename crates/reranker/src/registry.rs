//! The list of reranker kinds.

use sporran_config::kinds;

use crate::{
    CosineOptions, CrossEncoderOptions, LlmOptions, RemoteRerankerOptions, combined::CombinedOptions,
    kind::RerankerKind, tfidf::TfIdfOptions,
};

kinds! {
    /// `[reranker]`, by `kind`.
    pub enum RerankerOptions: dyn RerankerKind {
        /// `kind = "cross-encoder"`: a transformer reads the query and a passage together.
        "cross-encoder" => CrossEncoder(CrossEncoderOptions),
        /// `kind = "llm"`: a language model reads the query and a passage together, and answers yes or no.
        "llm" => Llm(LlmOptions),
        /// `kind = "cosine"`: the cosine of the vectors of an encoder.
        "cosine" => Cosine(CosineOptions),
        /// `kind = "tfidf"`: the similarity of words, weighted by how rare they are.
        "tfidf" => TfIdf(TfIdfOptions),
        /// `kind = "combined"`: a weighted sum of several rerankers, as `sporran train` saves it.
        "combined" => Combined(CombinedOptions),
        /// `kind = "remote"`: a reranker at an HTTP endpoint.
        "remote" => Remote(RemoteRerankerOptions),
    }
}
