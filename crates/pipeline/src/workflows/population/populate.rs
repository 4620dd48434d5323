//! `sporran populate`: extracts facts from documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_extractor::{
    Argument, Document, Fact, FactExtractor, Parses, Populated, Span, relations::Properties,
};
use sporran_kilt::{Output, Record, counted, jsonl, knowledgenet, observe::Observer};

use super::{
    options::{InputOptions, PopulationOptions},
    options_key::options_key,
    parts::open,
    sources::{InputFormat, Source, each_portion},
};
use crate::{
    Error, Result,
    run_dir::{
        folder::{AnswerFile, RunDir},
        inputs::Inputs,
        journal::Journal,
        manifest::{Account, TaskEntry},
        step::{Chunks, FileStep, FileWork},
    },
    source::pages::Pages,
};

/// The report of a run: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PopulationReport {
    /// The name of the run.
    pub name: String,
    /// The input files.
    pub files: Vec<PopulatedFile>,
}

impl fmt::Display for PopulationReport {
    /// Counts by file and property.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, file) in self.files.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(
                f,
                "{separator}{}: {}, {}, {}, {} with both links",
                file.input.display(),
                counted(file.documents as u64, "document"),
                counted(file.sentences as u64, "sentence"),
                counted(file.facts as u64, "fact"),
                file.linked
            )?;
            file.properties.iter().try_for_each(|(property, count)| write!(f, "\n  {property} {count}"))?;
        }
        Ok(())
    }
}

/// The report of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PopulatedFile {
    /// The input file.
    pub input: PathBuf,
    /// The number of documents, pages, or blocks of text.
    pub documents: usize,
    /// The number of sentences.
    pub sentences: usize,
    /// The number of facts.
    pub facts: usize,
    /// The number of facts with a linked subject and a linked object.
    pub linked: usize,
    /// The number of facts of each property.
    pub properties: BTreeMap<String, usize>,
    /// The output files, relative to the run's folder.
    pub written: Vec<PathBuf>,
}

impl PopulatedFile {
    /// Adds the counts of a part of the file.
    pub(super) fn add(&mut self, part: &Self) {
        self.documents += part.documents;
        self.sentences += part.sentences;
        self.facts += part.facts;
        self.linked += part.linked;
        for (property, count) in &part.properties {
            *self.properties.entry(property.clone()).or_default() += count;
        }
    }
}

/// A finished portion of a file.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Portion {
    counts: PopulatedFile,
    records: Vec<Record>,
    documents: Vec<knowledgenet::Document>,
    triples: Vec<[Node; 3]>,
}

/// A node or the relation of a triple. In a prediction, `meta.triple` has the three of its fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Node {
    /// The id in the knowledge base; `None` without a link.
    pub(crate) id: Option<String>,
    /// The name in the text.
    pub(crate) name: String,
}

/// Extracts facts from the config's input and writes the run's folder. Each input file has
/// `predictions/NAME.jsonl`, `triples/NAME.tsv` and `triples/NAME.nt`, and `knowledgenet/NAME` for
/// KnowledgeNet's documents. Predictions are records in KILT's layout, one for each fact; they have
/// provenance if the document is a page. The run also has `report.json` and `manifest.json`. A killed run
/// resumes at the first missing portion.
///
/// # Errors
/// [`Error::Config`] without `[input]`; errors of files and models; [`Error::Busy`] if another process uses the run's
/// folder.
pub fn populate(options: &PopulationOptions, observe: &mut Observer<'_>) -> Result<PopulationReport> {
    let input = input_of(options)?;
    let ids = check_input(input)?;
    let folder = RunDir::open(options.folder())?;
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let pages = Pages::open(options.source.as_ref(), input.pages.as_deref(), observe)?;
    check_pages(input, &ids, &pages)?;
    let key = options_key(options)?.read(&mut inputs)?.input("pages", pages.hash());
    let parses = if options.parses.is_empty() { None } else { Some(Parses::open(&options.parses)?) };
    let populator = open(options)?;
    inputs.verify()?;
    account.read(&inputs);
    account.parts(pages.parts());
    account.took("load");
    let mut files = Vec::new();
    let answers = |path: &PathBuf| {
        let name = name_of(path);
        AnswerFile { paths: paths_of(&name, input.format), name }
    };
    let mut mark = folder.begin_answers("populate", input.files.iter().map(answers).collect())?;
    folder.write_config(options)?;
    for path in &input.files {
        let name = name_of(path);
        let mut inputs = Inputs::default();
        let content = inputs.file(path)?;
        let outputs = paths_of(&name, input.format);
        let step = FileStep {
            title: format!("populate {name}"),
            name: &name,
            key: key.clone().input("content", content.as_str()),
            outputs: outputs.clone(),
            inputs: &inputs,
        };
        let parses = parses.as_ref();
        let (populator, pages) = (&populator, &pages);
        let mut work = Populating { options, input, populator, parses, pages, path, range: None };
        let finished = folder.complete(step, &mut work, observe)?;
        mark.done(&name)?;
        account.read(&inputs);
        account.answered(TaskEntry::new(path, content, outputs, &finished));
        account.took(path.display().to_string());
        files.push(finished.summary);
    }
    let report = PopulationReport { name: options.name.clone(), files };
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    account.finish(&folder, mark)?;
    Ok(report)
}

/// Reads every document without keeping it, so that a wrong one is reported before a model is loaded. The documents' ids, where
/// a table of pages is compared with them.
pub(super) fn check_input(input: &InputOptions) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for path in &input.files {
        each_portion(path, input.format, &input.folds, |portion| {
            if input.pages.is_some() {
                ids.extend(portion.into_iter().map(|source| source.document.id));
            }
            Ok(())
        })?;
    }
    Ok(ids)
}

/// Checks that the table of pages names documents, which have these ids. Names that are no document's are logged.
///
/// # Errors
/// [`sporran_kilt::Error::Argument`] if it names none.
pub(super) fn check_pages(input: &InputOptions, ids: &[String], pages: &Pages) -> Result<()> {
    const SHOWN: usize = 5;
    let Some(table) = &input.pages else { return Ok(()) };
    let mut unknown: BTreeSet<&str> = pages.names().collect();
    let rows = unknown.len();
    for id in ids {
        unknown.remove(id.trim());
    }
    let found = unknown.iter().take(SHOWN).copied().collect::<Vec<_>>();
    if let (Some(example), [first, ..]) = (ids.first(), &*found)
        && unknown.len() == rows
    {
        let message = format!(
            "{}: expected ids of documents, such as `{example}`, found `{first}`; `~input.pages` leaves the table out",
            table.display()
        );
        return Err(sporran_kilt::Error::Argument(message).into());
    }
    // A table can name the documents of all folds.
    if !unknown.is_empty() && input.folds.is_empty() {
        let (names, count) = (found.join(", "), unknown.len());
        tracing::warn!(table = %table.display(), names, count, "names of no document in the table of pages");
    }
    Ok(())
}

/// The documents of a config.
pub(super) fn input_of(options: &PopulationOptions) -> Result<&InputOptions> {
    let missing =
        || sporran_config::Diagnostic::of_config("input", "is missing; `sporran populate` needs it");
    options.input.as_ref().ok_or_else(|| Error::Config(vec![missing()]))
}

/// The output files of an input file: facts as records, as a table and as N-Triples, and KnowledgeNet's
/// documents with the extracted facts.
pub(super) fn paths_of(name: &str, format: InputFormat) -> Vec<PathBuf> {
    let stem = name.split('.').next().unwrap_or(name);
    let mut paths: Vec<PathBuf> = vec![
        format!("predictions/{stem}.jsonl").into(),
        format!("triples/{stem}.tsv").into(),
        format!("triples/{stem}.nt").into(),
    ];
    if format == InputFormat::Knowledgenet {
        paths.push(format!("knowledgenet/{stem}.json").into());
    }
    paths
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The extraction from one file.
pub(super) struct Populating<'a> {
    pub(super) options: &'a PopulationOptions,
    pub(super) input: &'a InputOptions,
    pub(super) populator: &'a FactExtractor,
    pub(super) parses: Option<&'a Parses>,
    pub(super) pages: &'a Pages,
    pub(super) path: &'a Path,
    /// The portions of a shard; all without one.
    pub(super) range: Option<Range<usize>>,
}

impl Populating<'_> {
    fn portion(&self, mut sources: Vec<Source>) -> Result<Portion> {
        let mut documents: Vec<Document> = sources.iter().map(|source| source.document.clone()).collect();
        if let Some(parses) = self.parses {
            documents.iter_mut().try_for_each(|document| parses.attach(document))?;
        }
        let found = self.populator.read(&documents)?;
        let mut portion = Portion::default();
        let properties = self.populator.relations.properties();
        for (source, found) in sources.iter_mut().zip(found) {
            let facts = &found.facts;
            let document = &source.document;
            portion.counts.documents += 1;
            portion.counts.sentences += document.sentences.len();
            portion.counts.facts += facts.len();
            let mut triples: Vec<[Node; 3]> = Vec::new();
            for (at, fact) in facts.iter().enumerate() {
                *portion.counts.properties.entry(fact.property.clone()).or_default() += 1;
                portion.counts.linked +=
                    usize::from(fact.subject.link.is_some() && fact.object.link.is_some());
                let relation = self.options.triples.relations.get(&fact.property);
                let relation = Node { id: relation.cloned(), name: fact.property.clone() };
                let triple = [node(document, &fact.subject), relation, node(document, &fact.object)];
                portion.records.push(record((source, self.pages), at, fact, &triple));
                triples.push(triple);
            }
            triples.sort_unstable();
            triples.dedup();
            portion.triples.extend(triples);
            if let Some(mut annotated) = source.annotated.take() {
                fill(&mut annotated, &source.document, &found, properties);
                portion.documents.push(annotated);
            }
        }
        Ok(portion)
    }
}

impl FileWork for Populating<'_> {
    type Chunk = Portion;
    type Summary = PopulatedFile;

    /// The file is streamed, so its number of records is unknown.
    fn load(&mut self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn make(&mut self, chunks: &mut Chunks<'_, Portion>) -> Result<()> {
        let mut number = 0;
        each_portion(self.path, self.input.format, &self.input.folds, |portion| {
            let is_wanted = self.range.as_ref().is_none_or(|range| range.contains(&number));
            number += 1;
            if is_wanted { chunks.add(portion.len(), || self.portion(portion)) } else { Ok(()) }
        })
    }

    fn write(&mut self, root: &Path, journal: &Journal) -> Result<PopulatedFile> {
        let written = paths_of(&name_of(self.path), self.input.format);
        let create = |path: &PathBuf| jsonl::Writer::create(root.join(path));
        let (mut records, mut table, mut statements) =
            (create(&written[0])?, create(&written[1])?, create(&written[2])?);
        let mut again = written.get(3).map(create).transpose()?;
        let mut counts = PopulatedFile { input: self.path.to_owned(), written, ..PopulatedFile::default() };
        journal.read(|portion: Portion| {
            counts.add(&portion.counts);
            for record in &portion.records {
                records.record(record)?;
            }
            for triple in &portion.triples {
                let columns: Vec<&str> =
                    triple.iter().map(|node| node.id.as_ref().unwrap_or(&node.name).as_str()).collect();
                table.line(columns.join("\t").as_bytes())?;
                statements.bytes(ntriples(triple).as_bytes())?;
            }
            for document in &portion.documents {
                if let Some(writer) = &mut again {
                    writer.record(document)?;
                }
            }
            Ok(())
        })?;
        for writer in [records, table, statements].into_iter().chain(again) {
            writer.finish()?;
        }
        Ok(counts)
    }
}

/// The text of a span in one line.
pub(super) fn text(document: &Document, span: Span) -> String {
    let text = document.slice(span).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn node(document: &Document, argument: &Argument) -> Node {
    Node { id: argument.link.as_ref().map(|link| link.entity.clone()), name: text(document, argument.name) }
}

/// A fact as a prediction in KILT's layout. The input is `subject [SEP] property`, the answer is the object.
/// If the document is a page, the provenance is the fact's sentence. `meta.statement` has the offsets of the
/// sentence in the document, in code points.
fn record((source, pages): (&Source, &Pages), at: usize, fact: &Fact, triple: &[Node; 3]) -> Record {
    let document = &source.document;
    let place = |argument: &Argument| {
        serde_json::json!({
            "start": argument.span.start,
            "end": argument.span.end,
            "entity": argument.link.as_ref().map(|link| &link.entity),
            "confidence": argument.link.as_ref().map(|link| link.confidence),
        })
    };
    let sentence = text(document, fact.sentence);
    let statement = serde_json::json!({
        "document": document.id,
        "start": fact.sentence.start,
        "end": fact.sentence.end,
        "text": sentence,
        "subject": place(&fact.subject),
        "object": place(&fact.object),
    });
    let provenance = source.provenance(fact.sentence, pages).map(|mut item| {
        item.extra.insert("text".into(), sentence.into());
        item
    });
    let [subject, _, object] = triple.each_ref().map(|node| node.name.clone());
    let provenance = Some(provenance.into_iter().collect());
    let output = Output { answer: Some(object), provenance, ..Output::default() };
    let meta = serde_json::json!({"confidence": fact.confidence, "triple": triple, "statement": statement});
    Record {
        id: format!("{}:{at}", document.id).into(),
        input: Some(format!("{subject} [SEP] {}", fact.property)),
        output: Some(vec![output]),
        meta: Some(meta),
        extra: serde_json::Map::new(),
    }
}

/// Replaces the facts of a document. Each fact goes into the passage with both of its mentions. Passages also
/// get `mentions` and `withheld` (facts below the threshold) for the analysis of errors.
///
/// If a document lists its annotated properties, drops facts of other properties, because KnowledgeNet's scorer fails on them.
fn fill(
    target: &mut knowledgenet::Document,
    document: &Document,
    found: &Populated,
    properties: &Properties,
) {
    let named: Vec<String> = target
        .passages
        .iter()
        .flat_map(|passage| &passage.exhaustive)
        .map(|property| property.id.text().into_owned())
        .collect();
    for passage in &mut target.passages {
        let holds = |span: Span| passage.start <= span.start && span.end <= passage.end;
        let own = |facts: &[Fact]| -> Vec<knowledgenet::Fact> {
            let own = facts.iter().filter(|fact| holds(fact.subject.span) && holds(fact.object.span));
            own.filter_map(|fact| annotation(document, fact, properties))
                .filter(|fact| named.is_empty() || named.iter().any(|id| *id == fact.property.text()))
                .collect()
        };
        passage.facts = own(&found.facts);
        let withheld: Vec<(String, [usize; 4])> = own(&found.withheld)
            .iter()
            .map(|fact| (fact.property.text().into_owned(), places(fact)))
            .collect();
        let mentions: Vec<[usize; 2]> = found
            .mentions
            .iter()
            .filter(|mention| holds(mention.span))
            .map(|mention| [mention.span.start, mention.span.end])
            .collect();
        passage.extra.insert("mentions".into(), serde_json::json!(mentions));
        passage.extra.insert("withheld".into(), serde_json::json!(withheld));
    }
}

fn places(fact: &knowledgenet::Fact) -> [usize; 4] {
    [fact.subject_start, fact.subject_end, fact.object_start, fact.object_end]
}

/// A fact in KnowledgeNet's layout; `None` if the property has no id.
fn annotation(document: &Document, fact: &Fact, properties: &Properties) -> Option<knowledgenet::Fact> {
    let property = properties.named(&fact.property)?;
    let (subject, object) = (fact.subject.span, fact.object.span);
    let uri = |argument: &Argument| {
        let link = argument.link.as_ref();
        Some(link.map_or_else(String::new, |link| format!("http://www.wikidata.org/entity/{}", link.entity)))
    };
    let words = |argument: &Argument| document.slice(argument.span).unwrap_or_default().to_owned();
    let (named, objective) = (words(&fact.subject), words(&fact.object));
    let id = [subject.start, subject.end, object.start, object.end].map(|place| place.to_string()).join(":");
    Some(knowledgenet::Fact {
        property: property.id.as_str().into(),
        subject_start: subject.start,
        subject_end: subject.end,
        object_start: object.start,
        object_end: object.end,
        id: Some(format!("{}:{id}:{}", document.id, property.id).into()),
        human_readable: Some(format!("<{named}> <{}> <{objective}>", fact.property)),
        annotated_passage: None,
        subject_text: Some(named),
        subject_uri: uri(&fact.subject),
        object_text: Some(objective),
        object_uri: uri(&fact.object),
        extra: [("confidence".to_owned(), serde_json::json!(fact.confidence))].into_iter().collect(),
    })
}

/// A triple in N-Triples, with the names of its subject and object.
fn ntriples([subject, relation, object]: &[Node; 3]) -> String {
    let iri = |node: &Node, linked: &str, free: &str| match &node.id {
        Some(id) => format!("<{linked}{id}>"),
        None => format!("<{free}{}>", escaped(&node.name)),
    };
    let entity = |node: &Node| iri(node, "http://www.wikidata.org/entity/", "urn:sporran:name:");
    let mut lines = format!(
        "{} {} {} .\n",
        entity(subject),
        iri(relation, "http://www.wikidata.org/prop/direct/", "urn:sporran:property:"),
        entity(object)
    );
    for node in [subject, object] {
        let name = node.name.replace('\\', "\\\\").replace('"', "\\\"");
        lines.push_str(&format!(
            "{} <http://www.w3.org/2000/01/rdf-schema#label> \"{name}\" .\n",
            entity(node)
        ));
    }
    lines
}

/// Percent-encodes a name for an IRI. Keeps letters and digits of any script.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for letter in name.chars() {
        if letter.is_alphanumeric() || "-._~".contains(letter) {
            escaped.push(letter);
        } else {
            let mut bytes = [0; 4];
            letter.encode_utf8(&mut bytes).bytes().for_each(|byte| escaped.push_str(&format!("%{byte:02X}")));
        }
    }
    escaped
}

/// Creates the parent folder of a file.
pub(super) fn parent(path: &Path) -> Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::io(parent, "create")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_are_statements_with_names_and_strange_letters_are_escaped() {
        let node = |id: Option<&str>, name: &str| Node { id: id.map(Into::into), name: name.into() };
        let triple =
            [node(Some("Q42"), "Zoë"), node(Some("P19"), "PLACE_OF_BIRTH"), node(None, "\"St. <Ives>\"")];
        let lines: Vec<String> = ntriples(&triple).lines().map(str::to_owned).collect();
        assert_eq!(
            lines[0],
            "<http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P19> <urn:sporran:name:%22St.%20%3CIves%3E%22> ."
        );
        assert_eq!(
            lines[2],
            "<urn:sporran:name:%22St.%20%3CIves%3E%22> <http://www.w3.org/2000/01/rdf-schema#label> \"\\\"St. <Ives>\\\"\" ."
        );
        // The knowledge base loads the file.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.nt"), ntriples(&triple)).unwrap();
        let base = sporran_kilt::kb::KnowledgeBase::open(folder.path()).unwrap();
        let subject = base.entity("Q42").unwrap();
        assert_eq!((base.label(subject), base.triples(sporran_kilt::kb::Part::Train).len()), ("Zoë", 1));
    }
}
