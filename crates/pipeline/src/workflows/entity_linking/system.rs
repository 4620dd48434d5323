//! An opened config that finds and links the mentions of texts, for servers and other programs. It needs no run folder.

use sporran_extractor::{Coreference, Linker, MentionFinder};

use super::LinkingOptions;
use crate::{
    Result,
    workflows::population::{TextMention, linked_mentions},
};

/// The models and names of a config, ready to link mentions.
pub struct LinkSystem {
    finder: Box<dyn MentionFinder>,
    coreference: Option<Box<dyn Coreference>>,
    linker: Linker,
}

impl LinkSystem {
    /// Loads the models and names of a config. `[linking]` and `[source]` are not read: mentions are those that `[mentions]`
    /// finds.
    ///
    /// # Errors
    /// Errors of the models and of the tables of names.
    pub fn open(options: &LinkingOptions) -> Result<Self> {
        Ok(Self {
            finder: options.mentions.open()?,
            coreference: options.coreference.open(options.mentions.types.as_deref())?,
            linker: options.linker.open()?,
        })
    }

    /// The mentions of texts with their links, by their start. Result `i` is that of `texts[i]`.
    ///
    /// # Errors
    /// Errors of a model.
    pub fn mentions(&self, texts: &[&str]) -> Result<Vec<Vec<TextMention>>> {
        linked_mentions(texts, self.finder.as_ref(), self.coreference.as_deref(), Some(&self.linker))
    }
}
