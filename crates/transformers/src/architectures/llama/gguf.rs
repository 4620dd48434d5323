//! GGUF files, llama.cpp's format: config, tokenizer and weights in one.
//!
//! The weights are mostly quantised. On a CPU they stay so: products decode them, and embeddings are decoded when they are
//! looked up. For other devices and for int8 they are made into the numbers that they stand for when a model is built. The
//! model is the same as from safetensors.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, GgufFields, GgufFile, Parameter, Result, Tokenizer};

use super::{
    config::LlamaConfig,
    kind::LlamaKind,
    model::Llama,
    norms::NormKind,
    rope::RopeParameters,
};
use crate::{
    causal::CausalLm,
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    packed::{PackedLlama, StoredWeights, coding_of},
};

/// An opened GGUF file of a model of LLaMA's shape.
#[derive(Debug)]
pub struct Gguf {
    config: LlamaConfig,
    file: GgufFile,
}

impl Gguf {
    /// Reads what the file says of itself, and checks that every tensor of the model is there with its shape.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Gguf`] where the file is not GGUF, [`Error::Config`] where it holds another kind of
    /// model or lacks a field, [`Error::MissingTensor`] and [`Error::TensorShape`].
    ///
    /// [`Error::Io`]: sporran_checkpoint::Error::Io
    /// [`Error::Gguf`]: sporran_checkpoint::Error::Gguf
    /// [`Error::Config`]: sporran_checkpoint::Error::Config
    /// [`Error::MissingTensor`]: sporran_checkpoint::Error::MissingTensor
    /// [`Error::TensorShape`]: sporran_checkpoint::Error::TensorShape
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let config = config(&file)?;
        let checked = config.check_sizes().and_then(|()| config.validate());
        let checked = checked.and_then(|()| config.check_layers(file.tensor_count()));
        checked.map_err(|error| error.within(path))?;
        for parameter in config.parameters()? {
            file.check_tensor(&stored(config.kind, &parameter.name), parameter)?;
        }
        Ok(Self { config, file })
    }

    /// The model's config.
    #[must_use]
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The model for inference, with its weights made into `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Gguf`](sporran_checkpoint::Error::Gguf) where a tensor cannot be read, or a tensor error where memory ends.
    pub fn causal_model(&self, dtype: DType, device: &Device) -> Result<Box<dyn CausalLm>> {
        let load = |name: &str| Ok((name.to_owned(), self.tensor(name, dtype, device)?));
        let parameters = self.config.parameters()?;
        let tensors = parameters.iter().map(|parameter| load(&parameter.name)).collect::<Result<_>>()?;
        let vb = VarBuilder::from_tensors(tensors, dtype, device);
        let model = Llama::new(&self.config, &vb)?;
        Ok(Box::new(model.with_defaults(self.config.special_tokens(), GenerationOptions::default())))
    }

    /// The model for inference on a device: packed on a CPU, over candle on a GPU.
    ///
    /// # Errors
    /// As for [`causal_model`](Self::causal_model), and those of [`DeviceName::check`] and [`DeviceName::open`].
    pub fn causal(&self, device: DeviceName, precision: Precision) -> Result<Box<dyn CausalLm>> {
        device.check(precision)?;
        if device != DeviceName::Cpu {
            return self.causal_model(precision.dtype()?, &device.open()?);
        }
        let mut read = |name: &str| self.weights(name);
        let (tokens, generation) = (self.config.special_tokens(), GenerationOptions::default());
        let model = PackedLlama::llama(&self.config, tokens, generation, precision.packed()?, &mut read)?;
        Ok(Box::new(model))
    }

    /// A tensor in the coding of the file, if it is one that products take.
    fn weights(&self, name: &str) -> Result<StoredWeights<'_>> {
        let is_product = name.ends_with(".weight") && !name.ends_with("norm.weight");
        let raw = if is_product { self.file.raw_tensor(&stored(self.config.kind, name))? } else { None };
        if let Some((kind, bytes)) = raw
            && let Some(coding) = coding_of(kind)
        {
            let bytes = match self.turned_heads(name) {
                Some(heads) => apart(&bytes, heads, self.config.head_width()).into(),
                None => bytes,
            };
            return Ok(StoredWeights::new(coding, bytes));
        }
        let tensor = self.tensor(name, DType::F32, &Device::Cpu)?;
        Ok(StoredWeights::of_values(&tensor.flatten_all()?.to_vec1::<f32>()?))
    }

    /// The number of heads of a tensor whose rows of pairs that are turned together lie side by side in the file.
    fn turned_heads(&self, name: &str) -> Option<usize> {
        let heads = match name.rsplit('.').nth(1) {
            Some("q_proj") => self.config.num_attention_heads,
            Some("k_proj") => self.config.groups(),
            _ => return None,
        };
        has_adjacent_pairs(self.config.kind).then_some(heads)
    }

    fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.file.tensor(&stored(self.config.kind, name), device)?;
        if name.ends_with("norm.weight") && self.config.kind.norm_kind() == NormKind::RootAroundOne {
            // In these files the weights of norms are whole.
            return Ok((tensor - 1.0)?.to_dtype(dtype)?);
        }
        let Some(heads) = self.turned_heads(name) else { return Ok(tensor.to_dtype(dtype)?) };
        // In these files the two of a pair that is turned together lie side by side, here half a head apart.
        let shape = tensor.shape().clone();
        let pairs = tensor.reshape((heads, self.config.head_width() / 2, 2, ()))?;
        Ok(pairs.transpose(1, 2)?.contiguous()?.reshape(shape)?.to_dtype(dtype)?)
    }

    /// The tokenizer that the file holds.
    ///
    /// # Errors
    /// As for [`GgufFile::tokenizer`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.file.tokenizer()
    }
}

/// The rows of `heads` heads, each of `width` rows, in which the two of a pair lie half a head apart instead of side by
/// side.
fn apart(bytes: &[u8], heads: usize, width: usize) -> Vec<u8> {
    let size = bytes.len() / (heads * width);
    let places =
        |head: usize| (0..width).map(move |row| head * width + row % (width / 2) * 2 + row / (width / 2));
    (0..heads).flat_map(places).flat_map(|row| &bytes[row * size..][..size]).copied().collect()
}

/// Whether the two values of a pair that is turned together lie side by side in files of this kind.
fn has_adjacent_pairs(kind: LlamaKind) -> bool {
    matches!(kind, LlamaKind::Llama | LlamaKind::Mistral | LlamaKind::SmolLm3 | LlamaKind::Granite)
}

/// The name in the file of the tensor that `transformers` calls `name`.
fn stored(kind: LlamaKind, name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["model", "embed_tokens", end] => format!("token_embd.{end}"),
        ["model", "norm", end] => format!("output_norm.{end}"),
        ["lm_head", end] => format!("output.{end}"),
        ["model", "layers", layer, inner @ .., end] => {
            let inner = match inner {
                ["input_layernorm"] => "attn_norm",
                ["post_attention_layernorm"] if kind.norms_results() => {
                    "post_attention_norm"
                }
                ["post_attention_layernorm" | "pre_feedforward_layernorm"] => "ffn_norm",
                ["post_feedforward_layernorm"] => "post_ffw_norm",
                ["self_attn", "q_proj"] => "attn_q",
                ["self_attn", "k_proj"] => "attn_k",
                ["self_attn", "v_proj"] => "attn_v",
                ["self_attn", "qkv_proj"] => "attn_qkv",
                ["self_attn", "q_norm"] => "attn_q_norm",
                ["self_attn", "k_norm"] => "attn_k_norm",
                ["self_attn", "o_proj"] => "attn_output",
                ["mlp", "gate_proj"] => "ffn_gate",
                ["mlp", "up_proj" | "gate_up_proj"] => "ffn_up",
                ["mlp", "down_proj"] => "ffn_down",
                other => return format!("blk.{layer}.{}.{end}", other.join(".")),
            };
            format!("blk.{layer}.{inner}.{end}")
        }
        _ => name.into(),
    }
}

/// The kind of the model whose `general.architecture` is `name`.
fn kind(fields: &GgufFields<'_>, name: &str) -> Result<LlamaKind> {
    Ok(match name {
        // Mistral has LLaMA's name.
        "llama" if window(fields, name)?.is_some() => LlamaKind::Mistral,
        "llama" => LlamaKind::Llama,
        "qwen2" => LlamaKind::Qwen2,
        "qwen3" => LlamaKind::Qwen3,
        "gemma2" => LlamaKind::Gemma2,
        "gemma3" => LlamaKind::Gemma3,
        "smollm3" => LlamaKind::SmolLm3,
        "phi3" => LlamaKind::Phi3,
        "olmo2" => LlamaKind::Olmo2,
        "granite" => LlamaKind::Granite,
        other => {
            let expected =
                "`llama`, `qwen2`, `qwen3`, `gemma2`, `gemma3`, `smollm3`, `phi3`, `olmo2` or `granite`";
            return Err(fields.wrong("general.architecture", expected, format!("`{other}`")));
        }
    })
}

/// The tokens that layers with a sliding window attend to; 0 stands for none.
fn window(fields: &GgufFields<'_>, name: &str) -> Result<Option<usize>> {
    Ok(fields.size_or_none(&format!("{name}.attention.sliding_window"))?.filter(|window| *window > 0))
}

/// How angles are stretched.
fn scaling(fields: &GgufFields<'_>, name: &str) -> Result<Option<RopeParameters>> {
    let field = |field: &str| format!("{name}.rope.scaling.{field}");
    let kind = match fields.optional(&field("type")) {
        None => return Ok(None),
        Some(_) => fields.text(&field("type"))?,
    };
    let number = |name: &str| fields.number(&field(name));
    let scaling = RopeParameters {
        rope_type: Some(kind.into()),
        factor: number("factor")?,
        ..RopeParameters::default()
    };
    match kind {
        "none" => Ok(None),
        "linear" => Ok(Some(scaling)),
        "yarn" => {
            if let Some(part) = number("yarn_ext_factor")?.filter(|part| *part != 1.0) {
                return Err(fields.wrong(&field("yarn_ext_factor"), "1", part.to_string()));
            }
            // The factor of what the logarithm of `factor` gives.
            let own = number("yarn_attn_factor")?.or(number("attn_factor")?);
            let grown =
                scaling.factor.filter(|factor| *factor > 1.0).map_or(1.0, |factor| 0.1 * factor.ln() + 1.0);
            Ok(Some(RopeParameters {
                original_max_position_embeddings: fields.size_or_none(&field("original_context_length"))?,
                attention_factor: own.map(|own| own * grown),
                beta_fast: number("yarn_beta_fast")?,
                beta_slow: number("yarn_beta_slow")?,
                ..scaling
            }))
        }
        other => Err(fields.wrong(&field("type"), "`none`, `linear` or `yarn`", format!("`{other}`"))),
    }
}

fn config(file: &GgufFile) -> Result<LlamaConfig> {
    let fields = file.fields();
    let name = fields.text("general.architecture")?;
    let kind = kind(&fields, name)?;
    let field = |field: &str| format!("{name}.{field}");
    let number = |name: &str| fields.number(&field(name));
    for tensor in ["rope_factors_long.weight", "rope_factors_short.weight"] {
        if file.has_tensor(tensor) {
            return Err(fields.wrong(tensor, "no such tensor, as `longrope` is not supported", "one"));
        }
    }
    let heads = fields.size(&field("attention.head_count"))?;
    let width = fields.size(&field("embedding_length"))?;
    let layers = fields.size(&field("block_count"))?;
    let head = fields.size_or_none(&field("attention.key_length"))?;
    let head = head.unwrap_or(width / heads.max(1));
    let turned = fields.size_or_none(&field("rope.dimension_count"))?.filter(|turned| *turned != head);
    if let Some(turned) = turned.filter(|turned| kind != LlamaKind::Phi3 || *turned > head) {
        let expected = format!("the width of a head, {head}");
        return Err(fields.wrong(&field("rope.dimension_count"), &expected, turned.to_string()));
    }
    let epsilon = field("attention.layer_norm_rms_epsilon");
    let has_output_bias = file.has_tensor("blk.0.attn_output.bias");
    if file.has_tensor("blk.0.attn_q.bias") && !has_output_bias && kind != LlamaKind::Qwen2 {
        return Err(fields.wrong("blk.0.attn_q.bias", "no such tensor", "one"));
    }
    let defaults = kind.defaults();
    let mut config = LlamaConfig {
        kind,
        vocab_size: fields.list("tokenizer.ggml.tokens")?.len(),
        hidden_size: width,
        intermediate_size: fields.size(&field("feed_forward_length"))?,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: fields.size_or_none(&field("attention.head_count_kv"))?,
        head_dim: Some(head),
        max_position_embeddings: fields.size(&field("context_length"))?,
        rms_norm_eps: fields.number(&epsilon)?.ok_or_else(|| fields.wrong(&epsilon, "a number", "none"))?,
        rope_theta: number("rope.freq_base")?,
        rope_scaling: scaling(&fields, name)?,
        rope_divisors: divisors(file, turned.unwrap_or(head) / 2)?,
        partial_rotary_factor: turned.map(|turned| turned as f64 / head as f64),
        attention_bias: has_output_bias,
        mlp_bias: file.has_tensor("blk.0.ffn_down.bias"),
        tie_word_embeddings: !file.has_tensor("output.weight"),
        bos_token_id: fields.token("tokenizer.ggml.bos_token_id")?,
        eos_token_id: ends(&fields)?,
        pad_token_id: fields.token("tokenizer.ggml.padding_token_id")?,
        ..defaults
    };
    match kind {
        LlamaKind::Mistral | LlamaKind::Phi3 => config.sliding_window = window(&fields, name)?,
        LlamaKind::Gemma2 | LlamaKind::Gemma3 => {
            config.sliding_window = window(&fields, name)?.or(config.sliding_window);
            let caps = (number("attn_logit_softcapping")?, number("final_logit_softcapping")?);
            config.attn_logit_softcapping = caps.0.or(config.attn_logit_softcapping);
            config.final_logit_softcapping = caps.1.or(config.final_logit_softcapping);
            // These files do not say it: models of 27 billion weights divide by the width for each head.
            let is_wide = layers == if kind == LlamaKind::Gemma2 { 46 } else { 62 };
            let scalar = if is_wide { width / heads.max(1) } else { head };
            config.query_pre_attn_scalar = Some(scalar as f64);
            config.rope_local_base_freq = number("rope.freq_base_swa")?;
            if kind == LlamaKind::Gemma3 && config.rope_divisors.is_some() {
                return Err(fields.wrong("rope_freqs.weight", "no such tensor", "one"));
            }
        }
        LlamaKind::Granite => {
            config.embedding_multiplier = number("embedding_scale")?;
            config.residual_multiplier = number("residual_scale")?;
            config.attention_multiplier = number("attention.scale")?.or(Some((head as f64).powf(-0.5)));
            config.logits_scaling = number("logit_scale")?;
        }
        _ => {}
    }
    Ok(config)
}

/// The divisor of each of `pairs` steps of the angles, where the file has them, as for LLaMA 3.
fn divisors(file: &GgufFile, pairs: usize) -> Result<Option<Vec<f32>>> {
    const NAME: &str = "rope_freqs.weight";
    if !file.has_tensor(NAME) {
        return Ok(None);
    }
    let parameter = Parameter { name: NAME.into(), shape: pairs.into(), init: Init::Const(1.0) };
    file.check_tensor(NAME, parameter)?;
    Ok(Some(file.tensor(NAME, &Device::Cpu)?.to_vec1()?))
}

/// The tokens that end a sequence, and those that end a turn of it.
fn ends(fields: &GgufFields<'_>) -> Result<Vec<u32>> {
    let mut ends = Vec::new();
    for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = fields.token(&format!("tokenizer.ggml.{name}"))?;
        ends.extend(id.filter(|id| !ends.contains(id)));
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::{LlamaKind, apart, stored};

    #[test]
    fn pairs_are_put_half_a_head_apart() {
        // Two heads of four rows of two bytes.
        let rows: Vec<u8> = (0..8).flat_map(|row| [row, 10 + row]).collect();
        let expected = [0, 2, 1, 3, 4, 6, 5, 7].iter().flat_map(|row| [*row, 10 + row]).collect::<Vec<u8>>();
        assert_eq!(apart(&rows, 2, 4), expected);
    }

    #[test]
    fn names_are_those_of_llama_cpp() {
        for (name, expected) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias"),
            ("model.layers.11.mlp.down_proj.weight", "blk.11.ffn_down.weight"),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
        ] {
            assert_eq!(stored(LlamaKind::Llama, name), expected);
        }
        for (kind, name, expected) in [
            (LlamaKind::Gemma3, "post_attention_layernorm", "post_attention_norm"),
            (LlamaKind::Gemma3, "pre_feedforward_layernorm", "ffn_norm"),
            (LlamaKind::Olmo2, "post_attention_layernorm", "post_attention_norm"),
            (LlamaKind::Olmo2, "post_feedforward_layernorm", "post_ffw_norm"),
            (LlamaKind::Qwen3, "self_attn.q_norm", "attn_q_norm"),
            (LlamaKind::Phi3, "self_attn.qkv_proj", "attn_qkv"),
            (LlamaKind::Phi3, "mlp.gate_up_proj", "ffn_up"),
        ] {
            let name = format!("model.layers.2.{name}.weight");
            assert_eq!(stored(kind, &name), format!("blk.2.{expected}.weight"), "{kind:?}");
        }
    }
}
