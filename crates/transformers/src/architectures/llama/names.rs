//! The names of tensors of each kind in `transformers`.

use super::kind::LlamaKind;

/// The names of a model's tensors, without the names of its norms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// Everything but the head is under it.
    pub(crate) body: &'static str,
    /// The table of embeddings, with its place.
    pub(crate) table: &'static str,
    /// The last norm.
    pub(crate) norm: &'static str,
    /// The head that scores words.
    pub(crate) head: &'static str,
    pub(crate) inputs: Inputs,
    /// The output of attention.
    pub(crate) output: &'static str,
    pub(crate) inner: Inner,
    /// The outer projection of the feed-forward part.
    pub(crate) outer: &'static str,
}

/// The projections to queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inputs {
    /// There is one for each.
    Apart([&'static str; 3]),
    /// One tensor has all queries, then all keys, then all values.
    Fused(&'static str),
    /// One tensor has the query, the key and the value of a head, then those of the next.
    ByHead(&'static str),
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

const APART: Inputs = Inputs::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]);

const LLAMA: Names = Names {
    body: "model",
    table: "model.embed_tokens.weight",
    norm: "norm",
    head: "lm_head",
    inputs: APART,
    output: "self_attn.o_proj",
    inner: Inner::Gated("mlp.gate_proj", "mlp.up_proj"),
    outer: "mlp.down_proj",
};

impl LlamaKind {
    /// The names of its tensors.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Phi3 => Names {
                inputs: Inputs::Fused("self_attn.qkv_proj"),
                inner: Inner::Fused("mlp.gate_up_proj"),
                ..LLAMA
            },
            Self::GptNeox => Names {
                body: "gpt_neox",
                table: "gpt_neox.embed_in.weight",
                norm: "final_layer_norm",
                head: "embed_out",
                inputs: Inputs::ByHead("attention.query_key_value"),
                output: "attention.dense",
                inner: Inner::Plain("mlp.dense_h_to_4h"),
                outer: "mlp.dense_4h_to_h",
            },
            Self::Opt => Names {
                body: "model.decoder",
                table: "model.decoder.embed_tokens.weight",
                norm: "final_layer_norm",
                output: "self_attn.out_proj",
                inner: Inner::Plain("fc1"),
                outer: "fc2",
                ..LLAMA
            },
            Self::Phi => Names {
                norm: "final_layernorm",
                output: "self_attn.dense",
                inner: Inner::Plain("mlp.fc1"),
                outer: "mlp.fc2",
                ..LLAMA
            },
            Self::Starcoder2 => Names { inner: Inner::Plain("mlp.c_fc"), outer: "mlp.c_proj", ..LLAMA },
            _ => LLAMA,
        }
    }
}

impl Names {
    /// A tensor of a body without its place, as embedders store them, with it.
    pub(crate) fn placed(&self, stored: &str) -> Option<String> {
        let inner = self.table.strip_prefix(self.body)?.strip_prefix('.')?;
        let is_norm = stored.strip_prefix(self.norm).is_some_and(|end| end.starts_with('.'));
        (stored == inner || stored.starts_with("layers.") || is_norm)
            .then(|| format!("{}.{stored}", self.body))
    }
}
