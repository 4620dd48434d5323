//! Claims with what is read beside them: which pieces hold their evidence, and which do not.

use sporran_generator::{Candidate, Request, UnitKind, VerifierOptions, units};
use sporran_kilt::{Passage, PassageId, PassageStore, Provenance};

use super::VERDICTS;
use crate::{Result, train::Reading};

/// A claim with what is read beside it.
pub(super) struct Claim {
    pub(super) text: String,
    /// The number of its verdict.
    pub(super) label: u32,
    /// Pieces that hold its evidence.
    pub(super) evidence: Vec<String>,
    /// Other pieces, in the retriever's order.
    pub(super) others: Vec<String>,
}

/// What a claim is learned from; `None` where the answer is no verdict or none of its evidence is in the source.
pub(super) fn claim(
    reading: &Reading,
    options: &VerifierOptions,
    store: &PassageStore,
) -> Result<Option<Claim>> {
    let answers = reading.example.answers();
    let Some(label) =
        answers.first().and_then(|answer| VERDICTS[..2].iter().position(|label| label == answer))
    else {
        return Ok(None);
    };
    let gold: Vec<&Provenance> = reading.example.gold.iter().flat_map(|output| output.evidence()).collect();
    let mut passages: Vec<Passage> = reading.passages.iter().map(|(passage, _)| passage.clone()).collect();
    for id in gold.iter().filter_map(|item| item.wikipedia_id.as_ref()) {
        if let Some(page) = store.page_by_id(&id.text()) {
            for passage in store.passages_of(page).map(|id| store.passage(PassageId(id))) {
                if passages.iter().all(|known| known.id != passage.id) {
                    passages.push(passage);
                }
            }
        }
    }
    let candidates: Vec<Candidate<'_>> =
        passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
    let request = Request { query: &reading.example.query, passages: &candidates };
    let mut claim = Claim {
        text: reading.example.query.text.clone(),
        label: label as u32,
        evidence: Vec::new(),
        others: Vec::new(),
    };
    let titled = units(&request, options.evidence, options.titles, Some(store))?;
    // Spans are looked for in the page's own words.
    let plain = units(&request, options.evidence, false, Some(store))?;
    for (unit, plain) in titled.into_iter().zip(plain) {
        let page = &passages[unit.passage].page_id;
        let of_page =
            |item: &&&Provenance| item.wikipedia_id.as_ref().is_some_and(|id| id.text() == page.as_str());
        let is_gold = gold.iter().filter(of_page).any(|item| {
            span(item, store).is_none_or(|span| {
                let (span, piece) = (span.trim(), plain.text.trim());
                options.evidence == UnitKind::Lead || piece.contains(span) || span.contains(piece)
            })
        });
        if is_gold { claim.evidence.push(unit.text) } else { claim.others.push(unit.text) }
    }
    Ok((!claim.evidence.is_empty()).then_some(claim))
}

/// The text of a span within one paragraph; `None` where the evidence is a page as a whole.
fn span(item: &Provenance, store: &PassageStore) -> Option<String> {
    let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
    let number = |id: &Option<sporran_kilt::Id>| id.as_ref().and_then(sporran_kilt::Id::number);
    let paragraph = u32::try_from(number(&item.start_paragraph_id)?).ok()?;
    let (start, end) = (number(&item.start_character)?, number(&item.end_character)?);
    let count = usize::try_from(end.checked_sub(start)?).ok()?;
    if paragraph as usize >= store.paragraph_count(page) {
        return None;
    }
    let text = store.paragraph(page, paragraph);
    Some(text.chars().skip(usize::try_from(start).ok()?).take(count).collect())
}
