//! Settings of the encoders' folders, and config options that override them.

use std::path::Path;

use candle_core::{DType, Device};
use sporran_checkpoint::{Role, SentenceSettings, VectorSimilarity};
use sporran_config::Override;
use sporran_transformers::{Sentences, folder_max_tokens};

use super::{DenseOptions, Similarity};
use crate::Result;

/// The vector settings of a sentence-transformers folder.
pub(super) fn settings(folder: &Path) -> Result<Option<SentenceSettings>> {
    Ok(SentenceSettings::of_layout(folder)?)
}

impl DenseOptions {
    /// The similarity of vectors: from the options, else from the query encoder's folder, else from the
    /// passage encoder's. The default is the inner product.
    ///
    /// # Errors
    /// Errors of a folder's files.
    pub fn similarity(&self) -> Result<Similarity> {
        if let Some(similarity) = self.similarity {
            return Ok(similarity);
        }
        for folder in std::iter::once(&self.model).chain(&self.passage_model) {
            match settings(folder)?.map(|settings| settings.similarity) {
                None => {}
                Some(VectorSimilarity::Cosine) => return Ok(Similarity::Cosine),
                Some(VectorSimilarity::Dot) => return Ok(Similarity::InnerProduct),
                Some(VectorSimilarity::Euclidean) => return Ok(Similarity::Euclidean),
                Some(VectorSimilarity::Manhattan) => return Ok(Similarity::Manhattan),
            }
        }
        Ok(Similarity::InnerProduct)
    }

    /// The folder settings that the options override, by the names of these options.
    ///
    /// # Errors
    /// Errors of a folder's files.
    pub fn overrides(&self) -> Result<Vec<(&'static str, Override)>> {
        let mut found = Vec::new();
        let mut push = |option, folder: String, config: String| {
            if folder != config {
                found.push((option, Override { folder, config }));
            }
        };
        let passages = self.passage_model.as_ref().unwrap_or(&self.model);
        let (asking, answering) = (settings(&self.model)?, settings(passages)?);
        let roles = [
            ("query-template", Role::Query, "{text}", &asking, &self.query_template),
            ("passage-template", Role::Passage, "{title} {text}", &answering, &self.passage_template),
        ];
        for (option, role, text, settings, template) in roles {
            if let (Some(settings), Some(template)) = (settings, template) {
                let prompt = settings.prompt(role).replace('{', "{{").replace('}', "}}");
                push(option, format!("{prompt}{text}"), template.clone());
            }
        }
        if let (Some(settings), Some(similarity)) = (&asking, self.similarity) {
            let own = match settings.similarity {
                VectorSimilarity::Dot => Similarity::InnerProduct.name().to_owned(),
                other => other.to_string(),
            };
            push("similarity", own, similarity.name().to_owned());
        }
        if let (Some(own), Some(dimensions)) =
            (asking.and_then(|settings| settings.truncate_dim), self.dimensions)
        {
            push("dimensions", own.to_string(), dimensions.to_string());
        }
        if let Some(pooling) = self.pooling
            && let Some(sentences) = Sentences::open(&self.model, DType::F32, &Device::Cpu)?
        {
            let own: Vec<String> = sentences.pooling.iter().map(ToString::to_string).collect();
            push("pooling", own.join(" "), pooling.to_string());
        }
        let limits = [
            ("max-tokens", passages, self.max_tokens),
            ("query-max-tokens", &self.model, self.query_max_tokens),
        ];
        for (option, folder, most) in limits {
            if let (Some(own), Some(most)) = (folder_max_tokens(folder)?, most) {
                push(option, own.to_string(), most.to_string());
            }
        }
        Ok(found)
    }
}
