//! `[encoder-training]`: the records of an encoder's training, and the kinds of encoders of all stages.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document, FromTable, Invalid, Kinds, Table, take_keys};
use sporran_kilt::observe::Observer;
use sporran_reranker::training::contrast::ContrastRerankerTraining;
use sporran_retriever::training::RetrieverTraining;
use sporran_training::session::{ContrastTraining, Trained};

use crate::{Result, tasks::options::TasksOptions};

/// `[encoder-training]`: the training of an encoder by `sporran train`. The config's `[retriever]` mines hard negatives. The
/// validation score is the mean reciprocal rank of the first positive passage among the retrieved passages of `[tasks]`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EncoderTraining {
    /// The records. Their keys are in the same table as those of the kind.
    #[serde(flatten)]
    pub records: ContrastRecords,
    /// The encoder, by `kind`.
    #[serde(flatten)]
    pub encoder: TrainedEncoder,
}

/// The keys of `[encoder-training]` about its records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ContrastRecords {
    /// Training files in DPR's layout.
    #[serde(default)]
    pub data: Vec<PathBuf>,
    /// Training files of WOW++. At each turn the article of the dialogue's topic is positive, other articles are negative.
    #[serde(default)]
    pub dialogues: Vec<PathBuf>,
    /// Task files for training. The retriever mines their hard negatives.
    pub examples: Option<TasksOptions>,
    /// The number of passages to retrieve for a record. Passages that are not of gold pages are hard negatives.
    #[serde(default = "depth")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// The number of validation records of each task file, the first ones.
    #[serde(default = "validation_records")]
    #[schemars(extend("x-unit" = "records"))]
    pub validation_records: usize,
}

/// The keys of [`ContrastRecords`].
const RECORDS: [&str; 5] = ["data", "dialogues", "examples", "depth", "validation-records"];

fn depth() -> usize {
    30
}

fn validation_records() -> usize {
    200
}

/// The encoder of a training, of the stage that uses it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TrainedEncoder {
    /// An encoder of a retriever.
    Retriever(RetrieverTraining),
    /// A reranker.
    Reranker(ContrastRerankerTraining),
}

impl Kinds for TrainedEncoder {
    fn kinds() -> Vec<&'static str> {
        [RetrieverTraining::kinds(), ContrastRerankerTraining::kinds()].concat()
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Retriever(training) => training.kind(),
            Self::Reranker(training) => training.kind(),
        }
    }

    fn from_kind<'t>(
        kind: &str,
        document: &mut Document<'t>,
        key: &str,
        table: Table<'t>,
    ) -> Option<Result<Self, Invalid>> {
        if RetrieverTraining::kinds().contains(&kind) {
            let read = RetrieverTraining::from_kind(kind, document, key, table)?;
            return Some(read.map(Self::Retriever));
        }
        let read = ContrastRerankerTraining::from_kind(kind, document, key, table)?;
        Some(read.map(Self::Reranker))
    }
}

impl TrainedEncoder {
    /// The folder of the trained model.
    pub(crate) fn model(&self) -> &Path {
        match self {
            Self::Retriever(encoder) => encoder.model(),
            Self::Reranker(encoder) => encoder.model(),
        }
    }

    /// Trains the encoder and writes its folder.
    ///
    /// # Errors
    /// Errors of the stage.
    pub(crate) fn train(
        &self,
        training: ContrastTraining<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        Ok(match self {
            Self::Retriever(encoder) => encoder.train(training, observe)?,
            Self::Reranker(encoder) => encoder.train(training, observe)?,
        })
    }
}

impl FromTable for EncoderTraining {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let records = take_keys(&mut table, &RECORDS);
        let records = document.read(key, records, &[]).ok_or(Invalid);
        document.name_taken(&RECORDS);
        let encoder = TrainedEncoder::from_stage(document, key, table);
        // A wrong `kind` ends before any table is read.
        document.name_taken(&[]);
        Ok(Self { records: records?, encoder: encoder? })
    }
}

impl Check for EncoderTraining {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        match &self.encoder {
            TrainedEncoder::Retriever(encoder) => encoder.check(key, document),
            TrainedEncoder::Reranker(encoder) => encoder.check(key, document),
        }
        let ContrastRecords { data, dialogues, examples, .. } = &self.records;
        if data.is_empty() && dialogues.is_empty() && examples.is_none() {
            document.report_key(key, "expected `data`, `dialogues` or `examples`");
        }
        document.check_files(&format!("{key}.data"), data);
        document.check_files(&format!("{key}.dialogues"), dialogues);
        if let Some(Err(faults)) = examples.as_ref().map(TasksOptions::resolve) {
            for (name, message) in faults {
                document.report_key(&format!("{key}.examples.{name}"), message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        config::{Config, mistakes},
        workflows::answer::options::Options,
    };

    #[test]
    fn the_keys_of_a_kind_are_those_of_its_stage_and_of_the_records() {
        let check = |keys: &str| {
            let text = format!(
                "workflow = \"retriever-training\"\nname = \"r\"\n[tasks]\nfiles = [\"none.jsonl\"]\n\
                 [encoder-training]\nfrom = \"m\"\nmodel = \"t\"\n{keys}\n"
            );
            mistakes(&text, &[], Options::load)
        };
        let found = check("kind = \"bi-encoder\"\ndata = [\"none.json\"]\nscale = 3.0\ndepth = 5");
        assert!(found.contains("`encoder-training.data`: no file none.json"), "{found}");
        assert!(found.contains("`encoder-training.from`: no folder m"), "{found}");
        let found = check("kind = \"cross-encoder\"\nscale = 3.0\nexampels = 1");
        assert!(found.contains("`encoder-training.scale`: unknown field `scale`"), "{found}");
        assert!(found.contains("did you mean `examples`?"), "{found}");
        let found = check("kind = \"encoder\"");
        assert!(found.contains("expected one of `bi-encoder`, `cross-encoder`"), "{found}");
    }
}
