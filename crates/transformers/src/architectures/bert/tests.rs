use std::path::Path;

use super::{BertConfig, BertFamily, BertTask, config::FamilySettings};
use crate::architectures::ModelConfig;
use sporran_checkpoint::Architecture;

fn read(family: BertFamily, text: &str) -> sporran_checkpoint::Result<BertConfig> {
    BertConfig::from_json(family, Path::new("config.json"), text)
}

#[test]
fn the_architecture_names_the_head() {
    let task = |family, name: &str| read(family, &format!(r#"{{"architectures": ["{name}"]}}"#));
    let bert = task(BertFamily::Bert, "BertForPreTraining").unwrap();
    assert_eq!(bert.task, BertTask::MaskedLm);
    assert_eq!(read(BertFamily::Bert, "{}").unwrap().task, BertTask::States);
    let xlm = task(BertFamily::XlmRoberta, "XLMRobertaForSequenceClassification").unwrap();
    assert_eq!(xlm.task, BertTask::SequenceClassification);
    let error = task(BertFamily::Dpr, "DPRModel").unwrap_err().to_string();
    let expected = "config.json: field `architectures`: expected one of `DPRQuestionEncoder`, \
                    `DPRContextEncoder`, `DPRReader`, found `DPRModel`";
    assert_eq!(error, expected);
    assert!(read(BertFamily::Dpr, "{}").is_err());
}

#[test]
fn positions_of_roberta_begin_after_the_padding_token() {
    let config = read(BertFamily::Roberta, r#"{"max_position_embeddings": 514}"#).unwrap();
    assert_eq!((config.first_position(), config.max_input_length()), (2, 512));
    let error = read(BertFamily::Roberta, r#"{"max_position_embeddings": 2}"#).unwrap_err().to_string();
    assert!(error.contains("expected more than 2, found 2"), "{error}");
}

#[test]
fn an_id_below_zero_names_no_padding_token() {
    let text = r#"{"pad_token_id": -1, "eos_token_id": [1, -1]}"#;
    for family in [BertFamily::Bert, BertFamily::DistilBert] {
        assert_eq!(read(family, text).unwrap().pad_token_id, 0);
    }
    let error = read(BertFamily::Roberta, text).unwrap_err().to_string();
    assert!(error.contains("field `pad_token_id`") && error.ends_with("found -1"), "{error}");
}

#[test]
fn settings_of_one_family_are_refused_by_name() {
    for (family, field, text) in [
        (BertFamily::IBert, "quant_mode", r#"{"quant_mode": true}"#),
        (BertFamily::IBert, "hidden_act", r#"{"hidden_act": "relu"}"#),
        (BertFamily::Xmod, "default_language", r#"{"languages": ["en_XX", "de_DE"]}"#),
        (BertFamily::Xmod, "default_language", r#"{"default_language": "de_DE"}"#),
        (BertFamily::Xmod, "adapter_reduction_factor", r#"{"adapter_reduction_factor": 0}"#),
        (BertFamily::Xmod, "adapter_reduction_factor", r#"{"adapter_reduction_factor": 1000}"#),
    ] {
        let error = read(family, text).unwrap_err().to_string();
        assert!(error.contains(&format!("field `{field}`: expected")), "{error}");
    }
    let only = read(BertFamily::Xmod, r#"{"languages": ["de_DE"]}"#).unwrap();
    assert_eq!(only.adapters().unwrap().language, "de_DE");
    assert_eq!(only.adapters().unwrap().inner(768), 384);
}

#[test]
fn what_is_not_supported_is_refused() {
    for text in [
        r#"{"position_embedding_type": "relative_key"}"#,
        r#"{"is_decoder": true}"#,
        r#"{"hidden_act": "prelu"}"#,
        r#"{"num_attention_heads": 5}"#,
        r#"{"id2label": {}}"#,
    ] {
        assert!(
            matches!(read(BertFamily::Bert, text), Err(sporran_checkpoint::Error::Config { .. })),
            "{text}"
        );
    }
}

#[test]
fn every_family_has_the_defaults_of_its_class_in_transformers() {
    let sizes = |family| {
        let config = read(family, "{}").unwrap();
        (config.vocab_size, config.hidden_size, config.num_attention_heads, config.pad_token_id)
    };
    assert_eq!(sizes(BertFamily::Camembert), (30522, 768, 12, 1));
    assert_eq!(sizes(BertFamily::Mpnet), (30527, 768, 12, 1));
    assert_eq!(sizes(BertFamily::Electra), (30522, 256, 4, 0));
    assert_eq!(sizes(BertFamily::Albert), (30000, 4096, 64, 0));
    assert_eq!(sizes(BertFamily::Deberta), (128_100, 1536, 24, 0));
    assert_eq!(sizes(BertFamily::FirstDeberta), (50_265, 768, 12, 0));
    assert_eq!(sizes(BertFamily::BigBird), (50_358, 768, 12, 0));
    assert_eq!(sizes(BertFamily::Longformer), (30522, 768, 12, 1));
    assert_eq!(read(BertFamily::Longformer, "{}").unwrap().windows(), [256; 12]);
    let most = |text: &str| read(BertFamily::BigBird, text).unwrap().max_input_length();
    assert_eq!((most("{}"), most(r#"{"attention_type": "original_full"}"#)), (704, 4096));
    let electra = read(BertFamily::Electra, "{}").unwrap();
    assert_eq!((electra.embedding_size, electra.intermediate_size), (Some(128), 1024));
    let albert = read(BertFamily::Albert, r#"{"hidden_size": 128}"#).unwrap();
    assert_eq!((albert.embedding_size, albert.hidden_act.as_str()), (Some(128), "gelu_new"));
    assert_eq!((albert.head_dropout, albert.hidden_dropout_prob), (0.1, 0.0));
    assert_eq!(sizes(BertFamily::Ernie), (30522, 768, 12, 0));
    assert_eq!(sizes(BertFamily::Data2VecText), (30522, 768, 12, 1));
    assert_eq!(sizes(BertFamily::RobertaPreLayerNorm), (50265, 768, 12, 1));
    assert_eq!(sizes(BertFamily::XlmRobertaXl), (250_880, 2560, 32, 1));
    assert_eq!(sizes(BertFamily::MegatronBert), (29056, 1024, 16, 0));
    assert_eq!(sizes(BertFamily::RemBert), (250_300, 1152, 18, 0));
    assert_eq!(sizes(BertFamily::NomicBert), (30528, 768, 12, 0));
    assert_eq!(sizes(BertFamily::Gte), (250_048, 768, 12, 1));
    assert_eq!(sizes(BertFamily::JinaEmbeddingsV3), (250_002, 1024, 16, 1));
    let theta = |family| read(family, "{}").unwrap().rotary().map(|rotary| rotary.theta);
    assert_eq!(theta(BertFamily::NomicBert), Some(1000.0));
    assert_eq!(theta(BertFamily::Gte), Some(160_000.0));
    assert_eq!(theta(BertFamily::JinaEmbeddingsV3), Some(20_000.0));
    assert_eq!(read(BertFamily::Gte, r#"{"rope_theta": 7}"#).unwrap().rotary().unwrap().theta, 7.0);
    let rembert = read(BertFamily::RemBert, "{}").unwrap();
    assert_eq!((rembert.embedding_size, &rembert.own), (Some(256), &FamilySettings::OutputEmbedding(1664)));
    assert_eq!((rembert.head_dropout, rembert.hidden_dropout_prob), (0.1, 0.0));
    assert!(!rembert.tie_word_embeddings);
    let task_types = |text: &str| read(BertFamily::Ernie, text).unwrap().task_types();
    assert_eq!((task_types("{}"), task_types(r#"{"use_task_id": true}"#)), (0, 3));
    let deberta = read(BertFamily::Deberta, "{}").unwrap();
    assert!(!deberta.has_types() && deberta.has_positions() && !deberta.takes_types());
    assert_eq!(deberta.layer_norm_eps, 1e-7);
}

#[test]
fn the_default_is_that_of_an_empty_config() {
    assert_eq!(BertConfig::default(), read(BertFamily::Bert, "{}").unwrap());
}

#[test]
fn groups_of_layers_follow_each_other() {
    let order = |text: &str| read(BertFamily::Albert, text).unwrap().order();
    let text = r#"{"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2}"#;
    // Layers 0 to 2 are of group 0, since 2 / 2.5 is below 1.
    assert_eq!(order(text), [0, 1, 0, 1, 0, 1, 2, 3, 2, 3]);
    assert_eq!(order(r#"{"num_hidden_layers": 3}"#), [0, 0, 0]);
    let error = |text: &str| read(BertFamily::Albert, text).unwrap_err().to_string();
    assert!(error(r#"{"num_hidden_groups": 13}"#).contains("field `num_hidden_groups`"));
    assert!(error(r#"{"num_hidden_layers": 1001}"#).contains("at most 1000 layers that share weights"));
}

#[test]
fn settings_of_one_family_are_checked() {
    for (family, text, field) in [
        (BertFamily::Mpnet, r#"{"pad_token_id": 0}"#, "pad_token_id"),
        (BertFamily::Mpnet, r#"{"relative_attention_num_buckets": 16}"#, "relative_attention_num_buckets"),
        (BertFamily::Electra, r#"{"embedding_size": 0}"#, "embedding_size"),
        (BertFamily::Deberta, r#"{"conv_kernel_size": 4}"#, "conv_kernel_size"),
        (BertFamily::Deberta, r#"{"pooler_hidden_act": "prelu"}"#, "pooler_hidden_act"),
        (BertFamily::Deberta, r#"{"legacy": false, "architectures": ["DebertaV2ForMaskedLM"]}"#, "legacy"),
        (BertFamily::Deberta, r#"{"position_buckets": 1}"#, "position_buckets"),
        (BertFamily::Camembert, r#"{"hidden_act": "prelu"}"#, "hidden_act"),
        (BertFamily::FirstDeberta, r#"{"talking_head": true}"#, "talking_head"),
        (BertFamily::BigBird, r#"{"rescale_embeddings": true}"#, "rescale_embeddings"),
        (BertFamily::BigBird, r#"{"use_bias": false}"#, "use_bias"),
        (BertFamily::Longformer, r#"{"attention_window": 7}"#, "attention_window"),
        (BertFamily::ConvBert, r#"{"head_ratio": 0}"#, "head_ratio"),
        (BertFamily::ConvBert, r#"{"conv_kernel_size": 8}"#, "conv_kernel_size"),
        (BertFamily::ConvBert, r#"{"num_groups": 5}"#, "num_groups"),
        (BertFamily::ConvBert, r#"{"hidden_size": 12, "head_ratio": 1}"#, "hidden_size"),
        (BertFamily::Nystromformer, r#"{"num_landmarks": 32}"#, "num_landmarks"),
        (BertFamily::Nystromformer, r#"{"conv_kernel_size": 64}"#, "conv_kernel_size"),
        (BertFamily::Fnet, r#"{"use_tpu_fourier_optimizations": true}"#, "use_tpu_fourier_optimizations"),
        (BertFamily::Xlnet, r#"{"attn_type": "uni"}"#, "attn_type"),
        (BertFamily::Xlnet, r#"{"bi_data": true}"#, "bi_data"),
        (BertFamily::Xlnet, r#"{"clamp_len": 9}"#, "clamp_len"),
        (BertFamily::Xlnet, r#"{"d_head": 9}"#, "d_head"),
        (
            BertFamily::Xlnet,
            r#"{"summary_type": "mean", "architectures": ["XLNetForSequenceClassification"]}"#,
            "summary_type",
        ),
        (BertFamily::MobileBert, r#"{"trigram_input": false}"#, "trigram_input"),
        (BertFamily::MobileBert, r#"{"use_bottleneck_attention": true}"#, "use_bottleneck_attention"),
        (BertFamily::MobileBert, r#"{"normalization_type": "layer_norm"}"#, "normalization_type"),
        (BertFamily::MobileBert, r#"{"num_feedforward_networks": 0}"#, "num_feedforward_networks"),
        (BertFamily::MobileBert, r#"{"intra_bottleneck_size": 30}"#, "intra_bottleneck_size"),
        (BertFamily::SqueezeBert, r#"{"output_groups": 5}"#, "output_groups"),
        (BertFamily::SqueezeBert, r#"{"q_groups": 0}"#, "q_groups"),
        (BertFamily::SqueezeBert, r#"{"embedding_size": 128}"#, "embedding_size"),
        (BertFamily::SqueezeBert, r#"{"layer_norm_eps": 1e-5}"#, "layer_norm_eps"),
        (BertFamily::Longformer, r#"{"attention_window": [8, 8]}"#, "attention_window"),
        (BertFamily::Longformer, r#"{"architectures": ["LongformerForQuestionAnswering"]}"#, "architectures"),
        (BertFamily::Gte, r#"{"rope_scaling": {"type": "ntk", "factor": 8}}"#, "rope_scaling"),
        (BertFamily::NomicBert, r#"{"head_dim": 32}"#, "head_dim"),
        (BertFamily::JinaEmbeddingsV3, r#"{"rope_parameters": {"rope_theta": 0}}"#, "rope_theta"),
    ] {
        let error = read(family, text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("config.json: field `{field}`")), "{error}");
    }
}

#[test]
fn a_written_config_is_read_back() {
    for (family, text) in [
        (BertFamily::Bert, r#"{"id2label": {"0": "no", "1": "yes", "2": "maybe"}, "pad_token_id": 3}"#),
        (
            BertFamily::DistilBert,
            r#"{"dim": 24, "n_heads": 2, "qa_dropout": 0.3, "architectures":
            ["DistilBertForQuestionAnswering"]}"#,
        ),
        (BertFamily::Dpr, r#"{"projection_dim": 5, "architectures": ["DPRContextEncoder"]}"#),
        (BertFamily::Camembert, r#"{"classifier_dropout": 0.3}"#),
        (BertFamily::Ernie, r#"{"use_task_id": true, "task_type_vocab_size": 4}"#),
        (BertFamily::Data2VecText, r#"{"architectures": ["Data2VecTextForMaskedLM"]}"#),
        (BertFamily::RobertaPreLayerNorm, r#"{"layer_norm_eps": 1e-5}"#),
        (BertFamily::XlmRobertaXl, r#"{"architectures": ["XLMRobertaXLForQuestionAnswering"]}"#),
        (BertFamily::MegatronBert, r#"{"num_hidden_layers": 2}"#),
        (BertFamily::RemBert, r#"{"input_embedding_size": 5, "output_embedding_size": 9}"#),
        (BertFamily::NomicBert, r#"{"rope_parameters": {"rope_theta": 77, "rope_type": "default"}}"#),
        (BertFamily::Gte, r#"{"type_vocab_size": 0, "architectures": ["GteForMaskedLM"]}"#),
        (BertFamily::JinaEmbeddingsV3, r#"{"architectures": ["JinaEmbeddingsV3ForQuestionAnswering"]}"#),
        (
            BertFamily::New,
            r#"{"rope_scaling": {"type": "ntk", "factor": 8}, "rope_theta": 20000, "architectures": ["NewModel"]}"#,
        ),
        (BertFamily::BigBird, r#"{"architectures": ["BigBirdForMaskedLM"]}"#),
        (BertFamily::BigBird, r#"{"attention_type": "original_full"}"#),
        (
            BertFamily::Longformer,
            r#"{"num_hidden_layers": 2, "attention_window": [8, 16], "architectures": ["LongformerForMaskedLM"]}"#,
        ),
        (
            BertFamily::FirstDeberta,
            r#"{"relative_attention": true, "pos_att_type": "c2p|p2c", "position_biased_input": false}"#,
        ),
        (BertFamily::XlmRoberta, r#"{"use_flash_attn": true}"#),
        (
            BertFamily::Bert,
            r#"{"position_embedding_type": "alibi", "feed_forward_type": "geglu",
            "architectures": ["JinaBertForSequenceClassification"]}"#,
        ),
        (
            BertFamily::MobileBert,
            r#"{"classifier_activation": false, "num_feedforward_networks": 2,
            "architectures": ["MobileBertForSequenceClassification"]}"#,
        ),
        (BertFamily::SqueezeBert, r#"{"q_groups": 2, "intermediate_groups": 1}"#),
        (BertFamily::Mpnet, r#"{"architectures": ["MPNetForMaskedLM"]}"#),
        (BertFamily::Electra, r#"{"embedding_size": 256}"#),
        (BertFamily::Electra, r#"{"embedding_size": 64}"#),
        (BertFamily::Albert, r#"{"num_hidden_groups": 3, "classifier_dropout_prob": 0.2}"#),
        (
            BertFamily::Deberta,
            r#"{"relative_attention": true, "pos_att_type": "p2c|c2p", "share_att_key": true,
            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "position_biased_input": false,
            "cls_dropout": 0.0, "architectures": ["DebertaV2ForSequenceClassification"]}"#,
        ),
    ] {
        let config = read(family, text).unwrap();
        let written = ModelConfig::Bert(config.clone()).to_json().to_string();
        assert_eq!(read(family, &written).unwrap(), config);
    }
}

#[test]
fn tensors_are_found_under_the_names_that_checkpoints_use() {
    let bare = read(BertFamily::Bert, "{}").unwrap();
    assert_eq!(bare.canonical("bert.embeddings.LayerNorm.gamma"), "embeddings.LayerNorm.weight");
    let text = r#"{"architectures": ["RobertaForMaskedLM"]}"#;
    let roberta = read(BertFamily::Roberta, text).unwrap();
    assert_eq!(
        roberta.canonical("encoder.layer.0.output.dense.bias"),
        "roberta.encoder.layer.0.output.dense.bias"
    );
    assert_eq!(roberta.canonical("lm_head.decoder.bias"), "lm_head.bias");
    let text = r#"{"architectures": ["DebertaV2ForSequenceClassification"]}"#;
    let deberta = read(BertFamily::Deberta, text).unwrap();
    assert_eq!(deberta.canonical("pooler.dense.weight"), "pooler.dense.weight");
    assert_eq!(deberta.canonical("encoder.rel_embeddings.weight"), "deberta.encoder.rel_embeddings.weight");
    let text = r#"{"architectures": ["RobertaPreLayerNormForMaskedLM"]}"#;
    let first = read(BertFamily::RobertaPreLayerNorm, text).unwrap();
    assert_eq!(first.canonical("LayerNorm.weight"), "roberta_prelayernorm.LayerNorm.weight");
    let text = r#"{"architectures": ["RemBertForMaskedLM"]}"#;
    let rembert = read(BertFamily::RemBert, text).unwrap();
    assert_eq!(rembert.canonical("cls.predictions.decoder.bias"), "cls.predictions.decoder.bias");
    let electra = read(BertFamily::Electra, r#"{"architectures": ["ElectraForPreTraining"]}"#).unwrap();
    assert_eq!(electra.canonical("electra.embeddings_project.bias"), "embeddings_project.bias");
    assert!(electra.is_ignorable("discriminator_predictions.dense.weight"));
    assert!(roberta.is_ignorable(&roberta.canonical("embeddings.position_ids")));
}
