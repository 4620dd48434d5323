//! Answers with the first sentence of the best passage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_generator::{
    EvidenceSource, Generation, Generator, GeneratorContext, GeneratorKind, GeneratorModel, Request, Result,
};

/// `kind = "first-sentence"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FirstSentenceOptions {
    /// The largest number of characters of an answer.
    #[serde(default = "max_characters")]
    #[schemars(range(min = 1), extend("x-unit" = "characters"))]
    pub max_characters: usize,
}

fn max_characters() -> usize {
    200
}

/// The generator.
pub struct FirstSentence {
    max_characters: usize,
}

impl Generator for FirstSentence {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let answer = |request: &Request<'_>| {
            let best = request.passages.first();
            let text = best.map_or("", |best| best.passage.text.split_inclusive(". ").next().unwrap_or(""));
            Generation {
                text: text.trim().chars().take(self.max_characters).collect(),
                score: best.map_or(0.0, |best| best.score),
                alternatives: Vec::new(),
                evidence: best.map(|_| 0).into_iter().collect(),
                tokens: 0,
            }
        };
        Ok(requests.iter().map(answer).collect())
    }

    fn passages(&self) -> usize {
        1
    }
}

impl GeneratorKind for FirstSentenceOptions {
    fn models(&self, _: &str) -> Vec<GeneratorModel<'_>> {
        Vec::new()
    }

    fn provenance(&self) -> EvidenceSource {
        EvidenceSource::Chosen
    }

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(FirstSentence { max_characters: self.max_characters }))
    }
}
