//! The options of a config. The documentation of these types is the manual of the config file.
//!
//! Paths are relative to the working directory, like arguments on the command line.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Diagnostic;
use sporran_generator::{EvidenceSource, GeneratorOptions};
use sporran_kilt::{Dataset, Query, scores::trec::RankingMeasure};
use sporran_retriever::{FilterOptions, FilteredOptions};

use crate::{
    Error, Result,
    config::{load, to_toml},
    source::options::{PagesOptions, SourceOptions},
    tasks::{
        options::{QueryOptions, TasksOptions},
        query::for_retrieval,
    },
    workflows::answer::{
        check::check_without_tasks, retrieval::RetrieverOptions, train::encoder_options::EncoderTraining,
    },
};

/// The config of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Options {
    /// All keys outside of the stages.
    #[serde(flatten)]
    pub general: General,
    /// `[encoder-training]`: the training of a bi-encoder or cross-encoder by `sporran train`.
    #[serde(rename = "encoder-training", skip_serializing_if = "Option::is_none")]
    pub encoder_training: Option<EncoderTraining>,
    /// `[retriever]`: retrieves passages. Without it, the generator is closed-book. A `[reranker]` makes it a retriever of kind
    /// `reranked`, a `[retriever.filter]` one of kind `filtered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retriever: Option<RetrieverOptions>,
    /// `[generator]`: generates answers. Without it, predictions have only evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<GeneratorOptions>,
}

/// The keys outside of the stages' tables.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct General {
    /// The name of the run's folder in `output`.
    pub name: String,
    /// The seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// The parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `then`: configs that `sporran run` runs after this one, such as those of population, reasoning and
    /// responses. Their folders are in the same `output`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<PathBuf>,
    /// `[source]`: the knowledge source. Optional for closed-book runs.
    pub source: Option<SourceOptions>,
    /// `[pages]`: the pages to search. The default is all pages.
    pub pages: Option<PagesOptions>,
    /// `[tasks]`: the task files. `sporran ask` and free texts need none.
    #[serde(default)]
    pub tasks: TasksOptions,
    /// `[query]`: the conversion of a record's input to the retriever's query.
    #[serde(default)]
    pub query: QueryOptions,
    /// `[evidence]`: the provenance of predictions.
    #[serde(default)]
    pub evidence: EvidenceOptions,
    /// `[evaluation]`: scores in addition to R-precision, recall@5 and the scores of answers.
    #[serde(default, skip_serializing_if = "EvaluationOptions::is_default")]
    pub evaluation: EvaluationOptions,
    /// `[train]`: the training of the generator's model by `sporran train`.
    pub train: Option<TrainOptions>,
}

/// `[evidence]`: the provenance of predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EvidenceOptions {
    /// The number of passages to retrieve for each query.
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// The largest number of items of provenance in a prediction; see `evaluation.recall-at`.
    #[schemars(range(min = 1))]
    pub limit: usize,
    /// Whether provenance has only the best passage of each page, as for page-level scores.
    pub one_per_page: bool,
    /// The ranking of pages by the scores of their passages.
    pub page_score: PageScore,
    /// The source of provenance: `ranking`, `retrieved`, `read`, `chosen` or `title`. The default depends on the
    /// generator's kind: `read` for `rag-token` and `rag-sequence`, `chosen` for `memnet`, and `ranking` for
    /// all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<EvidenceSource>,
    /// The source of provenance for entity linking. The default is `title`. It is `ranking` for a generator
    /// of `kind = "title"` and without a generator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity_linking: Option<EvidenceSource>,
    /// The source of provenance for single datasets, such as `hotpotqa = "retrieved"`. It goes before `from` and
    /// `entity-linking`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub datasets: BTreeMap<Dataset, EvidenceSource>,
    /// Whether items have the passage's text and score, for the `*_in_context` scores.
    pub with_text: bool,
    /// The documents of the ranking in TREC's format: `page` or `passage`.
    #[serde(skip_serializing_if = "RunDocuments::is_default")]
    pub run_documents: RunDocuments,
}

/// The documents of a ranking in TREC's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunDocuments {
    /// The ids of pages, with the order and the scores of `page-score`.
    #[default]
    Page,
    /// `page#place`: the id of a page, and the place of the passage in it, from 0.
    Passage,
}

impl RunDocuments {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        Self {
            depth: 100,
            limit: 20,
            one_per_page: true,
            page_score: PageScore::Best,
            from: None,
            entity_linking: None,
            datasets: BTreeMap::new(),
            with_text: false,
            run_documents: RunDocuments::default(),
        }
    }
}

/// `[evaluation]`: scores in addition to R-precision, recall@5 and the scores of answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EvaluationOptions {
    /// More depths of recall in the report, each at least 2. The deepest one raises `evidence.limit` and
    /// `evidence.depth` if they are smaller. With `evidence.one-per-page`, the run retrieves more passages
    /// for queries with too few pages.
    #[schemars(inner(range(min = 2)))]
    pub recall_at: Vec<usize>,
    /// The measures of queries with `tasks.qrels`, by the names of `sporran evaluate trec`. They are over pages. The
    /// deepest cutoff raises `evidence.limit` and `evidence.depth` as a depth of `recall-at` does, by one more with
    /// `exclude-self`. The default is `nDCG@10` and `R@100`, which BEIR reports. `sporran tune` optimises the first one of
    /// this list; without the list it optimises R-precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measures: Option<Vec<String>>,
    /// Whether `measures` leave out documents with the id of their query, as BEIR does for ArguAna and Quora.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclude_self: bool,
}

/// The measures that BEIR reports.
const MEASURES: &str = "nDCG@10,R@100";

impl EvaluationOptions {
    /// The measures of judged queries. An item of `measures` can have several, with commas or blanks between them.
    ///
    /// # Errors
    /// Those of [`RankingMeasure::list`].
    pub(crate) fn measures(&self) -> sporran_kilt::Result<Vec<RankingMeasure>> {
        let listed = self.measures.as_ref().map(|names| names.join(","));
        RankingMeasure::list(listed.as_deref().unwrap_or(MEASURES))
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl General {
    /// A record's query as the retriever reads it.
    pub(crate) fn for_retrieval(&self, query: &Query) -> Query {
        for_retrieval(query, &self.query, self.seed)
    }

    /// The deepest recall in the report, or cutoff of the measures of judged queries.
    pub(super) fn deepest_score(&self) -> Option<usize> {
        // The check reports wrong measures.
        let measures = self.evaluation.measures().unwrap_or_default();
        let cutoffs = measures.iter().filter(|_| self.tasks.qrels.is_some()).filter_map(|it| it.cutoff());
        // The document with the id of the query takes a place in the ranking.
        let left_out = usize::from(self.evaluation.exclude_self);
        let cutoffs = cutoffs.map(|cutoff| cutoff.saturating_add(left_out));
        self.evaluation.recall_at.iter().copied().chain(cutoffs).max()
    }

    /// Raises `evidence.limit` and `evidence.depth` to the deepest recall in the report.
    pub(super) fn deepen_for_recall(&mut self) {
        let deepest = self.deepest_score().unwrap_or_default();
        self.evidence.limit = self.evidence.limit.max(deepest);
        self.evidence.depth = self.evidence.depth.max(deepest);
    }
}

/// The score of a page as evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageScore {
    /// The score of its best passage.
    #[default]
    Best,
    /// The sum of the scores of its retrieved passages.
    Sum,
    /// The sum of `1 / (60 + rank)` over its retrieved passages.
    ReciprocalRank,
}

/// `[train]`: the training of the generator's model by `sporran train`.
pub type TrainOptions = sporran_generator::TrainOptions<TasksOptions>;

impl Options {
    /// The config with a retriever that returns only passages whose metadata meet conditions, besides its own filter.
    ///
    /// # Errors
    /// [`Error::Config`] for a config without a retriever.
    pub fn filtered(self, filter: FilterOptions) -> Result<Self> {
        let Some(base) = self.retriever else {
            let message = "is missing; a filter restricts the passages that it returns";
            return Err(Error::Config(vec![Diagnostic::of_config("retriever", message)]));
        };
        let retriever = RetrieverOptions::Filtered(FilteredOptions { filter, base: Box::new(base) });
        Ok(Self { retriever: Some(retriever), ..self })
    }

    /// Reads and checks a config file with `key=value` overrides, except its task files: for questions from elsewhere.
    ///
    /// # Errors
    /// As [`Config::load`](crate::Config::load).
    pub fn load_without_tasks(path: &Path, overrides: &[String]) -> Result<Self> {
        load(path, overrides, check_without_tasks)
    }

    /// The config with every default, as TOML.
    ///
    /// # Errors
    /// [`Error::Io`] for a value without a form in TOML, such as a number beyond 64 bits.
    pub fn to_toml(&self) -> Result<String> {
        to_toml(self)
    }
}
