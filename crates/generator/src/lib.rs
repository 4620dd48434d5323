//! Generators answer a query with its passages.
//!
//! All implement [`Generator::generate`].
//!
//! - [`Seq2SeqGenerator`]: an encoder-decoder reads the passages and the input as one text, like KILT's BART + DPR.
//!   Without passages, it is closed-book.
//! - [`FidGenerator`] encodes passages separately and decodes from all of them; [`RagGenerator`] answers with each passage
//!   and marginalises over them; [`MemNet`] attends to one part of them.
//! - [`Verifier`] labels evidence to check claims. [`Extractive`] returns a span of the most relevant passage.
//! - [`CausalGenerator`] prompts a decoder-only model, with examples or a chat template. [`RemoteGenerator`] sends such
//!   prompts to an HTTP endpoint.
//! - [`TitleGenerator`] returns the title of the best page. [`EntityTitle`] generates titles only, for retrieval.
//! - [`ByDataset`] selects a generator by the query's dataset.
//!
//! [`GeneratorOptions`] lists the kinds that a config can name. Each implements [`GeneratorKind`].

mod by_dataset;
mod causal;
mod chat;
mod check;
mod demonstrations;
mod entity_title;
mod error;
mod extractive;
mod fid;
mod in_context;
mod kind;
mod memnet;
mod one_model;
mod passages;
mod prompt;
mod rag;
mod registry;
mod remote;
mod running_batch;
mod seq2seq;
mod short_answer;
mod sink;
mod text;
mod text_stream;
mod title;
mod training;
mod verifier;

pub use by_dataset::{ByDataset, ByDatasetOptions};
pub use causal::{CausalGenerator, CausalOptions, Chat};
pub use chat::{ChatPrompt, Conversation};
pub use check::check_generator;
pub use demonstrations::{Demonstration, Demonstrations, DemonstrationsOptions};
pub use entity_title::{EntityTitle, EntityTitleOptions, WrittenTitle};
pub use error::{Error, Result};
pub use extractive::{
    Extractive, ExtractiveOptions, ReadRow, Reader, ReaderInTraining, ReaderInput, load_reader,
    reader_question,
};
pub use fid::{FidEvidence, FidGenerator, FidOptions};
pub use kind::{EvidenceSource, GeneratorContext, GeneratorKind, GeneratorModel, generation_overrides};
pub use memnet::{DialoguePart, MemNet, MemNetOptions, MemoryInput};
pub use prompt::{EstimatedTokens, Order, Prompt, PromptOptions, TokenCounter};
pub use rag::{RagGenerator, RagSequenceOptions, RagTokenOptions};
pub use registry::GeneratorOptions;
pub use remote::{Api, EndpointInput, RemoteGenerationOptions, RemoteGenerator, RemoteOptions};
pub use running_batch::{BarePrompt, Finished, RunningBatch};
pub use seq2seq::{Seq2SeqGenerator, Seq2SeqOptions};
pub use sink::Sink;
use sporran_kilt::{Passage, Query};

pub use text::{GeneratedText, ModelOptions, TextGenerator};
pub use title::{TitleGenerator, TitleOptions};
pub use training::{
    GeneratorTrainer, GeneratorTraining, LiveRetrieval, MatchingOptions, RetrievedExample, TRAINED_KINDS,
    Target, TrainOptions, TrainSettings, ValidationScore, mean_score, untrained,
};
pub use verifier::nsmn::{
    LabelledPair, MatchingObjective, NSMN, Nsmn, NsmnConfig, PackedNsmn, RELEASED_NSMN, ReleasedNsmn,
    ReleasedNsmnConfig, TokenPair, WordPair, import_nsmn, is_released_nsmn, treebank_words,
};
pub use verifier::{
    Aggregate, Label, LabelOrder, Labeller, Matcher, PageOptions, Piece, Reading, ReleasedMatcher,
    SelectionOptions, Selectors, Unit, UnitKind, Verdict, Verifier, VerifierOptions, titled, token_pair,
    units, verdict,
};

/// An answer with what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The answer.
    pub generation: Generation,
    /// The number of tokens that the model read; 0 if it is not known.
    pub read: usize,
    /// Whether it ended because of its length. Kinds that answer as a whole do not know.
    pub is_cut: bool,
}

/// Answers queries.
///
/// ```
/// use sporran_generator::{Candidate, Generation, Generator, Request, Result};
/// use sporran_kilt::{Passage, Query};
///
/// /// Answers with the title of the best passage.
/// struct BestTitle;
///
/// impl Generator for BestTitle {
///     fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
///         let answer = |request: &Request<'_>| {
///             let best = request.passages.first();
///             Generation {
///                 text: best.map_or_else(String::new, |best| best.passage.title.clone()),
///                 score: best.map_or(0.0, |best| best.score),
///                 alternatives: Vec::new(),
///                 evidence: if best.is_some() { vec![0] } else { Vec::new() },
///                 tokens: 0,
///             }
///         };
///         Ok(requests.iter().map(answer).collect())
///     }
///
///     fn passages(&self) -> usize {
///         1
///     }
/// }
///
/// let passage = Passage {
///     page_id: "1".into(),
///     title: "Oslo".into(),
///     ..Passage::of_text("Oslo is the capital of Norway.")
/// };
/// let query = Query::of_text("q", "What is the capital of Norway?");
/// let passages = [Candidate { passage: &passage, score: 2.5 }];
/// let generations = BestTitle.generate(&[Request { query: &query, passages: &passages }])?;
/// assert_eq!((generations[0].text.as_str(), &generations[0].evidence[..]), ("Oslo", &[0][..]));
/// # Ok::<(), sporran_generator::Error>(())
/// ```
pub trait Generator: Send + Sync {
    /// Answers requests. Generation `i` answers `requests[i]`, independently of the other requests.
    ///
    /// # Errors
    /// Errors of the model or its tokenizer.
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>>;

    /// [`generate`](Self::generate) with a sink, which receives the answers during generation and can stop them. Kinds that
    /// do not generate token by token write each answer as a whole.
    ///
    /// # Errors
    /// As for `generate`.
    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        let generations = self.generate(requests)?;
        for (at, generation) in generations.iter().enumerate() {
            // The answer is complete, so a stop has no effect.
            let _ = sink.write(at, &generation.text);
        }
        Ok(generations)
    }

    /// [`generate_into`](Self::generate_into) with the number of tokens that the model read for each request, as an endpoint
    /// counts them. The `tokens` of an extracted answer are those of its span.
    ///
    /// # Errors
    /// As for `generate`.
    fn generate_counted(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Counted>> {
        let generations = self.generate_into(requests, sink)?.into_iter();
        let counted = |(generation, read)| Counted { generation, read, is_cut: false };
        Ok(generations.zip(self.prompt_tokens(requests)?).map(counted).collect())
    }

    /// The endpoint that answers, for the kind `remote`: it takes options of single requests, and prompts of clients.
    fn endpoint(&self) -> Option<&RemoteGenerator> {
        None
    }

    /// The name of the kind in a config. Kinds of other crates are named by their type.
    fn kind(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// An empty batch that requests join and leave while others are answered.
    ///
    /// # Errors
    /// [`Error::Running`] for kinds that do not answer with one model, token by token. For the others, an error where the
    /// model cannot: on a GPU, and GPT-2; and for a generator whose own options have beams or several sequences.
    fn running_batch(&self) -> Result<RunningBatch<'_>> {
        Err(Error::Running { kind: self.kind() })
    }

    /// Whether answers are drawn at random, by the generator's own options.
    fn samples(&self) -> bool {
        false
    }

    /// The largest number of passages of a request that the model reads.
    fn passages(&self) -> usize;

    /// The number of tokens that the model reads for each request: those of all its prompts. 0 for kinds that do not count them
    /// before they answer.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        Ok(vec![0; requests.len()])
    }

    /// The prompts of a request: one text, or one for each passage. Empty if the kind has no text prompts.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let _ = request;
        Ok(Vec::new())
    }
}

/// A query with its retrieved passages.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The query.
    pub query: &'a Query,
    /// The passages, best first. Empty for closed-book answers.
    pub passages: &'a [Candidate<'a>],
}

/// A passage with its score from retrieval or reranking.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The passage.
    pub passage: &'a Passage,
    /// The score. Higher is better.
    pub score: f32,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The text of the answer, without surrounding whitespace.
    pub text: String,
    /// The score of the sequence, as `GenerationOptions` defines it.
    pub score: f32,
    /// Other answers with their scores, best first.
    pub alternatives: Vec<(String, f32)>,
    /// The indices of the request's passages that are evidence, best first.
    pub evidence: Vec<usize>,
    /// The number of tokens of the answer. 0 for kinds that extract or classify instead of generating.
    pub tokens: usize,
}
