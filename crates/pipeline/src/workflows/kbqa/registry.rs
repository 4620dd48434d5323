//! The kinds of reasoner that use a generator.

use sporran_config::kinds;
use sporran_reasoner::question::ReasonerKind;

use super::{causal::CausalQuestions, seq2seq::Seq2SeqQuestions};

/// `[reasoner]`, by `kind`.
pub type ReasonerOptions = sporran_reasoner::question::ReasonerOptions<GeneratingReasoner>;

kinds! {
    /// Kinds of reasoner that use a generator.
    pub enum GeneratingReasoner: dyn ReasonerKind {
        /// `kind = "seq2seq"`: generates the answers, separated by commas, from the document and the question, without the
        /// knowledge base.
        "seq2seq" => Seq2Seq(Seq2SeqQuestions),
        /// `kind = "causal"`: a decoder-only model that is not trained; its prompt has other questions with their documents and
        /// answers. The files of `[reasoner.demonstrations]` are in KoRC's layout; its `answer-words` is ignored.
        "causal" => Causal(CausalQuestions),
    }
}
