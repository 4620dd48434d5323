//! The vectors of an encoder after masked language modelling.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::{MaskedLmObjective, MaskingTokens, TunedEncoder, session::encoder_files};
use sporran_transformers::{BertTask, Checkpoint, Text};

use super::{GradedQuery, RerankerSession, RerankerTrainingKind, TunedOptions};
use crate::{Result, Saved};

/// Masked language modelling on the dialogues and sentences. The reranker compares vectors of the trained encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MaskedLmOptions(pub TunedOptions);

impl RerankerTrainingKind for MaskedLmOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.0.from)
    }

    fn combines(&self) -> bool {
        false
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.0.check(key, document);
    }

    fn train(&self, session: &RerankerSession<'_>, observe: &mut Observer<'_>) -> Result<u64> {
        let Self(tuned) = self;
        let checkpoint = Checkpoint::open(&tuned.from)?;
        let device = tuned.device.open()?;
        let encoder = TunedEncoder::open(&checkpoint, BertTask::MaskedLm, 1, session.seed, &device)?;
        let input = tuned.input(&checkpoint, &encoder)?;
        let tokenizer = checkpoint.tokenizer()?;
        // Texts of several queries are used once.
        let mut texts: Vec<String> = session.queries.iter().flat_map(GradedQuery::texts).collect();
        texts.sort_unstable();
        texts.dedup();
        let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
        let rows = input.rows(&texts)?;
        let optimizer = tuned.optimizer(session.seed);
        let objective = MaskedLmObjective::new(&encoder, rows, MaskingTokens::of(&tokenizer)?, &optimizer)?;
        let files = encoder_files(&checkpoint, encoder.config())?;
        let steps = session.run(&objective, &encoder, &optimizer, None, &files, observe)?;
        Saved::Cosine { max_tokens: Some(tuned.max_tokens) }.write(session.model)?;
        Ok(steps)
    }
}
