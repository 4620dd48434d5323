//! `[generator]`: what a config says of it. One kind holds others, a table for each dataset.

use std::{collections::BTreeMap, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{ChatTemplate, Tokenizer, find_gguf};
use sporran_generator::{
    CausalOptions, Chat, ExtractiveOptions, FidOptions, MemNetOptions, RagSequenceOptions, RagTokenOptions,
    ReleasedNsmnConfig, Seq2SeqOptions, VerifierOptions,
};
use sporran_kilt::Dataset;
use sporran_transformers::{DeviceName, Precision};

use crate::config::{Document, Table, Wrong};

/// `[generator]`, told apart by `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum GeneratorOptions {
    /// `kind = "seq2seq"`
    #[serde(rename = "seq2seq")]
    Seq2Seq(Seq2SeqOptions),
    /// `kind = "fid"`
    Fid(FidOptions),
    /// `kind = "rag-sequence"`
    RagSequence(RagSequenceOptions),
    /// `kind = "rag-token"`
    RagToken(RagTokenOptions),
    /// `kind = "memnet"`: a transformer memory network.
    #[serde(rename = "memnet")]
    MemNet(MemNetOptions),
    /// `kind = "verifier"`: checks claims by labelling evidence.
    Verifier(VerifierOptions),
    /// `kind = "extractive"`: a span of the most relevant passage.
    Extractive(ExtractiveOptions),
    /// `kind = "causal"`: a decoder-only model that is shown examples.
    Causal(CausalOptions),
    /// `kind = "title"`: the title of the best passage's page.
    Title(TitleOptions),
    /// `kind = "by-dataset"`: some datasets have a generator of their own.
    ByDataset(ByDatasetOptions),
}

/// `kind = "title"`, which has no keys of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TitleOptions {}

/// `kind = "by-dataset"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ByDatasetOptions {
    /// `[generator.default]`: answers what no other does.
    pub default: Box<GeneratorOptions>,
    /// `[generator.datasets.NAME]`: answers the dataset of that name, such as `fever`.
    pub datasets: BTreeMap<Dataset, GeneratorOptions>,
}

/// A model of a generator, and where the config says so.
#[derive(Clone, Debug)]
pub struct GeneratorModel<'a> {
    /// The generator's table.
    pub key: String,
    /// The model's folder.
    pub folder: &'a Path,
    /// Where the model runs.
    pub device: DeviceName,
    /// How the weights are kept.
    pub precision: Precision,
    /// How many passages it reads at most.
    pub passages: usize,
}

impl GeneratorOptions {
    /// The generator that answers a dataset's queries.
    #[must_use]
    pub fn of(&self, dataset: Option<Dataset>) -> &Self {
        match self {
            Self::ByDataset(options) => {
                dataset.and_then(|dataset| options.datasets.get(&dataset)).unwrap_or(&options.default)
            }
            own => own,
        }
    }

    /// The models of all generators in the table `key`.
    #[must_use]
    pub fn models(&self, key: &str) -> Vec<GeneratorModel<'_>> {
        let (folder, device, precision, prompt) = match self {
            Self::Verifier(options) => {
                let own = |key: String, folder| GeneratorModel {
                    key,
                    folder,
                    device: options.device,
                    precision: options.precision,
                    passages: options.passages,
                };
                let mut models = vec![own(key.to_owned(), options.model.as_path())];
                let (pages, selection) = (options.pages.as_ref(), options.selection.as_ref());
                models.extend(pages.map(|it| own(format!("{key}.pages"), it.model.as_path())));
                models.extend(selection.map(|it| own(format!("{key}.selection"), it.model.as_path())));
                return models;
            }
            Self::Seq2Seq(options) => (&options.model, options.device, options.precision, &options.prompt),
            Self::Fid(options) => (&options.model, options.device, options.precision, &options.prompt),
            Self::RagSequence(options) => {
                (&options.model, options.device, options.precision, &options.prompt)
            }
            Self::MemNet(options) => (&options.model, options.device, options.precision, &options.prompt),
            Self::RagToken(options) => (&options.model, options.device, options.precision, &options.prompt),
            Self::Causal(options) => (&options.model, options.device, options.precision, &options.prompt),
            Self::Title(_) => return Vec::new(),
            Self::Extractive(options) => {
                let ExtractiveOptions { model, device, precision, passages, .. } = options;
                let (device, precision, passages) = (*device, *precision, *passages);
                return vec![GeneratorModel {
                    key: key.to_owned(),
                    folder: model,
                    device,
                    precision,
                    passages,
                }];
            }
            Self::ByDataset(options) => {
                let mut models = options.default.models(&format!("{key}.default"));
                models.extend(options.datasets.iter().flat_map(|(dataset, generator)| {
                    generator.models(&format!("{key}.datasets.{}", dataset.stem()))
                }));
                return models;
            }
        };
        vec![GeneratorModel { key: key.to_owned(), folder, device, precision, passages: prompt.passages }]
    }
}

const GENERATORS: [&str; 10] = [
    "seq2seq",
    "fid",
    "rag-sequence",
    "rag-token",
    "memnet",
    "verifier",
    "extractive",
    "causal",
    "title",
    "by-dataset",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Takes `[generator]` out of a config.
pub(crate) fn read(document: &mut Document<'_>) -> Result<Option<GeneratorOptions>, Wrong> {
    let key = "generator";
    let table = document.take_stage(key)?;
    table.map(|table| generator(document, key, table, &GENERATORS)).transpose()
}

fn generator<'t>(
    document: &mut Document<'t>,
    key: &str,
    mut table: Table<'t>,
    kinds: &[&str],
) -> Result<GeneratorOptions, Wrong> {
    let kind = document.take_kind(key, &mut table, kinds)?;
    let options = match kind.as_str() {
        "fid" => document.read(key, table, &[]).map(GeneratorOptions::Fid),
        "rag-sequence" => document.read(key, table, &[]).map(GeneratorOptions::RagSequence),
        "rag-token" => document.read(key, table, &[]).map(GeneratorOptions::RagToken),
        "memnet" => document.read(key, table, &[]).map(GeneratorOptions::MemNet),
        "verifier" => document.read(key, table, &[]).map(GeneratorOptions::Verifier),
        "extractive" => document.read(key, table, &[]).map(GeneratorOptions::Extractive),
        "causal" => document.read(key, table, &[]).map(GeneratorOptions::Causal),
        "title" => document.read(key, table, &[]).map(GeneratorOptions::Title),
        "by-dataset" => return by_dataset(document, key, table),
        _ => document.read(key, table, &[]).map(GeneratorOptions::Seq2Seq),
    };
    options.ok_or(Wrong)
}

fn by_dataset<'t>(
    document: &mut Document<'t>,
    key: &str,
    mut table: Table<'t>,
) -> Result<GeneratorOptions, Wrong> {
    // A generator by dataset in another one would be the same as one.
    let kinds = &GENERATORS[..GENERATORS.len() - 1];
    let default = document
        .take_table_of(key, "default", &mut table)
        .and_then(|inner| generator(document, &format!("{key}.default"), inner, kinds));
    let mut datasets = BTreeMap::new();
    let mut wrong = false;
    let mut tables = document.take_table_of(key, "datasets", &mut table)?;
    let key_of = format!("{key}.datasets");
    for dataset in Dataset::ALL {
        if tables.get_ref().contains_key(dataset.stem()) {
            let read = document
                .take_table_of(&key_of, dataset.stem(), &mut tables)
                .and_then(|inner| generator(document, &format!("{key_of}.{}", dataset.stem()), inner, kinds));
            match read {
                Ok(options) => drop(datasets.insert(dataset, options)),
                Err(Wrong) => wrong = true,
            }
        }
    }
    let names = Dataset::ALL.map(Dataset::stem);
    let rest: Option<Nothing> = document.read(&key_of, tables, &names);
    let outer: Option<Nothing> = document.read(key, table, &["default", "datasets"]);
    match (rest, outer, default) {
        (Some(_), Some(_), Ok(default)) if !wrong => {
            Ok(GeneratorOptions::ByDataset(ByDatasetOptions { default: Box::new(default), datasets }))
        }
        _ => Err(Wrong),
    }
}

/// Finds what is wrong with a generator's options that can be read. `trained`: the model is yet to be made.
pub(crate) fn check(
    options: &GeneratorOptions,
    trained: bool,
    depth: Option<usize>,
    document: &mut Document<'_>,
) {
    check_own(options, "generator", document);
    for GeneratorModel { key, folder, device, precision, passages } in options.models("generator") {
        // A GGUF file has its config and its tokenizer in it.
        let in_one_file = find_gguf(folder).is_ok_and(|found| found.is_some_and(|file| file.is_file()));
        if !trained && !in_one_file {
            let key = format!("{key}.model");
            document.check_checkpoint(&key, folder);
            // NSMN's own networks read words.
            let reads_words = || ReleasedNsmnConfig::names(folder).is_ok_and(|is| is);
            if folder.exists() && !Tokenizer::is_in(folder) && !reads_words() {
                document.report_key(&key, format!("no file tokenizer.json in {}", folder.display()));
            }
        }
        if let Err(error) = device.check(precision) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        if let Some(depth) = depth.filter(|depth| passages > *depth) {
            let message = format!("expected at most `evidence.depth` ({depth}), found {passages}");
            document.report_key(&format!("{key}.prompt.passages"), message);
        }
    }
}

/// Finds what is wrong with what only one kind of generator has: examples that it is shown, the size of its memory.
fn check_own(options: &GeneratorOptions, key: &str, document: &mut Document<'_>) {
    match options {
        GeneratorOptions::Causal(CausalOptions { demonstrations, chat, model, .. }) => {
            for file in demonstrations.iter().flat_map(|shown| &shown.files).filter(|file| !file.is_file()) {
                let message = format!("no file {}", file.display());
                document.report_key(&format!("{key}.demonstrations.files"), message);
            }
            if *chat == Chat::Template && model.exists() {
                let message = match ChatTemplate::open(model) {
                    Ok(Some(_)) => return,
                    Ok(None) => format!("{} has no chat template", model.display()),
                    Err(error) => error.to_string(),
                };
                document.report_key(&format!("{key}.chat"), message);
            }
        }
        GeneratorOptions::ByDataset(options) => {
            check_own(&options.default, &format!("{key}.default"), document);
            for (dataset, generator) in &options.datasets {
                check_own(generator, &format!("{key}.datasets.{}", dataset.stem()), document);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::{config::load::Config, workflows::answer::options::Options};

    fn config(folder: &Path, stage: &str) -> PathBuf {
        let path = folder.join("c.toml");
        let general = "workflow = \"answer\"\nname = \"r\"\n[tasks]\nfiles = [\"none.jsonl\"]\n";
        std::fs::write(&path, format!("{general}{stage}")).unwrap();
        path
    }

    #[test]
    fn every_kind_of_generator_is_read_as_it_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, keys) in [
            ("seq2seq", "batch-size = 3"),
            ("fid", "batch-tokens = 900"),
            ("rag-sequence", "decoding = \"fast\""),
            ("memnet", "evidence = \"passage\""),
            ("rag-token", "generation.temperature = 0.7\ngeneration.do-sample = true"),
        ] {
            let stage =
                format!("[generator]\nkind = \"{kind}\"\nmodel = \"m\"\nprompt.passages = 7\n{keys}\n");
            let options = Options::parse(&config(folder.path(), &stage), &[]).unwrap();
            let generator = options.generator.clone().unwrap();
            let models = generator.models("generator");
            assert_eq!((models.len(), models[0].folder, models[0].passages), (1, Path::new("m"), 7));
            let shown = folder.path().join("shown.toml");
            std::fs::write(&shown, options.to_toml().unwrap()).unwrap();
            assert_eq!(Options::parse(&shown, &[]).unwrap().generator, Some(generator), "{kind}");
        }
    }

    #[test]
    fn mistakes_in_a_generators_table_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let check = |stage: &str| {
            let found = Options::mistakes(&config(folder.path(), stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let table =
            |kind: &str, keys: &str| format!("[generator]\nkind = \"{kind}\"\nmodel = \"m\"\n{keys}\n");
        assert!(check(&table("rag-tokens", "")).contains("did you mean `rag-token`?"));
        assert!(
            check(&table("rag-sequence", "decoding = \"slow\"")).contains("expected `thorough` or `fast`")
        );
        assert!(check(&table("rag-token", "decoding = \"fast\"")).contains("`generator.decoding`"));
        assert!(check(&table("fid", "generation.top-pp = 0.5")).contains("did you mean `top-p`?"));
        assert!(check(&table("fid", "")).contains("`generator.model`: no folder m"));
        assert!(
            check(&table("memnet", "pieces = 0"))
                .contains("`generator.pieces`: expected at least 1, found 0")
        );
        let train = "[train]\nmodel = \"t\"\n[train.examples]\nfiles = [\"none.jsonl\"]\n";
        let found = check(&table("causal", train));
        assert!(
            found.contains("`generator.kind`: expected `seq2seq`, `fid`, `memnet`, `rag-token`,"),
            "{found}"
        );
    }

    #[test]
    fn a_chat_template_that_is_asked_for_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        let check = |model: &Path, chat: &str| {
            let stage = format!("[generator]\nkind = \"causal\"\nmodel = {model:?}\nchat = \"{chat}\"\n");
            let found = Options::mistakes(&config(folder.path(), &stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(check(&model, "template").contains("`generator.chat`"), "{}", check(&model, "template"));
        assert!(check(&model, "template").contains("has no chat template"));
        for chat in ["auto", "none", "chatml"] {
            assert!(!check(&model, chat).contains("`generator.chat`"), "{chat}");
        }
        assert!(check(&model, "jinja").contains("expected one of `auto`, `none`, `template`, `chatml`"));
    }

    const BY_DATASET: &str = r#"
[generator]
kind = "by-dataset"
[generator.default]
kind = "seq2seq"
model = "m"
prompt.passages = 2
[generator.datasets.fever]
kind = "fid"
model = "f"
prompt.passages = 9
"#;

    #[test]
    fn datasets_can_have_a_generator_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::parse(&config(folder.path(), BY_DATASET), &[]).unwrap();
        let generator = options.generator.clone().unwrap();
        let of: Vec<(String, &Path, usize)> =
            generator.models("generator").into_iter().map(|it| (it.key, it.folder, it.passages)).collect();
        let expected = [
            ("generator.default".to_owned(), Path::new("m"), 2),
            ("generator.datasets.fever".to_owned(), Path::new("f"), 9),
        ];
        assert_eq!(of, expected);
        let shown = folder.path().join("shown.toml");
        std::fs::write(&shown, options.to_toml().unwrap()).unwrap();
        assert_eq!(Options::parse(&shown, &[]).unwrap().generator, Some(generator));
        // An override reaches into the nested table.
        let over = ["generator.datasets.fever.prompt.passages=4".to_owned()];
        let options = Options::parse(&config(folder.path(), BY_DATASET), &over).unwrap();
        assert_eq!(options.generator.unwrap().models("generator")[1].passages, 4);
    }

    #[test]
    fn a_wrong_dataset_and_a_wrong_nested_key_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let found = |stage: &str| {
            let found = Options::mistakes(&config(folder.path(), stage), &[]).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let wrong = found(&BY_DATASET.replace("datasets.fever", "datasets.fevr"));
        assert!(
            wrong.contains("`generator.datasets.fevr`") && wrong.contains("did you mean `fever`?"),
            "{wrong}"
        );
        let wrong = found(&BY_DATASET.replace("model = \"f\"", "modle = \"f\""));
        assert!(wrong.contains("`generator.datasets.fever.modle`"), "{wrong}");
        let wrong = found(&BY_DATASET.replace("kind = \"fid\"", "kind = \"by-dataset\""));
        assert!(wrong.contains("`generator.datasets.fever.kind`: unknown kind `by-dataset`"), "{wrong}");
        assert!(found(BY_DATASET).contains("no folder f"));
    }
}
