//! The example of CONTRIBUTING: a kind of generator is one file and one line.

use std::path::Path;

use sporran_config::{Document, Text, kinds};
use sporran_generator::{Candidate, GeneratorContext, GeneratorKind, Request, TitleOptions};
use sporran_kilt::{Passage, Query};

use crate::first_sentence::FirstSentenceOptions;

kinds! {
    /// The registry, with the line of the new kind.
    pub enum Kinds: dyn GeneratorKind {
        /// `kind = "title"`
        "title" => Title(TitleOptions),
        /// `kind = "first-sentence"`: the first sentence of the best passage.
        "first-sentence" => FirstSentence(FirstSentenceOptions),
    }
}

/// What reading a config's `[generator]` gives: the options, or the mistakes.
fn read(table: &str) -> Result<Kinds, String> {
    let text = Text::new(Path::new("c.toml"), format!("[generator]\n{table}"), &[]);
    let mut document = Document::parse(&text);
    let options = document.require_stage::<Kinds>("generator");
    let mistakes: String = document.into_diagnostics().iter().map(ToString::to_string).collect();
    options.ok().filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

#[test]
fn a_kind_is_one_file_and_one_line() {
    let contributing = include_str!("../../../../CONTRIBUTING.md");
    for (code, fence) in [
        (include_str!("first_sentence.rs").replace("sporran_generator::", "crate::"), "```rust\n"),
        ("\"first-sentence\" => FirstSentence(FirstSentenceOptions),\n".to_owned(), ""),
    ] {
        assert!(contributing.contains(&format!("{fence}{code}")), "CONTRIBUTING.md lacks:\n{code}");
    }
    let options = read("kind = \"first-sentence\"\nmax-characters = 8\n").unwrap();
    let generator = options.open(&GeneratorContext::default()).unwrap();
    let passage = Passage::of_text("Tea is a drink. It is hot.");
    let query = Query::of_text(1i64, "What is tea?");
    let passages = [Candidate { passage: &passage, score: 2.0 }];
    let answers = generator
        .generate(&[Request { query: &query, passages: &passages }, Request { query: &query, passages: &[] }])
        .unwrap();
    assert_eq!((answers[0].text.as_str(), &answers[0].evidence[..]), ("Tea is a", &[0][..]));
    assert_eq!((answers[1].text.as_str(), answers[1].score), ("", 0.0));
    let mistakes = read("kind = \"first-sentense\"\n").unwrap_err();
    assert!(mistakes.contains("did you mean `first-sentence`?"), "{mistakes}");
    let mistakes = read("kind = \"first-sentence\"\nmax-character = 9\n").unwrap_err();
    assert!(mistakes.contains("c.toml:3: `generator.max-character`"), "{mistakes}");
}
