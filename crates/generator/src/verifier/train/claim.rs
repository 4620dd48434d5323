//! Claims with positive pieces, which contain their evidence, and other pieces.

use sporran_kilt::{
    Passage, PassageStore, Provenance,
    evidence::{gold_passages, holds},
};

use super::VERDICTS;
use crate::{
    Candidate, Request, Result,
    training::RetrievedExample,
    verifier::{UnitKind, VerifierOptions, titled, units},
};

/// A claim with pieces of passages.
pub(super) struct Claim {
    pub(super) text: String,
    /// The index of its verdict in [`VERDICTS`].
    pub(super) label: u32,
    /// Pieces with its evidence.
    pub(super) evidence: Vec<String>,
    /// Other pieces, in the retriever's order.
    pub(super) others: Vec<Other>,
}

/// A piece without evidence.
pub(super) struct Other {
    pub(super) text: String,
    /// Whether it is of a page with evidence.
    pub(super) of_gold_page: bool,
}

/// The index of a record's verdict in [`VERDICTS`]; `None` if the answer is not a verdict.
fn label(retrieved: &RetrievedExample) -> Option<u32> {
    let answers = retrieved.example.answers();
    let answer = answers.first()?;
    VERDICTS[..2].iter().position(|label| label == answer).map(|label| label as u32)
}

/// The claim of a record without evidence, read as an empty piece; `None` if the answer is not a verdict.
pub(super) fn bare_claim(retrieved: &RetrievedExample) -> Option<Claim> {
    let text = retrieved.example.query.text.clone();
    Some(Claim { text, label: label(retrieved)?, evidence: vec![String::new()], others: Vec::new() })
}

/// The claim of a record; `None` if the answer is not a verdict or no evidence is in the source.
pub(super) fn claim(
    retrieved: &RetrievedExample,
    options: &VerifierOptions,
    store: &PassageStore,
) -> Result<Option<Claim>> {
    let Some(label) = label(retrieved) else { return Ok(None) };
    let gold: Vec<&Provenance> = retrieved.example.gold.iter().flat_map(|output| output.evidence()).collect();
    let mut passages: Vec<Passage> = retrieved.passages.iter().map(|(passage, _)| passage.clone()).collect();
    for passage in gold_passages(&retrieved.example, store) {
        if passages.iter().all(|known| known.id != passage.id) {
            passages.push(passage);
        }
    }
    let candidates: Vec<Candidate<'_>> =
        passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
    let request = Request { query: &retrieved.example.query, passages: &candidates };
    let mut claim =
        Claim { text: retrieved.example.query.text.clone(), label, evidence: Vec::new(), others: Vec::new() };
    for unit in units(&request, options.evidence, Some(store))? {
        let passage = &passages[unit.passage];
        let whole = options.evidence == UnitKind::Lead;
        let is_gold =
            gold.iter().any(|item| holds(&passage.page_id, (!whole).then_some(&unit.text), item, store));
        let text = if options.titles { titled(&passage.title, &unit.text) } else { unit.text };
        if is_gold {
            claim.evidence.push(text);
        } else {
            let of_gold_page = gold.iter().any(|item| holds(&passage.page_id, None, item, store));
            claim.others.push(Other { text, of_gold_page });
        }
    }
    Ok((!claim.evidence.is_empty()).then_some(claim))
}
