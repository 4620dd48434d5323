//! `sporran index`.

use std::path::Path;

use clap::Args;
use sporran_kilt::{counted, store::PlanOptions};
use sporran_pipeline::{
    Assembly, BuildPlan, IndexReport,
    shards::{self, Indexing},
};

use super::{
    ConfigArgs,
    shard::{ShardArgs, done},
};
use crate::{
    error::{Error, Result},
    outcome::{Context, Outcome},
};

/// `sporran index`
#[derive(Args)]
#[command(after_help = "Example: sporran index configs/quickstart.toml --plan")]
pub(crate) struct Index {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    shard: ShardArgs,
    /// Only estimate disk, memory and time of the store and the indexes, from a sample of the source's pages
    #[arg(long, conflicts_with = "shard")]
    plan: bool,
    /// MiB of the source that the estimate parses
    #[arg(long, default_value_t = 64, requires = "plan", value_name = "MIB")]
    sample: u64,
    /// MiB of a compressed source that the estimate decompresses, at least, to count its pages
    #[arg(long, default_value_t = 1024, requires = "plan", value_name = "MIB")]
    decompress: u64,
}

impl Index {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let options = self.config.load_without_tasks()?;
        let Some(source) = &options.general.source else {
            return Err(Error::Input("the config has no `[source]` to index".into()));
        };
        if self.plan {
            let mib = |count: u64| count.saturating_mul(1 << 20);
            let sample = PlanOptions { parsed: mib(self.sample.max(1)), decompressed: mib(self.decompress) };
            let plan = BuildPlan::of(&options, sample, &mut context.observer())?;
            return Outcome::new(table(&plan, source.first_path()), &plan);
        }
        if let Some(shard) = self.shard.get()? {
            let indexing = Indexing::Everything;
            return done(&shards::index_shard(&options, indexing, shard, &mut context.observer())?);
        }
        indexed(&sporran_pipeline::assemble_retrieval(&options, &mut context.observer())?)
    }
}

/// The sizes and hashes of a store and its indexes.
pub(crate) fn indexed(assembly: &Assembly) -> Result<Outcome> {
    IndexReport::of(assembly).map_or_else(|| Ok(Outcome::default()), |report| Outcome::of(&report))
}

/// The estimate, with its precision.
fn table(plan: &BuildPlan, source: &Path) -> String {
    let BuildPlan { store, indexes, total } = plan;
    let basis = if store.complete {
        format!(
            "every page of {} was parsed: pages, passages and the store's disk are exact",
            source.display()
        )
    } else if store.read == 1.0 {
        format!(
            "every page of {} was counted and {} were parsed: pages are exact, the rest is estimated",
            source.display(),
            store.sampled_pages
        )
    } else {
        format!(
            "estimated from {} in {:.1} % of {}, ±{:.1} % (two standard errors) if the remaining pages are similar",
            counted(store.counted_pages, "page"),
            100.0 * store.read,
            source.display(),
            200.0 * store.pages_error
        )
    };
    let mut text = format!("{basis}\npages     {}\npassages  {}\n", store.pages, store.passages);
    text.push_str("           disk MiB  building   memory    mapped      time s\n");
    let mut row = |name: &str, bytes: [u64; 4], seconds: f64| {
        let [disk, building, memory, mapped] = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        text.push_str(&format!(
            "{name:9}{disk:>10.1}{building:>10.1}{memory:>9.1}{mapped:>10.1}{seconds:>12.1}\n"
        ));
    };
    row("store", [store.disk_bytes, store.disk_bytes, store.memory_bytes, 0], store.seconds);
    for index in indexes {
        let bytes = [index.disk_bytes, index.build_disk_bytes, index.memory_bytes, index.mapped_bytes];
        row(index.kind, bytes, index.seconds);
    }
    let mapped = total.resident_bytes.saturating_sub(total.memory_bytes);
    row("all", [total.disk_bytes, total.build_disk_bytes, total.memory_bytes, mapped], total.seconds);
    text.push_str(&format!(
        "The process needs {:.0} MiB of memory, and has up to {:.0} MiB with the pages of mapped files, which the system can drop.\n",
        total.memory_bytes as f64 / f64::from(1 << 20),
        total.resident_bytes as f64 / f64::from(1 << 20),
    ));
    text
}
