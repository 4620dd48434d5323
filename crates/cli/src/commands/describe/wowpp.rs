//! Statistics of WOW++'s files.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::statistics::wowpp;

use super::{Layout, has, outcome};
use crate::{error::Result, outcome::Outcome};

pub(super) const LAYOUT: Layout = Layout {
    name: "wowpp",
    about: "WOW++'s files: relevant sentences by dialogue and by topic, gold sentences, kinds of last utterances (field `kind`, or \
            with --layout a .csv file of ids and kinds), kappas of `votes`",
    detects,
    describe,
};

/// A file is one object of dialogues.
fn detects(first: &Value) -> bool {
    let mut dialogues = first.as_object().into_iter().flat_map(|dialogues| dialogues.values());
    dialogues.next().is_some_and(|dialogue| has(dialogue, &["turns", "annotated_sentences"]))
}

fn describe(files: &[PathBuf]) -> Result<Outcome> {
    outcome(&LAYOUT, &wowpp::of_files(files)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_dialogues_is_detected() {
        let dialogue = json!({ "turns": [], "topic": "", "annotated_sentences": [] });
        assert!(detects(&json!({ "a": dialogue })));
        assert!(!detects(&json!({ "a": { "turns": [] } })) && !detects(&json!({})) && !detects(&json!([])));
    }
}
