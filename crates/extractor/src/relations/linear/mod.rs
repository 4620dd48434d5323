//! A linear model over hashed features: small and fast.

mod options;
mod train;

use std::path::Path;

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;

pub use options::LinearTraining;

use super::{
    Annotated, Properties, RelationInput, RelationModel, Scores, Thresholds, features::PreparedSentence,
};
use crate::error::{Error, Result};

/// The file of a model's folder that describes it.
pub const LINEAR: &str = "linear.json";
const WEIGHTS: &str = "linear.safetensors";

/// The description in a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LinearFile {
    version: u32,
    buckets: u32,
    properties: Properties,
    thresholds: Thresholds,
    /// The scale of each property's weights, which are from -127 to 127.
    scales: Vec<f32>,
    biases: Vec<f32>,
}

const VERSION: u32 = 1;

/// Logistic regressions of hashed features, one a property.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearRelations {
    file: LinearFile,
    /// (buckets, properties)
    weights: Vec<i8>,
}

/// Annotated documents as features.
pub struct LinearData {
    /// The features of each pair.
    rows: Vec<Vec<u32>>,
    /// For each property the rows with a known target.
    known: Vec<Vec<KnownRow>>,
}

/// The target of a row.
#[derive(Clone, Copy)]
struct KnownRow {
    row: u32,
    document: u32,
    /// The target probability.
    value: f32,
    /// The weight of the row.
    weight: f32,
}

impl LinearData {
    /// The pairs of documents with known targets.
    #[must_use]
    pub fn of<'a>(
        documents: impl IntoIterator<Item = &'a Annotated>,
        properties: usize,
        buckets: u32,
    ) -> Self {
        let mut data = Self { rows: Vec::new(), known: vec![Vec::new(); properties] };
        for (number, annotated) in documents.into_iter().enumerate() {
            for (candidates, targets) in annotated.candidates.iter().zip(&annotated.targets) {
                if targets.is_empty() {
                    continue;
                }
                let prepared =
                    PreparedSentence::new(&annotated.document, &annotated.mentions, candidates, buckets);
                let mut rows = vec![None; candidates.pairs.len()];
                for target in targets {
                    let row = *rows[target.pair].get_or_insert_with(|| {
                        data.rows.push(prepared.features(&candidates.pairs[target.pair]));
                        (data.rows.len() - 1) as u32
                    });
                    let (document, value, weight) = (number as u32, target.value, target.weight);
                    data.known[target.label].push(KnownRow { row, document, value, weight });
                }
            }
        }
        data
    }
}

impl LinearRelations {
    /// Trains on the documents that `learned` selects. The same data, options and seed give the same weights
    /// with any number of threads.
    pub fn train(
        data: &LinearData,
        properties: &Properties,
        training: &LinearTraining,
        seed: u64,
        learned: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let one = |label: usize| {
            let known: Vec<KnownRow> =
                data.known[label].iter().filter(|known| learned(known.document as usize)).copied().collect();
            regression(data, known, training, seed.wrapping_add(label as u64))
        };
        let columns: Vec<(Vec<f32>, f32)> = (0..properties.len()).into_par_iter().map(one).collect();
        let labels = properties.len();
        let mut weights = vec![0i8; training.buckets as usize * labels];
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        for (label, (column, bias)) in columns.into_iter().enumerate() {
            let most = column.iter().fold(0f32, |most, weight| most.max(weight.abs()));
            let scale = if most > 0.0 { most / 127.0 } else { 1.0 };
            for (bucket, weight) in column.into_iter().enumerate() {
                // At most 127 by the choice of the scale.
                weights[bucket * labels + label] = (weight / scale).round() as i8;
            }
            scales.push(scale);
            biases.push(bias);
        }
        let thresholds = Thresholds::even(labels, 0.5);
        let (version, buckets) = (VERSION, training.buckets);
        let file =
            LinearFile { version, buckets, properties: properties.clone(), thresholds, scales, biases };
        Self { file, weights }
    }

    /// The same model with other thresholds.
    #[must_use]
    pub fn with_thresholds(mut self, thresholds: Thresholds) -> Self {
        self.file.thresholds = thresholds;
        self
    }

    /// Writes a folder, the description last.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let shape = vec![self.file.buckets as usize, self.file.properties.len()];
        let bytes: Vec<u8> = self.weights.iter().map(|weight| weight.to_le_bytes()[0]).collect();
        let wrong = |found: String| Error::Model {
            what: folder.join(WEIGHTS).display().to_string(),
            expected: "a table of weights".into(),
            found,
        };
        let view = TensorView::new(Dtype::I8, shape, &bytes).map_err(|error| wrong(error.to_string()))?;
        let file =
            safetensors::serialize([("weights", view)], None).map_err(|error| wrong(error.to_string()))?;
        jsonl::write(folder.join(WEIGHTS), &file)?;
        let mut text = serde_json::to_vec_pretty(&self.file).map_err(|error| wrong(error.to_string()))?;
        text.push(b'\n');
        Ok(jsonl::write(folder.join(LINEAR), &text)?)
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let file: LinearFile = jsonl::read_json(folder.join(LINEAR))?;
        let wrong = |name: &str, expected: String, found: String| Error::Model {
            what: folder.join(name).display().to_string(),
            expected,
            found,
        };
        let labels = file.properties.len();
        if file.version != VERSION {
            return Err(wrong(LINEAR, format!("version {VERSION}"), file.version.to_string()));
        }
        let counts = [file.thresholds.all().len(), file.scales.len(), file.biases.len()];
        if labels == 0 || file.buckets == 0 || counts.iter().any(|&count| count != labels) {
            let expected = "buckets and properties, with a threshold, a scale and a bias for each".into();
            return Err(wrong(
                LINEAR,
                expected,
                format!("{} buckets, {labels} and {counts:?}", file.buckets),
            ));
        }
        let path = folder.join(WEIGHTS);
        let bytes = std::fs::read(&path).map_err(|source| sporran_kilt::Error::io(&path, "read", source))?;
        let shape = [file.buckets as usize, labels];
        let expected = || format!("`weights` of shape {shape:?} in I8");
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|error| wrong(WEIGHTS, expected(), error.to_string()))?;
        let view =
            tensors.tensor("weights").map_err(|error| wrong(WEIGHTS, expected(), error.to_string()))?;
        if view.dtype() != Dtype::I8 || view.shape() != shape {
            return Err(wrong(WEIGHTS, expected(), format!("{:?} in {:?}", view.shape(), view.dtype())));
        }
        let weights = view.data().iter().map(|byte| i8::from_le_bytes([*byte])).collect();
        Ok(Self { file, weights })
    }

    fn sentence(&self, (document, mentions, candidates): RelationInput<'_>) -> Scores {
        let prepared = PreparedSentence::new(document, mentions, candidates, self.file.buckets);
        let labels = self.file.properties.len();
        let mut values = Vec::with_capacity(candidates.pairs.len() * labels);
        let mut sums = vec![0i32; labels];
        for pair in &candidates.pairs {
            let features = prepared.features(pair);
            sums.fill(0);
            for feature in &features {
                let row = &self.weights[*feature as usize * labels..][..labels];
                sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += i32::from(*weight));
            }
            let size = length(&features);
            values.extend(sums.iter().enumerate().map(|(label, sum)| {
                sigmoid(*sum as f32 * self.file.scales[label] * size + self.file.biases[label])
            }));
        }
        Scores::new(labels, values)
    }
}

impl RelationModel for LinearRelations {
    fn properties(&self) -> &Properties {
        &self.file.properties
    }

    fn thresholds(&self) -> &Thresholds {
        &self.file.thresholds
    }

    fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>> {
        Ok(inputs.par_iter().map(|input| self.sentence(*input)).collect())
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The value of each feature, so that rows have norm 1.
fn length(features: &[u32]) -> f32 {
    1.0 / (features.len().max(1) as f32).sqrt()
}

/// The initial sums of squares of AdaGrad: about a row's largest. So the first update of a rare weight is
/// small if the row was predicted well.
const CALM: f32 = 0.01;

/// Weights and bias of one property.
fn regression(
    data: &LinearData,
    mut known: Vec<KnownRow>,
    training: &LinearTraining,
    seed: u64,
) -> (Vec<f32>, f32) {
    let mut weights = vec![0f32; training.buckets as usize];
    let mut squares = vec![CALM; training.buckets as usize];
    // The bias starts at the log-odds of the data.
    let (holds, all) = known
        .iter()
        .fold((0.0, 0.0), |(holds, all), known| (holds + known.weight * known.value, all + known.weight));
    let mut bias = ((holds + 0.5) / (all - holds + 0.5)).ln();
    let mut bias_square = 1.0f32;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..training.epochs {
        known.shuffle(&mut rng);
        for known in &known {
            let features = &data.rows[known.row as usize];
            let size = length(features);
            let sum: f32 = features.iter().map(|&at| weights[at as usize]).sum();
            let slope = known.weight * (sigmoid(sum * size + bias) - known.value);
            let gradient = slope * size;
            for &at in features {
                let (weight, square) = (&mut weights[at as usize], &mut squares[at as usize]);
                *square += gradient * gradient;
                let step = training.learning_rate / square.sqrt();
                *weight -= step * (gradient + training.decay * *weight);
            }
            bias_square += slope * slope;
            bias -= training.learning_rate * slope / bias_square.sqrt();
        }
    }
    (weights, bias)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Document, proposals, relations::annotated};
    use serde_json::json;

    /// Sentences with and without a marriage.
    pub(in crate::relations) fn documents() -> (Vec<Annotated>, Properties) {
        let sources: Vec<sporran_kilt::knowledgenet::Document> = (0..24)
            .map(|at| {
                let holds = at % 2 == 0;
                let names = [["Ann", "Bob"], ["Cleo", "Dan"], ["Eve", "Finn"]][at % 3];
                let text = format!("{} {} {}.", names[0], if holds { "married" } else { "met" }, names[1]);
                let object = text.chars().count() - names[1].len() - 1;
                let fact = json!({"propertyId": "25", "subjectStart": 0, "subjectEnd": names[0].len(),
                    "objectStart": object, "objectEnd": object + names[1].len()});
                serde_json::from_value(json!({"fold": 1, "documentId": at.to_string(), "documentText": text,
                    "passages": [{"passageId": "p", "passageStart": 0, "passageEnd": text.len(), "passageText": text,
                    "exhaustivelyAnnotatedProperties": [{"propertyId": "25", "propertyName": "SPOUSE"}],
                    "facts": if holds { vec![fact] } else { vec![] }}]}))
                .unwrap()
            })
            .collect();
        let properties = Properties::of(&sources);
        let join = |source: &sporran_kilt::knowledgenet::Document| {
            let document = Document::new(source.id.to_string(), source.text.clone());
            let mentions = proposals(&document);
            annotated(source, &properties, document, mentions).unwrap()
        };
        (sources.iter().map(join).collect(), properties.clone())
    }

    /// A model trained on half of the documents.
    pub(in crate::relations) fn trained(epochs: usize) -> (LinearRelations, Vec<Annotated>) {
        let (documents, properties) = documents();
        let training = LinearTraining { buckets: 4096, epochs, ..LinearTraining::default() };
        let data = LinearData::of(&documents, 1, training.buckets);
        // The held-out half shows generalisation.
        let model = LinearRelations::train(&data, &properties, &training, 1, |at| at < 12);
        (model, documents)
    }

    #[test]
    fn what_was_learned_holds_for_other_documents() {
        let (model, documents) = trained(12);
        for annotated in &documents[12..] {
            let input = (&annotated.document, &*annotated.mentions, &annotated.candidates[0]);
            let scores = model.score(&[input]).unwrap();
            let holds = annotated.targets[0][0].value > 0.5;
            assert_eq!(scores[0].of(0, 0) > 0.5, holds, "{}", annotated.document.text);
        }
    }

    #[test]
    fn a_model_survives_its_folder_and_faults_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let model = trained(12).0.with_thresholds(Thresholds::new(vec![0.25]));
        model.save(folder.path()).unwrap();
        assert_eq!(LinearRelations::load(folder.path()).unwrap(), model);
        assert_eq!(trained(12).0, trained(12).0);
        let path = folder.path().join(LINEAR);
        let text = std::fs::read_to_string(&path).unwrap();
        let message = |from: &str, to: &str| {
            std::fs::write(&path, text.replace(from, to)).unwrap();
            LinearRelations::load(folder.path()).unwrap_err().to_string()
        };
        assert!(message("\"version\": 1", "\"version\": 2").contains("expected version 1, found 2"));
        assert!(message("4096", "4097").contains("[4097, 1]"));
        std::fs::write(folder.path().join(WEIGHTS), b"no").unwrap();
        assert!(message("x-nothing", "").contains("linear.safetensors"));
    }
}
