//! What the tests of the layouts share.

use std::path::PathBuf;

use crate::{
    Result, Split, jsonl,
    mapping::{
        layouts::Layout,
        options::LayoutOptions,
        own::{Answer, Claim, Own},
        source::Source,
    },
};

/// The records of files with these texts, named `in0`, `in1` and so on.
pub(super) fn read(
    layout: Layout,
    texts: &[&str],
    split: Split,
    options: &LayoutOptions,
) -> Result<Vec<Option<Own>>> {
    let folder = tempfile::tempdir().unwrap();
    let inputs: Vec<PathBuf> = texts
        .iter()
        .enumerate()
        .map(|(number, text)| {
            let path = folder.path().join(format!("in{number}"));
            jsonl::write(&path, text.as_bytes()).unwrap();
            path
        })
        .collect();
    let mut found = Vec::new();
    let mut take = |own| {
        found.push(own);
        Ok(())
    };
    (layout.read)(&Source { inputs: &inputs, split, options }, &mut take)?;
    Ok(found)
}

/// The records of one file in `dev`, without options.
pub(super) fn dev(layout: Layout, text: &str) -> Result<Vec<Option<Own>>> {
    read(layout, &[text], Split::Dev, &LayoutOptions::default())
}

/// An answer with its sets of pieces, each `title|text` or `title`.
pub(super) fn claim(answer: &str, sets: &[&[&str]]) -> Claim {
    use crate::mapping::own::Piece;
    let piece = |text: &&str| match text.split_once('|') {
        Some((title, text)) => Piece::text(title, text),
        None => Piece::page(*text),
    };
    let evidence = sets.iter().map(|set| set.iter().map(piece).collect()).collect();
    Claim { answer: Answer::Text(answer.to_owned()), evidence, ..Claim::default() }
}
