//! Patterns of texts.

use globset::{GlobBuilder, GlobMatcher};

/// A glob. `*` also matches slashes, so that `handbook/*` has the files of all folders below.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    pattern: String,
    matcher: GlobMatcher,
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Glob {
    /// # Errors
    /// A message for a pattern that is no glob.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(pattern).literal_separator(false).build();
        let matcher = glob.map_err(|error| error.kind().to_string())?.compile_matcher();
        Ok(Self { pattern: pattern.to_owned(), matcher })
    }

    /// A pattern in which only `*` is special.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn of_stars(pattern: &str) -> Result<Self, String> {
        let parts: Vec<String> = pattern.split('*').map(globset::escape).collect();
        Ok(Self { pattern: pattern.to_owned(), ..Self::new(&parts.join("*"))? })
    }

    /// Whether a text has characters that are special in globs.
    pub(super) fn is_glob(text: &str) -> bool {
        text.contains(['*', '?', '[', '{'])
    }

    /// Whether a text is the pattern itself or matches it.
    pub(super) fn matches(&self, text: &str) -> bool {
        text == self.pattern || self.matcher.is_match(text)
    }
}
