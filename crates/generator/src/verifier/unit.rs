//! Pieces of evidence: what a verifier reads at a time.

use sporran_kilt::{Passage, PassageStore};
use unicode_segmentation::UnicodeSegmentation;

use super::UnitKind;
use crate::{Error, Request, Result};

/// A piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The request's passage that it stands for.
    pub passage: usize,
    /// What is read.
    pub text: String,
}

/// Cuts the passages of a request into pieces, in the retriever's order. With `titles`, each begins with its page's title,
/// which says what a pronoun means.
///
/// # Errors
/// [`Error::Option`] where first sentences of pages are wanted without a store that holds the pages.
pub fn units(
    request: &Request<'_>,
    kind: UnitKind,
    titles: bool,
    store: Option<&PassageStore>,
) -> Result<Vec<Unit>> {
    let titled = |passage: &Passage, text: &str| match titles && !passage.title.is_empty() {
        true => format!("{}: {text}", passage.title),
        false => text.to_owned(),
    };
    let mut units = Vec::new();
    let mut pages: Vec<&str> = Vec::new();
    for (at, candidate) in request.passages.iter().enumerate() {
        let passage = candidate.passage;
        match kind {
            UnitKind::Passage => units.push(Unit { passage: at, text: titled(passage, &passage.text) }),
            UnitKind::Sentence => units.extend(
                sentences(&passage.text).map(|text| Unit { passage: at, text: titled(passage, text) }),
            ),
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
                    if let Some(first) = sentences(&text).next() {
                        units.push(Unit { passage: at, text: titled(passage, first) });
                    }
                }
            }
        }
    }
    Ok(units)
}

/// The sentences of a text without the blanks around them.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_sentence_bounds().map(str::trim).filter(|sentence| !sentence.is_empty())
}
