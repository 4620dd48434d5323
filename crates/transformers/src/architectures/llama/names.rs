//! The names of tensors of each kind in `transformers`.

use super::{config::LlamaConfig, kind::LlamaKind};

/// The names of a model's tensors, without the names of its norms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// Everything but the head is under it.
    pub(crate) body: &'static str,
    /// The layers, by number, in the body.
    pub(crate) layers: &'static str,
    /// The table of embeddings, with its place.
    pub(crate) table: &'static str,
    /// The table of learned positions, in the body.
    pub(crate) positions: &'static str,
    /// The last norm.
    pub(crate) norm: &'static str,
    /// The head that scores words.
    pub(crate) head: &'static str,
    pub(crate) inputs: Inputs,
    /// The output of attention.
    pub(crate) output: &'static str,
    pub(crate) part: PartNames,
}

/// The names of a feed-forward part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartNames {
    pub(crate) inner: Inner,
    /// The outer projection.
    pub(crate) outer: &'static str,
}

/// The names of a mixture of experts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertNames {
    /// The layer that scores experts.
    pub(crate) router: &'static str,
    /// What is added to the weights of experts where they are chosen.
    pub(crate) corrections: &'static str,
    pub(crate) experts: ExpertTensors,
    /// The part that every token reads, with its projections.
    pub(crate) shared: &'static str,
    pub(crate) shared_part: PartNames,
}

/// How the tensors of experts are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpertTensors {
    /// Each expert has its own, by number under this name.
    Apart(&'static str, PartNames),
    /// One has the gates of all experts, each with what it multiplies below it: (experts, 2 * inner, width). The other has the
    /// outer projections: (experts, width, inner).
    Together([&'static str; 2]),
    /// The same with biases, transposed, where the columns of gates alternate with those that they multiply: (experts, width,
    /// 2 * inner) and (experts, inner, width).
    Alternating([&'static str; 2]),
}

/// The projections to queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inputs {
    /// There is one for each.
    Apart([&'static str; 3]),
    /// One tensor has all queries, then all keys, then all values.
    Fused(&'static str),
    /// One tensor has the queries that share a key, this key and its value, then those of the next.
    ByGroup(&'static str),
    /// One tensor has four blocks, each with a quarter of the queries, then of the values, then of the keys.
    InQuarters(&'static str),
    /// Keys and values are made of a narrow vector.
    Latent,
}

/// The inner projections of the feed-forward part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inner {
    /// The gate, which is activated, and what it multiplies.
    Gated(&'static str, &'static str),
    /// Both in one tensor.
    Fused(&'static str),
    /// There is no gate.
    Plain(&'static str),
}

/// The scores of attending to nothing, one for each head.
pub(crate) const SINKS: &str = "self_attn.sinks";
/// The layer that weighs the part that every token reads beside experts.
pub(crate) const SHARED_GATE: &str = "mlp.shared_expert_gate";
/// The tensors of experts beside a feed-forward part, in a layer (Gemma 4).
pub(crate) struct BesideNames {
    pub(crate) router: &'static str,
    /// The scale of the states that the router reads.
    pub(crate) router_scale: &'static str,
    /// The factors of the weights of experts.
    pub(crate) factors: &'static str,
    /// The norms of what experts read, of what they add, and of what the feed-forward part adds.
    pub(crate) norms: [&'static str; 3],
}

pub(crate) const BESIDE: BesideNames = BesideNames {
    router: "router.proj",
    router_scale: "router.scale",
    factors: "router.per_expert_scale",
    norms: ["pre_feedforward_layernorm_2", "post_feedforward_layernorm_2", "post_feedforward_layernorm_1"],
};

/// The tensors of the embeddings that each layer has of its own (Gemma 4).
pub(crate) struct LayerInputNames {
    /// The table of all layers, in the body.
    pub(crate) table: &'static str,
    /// The projection of the model's embeddings to those of all layers, in the body.
    pub(crate) projection: &'static str,
    /// The norm of what this gives for a layer, in the body.
    pub(crate) norm: &'static str,
    /// The gate of the states, in a layer.
    pub(crate) gate: &'static str,
    /// The projection to the states, in a layer.
    pub(crate) outer: &'static str,
    /// The norm of what it gives, in a layer.
    pub(crate) outer_norm: &'static str,
}

pub(crate) const LAYER_INPUTS: LayerInputNames = LayerInputNames {
    table: "embed_tokens_per_layer",
    projection: "per_layer_model_projection",
    norm: "per_layer_projection_norm",
    gate: "per_layer_input_gate",
    outer: "per_layer_projection",
    outer_norm: "post_per_layer_input_norm",
};
/// The tensors of streams of states (Gemma 3n).
pub(crate) struct AlternatingNames {
    /// The projections from the embeddings to all streams but the first, and from these to what the head reads, in the body.
    pub(crate) projections: [&'static str; 2],
    /// The norm and the layer that give the coefficients' inputs, in a layer.
    pub(crate) router_norm: &'static str,
    pub(crate) router: &'static str,
    /// The coefficients of streams before and after a layer, in it.
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
    /// The scale of the states that embeddings of the layer are multiplied with, in it.
    pub(crate) scale: &'static str,
    /// The projections and the norm of the learned part of residuals, in a layer.
    pub(crate) residual: [&'static str; 2],
    pub(crate) residual_norm: &'static str,
}

pub(crate) const ALTERNATING: AlternatingNames = AlternatingNames {
    projections: ["altup_projections", "altup_unembed_projections"],
    router_norm: "altup.router_norm",
    router: "altup.modality_router",
    before: "altup.prediction_coefs",
    after: "altup.correction_coefs",
    scale: "altup.correct_output_scale",
    residual: ["laurel.linear_left", "laurel.linear_right"],
    residual_norm: "laurel.post_laurel_norm",
};
/// The factor of the states after a layer (Gemma 4).
pub(crate) const LAYER_SCALE: &str = "layer_scalar";
/// The projections of embeddings that are narrower than the states (OPT).
pub(crate) const PROJECTIONS: [&str; 2] = ["project_in", "project_out"];

const APART: Inputs = Inputs::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]);
/// The projections of all experts as one tensor each.
pub(super) const EXPERTS_TOGETHER: [&str; 2] = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"];
/// The projections of an expert, in its place.
const PROJECTED: PartNames = PartNames { inner: Inner::Gated("gate_proj", "up_proj"), outer: "down_proj" };

const LLAMA: Names = Names {
    body: "model",
    layers: "layers",
    table: "model.embed_tokens.weight",
    positions: "embed_positions",
    norm: "norm",
    head: "lm_head",
    inputs: APART,
    output: "self_attn.o_proj",
    part: PartNames { inner: Inner::Gated("mlp.gate_proj", "mlp.up_proj"), outer: "mlp.down_proj" },
};

const GPT: Names = Names {
    body: "transformer",
    layers: "h",
    table: "transformer.wte.weight",
    positions: "wpe",
    norm: "ln_f",
    ..LLAMA
};

/// A feed-forward part without a gate.
const fn plain(inner: &'static str, outer: &'static str) -> PartNames {
    PartNames { inner: Inner::Plain(inner), outer }
}

impl LlamaKind {
    /// The names of its tensors.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Apertus | Self::Arcee | Self::Jais2 | Self::Nemotron => {
                Names { part: plain("mlp.up_proj", "mlp.down_proj"), ..LLAMA }
            }
            Self::Bamba | Self::FalconH1 => Names {
                norm: "final_layernorm",
                part: PartNames {
                    inner: Inner::Gated("feed_forward.gate_proj", "feed_forward.up_proj"),
                    outer: "feed_forward.down_proj",
                },
                ..LLAMA
            },
            Self::BioGpt => Names {
                body: "biogpt",
                table: "biogpt.embed_tokens.weight",
                norm: "layer_norm",
                head: "output_projection",
                output: "self_attn.out_proj",
                part: plain("fc1", "fc2"),
                ..LLAMA
            },
            kind if kind.is_latent() => Names { inputs: Inputs::Latent, ..LLAMA },
            Self::Bloom | Self::Falcon => Names {
                table: "transformer.word_embeddings.weight",
                inputs: Inputs::ByGroup("self_attention.query_key_value"),
                output: "self_attention.dense",
                part: plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
                ..GPT
            },
            Self::CodeGen => Names {
                inputs: Inputs::InQuarters("attn.qkv_proj"),
                output: "attn.out_proj",
                part: plain("mlp.fc_in", "mlp.fc_out"),
                ..GPT
            },
            Self::Glm | Self::Glm4 => {
                Names { part: PartNames { inner: Inner::Fused("mlp.gate_up_proj"), ..LLAMA.part }, ..LLAMA }
            }
            Self::GraniteHybrid => Names {
                part: PartNames {
                    inner: Inner::Fused("shared_mlp.input_linear"),
                    outer: "shared_mlp.output_linear",
                },
                ..LLAMA
            },
            Self::GptBigCode => Names {
                inputs: Inputs::ByGroup("attn.c_attn"),
                output: "attn.c_proj",
                part: plain("mlp.c_fc", "mlp.c_proj"),
                ..GPT
            },
            Self::GptJ => Names {
                inputs: Inputs::Apart(["attn.q_proj", "attn.k_proj", "attn.v_proj"]),
                output: "attn.out_proj",
                part: plain("mlp.fc_in", "mlp.fc_out"),
                ..GPT
            },
            Self::GptNeo => Names {
                inputs: Inputs::Apart([
                    "attn.attention.q_proj",
                    "attn.attention.k_proj",
                    "attn.attention.v_proj",
                ]),
                output: "attn.attention.out_proj",
                part: plain("mlp.c_fc", "mlp.c_proj"),
                ..GPT
            },
            Self::GptNeox => Names {
                body: "gpt_neox",
                table: "gpt_neox.embed_in.weight",
                norm: "final_layer_norm",
                head: "embed_out",
                inputs: Inputs::ByGroup("attention.query_key_value"),
                output: "attention.dense",
                part: plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
                ..LLAMA
            },
            Self::Lfm2 | Self::Lfm2Moe => Names {
                norm: "embedding_norm",
                output: "self_attn.out_proj",
                part: PartNames {
                    inner: Inner::Gated("feed_forward.w1", "feed_forward.w3"),
                    outer: "feed_forward.w2",
                },
                ..LLAMA
            },
            Self::Mpt => Names {
                layers: "blocks",
                norm: "norm_f",
                inputs: Inputs::Fused("attn.Wqkv"),
                output: "attn.out_proj",
                part: plain("ffn.up_proj", "ffn.down_proj"),
                ..GPT
            },
            Self::Opt => Names {
                body: "model.decoder",
                table: "model.decoder.embed_tokens.weight",
                norm: "final_layer_norm",
                output: "self_attn.out_proj",
                part: plain("fc1", "fc2"),
                ..LLAMA
            },
            Self::Persimmon => Names {
                norm: "final_layernorm",
                inputs: Inputs::ByGroup("self_attn.query_key_value"),
                output: "self_attn.dense",
                part: plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
                ..LLAMA
            },
            Self::Phi => Names {
                norm: "final_layernorm",
                output: "self_attn.dense",
                part: plain("mlp.fc1", "mlp.fc2"),
                ..LLAMA
            },
            Self::Phi3 => Names {
                inputs: Inputs::Fused("self_attn.qkv_proj"),
                part: PartNames { inner: Inner::Fused("mlp.gate_up_proj"), ..LLAMA.part },
                ..LLAMA
            },
            Self::NanoChat => Names { part: plain("mlp.fc1", "mlp.fc2"), ..LLAMA },
            Self::Starcoder2 => Names { part: plain("mlp.c_fc", "mlp.c_proj"), ..LLAMA },
            Self::Xglm => {
                Names { norm: "layer_norm", output: "self_attn.out_proj", part: plain("fc1", "fc2"), ..LLAMA }
            }
            _ => LLAMA,
        }
    }

    /// Whether folders of this kind may have the tensors of all experts as one, and not those of each.
    pub(crate) fn may_have_experts_together(self) -> bool {
        matches!(self, Self::Qwen35Moe | Self::Qwen3Next)
    }

    /// The names of its mixtures of experts.
    fn expert_names(self) -> ExpertNames {
        let usual = ExpertNames {
            router: "mlp.gate",
            corrections: "mlp.gate.e_score_correction_bias",
            experts: ExpertTensors::Apart("mlp.experts", PROJECTED),
            shared: "mlp.shared_experts",
            shared_part: PROJECTED,
        };
        match self {
            Self::Ernie45Moe => {
                ExpertNames { corrections: "mlp.moe_statics.e_score_correction_bias", ..usual }
            }
            Self::Gemma4 => ExpertNames {
                router: BESIDE.router,
                experts: ExpertTensors::Together(["experts.gate_up_proj", "experts.down_proj"]),
                ..usual
            },
            Self::GptOss => ExpertNames {
                router: "mlp.router",
                experts: ExpertTensors::Alternating(EXPERTS_TOGETHER),
                ..usual
            },
            Self::GraniteHybrid | Self::GraniteMoe | Self::GraniteMoeShared => ExpertNames {
                router: "block_sparse_moe.router.layer",
                experts: ExpertTensors::Together([
                    "block_sparse_moe.input_linear.weight",
                    "block_sparse_moe.output_linear.weight",
                ]),
                shared: "shared_mlp",
                shared_part: PartNames { inner: Inner::Fused("input_linear"), outer: "output_linear" },
                ..usual
            },
            Self::HunYuanMoe => ExpertNames { router: "mlp.gate.wg", shared: "mlp.shared_mlp", ..usual },
            Self::Lfm2Moe => ExpertNames {
                router: "feed_forward.gate",
                corrections: "feed_forward.expert_bias",
                experts: ExpertTensors::Apart(
                    "feed_forward.experts",
                    PartNames { inner: Inner::Gated("w1", "w3"), outer: "w2" },
                ),
                ..usual
            },
            Self::Mistral4 => ExpertNames { experts: ExpertTensors::Together(EXPERTS_TOGETHER), ..usual },
            Self::MiniMaxM2 | Self::Mixtral | Self::PhiMoe => ExpertNames {
                router: "block_sparse_moe.gate",
                corrections: "block_sparse_moe.e_score_correction_bias",
                experts: ExpertTensors::Apart(
                    "block_sparse_moe.experts",
                    PartNames { inner: Inner::Gated("w1", "w3"), outer: "w2" },
                ),
                ..usual
            },
            Self::Qwen2Moe | Self::Qwen35Moe | Self::Qwen3Next => {
                ExpertNames { shared: "mlp.shared_expert", ..usual }
            }
            _ => usual,
        }
    }
}

impl LlamaConfig {
    /// The names of its mixtures of experts.
    pub(crate) fn expert_names(&self) -> ExpertNames {
        let names = self.kind.expert_names();
        match self.experts_are_together {
            true => ExpertNames { experts: ExpertTensors::Together(EXPERTS_TOGETHER), ..names },
            false => names,
        }
    }

    /// The projections to queries, keys and values.
    pub(crate) fn inputs(&self) -> Inputs {
        match self.kind.names().inputs {
            // With one key for all heads both layouts are the same.
            Inputs::ByGroup(name) if self.groups() == 1 => Inputs::Fused(name),
            inputs => inputs,
        }
    }

    /// The shape of what is added to the weights of experts where they are chosen.
    pub(crate) fn corrections_shape(&self, experts: usize) -> Vec<usize> {
        if self.kind == LlamaKind::Ernie45Moe { vec![1, experts] } else { vec![experts] }
    }

    /// For each query, then each key, then each value: its place among those of the tensor that has all of them. None where
    /// they are in this order.
    pub(crate) fn input_places(&self) -> Option<Vec<usize>> {
        let (heads, groups) = (self.num_attention_heads, self.groups());
        match self.inputs() {
            Inputs::Apart(_) | Inputs::Fused(_) | Inputs::Latent => None,
            Inputs::ByGroup(_) => {
                let (each, block) = (heads / groups, heads / groups + 2);
                let queries = (0..heads).map(|head| head / each * block + head % each);
                let others = [each, each + 1].into_iter();
                let others = others.flat_map(|place| (0..groups).map(move |group| group * block + place));
                Some(queries.chain(others).collect())
            }
            Inputs::InQuarters(_) => {
                let quarter = heads / 4;
                let place = |which: usize| {
                    (0..heads)
                        .map(move |head| head / quarter * 3 * quarter + which * quarter + head % quarter)
                };
                Some(place(0).chain(place(2)).chain(place(1)).collect())
            }
        }
    }
}

impl Names {
    /// A tensor of a body without its place, as embedders store them, with it.
    pub(crate) fn placed(&self, stored: &str) -> Option<String> {
        let inner = self.table.strip_prefix(self.body)?.strip_prefix('.')?;
        let is_under = |name: &str| stored.strip_prefix(name).is_some_and(|end| end.starts_with('.'));
        let is_embedding = ["word_embeddings_layernorm", self.positions].into_iter().any(is_under);
        let is_inner = stored == inner || is_embedding || is_under(self.layers) || is_under(self.norm);
        is_inner.then(|| format!("{}.{stored}", self.body))
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};

    #[test]
    fn queries_keys_and_values_are_found_in_one_tensor() {
        let of = |kind: LlamaKind, heads, groups| {
            let sizes = (Some(groups), 2 * heads);
            LlamaConfig {
                num_attention_heads: heads,
                num_key_value_heads: sizes.0,
                hidden_size: sizes.1,
                new_decoder_architecture: Some(true),
                ..kind.defaults()
            }
            .input_places()
        };
        assert_eq!(of(LlamaKind::GptNeox, 2, 2).unwrap(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(of(LlamaKind::Falcon, 4, 2).unwrap(), [0, 1, 4, 5, 2, 6, 3, 7]);
        assert_eq!(of(LlamaKind::Falcon, 4, 1), None);
        // The blocks are q v k of one head each.
        let quarters = [0, 3, 6, 9, 2, 5, 8, 11, 1, 4, 7, 10];
        assert_eq!(of(LlamaKind::CodeGen, 4, 4).unwrap(), quarters);
        assert_eq!(of(LlamaKind::Llama, 4, 2), None);
    }
}
