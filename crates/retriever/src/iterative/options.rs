//! The options of iterative retrieval in a config.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::hash_json;

use super::{Iterative, IterativeOptions};
use crate::{
    Result, Retriever,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::Site,
    sparse::Bm25Options,
};

/// `kind = "iterative"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct IterativeRetrieverOptions<R> {
    /// `[retriever.hops]`: how results extend the next query.
    #[schemars(default)]
    pub hops: IterativeOptions,
    /// `[retriever.coverage]`: BM25's options for the share of a question that a page covers.
    #[schemars(default)]
    pub coverage: Bm25Options,
    /// `[retriever.base]`: the retriever of each hop, of any kind.
    pub base: Box<R>,
}

/// The keys without the base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    #[serde(default)]
    hops: IterativeOptions,
    #[serde(default)]
    coverage: Bm25Options,
}

impl<R: Kinds> FromTable for IterativeRetrieverOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let base = document
            .take_table_of(key, "base", &mut table)
            .and_then(|inner| R::from_stage(document, &format!("{key}.base"), inner));
        let Rest { hops, coverage } = document.read(key, table, &["base"]).ok_or(Invalid)?;
        Ok(Self { hops, coverage, base: Box::new(base?) })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for IterativeRetrieverOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.hops.check() {
            document.report_key(&format!("{key}.hops"), error.to_string());
        }
        self.base.check(&format!("{key}.base"), document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.base.overrides(&format!("{key}.base"), found)
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        let mut plans = self.base.plan(passages)?;
        plans.extend(self.coverage.plan(passages)?);
        Ok(plans)
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        vec![&**self.base, &self.coverage]
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let base = self.base.open(site)?;
        let words = self.coverage.open_index(site)?;
        site.depends_on("hops", None, hash_json(&self.hops));
        let (store, aliases) = (site.store().clone(), site.aliases()?);
        Ok(Box::new(Iterative::new(base, store, aliases, words, self.hops.clone())?))
    }
}
