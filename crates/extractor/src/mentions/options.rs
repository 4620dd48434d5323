//! The options of mention finders. The documentation of this type is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;

use super::{FilteredMentions, RuleMentions};
use crate::{
    MentionFinder, MentionForm, Result,
    model_check::check_tagger,
    tagger::{Computing, Tagger},
};

/// `[mentions]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MentionsOptions {
    /// The folder of a trained tagger of persons, organisations, places and dates. Without it, capitalized
    /// words are names without a type.
    pub tagger: Option<PathBuf>,
    /// The folder of a trained tagger. Coreference uses its types for names that are detected by capitals.
    /// The relation classifier does not.
    pub types: Option<PathBuf>,
    /// The forms of mentions to keep: `name` (including dates), `pronoun`, `nominal`.
    pub mention_forms: Vec<MentionForm>,
}

impl Default for MentionsOptions {
    fn default() -> Self {
        Self {
            tagger: None,
            types: None,
            mention_forms: vec![MentionForm::Name, MentionForm::Pronoun, MentionForm::Nominal],
        }
    }
}

impl MentionsOptions {
    /// Reports wrong values and missing folders, without loading a model. `key` is the path of the table.
    pub fn check(&self, key: &str, has_coreference: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        for (name, folder) in [("tagger", &self.tagger), ("types", &self.types)] {
            if let Some(folder) = folder {
                check_tagger(&key(name), folder, document);
            }
        }
        if self.types.is_some() && (self.tagger.is_some() || !has_coreference) {
            document.report_key(&key("types"), "expected `coreference`, and no `mentions.tagger`, with it");
        }
        if self.mention_forms.is_empty() {
            document
                .report_key(&key("mention-forms"), "expected at least one of `name`, `pronoun`, `nominal`");
        }
    }

    /// Opens the mention finder.
    ///
    /// # Errors
    /// Errors of the tagger's files.
    pub fn open(&self) -> Result<Box<dyn MentionFinder>> {
        let finder: Box<dyn MentionFinder> = match &self.tagger {
            Some(folder) => Box::new(Tagger::open(folder, Computing::default())?),
            None => Box::new(RuleMentions),
        };
        Ok(Box::new(FilteredMentions { finder, forms: self.mention_forms.clone() }))
    }
}
