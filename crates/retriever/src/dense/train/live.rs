//! A dense retriever whose question encoder is trained with a generator (Lewis et al. 2020).

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use sporran_kilt::{Hit, PassageId, StagedFolder};
use sporran_training::{
    IndexError, LiveIndex, QuestionEncoder, TunedEncoder, export_part, session::encoder_files,
};
use sporran_transformers::{Checkpoint, EncoderRow, Head, Pooling, Sentences};

use crate::{
    Error, Result, Site,
    dense::{
        Dense, DenseOptions, Embeddings, PassageEncoder, SentenceLayout, SentencePrompts, Similarity,
        VectorIndex,
    },
};

impl DenseOptions {
    /// Checks that a training of retrieval-augmented generation can use this retriever. `trains_encoder`: whether it trains the
    /// question encoder.
    ///
    /// # Errors
    /// The wrong key and a message.
    pub fn check_live(&self, trains_encoder: bool) -> Result<(), (&'static str, &'static str)> {
        if self.similarity.is_some_and(|similarity| similarity != Similarity::InnerProduct) {
            return Err(("similarity", "expected `inner-product`: RAG weights passages by it"));
        }
        if trains_encoder && self.passage_model.is_none() {
            let message = "is missing; the training of the question encoder keeps the vectors of passages";
            return Err(("passage-model", message));
        }
        Ok(())
    }
}

/// A dense retriever during a training of retrieval-augmented generation.
pub struct LiveDense {
    /// The options with the initial question encoder as the model.
    options: DenseOptions,
    /// The folder of the trained question encoder.
    model: PathBuf,
    dense: Dense,
    passages: PassageEncoder,
}

impl LiveDense {
    /// Opens the retriever with the question encoder `from`, by default that of the options. Builds the index if it does not
    /// exist.
    ///
    /// # Errors
    /// Errors of the index or a model.
    pub fn open(options: &DenseOptions, from: Option<&Path>, site: &mut dyn Site) -> Result<Self> {
        let model = options.model.clone();
        // The initial encoder may have another similarity. The trained one has the inner product.
        let similarity = Some(Similarity::InnerProduct);
        let from = from.unwrap_or(&model).to_path_buf();
        let options = DenseOptions { model: from, similarity, ..options.clone() };
        let dense = options.open_index(site)?;
        let passages = PassageEncoder::load(&options)?;
        Ok(Self { options, model, dense, passages })
    }

    /// The question encoder's folder and its pooling. Its vectors are not normalized, even if the folder says so: training
    /// learns their norm, which is the sharpness of the softmax over passages.
    fn initial(&self) -> Result<(Checkpoint, Pooling)> {
        let DenseOptions { model, pooling, .. } = &self.options;
        let Some(sentences) = Sentences::open(model, DType::F32, &Device::Cpu)? else {
            // DPR's head produces the vector.
            return Ok((Checkpoint::open(model)?, pooling.unwrap_or(Pooling::Cls)));
        };
        let own = sentences.direction().filter(|own| pooling.is_none_or(|wanted| wanted == *own));
        let own = own.ok_or_else(|| Error::Option {
            option: "train.question-encoder",
            expected: "an encoder of pooled hidden states, normalized or not",
            found: model.display().to_string(),
        })?;
        Ok((Checkpoint::open(&sentences.encoder)?, own))
    }

    fn search(&self, vectors: &[Vec<f32>], k: usize) -> Result<Vec<Vec<Hit>>> {
        let Some(width) = vectors.first().map(Vec::len) else { return Ok(Vec::new()) };
        let queries = Embeddings::new(width, vectors.concat())?;
        let found = self.dense.index().search(&queries, k, None)?;
        let hit = |(id, score)| Hit { passage: PassageId(id), score };
        Ok(found.into_iter().map(|found| found.into_iter().map(hit).collect()).collect())
    }

    fn save(&self, snapshot: &Path, prefix: &str, trained: &QuestionEncoder) -> Result<()> {
        let (checkpoint, pooling) = (self.initial()?.0, trained.pooling);
        let config = trained.encoder.config();
        let staged = StagedFolder::create(&self.model)?;
        export_part(snapshot, prefix, &staged.path(), DType::F32, &encoder_files(&checkpoint, config)?)?;
        if !matches!(trained.encoder.head(), Head::Vector(_)) {
            let layout = SentenceLayout {
                pooling,
                similarity: Similarity::InnerProduct,
                width: config.hidden_size(),
                prompts: SentencePrompts::of(&self.options.model)?,
            };
            layout.write(&staged.path())?;
        }
        Ok(staged.commit()?)
    }
}

impl LiveIndex for LiveDense {
    fn open_encoder(&self, seed: u64, device: &Device) -> Result<QuestionEncoder, IndexError> {
        let (checkpoint, pooling) = self.initial()?;
        Ok(QuestionEncoder { encoder: TunedEncoder::open_questions(&checkpoint, seed, device)?, pooling })
    }

    fn rows(&self, questions: &[&str]) -> Result<Vec<EncoderRow>, IndexError> {
        Ok(self.dense.rows(questions)?)
    }

    fn nearest(&self, vectors: &[Vec<f32>], k: usize) -> Result<Vec<Vec<Hit>>, IndexError> {
        Ok(self.search(vectors, k)?)
    }

    fn passage_vectors(&self, passages: &[(&str, &str)]) -> Result<Vec<Vec<f32>>, IndexError> {
        Ok(self.passages.encode(passages)?.rows().map(<[f32]>::to_vec).collect())
    }

    fn save_encoder(
        &self,
        snapshot: &Path,
        prefix: &str,
        trained: &QuestionEncoder,
    ) -> Result<(), IndexError> {
        Ok(self.save(snapshot, prefix, trained)?)
    }
}
