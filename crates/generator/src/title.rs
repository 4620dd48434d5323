//! The answer is the title of the best passage's page, as entity linking expects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Generation, Generator, Request, Result,
    kind::{EvidenceSource, GeneratorContext, GeneratorKind, GeneratorModel},
};

/// Answers every query with the title of its best passage's page, and with nothing if no passage was found. Uses
/// no model: the retriever has linked the mention.
#[derive(Clone, Copy, Debug, Default)]
pub struct TitleGenerator;

impl Generator for TitleGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let answer = |request: &Request<'_>| {
            let mut titles: Vec<(String, f32)> = Vec::new();
            for candidate in request.passages {
                if titles.iter().all(|(title, _)| *title != candidate.passage.title) {
                    titles.push((candidate.passage.title.clone(), candidate.score));
                }
            }
            let mut titles = titles.into_iter();
            let (text, score) = titles.next().unwrap_or_default();
            let evidence = (0..request.passages.len()).collect();
            Generation { text, score, alternatives: titles.collect(), evidence, tokens: 0 }
        };
        Ok(requests.iter().map(answer).collect())
    }

    fn kind(&self) -> &'static str {
        "title"
    }

    fn passages(&self) -> usize {
        20
    }
}

/// `kind = "title"`, which has no other keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TitleOptions {}

impl GeneratorKind for TitleOptions {
    fn models(&self, _: &str) -> Vec<GeneratorModel<'_>> {
        Vec::new()
    }

    fn linking_provenance(&self) -> EvidenceSource {
        EvidenceSource::Ranking
    }

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(TitleGenerator))
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{Passage, Query};

    use super::*;
    use crate::Candidate;

    #[test]
    fn the_best_page_is_the_answer_and_each_page_is_listed_once() {
        let passage =
            |title: &str| Passage { page_id: "1".into(), title: title.into(), ..Passage::of_text("") };
        let passages = [passage("B"), passage("A"), passage("B")];
        let candidates: Vec<_> = passages
            .iter()
            .zip([3.0, 2.0, 1.0])
            .map(|(passage, score)| Candidate { passage, score })
            .collect();
        let query = Query::of_text(1i64, "q");
        let requests =
            [Request { query: &query, passages: &candidates }, Request { query: &query, passages: &[] }];
        let answers = TitleGenerator.generate(&requests).unwrap();
        assert_eq!(
            (answers[0].text.as_str(), &answers[0].alternatives[..]),
            ("B", &[("A".to_owned(), 2.0)][..])
        );
        assert_eq!(answers[0].evidence, [0, 1, 2]);
        assert_eq!(answers[1].text, "");
    }
}
