//! Training of the BiLSTM of KnowledgeNet's baselines.

use std::{fs, path::Path, sync::Arc};

use candle_core::DType;
use rustc_hash::FxHashSet;
use sporran_kilt::{jsonl, observe::Observer};
use sporran_training::{
    EvaluationError, Variables,
    session::{Evaluate, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, DeviceName, ModelConfig, Precision};

use super::{
    BILSTM, BilstmFile, BilstmReader, BilstmRelations, BilstmTraining, Directions, KnownValues, LAYERS,
    LayerEncoder, PairBatches, ReadSentence, RelationNetwork, RelationObjective, Selection, Vectors,
};
use crate::{
    Result,
    relations::{
        Annotated, MaximumRecall, Outcomes, Reach, RelationModel, RelationTraining, Scores, ThresholdFit,
        Thresholds, TrainedRelationModel,
        validation::{decided_scores, with_scores},
    },
};

/// The number of sentences in a validation batch.
const PORTION: usize = 64;

impl BilstmTraining {
    /// Trains a model, validates it after each epoch, tunes its thresholds, and saves it. A stopped training resumes
    /// from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of the word vectors, of the frozen encoder or of the training.
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
        let vectors = self.word_vectors(training)?;
        let parsed = documents.iter().any(|annotated| annotated.document.parse().is_some());
        if !parsed {
            let features = if self.shape.coreference { "3, 4, 7 and 8" } else { "3 and 4" };
            tracing::warn!("without `parses`, features {features} (dependency paths) are left out");
        }
        let known =
            if self.shape.knowledge { BilstmReader::known_values(documents) } else { KnownValues::default() };
        if self.shape.knowledge && known.width() == 0 {
            tracing::warn!(
                "features 9 and 10 (types of links and properties between them) are left out: no link of the training documents \
                 has a type in `linker.types` or a property in `linker.facts`"
            );
        }
        let kinds = BilstmReader::kinds(&self.shape, properties, documents);
        let file = BilstmFile {
            parsed,
            vectors: vectors.as_ref().map(|vectors| vectors.width()),
            encoder: encoder.as_ref().map(|encoder| encoder.words().clone()),
            known,
            directions: self.directions,
            ..BilstmFile::new(&self.shape, properties).with_kinds(kinds)
        };
        let reader = BilstmReader::new(&file, vectors.clone());
        let reached = Reach::of(validation, properties, |at, sentence, pair, label| {
            let annotated = validation[at].annotated;
            let candidates = &annotated.candidates[sentence];
            reader.asks((&annotated.document, &annotated.mentions, candidates), pair, label)
        });
        let maximum_recall = MaximumRecall::reported(reached, validation.len(), observe);
        let validation = training.annotated_validation();
        let variables = Variables::new(seed);
        let network = RelationNetwork::new(&file, vectors.clone(), &variables)?;
        let examples = reader.examples(documents, encoder.as_ref(), self.positives)?;
        let batches = PairBatches { negatives: self.negatives, pairs: self.pairs_per_batch };
        let objective = RelationObjective::new(&network, examples, batches, &self.optimizer);
        let session = TrainingSession {
            variables: &variables,
            options: &self.optimizer,
            folder: training.checkpoints.to_path_buf(),
            model,
            dtype: DType::F32,
            extra_files: &[(BILSTM.to_owned(), file.bytes())],
            score: match self.select {
                Selection::Loss => "minus validation loss",
                Selection::F1 => "F1",
            },
        };
        let trained = match self.select {
            _ if validation.is_empty() => session.run(&objective, None, observe)?,
            Selection::Loss => {
                let held_out =
                    reader.examples(validation.iter().copied(), encoder.as_ref(), self.positives)?;
                let evaluate = || -> Result<f64, EvaluationError> { Ok(-network.loss(&held_out)?) };
                session.run(&objective, Some(&evaluate as Evaluate<'_>), observe)?
            }
            Selection::F1 => {
                let read: Vec<Vec<ReadSentence>> = validation
                    .iter()
                    .map(|annotated| reader.sentences(&annotated.inputs(), encoder.as_ref()))
                    .collect::<Result<_>>()?;
                let evaluate = || -> Result<f64, EvaluationError> {
                    let scored = self.scored(&reader, &network, (&validation, &read))?;
                    Ok(fitted(self.thresholds, properties.len(), &with_scores(&validation, &scored)).1)
                };
                session.run(&objective, Some(&evaluate as Evaluate<'_>), observe)?
            }
        };
        if let Some(from) = &self.from {
            copy_encoder(from, &model.join(LAYERS))?;
        }
        if let Some(vectors) = vectors {
            vectors.save(model)?;
        }
        let f1 = tune(model, device, &validation, self.thresholds)?;
        Ok(training.result(trained.steps, maximum_recall, f1))
    }

    /// The pretrained vectors of the words of all documents.
    fn word_vectors(&self, training: &RelationTraining<'_>) -> Result<Option<Arc<Vectors>>> {
        let Some(path) = &self.vectors else {
            tracing::warn!(
                "without `relations.bilstm.vectors`, hashed words are trained in place of word vectors"
            );
            return Ok(None);
        };
        let validation = training.validation.iter().map(|held_out| held_out.annotated);
        let documents = training.documents.iter().chain(validation).map(|annotated| &annotated.document);
        let words: FxHashSet<String> = documents
            .flat_map(|document| (0..document.tokens.len()).map(|at| document.word(at).to_owned()))
            .collect();
        let vectors = Vectors::read(path, &words, self.frequent_words)?;
        let known = words.iter().filter(|word| vectors.row(word).is_some()).count();
        tracing::info!(words = words.len(), known, kept = vectors.len(), "word vectors");
        Ok(Some(Arc::new(vectors)))
    }

    /// The scores of the sentences of the validation documents with the current weights.
    fn scored(
        &self,
        reader: &BilstmReader,
        network: &RelationNetwork,
        (validation, read): (&[&Annotated], &[Vec<ReadSentence>]),
    ) -> Result<Vec<Vec<Scores>>> {
        let mut scored: Vec<Vec<Scores>> = Vec::with_capacity(validation.len());
        for (annotated, sentences) in validation.iter().zip(read) {
            let mut scores = Vec::with_capacity(sentences.len());
            let inputs = annotated.inputs();
            for (inputs, sentences) in inputs.chunks(PORTION).zip(sentences.chunks(PORTION)) {
                let sentences: Vec<&ReadSentence> = sentences.iter().collect();
                let logits = network.logits(&sentences)?;
                for ((input, sentence), logits) in inputs.iter().zip(sentences).zip(logits) {
                    let own = reader.scores(*input, sentence, &logits);
                    scores.push(match self.directions {
                        Directions::Independent => own,
                        Directions::Joint => own.joint(&input.2.pairs, reader.properties()),
                    });
                }
            }
            scored.push(scores);
        }
        Ok(scored)
    }
}

/// The thresholds of facts for scored documents, and the micro F1 that they give.
fn fitted(fit: ThresholdFit, labels: usize, scored: &[(&Annotated, &[Scores])]) -> (Thresholds, f64) {
    let outcomes: Vec<Outcomes> = (0..labels).map(|label| Outcomes::of(label, scored)).collect();
    let thresholds = fit.fit(&outcomes);
    let f1 = thresholds.micro_f1(scored);
    (thresholds, f1)
}

/// Tunes the thresholds of facts and of links on the validation documents. Returns the micro F1 of facts.
fn tune(model: &Path, device: DeviceName, validation: &[&Annotated], fit: ThresholdFit) -> Result<f64> {
    let relations = BilstmRelations::load(model, device, Precision::F32)?;
    let labels = relations.properties().len();
    let scored: Vec<Vec<Scores>> =
        validation.iter().map(|annotated| decided_scores(&relations, annotated)).collect::<Result<_>>()?;
    let scored = with_scores(validation, &scored);
    let (thresholds, f1) = fitted(fit, labels, &scored);
    let of = |(label, threshold): (usize, &f32)| Outcomes::of_links(label, *threshold, &scored);
    let outcomes: Vec<Outcomes> = thresholds.all().iter().enumerate().map(of).collect();
    let link_thresholds = fit.fit(&outcomes);
    BilstmFile { thresholds, link_thresholds, ..BilstmFile::load(model)? }.save(model)?;
    Ok(f1)
}

/// Copies the frozen encoder into the folder of the model.
fn copy_encoder(from: &Path, to: &Path) -> Result<()> {
    const WEIGHTS: &str = "model.safetensors";
    let checkpoint = Checkpoint::open(from)?;
    if !matches!(checkpoint.config(), ModelConfig::Bert(_)) {
        return Err(sporran_checkpoint::Error::Architecture {
            path: from.join("config.json"),
            expected: "an encoder (BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, ELECTRA, ALBERT or DeBERTa)",
            found: "another model".into(),
        }
        .into());
    }
    fs::create_dir_all(to).map_err(|source| sporran_kilt::Error::io(to, "create", source))?;
    let path = from.join(WEIGHTS);
    let weights = fs::read(&path).map_err(|source| sporran_kilt::Error::io(&path, "read", source))?;
    jsonl::write(to.join(WEIGHTS), &weights)?;
    for (name, bytes) in encoder_files(&checkpoint, checkpoint.config())? {
        jsonl::write(to.join(name), &bytes)?;
    }
    Ok(())
}
