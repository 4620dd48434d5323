//! The check that shards are those of today's options and models.

use sporran_kilt::{Error as FileError, ShardFault, folder::ShardSet};

use crate::{
    Result,
    run_dir::{inputs::Inputs, key::StepKey},
};

/// The error of shards of something that has changed since: `what` with its article.
pub(crate) fn stale(set: &ShardSet, what: &str) -> FileError {
    let message = format!("{what} has changed since the shards read it; make the shards again");
    FileError::shard(set.first().0, ShardFault::Stale, message)
}

/// Hashes the models and the other files that options name, and compares the options with those of the shards. `options` has
/// the paths.
///
/// # Errors
/// [`FileError::Shard`] with the first option that differs; those of [`StepKey::read`].
pub(crate) fn check_options(set: &ShardSet, options: StepKey, inputs: &mut Inputs) -> Result<()> {
    let (step, named) = ("merge", options.clone().into_values());
    let now = StepKey::of_values(step, options.read(inputs)?.into_values());
    let before = StepKey::of_values(step, set.first().1.config.clone());
    let Some([option, ..]) = now.difference(&before) else { return Ok(()) };
    let value = named.get(option).map_or_else(String::new, |value| format!(" ({value})"));
    Err(stale(set, &format!("`{option}`{value}")).into())
}

/// The error of a task file or an input file: the first of the hashed files that the shards read with another hash.
pub(crate) fn stale_file(set: &ShardSet, inputs: &Inputs, input: &std::path::Path) -> FileError {
    let known = &set.first().1.inputs;
    let changed =
        inputs.hashes().find(|(path, hash)| known.get(&file_key(path)).is_none_or(|old| old != hash));
    match changed {
        Some((path, _)) => stale(set, &path.display().to_string()),
        None => {
            let message = format!(
                "the shards of {} are of another version of the program; make the shards again",
                input.display()
            );
            FileError::shard(set.first().0, ShardFault::Stale, message)
        }
    }
}

/// The key of a file in a shard's manifest.
pub(crate) fn file_key(path: &std::path::Path) -> String {
    format!("file {}", path.display())
}
