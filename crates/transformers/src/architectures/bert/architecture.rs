//! The configs of encoders as architectures of checkpoints: tensors, names and classes.

use serde_json::{Value, json};
use sporran_checkpoint::{Architecture, Embedding, Parameter, Result, parameters};

use super::{
    config::{BertConfig, BertTask, FamilySettings, HeadFields},
    family::{BertFamily, FamilyNames},
    fields::{BertFields, DistilFields},
    with_head::{BertModel, EncoderModel},
    xlnet::XlnetFields,
};

impl Architecture for BertConfig {
    fn model_type(&self) -> &'static str {
        self.family.naming().model_type
    }

    fn class(&self) -> &'static str {
        let class = self.family.naming().classes.iter().find(|(_, task)| *task == self.task);
        class.map_or("", |(class, _)| class)
    }

    fn validate(&self) -> Result<()> {
        self.check()
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        match self.own {
            FamilySettings::Sharing(sharing) => {
                vec![("num_hidden_groups", sharing.groups), ("inner_group_num", sharing.inner)]
            }
            _ => vec![("num_hidden_layers", self.num_hidden_layers)],
        }
    }

    fn fields(&self) -> Value {
        let mut value = if self.family == BertFamily::DistilBert {
            json!(DistilFields::of(self))
        } else if self.family == BertFamily::Xlnet {
            json!(XlnetFields::of(self))
        } else {
            BertFields::json(self)
        };
        if let Value::Object(fields) = &mut value {
            HeadFields::write(&self.labels, fields);
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        match self.is_apart() {
            true => parameters(|vb| EncoderModel::apart(self, vb)),
            false => parameters(|vb| BertModel::new(self, vb)),
        }
    }

    /// Checkpoints write the body with or without the prefix of its family, the first ones of BERT call scale and
    /// shift of a normalisation gamma and beta, and some have the bias of a vocabulary's head under a second name.
    fn canonical(&self, stored: &str) -> String {
        let name = match stored.rsplit_once('.') {
            Some((module, "gamma")) => format!("{module}.weight"),
            Some((module, "beta")) => format!("{module}.bias"),
            _ => stored.to_string(),
        };
        match name.as_str() {
            "cls.predictions.decoder.bias" if self.family != BertFamily::RemBert => {
                return "cls.predictions.bias".into();
            }
            "lm_head.decoder.bias" if !matches!(self.family, BertFamily::Gte | BertFamily::New) => {
                return "lm_head.bias".into();
            }
            "predictions.decoder.bias" => return "predictions.bias".into(),
            _ => {}
        }
        let prefixes = self.family.naming().prefixes;
        let bare = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix('.'));
        // DeBERTa's pooler is a part of its head.
        if self.family.reads_distances() && name.starts_with("pooler.") {
            return name;
        }
        let bare = bare.unwrap_or(&name);
        let body: &[&str] = match self.family {
            BertFamily::Xlnet => &["word_embedding.", "mask_emb", "layer."],
            _ => &BODY_PARTS,
        };
        if !body.iter().any(|part| bare.starts_with(part)) {
            return name;
        }
        match self.prefix() {
            "" => bare.to_string(),
            prefix => format!("{prefix}.{bare}"),
        }
    }

    fn embedding(&self) -> Option<Embedding> {
        if !self.tied() {
            return None;
        }
        let FamilyNames { table, vocabulary_head, .. } = self.family.naming();
        Some(Embedding { name: table, others: &[], tied_head: Some(vocabulary_head.table) })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn adapt_to_weights(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        let start = self.family.naming().vocabulary_head.start;
        let is_missing = self.task == BertTask::MaskedLm && !has(start);
        if is_missing {
            self.task = BertTask::States;
        }
        is_missing
    }

    /// BERT's pooler where the head reads states, the heads of pre-training, the numbers of the positions, and the head
    /// of pairs, which is opened apart.
    fn is_ignorable(&self, name: &str) -> bool {
        let heads: &[&str] = match self.family {
            BertFamily::Electra => &["discriminator_predictions."],
            BertFamily::Albert => &["sop_classifier.", "pooler.", "albert.pooler."],
            BertFamily::BigBird => &["pooler.", "bert.pooler."],
            BertFamily::Luke => &["entity_embeddings.", "luke.entity_embeddings.", "entity_predictions."],
            // The state of hidden tokens, and what their words are read with.
            BertFamily::Xlnet => &["lm_loss.", "mask_emb", "transformer.mask_emb"],
            BertFamily::Deberta | BertFamily::FirstDeberta => {
                &["lm_predictions.", "mask_predictions.", "deberta.embeddings.position_embeddings."]
            }
            _ => &[],
        };
        heads.iter().any(|head| name.starts_with(head))
            || name.starts_with("cls.seq_relationship.")
            || EXTRA_HEADS.iter().any(|head| name.starts_with(head))
            || name.ends_with("embeddings.position_ids")
            || name.ends_with("embeddings.token_type_ids")
            || (self.rotary().is_some() && name.ends_with("inv_freq"))
            // The sines and cosines of positions.
            || (self.family == BertFamily::RoFormer && name.ends_with("encoder.embed_positions.weight"))
            || name.contains("pooler.dense.")
            // Those of tokens that attend to everything, where there are none.
            || (self.family == BertFamily::Longformer && name.contains("_global."))
            // The queries of words and entities to each other.
            || (self.family == BertFamily::Luke && ENTITY_QUERIES.iter().any(|query| name.contains(query)))
            // The adapters of other languages.
            || (self.family == BertFamily::Xmod && name.contains(".adapter_modules."))
            // Of numbers of 8 bits, which are not computed with.
            || (self.family == BertFamily::IBert && OF_INTEGERS.iter().any(|end| name.ends_with(end)))
    }
}

/// The first parts of the names of a body's tensors.
const BODY_PARTS: [&str; 7] = [
    "embeddings.",
    "embeddings_project.",
    "encoder.",
    "transformer.layer.",
    "pooler.",
    "LayerNorm.",
    "emb_ln.",
];

/// The projections of LUKE's attention between words and entities.
const ENTITY_QUERIES: [&str; 3] = [".w2e_query.", ".e2w_query.", ".e2e_query."];

/// The ends of the names of I-BERT's tensors for numbers of 8 bits.
const OF_INTEGERS: [&str; 5] = ["_integer", "_scaling_factor", ".x_min", ".x_max", ".LayerNorm.shift"];

/// The tensor name prefixes of heads that this project stores in an encoder's checkpoint: for pairs of marked positions,
/// for a document's entities, for questions over a knowledge base.
const EXTRA_HEADS: [&str; 3] = ["pair_head.", "entity_head.", "question."];
