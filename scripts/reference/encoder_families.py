"""Makes the parity fixtures of CamemBERT, MPNet, ELECTRA, ALBERT, DeBERTa, BigBird, Longformer, MobileBERT, SqueezeBERT,
ConvBERT, Nyströmformer, FNet, XLNet, I-BERT, LUKE, X-MOD, ERNIE, data2vec, RoBERTa-PreLayerNorm, XLM-RoBERTa XL,
Megatron-BERT, RemBERT, RoFormer, NomicBERT, GTE, Jina's embeddings and ModernBERT, and of the encoders of T5 and mT5 alone.

For each: seeded tiny checkpoints in crates/transformers/tests/data/encoders, with the files that encoder_parity.py describes, and
DeBERTa's buckets of distances (deberta-buckets.json).

    python scripts/reference/encoder_families.py [NAME]..
        # torch 2.15, transformers 5.24, tokenizers 0.23
"""

import json
import sys

import torch
import transformers as t
from encoder_parity import DATA, bert, byte_pairs, word_pieces
from encoder_parity import write as write_fixture
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position


def write(name, *arguments):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        write_fixture(name, *arguments)


def buckets():
    tables = []
    for count, longest in ((256, 512), (32, 128), (6, 40), (7, 40), (2, 16)):
        found = make_log_bucket_position(torch.arange(-600, 601), count, longest)
        tables.append({"buckets": count, "max_distance": longest, "found": found.long().tolist()})
    with open(DATA.parent / "deberta-buckets.json", "w") as file:
        json.dump(tables, file, separators=(",", ":"))
        file.write("\n")


def main():
    words, pieces = word_pieces(), byte_pairs()
    small = {"vocab_size": len(words), "max_position_embeddings": 40}
    large = {"vocab_size": len(pieces), "max_position_embeddings": 42, "pad_token_id": 1, "layer_norm_eps": 1e-5}

    camembert = dict(large, config=t.CamembertConfig, type_vocab_size=1)
    write("camembert-sequence", t.CamembertForSequenceClassification(bert(num_labels=1, **camembert)), 41)
    write("camembert-mlm", t.CamembertForMaskedLM(bert(**camembert)), 42)

    mpnet = dict(large, config=t.MPNetConfig)
    write("mpnet-states", t.MPNetModel(bert(**mpnet)), 43)
    write("mpnet-sequence", t.MPNetForSequenceClassification(bert(num_labels=1, **mpnet)), 44, pieces)
    write("mpnet-mlm", t.MPNetForMaskedLM(bert(**mpnet)), 45)

    electra = dict(small, config=t.ElectraConfig)
    write("electra-sequence", t.ElectraForSequenceClassification(bert(num_labels=1, embedding_size=10, **electra)), 46, None,
          True)
    write("electra-states", t.ElectraForPreTraining(bert(embedding_size=16, **electra)), 47, None, True)
    write("electra-mlm", t.ElectraForMaskedLM(bert(embedding_size=10, **electra)), 48, None, True)

    def albert(**options):
        return t.AlbertConfig(
            embedding_size=10, hidden_size=16, num_hidden_layers=5, num_hidden_groups=2, num_attention_heads=4,
            inner_group_num=2, intermediate_size=24, initializer_range=0.3, **small, **options,
        )

    write("albert-sequence", t.AlbertForSequenceClassification(albert(num_labels=2)), 49, None, True)
    write("albert-mlm", t.AlbertForMaskedLM(albert()), 50, None, True)
    write("albert-token", t.AlbertForTokenClassification(albert(num_labels=3, hidden_act="gelu")), 51, None, True)

    deberta = dict(small, config=t.DebertaV2Config, relative_attention=True)
    # As version 3 has it.
    third = dict(deberta, position_buckets=6, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
                 position_biased_input=False)
    write("deberta-sequence", t.DebertaV2ForSequenceClassification(bert(num_labels=1, **third)), 52)
    write("deberta-mlm", t.DebertaV2ForMaskedLM(bert(**third)), 53)
    write("deberta-token", t.DebertaV2ForTokenClassification(bert(
        num_labels=3, pos_att_type=["c2p", "p2c"], type_vocab_size=2, **deberta)), 54, None, True)
    write("deberta-span", t.DebertaV2ForQuestionAnswering(bert(
        pos_att_type=["p2c"], max_relative_positions=5, **deberta)), 55)
    # As the xlarge and xxlarge ones of version 2 have it.
    write("deberta-convolution", t.DebertaV2ForSequenceClassification(bert(
        num_labels=1, conv_kernel_size=3, conv_act="gelu", **third)), 56)

    first = dict(small, config=t.DebertaConfig, relative_attention=True, position_biased_input=False)
    both = dict(first, pos_att_type="c2p|p2c", max_relative_positions=8)
    write("deberta-v1-sequence", t.DebertaForSequenceClassification(bert(num_labels=1, **both)), 140)
    write("deberta-v1-mlm", t.DebertaForMaskedLM(bert(**both)), 141)
    write("deberta-v1-token", t.DebertaForTokenClassification(bert(
        num_labels=3, pos_att_type=["c2p"], type_vocab_size=2, **first)), 142, None, True)
    write("deberta-v1-span", t.DebertaForQuestionAnswering(bert(
        pos_att_type=["p2c"], **dict(first, position_biased_input=True))), 143)
    big_bird = dict(small, config=t.BigBirdConfig)
    write("big-bird-sequence", t.BigBirdForSequenceClassification(bert(num_labels=2, **big_bird)), 144)
    write("big-bird-token", t.BigBirdForTokenClassification(bert(
        num_labels=3, attention_type="original_full", hidden_act="gelu", **big_bird)), 145)
    write("big-bird-mlm", t.BigBirdForMaskedLM(bert(**big_bird)), 146)

    # Windows of layers are smaller than inputs, and differ.
    longformer = dict(large, config=t.LongformerConfig, attention_window=[4, 8])
    write("longformer-states", t.LongformerModel(bert(**longformer)), 150, pieces)
    write("longformer-sequence", t.LongformerForSequenceClassification(bert(num_labels=2, **longformer)), 151)
    write("longformer-token", t.LongformerForTokenClassification(bert(num_labels=3, **longformer)), 152)
    write("longformer-mlm", t.LongformerForMaskedLM(bert(**longformer)), 153)

    def mobile(**options):
        return bert(t.MobileBertConfig, **{"embedding_size": 8, "intra_bottleneck_size": 12, **small} | options)

    write("mobilebert-states", t.MobileBertModel(mobile()), 170)
    write("mobilebert-sequence", t.MobileBertForSequenceClassification(mobile(num_labels=2, hidden_act="gelu")), 171, None,
          True)
    write("mobilebert-bare", t.MobileBertForSequenceClassification(
        mobile(num_labels=2, classifier_activation=False, num_feedforward_networks=1)), 172)
    write("mobilebert-token", t.MobileBertForTokenClassification(mobile(num_labels=3)), 173)
    write("mobilebert-span", t.MobileBertForQuestionAnswering(mobile()), 174)
    write("mobilebert-mlm", t.MobileBertForMaskedLM(mobile()), 175)
    def xlnet(**options):
        return t.XLNetConfig(
            vocab_size=len(pieces), d_model=16, n_layer=2, n_head=4, d_inner=24, initializer_range=0.3, **options)

    write("xlnet-states", t.XLNetLMHeadModel(xlnet(pad_token_id=1)), 180, None, True)
    write("xlnet-sequence", t.XLNetForSequenceClassification(xlnet(num_labels=2)), 181, None, True)
    write("xlnet-token", t.XLNetForTokenClassification(xlnet(num_labels=3, ff_activation="relu")), 182)
    write("xlnet-span", t.XLNetForQuestionAnsweringSimple(xlnet()), 183, None, True)
    def conv(**options):
        return bert(t.ConvBertConfig, **{"embedding_size": 16, "conv_kernel_size": 3, **small} | options)

    write("convbert-states", t.ConvBertModel(conv(num_groups=2, embedding_size=10)), 190, None, True)
    write("convbert-sequence", t.ConvBertForSequenceClassification(conv(num_labels=2, hidden_act="relu")), 191)
    write("convbert-token", t.ConvBertForTokenClassification(conv(num_labels=5, head_ratio=4, conv_kernel_size=5)), 192)
    write("convbert-span", t.ConvBertForQuestionAnswering(conv(head_ratio=8)), 193)
    write("convbert-mlm", t.ConvBertForMaskedLM(conv(embedding_size=12)), 194)

    def fnet(**options):
        return t.FNetConfig(
            hidden_size=16, num_hidden_layers=2, intermediate_size=24, initializer_range=0.3, pad_token_id=0, **small | options)

    write("fnet-states", t.FNetModel(fnet()), 195, None, True)
    write("fnet-sequence", t.FNetForSequenceClassification(fnet(num_labels=2)), 196, None, True)
    write("fnet-span", t.FNetForQuestionAnswering(fnet(hidden_act="relu")), 197)
    write("fnet-mlm", t.FNetForMaskedLM(fnet()), 198)
    def nystrom(**options):
        return bert(t.NystromformerConfig, **{"conv_kernel_size": 5, **small} | options)

    write("nystromformer-states", t.NystromformerModel(nystrom()), 200, None, True)
    write("nystromformer-sequence", t.NystromformerForSequenceClassification(nystrom(num_labels=2)), 201, None, True)
    write("nystromformer-token", t.NystromformerForTokenClassification(nystrom(num_labels=5, conv_kernel_size=33)), 202)
    write("nystromformer-span", t.NystromformerForQuestionAnswering(nystrom(conv_kernel_size=1)), 203)
    write("nystromformer-mlm", t.NystromformerForMaskedLM(nystrom(hidden_act="relu")), 204)
    # A part of the tensors is for numbers of 8 bits, which nothing reads.
    ibert = dict(large, config=t.IBertConfig)
    write("ibert-states", t.IBertModel(bert(**ibert)), 210, None, True)
    write("ibert-sequence", t.IBertForSequenceClassification(bert(num_labels=2, **ibert)), 211)
    write("ibert-token", t.IBertForTokenClassification(bert(num_labels=3, **ibert)), 212)
    write("ibert-span", t.IBertForQuestionAnswering(bert(**ibert)), 213)
    write("ibert-mlm", t.IBertForMaskedLM(bert(**ibert)), 214)
    # Words alone.
    luke = dict(large, config=t.LukeConfig, entity_vocab_size=7, entity_emb_size=8)
    write("luke-states", t.LukeModel(bert(use_entity_aware_attention=False, **luke)), 220)
    write("luke-sequence", t.LukeForSequenceClassification(bert(num_labels=2, **luke)), 221)
    write("luke-token", t.LukeForTokenClassification(bert(num_labels=3, **luke)), 222)
    write("luke-span", t.LukeForQuestionAnswering(bert(**luke)), 223)
    write("luke-mlm", t.LukeForMaskedLM(bert(**luke)), 224)
    # The norms of adapters are each of those that there are.
    xmod = dict(large, config=t.XmodConfig, languages=["en_XX", "de_DE"], default_language="de_DE", type_vocab_size=1)
    write("xmod-states", t.XmodModel(bert(adapter_reduction_factor=4, **xmod)), 230)
    write("xmod-sequence", t.XmodForSequenceClassification(
        bert(num_labels=2, adapter_layer_norm=True, ln_before_adapter=False, **xmod)), 231)
    write("xmod-token", t.XmodForTokenClassification(bert(num_labels=3, adapter_reuse_layer_norm=False, **xmod)), 232)
    write("xmod-span", t.XmodForQuestionAnswering(bert(pre_norm=True, **xmod)), 233)
    write("xmod-mlm", t.XmodForMaskedLM(bert(pre_norm=True, ln_before_adapter=False, **xmod)), 234)
    groups = {"q_groups": 2, "k_groups": 4, "v_groups": 1, "intermediate_groups": 4, "output_groups": 8}
    squeeze = dict(small, config=t.SqueezeBertConfig, embedding_size=16)
    write("squeezebert-states", t.SqueezeBertModel(bert(**squeeze)), 160)
    write("squeezebert-sequence", t.SqueezeBertForSequenceClassification(bert(num_labels=2, **groups, **squeeze)), 161, None,
          True)
    write("squeezebert-token", t.SqueezeBertForTokenClassification(bert(num_labels=3, **squeeze)), 162)
    write("squeezebert-span", t.SqueezeBertForQuestionAnswering(bert(**squeeze)), 163)
    write("squeezebert-mlm", t.SqueezeBertForMaskedLM(bert(post_attention_groups=2, **squeeze)), 164)

    ernie = dict(small, config=t.ErnieConfig)
    write("ernie-states", t.ErnieModel(bert(use_task_id=True, **ernie)), 81, None, True)
    write("ernie-sequence", t.ErnieForSequenceClassification(bert(num_labels=1, **ernie)), 82, None, True)
    write("ernie-mlm", t.ErnieForMaskedLM(bert(**ernie)), 83, None, True)
    for name, build, config in (
        ("data2vec", t.Data2VecTextForSequenceClassification, t.Data2VecTextConfig),
        ("roberta-prelayernorm", t.RobertaPreLayerNormForSequenceClassification, t.RobertaPreLayerNormConfig),
        ("xlm-roberta-xl", t.XLMRobertaXLForSequenceClassification, t.XLMRobertaXLConfig),
    ):
        options = dict(large, config=config, type_vocab_size=1)
        write(f"{name}-sequence", build(bert(num_labels=2, **options)), 84)
    first = dict(large, config=t.RobertaPreLayerNormConfig, type_vocab_size=1)
    write("roberta-prelayernorm-mlm", t.RobertaPreLayerNormForMaskedLM(bert(**first)), 86)
    write("data2vec-mlm", t.Data2VecTextForMaskedLM(bert(**dict(first, config=t.Data2VecTextConfig))), 87)
    write("xlm-roberta-xl-token", t.XLMRobertaXLForTokenClassification(
        bert(num_labels=3, **dict(first, config=t.XLMRobertaXLConfig))), 88)
    megatron = dict(small, config=t.MegatronBertConfig)
    write("megatron-bert-sequence", t.MegatronBertForSequenceClassification(bert(num_labels=1, **megatron)), 89, None, True)
    write("megatron-bert-mlm", t.MegatronBertForMaskedLM(bert(**megatron)), 90, None, True)
    rembert = dict(small, config=t.RemBertConfig, input_embedding_size=10, output_embedding_size=20)
    write("rembert-sequence", t.RemBertForSequenceClassification(bert(num_labels=1, **rembert)), 92, None, True)
    write("rembert-token", t.RemBertForTokenClassification(bert(num_labels=3, **rembert)), 93, None, True)
    write("rembert-mlm", t.RemBertForMaskedLM(bert(**rembert)), 94, None, True)
    roformer = dict(small, config=t.RoFormerConfig)
    write("roformer-states", t.RoFormerModel(bert(**roformer)), 110, None, True)
    write("roformer-sequence", t.RoFormerForSequenceClassification(bert(num_labels=2, hidden_act="relu", **roformer)), 111,
          None, True)
    write("roformer-token", t.RoFormerForTokenClassification(bert(num_labels=3, embedding_size=10, **roformer)), 112, None,
          True)
    write("roformer-mlm", t.RoFormerForMaskedLM(bert(embedding_size=10, **roformer)), 113, None, True)

    nomic = dict(small, config=t.NomicBertConfig, rope_parameters={"rope_type": "default", "rope_theta": 50.0})
    write("nomic-states", t.NomicBertModel(bert(**nomic)), 101, None, True)
    write("nomic-sequence", t.NomicBertForSequenceClassification(bert(num_labels=1, **nomic)), 102, None, True)
    write("nomic-mlm", t.NomicBertForMaskedLM(bert(**nomic)), 103, None, True)
    gte = dict(small, config=t.GteConfig, pad_token_id=1)
    write("gte-states", t.GteModel(bert(type_vocab_size=0, **gte)), 104)
    write("gte-sequence", t.GteForSequenceClassification(bert(num_labels=1, type_vocab_size=2, **gte)), 105, None, True)
    write("gte-mlm", t.GteForMaskedLM(bert(**gte)), 106)
    jina = dict(large, config=t.JinaEmbeddingsV3Config)
    write("jina-sequence", t.JinaEmbeddingsV3ForSequenceClassification(bert(num_labels=2, **jina)), 107)
    write("jina-span", t.JinaEmbeddingsV3ForQuestionAnswering(bert(**jina)), 108)

    def modern(**options):
        # Windows of two positions, so that most pairs of positions are beyond them.
        return bert(t.ModernBertConfig, vocab_size=len(words), max_position_embeddings=40, pad_token_id=0,
                    cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, local_attention=4,
                    num_hidden_layers=3, **options)

    modernbert = t.ModernBertForSequenceClassification
    write("modernbert-states", t.ModernBertModel(modern(hidden_activation="gelu")), 61)
    write("modernbert-sequence", modernbert(modern(num_labels=1, classifier_pooling="mean")), 62)
    # All that may have a bias; the last layer is local.
    biases = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    write("modernbert-first", modernbert(modern(num_labels=2, layer_types=kinds, **biases)), 63)
    write("modernbert-token", t.ModernBertForTokenClassification(modern(num_labels=3)), 64)
    write("modernbert-span", t.ModernBertForQuestionAnswering(modern(classifier_activation="silu")), 65)
    write("modernbert-mlm", t.ModernBertForMaskedLM(modern()), 66)

    def t5(config, **options):
        return config(vocab_size=len(words), d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4, **options)

    # 11 tokens reach logarithmic buckets where there are 8.
    near = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}
    write("t5-encoder", t.T5EncoderModel(t5(t.T5Config, **near)), 71)
    write("mt5-encoder", t.MT5EncoderModel(t5(t.MT5Config)), 72)
    if len(sys.argv) == 1:
        buckets()


if __name__ == "__main__":
    main()
