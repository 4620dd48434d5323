//! GPT-2 (Radford et al. 2019): a decoder with learned positions and normalisation before each part; and the first GPT
//! (Radford et al. 2018), which normalises the states after each part.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::config::Gpt2Config;
use crate::{
    cache::{KeyValue, LayerCache},
    causal::{Attending, Biases, Body, Shape, attend, split_heads},
    decode::GenerationOptions,
    layers::{Activation, Embedding, LayerNorm, Linear},
    mode::Mode,
};

/// A GPT-2 model with a language modelling head.
#[derive(Debug, Clone)]
pub struct Gpt2 {
    tokens: Embedding,
    /// (positions, width)
    positions: Tensor,
    layers: Vec<Layer>,
    norm: Option<LayerNorm>,
    head: Linear,
    /// The dropout rate of the embeddings.
    dropout: f64,
    shape: Shape,
}

#[derive(Debug, Clone)]
struct Layer {
    attention_norm: LayerNorm,
    /// Queries, keys and values in one.
    projection: Linear,
    output: Linear,
    heads: usize,
    scale: f64,
    feed_forward_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    activation: Activation,
    /// The dropout rate of the attention weights.
    weights_dropout: f64,
    /// The dropout rate of both parts' results.
    dropout: f64,
    /// Whether norms are those of the states after each part.
    norms_sums: bool,
}

impl Gpt2 {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub fn new(config: &Gpt2Config, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let (width, std) = (config.n_embd, config.initializer_range);
        let body = vb.pp("transformer");
        let [tokens, positions] = config.tables();
        let tokens = Embedding::new(config.vocab_size, width, std, &body.pp(tokens))?;
        let init = Init::Randn { mean: 0.0, stdev: std };
        let positions =
            body.get_with_hints((config.n_positions, width), &format!("{positions}.weight"), init)?;
        let layer = |at: usize| Layer::new(config, at, &body.pp(format!("h.{at}")));
        let layers = (0..config.n_layer).map(layer).collect::<Result<_>>()?;
        let norm = || LayerNorm::new(width, config.layer_norm_epsilon, &body.pp("ln_f"));
        let norm = (!config.is_first).then(norm).transpose()?;
        let head = if config.tie_word_embeddings || !config.head.is_language_model() {
            Linear::shared(tokens.table().clone())
        } else {
            Linear::new(width, config.vocab_size, std, &vb.pp("lm_head"))?
        };
        let shape = Shape {
            tokens: config.special_tokens(),
            generation: GenerationOptions::default(),
            vocab_size: config.vocab_size,
            max_length: config.n_positions,
            has_learned_positions: true,
            layers: config.n_layer,
            window: None,
            alibi: None,
            is_bidirectional: false,
            is_recurrent: false,
            reads_again_after: None,
            dtype: vb.dtype(),
            device: vb.device().clone(),
        };
        Ok(Self { tokens, positions, layers, norm, head, dropout: config.embd_pdrop, shape })
    }

    /// The same model with the tokens and generation defaults of its folder.
    #[must_use]
    pub fn with_defaults(self, tokens: SpecialTokens, generation: GenerationOptions) -> Self {
        Self { shape: Shape { tokens, generation, ..self.shape }, ..self }
    }
}

impl Body for Gpt2 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn states(
        &self,
        ids: &Tensor,
        positions: &Tensor,
        biases: &Biases,
        kept: &mut [LayerCache],
        mode: &mut Mode,
        see: &mut dyn FnMut(&Tensor),
    ) -> Result<Tensor> {
        let (rows, length) = ids.dims2()?;
        let places = self.positions.index_select(&positions.flatten_all()?, 0)?;
        let xs = (self.tokens.forward(ids)? + places.reshape((rows, length, ()))?)?;
        let mut xs = mode.dropout(xs, self.dropout)?;
        for (layer, kept) in self.layers.iter().zip(kept) {
            see(&xs);
            xs = layer.forward(&xs, biases.all.as_ref(), kept, mode)?;
            if !mode.is_training() {
                // Over trainable weights the graph would keep the states of every layer.
                xs = xs.detach();
            }
        }
        match &self.norm {
            Some(norm) => norm.forward_fused(&xs, mode),
            None => Ok(xs),
        }
    }

    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.head.forward(states)
    }
}

impl Layer {
    fn new(config: &Gpt2Config, at: usize, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.n_embd, config.inner(), config.initializer_range);
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_epsilon, &vb.pp(name));
        // The initial output of a layer is smaller with more layers.
        let residual = std / (2.0 * config.n_layer as f64).sqrt();
        Ok(Self {
            attention_norm: norm("ln_1")?,
            projection: Linear::transposed(width, 3 * width, std, &vb.pp("attn.c_attn"))?,
            output: Linear::transposed(width, width, residual, &vb.pp("attn.c_proj"))?,
            heads: config.n_head,
            scale: config.scale(at),
            feed_forward_norm: norm("ln_2")?,
            inner: Linear::transposed(width, inner, std, &vb.pp("mlp.c_fc"))?,
            outer: Linear::transposed(inner, width, residual, &vb.pp("mlp.c_proj"))?,
            activation: config.activation()?,
            weights_dropout: config.attn_pdrop,
            dropout: config.resid_pdrop,
            norms_sums: config.is_first,
        })
    }

    /// What a part with this norm reads.
    fn before(&self, norm: &LayerNorm, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if self.norms_sums { Ok(xs.clone()) } else { norm.forward_fused(xs, mode) }
    }

    /// The sum of the states and what a part with this norm adds to them.
    fn after(&self, norm: &LayerNorm, xs: &Tensor, added: &Tensor, mode: &Mode) -> Result<Tensor> {
        let sum = (xs + added)?;
        if self.norms_sums { norm.forward_fused(&sum, mode) } else { Ok(sum) }
    }

    fn forward(
        &self,
        xs: &Tensor,
        bias: Option<&Tensor>,
        kept: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let all = self.projection.forward(&self.before(&self.attention_norm, xs, mode)?)?;
        let width = xs.dim(2)?;
        let part = |at: usize| split_heads(&all.narrow(2, at * width, width)?.contiguous()?, self.heads);
        let new = KeyValue { keys: part(1)?, values: part(2)? };
        let with =
            Attending { bias, scale: self.scale, cap: None, sinks: None, dropout: self.weights_dropout };
        let mixed = self.output.forward(&attend(&part(0)?, new, kept, &with, mode)?)?;
        let mixed = mode.dropout(mixed, self.dropout)?;
        let xs = self.after(&self.attention_norm, xs, &mixed, mode)?;
        let inner = self.inner.forward(&self.before(&self.feed_forward_norm, &xs, mode)?)?;
        let added = self.outer.forward(&self.activation.forward_fused(&inner, mode)?)?;
        let added = mode.dropout(added, self.dropout)?;
        self.after(&self.feed_forward_norm, &xs, &added, mode)
    }
}

impl Gpt2Config {
    /// The special tokens that the config names. The decoder has no separate start token, so the
    /// beginning-of-sequence token takes that role, or the end token if there is none.
    #[must_use]
    pub fn special_tokens(&self) -> SpecialTokens {
        let end = self.eos_token_id.first().copied().unwrap_or(0);
        SpecialTokens {
            pad: self.pad_token_id.unwrap_or(end),
            eos: self.eos_token_id.clone(),
            bos: self.bos_token_id,
            decoder_start: self.bos_token_id.unwrap_or(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use candle_nn::VarBuilder;

    use super::{Gpt2, Gpt2Config};
    use crate::{Batch, CausalCache, CausalLm};
    use sporran_checkpoint::{initialise, parameters};

    fn model() -> Gpt2 {
        let config = Gpt2Config {
            vocab_size: 30,
            n_positions: 12,
            n_embd: 16,
            n_layer: 2,
            n_head: 4,
            initializer_range: 0.4,
            ..Gpt2Config::default()
        };
        let parameters = parameters(|vb| Gpt2::new(&config, vb)).unwrap();
        let weights = initialise(&parameters, 5, DType::F32, &Device::Cpu).unwrap();
        Gpt2::new(&config, &VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu)).unwrap()
    }

    fn close(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    #[test]
    fn steps_with_a_cache_give_what_one_pass_gives() {
        let (model, ids) = (model(), [3u32, 9, 4, 17, 28, 1]);
        let whole = model.forward(&Batch::new(&[ids], 0, &Device::Cpu).unwrap()).unwrap();
        let whole: Vec<Vec<f32>> = whole.squeeze(0).unwrap().to_vec2().unwrap();
        let mut cache = CausalCache::new();
        assert!(close(&model.decode(&ids[..3], 1, &mut cache).unwrap(), &whole[2]));
        for at in 3..ids.len() {
            assert!(close(&model.decode(&ids[at..=at], 1, &mut cache).unwrap(), &whole[at]), "{at}");
        }
    }

    #[test]
    fn a_batch_gives_what_its_members_give_alone() {
        let model = model();
        let rows = [vec![3u32, 9, 4, 17], vec![5, 6], vec![8]];
        let batch = Batch::new(&rows, 0, &Device::Cpu).unwrap();
        let mut cache = CausalCache::new();
        let first = model.begin(&batch, &mut cache).unwrap();
        // Two beams for the first input, one each for the others, in another order.
        cache.select(&[2, 0, 0, 1]).unwrap();
        let second = model.decode(&[7, 11, 12, 13], 4, &mut cache).unwrap();
        for (at, (row, next)) in [(2, 7), (0, 11), (0, 12), (1, 13)].into_iter().enumerate() {
            let mut alone = CausalCache::new();
            let begun = model.decode(&rows[row], 1, &mut alone).unwrap();
            assert!(close(&begun, &first[row * 30..][..30]), "{row}");
            let stepped = model.decode(&[next], 1, &mut alone).unwrap();
            assert!(close(&stepped, &second[at * 30..][..30]), "{at}");
        }
    }

    #[test]
    fn misuse_of_a_cache_is_an_error() {
        let model = model();
        let mut cache = CausalCache::new();
        model.decode(&[1, 2], 2, &mut cache).unwrap();
        let error = model.decode(&[1, 2, 3], 3, &mut cache).unwrap_err().to_string();
        assert_eq!(error, "batch: expected tokens for 2 rows, found 3 rows");
        let batch = Batch::new(&[[1u32]], 0, &Device::Cpu).unwrap();
        assert!(model.begin(&batch, &mut cache).is_err());
        let error = model.decode(&[1; 13], 1, &mut CausalCache::new()).unwrap_err().to_string();
        assert_eq!(error, "batch: expected at most 12 sequence tokens, found 13");
    }
}
