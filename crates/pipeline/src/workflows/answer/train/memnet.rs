//! Training of transformer memory networks, which select a piece of knowledge and generate a response from it.

use sporran_checkpoint::Tokenizer;
use sporran_generator::{Candidate, MemNet, MemNetOptions, MemoryInput, Request, UnitKind};
use sporran_kilt::{Passage, PassageStore, Provenance, observe::Observer};
use sporran_training::{
    EvaluationError, MemoryObjective, MemoryRow,
    session::{TrainableModel, Trained},
};

use crate::{
    Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{
        evidence::{gold_passages, holds},
        options::{Options, TrainOptions},
        train::{
            examples::{RetrievedExample, mean_score, retrieved_examples},
            remembered::assemble_remembering,
            start::{init_model, training_session},
        },
    },
};

/// Trains the model of a `memnet` generator on the records of `[train.examples]` and validates its answers on `[tasks]`.
///
/// # Errors
/// Errors of files, index, model or training.
pub(crate) fn train_memory(
    options: &Options,
    train: &TrainOptions,
    network: &MemNetOptions,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_remembering(options, underway, observe)?;
    let mut read = |files, table, limit| {
        retrieved_examples(options, files, table, limit, network.prompt.passages, false, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None)?;
    let validation = read(&options.general.tasks, "tasks", Some(train.validation_records))?;
    let TrainableModel { model, tokenizer, variables, extra_files } =
        init_model(options, train, &assembly, &examples)?;
    let store = assembly.store.clone();
    let rows = Rows {
        input: MemoryInput::new(network, tokenizer.clone(), model.max_input_length(), store.clone())?,
        tokenizer: &tokenizer,
        store: store.as_deref(),
        network,
        train,
    };
    let rows: Vec<MemoryRow> = examples.iter().map(|retrieved| rows.row(retrieved)).collect::<Result<_>>()?;
    let known = rows.iter().filter(|row| row.gold.is_some()).count();
    tracing::info!(known, records = rows.len(), "records whose gold knowledge is in their memory");
    let objective =
        MemoryObjective::new(model.as_ref(), &variables, &rows, train.knowledge, &train.optimizer)?;
    let generator = MemNet::new(network, model.clone(), tokenizer.clone(), store)?;
    let evaluate = || mean_score(&generator, &validation).map_err(EvaluationError::from);
    let session = training_session(&options.general, train, &variables, &extra_files);
    session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)
}

/// Tokenizes examples.
struct Rows<'a> {
    input: MemoryInput,
    tokenizer: &'a Tokenizer,
    store: Option<&'a PassageStore>,
    network: &'a MemNetOptions,
    train: &'a TrainOptions,
}

impl Rows<'_> {
    fn row(&self, retrieved: &RetrievedExample) -> Result<MemoryRow> {
        let query = &retrieved.example.query;
        let passages: Vec<&Passage> = retrieved.passages.iter().map(|(passage, _)| passage).collect();
        let (mut pieces, mut gold) = self.pieces(retrieved, &passages)?;
        pieces.truncate(self.input.most());
        gold = gold.filter(|gold| *gold < pieces.len());
        if let (None, true, Some(store)) = (gold, self.train.add_gold, self.store) {
            let passages: Vec<Passage> = gold_passages(&retrieved.example, store).collect();
            // All passages of the page, because the evidence can be anywhere on it.
            for passage in &passages {
                let (mut own, found) = self.pieces(retrieved, &[passage])?;
                if let Some(found) = found {
                    pieces.truncate(self.input.most() - 1);
                    gold = Some(pieces.len());
                    pieces.push(own.swap_remove(found));
                    break;
                }
            }
        }
        let answers = retrieved.example.answers();
        // `retrieved_examples` skips records without an answer.
        let target = answers.first().copied().unwrap_or_default();
        Ok(MemoryRow {
            dialogue: self.input.dialogue_tokens(&self.input.dialogue(query)?)?,
            pieces: pieces.iter().map(|text| Ok(self.input.piece_tokens(text)?)).collect::<Result<_>>()?,
            gold,
            target: self.tokenizer.encode(target, Some(self.train.target_tokens))?,
        })
    }

    /// The texts of the pieces of passages, and the index of the first one with gold evidence.
    fn pieces(
        &self,
        retrieved: &RetrievedExample,
        passages: &[&Passage],
    ) -> Result<(Vec<String>, Option<usize>)> {
        let candidates: Vec<Candidate<'_>> =
            passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
        let units = self.input.units(&Request { query: &retrieved.example.query, passages: &candidates })?;
        let gold: Vec<&Provenance> =
            retrieved.example.gold.iter().flat_map(|output| output.evidence()).collect();
        let whole = self.network.evidence == UnitKind::Lead;
        let found = self.store.and_then(|store| {
            units.iter().position(|unit| {
                let page = passages[unit.passage].page_id.as_str();
                let piece = (!whole).then_some(unit.text.as_str());
                gold.iter().any(|item| holds(page, piece, item, store))
            })
        });
        let texts = units.iter().map(|unit| self.input.piece(passages[unit.passage], unit)).collect();
        Ok((texts, found))
    }
}
