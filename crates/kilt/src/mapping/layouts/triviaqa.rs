//! TriviaQA (Joshi et al. 2017).

use serde::Deserialize;

use super::Layout;
use crate::{
    Id, Result,
    mapping::{
        own::{Answer, Claim, Own, Piece, distinct_texts},
        source::{Source, Take},
    },
};

/// `qa/wikipedia-{train,dev}.json`: `{"Data": [{QuestionId, Question, Answer: {Value, Aliases, NormalizedAliases},
/// EntityPages: [{Title}]}]}`. Each alias of the answer is an answer, and each normalised one, as in KILT's files. Each page in which an alias is found is a set of evidence for that alias.
/// Questions without an answer, as in the test file, are skipped.
pub(super) const LAYOUT: Layout = Layout {
    name: "triviaqa",
    about: "TriviaQA's qa/wikipedia-*.json; the evidence is each alias of the answer in each page of the question",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "QuestionId")]
    id: Id,
    #[serde(rename = "Question")]
    question: String,
    #[serde(rename = "Answer", default)]
    answer: Option<Names>,
    #[serde(rename = "EntityPages", default)]
    pages: Vec<Page>,
}

#[derive(Deserialize)]
struct Names {
    #[serde(rename = "Value")]
    value: String,
    #[serde(rename = "Aliases", default)]
    aliases: Vec<String>,
    #[serde(rename = "NormalizedAliases", default)]
    normalized: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "Title")]
    title: String,
}

fn record(question: Question) -> Option<Own> {
    let Question { id, question, answer, pages } = question;
    let Names { value, aliases, normalized } = answer?;
    let titles = distinct_texts(pages.iter().map(|page| &page.title));
    let sought = distinct_texts([value].iter().chain(&aliases));
    let claim = |text: String| Claim {
        // As in KILT's files, a normalised alias has no evidence: it would be that of the alias.
        evidence: match sought.contains(&text) {
            true => titles.iter().map(|title| vec![Piece::text(title, &text)]).collect(),
            false => Vec::new(),
        },
        answer: Answer::Text(text),
        is_optional: true,
        ..Claim::default()
    };
    let claims = distinct_texts(sought.iter().chain(&normalized)).into_iter().map(claim).collect();
    Some(Own::new(id, question, claims))
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    source.elements(Some("Data"), |_, question| Ok(vec![record(question)]), take)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, dev},
        *,
    };

    #[test]
    fn each_alias_is_sought_in_each_page_and_a_normalised_one_in_none() {
        let text = r#"{"Data":[{"Answer":{"Aliases":["Park Grove","Sunset Blvd"," Sunset Boulevard "],"NormalizedAliases":["park grove","sunset blvd"],"Type":"WikipediaEntity","Value":"Sunset Boulevard"},
            "EntityPages":[{"DocSource":"TagMe","Filename":"Lloyd.txt","Title":"Andrew Lloyd"},{"DocSource":"TagMe","Filename":"US.txt","Title":"United States"}],
            "Question":"Which musical?","QuestionId":"tc_33","QuestionSource":"http://x","SearchResults":[]},
            {"Question":"Which?","QuestionId":"tc_34","EntityPages":[]}],"Domain":"Wikipedia"}"#;
        let of = |answer: &str| {
            let [lloyd, us] = ["Andrew Lloyd", "United States"].map(|title| format!("{title}|{answer}"));
            Claim { is_optional: true, ..claim(answer, &[&[lloyd.as_str()], &[us.as_str()]]) }
        };
        let normalised = |answer: &str| Claim { is_optional: true, ..claim(answer, &[]) };
        let mut claims = ["Sunset Boulevard", "Park Grove", "Sunset Blvd"].map(of).to_vec();
        claims.extend(["park grove", "sunset blvd"].map(normalised));
        let expected = Own::new("tc_33", "Which musical?", claims);
        assert_eq!(dev(LAYOUT, text).unwrap(), [Some(expected), None]);
    }

    #[test]
    fn wrong_fields_are_named() {
        let text = "{\"Data\":[\n{\"Question\":\"q\",\"QuestionId\":\"a\",\"Answer\":{\"Aliases\":[]},\"EntityPages\":[]}]}";
        let message = dev(LAYOUT, text).unwrap_err().to_string();
        assert!(message.contains("in0:2: field `Data[0].Answer`: missing field `Value`"), "{message}");
        let message = dev(LAYOUT, "[]").unwrap_err().to_string();
        assert!(message.contains("in0:1: expected an object"), "{message}");
    }
}
