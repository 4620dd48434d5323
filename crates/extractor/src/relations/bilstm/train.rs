//! Training of the BiLSTM of KnowledgeNet's baselines.

use std::{fs, path::Path};

use candle_core::DType;
use sporran_kilt::{jsonl, observe::Observer};
use sporran_training::{
    EvaluationError, Variables,
    session::{Evaluate, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, DeviceName, ModelConfig, Precision};

use super::{
    BILSTM, BilstmFile, BilstmReader, BilstmRelations, BilstmTraining, LAYERS, LayerEncoder, ReadSentence,
    RelationNetwork, RelationObjective,
};
use crate::{
    Result,
    relations::{
        Annotated, MaximumRecall, Reach, RelationModel, RelationTraining, Scores, Thresholds,
        TrainedRelationModel,
        validation::{joint_scores, tuned_f1, with_scores},
    },
};

/// The number of sentences in a validation batch.
const PORTION: usize = 64;

impl BilstmTraining {
    /// Trains a model, validates it after each epoch, tunes its thresholds, and saves it. A stopped training resumes
    /// from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of the frozen encoder or of the training.
    pub fn train(
        &self,
        training: &RelationTraining<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<TrainedRelationModel> {
        let RelationTraining { properties, documents, validation, device, seed, model, .. } = *training;
        let encoder = match &self.from {
            Some(from) => Some(LayerEncoder::open(from, device, Precision::F32)?),
            None => None,
        };
        let labels = properties.len();
        let file = BilstmFile {
            version: BilstmFile::VERSION,
            shape: self.shape.clone(),
            encoder: encoder.as_ref().map(|encoder| encoder.words().clone()),
            kinds: BilstmReader::kinds(&self.shape, labels, documents),
            properties: properties.clone(),
            thresholds: Thresholds::even(labels, 0.5),
            link_thresholds: Thresholds::even(labels, 0.5),
        };
        let reader = BilstmReader::new(&file);
        let reached = Reach::of(validation, properties, |at, sentence, pair, label| {
            reader.asks(&validation[at].annotated.candidates[sentence], pair, label)
        });
        let maximum_recall = MaximumRecall::reported(reached, validation.len(), observe);
        let validation = training.annotated_validation();
        let variables = Variables::new(seed);
        let network = RelationNetwork::new(&self.shape, file.encoder.as_ref(), labels, &variables)?;
        let examples = reader.examples(documents, encoder.as_ref())?;
        let objective = RelationObjective::new(&network, examples, self.negatives, &self.optimizer);
        let read: Vec<Vec<ReadSentence>> = validation
            .iter()
            .map(|annotated| reader.sentences(&annotated.inputs(), encoder.as_ref()))
            .collect::<Result<_, _>>()?;
        let evaluate = || -> Result<f64, EvaluationError> {
            let mut scored: Vec<Vec<Scores>> = Vec::with_capacity(validation.len());
            for (annotated, sentences) in validation.iter().zip(&read) {
                let mut scores = Vec::with_capacity(sentences.len());
                let inputs = annotated.inputs();
                for (inputs, sentences) in inputs.chunks(PORTION).zip(sentences.chunks(PORTION)) {
                    let sentences: Vec<&ReadSentence> = sentences.iter().collect();
                    let logits = network.logits(&sentences)?;
                    for ((input, sentence), logits) in inputs.iter().zip(sentences).zip(logits) {
                        let own = reader.scores(*input, sentence, &logits);
                        scores.push(own.joint(&input.2.pairs, properties));
                    }
                }
                scored.push(scores);
            }
            Ok(tuned_f1(&validation, &scored, properties))
        };
        let session = TrainingSession {
            variables: &variables,
            options: &self.optimizer,
            folder: training.checkpoints.to_path_buf(),
            model,
            dtype: DType::F32,
            extra_files: &[(BILSTM.to_owned(), file.bytes())],
            score: "F1",
        };
        let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
        let trained = session.run(&objective, evaluate, observe)?;
        if let Some(from) = &self.from {
            copy_encoder(from, &model.join(LAYERS))?;
        }
        Ok(training.result(trained.steps, maximum_recall, tune(model, device, &validation)?))
    }
}

/// Tunes the thresholds of facts and of links on the validation documents. Returns the micro F1 of facts.
fn tune(model: &Path, device: DeviceName, validation: &[&Annotated]) -> Result<f64> {
    let relations = BilstmRelations::load(model, device, Precision::F32)?;
    let labels = relations.properties().len();
    let scored: Vec<Vec<Scores>> =
        validation.iter().map(|annotated| joint_scores(&relations, annotated)).collect::<Result<_>>()?;
    let joined = with_scores(validation, &scored);
    let thresholds = Thresholds::tuned(labels, &joined);
    let f1 = thresholds.micro_f1(&joined);
    let linked: Vec<Annotated> = validation.iter().map(|annotated| annotated.linked()).collect();
    let scored: Vec<Vec<Scores>> =
        scored.iter().map(|scores| scores.iter().map(Scores::of_links).collect()).collect();
    let link_thresholds = Thresholds::tuned(labels, &with_scores(&linked, &scored));
    BilstmFile { thresholds, link_thresholds, ..BilstmFile::load(model)? }.save(model)?;
    Ok(f1)
}

/// Copies the frozen encoder into the folder of the model.
fn copy_encoder(from: &Path, to: &Path) -> Result<()> {
    const WEIGHTS: &str = "model.safetensors";
    let checkpoint = Checkpoint::open(from)?;
    let ModelConfig::Bert(config) = checkpoint.config() else {
        return Err(sporran_checkpoint::Error::Architecture {
            path: from.join("config.json"),
            expected: "an encoder (BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, ELECTRA, ALBERT or DeBERTa)",
            found: "another model".into(),
        }
        .into());
    };
    fs::create_dir_all(to).map_err(|source| sporran_kilt::Error::io(to, "create", source))?;
    let path = from.join(WEIGHTS);
    let weights = fs::read(&path).map_err(|source| sporran_kilt::Error::io(&path, "read", source))?;
    jsonl::write(to.join(WEIGHTS), &weights)?;
    for (name, bytes) in encoder_files(&checkpoint, config)? {
        jsonl::write(to.join(name), &bytes)?;
    }
    Ok(())
}
