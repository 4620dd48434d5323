//! Entity linking on texts with given mentions, and its scores.

mod options;
mod system;
pub(crate) mod workflow;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Instant,
};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use sporran_extractor::{
    Coreference, Document, EntityType, Link, Linker, Mention, MentionFinder, MentionForm, Span, pronoun,
};
use sporran_kilt::{
    Output, Record, jsonl,
    linked::{self, LinkedText},
    scores::Measure,
};

pub use options::{LinkedInput, LinkingOptions};
pub use sporran_extractor::NamedEntities;
pub use system::LinkSystem;

use crate::{
    Result,
    run_dir::{
        folder::{AnswerFile, RunDir},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry},
        step::{FileStep, Lines},
    },
    source::pages::Pages,
};
use sporran_kilt::observe::Observer;

/// The report of a run: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkingReport {
    /// The name of the run.
    pub name: String,
    /// The number of entities in the table of names.
    pub entities: usize,
    /// The number of names.
    pub names: usize,
    /// The counts of each file.
    pub files: Vec<LinkedFile>,
    /// The duration in seconds, without loading.
    pub seconds: f64,
}

impl fmt::Display for LinkingReport {
    /// A table with a row for each file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, entities) = (self.names as u64, self.entities as u64);
        writeln!(
            f,
            "{} of {}",
            sporran_kilt::counted(names, "name"),
            sporran_kilt::counted(entities, "entity")
        )?;
        writeln!(
            f,
            "{:<28} {:>8} {:>8} {:>6} {:>7} {:>8} {:>9} {:>6}",
            "file", "mentions", "in names", "linked", "correct", "accuracy", "precision", "F1"
        )?;
        for file in &self.files {
            writeln!(
                f,
                "{:<28} {:>8} {:>8} {:>6} {:>7} {:>8.3} {:>9.3} {:>6.3}",
                file.file,
                file.mentions,
                file.held,
                file.linked,
                file.right,
                file.accuracy,
                file.precision,
                file.f1
            )?;
        }
        write!(f, "{:.1} s", self.seconds)
    }
}

/// The counts and scores of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkedFile {
    /// The file name without extension. The links are in `predictions/NAME.jsonl`.
    pub file: String,
    /// The number of mentions.
    pub mentions: usize,
    /// The number of mentions whose gold entity is in the table of names.
    pub held: usize,
    /// The number of linked mentions.
    pub linked: usize,
    /// The number of correct links.
    pub right: usize,
    /// `right / held`: the share of correct links among mentions whose gold entity is in the table.
    pub accuracy: Measure,
    /// `right / linked`. A link of a mention whose gold entity is not in the table is wrong.
    pub precision: Measure,
    /// `2 * right / (held + linked)`.
    pub f1: Measure,
}

impl LinkedFile {
    fn finish(mut self) -> Self {
        self.accuracy = Measure::share(self.right, self.held);
        self.precision = Measure::share(self.right, self.linked);
        self.f1 = Measure::share(2 * self.right, self.held + self.linked);
        self
    }
}

/// Links the mentions of the config's files. Writes `predictions/NAME.jsonl` (one record for each mention, in
/// the layout of KILT's entity linking), `report.json`, `config.toml` and `manifest.json` into the run's
/// folder. A killed run resumes at the first missing portion.
///
/// # Errors
/// Errors of files; [`crate::Error::Busy`] if another process uses the run's folder.
pub fn link(options: &LinkingOptions, observe: &mut Observer<'_>) -> Result<LinkingReport> {
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let key = links_key(options)?.read(&mut inputs)?;
    let hashes = options.linking.files.iter().map(|path| inputs.file(path));
    let hashes: Vec<String> = hashes.collect::<Result<_>>()?;
    let numbered = options.linking.entities.as_ref().map(linked::numbered_entities).transpose()?;
    let numbered = numbered.unwrap_or_default();
    let files = options.linking.files.iter().map(|path| Ok((path, linked::load(path, &numbered)?)));
    let files: Vec<_> = files.collect::<Result<_>>()?;
    let linking = Linking {
        finder: options.mentions.open()?,
        coreference: options.coreference.open(options.mentions.types.as_deref())?,
        linker: options.linker.open()?,
        pages: Pages::open(options.source.as_ref(), options.linking.pages.as_deref(), observe)?,
    };
    let table = linking.linker.table();
    let held: FxHashSet<&str> = table.entities().iter().map(|entity| entity.id.as_str()).collect();

    let key = key.input("pages", linking.pages.hash()).input("portion", PORTION.to_string());
    account.took("load");

    let folder = RunDir::open(options.folder())?;
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let written = |path: &Path| Path::new("predictions").join(format!("{}.jsonl", stem(path)));
    let answers =
        |(path, _): &(&PathBuf, _)| AnswerFile { name: stem(path), paths: vec![written(path.as_path())] };
    let mut mark = folder.begin_answers("run", files.iter().map(answers).collect())?;
    folder.write_config(options)?;
    let start = Instant::now();
    let mut report = LinkingReport {
        name: options.name.clone(),
        entities: held.len(),
        names: table.len(),
        files: Vec::new(),
        seconds: 0.0,
    };
    for ((path, texts), hash) in files.iter().zip(hashes) {
        let (name, written) = (stem(path), written(path));
        let step = FileStep {
            title: format!("link {name}"),
            name: &name,
            key: key.clone().input("content", hash.as_str()),
            outputs: vec![written.clone()],
            inputs: &inputs,
        };
        let make = |_, portion: &[LinkedText]| linking.records(portion);
        let mut work = Lines { inputs: texts, portion: PORTION, make, path: &written };
        let finished = folder.complete(step, &mut work, observe)?;
        mark.done(&name)?;
        account.took(name.as_str());
        let predictions = folder.root.join(&written);
        account.answered(TaskEntry::new(path, hash, vec![written], &finished));
        report.files.push(counted(name, texts, &held, &predictions)?);
    }
    report.seconds = start.elapsed().as_secs_f64();
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    account.read(&inputs);
    account.parts(linking.pages.parts());
    account.finish(&folder, mark)?;
    Ok(report)
}

/// Options that are not in the key: output folders; the files, each of which is a step; and the source,
/// because the key has the hash of its pages.
const WITHOUT: [&str; 6] =
    ["name", "output", "linking.files", "source.path", "source.redirects", "source.indexes"];

fn links_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("link", options)?.without(&WITHOUT))
}

/// Counts the links in the predictions of a file, which have one record for each mention.
fn counted(
    file: String,
    texts: &[LinkedText],
    held: &FxHashSet<&str>,
    predictions: &Path,
) -> Result<LinkedFile> {
    let mut counts = LinkedFile { file, ..LinkedFile::default() };
    let mentions = texts.iter().flat_map(|text| &text.mentions);
    for (mention, record) in mentions.zip(jsonl::open(predictions)?.records::<Record>()) {
        let meta = record?.meta.unwrap_or_default();
        counts.mentions += 1;
        let gold = mention.entity.as_deref().filter(|id| held.contains(id));
        counts.held += usize::from(gold.is_some());
        let Some(link) = meta["entity"].as_str() else { continue };
        counts.linked += 1;
        counts.right += usize::from(gold == Some(link));
    }
    Ok(counts.finish())
}

/// The number of texts in a portion.
const PORTION: usize = 256;

/// The components of entity linking.
struct Linking {
    finder: Box<dyn MentionFinder>,
    coreference: Option<Box<dyn Coreference>>,
    linker: Linker,
    pages: Pages,
}

impl Linking {
    /// The link of each mention of each text.
    fn read(&self, texts: &[LinkedText]) -> Result<Vec<Vec<Option<Link>>>> {
        let documents: Vec<Document> =
            texts.iter().map(|text| Document::new(text.id.text(), text.text.clone())).collect();
        let found = self.finder.mentions(&documents)?;
        let each = texts.par_iter().zip(&documents).zip(found);
        each.map(|((text, document), found)| self.links(text, document, &found)).collect()
    }

    fn links(&self, text: &LinkedText, document: &Document, found: &[Mention]) -> Result<Vec<Option<Link>>> {
        let mut links = vec![None; text.mentions.len()];
        for layer in layers(text) {
            let mentions: Vec<(usize, Mention)> = layer
                .into_iter()
                .filter_map(|at| {
                    let mention = &text.mentions[at];
                    let span = Span { start: mention.start, end: mention.end };
                    Some((at, given(document, span, found)?))
                })
                .collect();
            let (places, mentions): (Vec<usize>, Vec<Mention>) = mentions.into_iter().unzip();
            let chains = match &self.coreference {
                Some(coreference) => coreference.chains(document, &mentions)?,
                None => Vec::new(),
            };
            for (at, link) in places.into_iter().zip(self.linker.link(document, &mentions, &chains)) {
                links[at] = link;
            }
        }
        Ok(links)
    }

    /// The predictions for the mentions of texts, in order.
    fn records(&self, texts: &[LinkedText]) -> Result<Vec<Record>> {
        let each = texts.iter().zip(self.read(texts)?);
        Ok(each.flat_map(|(text, links)| self.of_text(text, &links)).collect())
    }

    /// The predictions for the mentions of a text. The answer is the entity's label, the provenance its page.
    /// A mention without a link has an empty answer.
    fn of_text(&self, text: &LinkedText, links: &[Option<Link>]) -> Vec<Record> {
        let mut places: Vec<usize> = text.text.char_indices().map(|(at, _)| at).collect();
        places.push(text.text.len());
        let entities = self.linker.table().entities();
        let each = text.mentions.iter().zip(links);
        let mut spans: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        each.map(|(mention, link)| {
            // Some files give a span several entities; a further one has its number in the id.
            let number = spans.entry((mention.start, mention.end)).or_default();
            *number += 1;
            let further = if *number > 1 { format!("#{number}") } else { String::new() };
            let (start, end) = (places[mention.start], places[mention.end]);
            let [before, name, after] = [&text.text[..start], &text.text[start..end], &text.text[end..]];
            let answer = link.as_ref().map(|link| {
                let known = entities.binary_search_by(|entity| entity.id.as_str().cmp(&link.entity));
                known.map_or(&link.entity, |at| &entities[at].label).clone()
            });
            let page = link.as_ref().zip(answer.as_ref()).and_then(|(link, label)| {
                self.pages.listed(&link.entity).or_else(|| self.pages.titled(label))
            });
            let provenance = page.map(|page| self.pages.provenance(&page, None)).into_iter().collect();
            let output = Output {
                answer: Some(answer.unwrap_or_default()),
                provenance: Some(provenance),
                ..Output::default()
            };
            Record {
                id: format!("{}:{}-{}{further}", text.id.text(), mention.start, mention.end).into(),
                input: Some(format!("{before}[START_ENT] {name} [END_ENT]{after}")),
                output: Some(vec![output]),
                meta: link
                    .as_ref()
                    .map(|link| serde_json::json!({"entity": link.entity, "confidence": link.confidence})),
                extra: serde_json::Map::new(),
            }
        })
        .collect()
    }
}

/// Groups of mentions without overlap, in the order of their starts. A mention within another one is in a later group.
fn layers(text: &LinkedText) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..text.mentions.len()).collect();
    order.sort_by_key(|at| (text.mentions[*at].start, std::cmp::Reverse(text.mentions[*at].end)));
    let mut layers: Vec<Vec<usize>> = Vec::new();
    for at in order {
        let is_free = |layer: &Vec<usize>| {
            layer.last().is_none_or(|last| text.mentions[*last].end <= text.mentions[at].start)
        };
        match layers.iter_mut().find(|layer| is_free(layer)) {
            Some(layer) => layer.push(at),
            None => layers.push(vec![at]),
        }
    }
    layers
}

/// A given mention with the type of an overlapping detected one; `None` for a span without tokens.
fn given(document: &Document, span: Span, found: &[Mention]) -> Option<Mention> {
    let mut tokens = document.tokens_of(span);
    let sentence = document.sentence_of(tokens.start).filter(|_| !tokens.is_empty())?;
    tokens.end = tokens.end.min(document.sentences[sentence].tokens.end);
    let known = (tokens.len() == 1).then(|| pronoun(document.word(tokens.start))).flatten();
    let (kind, form) = match known {
        Some(known) => (known.kind, MentionForm::Pronoun),
        None => {
            let over = found.iter().find(|found| found.span.overlaps(span));
            (over.map_or(EntityType::Other, |found| found.kind), MentionForm::Name)
        }
    };
    Some(Mention { span, tokens, sentence, kind, form, confidence: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, run_dir::key::tests::assert_complete};

    #[test]
    fn every_option_of_linking_is_in_its_key_but_those_that_change_no_link() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = "workflow = 'entity-linking'\nname = 'l'\ncoreference = 'rules'\n\
                    [source]\npath = 'pages'\nredirects = 'r'\n\
                    [linking]\nfiles = ['texts']\nentities = 'e'\npages = 'p'\n\
                    [mentions]\ntagger = 'tagger'\n[linker]\nfacts = 'facts'\n\
                    [[linker.names]]\nfile = 'e'\nformat = 'entities'\n";
        std::fs::write(&path, text).unwrap();
        let options = LinkingOptions::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| links_key(tree).unwrap(), &WITHOUT);
    }
}
