//! `sporran models show`: the contents of a model's folder.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::json;
use sporran_checkpoint::weight_types;
use sporran_generator::{NSMN, RELEASED_NSMN};
use sporran_transformers::Checkpoint;

use super::{Card, check_engine, missing, read};
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// `sporran models show`
#[derive(Args)]
#[command(after_help = "Example: sporran models show minikilt-reader")]
pub(crate) struct Show {
    /// Name of an imported model, or a model's folder
    #[arg(value_name = "NAME|DIR", value_hint = ValueHint::DirPath)]
    model: PathBuf,
    /// Folder of imported models
    #[arg(long, default_value = "models", value_name = "DIR", value_hint = ValueHint::DirPath)]
    models: PathBuf,
}

/// The file that marks each kind of model that `sporran train` writes, and what the model is for.
const OWN: [(&str, &str); 12] = [
    ("averaged.json", "relations between mentions: the mean of the models in its folders"),
    ("bilstm.json", "relations between mentions: a BiLSTM"),
    ("document-relations.json", "relations between a document's entities"),
    ("embedding.json", "embedding of a knowledge base"),
    ("network.json", "network over a knowledge base"),
    ("linear.json", "relations between mentions: logistic regressions"),
    ("reasoner.json", "answers to questions over a knowledge base"),
    ("relations.json", "relations between mentions: an encoder over marked mentions"),
    ("reranker.json", "reranking of passages or sentences"),
    ("slot-filling.json", "slot filling: answers to questions about relations"),
    ("tagger.json", "tagging of names and dates in texts"),
    ("triplets.json", "facts written by an encoder-decoder"),
];

/// A weights file that belongs to no checkpoint.
#[derive(Serialize)]
struct Weights {
    file: String,
    types: BTreeMap<String, usize>,
}

/// Contents of a folder other than a checkpoint.
#[derive(Serialize)]
struct Own {
    /// What the model is for.
    made_for: Vec<&'static str>,
    /// Its folders that hold models.
    parts: Vec<String>,
}

impl Own {
    fn of(folder: &Path) -> Result<Self> {
        let held = |folder: &Path| OWN.iter().filter(|(file, _)| folder.join(file).is_file()).count();
        let mut made_for: Vec<&'static str> =
            OWN.iter().filter(|(file, _)| folder.join(file).is_file()).map(|(_, what)| *what).collect();
        if is_nsmn(folder)? {
            made_for.push("labels of text pairs: a neural semantic matching network");
        }
        let mut parts = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
            let path = entry.map_err(Error::io(folder, "read"))?.path();
            if path.is_dir() && (held(&path) > 0 || path.join("config.json").is_file()) {
                parts.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
        parts.sort_unstable();
        Ok(Self { made_for, parts })
    }
}

fn is_nsmn(folder: &Path) -> Result<bool> {
    let config: Option<serde_json::Value> =
        read(&folder.join("config.json"))?.and_then(|text| serde_json::from_str(&text).ok());
    Ok(config.is_some_and(|config| config["model_type"] == NSMN || config["model_type"] == RELEASED_NSMN))
}

/// The folder's weights files.
fn weights(folder: &Path) -> Result<Vec<Weights>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let path = entry.map_err(Error::io(folder, "read"))?.path();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Weights { file, types: weight_types(&path)? });
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

fn counts(types: &BTreeMap<String, usize>) -> String {
    types.iter().map(|(dtype, count)| format!("{count} {dtype}")).collect::<Vec<_>>().join(", ")
}

/// One line per field.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{name:<16}{value}");
    }

    fn card(&mut self, card: &Card) {
        let fields = [
            ("role", &card.role),
            ("source", &card.source),
            ("revision", &card.revision),
            ("licence", &card.licence),
            ("merged", &card.adapter),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                self.line(name, value);
            }
        }
    }

    fn own(&mut self, own: &Own) {
        for what in &own.made_for {
            self.line("made for", what);
        }
        for part in &own.parts {
            self.line("part", part);
        }
    }
}

impl Show {
    pub(super) fn run(self) -> Result<Outcome> {
        let imported = self.models.join(&self.model);
        if !imported.is_dir() && self.model.is_file() {
            paths::folder(&self.model)?;
        }
        let folder = if self.model.is_dir() { self.model.clone() } else { imported.clone() };
        for path in [&self.model, &folder] {
            sporran_pipeline::check_model(path)?;
        }
        if !self.model.exists() && !imported.exists() {
            return Err(missing(&self.model, &self.models));
        }
        let is_checkpoint = folder.join("config.json").is_file() && !is_nsmn(&folder)?;
        let own = if folder.is_dir() { Own::of(&folder)? } else { Own { made_for: vec![], parts: vec![] } };
        if is_checkpoint || (own.made_for.is_empty() && own.parts.is_empty()) {
            show_checkpoint(&folder, &own)
        } else {
            show_own(&folder, &own)
        }
    }
}

fn show_own(folder: &Path, own: &Own) -> Result<Outcome> {
    let (card, weights) = (Card::read(folder)?, weights(folder)?);
    let mut lines = Lines::default();
    lines.line("folder", &folder.display().to_string());
    lines.own(own);
    for file in &weights {
        lines.line("parameters", &format!("{} ({})", counts(&file.types), file.file));
    }
    lines.card(&card);
    let report = json!({
        "folder": folder, "made_for": own.made_for, "parts": own.parts, "weights": weights, "card": card,
    });
    Outcome::new(lines.0, &report)
}

fn show_checkpoint(folder: &Path, own: &Own) -> Result<Outcome> {
    check_engine(folder)?;
    let checkpoint = Checkpoint::open(folder)?;
    let card = Card::read(folder)?;
    let tokenizer = checkpoint.tokenizer()?;
    let types = checkpoint.stored_types();
    let special = checkpoint.special_tokens().ok();
    let mut lines = Lines::default();
    lines.line("folder", &folder.display().to_string());
    let classes = checkpoint.architectures().join(", ");
    lines.line("architecture", &format!("{} ({classes})", checkpoint.config().model_type()));
    lines.own(own);
    lines.line("parameters", &counts(&types));
    lines.line("tokenizer", &format!("{}, {} tokens", tokenizer.kind(), tokenizer.vocab_size()));
    if let Some(tokens) = &special {
        let bos = tokens.bos.map_or_else(|| "none".into(), |bos| bos.to_string());
        let eos = tokens.eos.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let (pad, start) = (tokens.pad, tokens.decoder_start);
        lines.line("special tokens", &format!("pad {pad}, bos {bos}, eos {eos}, decoder start {start}"));
    }
    lines.card(&card);
    let prefix = checkpoint.stored().prefix();
    if !prefix.is_empty() {
        lines.line("prefix", &format!("{prefix} (before all tensor names; taken off)"));
    }
    for tensor in checkpoint.surplus() {
        lines.line("surplus tensor", tensor);
    }
    let special = special.map(|tokens| {
        json!({ "pad": tokens.pad, "bos": tokens.bos, "eos": tokens.eos, "decoder_start": tokens.decoder_start })
    });
    let report = json!({
        "folder": folder,
        "architecture": checkpoint.config().model_type(),
        "classes": checkpoint.architectures(),
        "parameters": types.values().sum::<usize>(),
        "types": types,
        "tokenizer": { "kind": tokenizer.kind(), "tokens": tokenizer.vocab_size() },
        "special_tokens": special,
        "surplus_tensors": checkpoint.surplus(),
        "prefix": (!prefix.is_empty()).then_some(prefix),
        "made_for": own.made_for,
        "parts": own.parts,
        "card": card,
    });
    Outcome::new(lines.0, &report)
}
