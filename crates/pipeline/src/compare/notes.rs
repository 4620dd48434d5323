//! What a reader of a comparison must know besides its tables: scores without a test and why, files that were changed, means over
//! other data sets.

use std::path::Path;

use sporran_kilt::counted;

use super::{Records, Score, System, Table, Task};
use crate::workflows::answer::report::{Scores, TaskReport};

/// The difference of two means that rounding does not explain.
const CHANGED: f64 = 1e-6;

/// The note on a task file whose predictions or gold have other scores than those in the run's report.
pub(super) fn changed(run: &Path, task: &TaskReport, scores: Scores, records: &Records) -> Option<String> {
    let key = task.metric.key();
    let (name, then) = match scores.answer {
        Some(answer) => (key, answer),
        None => ("Rprec", scores.r_precision),
    };
    let column = records.answers.column(name)?;
    let now = column.iter().sum::<f64>() / column.len().max(1) as f64;
    ((now - then).abs() > CHANGED).then(|| {
        format!(
            "{}: {} was changed after the run: {name} was {:.1} then and is {:.1} now. The tables of all data sets and the headline \
             scores are those of then.",
            run.display(),
            task.file,
            100.0 * then,
            100.0 * now
        )
    })
}

/// The notes on task files that both have and that could not be tested. `readable` says whether the task file and the predictions
/// of a run could be read.
pub(super) fn untested(
    first: &System,
    own: &System,
    readable: impl Fn(&System, &Task) -> bool,
) -> Vec<String> {
    let is_untested = |score: Score| score.difference.is_none();
    let mut notes = Vec::new();
    for task in &own.tasks {
        let Some(known) = first.tasks.iter().find(|known| known.name == task.name) else { continue };
        let headline = [task.answer, task.kilt, task.r_precision].into_iter().flatten();
        if !headline.chain(task.measures.values().copied()).any(is_untested) {
            continue;
        }
        let unread =
            [own, first].into_iter().zip([task, known]).find(|(system, task)| !readable(system, task));
        let why = match unread {
            Some((system, _)) => {
                format!("the task file or the predictions of {} cannot be read", system.run.display())
            }
            None if task.records != known.records => {
                format!(
                    "it has {} there and {} has {}",
                    counted(task.records as u64, "record"),
                    first.name,
                    known.records
                )
            }
            None => "the records are not the same".to_owned(),
        };
        notes.push(format!("{} is not tested on {}: {why}.", own.name, task.name));
    }
    notes
}

/// The note on means over data sets that are not the same in all runs.
pub(super) fn means(systems: &[System]) -> Option<String> {
    let named = |system: &System| {
        let mut names: Vec<String> = system.tasks.iter().map(|task| task.name.clone()).collect();
        names.sort_unstable();
        names
    };
    let first = systems.first().map(&named)?;
    if systems.iter().all(|system| named(system) == first) {
        return None;
    }
    let has_mean = |system: &System| Table::ALL.iter().any(|table| system.mean(*table).is_some());
    let counts: Vec<String> = systems
        .iter()
        .filter(|system| has_mean(system))
        .map(|system| format!("{} has {}", system.name, system.tasks.len()))
        .collect();
    Some(format!("Means are over each system's own data sets: {}.", counts.join(", ")))
}
