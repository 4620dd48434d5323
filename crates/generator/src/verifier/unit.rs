//! Pieces of evidence, the units that a verifier reads.

use sporran_kilt::PassageStore;

use super::UnitKind;
use crate::{Error, Request, Result};

/// A piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The index of its passage in the request.
    pub passage: usize,
    /// Its number among the pieces of the passage.
    pub number: usize,
    /// Whether its page begins with it.
    pub begins: bool,
    /// The text.
    pub text: String,
}

/// Cuts the passages of a request into pieces, in the retriever's order.
///
/// # Errors
/// [`Error::Option`] where first sentences of pages are wanted without a store that holds the pages.
pub fn units(request: &Request<'_>, kind: UnitKind, store: Option<&PassageStore>) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    let mut pages: Vec<&str> = Vec::new();
    for (at, candidate) in request.passages.iter().enumerate() {
        let passage = candidate.passage;
        // The first paragraph is the title.
        let begins = kind == UnitKind::Lead || (passage.start_paragraph <= 1 && passage.start_character == 0);
        let unit = |(number, text): (usize, &str)| {
            let begins = begins && number == 0;
            Unit { passage: at, number, begins, text: text.to_owned() }
        };
        match kind {
            UnitKind::Passage => units.push(unit((0, &passage.text))),
            UnitKind::Sentence => units.extend(sentences(&passage.text).enumerate().map(unit)),
            UnitKind::Lead if pages.contains(&passage.page_id.as_str()) => {}
            UnitKind::Lead => {
                pages.push(&passage.page_id);
                let store = store.ok_or_else(|| Error::Option {
                    option: "evidence",
                    expected: "`passage` or `sentence` without a knowledge source",
                    found: "lead".to_owned(),
                })?;
                if let Some(page) = store.page_by_id(&passage.page_id) {
                    let text = store.text(sporran_kilt::PassageId(store.passages_of(page).start));
                    units.extend(sentences(&text).take(1).enumerate().map(unit));
                }
            }
        }
    }
    Ok(units)
}

/// A text after its page's title, which resolves pronouns.
#[must_use]
pub fn titled(title: &str, text: &str) -> String {
    if title.is_empty() { text.to_owned() } else { format!("{title}: {text}") }
}

/// The sentences of a text without the blanks around them.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    sporran_kilt::sentences(text).map(str::trim).filter(|sentence| !sentence.is_empty())
}
