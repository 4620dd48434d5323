//! Character sets by Unicode general categories.

use regex_syntax::hir::HirKind;

/// One bit for each Unicode scalar value (136 KiB), so that a look-up is one load whatever the script.
pub(crate) struct CharSet(Vec<u64>);

impl CharSet {
    /// The set of a regular expression's bracketed class, such as `[\p{L}\p{N}_]`.
    ///
    /// # Panics
    /// On a pattern that is not one character class; patterns are constants of this crate.
    pub(crate) fn of_class(class: &'static str) -> Self {
        let hir = regex_syntax::parse(class).unwrap_or_else(|error| panic!("{class}: {error}"));
        let HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind() else {
            panic!("{class}: not a class of characters");
        };
        let mut bits = vec![0; (char::MAX as usize + 1) / 64];
        for range in class.ranges() {
            for code in range.start() as usize..=range.end() as usize {
                bits[code / 64] |= 1 << (code % 64);
            }
        }
        Self(bits)
    }

    /// Whether the set holds a character.
    pub(crate) fn contains(&self, c: char) -> bool {
        self.0[c as usize / 64] >> (c as usize % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_categories_and_nothing_else() {
        let words = CharSet::of_class(r"[\p{L}\p{N}_]");
        for c in ['a', 'Z', '9', '_', 'é', 'ß', 'Ж', '中', '½', '\u{10FFFD}'] {
            // Private use (the last) is no letter.
            assert_eq!(words.contains(c), c != '\u{10FFFD}', "{c:?}");
        }
        // A combining mark and a circled letter are alphabetic to Rust, but neither letters nor numbers.
        for c in ['\u{0301}', 'ⓐ', ' ', '-', '\'', '\u{200B}'] {
            assert!(!words.contains(c), "{c:?}");
        }
    }
}
