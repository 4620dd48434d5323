//! Training of an encoder over marked mentions.

use std::path::Path;

use sporran_checkpoint::Tokenizer;
use sporran_kilt::observe::Observer;
use sporran_training::{
    EvaluationError, PairExample, PairObjective, TunedEncoder, Variables, VocabularyOptions,
    session::{Evaluate, TrainingSession},
    tokenizer_files, train_vocabulary,
};
use sporran_transformers::{
    BertConfig, Checkpoint, DeviceName, ModelConfig, PairHead, PairHeadConfig, Precision,
};

use super::{MARKED, MarkedEntities, MarkedOptions, MarkedTraining, pair_examples};
use crate::{
    error::{Error, Result},
    relations::{
        Annotated, FEATURES, Marking, MaximumRecall, Reach, RelationModel, RelationTraining, Scores,
        Thresholds, TrainedRelationModel,
        validation::{decided_scores, tuned_f1, with_scores},
    },
};

impl MarkedTraining {
    /// Trains a model, tunes its thresholds on the validation documents, and saves it. A stopped training resumes
    /// from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of the initial encoder or of the training.
    pub fn train(
        &self,
        training: &RelationTraining<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<TrainedRelationModel> {
        let RelationTraining { properties, validation, device, model, .. } = *training;
        let annotated = training.annotated_validation();
        let trainer = MarkedTrainer::new(self, training)?;
        let marks = trainer.marks(&annotated)?;
        let reached = Reach::of(validation, properties, |at, sentence, pair, _| {
            let pair = &annotated[at].candidates[sentence].pairs[pair];
            (pair.first.max(pair.second) as usize) < marks[at][sentence]
        });
        let maximum_recall = MaximumRecall::reported(reached, validation.len(), observe);
        let steps = trainer.optimise(training, model, observe)?;
        Ok(training.result(steps, maximum_recall, tune(model, device, &annotated)?))
    }
}

/// An encoder with marked mentions in training.
pub(in crate::relations) struct MarkedTrainer<'a> {
    encoder: TunedEncoder,
    head: PairHead,
    tokenizer: Tokenizer,
    options: MarkedOptions,
    training: &'a MarkedTraining,
    extra_files: Vec<(String, Vec<u8>)>,
}

impl<'a> MarkedTrainer<'a> {
    /// Opens the initial encoder, or makes one with random weights and a vocabulary of the training documents.
    pub(in crate::relations) fn new(
        options: &'a MarkedTraining,
        training: &RelationTraining<'_>,
    ) -> Result<Self> {
        let RelationTraining { properties, documents, device, seed, .. } = *training;
        let device = device.open()?;
        let head = |width: usize| PairHeadConfig {
            width,
            inner: options.hidden_size,
            features: FEATURES,
            labels: properties.len(),
            dropout: options.dropout,
        };
        let (encoder, head, tokenizer, markers, mut extra_files) = match (&options.from, &options.encoder) {
            (Some(from), _) => {
                let checkpoint = Checkpoint::open(from)?;
                let ModelConfig::Bert(config) = checkpoint.config() else {
                    return Err(sporran_checkpoint::Error::Architecture {
                        path: from.join("config.json"),
                        expected: "an encoder to tune (BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, ELECTRA, ALBERT or DeBERTa)",
                        found: "another model".into(),
                    }
                    .into());
                };
                let sizes = head(config.hidden_size);
                let (encoder, head) = TunedEncoder::open_with_pairs(&checkpoint, &sizes, seed, &device)?;
                let tokenizer = checkpoint.tokenizer()?;
                let files = vec![("tokenizer.json".to_owned(), tokenizer.json().as_bytes().to_vec())];
                (encoder, head, tokenizer, Marking::default(), files)
            }
            (None, fresh) => {
                let fresh = fresh.as_ref().ok_or_else(|| Error::Model {
                    what: "the training of an encoder over marked mentions".into(),
                    expected: "`from` or `encoder`".into(),
                    found: "neither".into(),
                })?;
                let markers = Marking::default();
                let vocabulary = VocabularyOptions {
                    size: fresh.vocabulary,
                    min_frequency: 2,
                    marks: markers.tokens().to_vec(),
                };
                let texts: Vec<&str> =
                    documents.iter().map(|document| document.document.text.as_str()).collect();
                let files = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary)?)?;
                let json = String::from_utf8_lossy(&files[0].1).into_owned();
                let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json)?;
                let config = BertConfig {
                    vocab_size: tokenizer.vocab_size(),
                    hidden_size: fresh.hidden_size,
                    num_hidden_layers: fresh.layers,
                    num_attention_heads: fresh.heads,
                    intermediate_size: 4 * fresh.hidden_size,
                    hidden_dropout_prob: options.dropout,
                    attention_probs_dropout_prob: options.dropout,
                    head_dropout: options.dropout,
                    max_position_embeddings: options.max_tokens,
                    ..BertConfig::default()
                };
                let (encoder, head) = TunedEncoder::with_pairs(
                    &config,
                    &head(fresh.hidden_size),
                    Variables::new(seed),
                    &device,
                )?;
                (encoder, head, tokenizer, markers, files)
            }
        };
        let marked = MarkedOptions {
            version: MarkedOptions::VERSION,
            head: head.config().clone(),
            markers,
            max_tokens: options.max_tokens.min(encoder.config().max_input_length()),
            properties: properties.clone(),
            thresholds: Thresholds::even(properties.len(), 0.5),
        };
        let config = encoder.config().to_json();
        extra_files.push(("config.json".to_owned(), format!("{config:#}\n").into_bytes()));
        extra_files.push((MARKED.to_owned(), marked.bytes()));
        Ok(Self { encoder, head, tokenizer, options: marked, training: options, extra_files })
    }

    /// Trains, and saves the best weights in `model`. Returns the number of steps.
    pub(in crate::relations) fn optimise(
        &self,
        training: &RelationTraining<'_>,
        model: &Path,
        observe: &mut Observer<'_>,
    ) -> Result<u64> {
        let optimizer = &self.training.optimizer;
        let examples = pair_examples(training.documents, &self.tokenizer, &self.options)?;
        let flat: Vec<PairExample> = examples.into_iter().flatten().collect();
        let objective = PairObjective::new(&self.encoder, &self.head, flat, optimizer)?;
        let validation = training.annotated_validation();
        let validation_examples = pair_examples(validation.iter().copied(), &self.tokenizer, &self.options)?;
        let evaluate = || -> Result<f64, EvaluationError> {
            let mut scored = Vec::with_capacity(validation_examples.len());
            for (annotated, examples) in validation.iter().zip(&validation_examples) {
                let logits = self.encoder.pair_logits(&self.head, examples, 4096)?;
                scored.push(self.scores(annotated, examples, logits));
            }
            Ok(tuned_f1(&validation, &scored, &self.options.properties))
        };
        let session = TrainingSession {
            variables: self.encoder.variables(),
            options: optimizer,
            folder: training.checkpoints.to_path_buf(),
            model,
            dtype: self.training.dtype.into(),
            extra_files: &self.extra_files,
            score: "F1",
        };
        let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
        Ok(session.run(&objective, evaluate, observe)?.steps)
    }

    /// The number of mentions of each sentence within the token limit.
    fn marks(&self, documents: &[&Annotated]) -> Result<Vec<Vec<usize>>> {
        let examples = pair_examples(documents.iter().copied(), &self.tokenizer, &self.options)?;
        let marks =
            |examples: &Vec<PairExample>| examples.iter().map(|example| example.marks.len()).collect();
        Ok(examples.iter().map(marks).collect())
    }

    /// The scores of a document's sentences from the logits of the pairs within the token limit.
    fn scores(&self, annotated: &Annotated, examples: &[PairExample], logits: Vec<Vec<f32>>) -> Vec<Scores> {
        let labels = self.options.properties.len();
        let sentences = annotated.candidates.iter().zip(examples).zip(logits);
        sentences
            .map(|((candidates, example), logits)| {
                let mut rest = logits.chunks_exact(labels.max(1));
                let mut values = Vec::with_capacity(candidates.pairs.len() * labels);
                for pair in &candidates.pairs {
                    let is_read = (pair.first.max(pair.second) as usize) < example.marks.len();
                    match if is_read { rest.next() } else { None } {
                        Some(logits) => {
                            values.extend(logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())))
                        }
                        None => values.extend(std::iter::repeat_n(0.0, labels)),
                    }
                }
                Scores::new(labels, values).joint(&candidates.pairs, &self.options.properties)
            })
            .collect()
    }
}

/// Tunes the thresholds of a model on the validation documents. Returns their micro F1.
fn tune(model: &Path, device: DeviceName, validation: &[&Annotated]) -> Result<f64> {
    let relations = MarkedEntities::load(model, device, Precision::F32)?;
    let scores: Vec<Vec<Scores>> =
        validation.iter().map(|annotated| decided_scores(&relations, annotated)).collect::<Result<_>>()?;
    let scored = with_scores(validation, &scores);
    let thresholds = Thresholds::tuned(relations.properties().len(), &scored);
    let f1 = thresholds.micro_f1(&scored);
    MarkedOptions { thresholds, ..MarkedOptions::load(model)? }.save(model)?;
    Ok(f1)
}
