//! Cross-encoders over the seeded tiny checkpoints of the transformers crate, whose logits are checked there.

use std::path::PathBuf;

use sporran_kilt::{Passage, Query};
use sporran_reranker::{CrossEncoder, CrossEncoderOptions, Error, Reranker};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders").join(name)
}

fn load(name: &str, batch_tokens: usize) -> Result<CrossEncoder, Error> {
    let options = CrossEncoderOptions { batch_tokens, ..CrossEncoderOptions::new(folder(name)) };
    CrossEncoder::load(&options)
}

fn query(text: &str) -> Query {
    Query::of_text(1i64, text)
}

fn passage(title: &str, text: &str) -> Passage {
    Passage {
        page_id: "1".into(),
        title: title.into(),
        start_paragraph: 1,
        end_paragraph: 1,
        end_character: text.len() as u32,
        ..Passage::of_text(text)
    }
}

const PAIRS: [(&str, &str); 4] = [
    ("who wrote the song", "the band wrote the song"),
    ("who wrote the song", "river"),
    ("capital of the country", "in the north of the country and in the south the king was born in the city"),
    ("who wrote the song", "the band wrote the song, and the king played it in the award year of the album"),
];

#[test]
fn a_batch_gives_what_its_members_give_alone() {
    for name in ["bert-sequence", "roberta-sequence"] {
        // All together, and every pair in a batch of its own.
        let (together, alone) = (load(name, 4096).unwrap(), load(name, 1).unwrap());
        let expected = alone.logits(&PAIRS).unwrap();
        for (found, expected) in together.logits(&PAIRS).unwrap().iter().zip(&expected) {
            assert_eq!(found.len(), together.labels());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{name}: {found} for {expected}");
            }
        }
        assert_ne!(expected[0], expected[1]);
    }
}

#[test]
fn with_one_label_its_logit_is_the_score_and_with_two_their_difference() {
    let (first, second) = (passage("", PAIRS[0].1), passage("", PAIRS[1].1));
    for (name, labels) in [("bert-sequence", 1), ("roberta-sequence", 2)] {
        let model = load(name, 4096).unwrap();
        assert_eq!(model.labels(), labels);
        let scores = model.score(&query(PAIRS[0].0), &[&first, &second]).unwrap();
        let logits = model.logits(&PAIRS[..2]).unwrap();
        for (score, logits) in scores.iter().zip(&logits) {
            let expected = if labels == 1 { logits[0] } else { logits[1] - logits[0] };
            assert_eq!(*score, expected);
        }
    }
}

#[test]
fn a_title_is_read_before_its_text_or_where_the_template_has_it() {
    let titled = passage("king", "was born in the city");
    let whole = passage("", "king was born in the city");
    let text = passage("", "was born in the city");
    let score = |template: Option<&str>, passage| {
        let passage_template = template.map(str::to_owned);
        let options =
            CrossEncoderOptions { passage_template, ..CrossEncoderOptions::new(folder("bert-sequence")) };
        CrossEncoder::load(&options).unwrap().score(&query("who"), &[passage]).unwrap()[0]
    };
    assert_eq!(score(None, &titled), score(None, &whole));
    assert_eq!(score(Some("{title} {text}"), &titled), score(None, &whole));
    assert_eq!(score(Some("{text}"), &titled), score(None, &text));
    assert_ne!(score(Some("{text} {title}"), &titled), score(None, &titled));
    let wrong = CrossEncoderOptions {
        passage_template: Some("{name}".into()),
        ..CrossEncoderOptions::new(folder("bert-sequence"))
    };
    assert!(matches!(wrong.check(), Err(Error::Option { option: "passage-template", .. })));
}

#[test]
fn no_passages_have_no_scores() {
    assert!(load("bert-sequence", 4096).unwrap().score(&query("who"), &[]).unwrap().is_empty());
}

#[test]
fn a_model_that_does_not_score_pairs_is_refused() {
    let message = |name| load(name, 4096).err().unwrap().to_string();
    assert!(
        message("bert-mlm")
            .ends_with("expected a head for sequence classification, found a head for masked tokens")
    );
    let found = message("distilbert-sequence");
    assert!(found.contains("with one label or two, found 3 labels; a passage needs one score"), "{found}");
    assert!(matches!(load("bert-sequence", 0), Err(Error::Option { option: "batch-tokens", .. })));
}
