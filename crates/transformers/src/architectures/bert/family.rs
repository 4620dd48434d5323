//! The families of encoders of BERT's shape, and their classes in `transformers`.

use sporran_checkpoint::Result;

use super::config::BertTask;
use crate::architectures::wrong::wrong;

/// The families of encoders that share one definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BertFamily {
    /// BERT (Devlin et al. 2019).
    Bert,
    /// RoBERTa (Liu et al. 2019): positions are counted from after the padding token's id, and one token type.
    Roberta,
    /// XLM-RoBERTa (Conneau et al. 2020): RoBERTa's body over another vocabulary.
    XlmRoberta,
    /// DistilBERT (Sanh et al. 2019): no token types.
    DistilBert,
    /// DPR (Karpukhin et al. 2020): BERT with DPR's heads.
    Dpr,
    /// CamemBERT (Martin et al. 2020): RoBERTa's body over another vocabulary.
    Camembert,
    /// MPNet (Song et al. 2020): RoBERTa's positions, no token types, and a bias for each bucket of distances.
    Mpnet,
    /// ELECTRA (Clark et al. 2020): embeddings that may be narrower than the states.
    Electra,
    /// ALBERT (Lan et al. 2020): narrow embeddings, and layers that share their weights.
    Albert,
    /// DeBERTa, version 1 (He et al. 2021): attention to contents and to distances.
    FirstDeberta,
    /// DeBERTa, versions 2 and 3 (He et al. 2021): attention to contents and to distances.
    Deberta,
    /// ERNIE (Sun et al. 2020): BERT, with an embedding of the task in some.
    Ernie,
    /// data2vec for text (Baevski et al. 2022): RoBERTa's body.
    Data2VecText,
    /// RoBERTa with norms before each part and at the end, as in fairseq (Wettig et al. 2023).
    RobertaPreLayerNorm,
    /// XLM-RoBERTa XL (Goyal et al. 2021): norms before each part and at the end, and none of the embeddings.
    XlmRobertaXl,
    /// Megatron's BERT (Shoeybi et al. 2019): norms as XLM-RoBERTa XL has them, and BERT's positions and types.
    MegatronBert,
    /// RemBERT (Chung et al. 2021): narrow embeddings, and a wide table of its own in the head over the vocabulary.
    RemBert,
    /// RoFormer (Su et al. 2021): rotary positions, and embeddings that may be narrower than the states.
    RoFormer,
    /// NomicBERT (Nussbaum et al. 2024): rotary positions, gated feed-forward parts, and no biases in layers.
    NomicBert,
    /// GTE (Zhang et al. 2024): rotary positions, and gated feed-forward parts.
    Gte,
    /// Alibaba's GTE as its own code has it: [`Gte`](Self::Gte), whose angles may be stretched.
    New,
    /// Jina's embeddings, version 3 (Sturua et al. 2024): XLM-RoBERTa with rotary positions.
    JinaEmbeddingsV3,
    /// XLM-RoBERTa as Jina's own code has it, in its second multilingual reranker: other names of the tensors.
    JinaXlmRoberta,
    /// BigBird (Zaheer et al. 2020) with complete attention.
    BigBird,
    /// Longformer (Beltagy et al. 2020): RoBERTa that attends to a window. Where the whole input is labelled, the first
    /// token attends to all others by projections of its own, and all attend to it.
    Longformer,
    /// MobileBERT (Sun et al. 2020): layers that work on narrow states between wide ones.
    MobileBert,
    /// ConvBERT (Jiang et al. 2020).
    ConvBert,
    /// Nyströmformer (Xiong et al. 2021), with complete attention.
    Nystromformer,
    /// FNet (Lee-Thorp et al. 2021).
    Fnet,
    /// XLNet (Yang et al. 2019), as an encoder of whole inputs.
    Xlnet,
    /// SqueezeBERT (Iandola et al. 2020): BERT whose layers read groups of values.
    SqueezeBert,
    /// I-BERT (Kim et al. 2021) with plain numbers, which is RoBERTa.
    IBert,
    /// LUKE (Yamada et al. 2020) without entities: RoBERTa's body.
    Luke,
    /// X-MOD (Pfeiffer et al. 2022): RoBERTa's body with adapters of one language.
    Xmod,
    /// JinaBERT (Günther et al. 2023), of Jina's embeddings, version 2: biases of distances, and gated feed-forward parts.
    JinaBert,
}

impl BertFamily {
    /// Whether positions are counted from after the padding token's id.
    pub(crate) fn counts_from_padding(self) -> bool {
        matches!(
            self,
            Self::Roberta
                | Self::XlmRoberta
                | Self::Camembert
                | Self::Mpnet
                | Self::Data2VecText
                | Self::RobertaPreLayerNorm
                | Self::XlmRobertaXl
                | Self::JinaXlmRoberta
                | Self::Longformer
                | Self::IBert
                | Self::Luke
                | Self::Xmod
        )
    }

    /// Whether queries and keys read embeddings of the distances between them.
    pub(crate) fn reads_distances(self) -> bool {
        matches!(self, Self::Deberta | Self::FirstDeberta)
    }

    /// Whether queries and keys are turned by their positions.
    pub(crate) fn is_rotary(self) -> bool {
        matches!(self, Self::RoFormer | Self::NomicBert | Self::Gte | Self::New | Self::JinaEmbeddingsV3)
    }

    /// Whether the two of a pair that is turned together lie side by side, and not half a head apart.
    pub(crate) fn turns_neighbours(self) -> bool {
        self == Self::RoFormer
    }

    /// Whether the projections of attention have biases.
    pub(crate) fn attention_has_bias(self) -> bool {
        self != Self::NomicBert
    }

    /// Whether the layers of the feed-forward part have biases, the first ones and the last.
    pub(crate) fn feed_forward_biases(self) -> (bool, bool) {
        match self {
            Self::NomicBert => (false, false),
            Self::Gte | Self::New | Self::JinaBert => (false, true),
            _ => (true, true),
        }
    }

    /// Whether the sum of embeddings is normalised.
    pub(crate) fn norms_embeddings(self) -> bool {
        !matches!(self, Self::XlmRobertaXl | Self::MegatronBert)
    }
}

/// How configs and checkpoints of a family name its parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct FamilyNames {
    /// The `model_type`.
    pub(super) model_type: &'static str,
    /// The prefix of the body's tensors in a model with a head.
    pub(super) prefix: &'static str,
    /// The prefixes that checkpoints have there.
    pub(super) prefixes: &'static [&'static str],
    /// The table of embeddings in a model with a head.
    pub(super) table: &'static str,
    /// The head over the vocabulary.
    pub(super) vocabulary_head: VocabularyHead,
    /// The classes of `transformers`; of two for one task, the first is written.
    pub(super) classes: &'static [(&'static str, BertTask)],
}

/// The names of a head over the vocabulary.
#[derive(Debug, Clone, Copy)]
pub(super) struct VocabularyHead {
    /// What the names of its tensors begin with.
    pub(super) start: &'static str,
    /// The tensor that may be the table of embeddings.
    pub(super) table: &'static str,
}

const CLS_PREDICTIONS: VocabularyHead =
    VocabularyHead { start: "cls.predictions.", table: "cls.predictions.decoder.weight" };
const LM_HEAD: VocabularyHead = VocabularyHead { start: "lm_head.", table: "lm_head.decoder.weight" };
const LM_LOSS: VocabularyHead = VocabularyHead { start: "lm_loss.", table: "lm_loss.weight" };
const PROJECTOR: VocabularyHead =
    VocabularyHead { start: "vocab_transform.", table: "vocab_projector.weight" };
const GENERATOR: VocabularyHead =
    VocabularyHead { start: "generator_predictions.", table: "generator_lm_head.weight" };
const PREDICTIONS: VocabularyHead =
    VocabularyHead { start: "predictions.", table: "predictions.decoder.weight" };

/// The prefixes of the first families, whose bodies have the names of BERT's.
const FIRST: &[&str] = &["bert", "roberta", "distilbert"];

/// The class of a task: its name begins with the family's.
macro_rules! class {
    ($name:literal, States) => {
        (concat!($name, "Model"), BertTask::States)
    };
    ($name:literal, SequenceClassification) => {
        (concat!($name, "ForSequenceClassification"), BertTask::SequenceClassification)
    };
    ($name:literal, TokenClassification) => {
        (concat!($name, "ForTokenClassification"), BertTask::TokenClassification)
    };
    ($name:literal, Span) => {
        (concat!($name, "ForQuestionAnswering"), BertTask::Span)
    };
    ($name:literal, MaskedLm) => {
        (concat!($name, "ForMaskedLM"), BertTask::MaskedLm)
    };
    ($name:literal, Discriminator) => {
        (concat!($name, "ForPreTraining"), BertTask::States)
    };
    ($name:literal, PreTraining) => {
        (concat!($name, "ForPreTraining"), BertTask::MaskedLm)
    };
}

/// The classes of a family: those of the usual tasks, and further ones.
macro_rules! classes {
    ($name:literal, all $(, $further:ident)*) => {
        classes!($name: States, SequenceClassification, TokenClassification, Span, MaskedLm $(, $further)*)
    };
    ($name:literal, all but spans $(, $further:ident)*) => {
        classes!($name: States, SequenceClassification, TokenClassification, MaskedLm $(, $further)*)
    };
    ($name:literal: $($task:ident),*) => {
        &[$(class!($name, $task)),*]
    };
}

macro_rules! names {
    ($model_type:literal, $prefix:literal, $prefixes:expr, $head:expr, $classes:expr) => {
        FamilyNames {
            model_type: $model_type,
            prefix: $prefix,
            prefixes: $prefixes,
            table: concat!($prefix, ".embeddings.word_embeddings.weight"),
            vocabulary_head: $head,
            classes: $classes,
        }
    };
}

impl BertFamily {
    /// The names of the family.
    pub(super) fn naming(self) -> FamilyNames {
        use BertTask::{
            Context, Question, Reader, SequenceClassification, Span, States, TokenClassification,
        };
        match self {
            Self::Bert => names!("bert", "bert", FIRST, CLS_PREDICTIONS, classes!("Bert", all, PreTraining)),
            Self::Roberta => names!("roberta", "roberta", FIRST, LM_HEAD, classes!("Roberta", all)),
            Self::XlmRoberta => names!("xlm-roberta", "roberta", FIRST, LM_HEAD, classes!("XLMRoberta", all)),
            Self::DistilBert => {
                names!("distilbert", "distilbert", FIRST, PROJECTOR, classes!("DistilBert", all))
            }
            Self::Dpr => names!(
                "dpr",
                "bert",
                FIRST,
                CLS_PREDICTIONS,
                &[("DPRQuestionEncoder", Question), ("DPRContextEncoder", Context), ("DPRReader", Reader)]
            ),
            Self::Camembert => names!("camembert", "roberta", FIRST, LM_HEAD, classes!("Camembert", all)),
            Self::Mpnet => names!("mpnet", "mpnet", &["mpnet"], LM_HEAD, classes!("MPNet", all)),
            Self::Electra => {
                names!("electra", "electra", &["electra"], GENERATOR, classes!("Electra", all, Discriminator))
            }
            Self::Albert => {
                names!("albert", "albert", &["albert"], PREDICTIONS, classes!("Albert", all, PreTraining))
            }
            Self::FirstDeberta => {
                names!("deberta", "deberta", &["deberta"], CLS_PREDICTIONS, classes!("Deberta", all))
            }
            Self::Deberta => {
                names!("deberta-v2", "deberta", &["deberta"], CLS_PREDICTIONS, classes!("DebertaV2", all))
            }
            Self::Ernie => {
                names!("ernie", "ernie", &["ernie"], CLS_PREDICTIONS, classes!("Ernie", all, PreTraining))
            }
            Self::Data2VecText => names!(
                "data2vec-text",
                "data2vec_text",
                &["data2vec_text"],
                LM_HEAD,
                classes!("Data2VecText", all)
            ),
            Self::RobertaPreLayerNorm => names!(
                "roberta-prelayernorm",
                "roberta_prelayernorm",
                &["roberta_prelayernorm"],
                LM_HEAD,
                classes!("RobertaPreLayerNorm", all)
            ),
            Self::XlmRobertaXl => {
                names!("xlm-roberta-xl", "roberta", FIRST, LM_HEAD, classes!("XLMRobertaXL", all))
            }
            Self::MegatronBert => names!(
                "megatron-bert",
                "bert",
                FIRST,
                CLS_PREDICTIONS,
                classes!("MegatronBert", all, PreTraining)
            ),
            Self::RemBert => {
                names!("rembert", "rembert", &["rembert"], CLS_PREDICTIONS, classes!("RemBert", all))
            }
            Self::RoFormer => {
                names!("roformer", "roformer", &["roformer"], CLS_PREDICTIONS, classes!("RoFormer", all))
            }
            Self::NomicBert => names!(
                "nomic_bert",
                "nomic_bert",
                &["nomic_bert", "bert"],
                CLS_PREDICTIONS,
                classes!("NomicBert", all but spans, PreTraining)
            ),
            Self::Gte => names!("gte", "gte", &["gte", "new"], LM_HEAD, classes!("Gte", all but spans)),
            Self::New => names!("new", "new", &["new", "gte"], LM_HEAD, classes!("New", all but spans)),
            Self::JinaEmbeddingsV3 => {
                names!("jina_embeddings_v3", "roberta", FIRST, LM_HEAD, classes!("JinaEmbeddingsV3", all))
            }
            Self::JinaXlmRoberta => {
                names!("xlm-roberta", "roberta", FIRST, LM_HEAD, classes!("XLMRoberta", all))
            }
            Self::BigBird => names!(
                "big_bird",
                "bert",
                FIRST,
                CLS_PREDICTIONS,
                classes!("BigBird", all but spans, PreTraining)
            ),
            Self::Longformer => names!(
                "longformer",
                "longformer",
                &["longformer"],
                LM_HEAD,
                classes!("Longformer", all but spans)
            ),
            Self::MobileBert => names!(
                "mobilebert",
                "mobilebert",
                &["mobilebert"],
                CLS_PREDICTIONS,
                classes!("MobileBert", all, PreTraining)
            ),
            Self::ConvBert => {
                names!("convbert", "convbert", &["convbert"], GENERATOR, classes!("ConvBert", all))
            }
            Self::Nystromformer => names!(
                "nystromformer",
                "nystromformer",
                &["nystromformer"],
                CLS_PREDICTIONS,
                classes!("Nystromformer", all)
            ),
            Self::Fnet => {
                names!("fnet", "fnet", &["fnet"], CLS_PREDICTIONS, classes!("FNet", all, PreTraining))
            }
            // The order of tokens that `XLNetLMHeadModel` was trained to predict is not that of a text.
            Self::Xlnet => FamilyNames {
                table: "transformer.word_embedding.weight",
                ..names!(
                    "xlnet",
                    "transformer",
                    &["transformer"],
                    LM_LOSS,
                    &[
                        ("XLNetModel", States),
                        ("XLNetLMHeadModel", States),
                        ("XLNetForSequenceClassification", SequenceClassification),
                        ("XLNetForTokenClassification", TokenClassification),
                        ("XLNetForQuestionAnsweringSimple", Span),
                    ]
                )
            },
            Self::SqueezeBert => names!(
                "squeezebert",
                "transformer",
                &["transformer"],
                CLS_PREDICTIONS,
                classes!("SqueezeBert", all)
            ),
            Self::IBert => names!("ibert", "ibert", &["ibert"], LM_HEAD, classes!("IBert", all)),
            Self::Luke => names!("luke", "luke", &["luke"], LM_HEAD, classes!("Luke", all)),
            Self::Xmod => names!("xmod", "roberta", FIRST, LM_HEAD, classes!("Xmod", all)),
            Self::JinaBert => names!("bert", "bert", FIRST, CLS_PREDICTIONS, classes!("JinaBert", all)),
        }
    }
}

/// The head that `architectures` names; a config without it describes a bare body, or nothing where it is DPR's.
pub(super) fn task(family: BertFamily, architectures: &[String]) -> Result<BertTask> {
    let classes = family.naming().classes;
    let found = architectures.first();
    if found.is_none() && family != BertFamily::Dpr {
        return Ok(BertTask::States);
    }
    if let Some((_, task)) = classes.iter().find(|(class, _)| found.is_some_and(|found| found == class)) {
        return Ok(*task);
    }
    let names: Vec<_> = classes.iter().map(|(class, _)| format!("`{class}`")).collect();
    let found = found.map_or_else(|| "none".into(), |found| format!("`{found}`"));
    Err(wrong("architectures", &format!("one of {}", names.join(", ")), &found))
}
