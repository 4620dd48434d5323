//! What follows from a config: the biases, factors and feed-forward parts of layers.

use sporran_checkpoint::Result;

use super::{config::LlamaConfig, kind::LlamaKind};
use crate::{architectures::wrong::wrong, layers::Activation};

/// What a feed-forward part does between its projections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gate {
    /// It activates the gate, or the inner values where there is none.
    Plain(Activation),
    /// The same with factors of the gate and of what the part adds.
    Scaled { activation: Activation, gate: f64, result: f64 },
    /// The activation has slopes of its own in each layer (Huang and Schlag 2024, "xIELU").
    Learned,
    /// `(u + 1) g / (1 + exp(-alpha g))`, where the gate `g` is at most `most` and `u` is between it and its negative.
    Bounded { alpha: f64, most: f64 },
}

/// The tensors of the learned slopes, in a feed-forward part: of values above 0 and of others, and what the slopes are at 0 and
/// the greatest value below 0.
pub(crate) const SLOPES: [&str; 4] =
    ["mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n", "mlp.act_fn.beta", "mlp.act_fn.eps"];

impl LlamaConfig {
    /// The number of heads that keys and values have.
    pub(crate) fn groups(&self) -> usize {
        let heads = self.num_attention_heads;
        let is_shared = self.multi_query.unwrap_or(true);
        match self.kind {
            LlamaKind::BioGpt
            | LlamaKind::Bloom
            | LlamaKind::CodeGen
            | LlamaKind::DeepSeekV2
            | LlamaKind::DeepSeekV3
            | LlamaKind::MiniCpm3
            | LlamaKind::GptJ
            | LlamaKind::GptNeo
            | LlamaKind::Mpt
            | LlamaKind::Persimmon
            | LlamaKind::Xglm => heads,
            LlamaKind::Falcon if self.new_decoder_architecture == Some(true) => {
                self.num_key_value_heads.unwrap_or(heads)
            }
            LlamaKind::Falcon | LlamaKind::GptBigCode => {
                if is_shared {
                    1
                } else {
                    heads
                }
            }
            _ => self.num_key_value_heads.unwrap_or(heads),
        }
    }

    /// The width of a head's queries and keys.
    pub(crate) fn head_width(&self) -> usize {
        match self.latent() {
            Some(sizes) => sizes.width(),
            None => self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1)),
        }
    }

    pub(crate) fn projections_have_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Qwen2 => true,
            LlamaKind::Qwen2Moe => self.qkv_bias.unwrap_or(true),
            LlamaKind::StableLm => self.use_bias.unwrap_or(false),
            LlamaKind::GptNeo => false,
            LlamaKind::Glm
            | LlamaKind::Glm4
            | LlamaKind::Glm4Moe
            | LlamaKind::Helium
            | LlamaKind::SeedOss
            | LlamaKind::SolarOpen => self.attention_bias,
            _ => self.output_has_bias(),
        }
    }

    pub(crate) fn output_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::CodeGen
            | LlamaKind::Cwm
            | LlamaKind::Exaone4
            | LlamaKind::Glm
            | LlamaKind::Glm4
            | LlamaKind::Glm4Moe
            | LlamaKind::GptJ
            | LlamaKind::Helium
            | LlamaKind::MiniMaxM2
            | LlamaKind::Ministral
            | LlamaKind::Ministral3
            | LlamaKind::Mistral
            | LlamaKind::Mixtral
            | LlamaKind::Mpt
            | LlamaKind::Phi3
            | LlamaKind::Qwen2
            | LlamaKind::Qwen2Moe
            | LlamaKind::SolarOpen
            | LlamaKind::StableLm => false,
            LlamaKind::Ernie45 | LlamaKind::Ernie45Moe | LlamaKind::Falcon => self.use_bias.unwrap_or(false),
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::BioGpt
            | LlamaKind::Bloom
            | LlamaKind::GptBigCode
            | LlamaKind::GptNeo
            | LlamaKind::Persimmon
            | LlamaKind::Phi
            | LlamaKind::Xglm => true,
            LlamaKind::SeedOss => self.attention_out_bias.unwrap_or(false),
            _ => self.attention_bias,
        }
    }

    pub(crate) fn feed_forward_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Arcee
            | LlamaKind::Bamba
            | LlamaKind::FalconH1
            | LlamaKind::Cwm
            | LlamaKind::DeepSeekV2
            | LlamaKind::EuroBert
            | LlamaKind::Granite
            | LlamaKind::GraniteSwa
            | LlamaKind::Helium
            | LlamaKind::HyperClovaX
            | LlamaKind::InternLm3
            | LlamaKind::Jais2
            | LlamaKind::Llama
            | LlamaKind::MiniCpm3
            | LlamaKind::Nemotron
            | LlamaKind::SeedOss
            | LlamaKind::SmolLm3
            | LlamaKind::UltraBert => self.mlp_bias,
            LlamaKind::Ernie45 | LlamaKind::Ernie45Moe | LlamaKind::Falcon => self.use_bias.unwrap_or(false),
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::BioGpt
            | LlamaKind::Bloom
            | LlamaKind::CodeGen
            | LlamaKind::GptBigCode
            | LlamaKind::GptJ
            | LlamaKind::GptNeo
            | LlamaKind::GptNeox
            | LlamaKind::Persimmon
            | LlamaKind::Phi
            | LlamaKind::Xglm => true,
            _ => false,
        }
    }

    /// The inner width of feed-forward parts without experts.
    pub(crate) fn dense_width(&self) -> usize {
        let own = self.shared_expert_intermediate_size.filter(|_| self.kind == LlamaKind::GraniteHybrid);
        own.unwrap_or(self.intermediate_size)
    }

    /// Whether heads may attend to nothing.
    pub(crate) fn has_sinks(&self) -> bool {
        matches!(self.kind, LlamaKind::GptOss | LlamaKind::GraniteSwa)
    }

    /// Whether the head that scores words has a bias.
    pub(crate) fn head_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::CodeGen | LlamaKind::GptJ | LlamaKind::Phi => true,
            LlamaKind::Ernie45Moe => self.use_bias.unwrap_or(false),
            LlamaKind::PhiMoe => self.lm_head_bias.unwrap_or(false),
            _ => false,
        }
    }

    /// The bound of the values of queries, keys and values.
    pub(crate) fn clip(&self) -> Option<f64> {
        let own = self.clip_qkv.filter(|_| matches!(self.kind, LlamaKind::Olmo | LlamaKind::Olmoe));
        own.or(self.attn_config.as_ref().and_then(|attention| attention.clip_qkv))
    }

    /// The factor of the products of queries and keys.
    pub(crate) fn score_scale(&self) -> f64 {
        let own = self.attn_config.as_ref().and_then(|attention| attention.softmax_scale);
        let own = own.or(self.attention_multiplier.filter(|_| self.kind == LlamaKind::HyperClovaX));
        match self.kind {
            kind if kind.has_layer_inputs() => 1.0,
            kind if kind.is_new_gemma() => self.query_pre_attn_scalar.unwrap_or(256.0).powf(-0.5),
            kind if kind.is_granite() && kind != LlamaKind::HyperClovaX => {
                self.attention_multiplier.unwrap_or(1.0)
            }
            kind if kind.is_latent() => (self.head_width() as f64).powf(-0.5) * self.latent_factor(),
            LlamaKind::GptBigCode if self.scale_attn_weights == Some(false) => 1.0,
            LlamaKind::GptNeo => 1.0,
            LlamaKind::FalconH1 => {
                let read = self.attention_in_multiplier.unwrap_or(1.0);
                (self.head_width() as f64).powf(-0.5) * read * read * self.key_multiplier.unwrap_or(1.0)
            }
            _ => own.unwrap_or((self.head_width() as f64).powf(-0.5)),
        }
    }

    /// The factor of attention's results.
    pub(crate) fn attention_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::FalconH1 => {
                self.attention_in_multiplier.unwrap_or(1.0) * self.attention_out_multiplier.unwrap_or(1.0)
            }
            _ => 1.0,
        }
    }

    /// The bound of the scores of attention.
    pub(crate) fn score_cap(&self) -> Option<f64> {
        self.attn_logit_softcapping.filter(|_| matches!(self.kind, LlamaKind::Gemma2 | LlamaKind::VaultGemma))
    }

    /// The factor of embeddings.
    pub(crate) fn embedding_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Gemma => (self.hidden_size as f64).sqrt(),
            kind if kind.is_new_gemma() => (self.hidden_size as f64).sqrt(),
            LlamaKind::BioGpt | LlamaKind::Xglm if self.scale_embedding.unwrap_or(true) => {
                (self.hidden_size as f64).sqrt()
            }
            LlamaKind::MiniCpm3 => self.scale_emb.unwrap_or(1.0),
            LlamaKind::FalconH1 => self.embedding_multiplier.unwrap_or(1.0),
            kind if kind.is_granite() => self.embedding_multiplier.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The factor of what a part adds to the states.
    pub(crate) fn residual_scale(&self) -> f64 {
        let by_depth = |scale: f64| scale / (self.num_hidden_layers as f64).sqrt();
        match self.kind {
            LlamaKind::MiniCpm3 => self.scale_depth.map_or(1.0, by_depth),
            kind if kind.is_granite() => self.residual_multiplier.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The factor of the logits.
    pub(crate) fn logit_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Cohere | LlamaKind::Cohere2 => self.logit_scale.unwrap_or(0.0625),
            LlamaKind::MiniCpm3 => {
                self.dim_model_base.map_or(1.0, |base| base as f64 / self.hidden_size as f64)
            }
            LlamaKind::FalconH1 => self.logit_scale.unwrap_or(1.0),
            // A field of the same name is a divisor in Granite and a factor here.
            LlamaKind::HyperClovaX => self.logits_scaling.unwrap_or(1.0),
            kind if kind.is_granite() => 1.0 / self.logits_scaling.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The bound of the logits.
    pub(crate) fn logit_cap(&self) -> Option<f64> {
        let is_bounded = self.kind.is_new_gemma() || self.kind == LlamaKind::NanoChat;
        self.final_logit_softcapping.filter(|_| is_bounded)
    }

    /// The dropout rates of what attention and the feed-forward part add to the states, in training.
    pub(crate) fn part_dropouts(&self) -> [f64; 2] {
        let rate = self.resid_pdrop.unwrap_or(0.0);
        match self.kind {
            LlamaKind::Persimmon | LlamaKind::StableLm => [0.0, rate],
            LlamaKind::Falcon if !self.is_parallel() => [self.attention_dropout, rate],
            LlamaKind::Mpt => [self.score_dropout(); 2],
            LlamaKind::BioGpt
            | LlamaKind::Bloom
            | LlamaKind::CodeGen
            | LlamaKind::Falcon
            | LlamaKind::GptBigCode
            | LlamaKind::GptJ
            | LlamaKind::GptNeo
            | LlamaKind::GptNeox
            | LlamaKind::Opt
            | LlamaKind::Phi
            | LlamaKind::Phi3
            | LlamaKind::SeedOss
            | LlamaKind::Starcoder2
            | LlamaKind::Xglm => [rate; 2],
            _ => [0.0; 2],
        }
    }

    /// The dropout rate of the embeddings, in training.
    pub(crate) fn embedding_dropout(&self) -> f64 {
        match self.kind {
            LlamaKind::BioGpt | LlamaKind::GptNeox | LlamaKind::Xglm => self.resid_pdrop.unwrap_or(0.0),
            LlamaKind::CodeGen
            | LlamaKind::GptBigCode
            | LlamaKind::GptJ
            | LlamaKind::GptNeo
            | LlamaKind::Mpt
            | LlamaKind::Phi
            | LlamaKind::Starcoder2 => self.embd_pdrop.unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// The dropout rate before the labels of an encoder, in training.
    pub(crate) fn label_dropout(&self) -> f64 {
        self.classifier_dropout.filter(|_| self.kind == LlamaKind::UltraBert).unwrap_or(0.0)
    }

    /// The dropout rate of the attention weights, in training.
    pub(crate) fn score_dropout(&self) -> f64 {
        self.attn_config.as_ref().and_then(|attention| attention.attn_pdrop).unwrap_or(self.attention_dropout)
    }

    /// The width of embeddings, and of states after the last layer.
    pub(crate) fn embedding_width(&self) -> usize {
        self.word_embed_proj_dim.filter(|_| self.kind == LlamaKind::Opt).unwrap_or(self.hidden_size)
    }

    /// What feed-forward parts do between their projections.
    pub(crate) fn gate(&self) -> Result<Gate> {
        match self.kind {
            LlamaKind::Apertus if self.hidden_act == "xielu" => Ok(Gate::Learned),
            LlamaKind::GptOss => Ok(Gate::Bounded {
                alpha: self.swiglu_alpha.unwrap_or(1.702),
                most: self.swiglu_limit.unwrap_or(7.0),
            }),
            LlamaKind::FalconH1 => {
                let [gate, result] = self.mlp_multipliers.unwrap_or([1.0; 2]);
                Ok(Gate::Scaled { activation: self.activation()?, gate, result })
            }
            _ => self.activation().map(Gate::Plain),
        }
    }

    /// The activation that the config names.
    pub(crate) fn activation(&self) -> Result<Activation> {
        let (field, name) = match self.kind {
            kind if kind.is_new_gemma() => {
                ("hidden_activation", self.hidden_activation.as_deref().unwrap_or("gelu_pytorch_tanh"))
            }
            // The first files say `gelu`, and mean its approximation.
            LlamaKind::Gemma if self.hidden_act == "gelu" => ("hidden_act", "gelu_pytorch_tanh"),
            _ => ("hidden_act", self.hidden_act.as_str()),
        };
        Activation::named(name).ok_or_else(|| wrong(field, "a known activation", name))
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};
    use crate::architectures::llama::config::MptAttention;

    #[test]
    fn parts_drop_what_transformers_drops() {
        let attention = MptAttention { attn_pdrop: Some(0.25), ..MptAttention::default() };
        let mpt = LlamaConfig { attn_config: Some(attention), ..LlamaKind::Mpt.defaults() };
        assert_eq!(LlamaConfig { resid_pdrop: Some(0.5), ..mpt }.part_dropouts(), [0.25; 2]);
        let falcon =
            LlamaConfig { attention_dropout: 0.25, resid_pdrop: Some(0.5), ..LlamaKind::Falcon.defaults() };
        assert_eq!(falcon.part_dropouts(), [0.5; 2]);
        assert_eq!(LlamaConfig { parallel_attn: Some(false), ..falcon }.part_dropouts(), [0.25, 0.5]);
    }

    #[test]
    fn qwen_has_biases_that_llama_has_not() {
        let qwen = LlamaConfig { kind: LlamaKind::Qwen2, ..LlamaConfig::default() };
        assert!(qwen.projections_have_bias() && !LlamaConfig::default().projections_have_bias());
        let named = LlamaConfig { attention_bias: true, ..qwen };
        assert!(named.projections_have_bias() && !named.output_has_bias());
    }
}
