//! The seq2seq reader from texts to texts, with a small seeded T5 and a vocabulary learned on the spot.

use std::{path::Path, sync::Arc};

use candle_core::Device;
use sporran_checkpoint::Tokenizer;
use sporran_generator::{
    Candidate, Generation, Generator, Prompt, PromptOptions, Request, Seq2SeqGenerator, Seq2SeqOptions,
};
use sporran_kilt::{Dataset, Passage, PassageId, Query};
use sporran_training::{
    Row, Seq2SeqObjective, Training, TrainingOptions, Variables, VocabularyOptions, best_folder,
    tokenizer_files, train, train_vocabulary, wire_copying,
};
use sporran_transformers::{DeviceName, GenerationOptions, ModelConfig, Precision, Seq2Seq, T5, T5Config};

const TEXTS: [&str; 6] = [
    "Ada Lovelace was born in London and worked as a mathematician.",
    "Clara Schumann was born in Leipzig. The pianist spoke German.",
    "Emmy Noether studied at the University of Erlangen and died in Bryn Mawr.",
    "Where was Ada Lovelace born? In London.",
    "What did Clara Schumann speak? German.",
    "Where did Emmy Noether die? In Bryn Mawr.",
];

struct Reader {
    config: T5Config,
    variables: Variables,
    model: Arc<T5>,
    tokenizer: Tokenizer,
    files: Vec<(String, Vec<u8>)>,
}

fn reader() -> Reader {
    let options = VocabularyOptions { size: 340, min_frequency: 2, marks: vec![] };
    let files = tokenizer_files(&train_vocabulary(TEXTS.iter(), &options).unwrap()).unwrap();
    let json = String::from_utf8(files[0].1.clone()).unwrap();
    let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json).unwrap();
    let config = T5Config {
        vocab_size: tokenizer.vocab_size(),
        d_model: 48,
        d_kv: 12,
        d_ff: 64,
        num_layers: 1,
        num_heads: 4,
        dropout_rate: 0.0,
        ..T5Config::default()
    };
    let variables = Variables::new(11);
    let model = T5::new(&config, &variables.builder(&Device::Cpu)).unwrap();
    wire_copying(&variables, &config).unwrap();
    Reader { config, variables, model: Arc::new(model), tokenizer, files }
}

fn options(batch_size: usize, num_beams: usize) -> Seq2SeqOptions {
    Seq2SeqOptions {
        model: "model".into(),
        precision: Precision::F32,
        prompt: PromptOptions { passages: 2, max_tokens: 80, ..PromptOptions::default() },
        generation: GenerationOptions {
            num_beams: Some(num_beams),
            num_return_sequences: Some(num_beams),
            max_new_tokens: Some(8),
            ..GenerationOptions::default()
        },
        batch_size,
        batch_tokens: 4096,
        device: DeviceName::Cpu,
    }
}

fn passages() -> Vec<Passage> {
    let passage = |id: u32, title: &str, text: &str| Passage {
        id: PassageId(id),
        page_id: id.to_string(),
        title: title.into(),
        start_paragraph: 1,
        end_paragraph: 1,
        end_character: 1,
        ..Passage::of_text(text)
    };
    vec![
        passage(0, "Ada Lovelace", TEXTS[0]),
        passage(1, "Clara Schumann", TEXTS[1]),
        passage(2, "Emmy Noether", TEXTS[2]),
    ]
}

fn queries() -> Vec<Query> {
    [
        "What did Clara Schumann speak?",
        "born?",
        "Where did Emmy Noether die, and where was Ada Lovelace born?",
    ]
    .iter()
    .zip(1i64..)
    .map(|(text, id)| Query { dataset: Some(Dataset::Nq), ..Query::of_text(id, *text) })
    .collect()
}

fn candidates(passages: &[Passage]) -> Vec<Candidate<'_>> {
    passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect()
}

/// Query i sees the first i + 1 passages, so that no two requests are of one length.
fn answers(generator: &Seq2SeqGenerator, together: bool) -> Vec<Generation> {
    let (queries, passages) = (queries(), passages());
    let candidates = candidates(&passages);
    let requests: Vec<Request<'_>> =
        queries.iter().enumerate().map(|(i, query)| Request { query, passages: &candidates[..=i] }).collect();
    if together {
        generator.generate(&requests).unwrap()
    } else {
        requests
            .iter()
            .flat_map(|request| generator.generate(std::slice::from_ref(request)).unwrap())
            .collect()
    }
}

#[test]
fn a_batch_answers_as_its_members_do_alone_and_in_their_order() {
    let reader = reader();
    for beams in [1, 3] {
        let build = |size| {
            let model: Arc<dyn Seq2Seq> = reader.model.clone();
            Seq2SeqGenerator::new(&options(size, beams), model, reader.tokenizer.clone()).unwrap()
        };
        let (together, alone) = (answers(&build(8), true), answers(&build(1), false));
        assert_eq!(together.len(), 3);
        for (a, b) in together.iter().zip(&alone) {
            assert_eq!(a.text, b.text);
            assert_eq!(a.alternatives.len(), beams - 1);
            assert!((a.score - b.score).abs() < 1e-4, "{} {}", a.score, b.score);
        }
        // Of three passages the third request reads two.
        let evidence: Vec<_> = together.iter().map(|answer| answer.evidence.clone()).collect();
        assert_eq!(evidence, [vec![0], vec![0, 1], vec![0, 1]]);
    }
}

#[test]
fn a_trained_reader_answers_from_its_passages_and_its_folder_opens_as_a_generator() {
    let reader = reader();
    let (queries, passages) = (queries(), passages());
    let prompt = Prompt::new(options(8, 1).prompt).unwrap();
    // The same question about different passages: only the passages distinguish the answers.
    let (all, mut rows) = (candidates(&passages), Vec::new());
    let born = &queries[1];
    for (candidate, answer) in all.iter().zip(["London", "Leipzig", "Bryn Mawr"]) {
        let request = Request { query: born, passages: std::slice::from_ref(candidate) };
        let source =
            reader.tokenizer.encode(&prompt.text(&request, &reader.tokenizer).unwrap(), None).unwrap();
        rows.push(Row { source, target: reader.tokenizer.encode(answer, None).unwrap() });
    }
    let rows = Arc::new(rows);
    let config = serde_json::to_vec(&ModelConfig::T5(reader.config.clone()).to_json()).unwrap();
    let extra_files: Vec<_> =
        reader.files.iter().cloned().chain([("config.json".to_owned(), config)]).collect();
    let folder = tempfile::tempdir().unwrap();
    let training =
        TrainingOptions { steps: 120, learning_rate: 3e-3, warmup_steps: Some(10), ..Default::default() };
    let given = |_| Ok(rows.clone());
    train(
        &Training {
            objective: &Seq2SeqObjective::new(reader.model.as_ref(), &reader.variables, &training, &given),
            variables: &reader.variables,
            options: &training,
            evaluate: None,
            folder: folder.path(),
            extra_files: &extra_files,
        },
        &mut |_| std::ops::ControlFlow::Continue(()),
    )
    .unwrap();
    let model = best_folder(folder.path()).unwrap().unwrap();
    let generator = Seq2SeqGenerator::load(&Seq2SeqOptions { model, ..options(8, 1) }).unwrap();
    let requests: Vec<Request<'_>> = all
        .iter()
        .map(|candidate| Request { query: born, passages: std::slice::from_ref(candidate) })
        .collect();
    let texts: Vec<String> =
        generator.generate(&requests).unwrap().into_iter().map(|answer| answer.text).collect();
    assert_eq!(texts, ["London", "Leipzig", "Bryn Mawr"]);
}

#[test]
fn without_passages_a_request_is_answered_from_memory() {
    let reader = reader();
    let model: Arc<dyn Seq2Seq> = reader.model.clone();
    let generator = Seq2SeqGenerator::new(&options(8, 1), model, reader.tokenizer.clone()).unwrap();
    let queries = queries();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    let answers = generator.generate(&requests).unwrap();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer.evidence.is_empty()));
}

#[test]
fn empty_batches_and_a_folder_that_is_not_there_are_errors() {
    let reader = reader();
    let model: Arc<dyn Seq2Seq> = reader.model.clone();
    let none = Seq2SeqGenerator::new(&options(0, 1), model, reader.tokenizer).err().unwrap();
    assert!(none.to_string().contains("batch-size"), "{none}");
    let missing = Seq2SeqGenerator::load(&Seq2SeqOptions { model: "no/such".into(), ..options(8, 1) });
    assert!(missing.err().unwrap().to_string().contains("config.json"));
}
