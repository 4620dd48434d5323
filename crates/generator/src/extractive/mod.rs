//! DPR's reader (Karpukhin et al. 2020, section 6.1): the most relevant of the passages, and in it the most likely span.

mod train;

use std::{ops::Range, path::PathBuf};

use candle_core::IndexOp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::Query;
use sporran_training::ReaderScores;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, EncoderModel, EncoderRow, Head, ModelType, Precision, TakesModel,
    each_batch, length_batches,
};

pub use train::ReaderInTraining;

use crate::{
    Counted, Error, Generation, Generator, Request, Result, Sink,
    kind::{GeneratorContext, GeneratorKind, GeneratorModel},
};

/// `[generator]` with `kind = "extractive"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExtractiveOptions {
    /// The reader's folder: DPR's reader in the Hugging Face layout, or a model of `sporran train`.
    pub model: PathBuf,
    /// How the weights are kept: `"f32"`, or `"int8"`.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// Passages that are read.
    #[serde(default = "passages")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub passages: usize,
    /// Tokens of question, title and text, at most; the text is cut.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Tokens of an answer, at most.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// Tokens of a batch, padding included, at most.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn passages() -> usize {
    24
}

fn max_tokens() -> usize {
    350
}

fn answer_tokens() -> usize {
    10
}

fn batch_tokens() -> usize {
    4096
}

impl ExtractiveOptions {
    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check(&self) -> Result<()> {
        let values = [
            ("passages", self.passages),
            ("answer-tokens", self.answer_tokens),
            ("batch-tokens", self.batch_tokens),
        ];
        for (option, value) in values {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        if self.max_tokens < 16 {
            let found = self.max_tokens.to_string();
            return Err(Error::Option { option: "max-tokens", expected: "at least 16", found });
        }
        Ok(())
    }
}

/// A question and a passage as a reader's tokens: `[CLS]` question `[SEP]` title `[SEP]` text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadRow {
    /// The tokens.
    pub row: EncoderRow,
    /// The number of the text's first token.
    pub first: usize,
    /// For each of the text's tokens, the bytes of the word or mark that it is of.
    pub pieces: Vec<Range<usize>>,
}

/// Makes the rows of a reader.
pub struct ReaderInput {
    tokenizer: Tokenizer,
    begin: u32,
    separator: u32,
    max_tokens: usize,
}

/// The words and marks of a text: runs of letters and digits, and every other character that is no white space.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let mut in_word = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if c.is_alphanumeric() && in_word {
            if let Some(last) = pieces.last_mut() {
                last.end = end;
            }
        } else if !c.is_whitespace() {
            pieces.push(at..end);
        }
        in_word = c.is_alphanumeric();
    }
    pieces
}

impl ReaderInput {
    /// Makes rows of at most `max_tokens` tokens with BERT's tokenizer.
    ///
    /// # Errors
    /// [`Error::Option`] for a tokenizer that puts no tokens around a text, or whose words are not its own pieces.
    pub fn new(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        let around = tokenizer.encode("", None)?;
        let (2, "WordPiece" | "WordLevel") = (around.len(), tokenizer.kind()) else {
            return Err(Error::Option {
                option: "model",
                expected: "BERT's tokenizer",
                found: tokenizer.kind().into(),
            });
        };
        Ok(Self { begin: around[0], separator: around[1], tokenizer, max_tokens })
    }

    /// The row of a question, a title and a text.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn row(&self, question: &str, title: &str, text: &str) -> Result<ReadRow> {
        let mut ids = vec![self.begin];
        let room = self.max_tokens.saturating_sub(3);
        ids.extend(self.tokenizer.encode_plain(question)?.into_iter().take(room / 2));
        ids.push(self.separator);
        ids.extend(self.tokenizer.encode_plain(title)?.into_iter().take(room / 4));
        ids.push(self.separator);
        let first = ids.len();
        let mut places = Vec::new();
        for piece in pieces(text) {
            let tokens = self.tokenizer.encode_plain(&text[piece.clone()])?;
            if ids.len() + tokens.len() > self.max_tokens {
                break;
            }
            places.extend(tokens.iter().map(|_| piece.clone()));
            ids.extend(tokens);
        }
        let types = vec![0; ids.len()];
        Ok(ReadRow { row: EncoderRow { ids, types }, first, pieces: places })
    }
}

impl ReadRow {
    /// The number of tokens of a span of the text, in bytes.
    fn tokens_of(&self, span: &Range<usize>) -> usize {
        let is_in = |piece: &&Range<usize>| span.start <= piece.start && piece.end <= span.end;
        self.pieces.iter().filter(is_in).count()
    }

    /// The first and last token of every occurrence of `answer` in `text`, ignoring case.
    pub fn find(&self, text: &str, answer: &str) -> Vec<(u32, u32)> {
        let wanted: Vec<String> =
            pieces(answer).into_iter().map(|piece| answer[piece].to_lowercase()).collect();
        // Each piece once, with its first and last token.
        let mut words: Vec<(String, usize, usize)> = Vec::new();
        let mut before: Option<&Range<usize>> = None;
        for (at, piece) in self.pieces.iter().enumerate() {
            match words.last_mut() {
                Some(word) if before == Some(piece) => word.2 = at,
                _ => words.push((text[piece.clone()].to_lowercase(), at, at)),
            }
            before = Some(piece);
        }
        if wanted.is_empty() {
            return Vec::new();
        }
        words
            .windows(wanted.len())
            .filter(|window| window.iter().zip(&wanted).all(|(word, wanted)| word.0 == *wanted))
            .map(|window| {
                let (start, end) = (window[0].1, window[window.len() - 1].2);
                ((self.first + start) as u32, (self.first + end) as u32)
            })
            .collect()
    }

    /// How much better the best span of at most `most` tokens is than no answer, which a reader that learned to withhold puts
    /// at the row's first token (Devlin et al., 2019, section 4.3), with the span's bytes; nothing for an empty text.
    pub fn margin(&self, scores: &ReaderScores, most: usize) -> Option<(Range<usize>, f32)> {
        let (span, score) = self.best(scores, most)?;
        Some((span, score - scores.start[0] - scores.end[0]))
    }

    /// The best span of at most `most` tokens of the text: its bytes and its score; nothing for an empty text.
    pub fn best(&self, scores: &ReaderScores, most: usize) -> Option<(Range<usize>, f32)> {
        let mut best: Option<(Range<usize>, f32)> = None;
        for start in 0..self.pieces.len() {
            for end in start..(start + most).min(self.pieces.len()) {
                let score = scores.start[self.first + start] + scores.end[self.first + end];
                if best.as_ref().is_none_or(|(_, known)| score > *known) {
                    best = Some((self.pieces[start].start..self.pieces[end].end, score));
                }
            }
        }
        best
    }
}

/// The question for a reader: a random template question for zero-shot slot filling (Petroni et al. 2021, section 5),
/// otherwise the input without separators. Only `seed` and the record's id select the question.
pub fn reader_question(query: &Query, seed: u64) -> String {
    let questions = &query.template_questions;
    if questions.is_empty() {
        return query.text.replace("[SEP]", " ");
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(query.id.text().as_bytes());
    let mut drawn = [0; 8];
    hasher.finalize_xof().fill(&mut drawn);
    questions[(u64::from_le_bytes(drawn) % questions.len() as u64) as usize].clone()
}

/// Scores rows as DPR's reader does.
pub trait Reader: Send + Sync {
    /// The reader's scores of each row.
    ///
    /// # Errors
    /// Where the model fails.
    fn scores(&self, rows: &[EncoderRow]) -> Result<Vec<ReaderScores>>;
}

/// A reader from a folder.
struct Loaded {
    model: EncoderModel,
    batch_tokens: usize,
}

impl Reader for Loaded {
    fn scores(&self, rows: &[EncoderRow]) -> Result<Vec<ReaderScores>> {
        let Head::Reader(head) = &self.model.head else { return Ok(Vec::new()) };
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let body = self.model.body.as_ref();
        let found = each_batch(body.device(), &batches, |batch| {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let logits = head.forward(&body.states(&Batch::for_encoder(&members, body)?)?)?;
            members
                .iter()
                .enumerate()
                .map(|(at, row)| {
                    let length = row.ids.len();
                    let side = |logits: &candle_core::Tensor| logits.i((at, ..length))?.to_vec1::<f32>();
                    Ok(ReaderScores {
                        relevance: logits.relevance.i(at)?.to_scalar()?,
                        start: side(&logits.span.start)?,
                        end: side(&logits.span.end)?,
                    })
                })
                .collect::<Result<Vec<_>, sporran_checkpoint::Error>>()
        })?;
        let mut scores: Vec<Option<ReaderScores>> = vec![None; rows.len()];
        for (at, found) in batches.iter().flatten().zip(found.into_iter().flatten()) {
            scores[*at] = Some(found);
        }
        // Every row is in exactly one batch.
        Ok(scores.into_iter().flatten().collect())
    }
}

/// Answers with a span of the most relevant passage, and ranks passages by their relevance.
pub struct Extractive<R> {
    reader: R,
    input: ReaderInput,
    options: ExtractiveOptions,
    seed: u64,
}

impl Extractive<Box<dyn Reader>> {
    /// Loads the reader; `seed` draws template questions.
    ///
    /// # Errors
    /// An error in the folder or an option.
    pub fn load(options: &ExtractiveOptions, seed: u64) -> Result<Self> {
        let (reader, input) = load_reader(options)?;
        Self::new(reader, input, options, seed)
    }
}

/// Loads a reader and its tokenizer.
///
/// # Errors
/// An error in the folder, or [`Error::Option`] where it is no reader's.
pub fn load_reader(options: &ExtractiveOptions) -> Result<(Box<dyn Reader>, ReaderInput)> {
    let checkpoint = Checkpoint::open(&options.model)?;
    let model = checkpoint.encoder_on(options.device, options.precision)?;
    if !matches!(model.head, Head::Reader(_)) {
        let found = model.head.name().to_owned();
        return Err(Error::Option { option: "model", expected: "DPR's reader", found });
    }
    let most = options.max_tokens.min(model.body.max_input_length());
    let input = ReaderInput::new(checkpoint.tokenizer()?, most)?;
    Ok((Box::new(Loaded { model, batch_tokens: options.batch_tokens }), input))
}

impl<R: Reader> Extractive<R> {
    /// A reader that is loaded already, such as one in training; `seed` draws template questions.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(reader: R, input: ReaderInput, options: &ExtractiveOptions, seed: u64) -> Result<Self> {
        options.check()?;
        Ok(Self { reader, input, options: options.clone(), seed })
    }
}

impl Reader for Box<dyn Reader> {
    fn scores(&self, rows: &[EncoderRow]) -> Result<Vec<ReaderScores>> {
        (**self).scores(rows)
    }
}

/// An answer with its tokens.
struct Extracted {
    generation: Generation,
    /// The number of tokens of its span.
    tokens: usize,
    /// The number of tokens of the rows.
    read: usize,
}

impl<R: Reader> Extractive<R> {
    fn extracted(&self, requests: &[Request<'_>]) -> Result<Vec<Extracted>> {
        let mut rows = Vec::new();
        for request in requests {
            let question = reader_question(request.query, self.seed);
            for candidate in request.passages.iter().take(self.options.passages) {
                let passage = candidate.passage;
                rows.push(self.input.row(&question, &passage.title, &passage.text)?);
            }
        }
        let tokens: Vec<EncoderRow> = rows.iter().map(|row| row.row.clone()).collect();
        let scores = self.reader.scores(&tokens)?;
        let mut read = rows.iter().zip(&scores);
        let answer = |request: &Request<'_>| {
            let count = request.passages.len().min(self.options.passages);
            let read: Vec<(&ReadRow, &ReaderScores)> = read.by_ref().take(count).collect();
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|a, b| read[*b].1.relevance.total_cmp(&read[*a].1.relevance).then(a.cmp(b)));
            let mut spans = order.iter().filter_map(|&at| {
                let (span, score) = read[at].0.best(read[at].1, self.options.answer_tokens)?;
                Some((at, span, score))
            });
            let text = |at: usize, span: Range<usize>| request.passages[at].passage.text[span].to_owned();
            let best = spans.next();
            let tokens = best.as_ref().map_or(0, |(at, span, _)| read[*at].0.tokens_of(span));
            let (best, score) = best.map(|(at, span, score)| (text(at, span), score)).unwrap_or_default();
            let alternatives = spans.map(|(at, span, score)| (text(at, span), score)).collect();
            let read = read.iter().map(|(row, _)| row.row.ids.len()).sum();
            let generation = Generation { text: best, score, alternatives, evidence: order, tokens: 0 };
            Extracted { generation, tokens, read }
        };
        Ok(requests.iter().map(answer).collect())
    }
}

impl<R: Reader> Generator for Extractive<R> {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        Ok(self.extracted(requests)?.into_iter().map(|found| found.generation).collect())
    }

    fn generate_counted(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Counted>> {
        let counted = |(at, found): (usize, Extracted)| {
            let Extracted { generation, tokens, read } = found;
            // The answer is complete, so a stop has no effect.
            let _ = sink.write(at, &generation.text);
            Counted { generation: Generation { tokens, ..generation }, read, is_cut: false }
        };
        Ok(self.extracted(requests)?.into_iter().enumerate().map(counted).collect())
    }

    fn kind(&self) -> &'static str {
        "extractive"
    }

    fn passages(&self) -> usize {
        self.options.passages
    }
}

impl TakesModel for ExtractiveOptions {
    const TAKES: &'static [ModelType] = &[ModelType::DprReader];
}

impl GeneratorKind for ExtractiveOptions {
    fn models(&self, key: &str) -> Vec<GeneratorModel<'_>> {
        GeneratorModel::only::<Self>(key, &self.model, (self.device, self.precision), self.passages)
    }

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(Extractive::load(self, context.seed)?))
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, sync::Mutex};

    use std::path::Path;

    use sporran_kilt::Passage;

    use super::*;
    use crate::Candidate;

    /// BERT's frame around words that are known, and the pieces of one that is not.
    fn tokenizer() -> Tokenizer {
        let json = r###"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
            "normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"BertPreTokenizer"},
            "post_processor":{"type":"BertProcessing","sep":["[SEP]",1],"cls":["[CLS]",0]},"decoder":null,
            "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
            "vocab":{"[CLS]":0,"[SEP]":1,"[UNK]":2,"who":3,"ann":4,"lund":5,"sang":6,",":7,"in":8,"os":9,"##lo":10,".":11}}}"###;
        Tokenizer::from_json(Path::new("tokenizer.json"), json.into()).unwrap()
    }

    const TEXT: &str = "Ann Lund, in Oslo. ann lund";

    fn row(most: usize) -> ReadRow {
        ReaderInput::new(tokenizer(), most).unwrap().row("Who sang", "Ann", TEXT).unwrap()
    }

    #[test]
    fn rows_are_question_title_and_text_with_word_ranges() {
        let row = row(40);
        assert_eq!(row.row.ids, [0, 3, 6, 1, 4, 1, 4, 5, 7, 8, 9, 10, 11, 4, 5]);
        assert_eq!(row.first, 6);
        let words: Vec<&str> = row.pieces.iter().map(|piece| &TEXT[piece.clone()]).collect();
        assert_eq!(words, ["Ann", "Lund", ",", "in", "Oslo", "Oslo", ".", "ann", "lund"]);
        // A word that does not fit is left out with the rest.
        assert_eq!(super::tests::row(11).row.ids.len(), 10);
    }

    #[test]
    fn answers_are_found_at_every_position() {
        let row = row(40);
        assert_eq!(row.find(TEXT, "Ann Lund"), [(6, 7), (13, 14)]);
        assert_eq!(row.find(TEXT, "oslo"), [(10, 11)]);
        assert!(row.find(TEXT, "Lund Ann").is_empty() && row.find(TEXT, "").is_empty());
    }

    /// Likes the passage whose text is longest, and its first two words.
    struct Longest;

    impl Reader for Longest {
        fn scores(&self, rows: &[EncoderRow]) -> Result<Vec<ReaderScores>> {
            let one = |row: &EncoderRow| {
                let length = row.ids.len();
                let text = row.ids.iter().rposition(|id| *id == 1).unwrap() + 1;
                let peak = |at: usize| (0..length).map(|i| if i == at { 1.0 } else { 0.0 }).collect();
                ReaderScores { relevance: length as f32, start: peak(text), end: peak(text + 1) }
            };
            Ok(rows.iter().map(one).collect())
        }
    }

    #[test]
    fn the_answer_is_a_span_of_the_best_passage_as_it_is_written_there() {
        let passage = |title: &str, text: &str| Passage {
            page_id: "1".into(),
            title: title.into(),
            ..Passage::of_text(text)
        };
        let passages = [passage("A", "in Oslo"), passage("B", TEXT), passage("C", "Ann sang in Oslo")];
        let candidates: Vec<_> = passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
        let options = ExtractiveOptions {
            model: "m".into(),
            precision: Precision::F32,
            device: DeviceName::Cpu,
            passages: 3,
            max_tokens: 40,
            answer_tokens: 10,
            batch_tokens: 100,
        };
        let input = ReaderInput::new(tokenizer(), 40).unwrap();
        let generator = Extractive::new(Longest, input, &options, 0).unwrap();
        let query = Query::of_text(1i64, "who sang");
        let asked =
            [Request { query: &query, passages: &candidates }, Request { query: &query, passages: &[] }];
        let answers = generator.generate(&asked).unwrap();
        assert_eq!((answers[0].text.as_str(), &answers[0].evidence[..]), ("Ann Lund", &[1, 2, 0][..]));
        assert_eq!((answers[1].text.as_str(), answers[1].evidence.len()), ("", 0));
        struct Texts(Mutex<Vec<String>>);
        impl Sink for Texts {
            fn write(&self, _: usize, text: &str) -> ControlFlow<()> {
                self.0.lock().unwrap().push(text.to_owned());
                ControlFlow::Continue(())
            }
        }
        let texts = Texts(Mutex::default());
        let counted = generator.generate_counted(&asked, &texts).unwrap();
        // The tokens of the three rows, and the two words of the answer.
        let rows = passages.iter().map(|passage| {
            let row = generator.input.row("who sang", &passage.title, &passage.text).unwrap();
            row.row.ids.len()
        });
        let of = |at: usize| (counted[at].read, counted[at].generation.tokens);
        assert_eq!(of(0), (rows.sum(), 2));
        assert_eq!(of(1), (0, 0));
        assert_eq!(*texts.0.lock().unwrap(), ["Ann Lund", ""]);
    }

    #[test]
    fn a_template_question_is_drawn_by_the_seed_and_the_records_id() {
        let templates = ["Who is it?", "What is it?", "Which is it?"].map(str::to_owned);
        let slot =
            |id: i64| Query { template_questions: templates.to_vec(), ..Query::of_text(id, "A [SEP] b") };
        let asked =
            |seed: u64| -> Vec<String> { (0..60).map(|id| reader_question(&slot(id), seed)).collect() };
        let first = asked(1);
        assert_eq!(first, asked(1));
        assert_ne!(first, asked(2));
        for template in &templates {
            let times = first.iter().filter(|question| *question == template).count();
            assert!((10..=30).contains(&times), "{template}: {times}");
        }
        assert_eq!(reader_question(&Query::of_text(1i64, "A [SEP] b"), 1), "A   b");
    }
}
