"""Makes crates/transformers/tests/data/fusion.json: Fusion-in-Decoder, RAG-Sequence and RAG-Token on the tiny checkpoints
of transformers_parity.py, computed by the `transformers` library on one CPU thread and in f32.

RAG is computed by `transformers` (RagSequenceForGeneration, RagTokenForGeneration) with given passages and scores. Fast decoding,
and the choice of the sequences that thorough decoding scores, are implemented here after Lewis et al. 2020. Fusion-in-Decoder is
the model's generation over the concatenated hidden states of separately encoded passages (Izacard and Grave 2021).

    python scripts/reference/fusion_parity.py                  # torch 2.15, transformers 5.23
"""

import json
import pathlib
import random

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    DPRConfig,
    DPRQuestionEncoder,
    RagConfig,
    RagSequenceForGeneration,
    RagTokenForGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data"
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

OPTIONS = [
    {"max_new_tokens": 10},
    {"max_new_tokens": 14, "num_beams": 4, "num_return_sequences": 3},
    {"max_new_tokens": 9, "num_beams": 3, "length_penalty": 0.4, "no_repeat_ngram_size": 2},
]


def texts(model, counts):
    """For each input several texts of different lengths, with one score each."""
    rng = random.Random(23)
    special = {model.config.pad_token_id, model.generation_config.eos_token_id, 0, 1, 2}
    tokens = [token for token in range(model.config.vocab_size - 5) if token not in special]
    ends = [model.generation_config.eos_token_id]
    begins = [0] if model.config.model_type == "bart" else []
    rows = [[begins + rng.choices(tokens, k=rng.randrange(3, 15)) + ends for _ in range(n)] for n in counts]
    scores = [[round(rng.uniform(-2.0, 3.0), 3) for _ in range(n)] for n in counts]
    return rows, scores


def pad(model, rows):
    longest = max(map(len, rows))
    fill = model.config.pad_token_id
    ids = torch.tensor([row + [fill] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def cut(model, tokens):
    eos = model.generation_config.eos_token_id
    return tokens[: next((at + 1 for at, token in enumerate(tokens) if token == eos), None)]


def outputs(model, out, options):
    sequences = out.sequences[:, 1:].tolist()
    if options.get("num_beams", 1) > 1:
        scores = out.sequences_scores.tolist()
    else:
        steps = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
        scores = [steps[i, : len(cut(model, row))].double().sum().item() for i, row in enumerate(sequences)]
    return [{"tokens": cut(model, row), "score": score} for row, score in zip(sequences, scores, strict=True)]


def fusion_in_decoder(model, rows, options):
    encoder = model.get_encoder()
    with torch.no_grad():
        states = [encoder(input_ids=torch.tensor([row])).last_hidden_state for row in rows]
    states = torch.cat(states, dim=1)
    out = model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=torch.ones(states.shape[:2]),
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return outputs(model, out, options)


def attended(model, rows):
    """The attention of three decoder tokens: the mean of the weights over tokens, layers and heads."""
    encoder = model.get_encoder()
    with torch.no_grad():
        states = torch.cat([encoder(input_ids=torch.tensor([row])).last_hidden_state for row in rows], dim=1)
        out = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=torch.ones(states.shape[:2]),
            decoder_input_ids=torch.tensor([[model.generation_config.decoder_start_token_id, 7, 9]]),
            output_attentions=True,
        )
    return torch.stack(out.cross_attentions).mean((0, 1, 2, 3)).tolist()


def rag(kind, model, n_docs):
    question = DPRConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16, pad_token_id=0,
    )
    config = RagConfig(
        question_encoder=question.to_dict(), generator=model.config.to_dict(), n_docs=n_docs,
        bos_token_id=getattr(model.config, "bos_token_id", None), pad_token_id=model.config.pad_token_id,
        eos_token_id=model.generation_config.eos_token_id,
        decoder_start_token_id=model.generation_config.decoder_start_token_id,
        is_encoder_decoder=True,
    )
    joined = kind(config=config, question_encoder=DPRQuestionEncoder(question), generator=model).eval()
    joined.generation_config = model.generation_config
    # T5 has none, but the library requires it.
    joined.config.generator.bos_token_id = getattr(model.config, "bos_token_id", None)
    return joined


def rag_sequence(model, rows, scores, options):
    joined = rag(RagSequenceForGeneration, model, len(rows))
    ids, mask = pad(model, rows)
    doc_scores = torch.tensor([scores])
    options = dict(options)
    wanted = options.pop("num_return_sequences", 1)
    beams = options.get("num_beams", 1)
    # The beams of each passage. `RagSequenceForGeneration.generate` reads the padding of shorter passages as if
    # it were text, so every passage is read separately here. The scores are the library's.
    priors = torch.log_softmax(doc_scores[0], dim=0).tolist()
    sums = {}
    for prior, text in zip(priors, rows, strict=True):
        given = options | {"num_return_sequences": beams, "return_dict_in_generate": True, "output_scores": True}
        out = model.generate(input_ids=torch.tensor([text]), attention_mask=torch.ones((1, len(text))), **given)
        power = options.get("length_penalty", model.generation_config.length_penalty or 1.0) if beams > 1 else 0.0
        for hypothesis in outputs(model, out, given):
            total = hypothesis["score"] * len(hypothesis["tokens"]) ** power
            sums.setdefault(tuple(hypothesis["tokens"]), []).append(prior + total)

    # Thorough: every sequence with every passage.
    found = []
    for tokens in sums:
        labels = torch.tensor([[model.generation_config.decoder_start_token_id, *tokens]])
        with torch.no_grad():
            loss = joined(
                context_input_ids=ids, context_attention_mask=mask, doc_scores=doc_scores, labels=labels,
                exclude_bos_score=True, reduce_loss=False,
            ).loss
        if len(tokens) == 1:
            # The library adds the passages' probabilities to the second token, which does not exist here.
            loss = joined(
                context_input_ids=ids, context_attention_mask=mask, doc_scores=doc_scores, decoder_input_ids=labels,
            ).logits[:, 0].log_softmax(-1)[:, tokens[0]]
            loss = -torch.logsumexp(loss + torch.tensor(priors), 0)
        found.append({"tokens": list(tokens), "score": -loss.item()})
    found.sort(key=lambda hypothesis: -hypothesis["score"])

    # Fast: only passages whose beams contain the sequence count.
    fast = [(torch.logsumexp(torch.tensor(values), 0).item(), tokens) for tokens, values in sums.items()]
    fast.sort(key=lambda pair: -pair[0])
    return found[:wanted], [{"tokens": list(tokens), "score": score} for score, tokens in fast[:wanted]]


def rag_token(model, rows, scores, options):
    joined = rag(RagTokenForGeneration, model, len(rows))
    ids, mask = pad(model, rows)
    doc_scores = torch.tensor([scores])
    # RagTokenForGeneration uses the length only.
    options = {key: value for key, value in options.items() if key != "max_new_tokens"} | {
        "max_length": options["max_new_tokens"] + 1
    }
    start = torch.tensor([[model.generation_config.decoder_start_token_id, 7, 9, 4]])
    with torch.no_grad():
        logits = joined(
            context_input_ids=ids, context_attention_mask=mask, doc_scores=doc_scores, decoder_input_ids=start,
            do_marginalize=True, n_docs=len(rows),
        ).logits[0, -1]
        out = joined.generate(
            context_input_ids=ids, context_attention_mask=mask, doc_scores=doc_scores, n_docs=len(rows),
            return_dict_in_generate=True, output_scores=True, **options,
        )
    top = torch.topk(logits, 10)
    return outputs(joined, out, options), {"tokens": top.indices.tolist(), "scores": top.values.tolist()}


def main():
    folders = []
    for name in ["t5-relu", "bart"]:
        model = AutoModelForSeq2SeqLM.from_pretrained(DATA / name).eval()
        # Only this implementation of attention returns its weights.
        eager = AutoModelForSeq2SeqLM.from_pretrained(DATA / name, attn_implementation="eager").eval()
        rows, scores = texts(model, [3, 1, 4])
        cases = []
        for options in OPTIONS:
            kebab = {key.replace("_", "-"): value for key, value in options.items()}
            case = {"options": kebab, "fid": [], "thorough": [], "fast": [], "token": [], "logits": []}
            for texts_of, scores_of in zip(rows, scores, strict=True):
                case["fid"].append(fusion_in_decoder(model, texts_of, options))
                thorough, fast = rag_sequence(model, texts_of, scores_of, options)
                case["thorough"].append(thorough)
                case["fast"].append(fast)
                found, logits = rag_token(model, texts_of, scores_of, options)
                case["token"].append(found)
                case["logits"].append(logits)
            cases.append(case)
            for kind in ("fid", "thorough", "fast", "token"):
                print(name, kind, [[len(h["tokens"]) for h in row] for row in case[kind]])
        attention = [attended(eager, texts_of) for texts_of in rows]
        folders.append({"name": name, "texts": rows, "scores": scores, "attended": attention, "cases": cases})
    with open(DATA / "fusion.json", "w") as file:
        json.dump(folders, file, indent=None, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
