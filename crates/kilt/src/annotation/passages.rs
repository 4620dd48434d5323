//! The passages that items of evidence name, and the words that passages share with answers.

use rustc_hash::FxHashSet;

use crate::{
    Id, Passage, PassageId, PassageStore, Provenance, evidence, page::ParagraphKind,
    scores::answer::normalise,
};

/// The words of a record's answers.
#[derive(Debug)]
pub(super) struct AnswerWords(Vec<FxHashSet<String>>);

impl AnswerWords {
    pub(super) fn new<'a>(answers: impl IntoIterator<Item = &'a str>) -> Self {
        Self(answers.into_iter().map(words).filter(|words| !words.is_empty()).collect())
    }

    /// The largest share of an answer's distinct words that the text has. The paper gives no formula; words are
    /// normalised as for `f1`.
    pub(super) fn overlap(&self, text: &str) -> f64 {
        let text = words(text);
        let share = |answer: &FxHashSet<String>| {
            let common = answer.iter().filter(|word| text.contains(*word)).count();
            common as f64 / answer.len() as f64
        };
        self.0.iter().map(share).fold(0.0, f64::max)
    }
}

fn words(text: &str) -> FxHashSet<String> {
    normalise(text).split_whitespace().map(str::to_owned).collect()
}

/// A wrong field of an item of evidence, and the problem.
pub(super) type Fault = (&'static str, String);

/// The passage of the store in which an item of evidence starts. For a whole page it is the page's first passage of
/// highest overlap with an answer. An item that starts outside of all passages, in a header or a list item, is its own
/// span.
pub(super) fn passage_of(
    item: &Provenance,
    answers: &AnswerWords,
    store: &PassageStore,
) -> Result<Passage, Fault> {
    let Some(id) = &item.wikipedia_id else {
        return Err(("wikipedia_id", "expected the id of a page, found none".to_owned()));
    };
    let Some(page) = store.page_by_id(&id.text()) else {
        return Err(("wikipedia_id", format!("expected a page of the store, found `{id}`")));
    };
    let passages = || store.passages_of(page).map(|number| store.passage(PassageId(number)));
    let Some(paragraph) = &item.start_paragraph_id else {
        let mut best: Option<(f64, Passage)> = None;
        for passage in passages() {
            let overlap = answers.overlap(&passage.text);
            if best.as_ref().is_none_or(|(highest, _)| overlap > *highest) {
                best = Some((overlap, passage));
            }
        }
        let missing = || ("wikipedia_id", format!("expected a page with passages, found `{id}`"));
        return best.map(|(_, passage)| passage).ok_or_else(missing);
    };
    let first = number("start_paragraph_id", paragraph)?;
    let character = item.start_character.as_ref().map_or(Ok(0), |id| number("start_character", id))?;
    if first as usize >= store.paragraph_count(page) {
        let message = format!("expected a paragraph below {}, found {first}", store.paragraph_count(page));
        return Err(("start_paragraph_id", message));
    }
    let kind = ParagraphKind::of(store.paragraph(page, first));
    let is_text = match kind {
        ParagraphKind::Header => false,
        ParagraphKind::ListItem => store.split().list_items(),
        ParagraphKind::Text | ParagraphKind::Heading => true,
    };
    let start = (first, character);
    let holds = |passage: &Passage| {
        (passage.start_paragraph, passage.start_character) <= start
            && start < (passage.end_paragraph, passage.end_character)
    };
    if let Some(passage) = is_text.then(|| passages().find(holds)).flatten() {
        return Ok(passage);
    }
    let Some(text) = evidence::span(item, store) else {
        let message = "expected a span of the page's paragraphs, found none".to_owned();
        return Err(("end_paragraph_id", message));
    };
    let last = item.end_paragraph_id.as_ref().map_or(Ok(first), |id| number("end_paragraph_id", id))?;
    let end = item.end_character.as_ref().map_or(Ok(0), |id| number("end_character", id))?;
    Ok(Passage {
        page_id: store.page_id(page).into_owned(),
        title: store.page_title(page).to_owned(),
        section: item.section.clone().unwrap_or_default(),
        start_paragraph: first,
        start_character: character,
        end_paragraph: last,
        end_character: end,
        ..Passage::of_text(text)
    })
}

fn number(field: &'static str, id: &Id) -> Result<u32, Fault> {
    let found = id.number().and_then(|number| u32::try_from(number).ok());
    found.ok_or_else(|| (field, format!("expected a whole number, found `{id}`")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{PassageSplit, jsonl, store::BuildOptions};

    /// A store of two pages with a passage for each paragraph. Page 1 has two paragraphs of text and a list item; page 2
    /// has one paragraph.
    pub(in crate::annotation) fn store(folder: &std::path::Path, split: PassageSplit) -> PassageStore {
        let source = folder.join("pages.jsonl");
        let lines = [
            r#"{"wikipedia_id":"1","wikipedia_title":"Norway","text":["Norway","Norway is a country.","Its capital is Oslo.","BULLET::::- Bergen"]}"#,
            r#"{"wikipedia_id":"2","wikipedia_title":"Oslo","text":["Oslo","Oslo lies by a fjord."]}"#,
        ];
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let options = BuildOptions { source, redirects: None, split };
        PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap()
    }

    pub(in crate::annotation) fn item(page: &str, place: Option<[i64; 3]>) -> Provenance {
        let [paragraph, start, end] = place.map_or([None; 3], |place| place.map(Some));
        Provenance {
            wikipedia_id: Some(page.into()),
            start_paragraph_id: paragraph.map(Into::into),
            start_character: start.map(Into::into),
            end_paragraph_id: paragraph.map(Into::into),
            end_character: end.map(Into::into),
            ..Provenance::default()
        }
    }

    #[test]
    fn overlap_is_the_share_of_an_answers_words() {
        // Articles and punctuation do not count. 2 of the 4 words big, red, old, fox; words count once.
        let words = AnswerWords::new(["The big, big red old fox.", "the"]);
        assert_eq!(words.overlap("A red FOX ran"), 0.5);
        assert_eq!(words.overlap("nothing"), 0.0);
        // The best answer counts.
        let words = AnswerWords::new(["one two three four five six seven eight nine ten", "zero null"]);
        assert_eq!((words.overlap("ten"), words.overlap("null ten")), (0.1, 0.5));
        assert_eq!(AnswerWords::new([]).overlap("x"), 0.0);
    }

    #[test]
    fn an_item_is_the_passage_in_which_it_starts() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Words);
        let answers = AnswerWords::new(["Oslo"]);
        let text = |item: &Provenance| passage_of(item, &answers, &store).map(|passage| passage.text);
        // The words of both paragraphs are one passage; list items are in none.
        let whole = "Norway is a country. Its capital is Oslo.";
        assert_eq!(text(&item("1", Some([2, 4, 11]))).as_deref(), Ok(whole));
        assert_eq!(text(&item("1", None)).as_deref(), Ok(whole));
        assert_eq!(text(&item("1", Some([3, 12, 18]))).as_deref(), Ok("Bergen"));
    }

    #[test]
    fn a_page_is_its_passage_of_highest_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let text =
            |answer: &str| passage_of(&item("1", None), &AnswerWords::new([answer]), &store).unwrap().text;
        assert_eq!((text("Oslo"), text("Bergen")), ("Its capital is Oslo.".into(), "Bergen".into()));
        // The first one of equal ones.
        assert_eq!(text("Paris"), "Norway is a country.");
    }

    #[test]
    fn wrong_items_name_their_field() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Words);
        let answers = AnswerWords::new(["Oslo"]);
        let mut text = item("1", Some([1, 0, 3]));
        text.start_character = Some("x".into());
        for (item, field) in [
            (Provenance::default(), "wikipedia_id"),
            (item("9", None), "wikipedia_id"),
            (item("1", Some([9, 0, 3])), "start_paragraph_id"),
            (item("1", Some([3, 9, 2])), "end_paragraph_id"),
            (text, "start_character"),
        ] {
            assert_eq!(passage_of(&item, &answers, &store).unwrap_err().0, field);
        }
    }
}
