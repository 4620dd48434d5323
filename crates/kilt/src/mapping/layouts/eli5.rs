//! ELI5 (Fan et al. 2019).

use serde::Deserialize;
use serde_json::json;

use super::Layout;
use crate::{
    Id, Result,
    mapping::{
        own::{Answer, Claim, Own},
        source::{Place, Source, Take},
    },
};

/// An array or lines of `{q_id, title, answers: {text: [], score: []}}`. The title is the question. Each answer keeps
/// its score in `meta`.
///
/// The dataset has no evidence from Wikipedia. KILT collects that of `dev` and `test` from annotators; `train` has
/// none. So the records are written without evidence.
pub(super) const LAYOUT: Layout = Layout {
    name: "eli5",
    about: "ELI5: {q_id, title, answers: {text, score}}, an array or lines; written without evidence, which annotators add",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Question {
    q_id: Id,
    title: String,
    answers: Answers,
}

#[derive(Deserialize)]
struct Answers {
    text: Vec<String>,
    score: Vec<i64>,
}

fn record(place: &Place<'_>, question: Question) -> Result<Option<Own>> {
    let Question { q_id, title, answers: Answers { text, score } } = question;
    if text.len() != score.len() {
        let message = format!(
            "expected a score for each of the {} answers of `{q_id}`, found {}",
            text.len(),
            score.len()
        );
        return Err(place.wrong("answers.score", message));
    }
    let claim = |(text, score): (String, i64)| Claim {
        answer: Answer::Text(text),
        meta: Some(json!({ "score": score })),
        ..Claim::default()
    };
    let claims: Vec<Claim> = text.into_iter().zip(score).map(claim).collect();
    // A question without an answer has nothing to learn from.
    let has_answers = !claims.is_empty();
    Ok(has_answers.then(|| Own { is_bare: true, ..Own::new(q_id, title, claims) }))
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    source.elements(None, |place, question| Ok(vec![record(place, question)?]), take)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::dev, *};

    #[test]
    fn questions_have_all_answers_with_their_scores() {
        let text = r#"{"q_id":"5lcjq6","title":"Why is it blue?","selftext":"I wonder.","subreddit":"explainlikeimfive","answers":{"a_id":["d1","d2"],"text":["It scatters.","No idea."],"score":[7,-2]}}
{"q_id":"5lc000","title":"Why?","answers":{"text":[],"score":[]}}"#;
        let found = dev(LAYOUT, text).unwrap();
        let own = found[0].as_ref().unwrap();
        assert_eq!(
            (own.id.text().as_ref(), own.input.as_str(), own.is_bare),
            ("5lcjq6", "Why is it blue?", true)
        );
        let answers: Vec<_> = own.claims.iter().map(|it| (&it.answer, it.meta.clone().unwrap())).collect();
        let [blue, none] = ["It scatters.", "No idea."].map(|text| Answer::Text(text.to_owned()));
        assert_eq!(answers, [(&blue, json!({"score": 7})), (&none, json!({"score": -2}))]);
        assert_eq!(found[1], None);
    }

    #[test]
    fn wrong_fields_are_named() {
        for (text, expected) in [
            (
                "\n{\"q_id\":\"a\",\"title\":\"t\",\"answers\":{\"text\":[\"x\"],\"score\":[]}}",
                "in0:2: field `answers.score`: expected a score for each of the 1 answers of `a`, found 0",
            ),
            (
                "[{\"q_id\":\"a\",\"title\":\"t\",\"answers\":{\"text\":[7]}}]",
                "in0:1: field `[0].answers.text[0]`",
            ),
        ] {
            let message = dev(LAYOUT, text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
