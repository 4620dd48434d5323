//! Builds a benchmark in KoRC's layout from documents, a knowledge base and rules.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, kinds};
use sporran_extractor::NamedEntities;
use sporran_kilt::{
    counted, docred as docred_layout, jsonl,
    kb::{EntityId, KnowledgeBase, Part, RelationId},
    korc as layout,
    observe::{Event, Observer, Unit, begin},
};
use sporran_reasoner::{
    korc::{
        self, BuildOptions, Entities, EntityTables, Hyperlinks, Links, MentionLinker, SPLITS, Sources,
        Statistics, Templates,
    },
    rules::{self, Clause, Graph, HumanRules, MineOptions, Shape},
};

use super::{
    linking::VertexLinker,
    phrasing::{PhrasingOptions, phrase},
};
use crate::{
    Error, Result,
    config::Config,
    run_dir::{folder::RunDir, inputs::Inputs, manifest::Account},
};

/// A whole config of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
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
    /// `rule-files`: rules that people wrote or scored, as BIMR's: a line is `RULE` or `RULE TAB SCORE`, and a rule is
    /// `relation(X,Y) <- relation(X,A), relation(A,Y)`. They come before mined rules. Those with a relation that the knowledge base
    /// lacks are left out, with a warning.
    #[schemars(default)]
    pub rule_files: Vec<PathBuf>,
    /// `[rules]`: rules that are mined from the knowledge base to derive answers; none with `batches = 0`. Only cyclic
    /// rules are used.
    #[schemars(default)]
    pub rules: MineOptions,
    /// `[build]`: how questions are built.
    #[schemars(default)]
    pub build: BuildOptions,
    /// `[phrasing]`: a language model that writes the questions of KoRC-L; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phrasing: Option<PhrasingOptions>,
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
    rule_files: Vec<PathBuf>,
    #[serde(default)]
    rules: MineOptions,
    #[serde(default)]
    build: BuildOptions,
    phrasing: Option<PhrasingOptions>,
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
        /// `kind = "docred"`: DocRED's layout. Mentions are linked by hyperlinks, a linker, and unique names.
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

impl DocumentsOptions {
    /// The files that mentions are linked with.
    fn link_files(&self) -> Vec<&Path> {
        let Self::DocRed(DocRedOptions { hyperlinks, linker, .. }) = self else { return Vec::new() };
        let names = linker.iter().flat_map(|linker| linker.names.iter().map(|names| names.file.as_path()));
        let facts = linker.iter().filter_map(|linker| linker.facts.as_deref());
        names.chain(facts).chain(hyperlinks.as_deref()).collect()
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
    /// Whether a text also says the facts of its page's entity where it does not name it. In the KoRC paper, both ends of a
    /// fact are in the document.
    #[serde(default)]
    pub implied: bool,
}

/// `kind = "docred"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocRedOptions {
    /// The file.
    pub path: PathBuf,
    /// A knowledge source. The hyperlinks of the page with a document's title link mentions of the same text.
    #[serde(default)]
    pub hyperlinks: Option<PathBuf>,
    /// `[documents.linker]`: an entity linker for mentions that no hyperlink links. Without both, and for other
    /// mentions, a name of exactly one entity links.
    #[serde(default)]
    pub linker: Option<NamedEntities>,
}

impl Config for BuildConfig {
    const WORKFLOWS: &'static [&'static str] = &["kbqa-benchmark"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let documents = document.require_stage("documents");
        let General { seed, output, kb, relations, templates, entities, rule_files, rules, build, phrasing } =
            document.read_root(&["documents"])?;
        let documents = documents.ok()?;
        Some(Self {
            seed,
            output,
            kb,
            relations,
            templates,
            entities,
            documents,
            rule_files,
            rules,
            build,
            phrasing,
        })
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
        let rules = self.rule_files.iter().map(|path| ("rule-files", Some(path.as_path())));
        for (key, path) in files.into_iter().chain(tables).chain(rules) {
            if let Some(path) = path.filter(|path| !path.exists()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        if let DocumentsOptions::DocRed(DocRedOptions { hyperlinks, linker, .. }) = &self.documents {
            if let Some(path) = hyperlinks.as_ref().filter(|path| !path.exists()) {
                document.report_key("documents.hyperlinks", format!("no file {}", path.display()));
            }
            if let Some(linker) = linker {
                linker.check("documents.linker", document);
            }
        }
        if let Some(phrasing) = &self.phrasing {
            phrasing.check(document);
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
    let tables = tables.into_iter().flatten().chain(&config.entities.tables).chain(&config.rule_files);
    let linked = config.documents.link_files();
    let phrasing = config.phrasing.iter().flat_map(PhrasingOptions::files);
    for path in tables
        .map(PathBuf::as_path)
        .chain([config.kb.as_path(), config.documents.path()])
        .chain(linked)
        .chain(phrasing)
    {
        inputs.content(path)?;
    }
    let mut kb = KnowledgeBase::open(&config.kb)?;
    if let Some(path) = &config.relations {
        korc::label_relations(path, &mut kb)?;
    }
    let entities = Entities::load(&config.entities, &kb)?;
    let unlabelled =
        (0..kb.entity_count() as u32).filter(|&at| entities.label(EntityId(at)).is_none()).count();
    if unlabelled > 0 {
        let all = kb.entity_count();
        tracing::warn!(
            "{unlabelled} of the {all} entities of the knowledge base have no label in `entities.tables`; they are not asked about and \
             are no answers"
        );
    }
    let templates = config.templates.as_deref().map(Templates::load).transpose()?.unwrap_or_default();
    let documents = match &config.documents {
        DocumentsOptions::Pages(PagesOptions { path, sentences, implied }) => {
            korc::pages(path, *sentences, *implied, &kb, &entities)?
        }
        DocumentsOptions::DocRed(options) => docred(options, &kb, &entities)?,
    };
    let mut given = Vec::new();
    for path in &config.rule_files {
        let HumanRules { rules, unknown } = rules::load_human(path, &kb)?;
        if unknown > 0 {
            let (path, known) = (path.display(), rules.len());
            tracing::warn!(
                "{path}: {unknown} rules have a relation that the knowledge base lacks; {known} are used"
            );
        }
        given.extend(rules);
    }
    begin(observe, "mine rules", config.rules.batches as u64, Unit::Steps);
    let graph = Graph::of(kb.triples(Part::Train));
    let found = rules::mine(&graph, &config.rules, config.seed, &mut |progress| {
        let note = format!(
            "{} of {}",
            counted(progress.rules as u64, "rule"),
            counted(progress.evaluated as u64, "candidate")
        );
        observe(Event::Advance { done: progress.batches as u64, note: Some(note) });
        ControlFlow::Continue(())
    })?;
    observe(Event::End);
    let known: HashSet<Clause> = given.iter().map(|rule| rule.clause.clone()).collect();
    given.extend(found.into_iter().filter(|rule| !known.contains(&rule.clause)));
    let mut found = given;
    found.retain(|rule| rule.clause.shape == Shape::Cyclic && rule.clause.body.len() > 1);
    let sources =
        Sources { kb: &kb, entities: &entities, documents: &documents, rules: &found, templates: &templates };
    begin(observe, "make questions", 0, Unit::Records);
    let mut built = korc::build(&sources, &config.build, config.seed)?;
    observe(Event::End);
    if built.questions.iter().all(Vec::is_empty) {
        let message = format!(
            "the build made no question of {} and {}; rules of several steps, with at least the confidence `build.min-confidence`, make them",
            counted(documents.len() as u64, "document"),
            counted(found.len() as u64, "rule")
        );
        return Err(Error::Kilt(sporran_kilt::Error::Argument(message)));
    }
    let phrased = match &config.phrasing {
        None => None,
        Some(phrasing) => Some(phrase(phrasing, &mut built, &entities, observe)?),
    };
    inputs.verify()?;
    let mark = folder.begin_answers("convert korc", Vec::new())?;
    folder.write_config(config)?;
    // Results of an earlier build are replaced from here on; the mark stays until all are.
    folder.finished();
    for (split, questions) in SPLITS.iter().zip(&built.questions) {
        layout::save(config.output.join(format!("{split}.json")), questions)?;
    }
    rules::save(config.output.join("rules.tsv"), &found, &kb)?;
    left(&kb, &entities, &built.knowledge)?.save(&config.output.join("kb"))?;
    let statistics = Statistics { phrased, ..Statistics::of(&sources, &built) };
    jsonl::write_json(config.output.join("statistics.json"), &statistics)?;
    account.took("build");
    account.read(&inputs);
    account.finish(&folder, mark)?;
    Ok(statistics)
}

/// Reads DocRED's documents, linked by the sources of their options.
fn docred(options: &DocRedOptions, kb: &KnowledgeBase, entities: &Entities) -> Result<Vec<korc::Document>> {
    let linker = options.linker.as_ref().map(NamedEntities::open).transpose()?.map(VertexLinker);
    let hyperlinks = match &options.hyperlinks {
        None => Hyperlinks::default(),
        Some(pages) => {
            let titles = docred_layout::load(&options.path)?.into_iter().map(|document| document.title);
            Hyperlinks::read(pages, &titles.collect(), entities)?
        }
    };
    let linker = linker.as_ref().map(|linker| linker as &dyn MentionLinker);
    Ok(korc::docred(&options.path, kb, &Links { entities, hyperlinks, linker })?)
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
