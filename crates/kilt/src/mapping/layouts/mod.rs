//! The layouts of datasets whose evidence is mapped: one file each.

mod aida;
mod eli5;
mod evidence;
mod fever;
mod hotpotqa;
mod hyperlinks;
mod nq;
mod popqa;
#[cfg(test)]
mod testing;
mod trex;
mod triviaqa;
mod wned;
mod wow;
mod zsre;

use std::{fmt, str::FromStr};

use super::{
    options::LayoutOptions,
    source::{Source, Take},
};
use crate::{Error, Result};

/// The layout of a dataset.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Its name.
    pub(super) name: &'static str,
    /// Its files and their rules, in one sentence.
    about: &'static str,
    /// The names of the options that it has.
    options: &'static [&'static str],
    /// Reads the records of a dataset.
    pub(super) read: fn(&Source<'_>, &mut Take<'_>) -> Result<()>,
}

/// All layouts.
const LAYOUTS: &[Layout] = &[
    fever::LAYOUT,
    aida::LAYOUT,
    wned::LAYOUT,
    trex::LAYOUT,
    zsre::LAYOUT,
    nq::LAYOUT,
    hotpotqa::LAYOUT,
    triviaqa::LAYOUT,
    eli5::LAYOUT,
    wow::LAYOUT,
    hyperlinks::LAYOUT,
    popqa::LAYOUT,
    evidence::LAYOUT,
];

impl Layout {
    /// All layouts.
    pub fn all() -> &'static [Self] {
        LAYOUTS
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The files of the layout, in one sentence.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Checks that every option that is set belongs to the layout.
    ///
    /// # Errors
    /// [`Error::Argument`] for the first option of other layouts.
    pub(super) fn check(&self, options: &LayoutOptions) -> Result<()> {
        let Some(foreign) = options.names_of_set().into_iter().find(|name| !self.options.contains(name))
        else {
            return Ok(());
        };
        let having = LAYOUTS.iter().filter(|layout| layout.options.contains(&foreign));
        let having: Vec<String> = having.map(|layout| format!("`{}`", layout.name)).collect();
        Err(Error::Argument(format!(
            "the layout `{}` has no option `{foreign}`, which belongs to {}",
            self.name,
            having.join(", ")
        )))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layout").field(&self.name).finish()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        LAYOUTS.iter().find(|layout| layout.name == text).copied().ok_or_else(|| {
            let names: Vec<String> = LAYOUTS.iter().map(|layout| format!("`{}`", layout.name)).collect();
            format!("expected one of {}, found `{text}`", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_named_once_and_found_by_its_name() {
        for layout in LAYOUTS {
            assert_eq!(LAYOUTS.iter().filter(|other| other.name == layout.name).count(), 1);
            assert_eq!(layout.name.parse::<Layout>().unwrap().about, layout.about);
        }
        let message = "none".parse::<Layout>().unwrap_err();
        assert!(message.contains("`fever`") && message.contains("found `none`"), "{message}");
    }

    #[test]
    fn an_option_of_another_layout_is_refused() {
        let options = LayoutOptions { seed: Some(1), topics: Some("t".into()), ..LayoutOptions::default() };
        let message = zsre::LAYOUT.check(&options).unwrap_err().to_string();
        assert_eq!(message, "the layout `zsre` has no option `topics`, which belongs to `wow`");
        let options = LayoutOptions { seed: Some(1), ..LayoutOptions::default() };
        assert!(zsre::LAYOUT.check(&options).is_ok() && fever::LAYOUT.check(&options).is_err());
        // Every option belongs to a layout.
        let all = LayoutOptions {
            seed: Some(1),
            texts: vec!["a".into()],
            names: vec!["a".into()],
            topics: Some("a".into()),
            max_sentences: Some(1),
            min_facts: Some(1),
            held_out: Some(1),
            share: Some(0.5),
        };
        let names = all.names_of_set();
        assert_eq!(names.len(), 8);
        assert!(names.iter().all(|name| LAYOUTS.iter().any(|layout| layout.options.contains(name))));
    }
}
