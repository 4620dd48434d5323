//! Loading of saved rerankers.

use std::path::Path;

use crate::{
    COUNTS, Combined, Computing, Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, LlmOptions,
    LlmReranker, PositionPrior, Reranker, Result, Saved, SavedPart, Term, TfIdf, TitleMatch, TitleSimilarity,
};

/// Loads the reranker of a folder.
///
/// # Errors
/// Errors of [`Saved::read`] and of loading the models.
pub fn open(folder: &Path, computing: Computing) -> Result<Box<dyn Reranker>> {
    let Computing { precision, device, batch_tokens } = computing;
    Ok(match Saved::read(folder)? {
        Saved::TfIdf { titles_only: false } => Box::new(TfIdf::load(&folder.join(COUNTS))?),
        Saved::TfIdf { titles_only: true } => {
            Box::new(TitleSimilarity::new(TfIdf::load(&folder.join(COUNTS))?))
        }
        Saved::Cosine { max_tokens } => Box::new(Cosine::load(&CosineOptions {
            folder: folder.into(),
            max_tokens,
            precision,
            device,
            batch_tokens,
        })?),
        Saved::CrossEncoder { max_tokens, truncation } => {
            Box::new(CrossEncoder::load(&CrossEncoderOptions {
                max_tokens,
                truncation: Some(truncation),
                precision,
                device,
                batch_tokens,
                ..CrossEncoderOptions::new(folder.into())
            })?)
        }
        Saved::Llm { .. } => Box::new(LlmReranker::load(&LlmOptions {
            precision,
            device,
            batch_tokens,
            ..LlmOptions::new(folder.into())
        })?),
        Saved::TitleMatch => Box::new(TitleMatch),
        Saved::PositionPrior => Box::new(PositionPrior),
        Saved::Combined { parts } => {
            let (mut names, mut rerankers, mut terms) = (Vec::new(), Vec::new(), Vec::new());
            for SavedPart { folder: name, view, weight, standardised } in parts {
                let known = names.iter().position(|known| *known == name);
                let reranker = known.unwrap_or(names.len());
                if known.is_none() {
                    rerankers.push(open(&folder.join(&name), computing)?);
                    names.push(name);
                }
                terms.push(Term { reranker, view, weight, standardised });
            }
            Box::new(Combined::new(rerankers, terms))
        }
    })
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{Passage, Query};
    use sporran_transformers::{DeviceName, Precision};

    use super::*;
    use crate::{QueryView, RERANKER};

    #[test]
    fn a_saved_reranker_is_opened_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let computing = Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 100 };
        let words = folder.path().join("words");
        std::fs::create_dir(&words).unwrap();
        Saved::TfIdf { titles_only: false }.write(&words).unwrap();
        TfIdf::fit(["tea", "tea and milk"]).save(&words.join(COUNTS)).unwrap();
        let parts = vec![SavedPart {
            folder: "words".into(),
            view: QueryView::default(),
            weight: 2.0,
            standardised: true,
        }];
        let saved = Saved::Combined { parts };
        saved.write(folder.path()).unwrap();
        assert_eq!(Saved::read(folder.path()).unwrap(), saved);
        let reranker = open(folder.path(), computing).unwrap();
        let (a, b) = (Passage::of_text("milk"), Passage::of_text("sea"));
        let scores = reranker.score(&Query::of_text("q", "milk"), &[&a, &b]).unwrap();
        assert!(scores[0] > scores[1]);
        std::fs::write(folder.path().join(RERANKER), r#"{"kind": "tf-idf"}"#).unwrap();
        let message = open(folder.path(), computing).err().unwrap().to_string();
        assert!(message.contains("tf-idf") && message.contains("tfidf"), "{message}");
    }
}
