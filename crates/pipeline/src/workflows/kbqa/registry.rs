//! The kinds of reasoner that use a generator.

use sporran_config::kinds;
use sporran_reasoner::question::ReasonerKind;

use super::{
    causal::CausalQuestions,
    rag::{RagSequenceQuestions, RagTokenQuestions},
    remote::RemoteQuestions,
    seq2seq::Seq2SeqQuestions,
};

/// `[reasoner]`, by `kind`.
pub type ReasonerOptions = sporran_reasoner::question::ReasonerOptions<GeneratingReasoner>;

kinds! {
    /// Kinds of reasoner that use a generator.
    pub enum GeneratingReasoner: dyn ReasonerKind {
        /// `kind = "seq2seq"`: generates the answers, separated by commas, from the document and the question, without the
        /// knowledge base.
        "seq2seq" => Seq2Seq(Seq2SeqQuestions),
        /// `kind = "rag-sequence"`: generates the answers from the document, the question and retrieved passages. A whole answer is
        /// marginalised over the passages.
        "rag-sequence" => RagSequence(RagSequenceQuestions),
        /// `kind = "rag-token"`: the same, where each token of an answer is marginalised over the passages.
        "rag-token" => RagToken(RagTokenQuestions),
        /// `kind = "causal"`: a decoder-only model that is not trained; its prompt has other questions with their documents and
        /// answers. The files of `[reasoner.demonstrations]` are in KoRC's layout; its `answer-words` is ignored.
        "causal" => Causal(CausalQuestions),
        /// `kind = "remote"`: the same with a model at an HTTP endpoint.
        "remote" => Remote(RemoteQuestions),
    }
}
