//! The structure of predictions that KILT's scorers expect.

use serde_json::Value;
use sporran_kilt::{Id, PassageStore, Provenance, Record, store::PageIndex};

/// Reports the mistakes of a prediction, each as a field and a message: an empty id, outputs other than
/// exactly one `{answer, provenance}`, items without a page, duplicate items, values of a wrong type, and
/// impossible offsets. With a store, items must have its pages, and offsets must be on them.
pub fn shape(record: &Record, store: Option<&PassageStore>, fault: &mut dyn FnMut(&str, String)) {
    if record.id.text().is_empty() {
        fault("id", "expected a name or a number, found an empty text".to_owned());
    }
    match record.outputs() {
        [output] => {
            if output.answer.is_none() {
                fault("output[0].answer", "expected a string, found none".to_owned());
            }
            if output.provenance.is_none() {
                fault("output[0].provenance", "expected a list, found none".to_owned());
            }
            for (number, item) in output.evidence().iter().enumerate() {
                check_item(item, store, &mut |field, message| {
                    fault(&format!("output[0].provenance[{number}].{field}"), message);
                });
                let before = &output.evidence()[..number];
                if let Some(first) = before.iter().position(|other| is_same(other, item)) {
                    let message = format!("expected items that differ, found the one of [{first}] again");
                    fault(&format!("output[0].provenance[{number}]"), message);
                }
            }
        }
        outputs => fault("output", format!("expected exactly one, found {}", outputs.len())),
    }
    if record.meta.as_ref().is_some_and(|meta| !matches!(meta, Value::Object(_))) {
        fault("meta", "expected an object".to_owned());
    }
}

/// Whether two items have the same page and offsets. Ignores scores.
fn is_same(one: &Provenance, other: &Provenance) -> bool {
    let page = |item: &Provenance| item.wikipedia_id.as_ref().map(|id| id.text().into_owned());
    let place = |item: &Provenance| {
        [&item.start_paragraph_id, &item.start_character, &item.end_paragraph_id, &item.end_character]
            .map(|id| id.clone())
    };
    page(one).is_some()
        && page(one) == page(other)
        && place(one) == place(other)
        && one.section == other.section
        && one.extra.get("text") == other.extra.get("text")
}

/// The type of a JSON value, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn check_item(item: &Provenance, store: Option<&PassageStore>, fault: &mut dyn FnMut(&str, String)) {
    // Includes a section that is null.
    for field in ["section", "text"] {
        if let Some(found) = item.extra.get(field).filter(|found| !found.is_string()) {
            fault(field, format!("expected a string, found {}", kind(found)));
        }
    }
    if let Some(found) = item.extra.get("score").filter(|found| !found.is_number()) {
        fault("score", format!("expected a number, found {}", kind(found)));
    }
    let id = item.wikipedia_id.as_ref().map(Id::text).filter(|id| !id.is_empty());
    let mut held = None;
    match (&id, store) {
        (None, _) => fault("wikipedia_id", "expected a page's id, found none".to_owned()),
        (Some(_), None) => {}
        (Some(id), Some(store)) => match store.page_by_id(id) {
            Some(page) => {
                held = Some((store, page));
                let (expected, found) = (store.page_title(page), item.title.as_deref());
                if let Some(found) = found.filter(|found| found.trim() != expected.trim()) {
                    fault("title", format!("expected `{expected}`, the page's title, found `{found}`"));
                }
            }
            None => {
                fault("wikipedia_id", format!("expected the id of a page of the source, found `{id}`"));
            }
        },
    }
    let mut number = |field: &'static str, id: &Option<Id>| -> Option<u64> {
        let id = id.as_ref()?;
        let number = id.number().and_then(|number| u64::try_from(number).ok());
        if number.is_none() {
            fault(field, format!("expected a whole number from 0 on, found `{id}`"));
        }
        number
    };
    let start = number("start_paragraph_id", &item.start_paragraph_id);
    let start_character = number("start_character", &item.start_character);
    let end = number("end_paragraph_id", &item.end_paragraph_id);
    let end_character = number("end_character", &item.end_character);
    for (field, has, other, present) in [
        (
            "start_paragraph_id",
            item.start_paragraph_id.is_some(),
            "end_paragraph_id",
            item.end_paragraph_id.is_some(),
        ),
        (
            "end_paragraph_id",
            item.end_paragraph_id.is_some(),
            "start_paragraph_id",
            item.start_paragraph_id.is_some(),
        ),
        ("start_character", item.start_character.is_some(), "end_character", item.end_character.is_some()),
        ("end_character", item.end_character.is_some(), "start_character", item.start_character.is_some()),
        (
            "start_character",
            item.start_character.is_some(),
            "start_paragraph_id",
            item.start_paragraph_id.is_some(),
        ),
    ] {
        if has && !present {
            fault(field, format!("expected `{other}` with it"));
        }
    }
    let (Some(start), Some(end)) = (start, end) else { return };
    if start > end {
        fault("end_paragraph_id", format!("expected {start} or more, where it starts, found {end}"));
    }
    if let (Some(first), Some(last)) = (start_character, end_character)
        && start == end
        && first > last
    {
        fault("end_character", format!("expected {first} or more, where it starts, found {last}"));
    }
    let Some(page) = held else { return };
    for (fields, paragraph, character) in [
        (["start_paragraph_id", "start_character"], start, start_character),
        (["end_paragraph_id", "end_character"], end, end_character),
    ] {
        check_place(page, fields, paragraph, character, fault);
    }
}

/// Reports a paragraph that is not on the page, and a character beyond its end.
fn check_place(
    (store, page): (&PassageStore, PageIndex),
    [paragraph_field, character_field]: [&str; 2],
    paragraph: u64,
    character: Option<u64>,
    fault: &mut dyn FnMut(&str, String),
) {
    let count = store.paragraph_count(page);
    let Some(number) = u32::try_from(paragraph).ok().filter(|&number| (number as usize) < count) else {
        let message = format!("expected a number below {count}, the page's paragraphs, found {paragraph}");
        return fault(paragraph_field, message);
    };
    let length = store.paragraph(page, number).chars().count() as u64;
    if let Some(character) = character.filter(|&character| character > length) {
        let message = format!("expected {length} at most, the paragraph's characters, found {character}");
        fault(character_field, message);
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{PassageSplit, jsonl, store::BuildOptions};

    use super::*;

    fn found(output: &str, store: Option<&PassageStore>) -> Vec<String> {
        let record = format!(r#"{{"id":"a","output":{output}}}"#);
        let record: Record = serde_json::from_str(&record).unwrap();
        let mut found = Vec::new();
        shape(&record, store, &mut |field, message| found.push(format!("{field}: {message}")));
        found
    }

    fn item(item: &str, store: Option<&PassageStore>) -> Vec<String> {
        let found = found(&format!(r#"[{{"answer":"x","provenance":[{{{item}}}]}}]"#), store);
        found
            .into_iter()
            .map(|fault| fault.strip_prefix("output[0].provenance[0].").unwrap().to_owned())
            .collect()
    }

    #[test]
    fn one_output_with_answer_and_provenance_is_expected() {
        assert!(found(r#"[{"answer":"","provenance":[]}]"#, None).is_empty());
        assert_eq!(found("[]", None), ["output: expected exactly one, found 0"]);
        let two = r#"[{"answer":"a","provenance":[]},{"answer":"b","provenance":[]}]"#;
        assert_eq!(found(two, None), ["output: expected exactly one, found 2"]);
        assert_eq!(found("[{}]", None).len(), 2);
    }

    #[test]
    fn an_id_is_not_empty_and_no_item_is_there_twice() {
        for id in ["", "  "] {
            let text = format!(r#"{{"id":"{id}","output":[{{"answer":"x","provenance":[]}}]}}"#);
            let mut found = Vec::new();
            let record: Record = serde_json::from_str(&text).unwrap();
            shape(&record, None, &mut |field, message| found.push(format!("{field}: {message}")));
            assert_eq!(found, ["id: expected a name or a number, found an empty text"]);
        }
        let both = |one: &str, other: &str| {
            let items = format!(r#"{{"wikipedia_id":"7"{one}}},{{"wikipedia_id":7{other}}}"#);
            found(&format!(r#"[{{"answer":"x","provenance":[{items}]}}]"#), None)
        };
        let again = "output[0].provenance[1]: expected items that differ, found the one of [0] again";
        assert_eq!(both("", r#","score":1"#), [again]);
        let place = r#","start_paragraph_id":1,"end_paragraph_id":1"#;
        assert_eq!(both(place, place), [again]);
        assert!(both(place, "").is_empty());
        assert!(both(r#","section":"A""#, r#","section":"B""#).is_empty());
        assert!(both(r#","text":"a""#, r#","text":"b""#).is_empty());
        assert!(
            found(r#"[{"answer":"x","provenance":[{"wikipedia_id":1},{"wikipedia_id":2}]}]"#, None)
                .is_empty()
        );
    }

    #[test]
    fn values_have_their_types() {
        for (field, expected) in [
            (r#""section":null"#, "section: expected a string, found null"),
            (r#""text":["x"]"#, "text: expected a string, found a list"),
            (r#""text":null"#, "text: expected a string, found null"),
            (r#""score":"0.5""#, "score: expected a number, found a string"),
            (r#""score":null"#, "score: expected a number, found null"),
        ] {
            assert_eq!(item(&format!(r#""wikipedia_id":"7",{field}"#), None), [expected]);
        }
        assert!(item(r#""wikipedia_id":"7","section":"S","text":"","score":-1.5e3"#, None).is_empty());
    }

    #[test]
    fn a_place_has_a_start_before_its_end() {
        let whole = r#""wikipedia_id":7,"start_paragraph_id":1,"start_character":3,"end_paragraph_id":2,"end_character":1"#;
        assert!(item(whole, None).is_empty());
        for (place, expected) in [
            (r#""start_paragraph_id":1"#, "start_paragraph_id: expected `end_paragraph_id` with it"),
            (r#""end_paragraph_id":1"#, "end_paragraph_id: expected `start_paragraph_id` with it"),
            (
                r#""start_paragraph_id":2,"end_paragraph_id":1"#,
                "end_paragraph_id: expected 2 or more, where it starts, found 1",
            ),
            (
                r#""start_paragraph_id":2,"end_paragraph_id":2,"start_character":5,"end_character":4"#,
                "end_character: expected 5 or more, where it starts, found 4",
            ),
            (
                r#""start_character":5,"end_character":9"#,
                "start_character: expected `start_paragraph_id` with it",
            ),
            (
                r#""start_paragraph_id":"x","end_paragraph_id":2"#,
                "start_paragraph_id: expected a whole number from 0 on, found `x`",
            ),
            (
                r#""start_paragraph_id":0,"end_paragraph_id":-1"#,
                "end_paragraph_id: expected a whole number from 0 on, found `-1`",
            ),
        ] {
            assert_eq!(item(&format!(r#""wikipedia_id":"7",{place}"#), None), [expected]);
        }
        assert_eq!(item(r#""title":"T""#, None), ["wikipedia_id: expected a page's id, found none"]);
        assert_eq!(item(r#""wikipedia_id":" ""#, None), ["wikipedia_id: expected a page's id, found none"]);
    }

    #[test]
    fn with_a_store_pages_and_places_are_real() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let page = r#"{"wikipedia_id":"7","wikipedia_title":"Z","text":["Z\n","Zoë.\n"]}"#;
        jsonl::write(&source, page.as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let item = |text: &str| item(text, Some(&store));
        let place = |id: &str, end: u64, character: u64| {
            format!(
                r#""wikipedia_id":"{id}","start_paragraph_id":1,"start_character":0,"end_paragraph_id":{end},"end_character":{character}"#
            )
        };
        assert!(item(&place("7", 1, 4)).is_empty() && item(&place(" 7 ", 1, 4)).is_empty());
        assert_eq!(
            item(&place("8", 1, 4)),
            ["wikipedia_id: expected the id of a page of the source, found `8`"]
        );
        assert_eq!(
            item(&place("7", 2, 4)),
            ["end_paragraph_id: expected a number below 2, the page's paragraphs, found 2"]
        );
        assert!(item(r#""wikipedia_id":"7","title":"Z""#).is_empty());
        assert_eq!(
            item(r#""wikipedia_id":"7","title":"Y""#),
            ["title: expected `Z`, the page's title, found `Y`"]
        );
        let beyond = item(&place("7", 1, 9));
        assert!(beyond.len() == 1 && beyond[0].starts_with("end_character: expected "), "{beyond:?}");
    }
}
