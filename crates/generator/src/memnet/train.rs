//! Training of transformer memory networks, which select a piece of knowledge and generate a response from it.

use sporran_kilt::{
    Passage, PassageStore, Provenance,
    evidence::{gold_passages, holds},
    observe::Observer,
};
use sporran_training::{
    EvaluationError, MemoryObjective, MemoryRow,
    session::{TrainableModel, Trained},
};

use super::{MemNet, MemNetOptions, MemoryInput};
use crate::{
    Candidate, Request, Result, UnitKind,
    training::{GeneratorTrainer, GeneratorTraining, RetrievedExample, Targets, TrainSettings, mean_score},
};

impl GeneratorTrainer for MemNetOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let TrainableModel { model, tokenizer, variables, extra_files } = training.init_model()?;
        let GeneratorTraining { settings, examples, validation, store, .. } = &training;
        let rows = Rows {
            input: MemoryInput::new(self, tokenizer.clone(), model.max_input_length(), store.clone())?,
            targets: Targets::new(&tokenizer, settings.target_tokens, &self.generation, model.as_ref())?,
            store: store.as_deref(),
            network: self,
            settings,
        };
        let rows: Vec<MemoryRow> =
            examples.iter().map(|retrieved| rows.row(retrieved)).collect::<Result<_>>()?;
        let known = rows.iter().filter(|row| row.gold.is_some()).count();
        tracing::info!(known, records = rows.len(), "records whose gold knowledge is in their memory");
        let objective =
            MemoryObjective::new(model.as_ref(), &variables, &rows, settings.knowledge, settings.optimizer)?;
        let generator = MemNet::new(self, model.clone(), tokenizer.clone(), store.clone())?;
        let evaluate = || mean_score(&generator, validation).map_err(EvaluationError::from);
        let session = training.session(&variables, &extra_files);
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?)
    }
}

/// Tokenizes examples.
struct Rows<'a> {
    input: MemoryInput,
    targets: Targets<'a>,
    store: Option<&'a PassageStore>,
    network: &'a MemNetOptions,
    settings: &'a TrainSettings<'a>,
}

impl Rows<'_> {
    fn row(&self, retrieved: &RetrievedExample) -> Result<MemoryRow> {
        let query = &retrieved.example.query;
        let passages: Vec<&Passage> = retrieved.passages.iter().map(|(passage, _)| passage).collect();
        let (mut pieces, mut gold) = self.pieces(retrieved, &passages)?;
        pieces.truncate(self.input.most());
        gold = gold.filter(|gold| *gold < pieces.len());
        if let (None, true, Some(store)) = (gold, self.settings.add_gold, self.store) {
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
        // Every record has an answer.
        let target = answers.first().copied().unwrap_or_default();
        Ok(MemoryRow {
            dialogue: self.input.dialogue_tokens(&self.input.dialogue(query)?)?,
            pieces: pieces.iter().map(|text| self.input.piece_tokens(text)).collect::<Result<_>>()?,
            gold,
            target: self.targets.row(target)?,
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
