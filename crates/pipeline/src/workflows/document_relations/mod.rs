//! Relations between the entities of whole documents, where mentions and which of them are one entity are given: DocRED's and
//! Re-DocRED's task.

mod options;
mod train;
pub(crate) mod workflow;

use std::{collections::BTreeMap, fmt, fs, path::Path, time::Instant};

use serde::Serialize;
use sporran_extractor::document_relations::DocumentRelations;
use sporran_kilt::{
    Output, Record,
    docred::{self, Document, Found},
    jsonl,
    scores::document_relations::{Report, score},
};

pub use options::{DocumentRelationsOptions, DocumentsOptions, DocumentsTraining};
pub use train::{TrainedDocuments, train};

use crate::{
    Error, Result,
    config::Diagnostic,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::folder::{AnswerFile, Folder},
    source::pages::Pages,
};

/// What came of a config's files: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentsReport {
    /// The config's name.
    pub name: String,
    /// Each file's scores, by its name without its ending; none where it tells no relation.
    pub files: BTreeMap<String, Option<Report>>,
    /// Documents that were read.
    pub documents: usize,
    /// Seconds without loading.
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
                "{file}: {} relations predicted, {} gold, {} correct: precision {:.3}, recall {:.3}, F1 {:.3}",
                scores.found, scores.gold, scores.right, scores.precision, scores.recall, scores.f1
            )?;
            if let Some(f1) = scores.ign_f1 {
                write!(f, ", Ign F1 {f1:.3}")?;
            }
            writeln!(f, "; evidence F1 {:.3}", scores.evidence_f1)?;
        }
        write!(f, "{} documents in {:.1} s", self.documents, self.seconds)
    }
}

/// Documents that are read together.
const PORTION: usize = 16;

/// Finds the relations of the config's files, and writes `predictions/NAME.json` (DocRED's layout of predictions),
/// `predictions/NAME.jsonl` (a record a relation, in the layout of KILT's slot filling), `report.json` and `config.toml` into
/// the run's folder. Where the config says what was learned from, the scores tell what was known from there apart.
///
/// # Errors
/// [`Error::Config`] where there is no file to read; whatever is wrong with files and the model; [`Error::Busy`] where another
/// process works in the run's folder.
pub fn find(options: &DocumentsOptions, observe: &mut Observer<'_>) -> Result<DocumentsReport> {
    let own = &options.document_relations;
    if own.files.is_empty() {
        let message = "expected at least one file";
        return Err(Error::Config(vec![Diagnostic::of_config("document-relations.files", message)]));
    }
    let mut files = Vec::new();
    for path in &own.files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files.push((name, docred::load(path)?));
    }
    let mut known = Vec::new();
    let learned = own.training.iter().flat_map(|training| &training.files);
    for path in learned.filter(|path| path.is_file()) {
        known.extend(docred::load(path)?);
    }
    let model = DocumentRelations::load(&options.model(), own.device, own.precision)?;
    let folder = Folder::open(options.folder())?;
    let answers = |(name, _): &(String, _)| AnswerFile {
        name: name.clone(),
        paths: ["jsonl", "json"]
            .map(|ending| Path::new("predictions").join(format!("{name}.{ending}")))
            .into(),
    };
    let mark = folder.begin_answers("run", files.iter().map(answers).collect())?;
    let pages = Pages::open(options.source.as_ref(), None, observe)?;
    let predictions = folder.root.join("predictions");
    fs::create_dir_all(&predictions).map_err(Error::io(&predictions, "write"))?;
    let mut report =
        DocumentsReport { name: options.name.clone(), files: BTreeMap::new(), documents: 0, seconds: 0.0 };
    for (name, documents) in files {
        begin(observe, format!("read {name}"), documents.len() as u64, Unit::Records);
        let start = Instant::now();
        let mut found = Vec::new();
        for (at, portion) in documents.chunks(PORTION).enumerate() {
            found.extend(model.relations(portion)?);
            advance(observe, (at * PORTION + portion.len()) as u64);
        }
        report.seconds += start.elapsed().as_secs_f64();
        report.documents += documents.len();
        observe(Event::End);
        let mut writer = jsonl::Writer::create(predictions.join(format!("{name}.jsonl")))?;
        for (document, found) in documents.iter().zip(&found) {
            found.iter().try_for_each(|found| writer.record(&record(document, found, &pages)))?;
        }
        writer.finish()?;
        let found = found.concat();
        let path = predictions.join(format!("{name}.json"));
        let json = serde_json::to_vec(&found).map_err(|error| Error::io(&path, "write")(error.into()))?;
        jsonl::write(&path, &json)?;
        let tells = documents.iter().any(|document| !document.relations.is_empty());
        report.files.insert(name, tells.then(|| score(&documents, &found, &known)));
    }
    folder.write_config(options)?;
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    mark.finish()?;
    Ok(report)
}

/// A relation as a record: what is asked is the subject and the property, the page of the document's title is the provenance.
/// `meta` has the document and the sentences that show the relation.
fn record(document: &Document, found: &Found, pages: &Pages) -> Record {
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
