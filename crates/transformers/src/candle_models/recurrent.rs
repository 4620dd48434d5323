//! The loaders of models that keep the state of a recurrence or of a convolution, besides keys and values or in their place.

use std::sync::Arc;

use candle_core::{Result as CandleResult, Tensor};
use candle_transformers::models::{mamba, mamba2, recurrent_gemma};
use serde_json::json;
use sporran_checkpoint::{Result, json::UNBOUNDED};

use super::{
    config::{MOST_POSITIONS, Settings},
    folders::{cloned, must_be},
    sequence::CandleModel,
    weights::Weights,
};

/// A model whose state is a value of its own, and that reads a token at a time.
struct Recurrent<M, S> {
    model: Arc<M>,
    /// Makes the state before the first token.
    begin: Arc<dyn Fn() -> CandleResult<S> + Send + Sync>,
    state: S,
    /// Reads the ids (1) of a token.
    step: fn(&M, &Tensor, &mut S) -> CandleResult<Tensor>,
}

impl<M: Send + Sync + 'static, S: Send + Sync + 'static> CandleModel for Recurrent<M, S> {
    fn fresh(&self) -> CandleResult<Box<dyn CandleModel>> {
        let (model, begin) = (self.model.clone(), self.begin.clone());
        Ok(Box::new(Self { model, state: begin()?, begin, step: self.step }))
    }

    fn read(&mut self, ids: &Tensor, _: usize) -> CandleResult<Tensor> {
        let ids = ids.flatten_all()?;
        let mut logits = (self.step)(&self.model, &ids.narrow(0, 0, 1)?, &mut self.state)?;
        for at in 1..ids.dim(0)? {
            logits = (self.step)(&self.model, &ids.narrow(0, at, 1)?, &mut self.state)?;
        }
        Ok(logits)
    }
}

/// Checks what both Mambas of candle have fixed, and sets what they call otherwise.
fn prepare_mamba(settings: &mut Settings) -> Result<()> {
    must_be(
        settings,
        &[
            ("expand", json!(2)),
            ("conv_kernel", json!(4)),
            ("hidden_act", json!("silu")),
            ("layer_norm_epsilon", json!(1e-5)),
            ("use_bias", json!(false)),
            ("use_conv_bias", json!(true)),
        ],
    )?;
    // It has no positions, and so no bound of its own.
    settings.set("max_position_embeddings", MOST_POSITIONS);
    settings.set("pad_vocab_size_multiple", 1);
    Ok(())
}

pub(crate) fn load_mamba(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    prepare_mamba(settings)?;
    let width = settings.needed("hidden_size")?;
    if settings.get("time_step_rank") != Some(&json!("auto")) {
        must_be(settings, &[("time_step_rank", json!(width.div_ceil(16)))])?;
    }
    must_be(
        settings,
        &[
            ("state_size", json!(16)),
            ("intermediate_size", json!(2 * width)),
            ("tie_word_embeddings", json!(true)),
        ],
    )?;
    settings.set("d_model", width);
    settings.set("n_layer", settings.needed("num_hidden_layers")?);
    let config: mamba::Config = settings.typed()?;
    let vb = weights.vb.clone().rename_f(|name| match name {
        "embedding.weight" => "backbone.embeddings.weight".into(),
        name => format!("backbone.{name}"),
    });
    let (dtype, device) = (vb.dtype(), vb.device().clone());
    let model = mamba::Model::new(&config, vb).map_err(|error| weights.error(error))?;
    let begin = move || mamba::State::new(1, &config, dtype, &device);
    let state = begin()?;
    Ok(Box::new(Recurrent {
        model: Arc::new(model),
        begin: Arc::new(begin),
        state,
        step: mamba::Model::forward,
    }))
}

/// Candle's model ties the head, and normalises the gated states of all groups together.
pub(crate) fn load_mamba2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    prepare_mamba(settings)?;
    let (width, head) = (settings.needed("hidden_size")?, settings.needed("head_dim")?);
    if head == 0 || !(2 * width).is_multiple_of(head) {
        let expected = format!("a divisor of twice hidden_size, {}", 2 * width);
        return Err(settings.wrong("head_dim", &expected, &head.into()));
    }
    settings.must_say("num_heads", &json!(2 * width / head))?;
    settings.must_say("n_groups", &json!(1))?;
    settings.must_say("tie_word_embeddings", &json!(true))?;
    settings.needed("state_size")?;
    // Steps are not bounded.
    let unbounded = json!([0.0, UNBOUNDED]);
    must_be(settings, &[("time_step_limit", unbounded)])?;
    let config: mamba2::Config = settings.typed()?;
    let vb = weights.vb.pp("backbone");
    let (dtype, device) = (vb.dtype(), vb.device().clone());
    let model = mamba2::Model::new(&config, vb).map_err(|error| weights.error(error))?;
    let begin = move || mamba2::State::new(1, &config, dtype, &device);
    let state = begin()?;
    Ok(Box::new(Recurrent {
        model: Arc::new(model),
        begin: Arc::new(begin),
        state,
        step: mamba2::Model::forward,
    }))
}

/// `transformers` rounds the factor of embeddings, the root of the width, to bf16, and candle does not.
pub(crate) fn load_recurrent_gemma(
    settings: &mut Settings,
    weights: &Weights,
) -> Result<Box<dyn CandleModel>> {
    let (width, heads) = (settings.needed("hidden_size")?, settings.needed("num_attention_heads")?);
    let root = (width as f32).sqrt();
    if root.to_bits() & 0xffff != 0 {
        let expected = "a number whose root bf16 holds, with the engine `candle`";
        return Err(settings.wrong("hidden_size", expected, &width.into()));
    }
    must_be(
        settings,
        &[
            ("head_dim", json!(width / heads)),
            ("lru_width", json!(width)),
            ("partial_rotary_factor", json!(0.5)),
            ("tie_word_embeddings", json!(true)),
        ],
    )?;
    settings.set("head_dim", width / heads);
    for (field, default) in [
        ("num_key_value_heads", json!(heads)),
        ("attention_window_size", json!(2048)),
        ("conv1d_width", json!(4)),
        ("logits_soft_cap", json!(30.0)),
        ("hidden_activation", json!("gelu_pytorch_tanh")),
        ("partial_rotary_factor", json!(0.5)),
        ("rms_norm_eps", json!(1e-6)),
        ("rope_theta", json!(10_000.0)),
        ("attention_bias", json!(false)),
    ] {
        settings.set_missing(field, default);
    }
    if let Some(types) = settings.get("_block_types").cloned() {
        settings.remove("_block_types");
        settings.set_missing("block_types", types);
    }
    settings.set_missing("block_types", json!(["recurrent", "recurrent", "attention"]));
    if settings.get("block_types") == Some(&json!([])) {
        return Err(settings.wrong("block_types", "at least one type", &json!([])));
    }
    // It attends to everything before, so that a sequence ends at the window.
    let window = settings.needed("attention_window_size")?;
    if window == 0 {
        return Err(settings.wrong("attention_window_size", "at least 1", &0.into()));
    }
    settings.set("max_position_embeddings", window);
    settings.check_angles(width / heads)?;
    settings.set("max_seq_len", window);
    cloned(
        settings,
        weights,
        |config, vb| recurrent_gemma::Model::new(config, vb.pp("model")),
        recurrent_gemma::Model::forward,
    )
}
