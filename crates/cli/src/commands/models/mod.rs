//! `sporran models`: fetches models from the hub, imports them from folders, lists and describes them.

mod show;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sporran_checkpoint::{Adapter, Hub, ModelId, Part, find_gguf, is_parlai, weight_types};
use sporran_generator::{import_nsmn, is_released_nsmn};
use sporran_transformers::{Checkpoint, Engine, import, import_parlai, import_part};

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
    progress::Downloads,
};

const CARD: &str = "model.toml";

/// `sporran models`
#[derive(Subcommand)]
pub(crate) enum Models {
    /// Fetch a model from the Hugging Face Hub and import it
    Pull(Pull),
    /// Import a model's folder: check it and write safetensors, tokenizer.json and a card
    Import(Import),
    /// Describe a model
    Show(show::Show),
    /// List the imported models
    List(List),
}

impl Models {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        match self {
            Self::Pull(command) => command.run(context),
            Self::Import(command) => command.run(context),
            Self::Show(command) => command.run(),
            Self::List(command) => command.run(),
        }
    }
}

/// `sporran models pull`
#[derive(Args)]
#[command(after_help = "Example: sporran models pull sentence-transformers/all-MiniLM-L6-v2")]
pub(crate) struct Pull {
    /// The model: `name` or `org/name`, with `@` and a branch, a tag or a commit if needed
    #[arg(value_name = "ID[@REV]")]
    id: String,
    /// Name of the imported model; the model's own by default
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Folder of imported models
    #[arg(long, default_value = "models", value_name = "DIR", value_hint = ValueHint::DirPath)]
    models: PathBuf,
    /// Part of a RAG model, of BLINK or of DPR's own code to import
    #[arg(long, value_name = "PART")]
    part: Option<PartName>,
    /// Fetch the model into the cache only; do not import it
    #[arg(long)]
    no_import: bool,
}

/// `sporran models import`
#[derive(Args)]
#[command(after_help = "Example: sporran models import downloads/bart-base --name bart")]
pub(crate) struct Import {
    /// Folder in the layout of Hugging Face, PEFT, ParlAI or NSMN
    ///
    /// PEFT's layout is an adapter of LoRA, with `adapter_config.json`; it is merged with its base model.
    /// ParlAI's layout has `model`, `model.opt` and `model.dict`. NSMN's has `model`, `tokens.txt`,
    /// `unk_count_namespaces.txt`, and `wordnet` if the network checks claims.
    #[arg(value_name = "PATH", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Part of a RAG model, of BLINK or of DPR's own code to import
    #[arg(long, value_name = "PART")]
    part: Option<PartName>,
    /// Base model that a LoRA adapter is merged with: a folder, the name of an imported model, or `hf:ID[@REV]`
    ///
    /// Without it, the base model is the one that `adapter_config.json` names: a folder, or a model in the hub's cache.
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    base: Option<PathBuf>,
    /// Name of the imported model; the folder's own by default
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Folder of imported models
    #[arg(long, default_value = "models", value_name = "DIR", value_hint = ValueHint::DirPath)]
    models: PathBuf,
}

/// One of the models of a RAG model, of BLINK or of DPR's own code.
#[derive(Clone, Copy, ValueEnum)]
enum PartName {
    /// RAG: the encoder of questions
    QuestionEncoder,
    /// RAG: the encoder-decoder that generates answers
    Generator,
    /// BLINK: the encoder of mentions in their contexts
    MentionEncoder,
    /// BLINK: the encoder of entities' titles and descriptions
    EntityEncoder,
    /// BLINK: the cross-encoder of mentions and entities
    CrossEncoder,
    /// DPR's code: the encoder of questions
    DprQuestionEncoder,
    /// DPR's code: the encoder of passages
    DprPassageEncoder,
    /// DPR's code: the reader
    DprReader,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::QuestionEncoder => Self::QuestionEncoder,
            PartName::Generator => Self::Generator,
            PartName::MentionEncoder => Self::MentionEncoder,
            PartName::EntityEncoder => Self::EntityEncoder,
            PartName::CrossEncoder => Self::CrossEncoder,
            PartName::DprQuestionEncoder => Self::DprQuestionEncoder,
            PartName::DprPassageEncoder => Self::DprPassageEncoder,
            PartName::DprReader => Self::DprReader,
        }
    }
}

/// `sporran models list`
#[derive(Args)]
#[command(
    after_help = "Example: sporran models list --json\n\nWith --json, each model is one object on a line."
)]
pub(crate) struct List {
    /// Folder of imported models
    #[arg(long, default_value = "models", value_name = "DIR", value_hint = ValueHint::DirPath)]
    models: PathBuf,
}

/// A model's `model.toml`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Card {
    /// Its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// The number of its weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<u64>,
    /// Its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The commit, if it comes from the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// Its licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    licence: Option<String>,
    /// The adapter that was merged into it, with its base model.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
}

impl Card {
    /// The card of a folder, or an empty one. The front matter of its `README.md` can hold the licence.
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CARD);
        let mut card: Self = match read(&path)? {
            Some(text) => toml::from_str(&text)
                .map_err(|error| Error::Input(format!("{}: {}", path.display(), error.message())))?,
            None => Self::default(),
        };
        if card.licence.is_none() {
            card.licence = read(&folder.join("README.md"))?.as_deref().and_then(licence).map(str::to_owned);
        }
        Ok(card)
    }
}

/// The value of `license` in the front matter of a model's description.
fn licence(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    let mut matter = lines.take_while(|line| line.trim_end() != "---");
    let value = matter.find_map(|line| line.strip_prefix("license:"))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then_some(value)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "read")(error)),
    }
}

/// The hub with the settings of `huggingface_hub`'s environment variables.
fn hub() -> Result<Hub> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let cache = match (variable("HF_HUB_CACHE"), variable("HF_HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join("hub"),
        (None, None) => {
            let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
            let missing =
                || Error::Input("expected a folder for the cache in HF_HUB_CACHE or HF_HOME".into());
            caches.ok_or_else(missing)?.join("huggingface").join("hub")
        }
    };
    let cache = std::path::absolute(&cache).map_err(Error::io(&cache, "resolve"))?;
    let is_set = |value: String| matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on");
    let hub = Hub::new(cache)
        .with_token(variable("HF_TOKEN"))
        .offline(variable("HF_HUB_OFFLINE").is_some_and(is_set));
    Ok(match variable("HF_ENDPOINT") {
        Some(endpoint) => hub.with_endpoint(endpoint),
        None => hub,
    })
}

/// The folder of a model: its path, the name of an imported model, or `hf:ID[@REV]`.
///
/// # Errors
/// Where there is no such model.
pub(crate) fn resolve(model: &Path, quiet: bool) -> Result<PathBuf> {
    if let Some(id) = model.to_str().and_then(|model| model.strip_prefix("hf:")) {
        let id: ModelId = id.parse()?;
        let mut downloads = Downloads::new(quiet);
        let folder = hub()?.folder(&id, &mut |progress| downloads.show(progress))?;
        downloads.finish();
        return Ok(folder);
    }
    let imported = Path::new("models").join(model);
    let is_name = model.components().count() == 1 && !model.is_dir();
    let folder = if is_name && imported.is_dir() { imported } else { model.to_owned() };
    sporran_pipeline::check_model(&folder)?;
    let trained = folder.join("model");
    if folder.join("training-manifest.json").is_file() && trained.is_dir() {
        let [run, trained] = [&folder, &trained].map(|path| path.display());
        return Err(Error::Input(format!("{run} is the folder of a training; its model is {trained}")));
    }
    if folder.exists() { Ok(folder) } else { Err(missing(model, Path::new("models"))) }
}

/// The error for a model that is neither a path nor imported.
fn missing(model: &Path, models: &Path) -> Error {
    if model.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf")) {
        return paths::missing("file", model);
    }
    if model.components().count() > 1 {
        return paths::missing("model folder", model);
    }
    Error::Input(format!(
        "no model {0}: no imported model {1}, and no folder {0}; {2}",
        model.display(),
        models.join(model).display(),
        paths::relative_to()
    ))
}

impl Pull {
    fn run(self, context: &Context) -> Result<Outcome> {
        let id: ModelId = self.id.parse()?;
        let hub = hub()?;
        let name = self.name.as_deref().unwrap_or_else(|| id.name().rsplit('/').next().unwrap_or(id.name()));
        interrupt::keep(Kept::Output(self.models.join(name)));
        let mut downloads = Downloads::new(context.quiet);
        let folder = hub.pull(&id, &mut |progress| downloads.show(progress))?;
        downloads.finish();
        let revision = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let source = Card { source: Some(id.name().to_owned()), revision, ..Card::read(&folder)? };
        let taken = if self.no_import {
            None
        } else {
            Some(take_in(&folder, self.part, None, &self.models, name, source)?)
        };
        let adapter = taken.as_ref().and_then(|taken| taken.adapter.as_ref());
        let into = taken.as_ref().map(|taken| &taken.folder);
        let report = json!({ "id": id.to_string(), "cached": folder, "folder": into, "adapter": adapter });
        Outcome::new(taken.as_ref().map_or_else(|| folder.display().to_string(), Taken::text), &report)
    }
}

impl Import {
    fn run(self, context: &Context) -> Result<Outcome> {
        sporran_pipeline::check_model(&self.folder)?;
        paths::folder(&self.folder)?;
        let own = self.folder.canonicalize().map_err(Error::io(&self.folder, "open"))?;
        let own = own.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let card = Card::read(&self.folder)?;
        let name = self.name.as_deref().unwrap_or(&own);
        let base = self.base.as_deref().map(|base| resolve(base, context.quiet)).transpose()?;
        let taken = take_in(&self.folder, self.part, base.as_deref(), &self.models, name, card)?;
        Outcome::new(taken.text(), &json!({ "folder": taken.folder, "adapter": taken.adapter }))
    }
}

/// An imported model.
struct Taken {
    folder: PathBuf,
    /// The adapter that was merged.
    adapter: Option<String>,
}

impl Taken {
    fn text(&self) -> String {
        let folder = self.folder.display();
        match &self.adapter {
            Some(adapter) => format!("{folder}\nmerged: {adapter}"),
            None => folder.to_string(),
        }
    }
}

/// Imports `folder`, or a part of it, as `models/name`, with its card. An adapter is merged with `base`, or with the base
/// model that it names.
fn take_in(
    folder: &Path,
    part: Option<PartName>,
    base: Option<&Path>,
    models: &Path,
    name: &str,
    card: Card,
) -> Result<Taken> {
    if Path::new(name).file_name().is_none_or(|file| file != name) {
        return Err(Error::Usage(format!("--name: expected a name without folders, found `{name}`")));
    }
    let into = models.join(name);
    interrupt::keep(Kept::Output(into.clone()));
    if Adapter::is_in(folder) {
        if part.is_some() {
            return Err(Error::Usage("--part: expected the folder of a model, found an adapter".into()));
        }
        return take_in_adapter(folder, base, models, &into, card);
    }
    if base.is_some() {
        let found = folder.display();
        return Err(Error::Usage(format!("--base: expected the folder of an adapter, found {found}")));
    }
    let (own_role, parameters) = match part {
        None if is_released_nsmn(folder) => {
            import_nsmn(folder, &into)?;
            ("verifier", weight_types(&into.join("model.safetensors"))?)
        }
        part => {
            let checkpoint = take_in_checkpoint(folder, part, &into)?;
            (role(&checkpoint), checkpoint.stored_types())
        }
    };
    write_card(&into, own_role, &parameters, card)?;
    Ok(Taken { folder: into, adapter: None })
}

/// Merges an adapter with its base model, and imports the result.
fn take_in_adapter(
    folder: &Path,
    base: Option<&Path>,
    models: &Path,
    into: &Path,
    card: Card,
) -> Result<Taken> {
    let adapter = Adapter::open(folder)?;
    let base = base.map_or_else(|| adapter.base(hub()?).map_err(Error::from), |base| Ok(base.to_owned()))?;
    paths::folder(&base)?;
    fs::create_dir_all(models).map_err(Error::io(models, "create"))?;
    let scratch = tempfile::Builder::new().prefix(".merge-").tempdir_in(models);
    let scratch = scratch.map_err(Error::io(models, "create"))?;
    let merged = adapter.merge(&base, &scratch.path().join("model"))?;
    let checkpoint = Checkpoint::open(&scratch.path().join("model"))?;
    import(&checkpoint, into)?;
    let text = merged.to_string();
    let card = Card { adapter: Some(text.clone()), ..card };
    write_card(into, role(&checkpoint), &checkpoint.stored_types(), card)?;
    Ok(Taken { folder: into.to_owned(), adapter: Some(text) })
}

fn write_card(into: &Path, own_role: &str, parameters: &BTreeMap<String, usize>, card: Card) -> Result<()> {
    let parameters = parameters.values().sum::<usize>() as u64;
    let role = card.role.or_else(|| Some(own_role.to_owned()));
    let card = Card { role, parameters: Some(parameters), ..card };
    let path = into.join(CARD);
    let text =
        toml::to_string(&card).map_err(|error| Error::io(&path, "write")(std::io::Error::other(error)))?;
    fs::write(&path, text).map_err(Error::io(&path, "write"))
}

fn take_in_checkpoint(folder: &Path, part: Option<PartName>, into: &Path) -> Result<Checkpoint> {
    Ok(match part {
        Some(part) => import_part(folder, part.into(), into)?,
        None if is_parlai(folder) => {
            import_parlai(folder, into)?;
            Checkpoint::open(into)?
        }
        None => {
            check_engine(folder)?;
            let checkpoint = Checkpoint::open(folder)?;
            import(&checkpoint, into)?;
            checkpoint
        }
    })
}

/// Checks that a model is not one of the engine `candle` alone, which is used where it is.
fn check_engine(folder: &Path) -> Result<()> {
    if find_gguf(folder)?.is_some() || !Engine::Auto.is_candle(folder)? {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: expected an architecture of the packed engine, found one of the engine `candle` alone; use the model where \
         it is: as a folder, or after `models pull --no-import ID` as hf:ID",
        folder.display()
    )))
}

/// The role of a model, by its architecture.
fn role(checkpoint: &Checkpoint) -> &'static str {
    if checkpoint.special_tokens().is_ok() { "generator" } else { "encoder" }
}

/// The paths in a folder, in their order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).map_err(Error::io(folder, "read"))?;
    let mut paths = read
        .map(|entry| Ok(entry.map_err(Error::io(folder, "read"))?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

impl List {
    fn run(self) -> Result<Outcome> {
        paths::folder(&self.models)?;
        let is_model = |folder: &PathBuf| folder.join("config.json").exists() || folder.join(CARD).exists();
        let mut folders = Vec::new();
        for folder in entries(&self.models)? {
            match is_model(&folder) {
                true => folders.push(folder),
                // A folder of models that belong together.
                false if folder.is_dir() => folders.extend(entries(&folder)?.into_iter().filter(is_model)),
                false => {}
            }
        }
        let (mut text, mut models) = (String::new(), Vec::new());
        for folder in folders {
            let name = folder.strip_prefix(&self.models).unwrap_or(&folder).display().to_string();
            let card = Card::read(&folder)?;
            let role = card.role.as_deref().unwrap_or("-");
            let parameters = card.parameters.map_or_else(|| "-".into(), |count| count.to_string());
            let source = card.source.as_deref().unwrap_or("-");
            text.push_str(&format!("{name:<24} {role:<12} {parameters:>12} {source}\n"));
            models.push(json!({ "name": name, "folder": folder, "card": card }));
        }
        Outcome::list(text, &models)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{licence, missing};

    #[test]
    fn a_missing_model_is_a_file_a_folder_or_a_name() {
        let text = |model: &str| missing(Path::new(model), Path::new("models")).text();
        assert!(text("models/x.gguf").starts_with("no file models/x.gguf"), "{}", text("models/x.gguf"));
        assert!(text("x.GGUF").starts_with("no file x.GGUF"));
        assert!(text("models/x").starts_with("no model folder models/x"));
        assert!(text("x").starts_with("no model x: no imported model models/x"));
    }

    #[test]
    fn a_licence_is_read_from_the_front_matter_only() {
        assert_eq!(licence("---\nlanguage: en\nlicense: \"apache-2.0\"\n---\n# Model"), Some("apache-2.0"));
        assert_eq!(licence("---\nlanguage: en\n---\nlicense: mit"), None);
        assert_eq!(licence("# Model\nlicense: mit"), None);
    }
}
