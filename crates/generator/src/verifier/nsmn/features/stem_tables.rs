//! The tables of the English stemmer.

pub(super) const EXCEPTIONS: [(&str, &str); 18] = [
    ("andes", "andes"),
    ("atlas", "atlas"),
    ("bias", "bias"),
    ("cosmos", "cosmos"),
    ("dying", "die"),
    ("early", "earli"),
    ("gently", "gentl"),
    ("howe", "howe"),
    ("idly", "idl"),
    ("lying", "lie"),
    ("news", "news"),
    ("only", "onli"),
    ("singly", "singl"),
    ("skies", "sky"),
    ("skis", "ski"),
    ("sky", "sky"),
    ("tying", "tie"),
    ("ugly", "ugli"),
];

/// Stems of which only the listed endings are cut.
pub(super) const INVARIANT: [(&[&str], &[&str]); 2] = [
    (&["inning", "outing", "canning", "herring", "earring"], &["", "s"]),
    (&["proceed", "exceed", "succeed"], &["", "s", "ed", "ing"]),
];

/// The change of an ending. The first and the last leave more of R2 than [`Change::Become`] if R2 contains only a part of
/// the ending.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// This number of letters is cut.
    Cut(usize),
    /// The ending becomes another.
    Become(&'static str),
    /// The same, and an R2 that holds no whole ending becomes the last letter.
    BecomeInR2(&'static str),
    /// The last letter becomes an `e`.
    LastToE,
}

use Change::{Become, BecomeInR2, Cut, LastToE};

/// The changes of endings within R1. The first matching ending applies.
pub(super) const STEP_2: [(&str, Change); 24] = [
    ("ization", Become("ize")),
    ("ational", BecomeInR2("ate")),
    ("fulness", Cut(4)),
    ("ousness", Become("ous")),
    ("iveness", BecomeInR2("ive")),
    ("tional", Cut(2)),
    ("biliti", Become("ble")),
    ("lessli", Cut(2)),
    ("entli", Cut(2)),
    ("ation", BecomeInR2("ate")),
    ("alism", Become("al")),
    ("aliti", Become("al")),
    ("ousli", Become("ous")),
    ("iviti", BecomeInR2("ive")),
    ("fulli", Cut(2)),
    ("enci", LastToE),
    ("anci", LastToE),
    ("abli", LastToE),
    ("izer", Become("ize")),
    ("ator", BecomeInR2("ate")),
    ("alli", Become("al")),
    ("bli", Become("ble")),
    ("ogi", Cut(1)),
    ("li", Cut(2)),
];

pub(super) const STEP_3: [(&str, Change); 9] = [
    ("ational", Become("ate")),
    ("tional", Cut(2)),
    ("alize", Cut(3)),
    ("icate", Become("ic")),
    ("iciti", Become("ic")),
    ("ative", Cut(5)),
    ("ical", Become("ic")),
    ("ness", Cut(4)),
    ("ful", Cut(3)),
];

/// Endings that are cut if they are within R2. The first matching ending applies.
pub(super) const STEP_4: [&str; 18] = [
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "ion", "al", "er", "ic",
];
