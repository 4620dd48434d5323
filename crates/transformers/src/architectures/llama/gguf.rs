//! GGUF files, llama.cpp's format: config, tokenizer and weights in one.
//!
//! The weights, which are mostly quantised, are made into the numbers that they stand for when a model is built, and the
//! model is the same as from safetensors.

use std::path::Path;

use candle_core::{DType, Device, Tensor, quantized::gguf_file::Value};
use candle_nn::VarBuilder;
use sporran_checkpoint::{Architecture, GgufFields, GgufFile, Result, Tokenizer};

use super::{
    config::{LlamaConfig, LlamaKind},
    model::Llama,
};
use crate::{
    causal::CausalLm,
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    packed::PackedLlama,
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
            file.check_tensor(&stored(&parameter.name), parameter)?;
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
        let mut read =
            |name: &str| Ok(self.tensor(name, DType::F32, &Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?);
        let (tokens, generation) = (self.config.special_tokens(), GenerationOptions::default());
        let model = PackedLlama::llama(&self.config, tokens, generation, precision.packed()?, &mut read)?;
        Ok(Box::new(model))
    }

    fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.file.tensor(&stored(name), device)?;
        let heads = match name.rsplit('.').nth(1) {
            Some("q_proj") => self.config.num_attention_heads,
            Some("k_proj") => self.config.groups(),
            _ => return Ok(tensor.to_dtype(dtype)?),
        };
        if self.config.kind != LlamaKind::Llama {
            return Ok(tensor.to_dtype(dtype)?);
        }
        // In LLaMA's own files the two of a pair that is turned together lie side by side, here half a head apart.
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

/// The name in the file of the tensor that `transformers` calls `name`.
fn stored(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["model", "embed_tokens", end] => format!("token_embd.{end}"),
        ["model", "norm", end] => format!("output_norm.{end}"),
        ["lm_head", end] => format!("output.{end}"),
        ["model", "layers", layer, inner @ .., end] => {
            let inner = match inner {
                ["input_layernorm"] => "attn_norm",
                ["post_attention_layernorm"] => "ffn_norm",
                ["self_attn", "q_proj"] => "attn_q",
                ["self_attn", "k_proj"] => "attn_k",
                ["self_attn", "v_proj"] => "attn_v",
                ["self_attn", "o_proj"] => "attn_output",
                ["mlp", "gate_proj"] => "ffn_gate",
                ["mlp", "up_proj"] => "ffn_up",
                ["mlp", "down_proj"] => "ffn_down",
                other => return format!("blk.{layer}.{}.{end}", other.join(".")),
            };
            format!("blk.{layer}.{inner}.{end}")
        }
        _ => name.into(),
    }
}

fn config(file: &GgufFile) -> Result<LlamaConfig> {
    let fields = file.fields();
    let name = fields.text("general.architecture")?;
    let kind = match name {
        "llama" => LlamaKind::Llama,
        "qwen2" => LlamaKind::Qwen2,
        other => {
            return Err(fields.wrong("general.architecture", "`llama` or `qwen2`", format!("`{other}`")));
        }
    };
    let field = |field: &str| format!("{name}.{field}");
    let scaling = field("rope.scaling.type");
    if let Some(Value::String(kind)) = fields.optional(&scaling)
        && kind != "none"
    {
        return Err(fields.wrong(&scaling, "`none`", format!("`{kind}`")));
    }
    if file.has_tensor("rope_freqs.weight") {
        return Err(fields.wrong("rope_freqs.weight", "no such tensor, as angles are not stretched", "one"));
    }
    let heads = fields.size(&field("attention.head_count"))?;
    let width = fields.size(&field("embedding_length"))?;
    let head = fields.size_or_none(&field("attention.key_length"))?;
    let turned = fields.size_or_none(&field("rope.dimension_count"))?;
    let head = head.unwrap_or(width / heads.max(1));
    if let Some(turned) = turned.filter(|turned| *turned != head) {
        let expected = format!("the width of a head, {head}");
        return Err(fields.wrong(&field("rope.dimension_count"), &expected, turned.to_string()));
    }
    let epsilon = field("attention.layer_norm_rms_epsilon");
    Ok(LlamaConfig {
        kind,
        vocab_size: fields.list("tokenizer.ggml.tokens")?.len(),
        hidden_size: width,
        intermediate_size: fields.size(&field("feed_forward_length"))?,
        num_hidden_layers: fields.size(&field("block_count"))?,
        num_attention_heads: heads,
        num_key_value_heads: fields.size_or_none(&field("attention.head_count_kv"))?,
        head_dim: Some(head),
        max_position_embeddings: fields.size(&field("context_length"))?,
        rms_norm_eps: fields.number(&epsilon)?.ok_or_else(|| fields.wrong(&epsilon, "a number", "none"))?,
        rope_theta: fields.number(&field("rope.freq_base"))?,
        tie_word_embeddings: !file.has_tensor("output.weight"),
        bos_token_id: fields.token("tokenizer.ggml.bos_token_id")?,
        eos_token_id: ends(&fields)?,
        pad_token_id: fields.token("tokenizer.ggml.padding_token_id")?,
        ..LlamaConfig::default()
    })
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
    use super::stored;

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
            assert_eq!(stored(name), expected);
        }
    }
}
