//! Relations between the entities of whole documents (DocRED, Re-DocRED). Mentions and their entities are given.

mod options;
mod train;
pub(crate) mod workflow;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_extractor::document_relations::DocumentRelations;
use sporran_kilt::{
    Output, Record, counted,
    docred::{self, Document, PredictedRelation},
    jsonl,
    observe::Observer,
    scores::document_relations::{Report, score},
};

pub use options::{DocumentRelationsOptions, DocumentsOptions};
pub use sporran_extractor::document_relations::{DocumentsTraining, TrainedDocuments};
pub use train::train;

use crate::{
    Error, Result,
    run_dir::{
        journal::Journal,
        key::StepKey,
        step::{Chunks, FileWork},
    },
    source::pages::Pages,
    workflows::file_run::HashedInputs,
};

/// The report of a run: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentsReport {
    /// The name of the run.
    pub name: String,
    /// The scores of each file, by its name without extension; `None` without gold relations.
    pub files: BTreeMap<String, Option<Report>>,
    /// The number of documents.
    pub documents: usize,
    /// The duration in seconds, without loading.
    pub seconds: f64,
}

impl fmt::Display for DocumentsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (file, scores) in &self.files {
            let Some(scores) = scores else {
                writeln!(f, "{file}: no gold relations")?;
                continue;
            };
            write!(
                f,
                "{file}: {} predicted, {} gold, {} correct: precision {:.3}, recall {:.3}, F1 {:.3}",
                counted(scores.found as u64, "relation"),
                scores.gold,
                scores.right,
                scores.precision,
                scores.recall,
                scores.f1
            )?;
            if let Some(f1) = scores.ign_f1 {
                write!(f, ", Ign F1 {f1:.3}")?;
            }
            writeln!(f, "; evidence F1 {:.3}", scores.evidence_f1)?;
        }
        write!(f, "{} in {:.1} s", counted(self.documents as u64, "document"), self.seconds)
    }
}

/// The number of documents in a portion.
const PORTION: usize = 16;

/// Predicts the relations of the config's files. Writes `predictions/NAME.json` (DocRED's layout),
/// `predictions/NAME.jsonl` (the layout of KILT's slot filling), `report.json`, `config.toml` and
/// `manifest.json` into the run's folder. A killed run resumes at the first missing portion. If the config
/// has training files, the scores include Ign F1, which ignores relations of the training data.
///
/// # Errors
/// [`Error::Config`] without an input file; errors of files and the model; [`Error::Busy`] if another
/// process uses the run's folder.
pub fn find(options: &DocumentsOptions, observe: &mut Observer<'_>) -> Result<DocumentsReport> {
    let (own, model) = (&options.document_relations, options.model());
    let files = ("document-relations", own.files.as_slice());
    let hashed = HashedInputs::of(options, files, &model, relations_key(options)?)?;
    let documents = hashed.load(|path| docred::load(path))?;
    let mut known = Vec::new();
    let training_files = own.training.iter().flat_map(|training| &training.files);
    for path in training_files.filter(|path| path.is_file()) {
        known.extend(docred::load(path)?);
    }
    let model = DocumentRelations::load(&model, own.device, own.precision)?;
    let (place, source) = ((options.folder(), options), options.source.as_ref());
    let mut run = hashed.open(place, source, paths_of, PORTION, observe)?;
    let mut report =
        DocumentsReport { name: options.name.clone(), files: BTreeMap::new(), documents: 0, seconds: 0.0 };
    for (file, documents) in documents.iter().enumerate() {
        let outputs = run.outputs(file);
        let mut work = Prediction { model: &model, documents, pages: &run.pages, outputs: &outputs };
        let completed = run.complete(file, &mut work, observe)?;
        run.record(completed)?;
        report.documents += documents.len();
        let found: Vec<PredictedRelation> = jsonl::read_json(run.folder.root.join(&outputs[1]))?;
        let is_annotated = documents.iter().any(|document| !document.relations.is_empty());
        let scores = is_annotated.then(|| score(documents, &found, &known));
        report.files.insert(run.name(file).to_owned(), scores);
    }
    report.seconds = run.seconds;
    run.finish(&report)?;
    Ok(report)
}

/// The output files of an input file: records, and DocRED's layout.
fn paths_of(name: &str) -> Vec<PathBuf> {
    ["jsonl", "json"].map(|ending| Path::new("predictions").join(format!("{name}.{ending}"))).into()
}

/// Options that are not in the key: output folders; the files, each of which is a step; the training, because the
/// key has the content of the model; and the source, because the key has the hash of its pages.
const WITHOUT: [&str; 9] = [
    "name",
    "output",
    "seed",
    "source.path",
    "source.redirects",
    "source.indexes",
    "document-relations.model",
    "document-relations.files",
    "document-relations.training",
];

fn relations_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("find document relations", options)?.without(&WITHOUT))
}

/// The prediction of a file.
struct Prediction<'a> {
    model: &'a DocumentRelations,
    documents: &'a [Document],
    pages: &'a Pages,
    /// Those of [`paths_of`].
    outputs: &'a [PathBuf],
}

impl FileWork for Prediction<'_> {
    /// The relations of each document.
    type Chunk = Vec<Vec<PredictedRelation>>;
    type Summary = ();

    fn load(&mut self) -> Result<Option<usize>> {
        Ok(Some(self.documents.len()))
    }

    fn make(&mut self, chunks: &mut Chunks<'_, Self::Chunk>) -> Result<()> {
        for portion in self.documents.chunks(PORTION) {
            chunks.add(portion.len(), || Ok(self.model.relations(portion)?))?;
        }
        Ok(())
    }

    fn write(&mut self, root: &Path, journal: &Journal) -> Result<()> {
        let [records, json] = [0, 1].map(|at| root.join(&self.outputs[at]));
        let mut writer = jsonl::Writer::create(&records)?;
        let (mut documents, mut all) = (self.documents.iter(), Vec::new());
        journal.read(|portion: Self::Chunk| {
            for (found, document) in portion.into_iter().zip(&mut documents) {
                found.iter().try_for_each(|found| writer.record(&record(document, found, self.pages)))?;
                all.extend(found);
            }
            Ok(())
        })?;
        writer.finish()?;
        let bytes = serde_json::to_vec(&all).map_err(|error| Error::io(&json, "write")(error.into()))?;
        Ok(jsonl::write(&json, &bytes)?)
    }
}

/// The prediction for a relation. The input is the subject and the property, the provenance is the page with
/// the document's title. `meta` has the document and the evidence sentences.
fn record(document: &Document, found: &PredictedRelation, pages: &Pages) -> Record {
    let name = |entity: usize| document.entities[entity][0].name.clone();
    let text = |sentence: &usize| document.sentences.get(*sentence).map(|words| words.join(" "));
    let meta = serde_json::json!({
        "document": document.title,
        "sentences": found.evidence,
        "evidence_span": found.evidence.iter().filter_map(text).collect::<Vec<_>>(),
        "confidence": found.confidence,
    });
    let page = pages.titled(&document.title);
    let provenance = page.map(|page| pages.provenance(&page, None)).into_iter().collect();
    let output = Output { answer: Some(name(found.tail)), provenance: Some(provenance), ..Output::default() };
    Record {
        id: format!("{}:{}-{}-{}", document.title, found.head, found.property, found.tail).into(),
        input: Some(format!("{} [SEP] {}", name(found.head), found.property)),
        output: Some(vec![output]),
        meta: Some(meta),
        extra: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, run_dir::key::tests::assert_complete};

    #[test]
    fn every_option_is_in_the_key_but_those_that_change_no_relation() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = "workflow = 'document-relations'\nname = 'd'\n[source]\npath = 'pages'\nredirects = 'r'\n\
                    [document-relations]\nmodel = 'm'\nfiles = ['f']\n\
                    [document-relations.training]\nfrom = 'e'\nfiles = ['t']\n";
        std::fs::write(&path, text).unwrap();
        let options = DocumentsOptions::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| relations_key(tree).unwrap(), &WITHOUT);
    }
}
