//! The options of entity retrieval in a config.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::hash_json;

use super::retriever::{EntityOptions, EntityRetriever};
use crate::{
    PassageScorer, Result, Retriever,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::Site,
};

/// The kinds that score given passages.
const SCORERS: [&str; 2] = ["bm25", "dense"];

/// `kind = "entity"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EntityRetrieverOptions<R> {
    /// `[retriever.names]`: how named pages are ranked.
    #[schemars(default)]
    pub names: EntityOptions,
    /// `[retriever.context]`: a retriever of kind `bm25` or `dense` that scores passages for the query.
    pub context: Option<Box<R>>,
}

/// The keys without the context.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    #[serde(default)]
    names: EntityOptions,
}

impl<R: Kinds> FromTable for EntityRetrieverOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let context = if table.get_ref().contains_key("context") {
            let inner = document.take_table_of(key, "context", &mut table)?;
            R::from_stage_of(&SCORERS, document, &format!("{key}.context"), inner)
                .map(|context| Some(Box::new(context)))
        } else {
            Ok(None)
        };
        let Rest { names } = document.read(key, table, &["context"]).ok_or(Invalid)?;
        Ok(Self { names, context: context? })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for EntityRetrieverOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.names.check() {
            document.report_key(&format!("{key}.names"), error.to_string());
        }
        if let Some(context) = &self.context {
            context.check(&format!("{key}.context"), document);
        }
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.context.as_ref().map_or(Ok(()), |context| context.overrides(&format!("{key}.context"), found))
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        self.context.as_ref().map_or(Ok(Vec::new()), |context| context.plan(passages))
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        self.context.iter().map(|context| &***context).collect()
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let context: Option<Box<dyn PassageScorer>> = match &self.context {
            None => None,
            Some(context) => context.open_scorer(site)?,
        };
        site.depends_on("names", None, hash_json(&self.names));
        let (store, aliases) = (site.store().clone(), site.aliases()?);
        Ok(Box::new(EntityRetriever::new(store, aliases, context, self.names.clone())?))
    }
}
