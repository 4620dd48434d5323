//! `sporran index`.

use clap::Args;
use serde_json::json;
use sporran_kilt::PassageStore;

use super::{ConfigArgs, print, print_json};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

/// `sporran index`
#[derive(Args)]
pub(crate) struct Index {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only estimate disk, memory and time, from the first pages
    #[arg(long)]
    plan: bool,
    /// Pages that the estimate reads
    #[arg(long, default_value_t = 20_000, requires = "plan", value_name = "PAGES")]
    sample: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Index {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let Some(source) = &options.general.source else {
            return Err(Error::Usage("the config has no `[source]` to index".into()));
        };
        if self.plan {
            let plan = PassageStore::plan(&source.path, source.split, self.sample.max(1))?;
            if self.json {
                return print_json(&plan);
            }
            let exact = if plan.complete { "counted" } else { "estimated" };
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            return print(&format!(
                "{exact} from {} pages of {}\npages     {}\npassages  {}\ndisk      {:.1} MiB\nmemory    {:.1} MiB\ntime      {:.1} s\n",
                plan.sampled_pages,
                source.path.display(),
                plan.pages,
                plan.passages,
                mib(plan.disk_bytes),
                mib(plan.memory_bytes),
                plan.seconds,
            ));
        }
        let mut progress = Progress::new(quiet);
        let assembly = sporran_pipeline::assemble_retrieval(&options, &mut |event| progress.event(event))?;
        let Some(store) = &assembly.store else { return Ok(()) };
        if self.json {
            return print_json(&json!({
                "pages": store.pages(),
                "passages": store.len(),
                "bytes": store.bytes(),
                "hash": store.hash(),
                "parts": assembly.hashes,
            }));
        }
        let mut text =
            format!("{} pages, {} passages, {} bytes\n", store.pages(), store.len(), store.bytes());
        for part in &assembly.hashes {
            text.push_str(&format!("{:10} {}  {}\n", part.part, &part.blake3[..12], part.path.display()));
        }
        print(&text)
    }
}
