//! Different generators for different datasets, such as a verifier for fact checking and a reader for questions.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Deref},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::Dataset;

use crate::{
    Counted, Generation, Generator, Request, Result, Sink,
    kind::{GeneratorContext, GeneratorKind, GeneratorModel},
};

/// The name of the kind. Its generators cannot be of this kind.
pub(crate) const BY_DATASET: &str = "by-dataset";

/// `kind = "by-dataset"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ByDatasetOptions<G> {
    /// `[generator.default]`: the generator for all other datasets.
    pub default: Box<G>,
    /// `[generator.datasets.NAME]`: the generator for the dataset of that name, such as `fever`.
    pub datasets: BTreeMap<Dataset, G>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl<G: Kinds> FromTable for ByDatasetOptions<G> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let mut kinds = G::kinds();
        kinds.retain(|kind| *kind != BY_DATASET);
        let default = document
            .take_table_of(key, "default", &mut table)
            .and_then(|inner| G::from_stage_of(&kinds, document, &format!("{key}.default"), inner));
        let mut datasets = BTreeMap::new();
        let mut is_valid = true;
        let mut tables = document.take_table_of(key, "datasets", &mut table)?;
        let above = format!("{key}.datasets");
        for dataset in Dataset::ALL {
            let name = dataset.stem();
            if tables.get_ref().contains_key(name) {
                let options = document
                    .take_table_of(&above, name, &mut tables)
                    .and_then(|inner| G::from_stage_of(&kinds, document, &format!("{above}.{name}"), inner));
                match options {
                    Ok(options) => drop(datasets.insert(dataset, options)),
                    Err(Invalid) => is_valid = false,
                }
            }
        }
        let names = Dataset::ALL.map(Dataset::stem);
        let other_datasets: Option<Nothing> = document.read(&above, tables, &names);
        let other_keys: Option<Nothing> = document.read(key, table, &["default", "datasets"]);
        match (other_datasets, other_keys, default) {
            (Some(_), Some(_), Ok(default)) if is_valid => Ok(Self { default: Box::new(default), datasets }),
            _ => Err(Invalid),
        }
    }
}

impl<G> ByDatasetOptions<G> {
    /// The generator for a dataset.
    pub(crate) fn of(&self, dataset: Option<Dataset>) -> &G {
        dataset.and_then(|dataset| self.datasets.get(&dataset)).unwrap_or(&self.default)
    }

    /// All generators, each with the path of its table.
    fn tables(&self, key: &str) -> impl Iterator<Item = (String, &G)> {
        let default = (format!("{key}.default"), &*self.default);
        let path = |dataset: &Dataset| format!("{key}.datasets.{}", dataset.stem());
        let datasets: Vec<_> =
            self.datasets.iter().map(|(dataset, generator)| (path(dataset), generator)).collect();
        std::iter::once(default).chain(datasets)
    }
}

impl<G: Deref<Target = dyn GeneratorKind>> GeneratorKind for ByDatasetOptions<G> {
    fn models(&self, key: &str) -> Vec<GeneratorModel<'_>> {
        self.tables(key).flat_map(|(key, generator)| generator.models(&key)).collect()
    }

    fn read_passages(&self, key: &str) -> Vec<(String, usize)> {
        self.tables(key).flat_map(|(key, generator)| generator.read_passages(&key)).collect()
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.tables(key).for_each(|(key, generator)| generator.check(&key, document));
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.tables(key).try_for_each(|(key, generator)| generator.overrides(&key, found))
    }

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        let open = |(dataset, options): (&Dataset, &G)| Ok((*dataset, options.open(context)?));
        let datasets: Result<_> = self.datasets.iter().map(open).collect();
        Ok(Box::new(ByDataset::new(self.default.open(context)?, datasets?)))
    }
}

/// Generators by dataset.
pub struct ByDataset {
    default: Box<dyn Generator>,
    datasets: BTreeMap<Dataset, Box<dyn Generator>>,
}

impl ByDataset {
    /// Answers queries of `datasets` with their generator, and all others with `default`.
    #[must_use]
    pub fn new(default: Box<dyn Generator>, datasets: BTreeMap<Dataset, Box<dyn Generator>>) -> Self {
        Self { default, datasets }
    }

    fn of(&self, request: &Request<'_>) -> Option<Dataset> {
        request.query.dataset.filter(|dataset| self.datasets.contains_key(dataset))
    }

    /// The generator of a request.
    fn generator(&self, request: &Request<'_>) -> &dyn Generator {
        let own = self.of(request).and_then(|dataset| self.datasets.get(&dataset));
        own.unwrap_or(&self.default).as_ref()
    }
}

/// The sink of a group of requests.
struct GroupSink<'a> {
    sink: &'a dyn Sink,
    members: &'a [usize],
}

impl Sink for GroupSink<'_> {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.sink.write(self.members[request], text)
    }
}

impl ByDataset {
    /// Answers with the numbers of tokens that their models read, which are counted with a sink only.
    fn answer(&self, requests: &[Request<'_>], sink: Option<&dyn Sink>) -> Result<Vec<Counted>> {
        let mut groups: BTreeMap<Option<Dataset>, Vec<usize>> = BTreeMap::new();
        for (at, request) in requests.iter().enumerate() {
            groups.entry(self.of(request)).or_default().push(at);
        }
        let mut answers: Vec<Option<Counted>> = vec![None; requests.len()];
        for (dataset, members) in groups {
            let generator = dataset.and_then(|dataset| self.datasets.get(&dataset)).unwrap_or(&self.default);
            let own: Vec<Request<'_>> = members
                .iter()
                .map(|&at| {
                    let Request { query, passages } = requests[at];
                    // Other generators may read more passages.
                    Request { query, passages: &passages[..passages.len().min(generator.passages())] }
                })
                .collect();
            let generations = match sink {
                None => {
                    let whole = |generation| Counted { generation, read: 0, is_cut: false };
                    generator.generate(&own)?.into_iter().map(whole).collect()
                }
                Some(sink) => generator.generate_counted(&own, &GroupSink { sink, members: &members })?,
            };
            for (at, answer) in members.into_iter().zip(generations) {
                answers[at] = Some(answer);
            }
        }
        // Every request is in exactly one group.
        Ok(answers.into_iter().flatten().collect())
    }
}

impl Generator for ByDataset {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        Ok(self.answer(requests, None)?.into_iter().map(|counted| counted.generation).collect())
    }

    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        let answers = self.generate_counted(requests, sink)?;
        Ok(answers.into_iter().map(|counted| counted.generation).collect())
    }

    fn generate_counted(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Counted>> {
        self.answer(requests, Some(sink))
    }

    fn kind(&self) -> &'static str {
        BY_DATASET
    }

    fn samples(&self) -> bool {
        self.default.samples() || self.datasets.values().any(|generator| generator.samples())
    }

    fn passages(&self) -> usize {
        let of = self.datasets.values().map(|generator| generator.passages());
        of.chain([self.default.passages()]).max().unwrap_or_default()
    }

    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        let one =
            |request: &Request<'_>| self.generator(request).prompt_tokens(std::slice::from_ref(request));
        Ok(requests.iter().map(one).collect::<Result<Vec<_>>>()?.concat())
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        self.generator(request).prompts(request)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sporran_kilt::{Passage, PassageId, Query};

    use super::*;
    use crate::Candidate;

    /// Answers with its name, the query and the number of passages.
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
        Passage {
            id: PassageId(id),
            page_id: id.to_string(),
            start_paragraph: 1,
            end_paragraph: 1,
            ..Passage::of_text("")
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
