//! A weighted mean of several models' logits.

mod train;

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::{DeviceName, Precision};

pub use train::train_averaged;

use super::{Properties, RelationInput, RelationModel, Scores, Thresholds, open};
use crate::error::{Error, Result};

/// The file of a model's folder that lists the parts of an average.
pub const AVERAGED: &str = "averaged.json";

/// The contents of that file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AveragedOptions {
    /// The version of this file; 1.
    pub version: u32,
    /// The parts.
    pub parts: Vec<AveragedPart>,
    /// A property is predicted from this probability on.
    pub thresholds: Thresholds,
}

/// A part of an average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AveragedPart {
    /// Its folder, relative to the average's.
    pub folder: String,
    /// The weight of its logits.
    pub weight: f32,
}

impl AveragedOptions {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Writes the file into a folder.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self).map_err(|error| Error::Model {
            what: folder.join(AVERAGED).display().to_string(),
            expected: "numbers".into(),
            found: error.to_string(),
        })?;
        json.push(b'\n');
        Ok(jsonl::write(folder.join(AVERAGED), &json)?)
    }
}

/// Models with the same properties whose logits are averaged.
pub struct Averaged {
    parts: Vec<(Box<dyn RelationModel>, f32)>,
    thresholds: Thresholds,
}

impl Averaged {
    /// Loads a folder and those of its parts.
    ///
    /// # Errors
    /// A missing or wrong file; [`Error::Model`] if the parts have different properties.
    pub fn load(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let path = folder.join(AVERAGED);
        let AveragedOptions { version, parts, thresholds } = jsonl::read_json(&path)?;
        let wrong =
            |expected: String, found| Err(Error::Model { what: path.display().to_string(), expected, found });
        if version != AveragedOptions::VERSION {
            return wrong(format!("version {}", AveragedOptions::VERSION), version.to_string());
        }
        let parts = parts
            .into_iter()
            .map(|part| Ok((open(&folder.join(&part.folder), device, precision)?, part.weight)))
            .collect::<Result<Vec<_>>>()?;
        let Some((first, _)) = parts.first() else {
            return wrong("at least one part".into(), "none".into());
        };
        let labels = first.properties().len();
        if parts.iter().any(|(part, _)| part.properties() != first.properties()) {
            return wrong("parts of the same properties".into(), "others".into());
        }
        if thresholds.all().len() != labels {
            return wrong(format!("{labels} thresholds, one a property"), thresholds.all().len().to_string());
        }
        Ok(Self { parts, thresholds })
    }
}

impl RelationModel for Averaged {
    fn properties(&self) -> &Properties {
        self.parts[0].0.properties()
    }

    fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>> {
        let mut scores: Vec<Vec<(Scores, f32)>> = vec![Vec::new(); inputs.len()];
        for (part, weight) in &self.parts {
            for (scores, own) in scores.iter_mut().zip(part.score(inputs)?) {
                scores.push((own, *weight));
            }
        }
        Ok(scores.iter().map(|parts| Scores::averaged(parts)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::linear::tests::trained, *};

    #[test]
    fn parts_are_weighed_by_their_logits_and_must_fit() {
        let folder = tempfile::tempdir().unwrap();
        let (first, documents) = trained(1);
        first.save(&folder.path().join("a")).unwrap();
        trained(8).0.save(&folder.path().join("b")).unwrap();
        let load = || Averaged::load(folder.path(), DeviceName::Cpu, Precision::F32);
        let part = |folder: &str, weight| AveragedPart { folder: folder.into(), weight };
        let parts = vec![part("a", 0.25), part("b", 0.75)];
        let mut options = AveragedOptions { version: 1, parts, thresholds: Thresholds::even(1, 0.5) };
        options.save(folder.path()).unwrap();
        let whole = open(folder.path(), DeviceName::Cpu, Precision::F32).unwrap();
        let candidates = &documents[20].candidates[0];
        let inputs: [RelationInput<'_>; 1] = [(&documents[20].document, &documents[20].mentions, candidates)];
        let scores = whole.score(&inputs).unwrap();
        let alone = ["a", "b"].map(|name| {
            open(&folder.path().join(name), DeviceName::Cpu, Precision::F32).unwrap().score(&inputs).unwrap()
        });
        let logit = |p: f32| (p / (1.0 - p)).ln();
        let pairs = candidates.pairs.len();
        assert!(pairs > 0);
        for pair in 0..pairs {
            let [a, b] = [&alone[0][0], &alone[1][0]].map(|scores| logit(scores.of(pair, 0)));
            let expected = 0.25 * a + 0.75 * b;
            let found = logit(scores[0].of(pair, 0));
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
        options.thresholds = Thresholds::even(2, 0.5);
        options.save(folder.path()).unwrap();
        assert!(load().err().unwrap().to_string().contains("thresholds, one a property"));
        options.parts.clear();
        options.save(folder.path()).unwrap();
        assert!(load().err().unwrap().to_string().contains("at least one part"));
    }
}
