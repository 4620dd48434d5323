//! The heads of ModernBERT, which share an inner layer with a normalisation.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{config::ModernBertConfig, model::norm};
use crate::{
    architectures::bert::{
        BertTask, Head, LabelledState, MaskedLmHead, SequenceHead, SpanHead, TokenHead, Transform,
    },
    layers::Linear,
};

/// Takes the weights of a model's head from `vb`; `table` gives the body's embedding table (vocabulary, d).
pub(crate) fn head(
    config: &ModernBertConfig,
    table: impl FnOnce() -> Result<Tensor>,
    vb: &VarBuilder,
) -> Result<Head> {
    if config.task == BertTask::States {
        return Ok(Head::States);
    }
    let (width, std) = (config.hidden_size, config.output_deviation());
    let dense = vb.pp("head.dense");
    let inner = if config.classifier_bias {
        Linear::with_bias(width, width, std, &dense)?
    } else {
        Linear::new(width, width, std, &dense)?
    };
    let activation = config.head_activation()?;
    let norm = norm(config, &vb.pp("head.norm"))?;
    if config.task == BertTask::MaskedLm {
        let decoder = vb.pp("decoder");
        let output = if config.tied() {
            Linear::shared(table()?)
        } else {
            Linear::new(width, config.vocab_size, std, &decoder)?
        };
        let bias = || decoder.get_with_hints(config.vocab_size, "bias", Init::Const(0.0));
        let bias = config.decoder_bias.then(bias).transpose()?;
        return Ok(Head::MaskedLm(MaskedLmHead { inner, activation, norm, output, bias }));
    }
    let (labels, dropout) = (config.labels.len(), config.classifier_dropout);
    let output = Linear::with_bias(width, labels, (width as f64).powf(-0.5), &vb.pp("classifier"))?;
    let transform = Transform { inner, activation, norm: Some(norm) };
    Ok(match config.task {
        BertTask::TokenClassification => {
            Head::Token(TokenHead { output, dropout, transform: Some(transform) })
        }
        BertTask::Span => Head::Span(SpanHead { output, dropout, transform: Some(transform) }),
        _ => Head::Sequence(SequenceHead {
            transform: Some(transform),
            output,
            dropout_before: 0.0,
            dropout,
            labels,
            reads: if config.pools_mean { LabelledState::Mean } else { LabelledState::First },
        }),
    })
}
