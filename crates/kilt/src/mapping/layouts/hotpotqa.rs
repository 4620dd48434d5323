//! HotpotQA (Yang et al. 2018).

use serde::Deserialize;

use super::Layout;
use crate::{
    Id, Result,
    mapping::{
        own::{Claim, Own, Piece, distinct},
        source::{Source, Take},
    },
};

/// An array of `{_id, question, answer, supporting_facts: [[title, sentence]], context: [[title, [sentence]]]}`. The
/// supporting sentences form one set. Questions without supporting facts, as in the hidden test set, are skipped.
///
/// The context has the sentences' texts. A sentence that it lacks is as one whose page is missing. The files of the
/// fullwiki setting have retrieved contexts, which often lack the supporting pages; those of the distractor setting have
/// the same questions with these pages.
pub(super) const LAYOUT: Layout = Layout {
    name: "hotpotqa",
    about: "HotpotQA: JSON arrays; the supporting sentences form a set; the distractor files have their texts",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "_id")]
    id: Id,
    question: String,
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    supporting_facts: Option<Vec<(String, usize)>>,
    context: Vec<(String, Vec<String>)>,
}

fn record(question: Question) -> Option<Own> {
    let Question { id, question, answer, supporting_facts, context } = question;
    let piece = |(title, number): (String, usize)| {
        let mut pages = context.iter().filter(|(other, _)| *other == title);
        let text = pages.find_map(|(_, sentences)| sentences.get(number)).cloned();
        Piece::sentence(title, text)
    };
    let set = supporting_facts?.into_iter().map(piece).collect();
    Some(Own::new(id, question, vec![Claim::of_answers(vec![answer?], distinct([set]))]))
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    source.elements(None, |_, question| Ok(vec![record(question)]), take)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, dev},
        *,
    };

    #[test]
    fn the_supporting_sentences_are_one_set() {
        let text = r#"[{"_id":"5a8b","answer":"yes","question":"Were both Danish?","type":"comparison","level":"hard",
            "supporting_facts":[["Ann Lund",0],["Bo Dahl",1],["Bo Dahl",9],["Carl",0]],
            "context":[["Ann Lund",["Ann Lund was Danish."," She sang."]],["Bo Dahl",["Bo ran."," He was Danish."]]]},
            {"_id":"5ab1","question":"Who?","context":[["X",["x"]]]}]"#;
        let set: &[&str] = &["Ann Lund|Ann Lund was Danish.", "Bo Dahl| He was Danish.", "Bo Dahl", "Carl"];
        let mut expected = Own::new("5a8b", "Were both Danish?", vec![claim("yes", &[set])]);
        // The page has no tenth sentence, and the context lacks the last page.
        expected.claims[0].evidence[0][2].is_lost = true;
        expected.claims[0].evidence[0][3].is_lost = true;
        assert_eq!(dev(LAYOUT, text).unwrap(), [Some(expected), None]);
    }

    #[test]
    fn wrong_fields_are_named() {
        let text = "[{\"_id\":\"a\",\"question\":\"q\",\"context\":[]},\n{\"_id\":\"b\",\"question\":\"q\",\"supporting_facts\":[[\"T\"]],\"context\":[]}]";
        let message = dev(LAYOUT, text).unwrap_err().to_string();
        assert!(message.contains("in0:2: field `[1].supporting_facts[0]"), "{message}");
    }
}
