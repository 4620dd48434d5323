//! The stages of the models that the options of `sporran ask` name.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sporran_checkpoint::ChatTemplate;
use sporran_config::{Diagnostic, Document, Text};
use sporran_generator::{CausalOptions, ExtractiveOptions, GeneratorOptions, check_generator};
use sporran_kilt::jsonl::plain_json;
use sporran_reranker::{
    CombinedOptions, CosineOptions, CrossEncoderOptions, LlmOptions, RerankerOptions, Saved, TfIdfOptions,
};
use sporran_retriever::{
    dense::DenseOptions,
    fusion::FusionOptions,
    hybrid::HybridOptions,
    sparse::{AnalyzerOptions, Bm25Options, Tokenizer},
};
use sporran_transformers::{TakesModel, wrong_model_type};

use super::options::{AskOptions, Endpoint, mistake};
use crate::{
    Error, Result,
    source::cache,
    workflows::answer::retrieval::{
        self, CombinedRetriever, RerankOptions, RerankedOptions, RerankerTable, RetrieverOptions,
    },
};

/// The instruction to a decoder-only model.
const INSTRUCTION: &str = "Answer the question with the numbered passages only. After each sentence, cite the passages \
                           that support it, such as [1] or [2][3]. If the passages do not answer the question, say so.";
/// The number of passages that a reranker scores.
const RERANKED: usize = 30;
/// The number of words of a passage that a generator reads.
const PASSAGE_WORDS: usize = 150;
/// The number of tokens of passages and question that a generator reads.
const PROMPT_TOKENS: usize = 1536;

/// The words of questions, passages and answers: of any script, and with single characters.
pub(super) fn analyzer() -> AnalyzerOptions {
    AnalyzerOptions { tokenizer: Tokenizer::Unicode, ..AnalyzerOptions::default() }
}

impl AskOptions {
    /// The retriever over documents: BM25, with dense vectors if there is an encoder, and a reranker over both.
    pub(super) fn retriever(&self) -> Result<RetrieverOptions> {
        let bm25 = RetrieverOptions::Bm25(Bm25Options {
            analyzer: analyzer(),
            drop_question_words: true,
            ..Bm25Options::default()
        });
        let mut retriever = match &self.embedder {
            None => bm25,
            Some(model) => {
                let (precision, device) = (self.precision, self.device);
                let dense = DenseOptions { precision, device, ..DenseOptions::new(model.clone()) };
                let parts = vec![bm25, RetrieverOptions::Dense(dense)];
                RetrieverOptions::Hybrid(HybridOptions { fusion: FusionOptions::default(), parts })
            }
        };
        if let Some(folder) = &self.reranker {
            let rerank = RerankOptions { depth: RERANKED.max(self.passages), fusion: None };
            let reranker = RerankerTable { rerank, model: self.reranker_in(folder)? };
            let base = Box::new(retriever);
            retriever =
                RetrieverOptions::Outer(CombinedRetriever::Reranked(RerankedOptions { reranker, base }));
        }
        let mistakes = mistakes("--embed", |document| retrieval::check(&retriever, false, document));
        if mistakes.is_empty() { Ok(retriever) } else { Err(Error::Config(mistakes)) }
    }

    /// The reranker of a folder: of the kind in `reranker.json`, or else a cross-encoder.
    fn reranker_in(&self, folder: &Path) -> Result<RerankerOptions> {
        let (precision, device, folder) = (self.precision, self.device, folder.to_owned());
        let whole = CrossEncoderOptions::new(folder.clone());
        let batch_tokens = whole.batch_tokens;
        Ok(match Saved::read(&folder)? {
            Saved::Cosine { max_tokens } => {
                RerankerOptions::Cosine(CosineOptions { folder, max_tokens, precision, device, batch_tokens })
            }
            Saved::TfIdf { .. } => RerankerOptions::TfIdf(TfIdfOptions { folder }),
            Saved::Combined { .. } => {
                RerankerOptions::Combined(CombinedOptions { folder, precision, device, batch_tokens })
            }
            Saved::Llm { instruction, max_tokens } => {
                let own = LlmOptions::new(folder);
                RerankerOptions::Llm(LlmOptions { instruction, max_tokens, precision, device, ..own })
            }
            Saved::CrossEncoder { .. } | Saved::TitleMatch | Saved::PositionPrior => {
                RerankerOptions::CrossEncoder(CrossEncoderOptions { precision, device, ..whole })
            }
        })
    }

    /// The generator that these options name; `None` without one.
    pub(super) fn own_generator(&self) -> Result<Option<GeneratorOptions>> {
        let generator = match (&self.endpoint, &self.generator) {
            (Some(endpoint), _) => self.generator_at(endpoint)?,
            (None, Some(model)) => self.generator_of(model)?,
            (None, None) => return Ok(None),
        };
        let option = if self.endpoint.is_some() { "--llm" } else { "--model" };
        let mistakes = mistakes(option, |document| {
            check_generator(&*generator, ("generator", true), None, document);
        });
        if mistakes.is_empty() { Ok(Some(generator)) } else { Err(Error::Config(mistakes)) }
    }

    /// The generator at an endpoint.
    fn generator_at(&self, endpoint: &Endpoint) -> Result<GeneratorOptions> {
        Ok(GeneratorOptions::Remote(options_of(json!({
            "base-url": endpoint.url,
            "model": endpoint.model,
            "api-key-env": endpoint.key_variable,
            "instruction": INSTRUCTION,
            "prompt": self.prompt(),
            "answer": "",
            "generation": { "max-new-tokens": self.max_new_tokens },
            // Not in the current folder, which may be a source.
            "requests": { "cache": self.cache.join(cache::RESPONSES), "use-cache": self.keep_responses },
        }))?))
    }

    /// The prompt of a decoder-only model: numbered passages, then the question.
    fn prompt(&self) -> Value {
        json!({
            "passages": self.passages,
            "passage-words": PASSAGE_WORDS,
            "passage": "[{rank}] {title}: {text}",
            "separator": "\n",
            "input": "Question: {input}",
            "order": "passages-first",
            "max-tokens": PROMPT_TOKENS,
        })
    }

    /// The generator for a model, by the type of the model.
    fn generator_of(&self, model: &Path) -> Result<GeneratorOptions> {
        let fits = |takes| wrong_model_type(model, takes, &[]).is_none();
        let mut prompt = self.prompt();
        let (precision, device) = (self.precision, self.device);
        let generation = json!({ "max-new-tokens": self.max_new_tokens });
        if fits(CausalOptions::TAKES) {
            // Without sampling, the same question has the same answer.
            let generation = json!({ "max-new-tokens": self.max_new_tokens, "do-sample": false });
            let mut keys = json!({
                "model": model,
                "precision": precision,
                "device": device,
                "instruction": INSTRUCTION,
                "prompt": prompt,
                "generation": generation,
                "max-tokens": PROMPT_TOKENS + 512,
            });
            // Without a template a model goes on after its answer, up to a stop, and `Answer:` begins the answer.
            if ChatTemplate::open(model)?.is_some() {
                keys["answer"] = "".into();
                keys["stops"] = json!([]);
            }
            return Ok(GeneratorOptions::Causal(options_of(keys)?));
        }
        if fits(ExtractiveOptions::TAKES) {
            return Ok(GeneratorOptions::Extractive(options_of(json!({
                "model": model,
                "precision": precision,
                "device": device,
                "passages": self.passages,
            }))?));
        }
        prompt["input"] = "question: {input}".into();
        prompt["passage"] = "{title}: {text}".into();
        prompt["max-tokens"] = 512.into();
        Ok(GeneratorOptions::Seq2Seq(options_of(json!({
            "model": model,
            "precision": precision,
            "device": device,
            "prompt": prompt,
            "generation": generation,
        }))?))
    }
}

/// The options of a generator from those of its keys that differ from the defaults of a config.
fn options_of<T: DeserializeOwned>(keys: Value) -> Result<T> {
    serde_json::from_value(keys)
        .map_err(|error| Error::Config(vec![mistake("--model", plain_json(&error.to_string()))]))
}

/// The mistakes that a check of options reports, under `option` instead of the keys of a config. Those of a reranker are
/// under `--rerank`.
fn mistakes(option: &str, check: impl FnOnce(&mut Document<'_>)) -> Vec<Diagnostic> {
    let text = Text::new(Path::new("ask"), String::new(), &[]);
    let mut document = Document::parse(&text);
    check(&mut document);
    let option = |key: &str| if key.contains("reranker") { "--rerank" } else { option };
    document.into_diagnostics().into_iter().map(|found| mistake(option(&found.key), found.message)).collect()
}
