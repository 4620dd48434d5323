//! Texts in, texts out: a model with its tokenizer, batched by length.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use candle_core::Device;
use sporran_checkpoint::{Tokenizer, TruncationSide, find_gguf};
use sporran_transformers::{
    Batch, CandleLm, CausalLm, Checkpoint, DeviceName, Engine, GenerationOptions, Gguf, Hypothesis,
    Precision, RunningBatch, Seq2Seq,
    decode::{Inputs, RequestId, TokenSink},
    each_batch, generate_causal_until, generate_with, length_batches,
};

use crate::{
    ChatPrompt, Error, Result,
    sink::{Sink, Writer},
};

/// A model, and how it generates.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOptions {
    /// The model's folder, in the Hugging Face layout.
    pub folder: PathBuf,
    /// How its weights are kept.
    pub precision: Precision,
    /// How it generates.
    pub generation: GenerationOptions,
    /// Tokens of an input, at most, and as many as the model has positions for; the rest is cut (see [`TextGenerator`]).
    pub max_tokens: usize,
    /// Inputs that are worked on together, at most.
    pub batch_size: usize,
    /// Tokens of a batch, padding included, at most; a longer input forms a separate batch.
    pub batch_tokens: usize,
    /// Where it computes.
    pub device: DeviceName,
    /// The engine of a decoder-only model.
    pub engine: Engine,
    /// A text ends before the first of these.
    pub stops: Vec<String>,
}

impl ModelOptions {
    /// A folder's model in f32 on the CPU with the default portions: 1,024 tokens an input, 32 inputs or 8,192 tokens a batch.
    pub fn new(folder: PathBuf, generation: GenerationOptions) -> Self {
        Self {
            folder,
            precision: Precision::F32,
            generation,
            max_tokens: 1024,
            batch_size: 32,
            batch_tokens: 8192,
            device: DeviceName::Cpu,
            engine: Engine::Auto,
            stops: Vec::new(),
        }
    }
}

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The text, special tokens left out.
    pub text: String,
    /// The score of its sequence.
    pub score: f32,
    /// The tokens of its sequence.
    pub tokens: usize,
}

impl GeneratedText {
    /// The answer to a blank text.
    pub(crate) fn nothing() -> Self {
        Self { text: String::new(), score: 0.0, tokens: 0 }
    }
}

/// The outputs of a batch, each with its row's place among the texts.
type Answers = Vec<(usize, Vec<GeneratedText>)>;

/// The model.
#[derive(Clone)]
enum Model {
    Seq2Seq(Arc<dyn Seq2Seq>),
    /// It continues its input.
    Causal(Arc<dyn CausalLm>),
}

impl Model {
    fn device(&self) -> &Device {
        match self {
            Self::Seq2Seq(model) => model.device(),
            Self::Causal(model) => model.device(),
        }
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        match self {
            Self::Seq2Seq(model) => model.generation_defaults(),
            Self::Causal(model) => model.generation_defaults(),
        }
    }

    /// The most tokens of an input, where there is a bound.
    fn max_input_length(&self, options: &GenerationOptions) -> Option<usize> {
        match self {
            Self::Seq2Seq(model) => model.max_input_length(),
            Self::Causal(model) => prompt_room(model.as_ref(), options),
        }
    }

    fn generate(
        &self,
        rows: &[&[u32]],
        options: &GenerationOptions,
        stops: &[u32],
        sink: Option<&dyn TokenSink>,
    ) -> Result<Vec<Vec<Hypothesis>>> {
        Ok(match self {
            Self::Seq2Seq(model) => {
                let input = Batch::new(rows, model.special_tokens().pad, model.device())?;
                let sources = input.rows()?;
                let inputs = Inputs { sources: Some(&sources), sink, ..Inputs::default() };
                generate_with(model.as_ref(), &model.encode(&input)?, options, &inputs)?
            }
            Self::Causal(model) => {
                let prompts: Vec<Vec<u32>> = rows.iter().map(|row| row.to_vec()).collect();
                generate_causal_until(model.as_ref(), &prompts, options, stops, sink)?
            }
        })
    }
}

/// The most tokens of a prompt, where there is a bound. A decoder-only model's learned positions hold the answer too: room is left
/// for it, but no more than half. The length that the options allow a sequence holds the whole prompt and at least one token.
pub(crate) fn prompt_room(model: &dyn CausalLm, options: &GenerationOptions) -> Option<usize> {
    // The last token of an answer is not read.
    let answer = options.max_new_tokens.unwrap_or(NEW_TOKENS);
    let positions = model.has_learned_positions().then(|| {
        let whole = model.max_length() + 1;
        whole.saturating_sub(answer).max(whole / 2).min(whole - 1)
    });
    let length = options.max_length.filter(|_| options.max_new_tokens.is_none());
    let most = positions.into_iter().chain(length.map(|length| length.saturating_sub(1))).min()?;
    Some(most.max(1))
}

/// The tokenizer of a decoder-only model. A text that is too long loses its beginning, unless the folder says otherwise.
pub(crate) fn continuing(tokenizer: Tokenizer) -> Tokenizer {
    match tokenizer.truncation_side() {
        Some(_) => tokenizer,
        None => tokenizer.with_truncation_side(TruncationSide::Left),
    }
}

/// The default number of tokens of an answer.
pub(crate) const NEW_TOKENS: usize = 20;

/// The tokens whose text has one of `stops` in it.
fn stop_tokens(tokenizer: &Tokenizer, stops: &[String]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for token in 0..tokenizer.vocab_size() as u32 {
        let text = tokenizer.decode(&[token])?;
        if stops.iter().any(|stop| text.contains(stop)) {
            found.push(token);
        }
    }
    Ok(found)
}

/// A model that generates, with its tokenizer.
///
/// An input that is longer than it may be is cut where the folder's `truncation_side` says, and otherwise loses its end, or its
/// beginning where a decoder-only model is to continue it. Models of learned positions (GPT-2, BART) end an answer at
/// the last of them; rotary and relative positions (LLaMA, T5) go on.
pub struct TextGenerator {
    model: Model,
    tokenizer: Tokenizer,
    options: ModelOptions,
    /// Tokens of a decoder-only model that hold one of `stops`: none is needed after them.
    stops: Vec<u32>,
    /// Whether a warning was given for an input that is cut, and for a sequence beyond the positions of training.
    warned: [AtomicBool; 2],
}

impl TextGenerator {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not a generating model's and for a device that is not there,
    /// [`Error::Option`] for empty batches.
    pub fn load(options: &ModelOptions) -> Result<Self> {
        if options.engine.is_candle(&options.folder)? {
            let model = CandleLm::open(&options.folder, options.device, options.precision)?;
            let tokenizer = CandleLm::tokenizer(&options.folder)?;
            return Self::over(Model::Causal(Arc::new(model)), tokenizer, options.clone());
        }
        if let Some(file) = find_gguf(&options.folder)? {
            let file = Gguf::open(&file)?;
            let model = Model::Causal(file.causal(options.device, options.precision)?.into());
            return Self::over(model, file.tokenizer()?, options.clone());
        }
        let checkpoint = Checkpoint::open(&options.folder)?;
        let model = if checkpoint.config().is_causal() {
            Model::Causal(checkpoint.causal(options.device, options.precision)?.into())
        } else {
            Model::Seq2Seq(checkpoint.seq2seq(options.device, options.precision)?.into())
        };
        Self::over(model, checkpoint.tokenizer()?, options.clone())
    }

    /// A model that is loaded already, such as one in training.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches.
    pub fn new(model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer, options: ModelOptions) -> Result<Self> {
        Self::over(Model::Seq2Seq(model), tokenizer, options)
    }

    fn over(model: Model, mut tokenizer: Tokenizer, mut options: ModelOptions) -> Result<Self> {
        for (option, value) in [("batch-size", options.batch_size), ("batch-tokens", options.batch_tokens)] {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        let generation = options.generation.or(model.generation_defaults());
        if let Model::Causal(model) = &model
            && let Some(rows) = model.most_rows()
        {
            CandleLm::check_options(&generation)?;
            options.batch_size = options.batch_size.min(rows);
        }
        let most = model.max_input_length(&generation);
        options.max_tokens = options.max_tokens.min(most.unwrap_or(usize::MAX));
        if matches!(model, Model::Causal(_)) {
            tokenizer = continuing(tokenizer);
        }
        let stops = match (&model, options.stops.is_empty()) {
            (Model::Causal(_), false) => stop_tokens(&tokenizer, &options.stops)?,
            _ => Vec::new(),
        };
        Ok(Self { model, tokenizer, options, stops, warned: Default::default() })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The tokens of a text, truncated to the model's input length, and their number before truncation.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<(Vec<u32>, usize)> {
        let whole = self.tokenizer.encode(text, None)?;
        let count = whole.len();
        if count <= self.options.max_tokens {
            return Ok((whole, count));
        }
        Ok((self.tokenizer.encode(text, Some(self.options.max_tokens))?, count))
    }

    /// The tokens of a text, at most.
    pub fn max_tokens(&self) -> usize {
        self.options.max_tokens
    }

    /// Whether the model continues its input, rather than answering it.
    pub fn is_causal(&self) -> bool {
        matches!(self.model, Model::Causal(_))
    }

    /// A decoder-only model with its generation options, where the folder's defaults replace missing ones.
    pub(crate) fn causal(&self) -> Option<(&dyn CausalLm, GenerationOptions)> {
        match &self.model {
            Model::Seq2Seq(_) => None,
            Model::Causal(model) => {
                Some((model.as_ref(), self.options.generation.or(model.generation_defaults())))
            }
        }
    }

    /// The same generator, which ends an answer of a decoder-only model at this token too, where the vocabulary has it.
    #[must_use]
    pub fn ending_at(mut self, token: Option<&str>) -> Self {
        self.stops.extend(token.and_then(|token| self.tokenizer.token_id(token)));
        self
    }

    /// Warns of the first input that is cut.
    pub(crate) fn note_cut(&self, tokens: usize, read: usize) {
        if tokens > read && !self.warned[0].swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "an input has {tokens} tokens, of which {read} are read; further ones are cut without a warning"
            );
        }
    }

    /// Warns of the first sequence that is longer than those of the model's training.
    fn note_length(&self, tokens: usize) {
        let Model::Causal(model) = &self.model else { return };
        let trained = model.max_length();
        if !model.has_learned_positions() && tokens > trained && !self.warned[1].swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "a sequence has {tokens} tokens, and the model was trained for {trained}: what it writes beyond them may be worse"
            );
        }
    }

    /// Answer `i` belongs to text `i`: as many outputs as the options' `num-return-sequences`, best first. Texts of
    /// like length are worked on together, which changes the time and not the answers. A blank text has an empty answer.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    pub fn generate(&self, texts: &[&str]) -> Result<Vec<Vec<GeneratedText>>> {
        self.generate_into(texts, None)
    }

    /// [`generate`](Self::generate), with a sink that receives the answers while they are generated.
    ///
    /// # Errors
    /// As there.
    pub fn generate_into(&self, texts: &[&str], sink: Option<&dyn Sink>) -> Result<Vec<Vec<GeneratedText>>> {
        self.generate_from(&self.rows(texts)?, sink)
    }

    /// The tokens of each text, truncated to the model's input length; none for a blank text.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub(crate) fn rows(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        let mut rows = self.tokenizer.encode_batch(texts, Some(self.options.max_tokens))?;
        for (row, text) in rows.iter_mut().zip(texts) {
            if text.trim().is_empty() {
                row.clear();
            }
            if row.len() == self.options.max_tokens {
                self.note_cut(self.tokenizer.encode(text, None)?.len(), row.len());
            }
        }
        Ok(rows)
    }

    /// [`generate`](Self::generate) for texts that have been [encoded](Self::encode). A row without a token has an empty
    /// answer of score 0.
    ///
    /// # Errors
    /// Where the model fails.
    pub fn generate_from(
        &self,
        rows: &[Vec<u32>],
        sink: Option<&dyn Sink>,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let asked: Vec<usize> = (0..rows.len()).filter(|at| !rows[*at].is_empty()).collect();
        let lengths: Vec<usize> = asked.iter().map(|at| rows[*at].len()).collect();
        let mut batches = length_batches(&lengths, self.options.batch_size, self.options.batch_tokens);
        batches.iter_mut().flatten().for_each(|at| *at = asked[*at]);
        let answers = each_batch(self.model.device(), &batches, |batch| self.answer(batch, rows, sink))?;
        let returned = self.options.generation.or(self.model.generation_defaults()).num_return_sequences;
        let mut outputs = vec![vec![GeneratedText::nothing(); returned.unwrap_or(1)]; rows.len()];
        for (at, output) in answers.into_iter().flatten() {
            outputs[at] = output;
        }
        Ok(outputs)
    }

    fn answer(&self, batch: &[usize], rows: &[Vec<u32>], sink: Option<&dyn Sink>) -> Result<Answers> {
        let inputs: Vec<&[u32]> = batch.iter().map(|&at| rows[at].as_slice()).collect();
        let writer = sink.map(|sink| Writer::new(sink, &self.tokenizer, &self.options.stops, batch.to_vec()));
        let tokens = writer.as_ref().map(|writer| writer as &dyn TokenSink);
        let hypotheses = self.model.generate(&inputs, &self.options.generation, &self.stops, tokens)?;
        batch
            .iter()
            .zip(hypotheses)
            .enumerate()
            .map(|(input, (&at, hypotheses))| {
                let longest = hypotheses.iter().map(|hypothesis| hypothesis.tokens.len()).max();
                self.note_length(rows[at].len() + longest.unwrap_or(0));
                let outputs: Vec<GeneratedText> =
                    hypotheses.iter().map(|hypothesis| self.text(hypothesis)).collect::<Result<_>>()?;
                if let (Some(writer), Some(best)) = (&writer, outputs.first()) {
                    writer.finish(input, &best.text);
                }
                Ok((at, outputs))
            })
            .collect()
    }

    /// The text of a sequence, before the first stop.
    fn text(&self, hypothesis: &Hypothesis) -> Result<GeneratedText> {
        let mut text = self.tokenizer.decode(&hypothesis.tokens)?;
        let ends = self.options.stops.iter().filter_map(|stop| text.find(stop));
        text.truncate(ends.min().unwrap_or(text.len()));
        Ok(GeneratedText { text, score: hypothesis.score, tokens: hypothesis.tokens.len() })
    }

    /// An empty batch of the model, which texts join and leave.
    ///
    /// # Errors
    /// [`Error::Transformers`] where the model's sequences cannot join a batch, and for options with beams or with several
    /// sequences a text, which a batch does not have.
    pub(crate) fn running_batch(&self) -> Result<RunningBatch> {
        let own = self.options.generation.or(self.model.generation_defaults());
        for (option, value) in
            [("num-beams", own.num_beams), ("num-return-sequences", own.num_return_sequences)]
        {
            if let Some(found) = value.filter(|value| *value > 1) {
                let (expected, found) = ("1 in a running batch".into(), found.to_string());
                return Err(sporran_checkpoint::Error::Options { option, expected, found }.into());
            }
        }
        Ok(match &self.model {
            Model::Seq2Seq(model) => RunningBatch::seq2seq(model.clone())?,
            Model::Causal(model) => RunningBatch::causal(model.clone())?,
        })
    }

    /// Whether tokens are drawn at random, by these options or the model's folder's.
    pub(crate) fn samples(&self) -> bool {
        self.options.generation.or(self.model.generation_defaults()).do_sample == Some(true)
    }

    /// Adds a row to a batch of the model. The options take the place of this generator's where they are set. The tokens `ends`
    /// end the sequence, as do the model's own end tokens.
    ///
    /// # Errors
    /// Those of [`RunningBatch::add`].
    pub(crate) fn join(
        &self,
        batch: &mut RunningBatch,
        row: &[u32],
        options: &GenerationOptions,
        ends: &[u32],
    ) -> Result<RequestId> {
        Ok(batch.add(row, &options.or(&self.options.generation), ends)?)
    }

    /// The tokens that end an answer besides the model's own end tokens.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.stops
    }

    /// The model's chat template; none where the model has none.
    ///
    /// # Errors
    /// Those of [`ChatPrompt::open`].
    pub(crate) fn chat(&self) -> Result<Option<ChatPrompt>> {
        ChatPrompt::open(&self.options.folder, &self.tokenizer)
    }

    /// The text of a sequence of `read` tokens and then those of `hypothesis`.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub(crate) fn finished(&self, read: usize, hypothesis: &Hypothesis) -> Result<GeneratedText> {
        self.note_length(read + hypothesis.tokens.len());
        self.text(hypothesis)
    }

    /// [`finished`](Self::finished) without the texts that end an answer.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn finished_bare(&self, read: usize, hypothesis: &Hypothesis) -> Result<GeneratedText> {
        self.note_length(read + hypothesis.tokens.len());
        let text = self.tokenizer.decode(&hypothesis.tokens)?;
        Ok(GeneratedText { text, score: hypothesis.score, tokens: hypothesis.tokens.len() })
    }

    /// The texts before whose first an answer ends.
    pub(crate) fn stops(&self) -> &[String] {
        &self.options.stops
    }
}
