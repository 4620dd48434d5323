//! The heads over the hidden states of an encoder: classification, spans, the vocabulary, and DPR's vectors.

use candle_core::{D, IndexOp, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::{BertConfig, BertTask, FamilySettings},
    family::BertFamily,
};
use crate::{
    batch::Batch,
    encoder::Encoder,
    layers::{Activation, LayerNorm, Linear},
    mode::Mode,
};

/// The head of an encoder, by task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Head {
    /// There is none.
    States,
    /// Labels of whole inputs.
    Sequence(SequenceHead),
    /// Labels of tokens.
    Token(TokenHead),
    /// Where an answer starts and ends.
    Span(SpanHead),
    /// The vocabulary.
    MaskedLm(MaskedLmHead),
    /// DPR's vector of a question or a passage.
    Vector(VectorHead),
    /// DPR's reader.
    Reader(ReaderHead),
}

impl Head {
    /// Takes the head's weights from `vb`; `table` gives the body's embedding table (vocabulary, d).
    pub(crate) fn new(
        config: &BertConfig,
        table: impl FnOnce() -> Result<Tensor>,
        vb: &VarBuilder,
    ) -> Result<Self> {
        Ok(match config.task {
            BertTask::States => Self::States,
            BertTask::SequenceClassification => Self::Sequence(SequenceHead::new(config, vb)?),
            BertTask::TokenClassification => Self::Token(TokenHead::new(config, vb)?),
            BertTask::Span => Self::Span(SpanHead {
                output: linear(config, config.hidden_size, 2, &vb.pp("qa_outputs"))?,
                dropout: if config.family == BertFamily::DistilBert { config.head_dropout } else { 0.0 },
                transform: None,
            }),
            BertTask::MaskedLm => Self::MaskedLm(MaskedLmHead::new(config, table()?, vb)?),
            BertTask::Question => Self::Vector(VectorHead::new(config, &vb.pp("question_encoder"))?),
            BertTask::Context => Self::Vector(VectorHead::new(config, &vb.pp("ctx_encoder"))?),
            BertTask::Reader => Self::Reader(ReaderHead {
                span: linear(config, config.hidden_size, 2, &vb.pp("span_predictor.qa_outputs"))?,
                relevance: linear(config, config.hidden_size, 1, &vb.pp("span_predictor.qa_classifier"))?,
            }),
        })
    }

    /// The name of the head in an error.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::States => "no head",
            Self::Sequence(_) => "a head for sequence classification",
            Self::Token(_) => "a head for token classification",
            Self::Span(_) => "a head for spans",
            Self::MaskedLm(_) => "a head for masked tokens",
            Self::Vector(_) => "DPR's head of vectors",
            Self::Reader(_) => "DPR's reader",
        }
    }
}

/// An inner layer before the classifying one.
#[derive(Debug, Clone)]
pub(crate) struct Transform {
    pub(crate) inner: Linear,
    pub(crate) activation: Activation,
    /// In ModernBERT.
    pub(crate) norm: Option<LayerNorm>,
}

impl Transform {
    fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let xs = self.activation.forward(&self.inner.forward(xs)?)?;
        match &self.norm {
            Some(norm) => norm.forward(&xs, mode),
            None => Ok(xs),
        }
    }
}

/// The states that a head of labels for whole inputs reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelledState {
    /// The first token's.
    First,
    /// The mean of all, in some ModernBERTs and EuroBERTs.
    Mean,
    /// All, whose mean is taken after the inner layer, in other EuroBERTs.
    MeanOfInner,
    /// That of the last token which is not this padding token, in decoder-only models. Where all are, it is the first.
    Last(Option<u32>),
}

/// Labels for whole inputs, read off one state through one inner layer: the pooler of BERT, ALBERT and DeBERTa, `dense` of
/// RoBERTa, MPNet, ELECTRA and ModernBERT, DistilBERT's `pre_classifier`. Decoder-only models have no inner layer.
#[derive(Debug, Clone)]
pub struct SequenceHead {
    pub(crate) transform: Option<Transform>,
    pub(crate) output: Linear,
    pub(crate) dropout_before: f64,
    pub(crate) dropout: f64,
    pub(crate) labels: usize,
    pub(crate) reads: LabelledState,
}

impl SequenceHead {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (inner, activation, output, dropout_before) = match config.family {
            BertFamily::Bert
            | BertFamily::Dpr
            | BertFamily::Ernie
            | BertFamily::MegatronBert
            | BertFamily::RemBert
            | BertFamily::NomicBert
            | BertFamily::Gte
            | BertFamily::New
            | BertFamily::SqueezeBert
            | BertFamily::MobileBert
            | BertFamily::Fnet
            | BertFamily::Luke
            | BertFamily::JinaBert => {
                let pooler = vb.pp(config.prefix()).pp("pooler.dense");
                (pooler, Activation::Tanh, vb.pp("classifier"), 0.0)
            }
            BertFamily::Roberta
            | BertFamily::XlmRoberta
            | BertFamily::Camembert
            | BertFamily::Data2VecText
            | BertFamily::RobertaPreLayerNorm
            | BertFamily::XlmRobertaXl
            | BertFamily::JinaEmbeddingsV3
            | BertFamily::JinaXlmRoberta
            | BertFamily::Longformer
            | BertFamily::IBert
            | BertFamily::Xmod
            | BertFamily::Mpnet => {
                let head = vb.pp("classifier");
                (head.pp("dense"), Activation::Tanh, head.pp("out_proj"), config.head_dropout)
            }
            BertFamily::Xlnet => {
                (vb.pp("sequence_summary.summary"), Activation::Tanh, vb.pp("logits_proj"), 0.0)
            }
            BertFamily::RoFormer | BertFamily::BigBird | BertFamily::ConvBert | BertFamily::Nystromformer => {
                let head = vb.pp("classifier");
                (head.pp("dense"), config.activation()?, head.pp("out_proj"), config.head_dropout)
            }
            BertFamily::Electra => {
                let head = vb.pp("classifier");
                (head.pp("dense"), Activation::Gelu, head.pp("out_proj"), config.head_dropout)
            }
            BertFamily::Albert => (vb.pp("albert.pooler"), Activation::Tanh, vb.pp("classifier"), 0.0),
            BertFamily::Deberta | BertFamily::FirstDeberta => {
                let (activation, dropout) = match config.disentangled() {
                    Some(settings) => (settings.pooler_activation()?, settings.pooler_dropout),
                    None => (Activation::Gelu, 0.0),
                };
                (vb.pp("pooler.dense"), activation, vb.pp("classifier"), dropout)
            }
            BertFamily::DistilBert => (vb.pp("pre_classifier"), Activation::Relu, vb.pp("classifier"), 0.0),
        };
        let (width, labels) = (config.hidden_size, config.labels.len());
        Ok(Self {
            transform: match config.mobile() {
                Some(sizes) if !sizes.has_pooler => None,
                _ => Some(Transform { inner: linear(config, width, width, &inner)?, activation, norm: None }),
            },
            output: linear(config, width, labels, &output)?,
            dropout_before,
            dropout: config.head_dropout,
            labels,
            reads: match config.family {
                BertFamily::Xlnet => LabelledState::Last(None),
                _ => LabelledState::First,
            },
        })
    }

    /// One layer without a bias over the state of the last token that is not `pad`; a fresh one has the deviation `std`.
    pub(crate) fn of_last_token(
        width: usize,
        labels: usize,
        (pad, std): (Option<u32>, f64),
        vb: &VarBuilder,
    ) -> Result<Self> {
        Ok(Self {
            transform: None,
            output: Linear::new(width, labels, std, vb)?,
            dropout_before: 0.0,
            dropout: 0.0,
            labels,
            reads: LabelledState::Last(pad),
        })
    }

    /// States (b, s, d) to logits (b, labels): of the first state of each row, which is [pooled](Self::pool) where the head
    /// reads more.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let mut xs = mode.dropout(first(states)?, self.dropout_before)?;
        if self.reads != LabelledState::MeanOfInner {
            xs = transformed(self.transform.as_ref(), &xs, mode)?;
        }
        self.output.forward(&mode.dropout(xs, self.dropout)?)
    }

    /// The states (b, 1, d) that the head reads, of all states (b, s, d) of `input`. A head that takes a mean after its inner
    /// layer has them from that layer.
    ///
    /// # Errors
    /// A tensor error.
    pub fn pool(&self, states: &Tensor, input: &Batch, mode: &Mode) -> Result<Tensor> {
        match self.reads {
            LabelledState::First => Ok(states.narrow(1, 0, 1)?),
            LabelledState::Mean => mean(states, input),
            LabelledState::MeanOfInner => mean(&transformed(self.transform.as_ref(), states, mode)?, input),
            LabelledState::Last(pad) => {
                let rows: Result<Vec<Tensor>> = last_tokens(input, pad)?
                    .into_iter()
                    .map(|(row, at)| Ok(states.i((row..=row, at..=at))?))
                    .collect();
                Ok(Tensor::cat(&rows?, 0)?)
            }
        }
    }

    /// The logits (b, labels) of inputs, for inference.
    ///
    /// # Errors
    /// Those of the body, and a tensor error.
    pub fn logits(&self, body: &dyn Encoder, input: &Batch) -> Result<Tensor> {
        let states = match self.reads {
            LabelledState::First => body.first_states(input)?,
            LabelledState::Mean | LabelledState::MeanOfInner => {
                self.pool(&body.states(input)?, input, &Mode::Inference)?
            }
            LabelledState::Last(pad) => body.states_at(input, &last_tokens(input, pad)?)?.unsqueeze(1)?,
        };
        self.forward(&states, &mut Mode::Inference)
    }

    /// The number of labels.
    #[must_use]
    pub fn labels(&self) -> usize {
        self.labels
    }
}

/// The mean (b, 1, d) of the states (b, s, d) of each row of `input`, without padding.
fn mean(states: &Tensor, input: &Batch) -> Result<Tensor> {
    let mask = input.mask.unsqueeze(2)?.to_dtype(states.dtype())?;
    Ok(states.broadcast_mul(&mask)?.sum_keepdim(1)?.broadcast_div(&mask.sum_keepdim(1)?)?)
}

/// The last token of each input that is not `pad`, as row and position; the first of an input without one.
fn last_tokens(input: &Batch, pad: Option<u32>) -> Result<Vec<(usize, usize)>> {
    let (ids, mask) = (input.ids.to_vec2::<u32>()?, input.mask.to_vec2::<f32>()?);
    let place = |(row, (ids, mask)): (usize, (&Vec<u32>, &Vec<f32>))| {
        let first = mask.iter().position(|seen| *seen != 0.0).unwrap_or(0);
        let last = (0..ids.len()).rev().find(|at| mask[*at] != 0.0 && Some(ids[*at]) != pad);
        (row, last.unwrap_or(first))
    };
    Ok(ids.iter().zip(&mask).enumerate().map(place).collect())
}

/// Labels for every token.
#[derive(Debug, Clone)]
pub struct TokenHead {
    pub(crate) output: Linear,
    pub(crate) dropout: f64,
    pub(crate) transform: Option<Transform>,
}

impl TokenHead {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let output = linear(config, config.hidden_size, config.labels.len(), &vb.pp("classifier"))?;
        Ok(Self { output, dropout: config.head_dropout, transform: None })
    }

    /// States (b, s, d) to logits (b, s, labels).
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let states = transformed(self.transform.as_ref(), states, mode)?;
        self.output.forward(&mode.dropout(states, self.dropout)?)
    }
}

/// Logits of where an answer starts and ends, each (b, s). Padding and the other text have logits as well; a caller
/// looks at the tokens that may be an answer.
#[derive(Debug, Clone)]
pub struct SpanLogits {
    /// Of the first token.
    pub start: Tensor,
    /// Of the last token.
    pub end: Tensor,
}

impl SpanLogits {
    /// From (b, s, 2).
    fn of(logits: &Tensor) -> Result<Self> {
        Ok(Self { start: logits.i((.., .., 0))?.contiguous()?, end: logits.i((.., .., 1))?.contiguous()? })
    }
}

/// Where an answer starts and ends.
#[derive(Debug, Clone)]
pub struct SpanHead {
    pub(crate) output: Linear,
    pub(crate) dropout: f64,
    pub(crate) transform: Option<Transform>,
}

impl SpanHead {
    /// States (b, s, d) to logits.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor, mode: &mut Mode) -> Result<SpanLogits> {
        let states = transformed(self.transform.as_ref(), states, mode)?;
        SpanLogits::of(&self.output.forward(&mode.dropout(states, self.dropout)?)?)
    }
}

/// The outputs of DPR's reader for a batch of passages.
#[derive(Debug, Clone)]
pub struct ReaderLogits {
    /// The answer's place in each passage.
    pub span: SpanLogits,
    /// How relevant each passage is compared with the others of its question, (b).
    pub relevance: Tensor,
}

/// The reader of DPR, over inputs of question, title and text.
#[derive(Debug, Clone)]
pub struct ReaderHead {
    span: Linear,
    relevance: Linear,
}

impl ReaderHead {
    /// States (b, s, d) to logits.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor) -> Result<ReaderLogits> {
        Ok(ReaderLogits {
            span: SpanLogits::of(&self.span.forward(states)?)?,
            relevance: self.relevance.forward(&first(states)?)?.squeeze(D::Minus1)?,
        })
    }
}

/// DPR's vectors: the first token's state, projected where the config has a width for it.
#[derive(Debug, Clone)]
pub struct VectorHead {
    projection: Option<Linear>,
    width: usize,
}

impl VectorHead {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (inputs, width) = (config.hidden_size, config.projection_dim);
        if width == 0 {
            return Ok(Self { projection: None, width: inputs });
        }
        Ok(Self { projection: Some(linear(config, inputs, width, &vb.pp("encode_proj"))?), width })
    }

    /// States (b, s, d) to vectors (b, width).
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor) -> Result<Tensor> {
        let first = first(states)?;
        match &self.projection {
            Some(projection) => projection.forward(&first),
            None => Ok(first),
        }
    }

    /// The width of the vectors.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }
}

/// Logits of the vocabulary for every token: an inner layer, normalised, and the embedding table with a bias.
#[derive(Debug, Clone)]
pub struct MaskedLmHead {
    pub(crate) inner: Linear,
    pub(crate) activation: Activation,
    pub(crate) norm: LayerNorm,
    pub(crate) output: Linear,
    /// (vocabulary)
    pub(crate) bias: Option<Tensor>,
}

impl MaskedLmHead {
    fn new(config: &BertConfig, table: Tensor, vb: &VarBuilder) -> Result<Self> {
        // The inner layer, the normalisation, the output where it is not the table, and the owner of the bias.
        let (inner, norm, output, bias) = match config.family {
            BertFamily::Bert
            | BertFamily::Dpr
            | BertFamily::Deberta
            | BertFamily::FirstDeberta
            | BertFamily::BigBird
            | BertFamily::Ernie
            | BertFamily::RoFormer
            | BertFamily::JinaBert
            | BertFamily::SqueezeBert
            | BertFamily::MobileBert
            | BertFamily::Xlnet
            | BertFamily::Fnet
            | BertFamily::Nystromformer
            | BertFamily::MegatronBert => {
                let head = vb.pp("cls.predictions");
                (head.pp("transform.dense"), head.pp("transform.LayerNorm"), head.pp("decoder"), head)
            }
            BertFamily::NomicBert => {
                let head = vb.pp("cls.predictions");
                (head.pp("transform.dense"), head.pp("transform.layer_norm"), head.pp("decoder"), head)
            }
            BertFamily::Gte | BertFamily::New => {
                let head = vb.pp("lm_head");
                let output = head.pp("decoder");
                (head.pp("dense"), head.pp("norm"), output.clone(), output)
            }
            BertFamily::RemBert => {
                let head = vb.pp("cls.predictions");
                let output = head.pp("decoder");
                (head.pp("dense"), head.pp("LayerNorm"), output.clone(), output)
            }
            BertFamily::Roberta
            | BertFamily::XlmRoberta
            | BertFamily::Camembert
            | BertFamily::Data2VecText
            | BertFamily::RobertaPreLayerNorm
            | BertFamily::XlmRobertaXl
            | BertFamily::JinaEmbeddingsV3
            | BertFamily::JinaXlmRoberta
            | BertFamily::Longformer
            | BertFamily::IBert
            | BertFamily::Luke
            | BertFamily::Xmod
            | BertFamily::Mpnet => {
                let head = vb.pp("lm_head");
                (head.pp("dense"), head.pp("layer_norm"), head.pp("decoder"), head)
            }
            BertFamily::Electra | BertFamily::ConvBert => {
                let (head, output) = (vb.pp("generator_predictions"), vb.pp("generator_lm_head"));
                (head.pp("dense"), head.pp("LayerNorm"), output.clone(), output)
            }
            BertFamily::Albert => {
                let head = vb.pp("predictions");
                (head.pp("dense"), head.pp("LayerNorm"), head.pp("decoder"), head)
            }
            BertFamily::DistilBert => {
                let output = vb.pp("vocab_projector");
                (vb.pp("vocab_transform"), vb.pp("vocab_layer_norm"), output.clone(), output)
            }
        };
        let vocabulary = config.vocab_size;
        let width = match config.mobile() {
            Some(_) => config.hidden_size,
            None => match config.own {
                FamilySettings::OutputEmbedding(width) => width,
                _ => config.embedding_width(),
            },
        };
        // MobileBERT's table is narrower than the states: another tensor has the rest of it.
        let table = match config.mobile() {
            Some(_) => {
                let rest = config.hidden_size - config.embedding_width();
                let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
                let rest =
                    vb.pp("cls.predictions.dense").get_with_hints((rest, vocabulary), "weight", init)?;
                Tensor::cat(&[&table, &rest.t()?], 1)?.contiguous()?
            }
            None => table,
        };
        Ok(Self {
            inner: linear(config, config.hidden_size, width, &inner)?,
            // The heads of RoBERTa, GTE and ELECTRA have this one for every config.
            activation: match config.family {
                BertFamily::Electra
                | BertFamily::ConvBert
                | BertFamily::Gte
                | BertFamily::JinaEmbeddingsV3 => Activation::Gelu,
                family if family.counts_from_padding() => Activation::Gelu,
                _ => config.activation()?,
            },
            norm: LayerNorm::new(width, config.layer_norm_eps, &norm)?,
            output: if config.tied() {
                Linear::shared(table)
            } else {
                Linear::new(width, vocabulary, config.initializer_range, &output)?
            },
            bias: Some(bias.get_with_hints(vocabulary, "bias", Init::Const(0.0))?),
        })
    }

    /// States (b, s, d) to logits (b, s, vocabulary).
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, states: &Tensor, mode: &Mode) -> Result<Tensor> {
        let xs = self.activation.forward(&self.inner.forward(states)?)?;
        let xs = self.norm.forward(&xs, mode)?;
        let logits = self.output.forward(&xs)?;
        Ok(match &self.bias {
            Some(bias) => logits.broadcast_add(bias)?,
            None => logits,
        })
    }
}

/// The states through the inner layer, where there is one.
fn transformed(transform: Option<&Transform>, states: &Tensor, mode: &Mode) -> Result<Tensor> {
    transform.map_or_else(|| Ok(states.clone()), |transform| transform.forward(states, mode))
}

/// The states of the first tokens: (b, s, d) to (b, d).
fn first(states: &Tensor) -> Result<Tensor> {
    Ok(states.i((.., 0, ..))?.contiguous()?)
}

fn linear(config: &BertConfig, inputs: usize, outputs: usize, vb: &VarBuilder) -> Result<Linear> {
    Linear::with_bias(inputs, outputs, config.initializer_range, vb)
}
