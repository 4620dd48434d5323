//! Training of the BiLSTM of KnowledgeNet's baselines.

use std::{fs, path::Path};

use candle_core::DType;
use sporran_extractor::{
    Link,
    relations::{
        Annotated, Background, BilstmFile, BilstmReader, BilstmRelations, LAYERS, LayerEncoder, Properties,
        ReadSentence, RelationModel, RelationNetwork, RelationObjective, Scores, Thresholds,
    },
};
use sporran_kilt::{jsonl, knowledgenet, observe::Observer};
use sporran_training::{
    EvaluationError, Variables,
    session::{Evaluate, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, ModelConfig, Precision};

use super::{
    aliases::build,
    options::{BilstmTraining, PopulationOptions},
    parts,
    recall::{HeldOut, MaximumRecall, reach},
    train::{classifier_inputs, f1, micro, score},
};
use crate::{Error, Result};

/// The number of sentences in a validation batch.
const PORTION: usize = 64;

/// The link of each mention of a document; `None` without a linker.
pub(super) type Links = Option<Vec<Option<Link>>>;

/// Links the mentions of annotated documents. For a BiLSTM it also adds links, chains and known properties to the candidates.
///
/// The table of names for one half of the documents is built from the links of the other half. So names are as often unknown in
/// training as in new documents.
pub(super) fn background(
    options: &PopulationOptions,
    sources: &[knowledgenet::Document],
    documents: &mut [Annotated],
) -> Result<Vec<Links>> {
    let mut all: Vec<Links> = vec![None; documents.len()];
    let coreference = parts::coreference(options.coreference, &options.mentions)?;
    for half in 0..2 {
        let others = sources.iter().enumerate().filter(|(at, _)| at % 2 != half).map(|(_, source)| source);
        let linker = match &options.linker {
            Some(linking) => {
                let linker = parts::linker(
                    build(others, &linking.names)?,
                    &linking.decision,
                    linking.facts.as_deref(),
                )?;
                let knowledge = parts::knowledge(linking, linker.table())?;
                Some((linker, knowledge))
            }
            None => None,
        };
        for (annotated, document_links) in documents.iter_mut().zip(&mut all).skip(half).step_by(2) {
            let Annotated { document, mentions, candidates, .. } = annotated;
            let chains = match &coreference {
                Some(coreference) => coreference.chains(document, mentions)?,
                None => Vec::new(),
            };
            let (links, knowledge) = match &linker {
                Some((linker, knowledge)) => {
                    let known = knowledge.as_ref().map(|known| (linker.table(), known));
                    (linker.link(document, mentions, &chains), known)
                }
                None => (vec![None; mentions.len()], None),
            };
            if options.relations.bilstm.is_some() {
                let background = Background { chains: &chains, links: &links, knowledge };
                background.annotate(document, mentions, candidates);
            }
            *document_links = linker.is_some().then_some(links);
        }
    }
    Ok(all)
}

/// Trains the model and validates it after each epoch. Returns the number of steps, the maximum recall and the micro F1 on the
/// validation documents.
pub(super) fn train(
    options: &PopulationOptions,
    (training, model): (&BilstmTraining, &Path),
    properties: &Properties,
    (training_documents, validation): (&[Annotated], &[HeldOut<'_>]),
    observe: &mut Observer<'_>,
) -> Result<(u64, MaximumRecall, f64)> {
    let device = options.relations.device;
    let encoder = match &training.from {
        Some(from) => Some(LayerEncoder::open(from, device, Precision::F32)?),
        None => None,
    };
    let labels = properties.len();
    let file = BilstmFile {
        version: BilstmFile::VERSION,
        shape: training.shape.clone(),
        encoder: encoder.as_ref().map(|encoder| encoder.words().clone()),
        kinds: BilstmReader::kinds(&training.shape, labels, training_documents),
        properties: properties.clone(),
        thresholds: Thresholds::even(labels, 0.5),
        link_thresholds: Thresholds::even(labels, 0.5),
    };
    let reader = BilstmReader::new(&file);
    let reached = reach(validation, properties, |at, sentence, pair, label| {
        reader.asks(&validation[at].annotated.candidates[sentence], pair, label)
    });
    let maximum = MaximumRecall::reported(reached, validation.len(), observe);
    let validation: Vec<&Annotated> = validation.iter().map(|held_out| held_out.annotated).collect();
    let variables = Variables::new(options.seed);
    let network = RelationNetwork::new(&training.shape, file.encoder.as_ref(), labels, &variables)?;
    let examples = reader.examples(training_documents, encoder.as_ref())?;
    let objective = RelationObjective::new(&network, examples, training.negatives, &training.optimizer);
    let read: Vec<Vec<ReadSentence>> = validation
        .iter()
        .map(|annotated| reader.sentences(&classifier_inputs(annotated), encoder.as_ref()))
        .collect::<Result<_, _>>()?;
    let evaluate = || -> Result<f64, EvaluationError> {
        let mut scored: Vec<Vec<Scores>> = Vec::with_capacity(validation.len());
        for (annotated, sentences) in validation.iter().zip(&read) {
            let mut scores = Vec::with_capacity(sentences.len());
            let inputs = classifier_inputs(annotated);
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
        Ok(f1(&validation, &scored, properties))
    };
    let session = TrainingSession {
        variables: &variables,
        options: &training.optimizer,
        folder: options.folder().join("training"),
        model,
        dtype: DType::F32,
        extra_files: &[(sporran_extractor::relations::BILSTM.to_owned(), file.bytes())],
        score: "F1",
    };
    let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
    let trained = session.run(&objective, evaluate, observe)?;
    if let Some(from) = &training.from {
        copy_encoder(from, &model.join(LAYERS))?;
    }
    Ok((trained.steps, maximum, tune(model, options, &validation)?))
}

/// Tunes the thresholds of facts and of links on the validation documents. Returns the micro F1 of facts.
fn tune(model: &Path, options: &PopulationOptions, validation: &[&Annotated]) -> Result<f64> {
    let relations = BilstmRelations::load(model, options.relations.device, Precision::F32)?;
    let labels = relations.properties().len();
    let scored: Vec<Vec<Scores>> =
        validation.iter().map(|annotated| score(&relations, annotated)).collect::<Result<_>>()?;
    let joined: Vec<(&Annotated, &[Scores])> =
        validation.iter().zip(&scored).map(|(annotated, scores)| (*annotated, &**scores)).collect();
    let thresholds = Thresholds::tuned(labels, &joined);
    let f1_score = micro(&thresholds, &joined);
    let linked: Vec<Annotated> = validation.iter().map(|annotated| annotated.linked()).collect();
    let scored: Vec<Vec<Scores>> =
        scored.iter().map(|scores| scores.iter().map(Scores::of_links).collect()).collect();
    let joined: Vec<(&Annotated, &[Scores])> = linked.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
    let link_thresholds = Thresholds::tuned(labels, &joined);
    BilstmFile { thresholds, link_thresholds, ..BilstmFile::load(model)? }.save(model)?;
    Ok(f1_score)
}

/// Copies the frozen encoder into the folder of the model.
fn copy_encoder(from: &Path, to: &Path) -> Result<()> {
    const WEIGHTS: &str = "model.safetensors";
    let checkpoint = Checkpoint::open(from)?;
    let ModelConfig::Bert(config) = checkpoint.config() else {
        return Err(sporran_checkpoint::Error::Architecture {
            path: from.join("config.json"),
            expected: "an encoder (BERT, RoBERTa, XLM-RoBERTa or DistilBERT)",
            found: "another model".into(),
        }
        .into());
    };
    fs::create_dir_all(to).map_err(Error::io(to, "create"))?;
    let path = from.join(WEIGHTS);
    jsonl::write(to.join(WEIGHTS), &fs::read(&path).map_err(Error::io(&path, "read"))?)?;
    for (name, bytes) in encoder_files(&checkpoint, config)? {
        jsonl::write(to.join(name), &bytes)?;
    }
    Ok(())
}
