//! WOW++: Wizard of Wikipedia's dialogues with relevance annotations of every candidate sentence (Eric et
//! al., 2021).

use std::{fmt, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    Result, jsonl,
    open_record::open_record,
    scores::{ranking::RELEVANT, significance::quantile},
};

/// Separates title and sentence in a label.
pub const SEPARATOR: &str = "<knowledge_separator>";
/// The sentence of a turn that is based on none, in Wizard of Wikipedia.
pub(crate) const NONE_USED: &str = "no_passages_used";
/// The field with the sentence that Wizard of Wikipedia's speaker used.
pub(crate) const GOLD: &str = "gold_sentence";
/// The field with the next turn.
pub(crate) const RESPONSE: &str = "response";

/// A file: one object of dialogue ids and dialogues, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialogues(pub Vec<(String, Dialogue)>);

/// A dialogue whose last turn requires knowledge.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialogue {
    /// The turns, oldest first.
    pub turns: Vec<String>,
    /// The topic of the dialogue.
    pub topic: String,
    /// The annotated sentences; labels may repeat.
    pub annotated_sentences: Vec<AnnotatedSentence>,
    /// Fields that only some files have, such as `knowledges`, `gold_sentence`, `response`, `start_speaker` and `id`.
    pub extra: Map<String, Value>,
}

open_record!(Dialogue, required { turns = "turns", topic = "topic", annotated_sentences = "annotated_sentences" }, optional {});

impl Dialogue {
    /// The label of the sentence that the speaker of Wizard of Wikipedia used, from the field `gold_sentence`. `None` if
    /// there is none, or if it is `no_passages_used`.
    pub fn gold_sentence(&self) -> Option<&str> {
        let label = self.extra.get(GOLD)?.as_str()?;
        (!label.trim().is_empty() && !label.contains(NONE_USED)).then_some(label)
    }

    /// The human's next turn, from the field `response`. `None` if there is none.
    pub fn response(&self) -> Option<&str> {
        self.extra.get(RESPONSE)?.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    /// The indices of the annotated sentences that are the gold sentence. Labels may repeat. A gold sentence without
    /// [`SEPARATOR`] is compared without its title, which may precede it.
    pub fn gold_places(&self) -> Vec<usize> {
        let Some((title, sentence)) = self.gold_sentence().map(parts) else { return Vec::new() };
        let is_gold = |annotated: &AnnotatedSentence| {
            let (of, text) = annotated.parts();
            if title.is_empty() {
                !text.is_empty() && sentence.ends_with(&text)
            } else {
                (of, text) == (title.clone(), sentence.clone())
            }
        };
        let sentences = self.annotated_sentences.iter().enumerate();
        sentences.filter(|(_, annotated)| is_gold(annotated)).map(|(at, _)| at).collect()
    }
}

impl Dialogues {
    /// The third quartile of the confidences of all annotated sentences, the cut-off of Eric et al. (2021, section 3.3).
    /// Interpolates linearly between the two nearest confidences. `None` without sentences.
    pub fn third_quartile(&self) -> Option<f64> {
        let sentences = self.0.iter().flat_map(|(_, dialogue)| &dialogue.annotated_sentences);
        let mut confidences: Vec<f64> = sentences.map(|sentence| sentence.confidence).collect();
        confidences.sort_unstable_by(f64::total_cmp);
        (!confidences.is_empty()).then(|| quantile(&confidences, 0.75))
    }
}

/// A sentence with its relevance annotation.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnotatedSentence {
    /// Title, [`SEPARATOR`] and sentence, as the file has it.
    pub label: String,
    /// The share of annotators that chose it as relevant, 0 to 1.
    pub confidence: f64,
    /// The annotators' label, such as `notRelevant`.
    pub relevance: Option<String>,
    /// The article's title.
    pub article: Option<String>,
    /// Fields that WOW++ does not define.
    pub extra: Map<String, Value>,
}

open_record!(AnnotatedSentence, required { label = "label", confidence = "confidence" }, optional {
    relevance = "relevance",
    article = "article"
});

impl AnnotatedSentence {
    /// Whether enough annotators chose it as relevant: a confidence of at least 0.6.
    pub fn is_relevant(&self) -> bool {
        self.confidence >= RELEVANT
    }

    /// Title and sentence with repaired encoding. Models read these; output keeps the label.
    pub fn parts(&self) -> (String, String) {
        parts(&self.label)
    }
}

/// Title and sentence of a label with repaired encoding; an empty title if the label has none.
pub fn parts(label: &str) -> (String, String) {
    let label = repaired(label);
    match label.split_once(SEPARATOR) {
        Some((title, sentence)) => (title.trim().to_owned(), sentence.trim().to_owned()),
        None => (String::new(), label.trim().to_owned()),
    }
}

/// Undoes UTF-8 that was read as Latin-1, run by run: characters U+0080 to U+00FF whose code points are valid UTF-8
/// together. Other text stays as it is.
pub fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut run = Vec::new();
    let flush = |run: &mut Vec<u8>, out: &mut String| {
        match std::str::from_utf8(run) {
            Ok(decoded) => out.push_str(decoded),
            Err(_) => out.extend(run.iter().map(|&byte| char::from(byte))),
        }
        run.clear();
    };
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) if byte >= 0x80 => run.push(byte),
            _ => {
                flush(&mut run, &mut out);
                out.push(character);
            }
        }
    }
    flush(&mut run, &mut out);
    out
}

impl<'de> Deserialize<'de> for Dialogues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Dialogues;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of dialogue ids and dialogues")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dialogues, A::Error> {
                let mut dialogues = Vec::new();
                let mut seen = rustc_hash::FxHashSet::default();
                while let Some((id, dialogue)) = map.next_entry::<String, Dialogue>()? {
                    if !seen.insert(id.clone()) {
                        return Err(A::Error::custom(format!(
                            "expected different dialogue ids, found `{id}` twice"
                        )));
                    }
                    let confidences = dialogue.annotated_sentences.iter().map(|sentence| sentence.confidence);
                    if let Some((at, found)) =
                        confidences.enumerate().find(|(_, share)| !(0.0..=1.0).contains(share))
                    {
                        return Err(A::Error::custom(format!(
                            "dialogue `{id}`: field `annotated_sentences[{at}].confidence`: expected a number from 0 to 1, found {found}"
                        )));
                    }
                    dialogues.push((id, dialogue));
                }
                Ok(Dialogues(dialogues))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Reads a file.
///
/// # Errors
/// Read errors, with line and field; the same dialogue id twice; a confidence that is no share.
pub fn load(path: impl AsRef<Path>) -> Result<Dialogues> {
    jsonl::read_json(path)
}

/// Writes a file, a dialogue a line.
pub struct DialogueWriter {
    writer: jsonl::Writer,
    count: u64,
}

impl DialogueWriter {
    /// Starts a file.
    ///
    /// # Errors
    /// As [`jsonl::Writer::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { writer: jsonl::Writer::create(path)?, count: 0 })
    }

    /// Writes a dialogue; no other may have its id.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails.
    pub fn dialogue(&mut self, id: &str, dialogue: &Dialogue) -> Result<()> {
        self.writer.bytes(if self.count == 0 { b"{" } else { b"," })?;
        self.count += 1;
        self.writer.bytes(Value::from(id).to_string().as_bytes())?;
        self.writer.bytes(b":")?;
        self.writer.record(dialogue)
    }

    /// Completes the file and renames it to its path.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails; then no file appears.
    pub fn finish(mut self) -> Result<()> {
        self.writer.line(if self.count == 0 { b"{}" } else { b"}" })?;
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_that_is_no_share_is_refused() {
        for confidence in ["1.5", "-0.5", "60"] {
            let json = format!(
                r#"{{"a":{{"turns":[],"topic":"","annotated_sentences":[{{"label":"T <knowledge_separator> S.","confidence":{confidence}}}]}}}}"#
            );
            let message = serde_json::from_str::<Dialogues>(&json).unwrap_err().to_string();
            let expected = "dialogue `a`: field `annotated_sentences[0].confidence`: expected a number from 0 to 1, found";
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_file_survives_a_round_trip_in_its_order() {
        let json = r#"{"z":{"turns":["a"],"topic":"t","annotated_sentences":[{"label":"T <knowledge_separator> S.","confidence":0.6,"relevance":"relevant","article":"T","n":1}],"start_speaker":0},"a":{"turns":[],"topic":"","annotated_sentences":[]}}"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.json");
        jsonl::write(&path, json.as_bytes()).unwrap();
        let dialogues = load(&path).unwrap();
        let sentence = &dialogues.0[0].1.annotated_sentences[0];
        assert!(sentence.is_relevant());
        assert_eq!(sentence.parts(), ("T".into(), "S.".into()));
        let mut writer = DialogueWriter::create(&path).unwrap();
        dialogues.0.iter().for_each(|(id, dialogue)| writer.dialogue(id, dialogue).unwrap());
        writer.finish().unwrap();
        assert_eq!(jsonl::read_to_string(&path).unwrap().replace('\n', ""), json);
    }

    fn dialogue(gold: &str, confidences: &[f64]) -> Dialogue {
        let sentence = |(at, confidence): (usize, &f64)| serde_json::json!({ "label": format!("T{} {SEPARATOR} S{}.", at / 2, at % 2), "confidence": confidence });
        let sentences: Vec<Value> = confidences.iter().enumerate().map(sentence).collect();
        let json = serde_json::json!({ "turns": [], "topic": "", "annotated_sentences": sentences,
            "gold_sentence": gold, "response": " Yes. " });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_gold_sentence_is_found_by_title_and_sentence_or_by_sentence() {
        let places = |gold: &str| dialogue(gold, &[0.1; 4]).gold_places();
        assert_eq!(places("T1 <knowledge_separator> S0."), [2]);
        assert_eq!(places("S1."), [1, 3]);
        assert_eq!(places("T1 S1."), [1, 3]);
        assert!(places("T2 <knowledge_separator> S0.").is_empty());
        for none in ["", " ", "no_passages_used <knowledge_separator> no_passages_used"] {
            assert_eq!(dialogue(none, &[0.1]).gold_sentence(), None);
        }
        assert_eq!(dialogue("S0.", &[]).response(), Some("Yes."));
    }

    #[test]
    fn the_third_quartile_is_over_the_sentences_of_all_dialogues() {
        let of = |confidences: &[&[f64]]| {
            let each = confidences.iter().enumerate();
            Dialogues(each.map(|(at, own)| (at.to_string(), dialogue("", own))).collect()).third_quartile()
        };
        // Sorted: 0, 0.2, 0.4, 0.6, 1; three quarters of four steps end at 0.6.
        assert_eq!(of(&[&[1.0, 0.0, 0.4], &[0.6, 0.2]]), Some(0.6));
        // Three quarters of three steps end at 2.25 steps: 0.4 + 0.25 * (0.8 - 0.4).
        assert!((of(&[&[0.0, 0.8, 0.4, 0.2]]).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(of(&[&[]]), None);
    }

    #[test]
    fn latin_1_is_repaired_and_honest_text_is_kept() {
        assert_eq!(repaired("1979\u{c2}\u{a0}\u{e2}\u{80}\u{93} Caf\u{c3}\u{a9}"), "1979\u{a0}\u{2013} Café");
        assert_eq!(repaired("Café \u{2013} naïve"), "Café \u{2013} naïve");
    }

    #[test]
    fn faults_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"d":{"turns":[],"topic":"","annotated_sentences":[{"label":"x"}]}}"#)
            .unwrap();
        let message = load(file.path()).unwrap_err().to_string();
        assert!(message.contains("d.annotated_sentences[0]") && message.contains("confidence"), "{message}");
        let twice = r#"{"d":{"turns":[],"topic":"","annotated_sentences":[]},"d":{"turns":[],"topic":"","annotated_sentences":[]}}"#;
        std::fs::write(file.path(), twice).unwrap();
        assert!(load(file.path()).unwrap_err().to_string().contains("`d` twice"));
    }
}
