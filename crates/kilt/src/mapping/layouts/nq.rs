//! Natural Questions (Kwiatkowski et al. 2019).

use serde::Deserialize;

use super::Layout;
use crate::{
    Id, Result,
    mapping::{
        own::{Answer, Claim, Own, Piece, distinct},
        source::{Place, Source, Take},
    },
    store::percent_decoded,
};

/// The most tokens of a short answer (Lee et al. 2019).
const TOKENS: usize = 5;

/// JSON lines, `{example_id, question_text, document_url, document_text, annotations: [{long_answer: {start_token,
/// end_token}, short_answers: [{start_token, end_token}]}]}`. The simplified files have the `document_text`, tokens between
/// blanks; the original ones have `document_tokens: [{token}]`.
///
/// A short answer of at most five tokens is an answer; its span is a set of evidence for it. A long answer is a set of
/// evidence for all answers. Questions without a short answer are skipped.
pub(super) const LAYOUT: Layout = Layout {
    name: "nq",
    about: "Natural Questions' JSON lines, original or simplified; short answers of at most 5 tokens, short and long spans as evidence",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Line {
    example_id: Id,
    question_text: String,
    document_url: String,
    #[serde(default)]
    document_title: Option<String>,
    #[serde(default)]
    document_text: Option<String>,
    #[serde(default)]
    document_tokens: Option<Vec<Token>>,
    annotations: Vec<Annotation>,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct Annotation {
    #[serde(default)]
    long_answer: Option<Tokens>,
    #[serde(default)]
    short_answers: Vec<Tokens>,
}

/// A range of tokens; a missing long answer starts at -1.
#[derive(Deserialize)]
struct Tokens {
    start_token: i64,
    end_token: i64,
}

/// The title in a page's address.
fn title_of(url: &str) -> Option<String> {
    let name = match url.split_once("title=") {
        Some((_, rest)) => rest.split('&').next().unwrap_or_default(),
        None => url.split_once("/wiki/")?.1,
    };
    let title = percent_decoded(name).replace('_', " ");
    (!title.trim().is_empty()).then_some(title)
}

/// The words of a range: its tokens without those of HTML.
fn words<'a>(place: &Place<'_>, tokens: &[&'a str], range: &Tokens, field: &str) -> Result<Vec<&'a str>> {
    let number = |number: i64| usize::try_from(number).ok();
    let found = number(range.start_token).zip(number(range.end_token));
    let found = found.and_then(|(start, end)| tokens.get(start..end)).ok_or_else(|| {
        let message = format!(
            "expected a range of the document's {} tokens, found {} to {}",
            tokens.len(),
            range.start_token,
            range.end_token
        );
        place.wrong(field, message)
    })?;
    let is_html = |token: &str| token.starts_with('<') && token.ends_with('>');
    Ok(found.iter().copied().filter(|token| !token.is_empty() && !is_html(token)).collect())
}

fn record(place: &Place<'_>, line: Line) -> Result<Option<Own>> {
    let title = line.document_title.filter(|title| !title.trim().is_empty());
    let title = match title.or_else(|| title_of(&line.document_url)) {
        Some(title) => title,
        None => {
            let message = format!("expected the address of a page, found `{}`", line.document_url);
            return Err(place.wrong("document_url", message));
        }
    };
    let tokens: Vec<&str> = match (&line.document_text, &line.document_tokens) {
        // Two blanks have an empty token between them, which counts.
        (Some(text), _) => text.split(' ').collect(),
        (None, Some(tokens)) => tokens.iter().map(|token| token.token.as_str()).collect(),
        (None, None) => {
            let message = "expected the text, or `document_tokens` as in the original files, found neither";
            return Err(place.wrong("document_text", message));
        }
    };
    let mut answers: Vec<String> = Vec::new();
    let mut long: Vec<Vec<Piece>> = Vec::new();
    for (number, annotation) in line.annotations.iter().enumerate() {
        for (at, range) in annotation.short_answers.iter().enumerate() {
            let words = words(place, &tokens, range, &format!("annotations[{number}].short_answers[{at}]"))?;
            let answer = words.join(" ");
            if !words.is_empty() && words.len() <= TOKENS && !answers.contains(&answer) {
                answers.push(answer);
            }
        }
        if let Some(range) = annotation.long_answer.as_ref().filter(|range| range.start_token >= 0) {
            let words = words(place, &tokens, range, &format!("annotations[{number}].long_answer"))?;
            if !words.is_empty() {
                long.push(vec![Piece::text(&title, words.join(" "))]);
            }
        }
    }
    if answers.is_empty() {
        return Ok(None);
    }
    let short = |answer: String| Claim {
        evidence: vec![vec![Piece::text(&title, &answer)]],
        answer: Answer::Text(answer),
        ..Claim::default()
    };
    let mut claims: Vec<Claim> = answers.into_iter().map(short).collect();
    let evidence = distinct(long);
    if !evidence.is_empty() {
        claims.push(Claim { evidence, ..Claim::default() });
    }
    Ok(Some(Own::new(line.example_id, line.question_text, claims)))
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    source.lines(|place, line| Ok(vec![record(place, line)?]), take)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, dev},
        *,
    };

    #[test]
    fn short_answers_are_answers_and_long_ones_are_evidence() {
        // Tokens: 0 <H1>, 1 Email, 2 marketing, 3 </H1>, 4 <P>, 5 It, 6 began, 7 in, 8 1978, 9 with, 10 one, 11 ad,
        // 12 </P>.
        let text = "<H1> Email marketing </H1> <P> It began in 1978 with one ad </P>";
        let long = r#"{"start_token":4,"end_token":13,"candidate_index":0}"#;
        let none = r#"{"start_token":-1,"end_token":-1,"candidate_index":-1}"#;
        let line = |url: &str, annotations: &str| {
            format!(
                r#"{{"document_text":"{text}","long_answer_candidates":[],"question_text":"when?","annotations":[{annotations}],"document_url":"{url}","example_id":5655493461695504401}}"#
            )
        };
        let annotation = |long: &str, short: &str| {
            format!(
                r#"{{"yes_no_answer":"NONE","long_answer":{long},"short_answers":[{short}],"annotation_id":1}}"#
            )
        };
        let year = r#"{"start_token":8,"end_token":9}"#;
        let six = r#"{"start_token":6,"end_token":12}"#;
        let five = r#"{"start_token":7,"end_token":13}"#;
        let url = "https://en.wikipedia.org//w/index.php?title=Email_marketing&amp;oldid=814071202";
        let all =
            [annotation(long, &[year, six].join(",")), annotation(none, &[year, five].join(","))].join(",");
        let lines =
            [line(url, &all), line(url, &annotation(long, six)), line(url, &annotation(long, ""))].join("\n");
        let evidence = claim("", &[&["Email marketing|It began in 1978 with one ad"]]).evidence;
        let claims = vec![
            claim("1978", &[&["Email marketing|1978"]]),
            // The token of HTML does not count.
            claim("in 1978 with one ad", &[&["Email marketing|in 1978 with one ad"]]),
            Claim { evidence, ..Claim::default() },
        ];
        let expected = Own::new(5_655_493_461_695_504_401i64, "when?", claims);
        assert_eq!(dev(LAYOUT, &lines).unwrap(), [Some(expected), None, None]);
        for (range, field, found) in [
            (
                annotation(long, r#"{"start_token":9,"end_token":14}"#),
                "annotations[0].short_answers[0]",
                "9 to 14",
            ),
            (annotation(r#"{"start_token":9,"end_token":8}"#, year), "annotations[0].long_answer", "9 to 8"),
        ] {
            let message = dev(LAYOUT, &line(url, &range)).unwrap_err().to_string();
            let expected = format!(
                "in0:1: field `{field}`: expected a range of the document's 13 tokens, found {found}"
            );
            assert!(message.contains(&expected), "{message} lacks {expected}");
        }
        let message = dev(LAYOUT, &line("x", "")).unwrap_err().to_string();
        assert!(message.contains("in0:1: field `document_url`: expected the address of a page"), "{message}");
    }

    #[test]
    fn the_original_files_have_tokens_in_place_of_a_text() {
        let line = |document: &str| {
            format!(
                r#"{{"example_id":7,"question_text":"when?","document_url":"https://en.wikipedia.org/wiki/Oslo",{document}"annotations":[{{"long_answer":{{"start_token":0,"end_token":4}},"short_answers":[{{"start_token":2,"end_token":3}}]}}]}}"#
            )
        };
        let text = line(r#""document_text":"<P> In 1978 </P>","#);
        let tokens = r#"[{"token":"<P>","start_byte":0,"html_token":true},{"token":"In"},{"token":"1978"},{"token":"</P>"}]"#;
        let original = line(&format!(r#""document_tokens":{tokens},"#));
        assert_eq!(dev(LAYOUT, &original).unwrap(), dev(LAYOUT, &text).unwrap());
        let message = dev(LAYOUT, &line("")).unwrap_err().to_string();
        assert!(message.contains("in0:1: field `document_text`: expected the text, or"), "{message}");
    }

    #[test]
    fn titles_are_those_of_the_address() {
        assert_eq!(
            title_of("https://en.wikipedia.org/w/index.php?title=Caf%C3%A9_%28film%29&oldid=1").unwrap(),
            "Café (film)"
        );
        assert_eq!(title_of("http://en.wikipedia.org/wiki/The_Beatles").unwrap(), "The Beatles");
        assert_eq!(title_of("http://example.org"), None);
        assert_eq!(title_of("https://en.wikipedia.org/w/index.php?title=&oldid=1"), None);
    }
}
