//! Language models as rerankers, against the scores that `scripts/reference/decoder_encoders.py` computes with `transformers` and
//! with sentence-transformers.

use std::{fs, path::PathBuf};

use serde::Deserialize;
use sporran_kilt::{Passage, Query};
use sporran_reranker::{Computing, Error, LlmFormat, LlmOptions, LlmReranker, LlmScore, Reranker, open};
use sporran_transformers::{DeviceName, Precision};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Expected {
    pairs: Vec<(String, String)>,
    cases: Vec<Case>,
    template: String,
    template_scores: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Case {
    name: String,
    instruction: String,
    max_tokens: usize,
    /// The log odds and the probability of each pair.
    scores: Vec<(f32, f32)>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders/qwen3-reranker")
}

fn expected() -> Expected {
    serde_json::from_str(&fs::read_to_string(folder().join("expected.json")).unwrap()).unwrap()
}

fn pairs(expected: &Expected) -> Vec<(&str, &str)> {
    expected.pairs.iter().map(|(query, passage)| (query.as_str(), passage.as_str())).collect()
}

#[test]
fn log_odds_are_those_of_the_model_card_in_batches_and_alone() {
    let expected = expected();
    for Case { name, instruction, max_tokens, scores } in &expected.cases {
        for batch_tokens in [4096, 1] {
            let own = LlmOptions {
                instruction: (name != "default").then(|| instruction.clone()),
                max_tokens: Some(*max_tokens),
                batch_tokens,
                ..LlmOptions::new(folder())
            };
            let model = LlmReranker::load(&own).unwrap();
            let activation = model.activation().unwrap();
            let found = model.log_odds(&pairs(&expected)).unwrap();
            assert_eq!(found.len(), scores.len());
            for (found, (odds, probability)) in found.iter().zip(scores) {
                assert!((found - odds).abs() < 2e-5, "{name}: {found} for {odds}");
                let found = activation.scores(&[*found])[0];
                assert!((found - probability).abs() < 2e-5, "{name}: {found} for {probability}");
            }
        }
    }
    // The instruction and the cut change scores.
    let odds = |at: usize| expected.cases[at].scores[2].0;
    assert!((odds(0) - odds(1)).abs() > 1e-2 && (odds(0) - odds(2)).abs() > 1e-3);
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FormatCase {
    name: String,
    format: LlmFormat,
    prompt: Option<Vec<String>>,
    instruction: Option<String>,
    yes_token: Option<String>,
    no_token: Option<String>,
    max_tokens: usize,
    scores: Vec<f32>,
}

#[test]
fn prompts_of_other_rerankers_are_formats_and_options() {
    let expected = expected();
    let cases: Vec<FormatCase> =
        serde_json::from_str(&fs::read_to_string(folder().join("formats.json")).unwrap()).unwrap();
    for case in cases {
        let own = LlmOptions {
            format: case.format,
            prompt: case.prompt,
            instruction: case.instruction,
            yes_token: case.yes_token,
            no_token: case.no_token,
            max_tokens: Some(case.max_tokens),
            ..LlmOptions::new(folder())
        };
        let found = LlmReranker::load(&own).unwrap().log_odds(&pairs(&expected)).unwrap();
        assert_eq!(found.len(), case.scores.len());
        for (found, expected) in found.iter().zip(&case.scores) {
            assert!((found - expected).abs() < 2e-5, "{}: {found} for {expected}", case.name);
        }
    }
}

#[test]
fn a_chat_template_with_the_roles_of_a_pair_makes_the_prompt() {
    let expected = expected();
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path().join(path.file_name().unwrap())).unwrap();
    }
    fs::write(place.path().join("chat_template.jinja"), &expected.template).unwrap();
    let model = LlmReranker::load(&LlmOptions::new(place.path().into())).unwrap();
    let found = model.log_odds(&pairs(&expected)).unwrap();
    for (found, expected) in found.iter().zip(&expected.template_scores) {
        assert!((found - expected).abs() < 5e-5, "{found} for {expected}");
    }
}

#[test]
fn a_folder_without_a_reranker_s_file_is_opened_by_its_model() {
    let expected = expected();
    let computing = Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 4096 };
    let odds = open(&folder(), computing).unwrap();
    let own = LlmOptions { score: LlmScore::LogProbability, ..LlmOptions::new(folder()) };
    let probabilities = LlmReranker::load(&own).unwrap();
    for ((query, passage), (expected, probability)) in expected.pairs.iter().zip(&expected.cases[0].scores) {
        let (query, passage) = (Query::of_text(1i64, query.as_str()), Passage::of_text(passage.as_str()));
        let of = |model: &dyn Reranker| model.score(&query, &[&passage]).unwrap()[0];
        assert!((of(&*odds) - expected).abs() < 2e-5);
        assert!((of(&probabilities) - probability.ln()).abs() < 1e-4);
    }
}

#[test]
fn what_cannot_be_a_prompt_is_refused_by_name() {
    let message = |own: LlmOptions| LlmReranker::load(&own).err().unwrap().to_string();
    let own = || LlmOptions::new(folder());
    let found = message(LlmOptions { yes_token: Some("perhaps".into()), ..own() });
    assert_eq!(found, "yes-token: expected a token of the model's vocabulary, found `perhaps`");
    let found = message(LlmOptions { max_tokens: Some(20), ..own() });
    assert!(found.starts_with("max-tokens: expected more tokens than the prompt has around"), "{found}");
    let cross_encoder = folder().join("../bert-sequence");
    let error = LlmReranker::load(&LlmOptions::new(cross_encoder)).err().unwrap();
    assert!(matches!(error, Error::Head { .. }), "{error}");
}
