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

    /// Whether each part reads normalised states, and the last states are normalised.
    pub(crate) fn norms_first(self) -> bool {
        matches!(self, Self::RobertaPreLayerNorm | Self::XlmRobertaXl | Self::MegatronBert)
    }

    /// Whether the sum of embeddings is normalised.
    pub(crate) fn norms_embeddings(self) -> bool {
        !matches!(self, Self::XlmRobertaXl | Self::MegatronBert)
    }
}

/// The classes of `transformers`; of two for one family and task, the first is written.
pub(super) const CLASSES: &[(&str, BertFamily, BertTask)] = &[
    ("BertModel", BertFamily::Bert, BertTask::States),
    ("BertForSequenceClassification", BertFamily::Bert, BertTask::SequenceClassification),
    ("BertForTokenClassification", BertFamily::Bert, BertTask::TokenClassification),
    ("BertForQuestionAnswering", BertFamily::Bert, BertTask::Span),
    ("BertForMaskedLM", BertFamily::Bert, BertTask::MaskedLm),
    ("BertForPreTraining", BertFamily::Bert, BertTask::MaskedLm),
    ("RobertaModel", BertFamily::Roberta, BertTask::States),
    ("RobertaForSequenceClassification", BertFamily::Roberta, BertTask::SequenceClassification),
    ("RobertaForTokenClassification", BertFamily::Roberta, BertTask::TokenClassification),
    ("RobertaForQuestionAnswering", BertFamily::Roberta, BertTask::Span),
    ("RobertaForMaskedLM", BertFamily::Roberta, BertTask::MaskedLm),
    ("XLMRobertaModel", BertFamily::XlmRoberta, BertTask::States),
    ("XLMRobertaForSequenceClassification", BertFamily::XlmRoberta, BertTask::SequenceClassification),
    ("XLMRobertaForTokenClassification", BertFamily::XlmRoberta, BertTask::TokenClassification),
    ("XLMRobertaForQuestionAnswering", BertFamily::XlmRoberta, BertTask::Span),
    ("XLMRobertaForMaskedLM", BertFamily::XlmRoberta, BertTask::MaskedLm),
    ("DistilBertModel", BertFamily::DistilBert, BertTask::States),
    ("DistilBertForSequenceClassification", BertFamily::DistilBert, BertTask::SequenceClassification),
    ("DistilBertForTokenClassification", BertFamily::DistilBert, BertTask::TokenClassification),
    ("DistilBertForQuestionAnswering", BertFamily::DistilBert, BertTask::Span),
    ("DistilBertForMaskedLM", BertFamily::DistilBert, BertTask::MaskedLm),
    ("CamembertModel", BertFamily::Camembert, BertTask::States),
    ("CamembertForSequenceClassification", BertFamily::Camembert, BertTask::SequenceClassification),
    ("CamembertForTokenClassification", BertFamily::Camembert, BertTask::TokenClassification),
    ("CamembertForQuestionAnswering", BertFamily::Camembert, BertTask::Span),
    ("CamembertForMaskedLM", BertFamily::Camembert, BertTask::MaskedLm),
    ("MPNetModel", BertFamily::Mpnet, BertTask::States),
    ("MPNetForSequenceClassification", BertFamily::Mpnet, BertTask::SequenceClassification),
    ("MPNetForTokenClassification", BertFamily::Mpnet, BertTask::TokenClassification),
    ("MPNetForQuestionAnswering", BertFamily::Mpnet, BertTask::Span),
    ("MPNetForMaskedLM", BertFamily::Mpnet, BertTask::MaskedLm),
    ("ElectraModel", BertFamily::Electra, BertTask::States),
    ("ElectraForSequenceClassification", BertFamily::Electra, BertTask::SequenceClassification),
    ("ElectraForTokenClassification", BertFamily::Electra, BertTask::TokenClassification),
    ("ElectraForQuestionAnswering", BertFamily::Electra, BertTask::Span),
    ("ElectraForMaskedLM", BertFamily::Electra, BertTask::MaskedLm),
    ("ElectraForPreTraining", BertFamily::Electra, BertTask::States),
    ("AlbertModel", BertFamily::Albert, BertTask::States),
    ("AlbertForSequenceClassification", BertFamily::Albert, BertTask::SequenceClassification),
    ("AlbertForTokenClassification", BertFamily::Albert, BertTask::TokenClassification),
    ("AlbertForQuestionAnswering", BertFamily::Albert, BertTask::Span),
    ("AlbertForMaskedLM", BertFamily::Albert, BertTask::MaskedLm),
    ("AlbertForPreTraining", BertFamily::Albert, BertTask::MaskedLm),
    ("DebertaV2Model", BertFamily::Deberta, BertTask::States),
    ("DebertaV2ForSequenceClassification", BertFamily::Deberta, BertTask::SequenceClassification),
    ("DebertaV2ForTokenClassification", BertFamily::Deberta, BertTask::TokenClassification),
    ("DebertaV2ForQuestionAnswering", BertFamily::Deberta, BertTask::Span),
    ("DebertaV2ForMaskedLM", BertFamily::Deberta, BertTask::MaskedLm),
    ("DebertaModel", BertFamily::FirstDeberta, BertTask::States),
    ("DebertaForSequenceClassification", BertFamily::FirstDeberta, BertTask::SequenceClassification),
    ("DebertaForTokenClassification", BertFamily::FirstDeberta, BertTask::TokenClassification),
    ("DebertaForQuestionAnswering", BertFamily::FirstDeberta, BertTask::Span),
    ("DebertaForMaskedLM", BertFamily::FirstDeberta, BertTask::MaskedLm),
    ("BigBirdModel", BertFamily::BigBird, BertTask::States),
    ("BigBirdForSequenceClassification", BertFamily::BigBird, BertTask::SequenceClassification),
    ("BigBirdForTokenClassification", BertFamily::BigBird, BertTask::TokenClassification),
    ("BigBirdForMaskedLM", BertFamily::BigBird, BertTask::MaskedLm),
    ("BigBirdForPreTraining", BertFamily::BigBird, BertTask::MaskedLm),
    ("LongformerModel", BertFamily::Longformer, BertTask::States),
    ("LongformerForSequenceClassification", BertFamily::Longformer, BertTask::SequenceClassification),
    ("LongformerForTokenClassification", BertFamily::Longformer, BertTask::TokenClassification),
    ("LongformerForMaskedLM", BertFamily::Longformer, BertTask::MaskedLm),
    ("MobileBertModel", BertFamily::MobileBert, BertTask::States),
    ("MobileBertForSequenceClassification", BertFamily::MobileBert, BertTask::SequenceClassification),
    ("MobileBertForTokenClassification", BertFamily::MobileBert, BertTask::TokenClassification),
    ("MobileBertForQuestionAnswering", BertFamily::MobileBert, BertTask::Span),
    ("MobileBertForMaskedLM", BertFamily::MobileBert, BertTask::MaskedLm),
    ("MobileBertForPreTraining", BertFamily::MobileBert, BertTask::MaskedLm),
    ("ConvBertModel", BertFamily::ConvBert, BertTask::States),
    ("ConvBertForSequenceClassification", BertFamily::ConvBert, BertTask::SequenceClassification),
    ("ConvBertForTokenClassification", BertFamily::ConvBert, BertTask::TokenClassification),
    ("ConvBertForQuestionAnswering", BertFamily::ConvBert, BertTask::Span),
    ("ConvBertForMaskedLM", BertFamily::ConvBert, BertTask::MaskedLm),
    ("NystromformerModel", BertFamily::Nystromformer, BertTask::States),
    ("NystromformerForSequenceClassification", BertFamily::Nystromformer, BertTask::SequenceClassification),
    ("NystromformerForTokenClassification", BertFamily::Nystromformer, BertTask::TokenClassification),
    ("NystromformerForQuestionAnswering", BertFamily::Nystromformer, BertTask::Span),
    ("NystromformerForMaskedLM", BertFamily::Nystromformer, BertTask::MaskedLm),
    ("FNetModel", BertFamily::Fnet, BertTask::States),
    ("FNetForSequenceClassification", BertFamily::Fnet, BertTask::SequenceClassification),
    ("FNetForTokenClassification", BertFamily::Fnet, BertTask::TokenClassification),
    ("FNetForQuestionAnswering", BertFamily::Fnet, BertTask::Span),
    ("FNetForMaskedLM", BertFamily::Fnet, BertTask::MaskedLm),
    ("FNetForPreTraining", BertFamily::Fnet, BertTask::MaskedLm),
    ("XLNetModel", BertFamily::Xlnet, BertTask::States),
    // The order of tokens that it was trained to predict is not that of a text.
    ("XLNetLMHeadModel", BertFamily::Xlnet, BertTask::States),
    ("XLNetForSequenceClassification", BertFamily::Xlnet, BertTask::SequenceClassification),
    ("XLNetForTokenClassification", BertFamily::Xlnet, BertTask::TokenClassification),
    ("XLNetForQuestionAnsweringSimple", BertFamily::Xlnet, BertTask::Span),
    ("SqueezeBertModel", BertFamily::SqueezeBert, BertTask::States),
    ("SqueezeBertForSequenceClassification", BertFamily::SqueezeBert, BertTask::SequenceClassification),
    ("SqueezeBertForTokenClassification", BertFamily::SqueezeBert, BertTask::TokenClassification),
    ("SqueezeBertForQuestionAnswering", BertFamily::SqueezeBert, BertTask::Span),
    ("SqueezeBertForMaskedLM", BertFamily::SqueezeBert, BertTask::MaskedLm),
    ("ErnieModel", BertFamily::Ernie, BertTask::States),
    ("ErnieForSequenceClassification", BertFamily::Ernie, BertTask::SequenceClassification),
    ("ErnieForTokenClassification", BertFamily::Ernie, BertTask::TokenClassification),
    ("ErnieForQuestionAnswering", BertFamily::Ernie, BertTask::Span),
    ("ErnieForMaskedLM", BertFamily::Ernie, BertTask::MaskedLm),
    ("ErnieForPreTraining", BertFamily::Ernie, BertTask::MaskedLm),
    ("Data2VecTextModel", BertFamily::Data2VecText, BertTask::States),
    ("Data2VecTextForSequenceClassification", BertFamily::Data2VecText, BertTask::SequenceClassification),
    ("Data2VecTextForTokenClassification", BertFamily::Data2VecText, BertTask::TokenClassification),
    ("Data2VecTextForQuestionAnswering", BertFamily::Data2VecText, BertTask::Span),
    ("Data2VecTextForMaskedLM", BertFamily::Data2VecText, BertTask::MaskedLm),
    ("RobertaPreLayerNormModel", BertFamily::RobertaPreLayerNorm, BertTask::States),
    (
        "RobertaPreLayerNormForSequenceClassification",
        BertFamily::RobertaPreLayerNorm,
        BertTask::SequenceClassification,
    ),
    (
        "RobertaPreLayerNormForTokenClassification",
        BertFamily::RobertaPreLayerNorm,
        BertTask::TokenClassification,
    ),
    ("RobertaPreLayerNormForQuestionAnswering", BertFamily::RobertaPreLayerNorm, BertTask::Span),
    ("RobertaPreLayerNormForMaskedLM", BertFamily::RobertaPreLayerNorm, BertTask::MaskedLm),
    ("XLMRobertaXLModel", BertFamily::XlmRobertaXl, BertTask::States),
    ("XLMRobertaXLForSequenceClassification", BertFamily::XlmRobertaXl, BertTask::SequenceClassification),
    ("XLMRobertaXLForTokenClassification", BertFamily::XlmRobertaXl, BertTask::TokenClassification),
    ("XLMRobertaXLForQuestionAnswering", BertFamily::XlmRobertaXl, BertTask::Span),
    ("XLMRobertaXLForMaskedLM", BertFamily::XlmRobertaXl, BertTask::MaskedLm),
    ("MegatronBertModel", BertFamily::MegatronBert, BertTask::States),
    ("MegatronBertForSequenceClassification", BertFamily::MegatronBert, BertTask::SequenceClassification),
    ("MegatronBertForTokenClassification", BertFamily::MegatronBert, BertTask::TokenClassification),
    ("MegatronBertForQuestionAnswering", BertFamily::MegatronBert, BertTask::Span),
    ("MegatronBertForMaskedLM", BertFamily::MegatronBert, BertTask::MaskedLm),
    ("MegatronBertForPreTraining", BertFamily::MegatronBert, BertTask::MaskedLm),
    ("RemBertModel", BertFamily::RemBert, BertTask::States),
    ("RemBertForSequenceClassification", BertFamily::RemBert, BertTask::SequenceClassification),
    ("RemBertForTokenClassification", BertFamily::RemBert, BertTask::TokenClassification),
    ("RemBertForQuestionAnswering", BertFamily::RemBert, BertTask::Span),
    ("RemBertForMaskedLM", BertFamily::RemBert, BertTask::MaskedLm),
    ("RoFormerModel", BertFamily::RoFormer, BertTask::States),
    ("RoFormerForSequenceClassification", BertFamily::RoFormer, BertTask::SequenceClassification),
    ("RoFormerForTokenClassification", BertFamily::RoFormer, BertTask::TokenClassification),
    ("RoFormerForQuestionAnswering", BertFamily::RoFormer, BertTask::Span),
    ("RoFormerForMaskedLM", BertFamily::RoFormer, BertTask::MaskedLm),
    ("NomicBertModel", BertFamily::NomicBert, BertTask::States),
    ("NomicBertForSequenceClassification", BertFamily::NomicBert, BertTask::SequenceClassification),
    ("NomicBertForTokenClassification", BertFamily::NomicBert, BertTask::TokenClassification),
    ("NomicBertForMaskedLM", BertFamily::NomicBert, BertTask::MaskedLm),
    ("NomicBertForPreTraining", BertFamily::NomicBert, BertTask::MaskedLm),
    ("GteModel", BertFamily::Gte, BertTask::States),
    ("GteForSequenceClassification", BertFamily::Gte, BertTask::SequenceClassification),
    ("GteForTokenClassification", BertFamily::Gte, BertTask::TokenClassification),
    ("GteForMaskedLM", BertFamily::Gte, BertTask::MaskedLm),
    ("NewModel", BertFamily::New, BertTask::States),
    ("NewForSequenceClassification", BertFamily::New, BertTask::SequenceClassification),
    ("NewForTokenClassification", BertFamily::New, BertTask::TokenClassification),
    ("NewForMaskedLM", BertFamily::New, BertTask::MaskedLm),
    ("JinaEmbeddingsV3Model", BertFamily::JinaEmbeddingsV3, BertTask::States),
    (
        "JinaEmbeddingsV3ForSequenceClassification",
        BertFamily::JinaEmbeddingsV3,
        BertTask::SequenceClassification,
    ),
    ("JinaEmbeddingsV3ForTokenClassification", BertFamily::JinaEmbeddingsV3, BertTask::TokenClassification),
    ("JinaEmbeddingsV3ForQuestionAnswering", BertFamily::JinaEmbeddingsV3, BertTask::Span),
    ("JinaEmbeddingsV3ForMaskedLM", BertFamily::JinaEmbeddingsV3, BertTask::MaskedLm),
    ("XLMRobertaModel", BertFamily::JinaXlmRoberta, BertTask::States),
    ("XLMRobertaForSequenceClassification", BertFamily::JinaXlmRoberta, BertTask::SequenceClassification),
    ("XLMRobertaForTokenClassification", BertFamily::JinaXlmRoberta, BertTask::TokenClassification),
    ("XLMRobertaForQuestionAnswering", BertFamily::JinaXlmRoberta, BertTask::Span),
    ("XLMRobertaForMaskedLM", BertFamily::JinaXlmRoberta, BertTask::MaskedLm),
    ("JinaBertModel", BertFamily::JinaBert, BertTask::States),
    ("JinaBertForSequenceClassification", BertFamily::JinaBert, BertTask::SequenceClassification),
    ("JinaBertForTokenClassification", BertFamily::JinaBert, BertTask::TokenClassification),
    ("JinaBertForQuestionAnswering", BertFamily::JinaBert, BertTask::Span),
    ("JinaBertForMaskedLM", BertFamily::JinaBert, BertTask::MaskedLm),
    ("DPRQuestionEncoder", BertFamily::Dpr, BertTask::Question),
    ("DPRContextEncoder", BertFamily::Dpr, BertTask::Context),
    ("DPRReader", BertFamily::Dpr, BertTask::Reader),
];

/// The head that `architectures` names; a config without it describes a bare body, or nothing where it is DPR's.
pub(super) fn task(family: BertFamily, architectures: &[String]) -> Result<BertTask> {
    let classes = || CLASSES.iter().filter(|(_, of, _)| *of == family);
    let found = architectures.first();
    if found.is_none() && family != BertFamily::Dpr {
        return Ok(BertTask::States);
    }
    if let Some((_, _, task)) = classes().find(|(class, _, _)| found.is_some_and(|found| found == class)) {
        return Ok(*task);
    }
    let names: Vec<_> = classes().map(|(class, _, _)| format!("`{class}`")).collect();
    let found = found.map_or_else(|| "none".into(), |found| format!("`{found}`"));
    Err(wrong("architectures", &format!("one of {}", names.join(", ")), &found))
}
