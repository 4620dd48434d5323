//! Labels of pairs of texts: an encoder with a head for sequence classification, and how pairs reach it.

use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use sporran_checkpoint::{CrossEncoderFolder, Error, Result};

use crate::{
    Batch, Checkpoint, DeviceName, Encoder, EncoderInput, EncoderRow, Head, Precision, Sentences,
    SequenceHead, Text, Truncation, batch::length_batches, each_batch,
};

/// How a [`PairClassifier`] reads and computes.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOptions {
    /// Tokens of a pair, at most; as many as the model can read where there is no limit.
    pub max_tokens: Option<usize>,
    /// The truncation of a pair that is too long.
    pub truncation: Truncation,
    /// The fixed number of tokens of the first text, padding included; the second text follows: see
    /// [`EncoderInput::with_first_room`].
    pub first_room: Option<usize>,
    /// The numbers that it computes with.
    pub precision: Precision,
    /// Where it computes.
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer pair forms a separate batch.
    pub batch_tokens: usize,
}

/// How the states of a batch become logits.
enum Logits {
    /// The head of the model.
    Head(SequenceHead),
    /// A pooling and the layers after it, as modules of sentence-transformers.
    Modules(Box<Sentences>),
}

impl Logits {
    /// The logits (b, labels) of a batch.
    fn of(&self, body: &dyn Encoder, input: &Batch) -> Result<Tensor> {
        match self {
            Self::Head(head) => head.logits(body, input),
            Self::Modules(modules) => modules.encode(body, input, 0),
        }
    }
}

/// An encoder that reads two texts together and returns a logit for each label.
pub struct PairClassifier {
    folder: PathBuf,
    body: Box<dyn Encoder>,
    logits: Logits,
    labels: Vec<String>,
    input: EncoderInput,
    batch_tokens: usize,
}

fn as_texts<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Text<'a>> {
    pairs.iter().map(|&(first, second)| Text::Pair(first, second)).collect()
}

impl PairClassifier {
    /// Loads the model of a folder: of a model alone, or of a cross-encoder of sentence-transformers, whose modules may be the
    /// head.
    ///
    /// # Errors
    /// Those of [`Checkpoint`], of [`CrossEncoderFolder::open`] and of [`Sentences::open`], and [`Error::Architecture`] for a
    /// folder that holds no head for sequence classification.
    pub fn load(folder: &Path, options: &PairOptions) -> Result<Self> {
        let place = CrossEncoderFolder::open(folder)?;
        let checkpoint = &Checkpoint::open(&place.model)?;
        let model = checkpoint.encoder_on(options.device, options.precision)?;
        let mut labels = checkpoint.config().labels().to_vec();
        let logits = match model.head {
            _ if place.is_pooled => {
                // A packed encoder returns f32.
                let cpu = options.device == DeviceName::Cpu;
                let dtype = if cpu { DType::F32 } else { options.precision.dtype()? };
                let modules = Sentences::open_scorer(folder, dtype, &options.device.open()?)?;
                let width = model.body.width();
                modules.check_widths(width)?;
                let count = modules.width(width);
                if labels.len() != count {
                    labels = (0..count).map(|at| format!("LABEL_{at}")).collect();
                }
                Logits::Modules(Box::new(modules))
            }
            Head::Sequence(head) => Logits::Head(head),
            other => {
                return Err(Error::Architecture {
                    path: checkpoint.folder().join("config.json"),
                    expected: "a head for sequence classification",
                    found: other.name().to_owned(),
                });
            }
        };
        let mut input = EncoderInput::open(
            checkpoint,
            model.body.max_input_length(),
            options.max_tokens,
            options.truncation,
        )?;
        if let Some(room) = options.first_room {
            input = input.with_first_room(room, model.body.pad_token())?;
        }
        let folder = folder.to_owned();
        Ok(Self { folder, body: model.body, logits, labels, input, batch_tokens: options.batch_tokens })
    }

    /// The labels' names, in the order of the logits.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The most tokens of a pair, special ones included.
    #[must_use]
    pub fn max_length(&self) -> usize {
        self.input.max_length()
    }

    /// The logits of each pair, one for each label.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails; [`Error::Batch`] for a pair without a token; [`Error::NotFinite`].
    pub fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        self.text_logits(&as_texts(pairs))
    }

    /// As [`logits`](Self::logits), for pairs and single texts.
    ///
    /// # Errors
    /// As there.
    pub fn text_logits(&self, texts: &[Text<'_>]) -> Result<Vec<Vec<f32>>> {
        let found = self.texts_where_read(texts)?.into_iter().enumerate();
        let logits = |(at, row): (usize, Option<Vec<f32>>)| {
            row.ok_or_else(|| Error::Batch {
                expected: "a token in every pair of texts".into(),
                found: format!(
                    "none in pair {at}: both texts are empty, and the tokenizer adds no special tokens"
                ),
            })
        };
        found.map(logits).collect()
    }

    /// As [`logits`](Self::logits), but a pair without a token, of which there is nothing to read, has none. That is one of empty
    /// texts where the tokenizer adds no special tokens.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails, and [`Error::NotFinite`].
    pub fn logits_where_read(&self, pairs: &[(&str, &str)]) -> Result<Vec<Option<Vec<f32>>>> {
        self.texts_where_read(&as_texts(pairs))
    }

    fn texts_where_read(&self, texts: &[Text<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        let rows = self.input.rows(texts)?;
        let (places, read): (Vec<usize>, Vec<EncoderRow>) =
            rows.into_iter().enumerate().filter(|(_, row)| !row.ids.is_empty()).unzip();
        let lengths: Vec<usize> = read.iter().map(|row| row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let parts = each_batch(self.body.device(), &batches, |batch| self.batch(batch, &read))?;
        let mut logits = vec![None; texts.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, row) in batch.iter().zip(part) {
                logits[places[at]] = Some(row);
            }
        }
        Ok(logits)
    }

    fn batch(&self, batch: &[usize], rows: &[EncoderRow]) -> Result<Vec<Vec<f32>>> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
        let mut input = Batch::for_encoder(&rows, &*self.body)?;
        if self.input.has_first_room() {
            input = input.hiding(self.body.pad_token())?;
        }
        let logits = self.logits.of(&*self.body, &input)?;
        let logits: Vec<Vec<f32>> = logits.to_dtype(DType::F32)?.to_vec2()?;
        match logits.iter().flatten().all(|logit| logit.is_finite()) {
            true => Ok(logits),
            false => Err(Error::NotFinite { folder: self.folder.clone(), what: "logits" }),
        }
    }
}
