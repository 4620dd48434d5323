//! Training of retrieval-augmented generators. The generator reads each passage separately. The gradient of its loss also
//! trains the question encoder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::DType;
use rayon::prelude::*;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{Hit, PassageId, PassageStore, Query, StagedFolder, observe::Observer};
use sporran_training::{
    EvaluationError, FoundPassage, IndexError, LiveIndex, RAG_PREFIXES, RagLoss, RagModels, RagObjective,
    RagQuestion, export_part,
    session::{TrainableModel, Trained},
};
use sporran_transformers::{EncoderRow, Seq2Seq};

use super::{RagGenerator, RagSequenceOptions, RagTokenOptions};
use crate::{
    Candidate, Error, Prompt, PromptOptions, Request, Result,
    training::{GeneratorTrainer, GeneratorTraining, LiveRetrieval, RetrievedExample, mean_score},
};

impl GeneratorTrainer for RagTokenOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn is_live(&self) -> bool {
        true
    }

    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let answers = |model, tokenizer| RagGenerator::token(self, model, tokenizer);
        train(training, (RagLoss::Token, &self.prompt), answers, observe)
    }
}

impl GeneratorTrainer for RagSequenceOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn is_live(&self) -> bool {
        true
    }

    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let answers = |model, tokenizer| RagGenerator::sequence(self, model, tokenizer);
        train(training, (RagLoss::Sequence, &self.prompt), answers, observe)
    }
}

/// Trains the generator, and the question encoder if the settings name one. `generator` makes the generator of the
/// validation.
fn train(
    mut training: GeneratorTraining<'_>,
    (loss, prompt): (RagLoss, &PromptOptions),
    generator: impl FnOnce(Arc<dyn Seq2Seq>, Tokenizer) -> Result<RagGenerator>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let missing = |option, problem| Error::Training { option, problem };
    let store =
        training.store.clone().ok_or(missing("source", "is missing; RAG generates from its passages"))?;
    let live = training.live.ok_or(missing("retriever", "is missing; RAG is trained with its scores"))?;
    let mut validation = std::mem::take(&mut training.validation);
    let TrainableModel { model, tokenizer, variables, extra_files } = training.init_model()?;
    let (settings, examples) = (training.settings, &training.examples);

    let questions_of = live.index.open_encoder(training.seed, &settings.device.open()?);
    let questions_of = questions_of.map_err(Error::Index)?;
    let encoder_learns = settings.question_encoder.is_some();
    let models = RagModels {
        encoder: &questions_of.encoder,
        pooling: questions_of.pooling,
        encoder_learns,
        generator: model.as_ref(),
        variables: &variables,
    };
    let search = PassageSearch {
        store: &store,
        index: live.index,
        vectors: Mutex::default(),
        prompt: Prompt::new(prompt.clone())?,
        max_tokens: model.max_input_length().unwrap_or(usize::MAX).min(prompt.max_tokens),
        tokenizer: &tokenizer,
    };
    let questions: Vec<RagQuestion> = rows(live, examples)?
        .into_iter()
        .zip(examples)
        .map(|(question, retrieved)| {
            let answers = retrieved.example.answers();
            // Every record has an answer.
            let target = answers.first().copied().unwrap_or_default();
            Ok(RagQuestion { question, target: tokenizer.encode(target, Some(settings.target_tokens))? })
        })
        .collect::<Result<_>>()?;
    let find = |batch: &[usize], vectors: &[Vec<f32>]| {
        let queries: Vec<&Query> = batch.iter().map(|&at| &examples[at].example.query).collect();
        let what = "the search for passages";
        search
            .find(&queries, vectors)
            .map_err(|error| sporran_checkpoint::Error::Callback { what, source: error.into() })
    };
    let optimizer = settings.optimizer;
    let tokens_each = prompt.passages * search.max_tokens;
    let objective = RagObjective::new(models, &questions, &find, loss, optimizer, tokens_each)?;

    let validation_rows = rows(live, &validation)?;
    let answers = generator(model.clone(), tokenizer.clone())?;
    let validation = Mutex::new(&mut validation);
    let score = || -> Result<f64> {
        let mut validation = validation.lock().unwrap_or_else(PoisonError::into_inner);
        let vectors =
            models.vectors(&validation_rows.iter().collect::<Vec<_>>(), optimizer.tokens_per_batch)?;
        for (retrieved, found) in validation.iter_mut().zip(search.nearest(&vectors)?) {
            retrieved.passages = found.iter().map(|hit| (store.passage(hit.passage), hit.score)).collect();
        }
        match training.score {
            Some(score) => score.mean(&answers, &validation),
            None => mean_score(&answers, &validation),
        }
    };
    let evaluate = || score().map_err(EvaluationError::from);
    let trained = models.trained();
    let session = training.session(&trained, &[]);
    let outcome =
        session.optimise(&objective, (!validation_rows.is_empty()).then_some(&evaluate), observe)?;
    if let Some(best) = &outcome.best_folder {
        let [generator, encoder] = RAG_PREFIXES;
        let staged = StagedFolder::create(settings.model)?;
        export_part(best, generator, &staged.path(), DType::F16, &extra_files)?;
        if encoder_learns {
            live.index.save_encoder(best, encoder, &questions_of).map_err(Error::Index)?;
        }
        staged.commit()?;
    }
    Ok(Trained { model: settings.model.to_path_buf(), steps: outcome.step, best: outcome.best })
}

/// The questions of records, as the input of the question encoder.
fn rows(live: LiveRetrieval<'_>, retrieved_examples: &[RetrievedExample]) -> Result<Vec<EncoderRow>> {
    let queries: Vec<Query> =
        retrieved_examples.iter().map(|retrieved| (live.query)(&retrieved.example.query)).collect();
    let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
    live.index.rows(&texts).map_err(Error::Index)
}

/// Retrieval of passages during training.
struct PassageSearch<'a> {
    store: &'a PassageStore,
    index: &'a dyn LiveIndex,
    /// Cached vectors of retrieved passages.
    vectors: Mutex<HashMap<PassageId, Vec<f32>>>,
    prompt: Prompt,
    tokenizer: &'a Tokenizer,
    max_tokens: usize,
}

impl PassageSearch<'_> {
    /// The nearest passages of each vector; the prompt's number of passages.
    fn nearest(&self, vectors: &[Vec<f32>]) -> Result<Vec<Vec<Hit>>> {
        let PromptOptions { passages, .. } = self.prompt.options();
        self.index.nearest(vectors, (*passages).max(1)).map_err(Error::Index)
    }

    /// The retrieved passages of queries with these vectors, as prompts in tokens.
    fn find(&self, queries: &[&Query], vectors: &[Vec<f32>]) -> Result<Vec<Vec<FoundPassage>>> {
        let found = self.nearest(vectors)?;
        self.encode(found.iter().flatten().map(|hit| hit.passage)).map_err(Error::Index)?;
        let cached = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let passage = |rank: usize, query: &Query, id: PassageId| -> Result<FoundPassage> {
            let passage = self.store.passage(id);
            let candidates = [Candidate { passage: &passage, score: 0.0 }];
            let request = Request { query, passages: &candidates };
            let text = self.prompt.text_from(rank, &request, self.tokenizer)?;
            let text = self.tokenizer.encode(&text, Some(self.max_tokens))?;
            Ok(FoundPassage { vector: cached[&id].clone(), text })
        };
        let of = |(query, found): (&&Query, &Vec<Hit>)| {
            (1..).zip(found).map(|(rank, hit)| passage(rank, query, hit.passage)).collect::<Result<Vec<_>>>()
        };
        queries.par_iter().zip(&found).map(of).collect()
    }

    /// Encodes passages whose vectors are not cached.
    fn encode(&self, ids: impl Iterator<Item = PassageId>) -> Result<(), IndexError> {
        let mut cached = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<PassageId> = ids.filter(|id| !cached.contains_key(id)).collect();
        new.sort_unstable();
        new.dedup();
        if new.is_empty() {
            return Ok(());
        }
        let texts: Vec<(&str, String)> = new
            .iter()
            .map(|id| (self.store.page_title(self.store.page_of(*id)), self.store.text(*id)))
            .collect();
        let pairs: Vec<(&str, &str)> = texts.iter().map(|(title, text)| (*title, text.as_str())).collect();
        let vectors = self.index.passage_vectors(&pairs)?;
        cached.extend(new.into_iter().zip(vectors));
        Ok(())
    }
}
