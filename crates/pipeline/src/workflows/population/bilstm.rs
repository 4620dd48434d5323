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
use sporran_kilt::{jsonl, knowledgenet};
use sporran_training::{EvaluationError, Variables};
use sporran_transformers::{Checkpoint, ModelConfig, Precision};

use super::{
    aliases::build,
    options::{BilstmTraining, PopulationOptions},
    parts,
    recall::{LeftOut, MaximumRecall, reach},
    train::{asked, f1, micro, score},
};
use crate::{
    Error, Result,
    observe::Observer,
    training::session::{Judge, Learning, encoder_files},
};

/// Sentences that a judge reads at once.
const PORTION: usize = 64;

/// The link of each mention of a document; nothing without a linker.
pub(super) type Links = Option<Vec<Option<Link>>>;

/// Links the mentions of annotated documents. Where a BiLSTM reads them, it writes the links, chains and known properties into
/// their candidates as well.
///
/// A document's own links are no news to it: what names may mean is looked up in a table of the links of the other half of the
/// documents, so that as many names are known in training as in other documents.
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
        for (annotated, told) in documents.iter_mut().zip(&mut all).skip(half).step_by(2) {
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
            *told = linker.is_some().then_some(links);
        }
    }
    Ok(all)
}

/// Trains the model on documents; others judge each pass and decide on thresholds. Gives the steps, the most that can be recalled
/// of the judges' facts, and F1 on the judges.
pub(super) fn train(
    options: &PopulationOptions,
    (training, model): (&BilstmTraining, &Path),
    properties: &Properties,
    (learned, judges): (&[Annotated], &[LeftOut<'_>]),
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
        kinds: BilstmReader::kinds(&training.shape, labels, learned),
        properties: properties.clone(),
        thresholds: Thresholds::even(labels, 0.5),
        link_thresholds: Thresholds::even(labels, 0.5),
    };
    let reader = BilstmReader::new(&file);
    let reached = reach(judges, properties, |at, sentence, pair, label| {
        reader.asks(&judges[at].annotated.candidates[sentence], pair, label)
    });
    let maximum = MaximumRecall::told(reached, judges.len(), observe);
    let judges: Vec<&Annotated> = judges.iter().map(|judge| judge.annotated).collect();
    let variables = Variables::new(options.seed);
    let network = RelationNetwork::new(&training.shape, file.encoder.as_ref(), labels, &variables)?;
    let examples = reader.examples(learned, encoder.as_ref())?;
    let objective = RelationObjective::new(&network, examples, training.negatives, &training.optimizer);
    let read: Vec<Vec<ReadSentence>> = judges
        .iter()
        .map(|annotated| reader.sentences(&asked(annotated), encoder.as_ref()))
        .collect::<Result<_, _>>()?;
    let evaluate = || -> Result<f64, EvaluationError> {
        let mut scored: Vec<Vec<Scores>> = Vec::with_capacity(judges.len());
        for (annotated, sentences) in judges.iter().zip(&read) {
            let mut scores = Vec::with_capacity(sentences.len());
            let asked = asked(annotated);
            for (asked, sentences) in asked.chunks(PORTION).zip(sentences.chunks(PORTION)) {
                let sentences: Vec<&ReadSentence> = sentences.iter().collect();
                let logits = network.logits(&sentences)?;
                for ((asked, sentence), logits) in asked.iter().zip(sentences).zip(logits) {
                    let own = reader.scores(*asked, sentence, &logits);
                    scores.push(own.joint(&asked.2.pairs, properties));
                }
            }
            scored.push(scores);
        }
        Ok(f1(&judges, &scored, properties))
    };
    let learning = Learning {
        variables: &variables,
        options: &training.optimizer,
        folder: options.folder().join("training"),
        model,
        dtype: DType::F32,
        companions: &[(sporran_extractor::relations::BILSTM.to_owned(), file.bytes())],
        score: "F1",
    };
    let judge = (!judges.is_empty()).then_some(&evaluate as Judge<'_>);
    let trained = learning.run(&objective, judge, observe)?;
    if let Some(from) = &training.from {
        copy_encoder(from, &model.join(LAYERS))?;
    }
    Ok((trained.steps, maximum, tune(model, options, &judges)?))
}

/// Sets a model's thresholds of facts and of links by documents that it has not learned from; gives F1 of facts with them.
fn tune(model: &Path, options: &PopulationOptions, judges: &[&Annotated]) -> Result<f64> {
    let relations = BilstmRelations::load(model, options.relations.device, Precision::F32)?;
    let labels = relations.properties().len();
    let scored: Vec<Vec<Scores>> =
        judges.iter().map(|annotated| score(&relations, annotated)).collect::<Result<_>>()?;
    let joined: Vec<(&Annotated, &[Scores])> =
        judges.iter().zip(&scored).map(|(annotated, scores)| (*annotated, &**scores)).collect();
    let thresholds = Thresholds::tuned(labels, &joined);
    let judged = micro(&thresholds, &joined);
    let linked: Vec<Annotated> = judges.iter().map(|annotated| annotated.linked()).collect();
    let scored: Vec<Vec<Scores>> =
        scored.iter().map(|scores| scores.iter().map(Scores::of_links).collect()).collect();
    let joined: Vec<(&Annotated, &[Scores])> = linked.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
    let link_thresholds = Thresholds::tuned(labels, &joined);
    BilstmFile { thresholds, link_thresholds, ..BilstmFile::load(model)? }.save(model)?;
    Ok(judged)
}

/// Puts an encoder that is read as it is into a model's folder.
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
