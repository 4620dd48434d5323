//! Training of retrieval-augmented generators. The generator reads each passage separately. The gradient of
//! its loss also trains the question encoder.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{DType, Device};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use sporran_checkpoint::Tokenizer;
use sporran_generator::{
    Candidate, Prompt, PromptOptions, RagGenerator, RagSequenceOptions, RagTokenOptions, Request,
    RetrievedExample, mean_score,
};
use sporran_kilt::{PassageId, PassageStore, Query, StagedFolder, observe::Observer};
use sporran_retriever::dense::{
    Dense, DenseOptions, Embeddings, PassageEncoder, SentenceLayout, SentencePrompts, Similarity, VectorIndex,
};
use sporran_training::{
    EvaluationError, FoundPassage, RAG_PREFIXES, RagLoss, RagModels, RagObjective, RagQuestion, TunedEncoder,
    export_part,
    session::{TrainableModel, Trained, encoder_files},
};
use sporran_transformers::{Checkpoint, Head, Pooling, Sentences};

use crate::{
    Error, Result,
    tasks::query::for_retrieval,
    workflows::answer::{
        assemble::assemble_dense,
        check::dense_options,
        options::{Options, TrainOptions},
        train::examples::{retrieved_examples, training},
    },
};

fn fault(key: &str, message: &str) -> Error {
    let (origin, key, message) = ("config".into(), key.into(), message.into());
    Error::Config(vec![sporran_config::Diagnostic { origin, line: 0, key, message }])
}

/// The kind of generator.
#[derive(Clone, Copy)]
pub(crate) enum Rag<'a> {
    /// `kind = "rag-token"`
    Token(&'a RagTokenOptions),
    /// `kind = "rag-sequence"`
    Sequence(&'a RagSequenceOptions),
}

/// Trains the models of a `rag-token` or `rag-sequence` generator on the records of `[train.examples]`, and
/// validates their answers on `[tasks]`.
///
/// # Errors
/// [`Error::Config`] if the retriever cannot be trained with; errors of files, index, models or training.
pub(crate) fn train_rag(
    options: &Options,
    train: &TrainOptions,
    rag: Rag<'_>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let (loss, prompt) = match rag {
        Rag::Token(rag) => (RagLoss::Token, &rag.prompt),
        Rag::Sequence(rag) => (RagLoss::Sequence, &rag.prompt),
    };
    let written = dense_options(options).map_err(|(key, message)| fault(key, message))?;
    let from = train.question_encoder.as_ref().unwrap_or(&written.model);
    // The initial encoder may have another similarity. The trained one has the inner product.
    let similarity = Some(Similarity::InnerProduct);
    let dense_options = DenseOptions { model: from.clone(), similarity, ..written.clone() };
    let (assembly, dense) = assemble_dense(options, &dense_options, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; RAG generates from its passages"));
    };
    // Passages are retrieved during training, with the current question encoder.
    let mut read = |files, table, limit| {
        retrieved_examples(options, files, table, limit, prompt.passages, false, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None)?;
    let mut validation = read(&options.general.tasks, "tasks", Some(train.validation_records))?;
    let training = training(options, train, &assembly, (examples, Vec::new()));
    let TrainableModel { model, tokenizer, variables, extra_files } = training.init_model()?;
    let examples = &training.examples;

    let (checkpoint, pooling) = questions_from(from, &dense_options)?;
    let device = train.device.open()?;
    let encoder = TunedEncoder::open_questions(&checkpoint, options.general.seed, &device)?;
    let encoder_learns = train.question_encoder.is_some();
    let models = RagModels {
        encoder: &encoder,
        pooling,
        encoder_learns,
        generator: model.as_ref(),
        variables: &variables,
    };
    let search = PassageSearch {
        store,
        passages: PassageEncoder::load(&dense_options)?,
        vectors: Mutex::default(),
        prompt: Prompt::new(prompt.clone())?,
        max_tokens: model.max_input_length().unwrap_or(usize::MAX).min(prompt.max_tokens),
        tokenizer: &tokenizer,
        dense: &dense,
    };
    let rows = |retrieved_examples: &[RetrievedExample]| {
        let queries: Vec<Query> = retrieved_examples
            .iter()
            .map(|retrieved| for_retrieval(&retrieved.example.query, &options.general.query))
            .collect();
        dense.rows(&queries.iter().map(|query| query.text.as_str()).collect::<Vec<_>>())
    };
    let questions: Vec<RagQuestion> = rows(examples)?
        .into_iter()
        .zip(examples)
        .map(|(question, retrieved)| {
            let answers = retrieved.example.answers();
            // `retrieved_examples` skips records without an answer.
            let target = answers.first().copied().unwrap_or_default();
            Ok(RagQuestion { question, target: tokenizer.encode(target, Some(train.target_tokens))? })
        })
        .collect::<Result<_>>()?;
    let find = |batch: &[usize], vectors: &[Vec<f32>]| {
        let queries: Vec<&Query> = batch.iter().map(|&at| &examples[at].example.query).collect();
        search.find(&queries, vectors).map_err(|error| sporran_checkpoint::Error::Callback {
            what: "the search for passages",
            source: error.into(),
        })
    };
    let optimizer = &train.optimizer;
    let tokens_each = prompt.passages * search.max_tokens;
    let objective = RagObjective::new(models, &questions, &find, loss, optimizer, tokens_each)?;

    let validation_rows = rows(&validation)?;
    let answers = match rag {
        Rag::Sequence(rag) => RagGenerator::sequence(rag, model.clone(), tokenizer.clone())?,
        Rag::Token(rag) => RagGenerator::token(rag, model.clone(), tokenizer.clone())?,
    };
    let validation = Mutex::new(&mut validation);
    let score = || -> Result<f64> {
        let mut validation = validation.lock().unwrap_or_else(PoisonError::into_inner);
        let vectors =
            models.vectors(&validation_rows.iter().collect::<Vec<_>>(), optimizer.tokens_per_batch)?;
        for (retrieved, found) in validation.iter_mut().zip(search.search(&vectors)?) {
            retrieved.passages = found.iter().map(|(id, score)| (store.passage(*id), *score)).collect();
        }
        Ok(mean_score(&answers, &validation)?)
    };
    let evaluate = || score().map_err(EvaluationError::from);
    let trained = models.trained();
    let session = training.session(&trained, &[]);
    let outcome =
        session.optimise(&objective, (!validation_rows.is_empty()).then_some(&evaluate), observe)?;
    if let Some(best) = &outcome.best_folder {
        let generator = StagedFolder::create(&train.model)?;
        export_part(best, RAG_PREFIXES[0], &generator.path(), DType::F16, &extra_files)?;
        if encoder_learns {
            let questions = StagedFolder::create(&written.model)?;
            let files = encoder_files(&checkpoint, encoder.config())?;
            export_part(best, RAG_PREFIXES[1], &questions.path(), DType::F32, &files)?;
            if !matches!(encoder.head(), Head::Vector(_)) {
                let layout = SentenceLayout {
                    pooling,
                    similarity: Similarity::InnerProduct,
                    width: encoder.config().hidden_size,
                    prompts: SentencePrompts::of(from)?,
                };
                layout.write(&questions.path())?;
            }
            questions.commit()?;
        }
        generator.commit()?;
    }
    Ok(Trained { model: train.model.clone(), steps: outcome.step, best: outcome.best })
}

/// The question encoder of a folder and its pooling. Its vectors are not normalized, even if the folder says
/// so: training learns their norm, which is the sharpness of the softmax over passages.
fn questions_from(folder: &Path, dense: &DenseOptions) -> Result<(Checkpoint, Pooling)> {
    let Some(sentences) = Sentences::open(folder, DType::F32, &Device::Cpu)? else {
        // DPR's head produces the vector.
        return Ok((Checkpoint::open(folder)?, dense.pooling.unwrap_or(Pooling::Cls)));
    };
    let pooling = sentences.direction().filter(|own| dense.pooling.is_none_or(|wanted| wanted == *own));
    let expected = "expected an encoder of pooled hidden states, normalized or not";
    let pooling = pooling.ok_or_else(|| fault("train.question-encoder", expected))?;
    Ok((Checkpoint::open(&sentences.encoder)?, pooling))
}

/// Retrieval of passages during training.
struct PassageSearch<'a> {
    store: &'a Arc<PassageStore>,
    dense: &'a Dense,
    passages: PassageEncoder,
    /// Cached vectors of retrieved passages.
    vectors: Mutex<FxHashMap<PassageId, Vec<f32>>>,
    prompt: Prompt,
    tokenizer: &'a Tokenizer,
    max_tokens: usize,
}

impl PassageSearch<'_> {
    /// The nearest passages of each vector; the prompt's number of passages.
    fn search(&self, vectors: &[Vec<f32>]) -> Result<Vec<Vec<(PassageId, f32)>>> {
        let Some(width) = vectors.first().map(Vec::len) else { return Ok(Vec::new()) };
        let queries = Embeddings::new(width, vectors.concat())?;
        let PromptOptions { passages, .. } = self.prompt.options();
        let found = self.dense.index().search(&queries, (*passages).max(1), None)?;
        let hit = |(id, score)| (PassageId(id), score);
        Ok(found.into_iter().map(|found| found.into_iter().map(hit).collect()).collect())
    }

    /// The retrieved passages of queries with these vectors, as prompts in tokens.
    fn find(&self, queries: &[&Query], vectors: &[Vec<f32>]) -> Result<Vec<Vec<FoundPassage>>> {
        let found = self.search(vectors)?;
        self.encode(found.iter().flatten().map(|(id, _)| *id))?;
        let cached = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let passage = |rank: usize, query: &Query, id: &PassageId| -> Result<FoundPassage> {
            let passage = self.store.passage(*id);
            let candidates = [Candidate { passage: &passage, score: 0.0 }];
            let request = Request { query, passages: &candidates };
            let text = self.prompt.text_from(rank, &request, self.tokenizer)?;
            let text = self.tokenizer.encode(&text, Some(self.max_tokens))?;
            Ok(FoundPassage { vector: cached[id].clone(), text })
        };
        let of = |(query, found): (&&Query, &Vec<(PassageId, f32)>)| {
            (1..).zip(found).map(|(rank, (id, _))| passage(rank, query, id)).collect::<Result<Vec<_>>>()
        };
        queries.par_iter().zip(&found).map(of).collect()
    }

    /// Encodes passages whose vectors are not cached.
    fn encode(&self, ids: impl Iterator<Item = PassageId>) -> Result<()> {
        let mut cached = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<PassageId> = ids.filter(|id| !cached.contains_key(id)).collect();
        new.sort_unstable();
        new.dedup();
        let texts: Vec<(&str, String)> = new
            .iter()
            .map(|id| (self.store.page_title(self.store.page_of(*id)), self.store.text(*id)))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let pairs: Vec<(&str, &str)> = texts.iter().map(|(title, text)| (*title, text.as_str())).collect();
        let vectors = self.passages.encode(&pairs)?;
        cached.extend(new.into_iter().zip(vectors.rows().map(<[f32]>::to_vec)));
        Ok(())
    }
}
