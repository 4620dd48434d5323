//! The file of pages that a store is built from.

use std::path::PathBuf;

use sporran_documents::{Collection, Error, Summary, is_single_source, list};
use sporran_kilt::{
    hash_json,
    observe::{Event, Observer, Unit, advance, begin},
};

use crate::{
    Result,
    run_dir::inputs::{Inputs, SourcePages},
    source::options::SourceOptions,
};

/// The pages of a source: a file in KILT's layout as it is, or the collection of its documents, which is built if files are
/// new or have changed.
///
/// # Errors
/// Errors of reading, and those of a source without pages.
pub(crate) fn pages(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    inputs: &mut Inputs,
) -> Result<SourcePages> {
    if let Some(path) = source.path.single().filter(|path| source.columns.is_none() && is_single_source(path))
    {
        return Ok(SourcePages { path: path.clone(), content: inputs.file(path)?, summary: None });
    }
    let options = source.documents();
    let key = hash_json(&(&options, source.strict, &source.indexes));
    if let Some(pages) = inputs.source(&key) {
        return Ok(pages);
    }
    begin(observe, "list files", 0, Unit::Records);
    let listing = list(&options, &mut |files| advance(observe, files));
    observe(Event::End);
    let listing = listing?;
    let mut is_new = false;
    let result =
        Collection::open_or_build(&listing, &options, source.strict, &source.indexes, &mut |progress| {
            if !std::mem::replace(&mut is_new, true) {
                begin(observe, "read documents", progress.of, Unit::Records);
            }
            advance(observe, progress.files);
        });
    if is_new {
        observe(Event::End);
    }
    let named = |summary: Summary| summary.named(|file| source.named(file));
    let collection = result.map_err(|error| match error {
        Error::Nothing { summary, paths } => {
            let paths = if source.shown.is_empty() { paths } else { source.shown.clone() };
            let summary = named(*summary);
            log(&summary.other_lines());
            Error::Nothing { paths, summary: Box::new(summary) }
        }
        Error::Strict { summary } => Error::Strict { summary: Box::new(named(*summary)) },
        error => error,
    })?;
    let summary = named(collection.summary().clone());
    if is_new {
        let problems = summary.lines().into_iter().chain(summary.left_out());
        let text = std::iter::once(format!("read {summary}")).chain(problems);
        observe(Event::Note { text: text.collect::<Vec<_>>().join("\n  ") });
        log(&summary.other_lines());
    } else if summary.is_notable() {
        observe(Event::Note { text: format!("the source has {summary}") });
        log(&summary.all_lines());
    }
    let pages = SourcePages {
        path: collection.pages(),
        content: collection.content().to_owned(),
        summary: Some(summary),
    };
    inputs.keep_source(key, pages.clone());
    Ok(pages)
}

/// Logs the problems of files that no message names, for `--verbose`.
fn log(problems: &[String]) {
    problems.iter().for_each(|problem| tracing::info!("{problem}"));
}

/// The file of pages of a source, in KILT's layout. Reads documents first.
///
/// # Errors
/// As [`assemble_retrieval`](crate::assemble_retrieval) for the source.
pub fn source_pages(source: &SourceOptions, observe: &mut Observer<'_>) -> Result<PathBuf> {
    pages(source, observe, &mut Inputs::default()).map(|pages| pages.path)
}
