//! `--shard`.

use std::{env, str::FromStr};

use clap::Args;
use sporran_kilt::folder::Shard;
use sporran_pipeline::ShardReport;

use crate::{
    error::{Error, Result},
    outcome::Outcome,
};

/// The option of verbs that have shards.
#[derive(Args)]
pub(crate) struct ShardArgs {
    /// Do one of N equal parts of the work, from 0/N to N-1/N, in a separate folder; `sporran merge` merges all parts.
    ///
    /// `auto` takes the part from the environment: SLURM_ARRAY_TASK_ID, _MIN, _STEP and _COUNT of a Slurm array, or RANK and
    /// WORLD_SIZE. Without this option these variables have no effect.
    #[arg(long, value_name = "I/N")]
    shard: Option<Asked>,
}

impl ShardArgs {
    /// The shard that is asked for.
    pub(crate) fn get(&self) -> Result<Option<Shard>> {
        match self.shard {
            None => Ok(None),
            Some(Asked::Shard(shard)) => Ok(Some(shard)),
            Some(Asked::Auto) => of_environment(|name| env::var(name).ok()).map(Some),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Shard(Shard),
    Auto,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Shard) }
    }
}

/// The shard of a process that a launcher started.
fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Shard> {
    let number = |name: &str| -> Result<Option<u32>> {
        let Some(text) = variable(name) else { return Ok(None) };
        let wrong = |_| Error::Usage(format!("--shard auto: {name}: expected a number, found `{text}`"));
        text.trim().parse().map(Some).map_err(wrong)
    };
    let pair = |index: &str, of: &str| -> Result<Option<(u32, u32)>> {
        match (number(index)?, number(of)?) {
            (Some(index), Some(of)) => Ok(Some((index, of))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::Usage(format!("--shard auto: {index} is set and {of} is not"))),
            (None, Some(_)) => Err(Error::Usage(format!("--shard auto: {of} is set and {index} is not"))),
        }
    };
    let array = pair("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT")?;
    let rank = pair("RANK", "WORLD_SIZE")?;
    let (index, of) = match (array, rank) {
        (Some(_), Some(_)) => {
            let message =
                "--shard auto: both a Slurm array and RANK are set; name the shard, such as `--shard 0/4`";
            return Err(Error::Usage(message.into()));
        }
        (Some((id, of)), None) => {
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let last = number("SLURM_ARRAY_TASK_MAX")?;
            // A list such as `0,3,7` has no first number and step that give all its numbers.
            let place = id.checked_sub(first).filter(|distance| distance.is_multiple_of(step));
            let count =
                |last: u32| last.checked_sub(first).map(|distance| (distance / step).saturating_add(1));
            let is_range = last.is_none_or(|last| count(last) == Some(of));
            let Some(distance) = place.filter(|_| is_range) else {
                let last = last.map_or(String::new(), |last| format!(" to {last}"));
                return Err(Error::Usage(format!(
                    "--shard auto: expected a Slurm array of consecutive steps, such as `--array=0-15`, found task {id} of {of} \
                     tasks from {first}{last} by {step}; name the shard, such as `--shard 0/4`"
                )));
            };
            (distance / step, of)
        }
        (None, Some(rank)) => rank,
        (None, None) => {
            let message = "--shard auto: expected SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT, or RANK and WORLD_SIZE, \
                           found none of them";
            return Err(Error::Usage(message.into()));
        }
    };
    Shard::new(index, of)
        .ok_or_else(|| Error::Usage(format!("--shard auto: there is no shard {index} of {of}")))
}

/// Prints the result of a shard.
pub(crate) fn done(report: &ShardReport) -> Result<Outcome> {
    Outcome::of(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<String, String> {
        let of = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        of_environment(of).map(|shard| shard.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn launchers_say_which_shard_it_is() {
        assert_eq!(found(&[("RANK", "1"), ("WORLD_SIZE", "4")]).unwrap(), "1/4");
        let array = [("SLURM_ARRAY_TASK_ID", "5"), ("SLURM_ARRAY_TASK_COUNT", "3")];
        assert_eq!(found(&[("SLURM_ARRAY_TASK_ID", "2"), array[1]]).unwrap(), "2/3");
        let more = [("SLURM_ARRAY_TASK_MIN", "1"), ("SLURM_ARRAY_TASK_STEP", "2")];
        assert_eq!(found(&[array[0], array[1], more[0], more[1]]).unwrap(), "2/3");
        let last = ("SLURM_ARRAY_TASK_MAX", "5");
        assert_eq!(found(&[array[0], array[1], more[0], more[1], last]).unwrap(), "2/3");
    }

    #[test]
    fn an_environment_without_one_shard_is_refused() {
        for (variables, expected) in [
            (&[][..], "expected SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT, or RANK and WORLD_SIZE"),
            (&[("RANK", "0")], "RANK is set and WORLD_SIZE is not"),
            (&[("RANK", "x"), ("WORLD_SIZE", "2")], "RANK: expected a number, found `x`"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "there is no shard 2 of 2"),
            (
                &[
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    ("SLURM_ARRAY_TASK_ID", "0"),
                    ("SLURM_ARRAY_TASK_COUNT", "2"),
                ],
                "both a Slurm array and RANK are set",
            ),
            // `--array=0,3,7`, a number between two steps, and one below the first.
            (
                &[
                    ("SLURM_ARRAY_TASK_ID", "0"),
                    ("SLURM_ARRAY_TASK_COUNT", "3"),
                    ("SLURM_ARRAY_TASK_MIN", "0"),
                    ("SLURM_ARRAY_TASK_MAX", "7"),
                ],
                "expected a Slurm array of consecutive steps, such as `--array=0-15`, found task 0 of 3 tasks from 0 to 7 by 1",
            ),
            (
                &[
                    ("SLURM_ARRAY_TASK_ID", "3"),
                    ("SLURM_ARRAY_TASK_COUNT", "3"),
                    ("SLURM_ARRAY_TASK_STEP", "2"),
                ],
                "found task 3 of 3 tasks from 0 by 2",
            ),
            (
                &[
                    ("SLURM_ARRAY_TASK_ID", "1"),
                    ("SLURM_ARRAY_TASK_COUNT", "3"),
                    ("SLURM_ARRAY_TASK_MIN", "2"),
                ],
                "found task 1 of 3 tasks from 2 by 1",
            ),
        ] {
            let message = found(variables).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
