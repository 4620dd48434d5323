//! Fusion-in-Decoder and RAG from requests to answers, with a tiny seeded BART. The searches have their own
//! tests; these cover the reading of passages.

use std::path::{Path, PathBuf};

use sporran_generator::{
    Candidate, DialoguePart, FidEvidence, FidGenerator, FidOptions, Generation, Generator, MemNet,
    MemNetOptions, Order, PromptOptions, RagGenerator, RagSequenceOptions, RagTokenOptions, Request,
    Seq2SeqGenerator, Seq2SeqOptions, UnitKind,
};
use sporran_kilt::{Dataset, Passage, PassageId, Query};
use sporran_transformers::{DeviceName, GenerationOptions, Precision, decode::RagDecoding, import_parlai};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/bart")
}

fn prompt(passages: usize) -> PromptOptions {
    PromptOptions { passages, order: Order::PassagesFirst, max_tokens: 60, ..PromptOptions::default() }
}

fn generation(num_beams: usize) -> GenerationOptions {
    GenerationOptions {
        num_beams: Some(num_beams),
        num_return_sequences: Some(num_beams.min(2)),
        length_penalty: Some(0.0),
        max_new_tokens: Some(9),
        ..GenerationOptions::default()
    }
}

fn fid(passages: usize, num_beams: usize, batch_tokens: usize) -> Box<dyn Generator> {
    let (prompt, generation) = (prompt(passages), generation(num_beams));
    Box::new(
        FidGenerator::load(&FidOptions {
            model: model(),
            device: DeviceName::Cpu,
            precision: Precision::F32,
            prompt,
            generation,
            evidence: FidEvidence::Attention,
            batch_tokens,
        })
        .unwrap(),
    )
}

fn rag_token(passages: usize, num_beams: usize, batch_tokens: usize) -> Box<dyn Generator> {
    let (prompt, generation) = (prompt(passages), generation(num_beams));
    let options = RagTokenOptions {
        model: model(),
        device: DeviceName::Cpu,
        precision: Precision::F32,
        prompt,
        generation,
        batch_tokens,
    };
    Box::new(RagGenerator::load_token(&options).unwrap())
}

fn rag_sequence(passages: usize, num_beams: usize, batch_tokens: usize) -> Box<dyn Generator> {
    decoded(passages, num_beams, batch_tokens, RagDecoding::Thorough)
}

fn rag_sequence_fast(passages: usize, num_beams: usize, batch_tokens: usize) -> Box<dyn Generator> {
    decoded(passages, num_beams, batch_tokens, RagDecoding::Fast)
}

fn decoded(
    passages: usize,
    num_beams: usize,
    batch_tokens: usize,
    decoding: RagDecoding,
) -> Box<dyn Generator> {
    let (prompt, generation) = (prompt(passages), generation(num_beams));
    let options = RagSequenceOptions {
        model: model(),
        device: DeviceName::Cpu,
        precision: Precision::F32,
        prompt,
        generation,
        decoding,
        batch_tokens,
    };
    Box::new(RagGenerator::load_sequence(&options).unwrap())
}

fn memnet(passages: usize, num_beams: usize, batch_tokens: usize) -> Box<dyn Generator> {
    let options = MemNetOptions {
        model: model(),
        device: DeviceName::Cpu,
        precision: Precision::F32,
        evidence: UnitKind::Passage,
        pieces: 32,
        dialogue: DialoguePart::Whole,
        piece_tokens: None,
        prompt: prompt(passages),
        generation: generation(num_beams),
        batch_tokens,
    };
    Box::new(MemNet::load(&options, None).unwrap())
}

/// Makes a generator with these numbers of passages, beams and tokens of a batch.
type Make = fn(usize, usize, usize) -> Box<dyn Generator>;

const KINDS: [Make; 4] = [fid, rag_token, rag_sequence, memnet];

fn passages() -> Vec<Passage> {
    let texts = ["the river was north of the city", "king and queen of the country", "film song band", "war"];
    let passage = |(id, text): (u32, &str)| Passage {
        id: PassageId(id),
        page_id: id.to_string(),
        title: text.split(' ').next().unwrap_or_default().into(),
        start_paragraph: 1,
        end_paragraph: 1,
        end_character: 1,
        ..Passage::of_text(text)
    };
    (0u32..).zip(texts).map(passage).collect()
}

fn queries() -> Vec<Query> {
    let texts = ["where was the author born?", "war", "which band wrote the song of the year?"];
    let query = |(id, text): (i64, &str)| Query { dataset: Some(Dataset::Nq), ..Query::of_text(id, text) };
    (1i64..).zip(texts).map(query).collect()
}

/// Query i sees i + 1 passages, with these scores.
fn answers(generator: &dyn Generator, scores: &[f32; 4], together: bool) -> Vec<Generation> {
    let (queries, passages) = (queries(), passages());
    let candidates: Vec<Candidate<'_>> =
        passages.iter().zip(scores).map(|(passage, score)| Candidate { passage, score: *score }).collect();
    let requests: Vec<Request<'_>> =
        queries.iter().enumerate().map(|(i, query)| Request { query, passages: &candidates[..=i] }).collect();
    match together {
        true => generator.generate(&requests).unwrap(),
        false => requests
            .iter()
            .flat_map(|request| generator.generate(std::slice::from_ref(request)).unwrap())
            .collect(),
    }
}

fn assert_same(a: &[Generation], b: &[Generation]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.text, b.text);
        assert!((a.score - b.score).abs() < 1e-4, "{}: {} and {}", a.text, a.score, b.score);
    }
}

const SCORES: [f32; 4] = [1.5, 1.0, 0.5, 0.0];

#[test]
fn a_batch_answers_as_its_members_do_alone() {
    for kind in KINDS {
        for beams in [1, 3] {
            let together = answers(&*kind(2, beams, 4096), &SCORES, true);
            assert_same(&together, &answers(&*kind(2, beams, 4096), &SCORES, false));
            // One passage and one request at a time.
            assert_same(&together, &answers(&*kind(2, beams, 1), &SCORES, true));
            assert!(together.iter().all(|answer| answer.alternatives.len() == beams.min(2) - 1));
            // Of three passages two are read; a memory network ranks them.
            let sorted = |answer: &Generation| {
                let mut evidence = answer.evidence.clone();
                evidence.sort_unstable();
                evidence
            };
            let evidence: Vec<_> = together.iter().map(sorted).collect();
            assert_eq!(evidence, [vec![0], vec![0, 1], vec![0, 1]]);
        }
    }
}

#[test]
fn with_one_passage_nothing_is_fused_or_marginalised() {
    let (prompt, generation) = (prompt(1), generation(1));
    let options = Seq2SeqOptions {
        model: model(),
        device: DeviceName::Cpu,
        precision: Precision::F32,
        prompt,
        generation,
        batch_size: 4,
        batch_tokens: 4096,
    };
    let plain = answers(&Seq2SeqGenerator::load(&options).unwrap(), &SCORES, true);
    assert_same(&answers(&*fid(1, 1, 4096), &SCORES, true), &plain);
    assert_same(&answers(&*rag_token(1, 1, 4096), &SCORES, true), &plain);
    let texts = |answers: Vec<Generation>| answers.into_iter().map(|answer| answer.text).collect::<Vec<_>>();
    assert_eq!(texts(answers(&*rag_sequence(1, 1, 4096), &SCORES, true)), texts(plain));
}

#[test]
fn further_passages_change_what_is_read_as_far_as_their_scores_say() {
    for kind in [rag_token as Make, rag_sequence_fast] {
        // All but the first are as good as impossible.
        let sure = answers(&*kind(4, 3, 4096), &[90.0, -90.0, -90.0, -90.0], true);
        let alone = answers(&*kind(1, 3, 4096), &SCORES, true);
        assert_same(&sure[..2], &alone[..2]);
        let even = answers(&*kind(4, 3, 4096), &[0.0; 4], true);
        assert!((even[2].score - sure[2].score).abs() > 1e-3);
    }
    let (all, one) = (answers(&*fid(4, 3, 4096), &SCORES, true), answers(&*fid(1, 3, 4096), &SCORES, true));
    assert!((all[2].score - one[2].score).abs() > 1e-3);
}

#[test]
fn without_passages_a_request_is_answered_from_memory() {
    let queries = queries();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    for kind in KINDS {
        let answers = kind(3, 1, 4096).generate(&requests).unwrap();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|answer| answer.evidence.is_empty()));
        assert!(kind(3, 1, 4096).generate(&[]).unwrap().is_empty());
    }
}

#[test]
fn fusion_ranks_its_evidence_by_attention_whatever_the_order_of_the_passages() {
    let generator = fid(4, 1, 4096);
    let (query, passages) = (&queries()[0], passages());
    let pages = |order: &[usize]| -> Vec<String> {
        let candidates: Vec<Candidate<'_>> =
            order.iter().map(|&at| Candidate { passage: &passages[at], score: 1.0 }).collect();
        let found = generator.generate(&[Request { query, passages: &candidates }]).unwrap();
        found[0].evidence.iter().map(|&at| candidates[at].passage.page_id.clone()).collect()
    };
    let expected = pages(&[0, 1, 2, 3]);
    assert_eq!(expected.len(), 4);
    for order in [[3, 2, 1, 0], [1, 3, 0, 2]] {
        assert_eq!(pages(&order), expected);
    }
}

#[test]
fn a_memory_network_answers_from_the_most_attended_piece_independently_of_the_batch() {
    let all = answers(&*memnet(4, 3, 4096), &SCORES, true);
    let (queries, passages) = (queries(), passages());
    for (query, answer) in queries.iter().zip(&all).skip(1) {
        let mut order = answer.evidence.clone();
        let alone = [Candidate { passage: &passages[order[0]], score: 1.0 }];
        let found = memnet(4, 3, 4096).generate(&[Request { query, passages: &alone }]).unwrap();
        assert_eq!((&found[0].text, &found[0].alternatives[0].0), (&answer.text, &answer.alternatives[0].0));
        // Every passage that was read is evidence once.
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..order.len()), "{order:?}");
    }
    assert_eq!(all[2].evidence.len(), 3);
}

#[test]
fn empty_batches_are_an_error() {
    let options = FidOptions {
        model: model(),
        device: DeviceName::Cpu,
        precision: Precision::F32,
        prompt: prompt(1),
        generation: generation(1),
        evidence: FidEvidence::Retriever,
        batch_tokens: 0,
    };
    assert!(FidGenerator::load(&options).err().unwrap().to_string().contains("batch-tokens"));
}

/// The dialogues and answers of ParlAI's own code (`scripts/reference/parlai_parity.py`).
#[test]
fn a_memory_network_of_parlai_answers_as_it_does_there() {
    #[derive(serde::Deserialize)]
    struct Case {
        dialogue: String,
        pieces: Vec<String>,
        attention: Vec<f32>,
        text: String,
    }
    #[derive(serde::Deserialize)]
    struct Expected {
        cases: Vec<Case>,
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/parlai");
    let text = std::fs::read_to_string(data.join("expected.json")).unwrap();
    let Expected { cases } = serde_json::from_str(&text).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let model = folder.path().join("memnet");
    import_parlai(&data, &model).unwrap();
    let options = MemNetOptions {
        model,
        device: DeviceName::Cpu,
        precision: Precision::F32,
        evidence: UnitKind::Passage,
        pieces: 32,
        dialogue: DialoguePart::Latest,
        piece_tokens: Some(16),
        prompt: PromptOptions {
            passage: "{title} __knowledge__ {text}".into(),
            max_tokens: 48,
            ..PromptOptions::default()
        },
        generation: GenerationOptions { max_new_tokens: Some(12), ..GenerationOptions::default() },
        batch_tokens: 4096,
    };
    let network = MemNet::load(&options, None).unwrap();
    for Case { dialogue, pieces, attention, text } in cases {
        let pieces = pieces.iter().map(|piece| piece.split_once(" __knowledge__ ").unwrap());
        let passages: Vec<Passage> = (0..)
            .zip(pieces)
            .map(|(id, (title, text))| Passage {
                id: PassageId(id),
                title: title.into(),
                text: text.into(),
                ..passages()[0].clone()
            })
            .collect();
        let candidates: Vec<Candidate<'_>> =
            passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        let query = Query::of_text(1i64, &dialogue);
        let found = network.generate(&[Request { query: &query, passages: &candidates }]).unwrap();
        assert_eq!(found[0].text, text);
        let mut order: Vec<usize> = (0..passages.len()).collect();
        order.sort_by(|a, b| attention[*b].total_cmp(&attention[*a]));
        assert_eq!(found[0].evidence, order);
    }
}
