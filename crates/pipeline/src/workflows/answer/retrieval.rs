//! `[retriever]` and `[reranker]`: the list of the retrievers that use other stages, and the table of a reranker.

use std::ops::Deref;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table, kinds};
use sporran_generator::{EntityTitle, EntityTitleOptions, generation_overrides};
use sporran_kilt::hash_json;
use sporran_reranker::RerankerOptions;
use sporran_retriever::{
    Error, FilterOptions, FilteredOptions, IndexPlan, Items, NewIndex, PlannedPassages, Result, Retriever,
    RetrieverKind, Site, Titles, fusion::FusionOptions,
};
use sporran_transformers::{Takers, TakesModel, wrong_model_type};

use super::{mentions::MentionRetrieverOptions, rerank::Reranked, titles::TitleRetriever};

/// `[retriever]`, by `kind`.
pub type RetrieverOptions = sporran_retriever::RetrieverOptions<CombinedRetriever>;

kinds! {
    /// Kinds of retriever that use a generator, a reranker or a tagger.
    pub enum CombinedRetriever: dyn RetrieverKind {
        /// `kind = "entity-title"`: the pages whose titles a model generates.
        "entity-title" => EntityTitle(EntityTitleRetriever),
        /// `kind = "reranked"`: the best passages of a retriever in the order of a reranker.
        "reranked" => Reranked(RerankedOptions<RetrieverOptions>),
        /// `kind = "mentions"`: a tagger finds the names in a query, the base ranks passages for each of them, and the
        /// rankings are merged by score. `[query]` has no effect.
        "mentions" => Mentions(MentionRetrieverOptions<RetrieverOptions>),
    }
}

/// `kind = "entity-title"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EntityTitleRetriever(pub Box<EntityTitleOptions>);

/// `kind = "reranked"`, or a `[reranker]` with a `[retriever]`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RerankedOptions<R> {
    /// `[retriever.reranker]`: the model that scores passages, and how its scores are used.
    pub reranker: RerankerTable,
    /// `[retriever.base]`: the retriever whose passages are reranked, of any kind.
    pub base: Box<R>,
}

/// `[reranker]`: the model that scores passages, by `kind`, and how its scores are used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RerankerTable {
    /// The number of passages to score, and how their order is combined with the retriever's.
    #[schemars(default)]
    pub rerank: RerankOptions,
    /// The reranker. Its keys are in the same table as `rerank`.
    #[serde(flatten)]
    pub model: RerankerOptions,
}

/// `[reranker.rerank]`: how a reranker's scores are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RerankOptions {
    /// The number of passages of a query to score. The others follow in the retriever's order.
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// `[reranker.rerank.fusion]`: fuses the retriever's ranking of the scored passages (first weight) with the
    /// reranker's (second weight). Without it the reranker's order counts alone.
    pub fusion: Option<FusionOptions>,
}

impl Default for RerankOptions {
    fn default() -> Self {
        Self { depth: 50, fusion: None }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The `kind` of a retriever with a filter.
const FILTERED: &str = "filtered";

/// Takes `[retriever]` out of a config. With `[retriever.filter]`, a retriever of any kind is the base of one of kind
/// `filtered`.
fn read_filtered(document: &mut Document<'_>) -> Result<Option<RetrieverOptions>, Invalid> {
    let Some(mut table) = document.take_stage("retriever")? else { return Ok(None) };
    let kind = table.get_ref().get("kind").and_then(|kind| kind.get_ref().as_str());
    if kind == Some(FILTERED) || !table.get_ref().contains_key("filter") {
        return RetrieverOptions::from_stage(document, "retriever", table).map(Some);
    }
    let filter = document
        .take_table_of("retriever", "filter", &mut table)
        .and_then(|inner| FilterOptions::from_table(document, "retriever.filter", inner));
    let base = RetrieverOptions::from_stage(document, "retriever", table);
    Ok(Some(RetrieverOptions::Filtered(FilteredOptions { filter: filter?, base: Box::new(base?) })))
}

/// The base of a filtered retriever, without its filters; any other retriever.
pub(super) fn unfiltered(options: &RetrieverOptions) -> &RetrieverOptions {
    match options {
        RetrieverOptions::Filtered(filtered) => unfiltered(&filtered.base),
        other => other,
    }
}

/// Takes `[retriever]` and `[reranker]` out of a config.
pub(crate) fn read(document: &mut Document<'_>) -> Result<Option<RetrieverOptions>, Invalid> {
    let retriever = read_filtered(document);
    let reranker = document.take_stage("reranker")?;
    let reranker = reranker.map(|table| RerankerTable::from_table(document, "reranker", table)).transpose();
    match (retriever?, reranker?) {
        (Some(base), Some(reranker)) => {
            let reranked = RerankedOptions { reranker, base: Box::new(base) };
            Ok(Some(RetrieverOptions::Outer(CombinedRetriever::Reranked(reranked))))
        }
        (None, Some(_)) => {
            document.report_key("reranker", "expected a `[retriever]`: the reranker scores its passages");
            Err(Invalid)
        }
        (retriever, None) => Ok(retriever),
    }
}

impl FromTable for RerankerTable {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let rerank = if table.get_ref().contains_key("rerank") {
            let inner = document.take_table_of(key, "rerank", &mut table)?;
            document.read(&format!("{key}.rerank"), inner, &[]).ok_or(Invalid)?
        } else {
            RerankOptions::default()
        };
        document.name_taken(&["rerank"]);
        let model = RerankerOptions::from_stage(document, key, table);
        // A wrong `kind` ends before any table is read.
        document.name_taken(&[]);
        Ok(Self { rerank, model: model? })
    }
}

impl RerankerTable {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Some(Err(error)) = self.rerank.fusion.as_ref().map(|fusion| fusion.check(2)) {
            document.report_key(&format!("{key}.rerank.fusion"), error.to_string());
        }
        self.model.check(key, document);
    }
}

impl<R: Kinds> FromTable for RerankedOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let base = document
            .take_table_of(key, "base", &mut table)
            .and_then(|inner| R::from_stage(document, &format!("{key}.base"), inner));
        let reranker = document
            .take_table_of(key, "reranker", &mut table)
            .and_then(|inner| RerankerTable::from_table(document, &format!("{key}.reranker"), inner));
        let _: Nothing = document.read(key, table, &["base", "reranker"]).ok_or(Invalid)?;
        Ok(Self { reranker: reranker?, base: Box::new(base?) })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for RerankedOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.reranker.check(&format!("{key}.reranker"), document);
        self.base.check(&format!("{key}.base"), document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.reranker.model.overrides(&format!("{key}.reranker"), found).map_err(outside)?;
        self.base.overrides(&format!("{key}.base"), found)
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        self.base.plan(passages)
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        vec![&**self.base]
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let base = self.base.open(site)?;
        let folder = self.reranker.model.folder();
        let files = folder.map(|folder| site.files(folder)).transpose()?;
        let hash = match files {
            Some(files) => hash_json(&(&self.reranker, files)),
            None => hash_json(&self.reranker),
        };
        site.depends_on("reranker", folder, hash);
        let reranker = self.reranker.model.open().map_err(outside)?;
        let (store, options) = (site.store().clone(), self.reranker.rerank.clone());
        Ok(Box::new(Reranked::new(base, reranker, store, options)))
    }
}

impl RetrieverKind for EntityTitleRetriever {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        let options = &self.0;
        if let Err(error) = options.check() {
            document.report_key(key, error.to_string());
        }
        if let Err(error) = options.device.check(options.precision) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        let model = format!("{key}.model");
        document.check_encoder(&model, &options.model);
        let takers: Takers = &[("entity-title", EntityTitleOptions::TAKES)];
        if let Some(message) = wrong_model_type(&options.model, EntityTitleOptions::TAKES, takers) {
            document.report_key(&model, message);
        }
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        generation_overrides(&self.0.generation(), &self.0.model, key, found).map_err(outside)
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let options = &*self.0;
        let model = EntityTitle::load(options).map_err(outside)?;
        let tokenizer = model.tokenizer();
        // The index depends on the tokenizer and on `redirects`. A new option is a compile error here, so that it is not
        // forgotten.
        let EntityTitleOptions {
            redirects,
            model: _,
            precision: _,
            device: _,
            prompt: _,
            constrained: _,
            generation: _,
            batch_size: _,
            batch_tokens: _,
        } = *options;
        let store = site.store().clone();
        let key = hash_json(&(tokenizer.json(), redirects, store.hash()));
        let folder = site
            .index(NewIndex { kind: "titles", key, items: Items::Pages }, &mut |place, advance| {
                Titles::build(&store, tokenizer, redirects, place, advance)
            })?;
        let hash = hash_json(&(options, site.files(&options.model)?));
        site.depends_on("titles", Some(&options.model), hash);
        let titles = Titles::open(&folder, store.hash())?;
        Ok(Box::new(TitleRetriever::new(model, titles, store)))
    }
}

/// An error of another stage as one of retrieval.
pub(super) fn outside(error: impl Into<crate::Error>) -> Error {
    Error::Site(Box::new(error.into()))
}

/// Reports mistakes of a retriever's options, without loading a model. `is_encoder_trained`: the config
/// trains the query encoder, so its folder may be missing.
pub(crate) fn check(options: &RetrieverOptions, is_encoder_trained: bool, document: &mut Document<'_>) {
    match options {
        // `read` turns `[retriever]` and `[reranker]` into one retriever of kind `reranked`.
        RetrieverOptions::Outer(CombinedRetriever::Reranked(RerankedOptions { reranker, base }))
            if document.has("reranker") =>
        {
            reranker.check("reranker", document);
            match &**base {
                RetrieverOptions::Filtered(filtered) if has_filter(document) => {
                    check_filtered(filtered, document)
                }
                base => base.check("retriever", document),
            }
        }
        RetrieverOptions::Filtered(filtered) if has_filter(document) => check_filtered(filtered, document),
        RetrieverOptions::Dense(dense) => dense.check_in("retriever", !is_encoder_trained, document),
        _ => options.check("retriever", document),
    }
}

/// Whether the config has a filter in a retriever of another kind than `filtered`.
fn has_filter(document: &Document<'_>) -> bool {
    let kind =
        |values: toml::Table| values.get("retriever")?.get("kind")?.as_str().map(|kind| kind != FILTERED);
    document.values().and_then(kind).unwrap_or_default()
}

/// Reports mistakes of a retriever with the table `[retriever.filter]`.
fn check_filtered(options: &FilteredOptions<RetrieverOptions>, document: &mut Document<'_>) {
    options.filter.check("retriever.filter", document);
    options.base.check("retriever", document);
}

/// Adds `[retriever.filter]` to the schema of a config: a key of retrievers of every kind.
pub(super) fn with_filter(mut schema: Schema) -> Schema {
    // `FilteredOptions` refers to the definition.
    let filter = json!({ "filter": { "$ref": "#/$defs/FilterOptions" } });
    let retriever = schema.get_mut("properties").and_then(|properties| properties.get_mut("retriever"));
    if let Some(retriever) = retriever.and_then(Value::as_object_mut) {
        retriever.insert("properties".to_owned(), filter);
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{config::Config, workflows::answer::options::Options};

    const GENERAL: &str = "workflow = \"answer\"\nname = \"r\"\n[tasks]\nfiles = [\"none.jsonl\"]\n";

    fn load(stages: &str) -> Result<Options, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, format!("{GENERAL}{stages}")).unwrap();
        Options::parse(&path, &[])
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "c"))
    }

    fn faults(stages: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, format!("{GENERAL}{stages}")).unwrap();
        let found = Options::mistakes(&path, &[]).unwrap();
        found.iter().map(|fault| format!("{}: {}", fault.key, fault.message)).collect()
    }

    const NESTED: &str = r#"
[retriever]
kind = "iterative"
hops.beams = 3
[retriever.base]
kind = "hybrid"
fusion.weights = [0.5, 0.5, 1.0]
[[retriever.base.parts]]
kind = "bm25"
k1 = 1.2
[[retriever.base.parts]]
kind = "dense"
model = "m"
[[retriever.base.parts]]
kind = "entity"
names.prior = 0.1
[retriever.base.parts.context]
kind = "bm25"
[reranker]
kind = "cross-encoder"
model = "c"
rerank.depth = 20
"#;

    #[test]
    fn nested_retrievers_round_trip_through_toml() {
        let options = load(NESTED).unwrap();
        let Some(RetrieverOptions::Outer(CombinedRetriever::Reranked(reranked))) = &options.retriever else {
            panic!("{options:?}")
        };
        assert_eq!(reranked.reranker.rerank.depth, 20);
        let RetrieverOptions::Iterative(iterative) = &*reranked.base else { panic!("{reranked:?}") };
        assert_eq!(iterative.hops.beams, 3);
        let RetrieverOptions::Hybrid(hybrid) = &*iterative.base else { panic!("{iterative:?}") };
        assert_eq!(hybrid.fusion.weights, [0.5, 0.5, 1.0]);
        assert!(matches!(&hybrid.parts[0], RetrieverOptions::Bm25(options) if options.k1 == 1.2));
        assert!(
            matches!(&hybrid.parts[1], RetrieverOptions::Dense(options) if options.model == Path::new("m"))
        );
        assert!(matches!(&hybrid.parts[2], RetrieverOptions::Entity(options) if options.context.is_some()));
        // The TOML output is a complete config.
        let shown = options.to_toml().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shown.toml");
        std::fs::write(&path, &shown).unwrap();
        assert_eq!(Options::parse(&path, &[]).unwrap().retriever, options.retriever);
    }

    #[test]
    fn mistakes_in_nested_tables_are_reported_with_their_line() {
        let found = load(&NESTED.replace("k1 = 1.2", "k2 = 1.2").replace("prior", "priors")).unwrap_err();
        assert!(found.contains("c:14: `retriever.base.parts[0].k2`: unknown field"), "{found}");
        assert!(found.contains("`retriever.base.parts[2].names.priors`"), "{found}");
        let found = load(&NESTED.replace("kind = \"dense\"", "kind = \"dens\"")).unwrap_err();
        assert!(found.contains("`retriever.base.parts[1].kind`: unknown kind `dens`"), "{found}");
        let found = load("[retriever]\nkind = \"iterative\"\n").unwrap_err();
        assert!(found.contains("c:5: `retriever.base`: is missing"), "{found}");
        let found = load("[retriever]\nkind = \"hybrid\"\nparts = 3\n").unwrap_err();
        assert!(found.contains("c:7: `retriever.parts`: expected tables"), "{found}");
        let found = load("[reranker]\nkind = \"cross-encoder\"\nmodel = \"m\"\n").unwrap_err();
        assert!(found.contains("`reranker`: expected a `[retriever]`"), "{found}");
    }

    #[test]
    fn wrong_values_are_reported_without_loading_a_model() {
        let found = faults(
            &NESTED
                .replace("[0.5, 0.5, 1.0]", "[0.5]")
                .replace("beams = 3", "beams = 0")
                .replace("= 20", "= 0"),
        );
        for expected in [
            "retriever.base.fusion: weights: expected one for each part",
            "retriever.hops.beams: expected at least 1",
            "reranker.rerank.depth: expected at least 1",
            "retriever.base.parts[1].model: no folder m",
            "reranker.model: no folder c",
        ] {
            assert!(found.iter().any(|fault| fault.starts_with(expected)), "{expected} is not in {found:#?}");
        }
    }

    const FILTERED_BM25: &str = "[retriever]\nkind = \"bm25\"\nk1 = 1.2\n[[retriever.filter.all]]\nkey = \"lang\"\n\
         equals = \"en\"\n[[retriever.filter.all]]\nkey = \"year\"\nat-least = 2000\n";

    #[test]
    fn a_filter_restricts_a_retriever_of_any_kind() {
        let options = load(FILTERED_BM25).unwrap();
        let Some(retriever @ RetrieverOptions::Filtered(filtered)) = &options.retriever else {
            panic!("{options:?}")
        };
        assert!(matches!(unfiltered(retriever), RetrieverOptions::Bm25(options) if options.k1 == 1.2));
        assert_eq!(filtered.filter, FilterOptions::parse("lang=en AND year>=2000").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shown.toml");
        let shown = options.to_toml().unwrap();
        assert!(shown.contains("kind = \"filtered\""), "{shown}");
        std::fs::write(&path, shown).unwrap();
        assert_eq!(Options::parse(&path, &[]).unwrap().retriever, options.retriever);
        // A filter from the command line is the outer one.
        let twice = options.clone().filtered(FilterOptions::parse("lang!=de").unwrap()).unwrap();
        let Some(RetrieverOptions::Filtered(outer)) = &twice.retriever else { panic!("{twice:?}") };
        assert_eq!(Some(&*outer.base), options.retriever.as_ref());
        // The config with all its keys explained is an equivalent config.
        let written = format!("{GENERAL}{FILTERED_BM25}");
        std::fs::write(&path, written).unwrap();
        let explained = crate::registry::explain(&path, &[]).unwrap();
        assert!(explained.contains("[[retriever.filter.all]]"), "{explained}");
        std::fs::write(&path, explained).unwrap();
        assert_eq!(Options::parse(&path, &[]).unwrap().retriever, options.retriever);
    }

    #[test]
    fn mistakes_in_a_filter_are_reported_at_its_table() {
        let found = faults(&FILTERED_BM25.replace("at-least = 2000", "").replace("1.2", "-1.0"));
        let has = |start: &str| found.iter().any(|fault| fault.starts_with(start));
        assert!(has("retriever.filter.all[1]: expected a condition on `year`"), "{found:#?}");
        assert!(has("retriever.k1: "), "{found:#?}");
        let nested = "[retriever]\nkind = \"filtered\"\nfilter = { key = \"a\" }\n[retriever.base]\nkind = \"bm25\"\n\
                      b = 3.0\n";
        let found = faults(nested);
        let has = |start: &str| found.iter().any(|fault| fault.starts_with(start));
        assert!(has("retriever.filter: expected a condition on `a`"), "{found:#?}");
        assert!(has("retriever.base.b: "), "{found:#?}");
        let found = load(&FILTERED_BM25.replace("equals", "equal")).unwrap_err();
        assert!(found.contains("c:10: `retriever.filter.all[0].equal`: unknown field"), "{found}");
        let found =
            load("[retriever]\nkind = \"filtered\"\n[retriever.base]\nkind = \"bm25\"\n").unwrap_err();
        assert!(found.contains("`retriever.filter`: is missing"), "{found}");
        let reranked = format!("{FILTERED_BM25}[reranker]\nkind = \"cross-encoder\"\nmodel = \"c\"\n");
        let found = faults(&reranked.replace("at-least = 2000", ""));
        let has = |start: &str| found.iter().any(|fault| fault.starts_with(start));
        assert!(has("retriever.filter.all[1]: ") && has("reranker.model: no folder c"), "{found:#?}");
    }

    #[test]
    fn a_retriever_of_mentions_has_a_tagger_and_a_base() {
        let table = |keys: &str| {
            format!("[retriever]\nkind = \"mentions\"\n{keys}\n[retriever.base]\nkind = \"bm25\"\n")
        };
        let options = load(&table("tagger = \"t\"\nmention-marks = [\"<\", \">\"]")).unwrap();
        let Some(RetrieverOptions::Outer(CombinedRetriever::Mentions(mentions))) = &options.retriever else {
            panic!("{options:?}")
        };
        let marks = ["<", ">"].map(str::to_owned);
        assert_eq!((mentions.search.candidates, &mentions.search.mention_marks), (100, &Some(marks)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shown.toml");
        std::fs::write(&path, options.to_toml().unwrap()).unwrap();
        assert_eq!(Options::parse(&path, &[]).unwrap().retriever, options.retriever);

        let found = faults(&table("tagger = \"t\"\ncandidates = 0"));
        for expected in ["retriever.candidates: expected at least 1", "retriever.tagger: no folder t"] {
            assert!(found.iter().any(|fault| fault.starts_with(expected)), "{expected} is not in {found:#?}");
        }
        let found = load(&table("candidate = 5")).unwrap_err();
        assert!(found.contains("c:7: `retriever.candidate`: unknown field"), "{found}");
        let found = load("[retriever]\nkind = \"mentions\"\ntagger = \"t\"\n").unwrap_err();
        assert!(found.contains("`retriever.base`: is missing"), "{found}");
    }

    #[test]
    fn distances_need_a_flat_index() {
        let index = |kind: &str| {
            faults(&format!(
                "[retriever]\nkind = \"dense\"\nmodel = \"m\"\nsimilarity = \"euclidean\"\nindex.kind = \"{kind}\"\n"
            ))
        };
        let is_fault =
            |fault: &String| fault.starts_with("retriever.index: index: expected `flat` with `f32`");
        assert!(index("hnsw").iter().any(is_fault), "{:?}", index("hnsw"));
        assert!(!index("flat").iter().any(is_fault), "{:?}", index("flat"));
    }
}
