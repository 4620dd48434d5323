//! `[retriever]` and `[reranker]`: what a config says of them. Retrievers that are made of others hold their tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_generator::EntityTitleOptions;
use sporran_reranker::CrossEncoderOptions;
use sporran_retriever::{
    dense::DenseOptions,
    entity::EntityOptions,
    fusion::FusionOptions,
    iterative::IterativeOptions,
    sparse::{Bm25Options, TfIdfOptions},
};

use crate::config::{Document, Table, Wrong};

/// `[retriever]`, told apart by `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RetrieverOptions {
    /// `kind = "bm25"`
    Bm25(Bm25Options),
    /// `kind = "tfidf"`
    #[serde(rename = "tfidf")]
    TfIdf(TfIdfOptions),
    /// `kind = "dense"`
    Dense(DenseOptions),
    /// `kind = "entity"`: the pages that a query names.
    Entity(EntityRetrieverOptions),
    /// `kind = "entity-title"`: the pages whose titles a model writes.
    EntityTitle(Box<EntityTitleOptions>),
    /// `kind = "hybrid"`: the rankings of several retrievers, fused.
    Hybrid(HybridOptions),
    /// `kind = "iterative"`: asks again with what was found, and ranks pages that answer together.
    Iterative(IterativeRetrieverOptions),
    /// `kind = "reranked"`: the best passages of a retriever in the order of a reranker.
    Reranked(RerankedOptions),
}

/// `kind = "entity"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EntityRetrieverOptions {
    /// `[retriever.names]`: how pages that are named are ranked.
    #[schemars(default)]
    pub names: EntityOptions,
    /// `[retriever.context]`: a retriever of kind `bm25` or `dense` that says how well passages fit the query.
    pub context: Option<Box<RetrieverOptions>>,
}

/// `kind = "hybrid"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HybridOptions {
    /// `[retriever.fusion]`: how rankings become one.
    #[schemars(default)]
    pub fusion: FusionOptions,
    /// `[[retriever.parts]]`: a retriever each, of any kind.
    pub parts: Vec<RetrieverOptions>,
}

/// `kind = "iterative"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct IterativeRetrieverOptions {
    /// `[retriever.hops]`: how it goes from what was found to what is asked next.
    #[schemars(default)]
    pub hops: IterativeOptions,
    /// `[retriever.coverage]`: BM25's options for how much of a question a page covers.
    #[schemars(default)]
    pub coverage: Bm25Options,
    /// `[retriever.base]`: the retriever that is asked, of any kind.
    pub base: Box<RetrieverOptions>,
}

/// `kind = "reranked"`, or a `[reranker]` beside the `[retriever]`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RerankedOptions {
    /// `[retriever.reranker]`: what scores, and how its scores are used.
    pub reranker: RerankerOptions,
    /// `[retriever.base]`: the retriever whose passages are reranked, of any kind.
    pub base: Box<RetrieverOptions>,
}

/// `[reranker]`: what scores passages, by `kind`, and what becomes of the scores.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RerankerOptions {
    /// How far down it scores, and how its order joins the retriever's.
    #[schemars(default)]
    pub rerank: RerankOptions,
    /// The scorer; its keys stand beside `rerank`.
    #[serde(flatten)]
    pub model: ScorerOptions,
}

/// `[reranker.rerank]`: what becomes of a reranker's scores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RerankOptions {
    /// Passages of a query that are scored; the others follow them in the retriever's order.
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// `[reranker.rerank.fusion]`: fuses the retriever's ranking of the scored passages (first weight) with the
    /// reranker's (second weight); without it the reranker alone decides.
    pub fusion: Option<FusionOptions>,
}

impl Default for RerankOptions {
    fn default() -> Self {
        Self { depth: 50, fusion: None }
    }
}

/// What scores passages, told apart by `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ScorerOptions {
    /// `kind = "cross-encoder"`
    CrossEncoder(CrossEncoderOptions),
}

const RETRIEVERS: [&str; 8] =
    ["bm25", "tfidf", "dense", "entity", "entity-title", "hybrid", "iterative", "reranked"];
const CONTEXTS: [&str; 2] = ["bm25", "dense"];
const RERANKERS: [&str; 1] = ["cross-encoder"];

/// Takes `[retriever]` and `[reranker]` out of a config.
pub(crate) fn read(document: &mut Document<'_>) -> Result<Option<RetrieverOptions>, Wrong> {
    let retriever = document.take_stage("retriever")?;
    let reranker = document.take_stage("reranker")?;
    let retriever =
        retriever.map(|table| retriever_options(document, "retriever", table, &RETRIEVERS)).transpose();
    let reranker = reranker.map(|table| reranker_options(document, "reranker", table)).transpose();
    match (retriever?, reranker?) {
        (Some(base), Some(reranker)) => {
            Ok(Some(RetrieverOptions::Reranked(RerankedOptions { reranker, base: Box::new(base) })))
        }
        (None, Some(_)) => {
            document.report_key("reranker", "expected a `[retriever]` beside it, whose passages it scores");
            Err(Wrong)
        }
        (retriever, None) => Ok(retriever),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hybrid {
    #[serde(default)]
    fusion: FusionOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Iterative {
    #[serde(default)]
    hops: IterativeOptions,
    #[serde(default)]
    coverage: Bm25Options,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entity {
    #[serde(default)]
    names: EntityOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn retriever_options<'t>(
    document: &mut Document<'t>,
    key: &str,
    mut table: Table<'t>,
    kinds: &[&str],
) -> Result<RetrieverOptions, Wrong> {
    let kind = document.take_kind(key, &mut table, kinds)?;
    Ok(match kind.as_str() {
        "bm25" => RetrieverOptions::Bm25(document.read(key, table, &[]).ok_or(Wrong)?),
        "tfidf" => RetrieverOptions::TfIdf(document.read(key, table, &[]).ok_or(Wrong)?),
        "dense" => RetrieverOptions::Dense(document.read(key, table, &[]).ok_or(Wrong)?),
        "entity-title" => {
            RetrieverOptions::EntityTitle(Box::new(document.read(key, table, &[]).ok_or(Wrong)?))
        }
        "entity" => {
            let context = if table.get_ref().contains_key("context") {
                let inner = document.take_table_of(key, "context", &mut table)?;
                retriever_options(document, &format!("{key}.context"), inner, &CONTEXTS)
                    .map(|it| Some(Box::new(it)))
            } else {
                Ok(None)
            };
            let Entity { names } = document.read(key, table, &["context"]).ok_or(Wrong)?;
            RetrieverOptions::Entity(EntityRetrieverOptions { names, context: context? })
        }
        "hybrid" => {
            let tables = document.take_tables(key, "parts", &mut table)?;
            let parts: Vec<Result<_, Wrong>> = tables
                .into_iter()
                .enumerate()
                .map(|(at, part)| {
                    retriever_options(document, &format!("{key}.parts[{at}]"), part, &RETRIEVERS)
                })
                .collect();
            let Hybrid { fusion } = document.read(key, table, &["parts"]).ok_or(Wrong)?;
            RetrieverOptions::Hybrid(HybridOptions {
                fusion,
                parts: parts.into_iter().collect::<Result<_, _>>()?,
            })
        }
        "iterative" => {
            let base = base(document, key, &mut table);
            let Iterative { hops, coverage } = document.read(key, table, &["base"]).ok_or(Wrong)?;
            RetrieverOptions::Iterative(IterativeRetrieverOptions { hops, coverage, base: base? })
        }
        _ => {
            let base = base(document, key, &mut table);
            let reranker = document
                .take_table_of(key, "reranker", &mut table)
                .and_then(|table| reranker_options(document, &format!("{key}.reranker"), table));
            let _: Nothing = document.read(key, table, &["base", "reranker"]).ok_or(Wrong)?;
            RetrieverOptions::Reranked(RerankedOptions { reranker: reranker?, base: base? })
        }
    })
}

fn base<'t>(
    document: &mut Document<'t>,
    key: &str,
    table: &mut Table<'t>,
) -> Result<Box<RetrieverOptions>, Wrong> {
    let inner = document.take_table_of(key, "base", table)?;
    retriever_options(document, &format!("{key}.base"), inner, &RETRIEVERS).map(Box::new)
}

fn reranker_options<'t>(
    document: &mut Document<'t>,
    key: &str,
    mut table: Table<'t>,
) -> Result<RerankerOptions, Wrong> {
    let rerank = if table.get_ref().contains_key("rerank") {
        let inner = document.take_table_of(key, "rerank", &mut table)?;
        document.read(&format!("{key}.rerank"), inner, &[]).ok_or(Wrong)?
    } else {
        RerankOptions::default()
    };
    document.take_kind(key, &mut table, &RERANKERS)?;
    let model = ScorerOptions::CrossEncoder(document.read(key, table, &["rerank"]).ok_or(Wrong)?);
    Ok(RerankerOptions { rerank, model })
}

/// Finds what is wrong with a retriever's options that can be read: models that are not there, values that do not fit
/// together.
/// `learned`: the encoder of queries is yet to be made.
pub(crate) fn check(options: &RetrieverOptions, learned: bool, document: &mut Document<'_>) {
    // A `[reranker]` beside the `[retriever]` was read as a retriever around it.
    match options {
        RetrieverOptions::Reranked(RerankedOptions { reranker, base }) if document.has("reranker") => {
            check_reranker(reranker, "reranker", document);
            check_retriever(base, "retriever", document);
        }
        RetrieverOptions::Dense(dense) if learned => check_dense(dense, learned, "retriever", document),
        _ => check_retriever(options, "retriever", document),
    }
}

fn check_dense(options: &DenseOptions, learned: bool, key: &str, document: &mut Document<'_>) {
    if let Err(error) = options.check() {
        document.report_key(key, error.to_string());
    }
    if let Err(error) = options.similarity() {
        document.report_key(key, error.to_string());
    }
    if !learned {
        check_model(Some(&options.model), &format!("{key}.model"), document);
    }
    check_model(options.passage_model.as_ref(), &format!("{key}.passage-model"), document);
}

fn check_retriever(options: &RetrieverOptions, key: &str, document: &mut Document<'_>) {
    let report = |document: &mut Document<'_>, below: &str, error: Option<sporran_retriever::Error>| {
        if let Some(error) = error {
            document.report_key(&format!("{key}{below}"), error.to_string());
        }
    };
    match options {
        RetrieverOptions::Bm25(_) | RetrieverOptions::TfIdf(_) => {}
        RetrieverOptions::Dense(options) => check_dense(options, false, key, document),
        RetrieverOptions::EntityTitle(options) => {
            if let Err(error) = options.check() {
                document.report_key(key, error.to_string());
            }
            if let Err(error) = options.device.check(options.precision) {
                document.report_key(&format!("{key}.device"), error.to_string());
            }
            check_model(Some(&options.model), &format!("{key}.model"), document);
        }
        RetrieverOptions::Entity(options) => {
            report(document, ".names", options.names.check().err());
            if let Some(context) = &options.context {
                check_retriever(context, &format!("{key}.context"), document);
            }
        }
        RetrieverOptions::Hybrid(options) => {
            if options.parts.len() < 2 {
                document.report_key(&format!("{key}.parts"), "expected at least two retrievers");
            }
            report(document, ".fusion", options.fusion.check(options.parts.len()).err());
            for (at, part) in options.parts.iter().enumerate() {
                check_retriever(part, &format!("{key}.parts[{at}]"), document);
            }
        }
        RetrieverOptions::Iterative(options) => {
            report(document, ".hops", options.hops.check().err());
            check_retriever(&options.base, &format!("{key}.base"), document);
        }
        RetrieverOptions::Reranked(options) => {
            check_reranker(&options.reranker, &format!("{key}.reranker"), document);
            check_retriever(&options.base, &format!("{key}.base"), document);
        }
    }
}

fn check_reranker(options: &RerankerOptions, key: &str, document: &mut Document<'_>) {
    if let Some(Err(error)) = options.rerank.fusion.as_ref().map(|fusion| fusion.check(2)) {
        document.report_key(&format!("{key}.rerank.fusion"), error.to_string());
    }
    let ScorerOptions::CrossEncoder(model) = &options.model;
    if let Err(error) = model.check() {
        document.report_key(key, error.to_string());
    }
    check_model(Some(&model.folder), &format!("{key}.model"), document);
}

fn check_model(folder: Option<&std::path::PathBuf>, key: &str, document: &mut Document<'_>) {
    // A folder of sentence-transformers may keep its encoder in a folder below.
    let is_model = |folder: &std::path::PathBuf| {
        folder.join("config.json").is_file() || folder.join("modules.json").is_file()
    };
    if let Some(folder) = folder.filter(|folder| !is_model(folder)) {
        document.check_checkpoint(key, folder);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{config::load::Config, workflows::answer::options::Options};

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
    fn retrievers_are_read_inside_others_and_shown_as_they_are_read() {
        let options = load(NESTED).unwrap();
        let Some(RetrieverOptions::Reranked(reranked)) = &options.retriever else { panic!("{options:?}") };
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
        // What is shown is a whole config of its own.
        let shown = options.to_toml().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shown.toml");
        std::fs::write(&path, &shown).unwrap();
        assert_eq!(Options::parse(&path, &[]).unwrap().retriever, options.retriever);
    }

    #[test]
    fn mistakes_in_nested_tables_are_named_with_their_line() {
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
    fn values_that_do_not_fit_are_found_before_anything_is_loaded() {
        let found = faults(
            &NESTED
                .replace("[0.5, 0.5, 1.0]", "[0.5]")
                .replace("beams = 3", "beams = 0")
                .replace("= 20", "= 0"),
        );
        for expected in [
            "retriever.base.fusion: weights: expected one for each part",
            "retriever.hops: beams: expected at least 1",
            "reranker.rerank.depth: expected at least 1",
            "retriever.base.parts[1].model: no folder m",
            "reranker.model: no folder c",
        ] {
            assert!(found.iter().any(|fault| fault.starts_with(expected)), "{expected} is not in {found:#?}");
        }
    }
}
