//! Which configs of encoders can be used.

use sporran_checkpoint::Result;

use super::{
    config::{BertConfig, BertTask, FamilySettings, LayerGroups, LayerSharing},
    family::BertFamily,
    mobile::MobileSizes,
};
use crate::architectures::wrong::wrong;

/// The most feed-forward parts of a layer of MobileBERT.
const MOST_PARTS: usize = 1000;

/// The most layers of a model whose layers share weights: their number is not bounded by that of the tensors.
const MOST_SHARED: usize = 1000;

impl BertConfig {
    /// Checks constraints beyond the types: sizes that must not be zero, heads that divide the width, and rates.
    pub(crate) fn check(&self) -> Result<()> {
        at_least_one(&[
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("intermediate_size", self.intermediate_size),
            ("embedding_size", self.embedding_width()),
            ("id2label", self.labels.len()),
        ])?;
        let heads = self.num_attention_heads;
        if heads == 0 || !self.hidden_size.is_multiple_of(heads) {
            let expected = format!("a divisor of hidden_size, {}", self.hidden_size);
            return Err(wrong("num_attention_heads", &expected, &heads.to_string()));
        }
        self.own.check(self)?;
        if self.max_input_length() == 0 {
            let expected = format!("more than {}", self.first_position());
            let found = self.max_position_embeddings.to_string();
            return Err(wrong("max_position_embeddings", &expected, &found));
        }
        for (field, rate) in [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("classifier_dropout", self.head_dropout),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "from 0 to below 1", &rate.to_string()));
            }
        }
        if self.family == BertFamily::Mpnet && self.pad_token_id != 1 {
            let expected = "1, from which MPNet counts positions";
            return Err(wrong("pad_token_id", expected, &self.pad_token_id.to_string()));
        }
        if self.task == BertTask::Reader && self.projection_dim != 0 {
            return Err(wrong("projection_dim", "0 for a reader", &self.projection_dim.to_string()));
        }
        if self.task == BertTask::Span && self.labels.len() != 2 {
            return Err(wrong("id2label", "2 labels, start and end", &self.labels.len().to_string()));
        }
        self.activation().map(|_| ())
    }
}

fn at_least_one(sizes: &[(&str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((field, _)) => Err(wrong(field, "at least 1", "0")),
        None => Ok(()),
    }
}

impl FamilySettings {
    fn check(&self, config: &BertConfig) -> Result<()> {
        match self {
            Self::None | Self::Tasks(_) => Ok(()),
            Self::Adapters(adapters) if adapters.inner(config.hidden_size) == 0 => {
                let expected = format!("1 to hidden_size, {}", config.hidden_size);
                Err(wrong("adapter_reduction_factor", &expected, &adapters.reduction.to_string()))
            }
            Self::Adapters(_) => Ok(()),
            Self::Blocks(blocks) => at_least_one(&[("block_size", blocks.size)]),
            Self::OutputEmbedding(width) => at_least_one(&[("output_embedding_size", *width)]),
            Self::Sharing(sharing) => sharing.check(config),
            Self::Windows(windows) => check_windows(windows, config),
            Self::Mobile(sizes) => sizes.check(config),
            Self::Convolution(sizes) => sizes.check(config),
            Self::Groups(groups) => groups.check(config),
            Self::Disentangled(settings) => settings.check(),
            Self::Rotary(_) => {
                let width = config.hidden_size / config.num_attention_heads;
                if width.is_multiple_of(2) {
                    return Ok(());
                }
                Err(wrong("num_attention_heads", "heads of an even width", &width.to_string()))
            }
        }
    }
}

impl LayerSharing {
    fn check(self, config: &BertConfig) -> Result<()> {
        let Self { groups, inner } = self;
        at_least_one(&[("num_hidden_groups", groups), ("inner_group_num", inner)])?;
        let layers = config.num_hidden_layers;
        if groups > layers {
            let expected = format!("at most num_hidden_layers, {layers}");
            return Err(wrong("num_hidden_groups", &expected, &groups.to_string()));
        }
        if layers.checked_mul(inner).is_none_or(|layers| layers > MOST_SHARED) {
            let expected = format!("at most {MOST_SHARED} layers that share weights");
            return Err(wrong("num_hidden_layers", &expected, &layers.to_string()));
        }
        Ok(())
    }
}

impl MobileSizes {
    fn check(self, config: &BertConfig) -> Result<()> {
        let Self { narrow, parts, .. } = self;
        let heads = config.num_attention_heads;
        if narrow == 0 || !narrow.is_multiple_of(heads) {
            let expected = format!("a multiple of num_attention_heads, {heads}");
            return Err(wrong("intra_bottleneck_size", &expected, &narrow.to_string()));
        }
        if !(1..=MOST_PARTS).contains(&parts) {
            let expected = format!("1 to {MOST_PARTS}");
            return Err(wrong("num_feedforward_networks", &expected, &parts.to_string()));
        }
        if config.task == BertTask::MaskedLm && config.embedding_width() >= config.hidden_size {
            let expected = format!("below hidden_size, {}", config.hidden_size);
            return Err(wrong("embedding_size", &expected, &config.embedding_width().to_string()));
        }
        Ok(())
    }
}

impl LayerGroups {
    fn check(self, config: &BertConfig) -> Result<()> {
        let Self { inputs: [query, key, value], output, feed_forward } = self;
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        for (field, groups, from, to) in [
            ("q_groups", query, width, width),
            ("k_groups", key, width, width),
            ("v_groups", value, width, width),
            ("post_attention_groups", output, width, width),
            ("intermediate_groups", feed_forward[0], width, inner),
            ("output_groups", feed_forward[1], inner, width),
        ] {
            if groups == 0 || !from.is_multiple_of(groups) || !to.is_multiple_of(groups) {
                let expected = format!("a divisor of {from} and {to}");
                return Err(wrong(field, &expected, &groups.to_string()));
            }
        }
        // The norms of layers have this one, whatever a config says.
        if config.layer_norm_eps != 1e-12 {
            return Err(wrong("layer_norm_eps", "1e-12", &config.layer_norm_eps.to_string()));
        }
        Ok(())
    }
}

/// Longformer's windows.
fn check_windows(windows: &[usize], config: &BertConfig) -> Result<()> {
    let layers = config.num_hidden_layers;
    if windows.len() != 1 && windows.len() != layers {
        let expected = format!("a number, or one for each of {layers} layers");
        return Err(wrong("attention_window", &expected, &windows.len().to_string()));
    }
    match windows.iter().find(|window| **window == 0 || !window.is_multiple_of(2)) {
        Some(odd) => Err(wrong("attention_window", "an even number above 0", &odd.to_string())),
        None => Ok(()),
    }
}
