//! One generator for each kind of question: fact checking is best done by a classifier, questions by a reader.

use std::collections::BTreeMap;

use sporran_kilt::Dataset;

use crate::{Generation, Generator, Request, Result};

/// Generators by dataset.
pub struct ByDataset {
    default: Box<dyn Generator>,
    datasets: BTreeMap<Dataset, Box<dyn Generator>>,
}

impl ByDataset {
    /// Queries of `datasets` go to their generator, all others to `default`.
    #[must_use]
    pub fn new(default: Box<dyn Generator>, datasets: BTreeMap<Dataset, Box<dyn Generator>>) -> Self {
        Self { default, datasets }
    }

    fn of(&self, request: &Request<'_>) -> Option<Dataset> {
        request.query.dataset.filter(|dataset| self.datasets.contains_key(dataset))
    }
}

impl Generator for ByDataset {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let mut groups: BTreeMap<Option<Dataset>, Vec<usize>> = BTreeMap::new();
        for (at, request) in requests.iter().enumerate() {
            groups.entry(self.of(request)).or_default().push(at);
        }
        let mut answers: Vec<Option<Generation>> = vec![None; requests.len()];
        for (dataset, members) in groups {
            let generator = dataset.and_then(|dataset| self.datasets.get(&dataset)).unwrap_or(&self.default);
            let own: Vec<Request<'_>> = members
                .iter()
                .map(|&at| {
                    let Request { query, passages } = requests[at];
                    // What the others read beyond that is not this one's evidence.
                    Request { query, passages: &passages[..passages.len().min(generator.passages())] }
                })
                .collect();
            for (at, answer) in members.into_iter().zip(generator.generate(&own)?) {
                answers[at] = Some(answer);
            }
        }
        // Every request is in exactly one group.
        Ok(answers.into_iter().flatten().collect())
    }

    fn passages(&self) -> usize {
        let of = self.datasets.values().map(|generator| generator.passages());
        of.chain([self.default.passages()]).max().unwrap_or_default()
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let own = self.of(request).and_then(|dataset| self.datasets.get(&dataset));
        own.unwrap_or(&self.default).prompts(request)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sporran_kilt::{Passage, PassageId, Query};

    use super::*;
    use crate::Candidate;

    /// Says its name and how many passages it was given.
    struct Named(&'static str, usize);

    impl Generator for Named {
        fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
            let say = |request: &Request<'_>| Generation {
                text: format!("{} {} {}", self.0, request.query.text, request.passages.len()),
                score: 0.0,
                alternatives: Vec::new(),
                evidence: Vec::new(),
                tokens: 0,
            };
            Ok(requests.iter().map(say).collect())
        }

        fn passages(&self) -> usize {
            self.1
        }
    }

    pub(crate) fn passage(id: u32) -> Passage {
        let (section, text) = (String::new(), String::new());
        let (page_id, title) = (id.to_string(), String::new());
        Passage {
            id: PassageId(id),
            page_id,
            title,
            section,
            text,
            start_paragraph: 1,
            start_character: 0,
            end_paragraph: 1,
            end_character: 0,
        }
    }

    #[test]
    fn a_query_goes_to_its_datasets_generator_and_answers_keep_their_order() {
        let fever: Box<dyn Generator> = Box::new(Named("verifier", 3));
        let both = ByDataset::new(Box::new(Named("reader", 1)), BTreeMap::from([(Dataset::Fever, fever)]));
        let of = |text: &str, dataset| {
            let mut query = Query::of_text("1", text);
            query.dataset = dataset;
            query
        };
        let queries = [
            of("a", Some(Dataset::Nq)),
            of("b", Some(Dataset::Fever)),
            of("c", None),
            of("d", Some(Dataset::Fever)),
        ];
        let passages: Vec<Passage> = (0..3).map(passage).collect();
        let candidates: Vec<Candidate<'_>> =
            passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
        let requests: Vec<Request<'_>> =
            queries.iter().map(|query| Request { query, passages: &candidates }).collect();
        let answers: Vec<String> =
            both.generate(&requests).unwrap().into_iter().map(|answer| answer.text).collect();
        assert_eq!(answers, ["reader a 1", "verifier b 3", "reader c 1", "verifier d 3"]);
        assert_eq!(both.passages(), 3);
    }
}
