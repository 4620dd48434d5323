//! The options of questions over a knowledge base. The documentation of these types is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::korc::Version;

use super::registry::ReasonerOptions;
use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
    workflows::answer::{
        check::live_dense,
        retrieval::{self, RetrieverOptions},
    },
};

/// A whole config of a system for KoRC's questions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReasonOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `kb`: the knowledge base, a folder or a file of triples.
    pub kb: PathBuf,
    /// `entities`: a table of names of entities, with a header, if `kb` has none.
    pub entities: Option<PathBuf>,
    /// `relations`: names of relations, if `kb` has none.
    pub relations: Option<PathBuf>,
    /// `[source]`: the knowledge source with the pages of documents, by title. It is for questions without provenance of their
    /// document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceOptions>,
    /// `[retriever]`: finds passages of `[source]` for a reasoner that reads them, by `kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retriever: Option<RetrieverOptions>,
    /// `[populated]`: extracted facts to add to the knowledge base, with their sentences.
    #[schemars(default)]
    pub populated: PopulatedFacts,
    /// `max-answers`: the largest number of answers to a question. Without it, generators have no limit. EmbedKGQA and TransferNet
    /// choose among the 64 most probable entities.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "answers"))]
    pub max_answers: Option<usize>,
    /// `[data]`: the questions.
    pub data: QuestionFiles,
    /// `[reasoner]`: the model, by `kind`.
    pub reasoner: ReasonerOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default)]
    seed: u64,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    kb: PathBuf,
    entities: Option<PathBuf>,
    relations: Option<PathBuf>,
    source: Option<SourceOptions>,
    #[serde(default)]
    populated: PopulatedFacts,
    max_answers: Option<usize>,
    data: QuestionFiles,
}

/// `[populated]`: facts that `sporran populate` extracted from text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PopulatedFacts {
    /// The folders of the runs.
    pub runs: Vec<PathBuf>,
    /// The smallest confidence of a fact, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: f64,
}

impl Default for PopulatedFacts {
    fn default() -> Self {
        Self { runs: Vec::new(), min_confidence: 0.5 }
    }
}

/// The question's entity in its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EntityNames {
    /// As in the files: without its name.
    #[default]
    Anonymous,
    /// Its label in the knowledge base follows the document, as in the ablation without anonymisation. It stays where the document
    /// is cut.
    Restored,
}

/// `[data]`: files in KoRC's layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QuestionFiles {
    /// The version of the questions: `human` (`question`), `template` (`template_question`) or `llm`
    /// (`gpt_best_question`).
    #[serde(skip_serializing_if = "Version::is_human")]
    pub version: Version,
    /// The version of the questions that a system learns from: those of training, validation and demonstrations. The
    /// default is `version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_version: Option<Version>,
    /// The share of the training questions to use, drawn with `seed`; all by default. A smaller share is a part of a
    /// larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.000001, max = 1))]
    pub train_share: Option<f64>,
    /// The training files.
    pub train: Vec<PathBuf>,
    /// The validation file, for the threshold and the best weights.
    pub valid: Option<PathBuf>,
    /// The in-distribution test file.
    pub iid: Option<PathBuf>,
    /// The out-of-distribution test file.
    pub ood: Option<PathBuf>,
    /// The largest number of questions of each test.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// Whether questions have their document. Without it they are asked alone, as in the ablation of the KoRC paper.
    pub document: bool,
    /// The question's entity in the document: `anonymous` or `restored`.
    pub names: EntityNames,
}

impl Default for QuestionFiles {
    fn default() -> Self {
        Self {
            version: Version::default(),
            train_version: None,
            train_share: None,
            train: Vec::new(),
            valid: None,
            iid: None,
            ood: None,
            limit: None,
            document: true,
            names: EntityNames::default(),
        }
    }
}

impl QuestionFiles {
    /// The version of the questions that a system learns from.
    pub fn learned_version(&self) -> Version {
        self.train_version.unwrap_or(self.version)
    }
}

impl Config for ReasonOptions {
    const WORKFLOWS: &'static [&'static str] = &["kbqa"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let retriever = retrieval::read(document);
        let reasoner = document.require_stage("reasoner");
        let General { name, seed, output, kb, entities, relations, source, populated, max_answers, data } =
            document.read_root(&["retriever", "reranker", "reasoner"])?;
        let (retriever, reasoner) = (retriever.ok()?, reasoner.ok()?);
        Some(Self {
            name,
            seed,
            output,
            kb,
            entities,
            relations,
            source,
            retriever,
            populated,
            max_answers,
            data,
            reasoner,
        })
    }

    fn check(&self, document: &mut Document<'_>) {
        self.check_models(document);
        let train = self.data.train.iter().map(|path| ("data.train", Some(path)));
        let files = [
            ("data.valid", self.data.valid.as_ref()),
            ("data.iid", self.data.iid.as_ref()),
            ("data.ood", self.data.ood.as_ref()),
        ];
        for (key, path) in files.into_iter().chain(train) {
            if let Some(path) = path.filter(|path| !path.exists()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        // Predictions are named after the files.
        let stem =
            |path: &Option<PathBuf>| path.as_ref().and_then(|path| path.file_stem().map(ToOwned::to_owned));
        if let Some(ood) = &self.data.ood
            && stem(&self.data.iid) == stem(&self.data.ood)
        {
            let message = format!("expected another name than that of `data.iid`, found {}", ood.display());
            document.report_key("data.ood", message);
        }
        if self.data.train_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            document.report_key("data.train-share", "expected a share above 0, at most 1");
        }
        if self.reasoner.reads_tests() && self.data.iid.is_none() && self.data.ood.is_none() {
            document.report_key("reasoner.with-tests", "expected it only with `data.iid` or `data.ood`");
        }
    }
}

impl ReasonOptions {
    /// Reads a config for questions that are not in files. The files of `[data]` may be missing.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_for_questions(path: &Path, overrides: &[String]) -> Result<Self> {
        crate::config::load(path, overrides, Self::check_models)
    }

    /// Reports mistakes of everything but the files of `[data]`.
    fn check_models(&self, document: &mut Document<'_>) {
        let files = [
            ("kb", Some(&self.kb)),
            ("entities", self.entities.as_ref()),
            ("relations", self.relations.as_ref()),
        ];
        for (key, path) in files {
            if let Some(path) = path.filter(|path| !path.exists()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        if !self.data.document && self.data.names == EntityNames::Restored {
            document.report_key("data.names", "expected `anonymous` without documents, found `restored`");
        }
        pages::check(self.source.as_ref(), ("source", None), document);
        for run in self.populated.runs.iter().filter(|run| !run.join("predictions").is_dir()) {
            let message = format!("{} has no predictions; run `sporran populate`", run.display());
            document.report_key("populated.runs", message);
        }
        match &self.retriever {
            Some(retriever) => {
                let is_encoder_trained = self.reasoner.question_encoder().is_some();
                retrieval::check(retriever, is_encoder_trained, document);
                if is_encoder_trained && let Err((key, message)) = live_dense(Some(retriever), true) {
                    document.report_key(&key, message);
                }
                if self.source.is_none() {
                    document.report_key("source", "is missing; the retriever searches its passages");
                }
                if !self.reasoner.reads_passages() {
                    document.report_key("retriever", "expected it only with a reasoner that reads passages");
                }
            }
            None if self.reasoner.reads_passages() => {
                document.report_key("retriever", "is missing; the reasoner reads passages of `[source]`");
            }
            None => (),
        }
        self.reasoner.check("reasoner", document);
    }

    /// The largest number of answers to a question.
    pub(super) fn most_answers(&self) -> usize {
        self.max_answers.unwrap_or(usize::MAX)
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::mistakes;

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\niid = \"none.json\"\n[reasoner]\nkind = \"transfer-net\"\n\
                    model = \"m\"\nsteps = 9\noptimizer.learning-rate = 0\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        for expected in [
            "`kb`: no file none",
            "`data.iid`: no file none.json",
            "`reasoner.steps`: expected a whole number from 1 to 8, found 9",
            "learning-rate",
        ] {
            assert!(found(&[]).contains(expected), "{expected}: {}", found(&[]));
        }
        assert!(found(&["reasoner.kind=transfernet"]).contains("did you mean `transfer-net`?"));
        let alone = found(&["data.document=false", "data.names=restored", "reasoner.steps=2"]);
        assert!(alone.contains("`data.names`: expected `anonymous` without documents"), "{alone}");
        assert!(found(&["reasoner.step=1"]).contains("did you mean `steps`?"));
    }

    #[test]
    fn a_retriever_needs_a_source_and_a_reasoner_that_reads_passages() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\n[reasoner]\nkind = \"transfer-net\"\nmodel = \"m\"\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        let walks = found(&["reasoner.topic=text", "retriever.kind=bm25"]);
        for expected in [
            "`reasoner.topic`: expected `given` or `names`",
            "`source`: is missing; the retriever",
            "`retriever`: expected it only with a reasoner that reads passages",
        ] {
            assert!(walks.contains(expected), "{expected}: {walks}");
        }
        let reads = found(&["reasoner.kind=rag-token"]);
        assert!(reads.contains("`retriever`: is missing; the reasoner reads passages"), "{reads}");
    }

    #[test]
    fn vectors_of_entities_have_one_source() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\n[reasoner]\nkind = \"embed-kgqa\"\nmodel = \"m\"\n\
                    train-entities = true\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        assert!(found(&[]).contains("`reasoner.train-entities`: expected it only with `embedding`"));
        let both = found(&["reasoner.embedding=e", "reasoner.rank=4"]);
        assert!(both.contains("`reasoner.rank`: expected it only without `embedding`"), "{both}");
        assert!(!both.contains("train-entities"), "{both}");
    }

    #[test]
    fn options_of_an_objective_need_what_they_act_on() {
        let text = "workflow = \"kbqa\"\nname = \"r\"\nkb = \"none\"\n[data]\n[reasoner]\nkind = \"embed-kgqa\"\nmodel = \"m\"\n";
        let found = |overrides: &[&str]| mistakes(text, overrides, ReasonOptions::load);
        let penalty = "reasoner.objective.norm-penalty=0.1";
        let fixed = found(&["reasoner.embedding=e", penalty, "reasoner.objective.smoothing=1"]);
        assert!(
            fixed.contains("`reasoner.objective.norm-penalty`: expected it only with trained"),
            "{fixed}"
        );
        assert!(fixed.contains("`reasoner.objective.smoothing`: expected a number"), "{fixed}");
        assert!(!found(&[penalty]).contains("norm-penalty"));
        let walk = found(&["reasoner.kind=transfer-net", penalty]);
        assert!(
            walk.contains("`reasoner.objective.norm-penalty`: expected it only for an EmbedKGQA"),
            "{walk}"
        );
        let both = found(&["reasoner.batch-normalisation=true", "reasoner.optimizer.parallel-batches=2"]);
        assert!(both.contains("`reasoner.optimizer.parallel-batches`: expected 1 with"), "{both}");
        let star = found(&["reasoner.kind=embed-kgqa-star", "reasoner.with-tests=true"]);
        assert!(star.contains("`reasoner.with-tests`: expected it only with `data.iid`"), "{star}");
    }
}
