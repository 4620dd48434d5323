//! The history of all steps, as JSON lines.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};

/// One line of `history.jsonl`. It holds no times, so that equal trainings write equal files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HistoryLine {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) loss: f64,
    pub(super) learning_rate: f64,
    pub(super) gradient_norm: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) score: Option<f64>,
}

/// The file's name.
pub(super) const FILE: &str = "history.jsonl";

/// The open file.
pub(super) struct History {
    file: fs::File,
    path: PathBuf,
}

impl History {
    /// Opens it for appending, without the lines of steps after `step`: a resumed training makes those again.
    pub(super) fn open(path: PathBuf, step: u64) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
        let old = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io(&path, "read")(error)),
        };
        // A line that a kill cut short is not JSON; it belongs to a step after the checkpoint and goes with them.
        let kept: String = old
            .lines()
            .filter(|line| serde_json::from_str::<HistoryLine>(line).is_ok_and(|line| line.step <= step))
            .flat_map(|line| [line, "\n"])
            .collect();
        // One name for all, so that the next call replaces what a kill left.
        let unfinished = path.with_extension("unfinished");
        let mut file = fs::File::create(&unfinished).map_err(Error::io(&unfinished, "create"))?;
        file.write_all(kept.as_bytes()).map_err(Error::io(&unfinished, "write"))?;
        file.sync_all().map_err(Error::io(&unfinished, "write"))?;
        fs::rename(&unfinished, &path).map_err(Error::io(&path, "rename"))?;
        sporran_checkpoint::sync(folder)?;
        Ok(Self { file, path })
    }

    pub(super) fn write(&mut self, line: &HistoryLine) -> Result<()> {
        let mut json = serde_json::to_vec(line).map_err(|source| Error::Json {
            path: self.path.clone(),
            field: ".".into(),
            source,
        })?;
        json.push(b'\n');
        self.file.write_all(&json).map_err(Error::io(&self.path, "write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64) -> HistoryLine {
        HistoryLine { step, epoch: 0, loss: 1.5, learning_rate: 0.1, gradient_norm: 2.0, score: None }
    }

    #[test]
    fn lines_after_a_step_and_a_line_cut_short_are_dropped_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut history = History::open(path.clone(), 0).unwrap();
        for step in 1..=3 {
            history.write(&line(step)).unwrap();
        }
        history.file.write_all(b"{\"step\": 4, \"epo").unwrap();
        History::open(path.clone(), 2).unwrap().write(&line(3)).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let steps: Vec<u64> =
            text.lines().map(|text| serde_json::from_str::<HistoryLine>(text).unwrap().step).collect();
        assert_eq!(steps, [1, 2, 3]);
    }
}
