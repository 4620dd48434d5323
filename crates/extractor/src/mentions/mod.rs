//! Mention finders: by rules, by a tagger, and with a filter by form.

mod options;

use rayon::prelude::*;

pub use options::MentionsOptions;

use crate::{Document, Mention, MentionFinder, MentionForm, Result, proposals};

/// Rule-based mentions from [`proposals`]: names, dates and pronouns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleMentions;

impl MentionFinder for RuleMentions {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        Ok(documents.par_iter().map(proposals).collect())
    }
}

/// Another finder's mentions, filtered by form.
pub struct FilteredMentions {
    /// The wrapped finder.
    pub finder: Box<dyn MentionFinder>,
    /// The forms to keep.
    pub forms: Vec<MentionForm>,
}

impl MentionFinder for FilteredMentions {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        let mut found = self.finder.mentions(documents)?;
        found.iter_mut().for_each(|own| own.retain(|mention| self.forms.contains(&mention.form)));
        Ok(found)
    }
}
