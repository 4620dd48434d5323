//! Claims with what is read beside them: which pieces hold their evidence, and which do not.

use sporran_generator::{Candidate, Request, UnitKind, VerifierOptions, titled, units};
use sporran_kilt::{Passage, PassageStore, Provenance};

use super::VERDICTS;
use crate::{
    Result,
    workflows::answer::{
        evidence::{gold_passages, holds},
        train::examples::Reading,
    },
};

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
    for passage in gold_passages(&reading.example, store) {
        if passages.iter().all(|known| known.id != passage.id) {
            passages.push(passage);
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
    for unit in units(&request, options.evidence, Some(store))? {
        let passage = &passages[unit.passage];
        let whole = options.evidence == UnitKind::Lead;
        let is_gold =
            gold.iter().any(|item| holds(&passage.page_id, (!whole).then_some(&unit.text), item, store));
        let text = if options.titles { titled(&passage.title, &unit.text) } else { unit.text };
        if is_gold { claim.evidence.push(text) } else { claim.others.push(text) }
    }
    Ok((!claim.evidence.is_empty()).then_some(claim))
}
