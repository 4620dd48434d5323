//! `sporran doctor`: the abilities of this machine and this build, and the check of stores and indexes for damage.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_pipeline::{Checked, verify};
use sporran_transformers::DeviceName;

use crate::{
    error::{Error, Result},
    outcome::{Context, Outcome},
    paths,
    settings::memory,
};

/// `sporran doctor`
#[derive(Args)]
#[command(after_help = "Examples:\n  sporran doctor\n  sporran doctor --verify indexes")]
pub(crate) struct Doctor {
    /// Verify the checksums of all stores and indexes below these folders instead; `indexes` by default
    #[arg(long, num_args = 0.., default_missing_value = "indexes", value_name = "DIR", value_hint = ValueHint::DirPath)]
    verify: Option<Vec<PathBuf>>,
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}

/// The devices that models can run on, by their names in configs.
fn devices() -> Vec<String> {
    let gpus = (0..).map(DeviceName::Cuda).take_while(|name| name.open().is_ok());
    std::iter::once(DeviceName::Cpu).chain(gpus).map(|name| name.to_string()).collect()
}

/// One line about a store or an index.
fn line(checked: &Checked) -> String {
    let Checked { path, kind, bytes, damage } = checked;
    match damage {
        None => {
            format!(
                "ok       {kind:8} {:>10.1} MiB  {}\n",
                *bytes as f64 / f64::from(1 << 20),
                path.display()
            )
        }
        Some(damage) => format!("DAMAGED  {kind:8} {:>14}  {}: {damage}\n", "", path.display()),
    }
}

/// Verifies the stores and indexes below folders; fails if one is damaged.
fn verify_all(folders: &[PathBuf], context: &Context) -> Result<Outcome> {
    folders.iter().try_for_each(|folder| paths::folder(folder))?;
    let mut printed = Ok(());
    let found = verify(folders, &mut |checked| {
        // Each line is printed as soon as its folder is verified; JSON is one object at the end.
        if !context.json && printed.is_ok() {
            printed = context.print(Outcome::text(line(checked)));
        }
    })?;
    printed?;
    let (all, damaged) = (found.verified.len(), found.damaged());
    let mut text = String::new();
    for unfinished in &found.unfinished {
        let what = match (unfinished.at_work, unfinished.goes_on) {
            (true, _) => "a process is building this now",
            (false, true) => "the next build of this index continues it",
            (false, false) => "left by a killed build; the next build in this folder removes it",
        };
        text.push_str(&format!("unfinished  {}: {what}\n", unfinished.path.display()));
    }
    text.push_str(&format!("{all} verified, {damaged} damaged\n"));
    let report = json!({
        "verified": found.verified,
        "unfinished": found.unfinished,
        "damaged": damaged,
    });
    let failure =
        (damaged > 0).then(|| Error::Found(format!("{damaged} of {all} stores and indexes are damaged")));
    Ok(Outcome::new(text, &report)?.failing(failure))
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        if let Some(folders) = &self.verify {
            return verify_all(folders, context);
        }
        let folder = std::env::current_dir().ok();
        let writable = folder.as_ref().is_some_and(|folder| tempfile::tempfile_in(folder).is_ok());
        let features = features();
        let (total, available) = (memory("MemTotal"), memory("MemAvailable"));
        let threads = rayon::current_num_threads();
        let yes = |there: bool| if there { "yes" } else { "no" };
        let gib = |bytes: Option<u64>| {
            bytes
                .map_or("unknown".to_owned(), |bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)))
        };
        let mut text = format!(
            "sporran    {} ({} {})\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        if cfg!(debug_assertions) {
            text.push_str("build      debug: slow; build with --release for real work\n");
        }
        text.push_str(&format!(
            "threads    {threads}\nmemory     {} of {} free\n",
            gib(available),
            gib(total)
        ));
        for &(name, there) in &features {
            text.push_str(&format!("{name:10} {}\n", yes(there)));
        }
        let devices = devices();
        text.push_str(&format!("devices    {}\n", devices.join(", ")));
        text.push_str(&format!("writable   {} (this folder, for runs and indexes)\n", yes(writable)));
        let features: serde_json::Map<_, _> =
            features.into_iter().map(|(name, there)| (name.to_owned(), there.into())).collect();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
            "system": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
            "threads": threads,
            "cpu_features": features,
            "memory_bytes": total,
            "available_memory_bytes": available,
            "folder_is_writable": writable,
            "devices": devices,
        });
        Outcome::new(text, &report)
    }
}
