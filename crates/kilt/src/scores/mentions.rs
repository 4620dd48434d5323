//! Entity linking by documents: all mentions of a text with right and wrong predictions, as in figure 4 of the KILT paper
//! (Petroni et al. 2021).

use std::{fmt, path::Path};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{kilt, mean};
use crate::{Error, Prediction, Record, Result, jsonl, split_mention};

/// The mentions of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MentionedText {
    /// The document: the record's ids without `:` and the mention's number at their end.
    pub document: String,
    /// The text, with each mention in brackets after its number: `[0: Oslo]`.
    pub text: String,
    /// The mentions, in the order of the text.
    pub mentions: Vec<Mention>,
    /// Mean exact match.
    pub em: f64,
    /// Mean F1.
    pub f1: f64,
    /// Mean exact match with the right page.
    #[serde(rename = "KILT-em")]
    pub kilt_em: f64,
    /// Mean F1 with the right page.
    #[serde(rename = "KILT-f1")]
    pub kilt_f1: f64,
}

/// A mention with its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mention {
    /// The record's id.
    pub id: String,
    /// The words of the mention.
    pub mention: String,
    /// The predicted title.
    pub prediction: String,
    /// The first predicted page.
    pub page: Option<String>,
    /// The gold titles.
    pub gold: Vec<String>,
    /// Whether the prediction is a gold title, by exact match.
    pub is_right: bool,
}

impl fmt::Display for MentionedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { document, text, mentions, em, f1, kilt_em, kilt_f1 } = self;
        writeln!(f, "{document}\n{text}")?;
        for (number, mention) in mentions.iter().enumerate() {
            let Mention { prediction, page, gold, is_right, .. } = mention;
            let (mark, page) = (if *is_right { "v" } else { "x" }, page.as_deref().unwrap_or("-"));
            write!(f, "{mark} {number}: {prediction} (page {page})")?;
            if !is_right {
                write!(f, ", gold: {}", gold.join(" | "))?;
            }
            writeln!(f)?;
        }
        let percent = |score: &f64| format!("{:.2}", 100.0 * score);
        let right = mentions.iter().filter(|mention| mention.is_right).count();
        write!(f, "{right} of {} right: em {}, ", mentions.len(), percent(em))?;
        write!(f, "f1 {}, KILT-em {}, KILT-f1 {}", percent(f1), percent(kilt_em), percent(kilt_f1))
    }
}

/// A mention with its place in a text.
struct Placed {
    /// The number of words before it, and its own.
    place: (usize, usize),
    /// `em`, `f1`, `KILT-em` and `KILT-f1`.
    scores: [f64; 4],
    mention: Mention,
}

/// The texts of a gold file with the predictions of their mentions, in the order of the first mentions. Texts are equal if their
/// words are; records of one document can show different parts of it. With `document`, only the texts of this document.
///
/// # Errors
/// Those of [`kilt::evaluate`]; [`Error::Record`] for a record without a mention between `[START_ENT]` and `[END_ENT]`;
/// [`Error::Argument`] if there is no such document.
pub fn by_text(
    gold: impl AsRef<Path>,
    guess: impl AsRef<Path>,
    document: Option<&str>,
) -> Result<Vec<MentionedText>> {
    let (gold, guess) = (gold.as_ref(), guess.as_ref());
    let records = kilt::evaluate(gold, guess)?.records;
    let columns = ["em", "f1", "KILT-em", "KILT-f1"].map(|name| records.column(name).unwrap_or_default());
    let places: FxHashMap<&str, usize> =
        records.ids().iter().enumerate().map(|(place, id)| (id.as_str(), place)).collect();
    let is_wanted = |id: &str| document.is_none_or(|wanted| document_of(id) == wanted);
    let mut predictions: FxHashMap<String, Prediction> = FxHashMap::default();
    for record in jsonl::open(guess)?.records::<Record>() {
        let record = record?;
        let id = record.id.text().into_owned();
        if is_wanted(&id)
            && let Some(output) = record.output.unwrap_or_default().pop()
        {
            let (answer, provenance) =
                (output.answer.unwrap_or_default(), output.provenance.unwrap_or_default());
            predictions.insert(id, Prediction { id: record.id, answer, provenance });
        }
    }
    let mut texts: Vec<(String, Vec<String>, Vec<Placed>)> = Vec::new();
    let mut known: FxHashMap<(String, Vec<String>), usize> = FxHashMap::default();
    for record in jsonl::open(gold)?.numbered::<Record>() {
        let (line, record) = record?;
        let id = record.id.text().into_owned();
        if !is_wanted(&id) {
            continue;
        }
        let Some((before, mention, after)) = record.input.as_deref().and_then(split_mention) else {
            let message = "expected a mention between [START_ENT] and [END_ENT], found none";
            return Err(Error::record(gold, line, "input", message));
        };
        // The scorer found a prediction for each gold record.
        let (Some(prediction), Some(&place)) = (predictions.remove(&id), places.get(id.as_str())) else {
            continue;
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let own = words(mention);
        let (start, length) = (words(before).len(), own.len());
        let all = [words(before), own, words(after)].concat();
        let key = (document_of(&id).to_owned(), all);
        let at = *known.entry(key).or_insert_with_key(|(document, all)| {
            texts.push((document.clone(), all.clone(), Vec::new()));
            texts.len() - 1
        });
        let scores = columns.each_ref().map(|column| column.get(place).copied().unwrap_or_default());
        let answers = record.outputs().iter().filter_map(|output| output.answer.as_deref());
        let gold = answers.map(|answer| answer.trim().to_owned()).collect();
        let page = prediction.provenance.first().and_then(|item| item.wikipedia_id.as_ref());
        texts[at].2.push(Placed {
            place: (start, length),
            scores,
            mention: Mention {
                mention: mention.to_owned(),
                prediction: prediction.answer.trim().to_owned(),
                page: page.map(ToString::to_string),
                gold,
                is_right: scores[0] == 1.0,
                id,
            },
        });
    }
    match document {
        Some(wanted) if texts.is_empty() => {
            let message =
                format!("{}: expected records of the document `{wanted}`, found none", gold.display());
            Err(Error::Argument(message))
        }
        _ => Ok(texts
            .into_iter()
            .map(|(document, words, placed)| mentioned(document, &words, placed))
            .collect()),
    }
}

/// The document of a record's id: `947testa CRICKET` of `947testa CRICKET:3`.
fn document_of(id: &str) -> &str {
    match id.rsplit_once(':') {
        Some((document, number)) if number.parse::<u32>().is_ok() => document,
        _ => id,
    }
}

fn mentioned(document: String, words: &[String], mut placed: Vec<Placed>) -> MentionedText {
    placed.sort_by_key(|placed| placed.place);
    let mut text: Vec<String> = words.to_vec();
    for (number, Placed { place: (start, length), .. }) in placed.iter().enumerate() {
        // A mention without words has no place to mark.
        if *length > 0 {
            text[*start].insert_str(0, &format!("[{number}: "));
            text[*start + *length - 1].push(']');
        }
    }
    let score = |at: usize| mean(placed.iter().map(|placed| placed.scores[at]));
    let (em, f1, kilt_em, kilt_f1) = (score(0), score(1), score(2), score(3));
    let mentions = placed.into_iter().map(|placed| placed.mention).collect();
    MentionedText { document, text: text.join(" "), mentions, em, f1, kilt_em, kilt_f1 }
}

#[cfg(test)]
mod tests {
    use super::{super::kilt::tests::files, *};

    const GOLD: &str = r#"{"id":"1 NEWS:1","input":"Oslo beat [START_ENT] Rome [END_ENT] on Friday .","output":[{"answer":"A.S. Roma","provenance":[{"wikipedia_id":"5"}]}]}
{"id":"1 NEWS:0","input":"[START_ENT] Oslo [END_ENT] beat Rome on  Friday .","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"6"}]}]}
{"id":"2 NEWS:0","input":"In [START_ENT] Oslo [END_ENT] .","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"6"}]}]}
"#;
    const GUESS: &str = r#"{"id":"1 NEWS:0","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"6"},{"wikipedia_id":"5"}]}]}
{"id":"1 NEWS:1","output":[{"answer":"Roma","provenance":[]}]}
{"id":"2 NEWS:0","output":[{"answer":"oslo","provenance":[{"wikipedia_id":"9"}]}]}
"#;

    #[test]
    fn the_mentions_of_a_text_are_listed_together() {
        let (_folder, gold, guess) = files(GOLD, GUESS);
        let texts = by_text(&gold, &guess, None).unwrap();
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0].text, "[0: Oslo] beat [1: Rome] on Friday .");
        // `roma` has one of the two words `as roma`: precision 1, recall 1/2.
        let f1 = (1.0 + 2.0 / 3.0) / 2.0;
        assert_eq!((texts[0].em, texts[0].kilt_em, texts[0].kilt_f1), (0.5, 0.5, 0.5));
        assert!((texts[0].f1 - f1).abs() < 1e-12);
        let expected = "1 NEWS\n[0: Oslo] beat [1: Rome] on Friday .\nv 0: Oslo (page 6)\n\
                        x 1: Roma (page -), gold: A.S. Roma\n\
                        1 of 2 right: em 50.00, f1 83.33, KILT-em 50.00, KILT-f1 50.00";
        assert_eq!(texts[0].to_string(), expected);
        // The right title with a wrong page.
        assert_eq!((texts[1].em, texts[1].kilt_em, texts[1].mentions[0].is_right), (1.0, 0.0, true));
        assert_eq!(by_text(&gold, &guess, Some("2 NEWS")).unwrap(), texts[1..]);
        let message = by_text(&gold, &guess, Some("3 NEWS")).unwrap_err().to_string();
        assert!(message.contains("records of the document `3 NEWS`"), "{message}");
    }

    #[test]
    fn a_record_without_a_mention_is_an_error() {
        let (_folder, gold, guess) = files(&GOLD.replace("[START_ENT] Rome", "Rome"), GUESS);
        let message = by_text(gold, guess, None).unwrap_err().to_string();
        assert!(message.contains("gold.jsonl:1: field `input`: expected a mention"), "{message}");
    }

    #[test]
    fn the_document_is_the_id_without_its_number() {
        assert_eq!(document_of("947testa CRICKET:10"), "947testa CRICKET");
        assert_eq!((document_of("a:b"), document_of("7")), ("a:b", "7"));
    }
}
