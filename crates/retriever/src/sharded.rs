//! Retrieval over the indexes of shards, without a merge.

use std::{ops::Deref, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::{Error as FileError, PassageId, PassageStore, ShardFault, folder::ShardSet, hash_json};

use crate::{
    Error, Result, Retriever,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::{PartFolders, Site},
};

/// The kinds of retriever whose indexes can be in parts.
const KINDS: [&str; 3] = ["bm25", "tfidf", "dense"];

/// `kind = "sharded"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ShardedOptions<R> {
    /// The shards of `sporran index`, or folders with these shards. They are those of the same source and base.
    pub shards: Vec<PathBuf>,
    /// `[retriever.base]`: the retriever whose index is in the shards: `bm25`, `tfidf`, or `dense` with a `flat` index without
    /// `rescore`. Its rankings are those of one index over all passages.
    pub base: Box<R>,
}

/// The keys without the base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    shards: Vec<PathBuf>,
}

impl<R: Kinds> FromTable for ShardedOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let base = document
            .take_table_of(key, "base", &mut table)
            .and_then(|inner| R::from_stage_of(&KINDS, document, &format!("{key}.base"), inner));
        let Rest { shards } = document.read(key, table, &["base"]).ok_or(Invalid)?;
        Ok(Self { shards, base: Box::new(base?) })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for ShardedOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if self.shards.is_empty() {
            document.report_key(&format!("{key}.shards"), "expected at least one folder, found none");
        }
        for folder in self.shards.iter().filter(|folder| !folder.is_dir()) {
            document.report_key(&format!("{key}.shards"), format!("no folder {}", folder.display()));
        }
        self.base.check(&format!("{key}.base"), document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.base.overrides(&format!("{key}.base"), found)
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        self.base.plan(passages)
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        vec![&**self.base]
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let set = ShardSet::open(&self.shards)?;
        let (first, manifest) = set.first();
        if manifest.verb != "index" {
            let message = format!("expected a shard of `index`, found one of `{}`", manifest.verb);
            return Err(FileError::shard(first, ShardFault::Foreign, message).into());
        }
        let then = manifest.inputs.get("source").map_or("nothing", String::as_str);
        if let Some(now) = site.source_hash().filter(|now| now != then) {
            let message = format!(
                "`source` is {now} now, and was {then} when the shard was made; make the shards again"
            );
            return Err(FileError::shard(first, ShardFault::Stale, message).into());
        }
        let mut shards = Vec::new();
        let (store, mut next) = (site.store().clone(), 0);
        for (folder, shard) in set.iter() {
            let parts: PartFolders = shard.details(folder)?;
            if let Some(name) = &parts.store {
                let part = PassageStore::open(folder.join(name))?;
                if !is_part(&part, next, &store) {
                    let message = "its passages are not those of the store; make the shards again";
                    return Err(FileError::shard(folder, ShardFault::Stale, message).into());
                }
                next += part.len();
            }
            shards.push((folder.to_owned(), parts));
        }
        let names: Vec<&PartFolders> = shards.iter().map(|(_, parts)| parts).collect();
        site.depends_on("shards", Some(first), hash_json(&names));
        let found = self.base.open_shards(&shards, site)?;
        found.ok_or_else(|| Error::Option {
            option: "base",
            expected: "a retriever of kind `bm25`, `tfidf` or `dense`",
            found: "another kind".to_owned(),
        })
    }
}

/// Whether a part begins at a passage of the store. Compares its first and its last passage.
fn is_part(part: &PassageStore, first: usize, store: &PassageStore) -> bool {
    let same = |at: usize| {
        let (here, there) = (PassageId(at as u32), PassageId((first + at) as u32));
        part.text(here) == store.text(there)
            && part.page_id(part.page_of(here)) == store.page_id(store.page_of(there))
    };
    part.split() == store.split() && first + part.len() <= store.len() && same(0) && same(part.len() - 1)
}
