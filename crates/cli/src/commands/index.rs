//! `sporran index`.

use std::path::Path;

use clap::Args;
use serde_json::json;
use sporran_kilt::{
    PassageStore,
    store::{Plan, PlanOptions},
};

use super::ConfigArgs;
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
    /// Only estimate disk, memory and time, from a sample of the source's pages
    #[arg(long)]
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
        let options = self.config.load()?;
        let Some(source) = &options.general.source else {
            return Err(Error::Input("the config has no `[source]` to index".into()));
        };
        if self.plan {
            let mib = |count: u64| count.saturating_mul(1 << 20);
            let sample = PlanOptions { parsed: mib(self.sample.max(1)), decompressed: mib(self.decompress) };
            let pages = sporran_pipeline::source_pages(source, &mut context.observer())?;
            let plan = PassageStore::plan(&pages, source.splitting(), sample)?;
            return Outcome::new(table(&plan, &pages), &plan);
        }
        let assembly = sporran_pipeline::assemble_retrieval(&options, &mut context.observer())?;
        let Some(store) = &assembly.store else { return Ok(Outcome::default()) };
        let mut text =
            format!("{} pages, {} passages, {} bytes\n", store.pages(), store.len(), store.bytes());
        for part in &assembly.hashes {
            text.push_str(&format!("{:10} {}  {}\n", part.part, &part.blake3[..12], part.path.display()));
        }
        for recall in &assembly.recalls {
            text.push_str(&format!("{recall}\n"));
        }
        if let Some(documents) = assembly.documents() {
            text.push_str(&format!("{documents}\n"));
            documents.lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        let mut report = json!({
            "pages": store.pages(),
            "passages": store.len(),
            "bytes": store.bytes(),
            "hash": store.hash(),
            "parts": assembly.hashes,
            "recalls": assembly.recalls,
        });
        if let Some(documents) = assembly.documents() {
            report["documents"] = json!(documents);
        }
        Outcome::new(text, &report)
    }
}

/// The estimate, with its precision.
fn table(plan: &Plan, source: &Path) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let basis = if plan.complete {
        format!("every page of {} was parsed: pages, passages and disk are exact", source.display())
    } else if plan.read == 1.0 {
        format!(
            "every page of {} was counted and {} were parsed: pages are exact, passages and disk estimated",
            source.display(),
            plan.sampled_pages
        )
    } else {
        format!(
            "estimated from {} pages in {:.1} % of {}, ±{:.1} % (two standard errors) if the remaining pages are similar",
            plan.counted_pages,
            100.0 * plan.read,
            source.display(),
            200.0 * plan.pages_error
        )
    };
    format!(
        "{basis}\npages     {}\npassages  {}\ndisk      {:.1} MiB\nmemory    {:.1} MiB\ntime      {:.1} s\n",
        plan.pages,
        plan.passages,
        mib(plan.disk_bytes),
        mib(plan.memory_bytes),
        plan.seconds,
    )
}
