//! Rewrites a model folder as safetensors and `tokenizer.json`, from any supported format.

use std::{fs, path::Path};

use crate::{
    error::{Error, Result},
    json,
    model::StoredModel,
    save::{Raw, appear, write_weights},
    sentence::{INPUT_FILES, MODULE_FILES, module_folders},
};

/// The files that are copied unchanged.
const COMPANIONS: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "config_sentence_transformers.json",
    "README.md",
];

/// Writes a checked model into `to`, which must not exist or be empty: its JSON files as they are, its tokenizer as
/// `tokenizer.json`, and its tensors as `model.safetensors`, under the model's own names and in the types in which they are
/// stored. Tensors that the model does not read go along: a head that is trained on it may start from them, as from BERT's
/// pooler. Of a [part](crate::Part) nothing but its own config and tensors goes along. The folder appears whole or not at all.
///
/// # Errors
/// [`Error::Exists`] where `to` holds something, [`Error::Safetensors`], [`Error::Io`], and those of
/// [`StoredModel::tokenizer`].
pub fn import(model: &StoredModel, to: &Path) -> Result<()> {
    let Some(part) = model.part() else {
        let mut companions: Vec<String> =
            COMPANIONS.into_iter().chain(INPUT_FILES).map(str::to_owned).collect();
        for module in module_folders(model.folder())? {
            companions.extend(MODULE_FILES.map(|file| format!("{module}/{file}")));
        }
        return write(model, &companions, None, to);
    };
    let path = model.folder().join("config.json");
    let text = json::required(&path)?;
    write(model, &[], Some(part.config(&path, &text)?), to)
}

fn write(model: &StoredModel, companions: &[String], config: Option<String>, to: &Path) -> Result<()> {
    appear(to, |folder| {
        for name in companions {
            let from = model.folder().join(name);
            if from.exists() {
                let into = folder.join(name);
                if let Some(parent) = into.parent() {
                    fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
                }
                fs::copy(&from, &into).map_err(Error::io(&from, "copy"))?;
            }
        }
        if let Some(config) = config {
            let path = folder.join("config.json");
            fs::write(&path, config).map_err(Error::io(&path, "write"))?;
        }
        let path = folder.join("tokenizer.json");
        fs::write(&path, model.tokenizer()?.json()).map_err(Error::io(&path, "write"))?;
        weights(model, &folder.join("model.safetensors"))
    })
}

fn weights(model: &StoredModel, path: &Path) -> Result<()> {
    let raw = |(name, dtype, shape, bytes)| (name, Raw { dtype, shape, bytes });
    write_weights(model.all_tensors().map(raw).collect::<Vec<(String, Raw<'_>)>>(), path)
}
