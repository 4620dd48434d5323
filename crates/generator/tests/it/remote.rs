//! Answers of an endpoint.

#[path = "../../../remote/tests/it/server.rs"]
mod server;

use std::{
    ops::ControlFlow,
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sporran_generator::{Candidate, Generator, RemoteGenerator, RemoteOptions, Request, Sink};
use sporran_kilt::{Dataset, Passage, Query};

use server::{Reply, Server};

fn options(url: &str, cache: &Path, more: Value) -> RemoteOptions {
    let mut json = json!({
        "base-url": url, "model": "m", "instruction": "Be short.",
        "requests": { "cache": cache, "first-wait": 0.001, "retries": 2 },
    });
    for (name, value) in more.as_object().unwrap() {
        json[name] = value.clone();
    }
    serde_json::from_value(json).unwrap()
}

fn said(text: &str) -> Reply {
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 3 });
    Reply::Json(json!({ "choices": [{ "message": { "content": text } }], "usage": usage }))
}

fn page(title: &str, text: &str) -> Passage {
    Passage { title: title.into(), ..Passage::of_text(text) }
}

#[test]
fn a_conversation_has_the_instruction_the_examples_the_passages_and_the_question() {
    let place = tempfile::tempdir().unwrap();
    let shown = place.path().join("nq-train-kilt.jsonl");
    std::fs::write(&shown, "{\"id\": 1, \"input\": \"when?\", \"output\": [{\"answer\": \"1920\"}]}\n")
        .unwrap();
    let server = Server::start(|_, _| said(" Answer: \"Oslo.\" "));
    let demonstrations = json!({ "files": [shown], "count": 1 });
    let generation = json!({ "max-new-tokens": 9, "top-p": 0.5, "seed": 3, "extra": { "think": false } });
    let more = json!({ "demonstrations": demonstrations, "generation": generation, "stops": ["\n\n"] });
    let generator = RemoteGenerator::open(&options(&server.url, place.path(), more), 1).unwrap();
    let query = Query { dataset: Some(Dataset::Nq), ..Query::of_text(2i64, "which <|city|>?") };
    let passage = page("Norway", "Its capital is Oslo.");
    let passages = [Candidate { passage: &passage, score: 1.0 }];
    let request = Request { query: &query, passages: &passages };
    let found = generator.generate(&[request]).unwrap().remove(0);
    assert_eq!((found.text.as_str(), &found.evidence[..], found.tokens), ("Oslo", &[0][..], 3));
    let expected = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "Be short." },
            { "role": "user", "content": "Question: when?\nAnswer:" },
            { "role": "assistant", "content": "1920" },
            { "role": "user", "content": "Norway: Its capital is Oslo.\nQuestion: which < |city|>?\nAnswer:" },
        ],
        "max_tokens": 9, "temperature": 0.0, "top_p": 0.5, "seed": 3, "stop": ["\n\n"], "think": false,
    });
    assert_eq!(server.asked()[0].body, expected);
    let prompt = generator.prompts(&request).unwrap().remove(0);
    assert!(
        prompt.starts_with("system: Be short.\n\nuser: Question: when?\nAnswer:\n\nassistant: 1920"),
        "{prompt}"
    );
}

#[test]
fn a_continued_text_has_lines_and_its_score_is_the_mean_log_probability() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| {
        let logprobs = json!({ "token_logprobs": [-0.5, -1.0] });
        Reply::Json(json!({ "choices": [{ "text": " Oslo\nQuestion: more?", "logprobs": logprobs }] }))
    });
    let more = json!({ "api": "completions", "generation": { "log-probabilities": true } });
    let generator = RemoteGenerator::open(&options(&server.url, place.path(), more), 1).unwrap();
    let query = Query::of_text(2i64, "who?");
    let found = generator.generate(&[Request { query: &query, passages: &[] }]).unwrap().remove(0);
    assert_eq!((found.text.as_str(), found.score), ("Oslo", -0.75));
    let body = &server.asked()[0].body;
    assert_eq!(body["prompt"], "Be short.\n\nQuestion: who?\nAnswer:");
    assert_eq!((&body["stop"], &body["logprobs"]), (&json!(["\n"]), &json!(1)));
}

#[test]
fn examples_give_way_where_the_text_is_too_long() {
    let place = tempfile::tempdir().unwrap();
    let shown = place.path().join("nq-train-kilt.jsonl");
    let lines = ["when was it again?", "who was it?"].iter().enumerate();
    let line = |(id, text)| {
        format!("{{\"id\": {id}, \"input\": \"{text}\", \"output\": [{{\"answer\": \"x\"}}]}}\n")
    };
    std::fs::write(&shown, lines.map(line).collect::<String>()).unwrap();
    let server = Server::start(|_, _| said("x"));
    let query = Query { dataset: Some(Dataset::Nq), ..Query::of_text("q", "who was that?") };
    let request = Request { query: &query, passages: &[] };
    let examples = |max_tokens: usize| {
        let more = json!({ "demonstrations": { "files": [shown] }, "max-tokens": max_tokens });
        let generator = RemoteGenerator::open(&options(&server.url, place.path(), more), 1).unwrap();
        generator.prompts(&request).unwrap()[0].matches("assistant:").count()
    };
    assert_eq!((examples(4096), examples(1)), (2, 0));
    assert_eq!((1..60).map(examples).filter(|count| *count == 1).count(), 11);
}

#[test]
fn a_claim_gets_a_label_and_a_mention_the_title_of_a_passage() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, asked| {
        let asked = asked.body["messages"][1]["content"].as_str().unwrap();
        let answer = ["claim one", "claim two", "Paris END", "Oslo END", "Rome END"];
        said(match answer.iter().position(|text| asked.contains(&text.replace("END", "[END_ENT]"))) {
            Some(0) => "The claim is refuted.",
            Some(1) => "I do not know",
            Some(2) => "It is paris, texas.",
            Some(3) => "2",
            _ => "neither",
        })
    });
    let query = |dataset, text: &str| Query { dataset: Some(dataset), ..Query::of_text(text, text) };
    let mention = |name: &str| query(Dataset::Wned, &format!("in [START_ENT] {name} [END_ENT] today"));
    let queries = [
        query(Dataset::Fever, "claim one"),
        query(Dataset::Fever, "claim two"),
        mention("Paris"),
        mention("Oslo"),
        mention("Rome"),
    ];
    let passages = [page("Paris", "a"), page("Oslo", "b"), page("Paris, Texas", "c"), page("Rome", "d")];
    let passages: Vec<Candidate<'_>> =
        passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
    let requests: Vec<Request<'_>> =
        queries.iter().map(|query| Request { query, passages: &passages }).collect();
    let generator =
        RemoteGenerator::open(&options(&server.url, place.path(), json!({ "choose": true })), 1).unwrap();
    let found = generator.generate(&requests).unwrap();
    let found: Vec<(&str, &[usize])> = found.iter().map(|it| (it.text.as_str(), &it.evidence[..])).collect();
    assert_eq!(
        found,
        [
            ("REFUTES", &[0, 1, 2][..]),
            ("I do not know", &[0, 1, 2]),
            ("Paris, Texas", &[2, 0, 1]),
            ("Oslo", &[1, 0, 2]),
            // The fourth passage is not read.
            ("Paris", &[0, 1, 2]),
        ]
    );
}

/// Collects the texts of each request, and ends request 1 after three characters.
#[derive(Default)]
struct Pieces(Mutex<Vec<(usize, String)>>);

impl Pieces {
    fn of(&self, request: usize) -> Vec<String> {
        let pieces = self.0.lock().unwrap();
        pieces.iter().filter(|(of, _)| *of == request).map(|(_, text)| text.clone()).collect()
    }
}

impl Sink for Pieces {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.0.lock().unwrap().push((request, text.to_owned()));
        if request == 1 && self.of(1).concat().len() >= 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

fn events(texts: &[&str]) -> Vec<String> {
    let event = |text: &&str| json!({ "choices": [{ "delta": { "content": text } }] }).to_string();
    let role = json!({ "choices": [{ "delta": { "role": "assistant" } }] }).to_string();
    std::iter::once(role).chain(texts.iter().map(event)).collect()
}

#[test]
fn a_sink_receives_the_text_goes_on_after_a_broken_stream_and_ends_a_request() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|at, asked| {
        let asked = asked.body["messages"][1]["content"].as_str().unwrap();
        if asked.contains("long?") {
            return Reply::SlowEvents(Duration::from_millis(5), events(&["a"; 10_000]));
        }
        if at < 2 && asked.contains("city?") {
            return Reply::Events(events(&["<think>no", "</think>", "Os"]));
        }
        let mut all = events(&["<think>", "yes</think>\n\nO", "sl", "o."]);
        all.push(json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }).to_string());
        all.push(json!({ "choices": [], "usage": { "completion_tokens": 4 } }).to_string());
        all.push("[DONE]".into());
        Reply::Events(all)
    });
    let generator = RemoteGenerator::open(&options(&server.url, place.path(), json!({})), 1).unwrap();
    let queries = ["which city?", "how long?"].map(|text| Query::of_text(text, text));
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    let (pieces, start) = (Pieces::default(), Instant::now());
    let found = generator.generate_into(&requests, &pieces).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(pieces.of(0).concat(), "Oslo.");
    assert!(pieces.of(0).len() > 1, "{:?}", pieces.of(0));
    assert_eq!((found[0].text.as_str(), found[0].tokens), ("Oslo.", 4));
    assert_eq!((pieces.of(1).concat().as_str(), found[1].text.as_str()), ("aaa", "aaa"));
    // The whole answer is in the cache, and the ended one is not.
    let before = server.asked().len();
    let again = Pieces::default();
    let cached = generator.generate_into(&requests[..1], &again).unwrap();
    assert_eq!((&cached[0].text, again.of(0)), (&found[0].text, vec!["Oslo.".to_owned()]));
    assert_eq!(generator.generate(&requests[..1]).unwrap()[0], cached[0]);
    assert_eq!(server.asked().len(), before);
}

#[test]
fn a_repeated_answer_that_differs_from_the_streamed_text_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|at, _| Reply::Events(events(&[["Os", "Be", "Tr"][at % 3]])));
    let generator = RemoteGenerator::open(&options(&server.url, place.path(), json!({})), 1).unwrap();
    let query = Query::of_text("q", "which?");
    let requests = [Request { query: &query, passages: &[] }];
    let error = generator.generate_into(&requests, &Pieces::default()).unwrap_err().to_string();
    assert!(error.ends_with("the repeated answer differs from the text that was streamed before"), "{error}");
}

#[test]
fn mistakes_are_found_without_a_request() {
    let check = |keys: &str| mistakes(&format!("[generator]\nkind = \"remote\"\n{keys}")).join("\n");
    let good = "base-url = \"http://localhost:1\"\nmodel = \"m\"\n";
    assert_eq!(check(good), "");
    for (keys, expected) in [
        ("model = \"m\"", "`generator.base-url`: is missing"),
        ("base-url = \"http://localhost:1\"", "`generator.model`: is missing"),
        ("base-url = \"localhost:1\"\nmodel = \"m\"", "`generator.base-url`: expected an address"),
        (
            "base-url = \"http://localhost:1\"\nmodel = \"\"",
            "`generator.model`: expected the name of a model",
        ),
        (
            &format!("{good}api-key-env = \"sk-abc123\""),
            "`generator.api-key-env`: expected the name of an environment",
        ),
        (&format!("{good}prompt.input = \"x\""), "expected a template with `{input}`"),
        (&format!("{good}stops = [\"\"]"), "`generator.stops`: expected texts, found an empty one"),
        (&format!("{good}generation.extra.stop = 1"), "another option sets `stop`"),
        (&format!("{good}demonstrations.files = [\"no.jsonl\"]"), "no file no.jsonl"),
        (&format!("{good}tokenizer = \"no\""), "`generator.tokenizer`: expected a folder with a tokenizer"),
        (&format!("{good}requests.retry = 1"), "did you mean `retries`?"),
        (
            &format!("{good}prompt.passages = 9"),
            "`generator.prompt.passages`: expected at most `evidence.depth` (5)",
        ),
    ] {
        let found = check(keys);
        assert!(found.contains(expected) && !found.contains("sk-abc"), "{keys}: {found}");
    }
}

/// The mistakes of a config with a generator.
fn mistakes(keys: &str) -> Vec<String> {
    use sporran_config::{Document, Text};
    let text = Text::new(Path::new("c.toml"), keys.to_owned(), &[]);
    let mut document = Document::parse(&text);
    let written = document.clone();
    let generator: Option<sporran_generator::GeneratorOptions> =
        document.read_stage("generator").ok().flatten();
    if let Some(generator) = generator {
        document.restore(written);
        sporran_generator::check_generator(&*generator, ("generator", true), Some(5), &mut document);
    }
    document
        .into_diagnostics()
        .iter()
        .map(ToString::to_string)
        .filter(|it| it.contains("generator"))
        .collect()
}
