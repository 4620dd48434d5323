//! Makes `examples/minikilt`: `cargo run --release --example make_minikilt -- [--kg DIR] [--out DIR] [--seed N]`.
//!
//! Without `--kg` the facts come from `facts.tsv` in the output folder, or from the bundled one if there is none, so
//! the data can be regenerated from the repository only. With `--kg` they come from a folder with CoDEx-S
//! (`codex-s/*.txt`, `codex-s/entity_text.tsv`, `relations.json`, `types.json`, `entity2types.json`,
//! `wikidata_properties.json`), from which only facts, labels and types are read.

mod minikilt;

use std::error::Error;
use std::path::{Path, PathBuf};

use minikilt::facts::Facts;
use minikilt::wording::Wordings;
use minikilt::world::World;

const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/minikilt");

struct Arguments {
    kg: Option<PathBuf>,
    out: PathBuf,
    seed: u64,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments { kg: None, out: PathBuf::from(BUNDLED), seed: 1 };
    let mut rest = std::env::args().skip(1);
    while let Some(key) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{key} needs a value"))?;
        match key.as_str() {
            "--kg" => found.kg = Some(value.into()),
            "--out" => found.out = value.into(),
            "--seed" => found.seed = value.parse().map_err(|e| format!("--seed {value}: {e}"))?,
            _ => return Err(format!("unknown option {key}; known are --kg, --out and --seed").into()),
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { kg, out, seed } = arguments()?;
    let wordings = Wordings::bundled()?;
    let facts = match kg {
        Some(folder) => Facts::extract(&folder, &wordings)?,
        None => {
            let own = out.join("facts.tsv");
            let path = if own.exists() { own } else { Path::new(BUNDLED).join("facts.tsv") };
            Facts::parse(&std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?)?
        }
    };
    let world = World::build(facts, wordings, seed);
    for file in minikilt::make(&world)? {
        let path = out.join(&file.name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, &file.bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
