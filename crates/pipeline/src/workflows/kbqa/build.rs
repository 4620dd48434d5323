//! Builds a benchmark in KoRC's layout from documents, a knowledge base and rules.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, kinds};
use sporran_kilt::{
    jsonl,
    kb::{EntityId, KnowledgeBase, Part, RelationId},
    korc as layout,
    observe::{Event, Observer, Unit, begin},
};
use sporran_reasoner::{
    korc::{self, BuildOptions, Entities, EntityTables, SPLITS, Sources, Statistics, Templates},
    rules::{self, Graph, MineOptions, Shape},
};

use crate::{
    Result,
    config::Config,
    run_dir::{folder::RunDir, inputs::Inputs, manifest::Account},
};

/// A whole config of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BuildConfig {
    /// `seed`: the seed of splits, marks and the choice of templates.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the folder of the benchmark: `train.json`, `valid.json`, `small_iid_test.json`,
    /// `small_ood_test.json`, `rules.tsv`, `statistics.json`, and the knowledge base in `kb`.
    pub output: PathBuf,
    /// `kb`: the background knowledge base, a folder or a file of triples.
    pub kb: PathBuf,
    /// `relations`: names of relations: a table with the header `id`, `label`, `aliases`, or a JSON object of ids with
    /// `{"label": ..}`.
    pub relations: Option<PathBuf>,
    /// `templates`: a JSON object of relations with one to four questions, in which `{}` is the entity.
    pub templates: Option<PathBuf>,
    /// `[entities]`: names and classes of entities.
    #[schemars(default)]
    pub entities: EntityTables,
    /// `[documents]`: the texts, by `kind`.
    pub documents: DocumentsOptions,
    /// `[rules]`: rules that are mined from the knowledge base to derive answers. Only cyclic rules are used.
    #[schemars(default)]
    pub rules: MineOptions,
    /// `[build]`: how questions are built.
    #[schemars(default)]
    pub build: BuildOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    #[serde(default)]
    seed: u64,
    output: PathBuf,
    kb: PathBuf,
    relations: Option<PathBuf>,
    templates: Option<PathBuf>,
    #[serde(default)]
    entities: EntityTables,
    #[serde(default)]
    rules: MineOptions,
    #[serde(default)]
    build: BuildOptions,
}

/// What the documents of every kind have.
pub trait DocumentsKind {
    /// The file that they are read from.
    fn path(&self) -> &Path;
}

kinds! {
    /// `[documents]`, by `kind`.
    pub enum DocumentsOptions: dyn DocumentsKind {
        /// `kind = "pages"`: a knowledge source. Anchors are mentions, and the knowledge base has their facts.
        "pages" => Pages(PagesOptions),
        /// `kind = "docred"`: DocRED's layout. Names are looked up in the tables of entities.
        "docred" => DocRed(DocRedOptions),
    }
}

impl DocumentsKind for PagesOptions {
    fn path(&self) -> &Path {
        &self.path
    }
}

impl DocumentsKind for DocRedOptions {
    fn path(&self) -> &Path {
        &self.path
    }
}

/// `kind = "pages"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagesOptions {
    /// The knowledge source.
    pub path: PathBuf,
    /// The largest number of sentences of a document. 0 means that each page is one document.
    #[serde(default)]
    #[schemars(extend("x-unit" = "sentences"))]
    pub sentences: usize,
}

/// `kind = "docred"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocRedOptions {
    /// The file.
    pub path: PathBuf,
}

impl Config for BuildConfig {
    const WORKFLOWS: &'static [&'static str] = &["kbqa-benchmark"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let documents = document.require_stage("documents");
        let General { seed, output, kb, relations, templates, entities, rules, build } =
            document.read_root(&["documents"])?;
        let documents = documents.ok()?;
        Some(Self { seed, output, kb, relations, templates, entities, documents, rules, build })
    }

    fn check(&self, document: &mut Document<'_>) {
        let tables = self.entities.tables.iter().map(|path| ("entities.tables", Some(path.as_path())));
        let files = [
            ("kb", Some(self.kb.as_path())),
            ("relations", self.relations.as_deref()),
            ("templates", self.templates.as_deref()),
            ("documents.path", Some(self.documents.path())),
            ("entities.classes", self.entities.classes.as_deref()),
            ("entities.class-labels", self.entities.class_labels.as_deref()),
        ];
        for (key, path) in files.into_iter().chain(tables) {
            if let Some(path) = path.filter(|path| !path.exists()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        for (key, checked) in [("rules", self.rules.check()), ("build", self.build.check())] {
            if let Err(error) = checked {
                document.report_key(key, error.to_string());
            }
        }
    }
}

/// Builds a benchmark and writes its folder, which is locked meanwhile. A call that was killed is made again as a whole.
///
/// # Errors
/// Errors of the sources; [`Error::Reasoner`](crate::Error::Reasoner) if a question reveals its answers. Then
/// nothing is written.
pub fn build(config: &BuildConfig, observe: &mut Observer<'_>) -> Result<Statistics> {
    let folder = RunDir::open(config.output.clone())?;
    let mut account = Account::begin(config)?;
    let mut inputs = Inputs::default();
    let tables =
        [&config.relations, &config.templates, &config.entities.classes, &config.entities.class_labels];
    let tables = tables.into_iter().flatten().chain(&config.entities.tables);
    for path in tables.map(PathBuf::as_path).chain([config.kb.as_path(), config.documents.path()]) {
        inputs.content(path)?;
    }
    let mut kb = KnowledgeBase::open(&config.kb)?;
    if let Some(path) = &config.relations {
        korc::label_relations(path, &mut kb)?;
    }
    let entities = Entities::load(&config.entities, &kb)?;
    let templates = config.templates.as_deref().map(Templates::load).transpose()?.unwrap_or_default();
    let documents = match &config.documents {
        DocumentsOptions::Pages(options) => korc::pages(&options.path, options.sentences, &kb, &entities)?,
        DocumentsOptions::DocRed(options) => korc::docred(&options.path, &kb, &entities)?,
    };
    begin(observe, "mine rules", config.rules.batches as u64, Unit::Steps);
    let graph = Graph::of(kb.triples(Part::Train));
    let mut found = rules::mine(&graph, &config.rules, config.seed, &mut |progress| {
        let note = format!("{} rules of {} candidates", progress.rules, progress.evaluated);
        observe(Event::Advance { done: progress.batches as u64, note: Some(note) });
        ControlFlow::Continue(())
    })?;
    observe(Event::End);
    found.retain(|rule| rule.clause.shape == Shape::Cyclic && rule.clause.body.len() > 1);
    let sources =
        Sources { kb: &kb, entities: &entities, documents: &documents, rules: &found, templates: &templates };
    begin(observe, "make questions", 0, Unit::Records);
    let built = korc::build(&sources, &config.build, config.seed)?;
    observe(Event::End);
    inputs.verify()?;
    let mark = folder.begin_answers("convert korc", Vec::new())?;
    folder.write_config(config)?;
    for (split, questions) in SPLITS.iter().zip(&built.questions) {
        layout::save(config.output.join(format!("{split}.json")), questions)?;
    }
    rules::save(config.output.join("rules.tsv"), &found, &kb)?;
    left(&kb, &entities, &built.knowledge)?.save(&config.output.join("kb"))?;
    let statistics = Statistics::of(&sources, &built);
    jsonl::write_json(config.output.join("statistics.json"), &statistics)?;
    account.took("build");
    account.read(&inputs);
    account.finish(&folder, mark)?;
    Ok(statistics)
}

/// A knowledge base with the given triples and all names.
fn left(
    kb: &KnowledgeBase,
    entities: &Entities,
    triples: &[sporran_kilt::kb::Triple],
) -> Result<KnowledgeBase> {
    let mut left = KnowledgeBase::default();
    for number in 0..kb.entity_count() as u32 {
        let id = left.add_entity(kb.entity_name(EntityId(number)))?;
        for (at, name) in entities.names(EntityId(number)).iter().enumerate() {
            if at == 0 { left.set_label(id, name) } else { left.add_alias(id, name) }
        }
    }
    for number in 0..kb.relation_count() as u32 {
        let id = left.add_relation(kb.relation_name(RelationId(number)))?;
        for (at, name) in kb.relation_labels(RelationId(number)).iter().enumerate() {
            if at == 0 { left.set_relation_label(id, name) } else { left.add_relation_alias(id, name) }
        }
    }
    for &triple in triples {
        left.add(Part::Train, triple)?;
    }
    Ok(left)
}
