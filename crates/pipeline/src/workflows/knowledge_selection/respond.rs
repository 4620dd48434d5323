//! Responses to dialogues: a reranker chooses sentences, and a generator writes the next turn from the dialogue and these
//! (Eric et al., 2021, feed the best sentence to GPT-2).

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Instant,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_generator::{Candidate, Generator, GeneratorOptions, Request, check_generator};
use sporran_kilt::{
    Dataset, Id, Passage, Record, jsonl,
    scores::{
        Measure,
        answer::Answers,
        ranking::{self, RELEVANT, Ranked},
    },
    wowpp,
};
use sporran_reranker::RerankerOptions;

use super::{
    data::{Labels, Selection},
    rank::{order, rank_one, record},
};
use crate::{
    Result,
    config::Config,
    observe::Observer,
    run_dir::{
        folder::{AnswerFile, RunDir},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry},
        step::{FileStep, Lines},
    },
    source::{
        options::SourceOptions,
        pages::{self, Pages},
    },
    workflows::answer::assemble::load_generator,
};
use sporran_config::Document;

/// A whole config of responses.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ResponseOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `output`: where runs' folders go.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source whose pages the sentences' articles are; without it predictions have no provenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceOptions>,
    /// `[dialogues]`: what is responded to.
    pub dialogues: DialoguesOptions,
    /// `[reranker]`: scores sentences.
    pub reranker: RerankerOptions,
    /// `[generator]`: what writes responses, of any kind that a run has.
    pub generator: GeneratorOptions,
}

/// `[dialogues]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DialoguesOptions {
    /// The file, in WOW++'s layout.
    pub file: PathBuf,
    /// Only the first dialogues.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// The parts of a config that are not stages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    source: Option<SourceOptions>,
    dialogues: DialoguesOptions,
}

impl Config for ResponseOptions {
    const WORKFLOWS: &'static [&'static str] = &["dialogue"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let reranker = document.require_stage("reranker");
        let generator = document.require_stage("generator");
        let General { name, output, source, dialogues } = document.read_root(&["reranker", "generator"])?;
        Some(Self { name, output, source, dialogues, reranker: reranker.ok()?, generator: generator.ok()? })
    }

    fn check(&self, document: &mut Document<'_>) {
        if !self.dialogues.file.is_file() {
            document.report_key("dialogues.file", format!("no file {}", self.dialogues.file.display()));
        }
        pages::check(self.source.as_ref(), ("source", None), document);
        self.reranker.check("reranker", document);
        // Those look pages up in a passage store, which a dialogue's sentences have none of.
        if matches!(self.generator, GeneratorOptions::Verifier(_) | GeneratorOptions::MemNet(_)) {
            let message = "expected a kind that reads passages: `causal`, `seq2seq`, `fid`, `rag-sequence`, `rag-token`";
            document.report_key("generator.kind", message);
        }
        check_generator(&*self.generator, ("generator", true), None, document);
    }
}

impl ResponseOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

/// What a run of responses gave: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responded {
    /// The config's name.
    pub name: String,
    /// Dialogues that were responded to.
    pub dialogues: usize,
    /// How the crowd's judgements score the ranking of the sentences.
    pub ranking: ranking::Report,
    /// Knowledge F1 (Shuster et al., 2021): the mean word F1 of responses and the best sentences, whether the generator read
    /// them or not; dialogues without sentences are left out.
    pub knowledge_f1: Measure,
    /// Mean words of a response.
    pub words: Measure,
    /// Seconds of the ranking and of the generator, loading left out.
    pub seconds: [f64; 2],
    /// The predictions in KILT's layout: the response, with the pages of the sentences' articles as provenance.
    pub predictions: PathBuf,
    /// Every sentence's score.
    pub ranked: PathBuf,
}

impl fmt::Display for Responded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} dialogues, knowledge F1 {:.1}, {:.1} words a response",
            self.dialogues,
            self.knowledge_f1.percent(),
            self.words
        )?;
        writeln!(f, "ranking: {}", self.ranking)?;
        let [ranking, responses] = self.seconds;
        write!(f, "{ranking:.1} s for ranking, {responses:.1} s for responses")
    }
}

/// Ranks the sentences of dialogues, writes responses from the best ones, and puts predictions, ranking, report and manifest into
/// the run's folder. A call that was killed is continued with the first portion that is missing.
///
/// # Errors
/// Whatever is wrong with files or models; [`crate::Error::Busy`] where another process works in the run's folder.
pub fn respond(options: &ResponseOptions, observe: &mut Observer<'_>) -> Result<Responded> {
    let folder = RunDir::open(options.folder())?;
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let content = inputs.file(&options.dialogues.file)?;
    let key = |key: StepKey, inputs: &mut Inputs| -> Result<StepKey> {
        let key = key.read(inputs)?.input("content", content.as_str()).input("portion", PORTION.to_string());
        Ok(key.input("limit", format!("{:?}", options.dialogues.limit)))
    };
    let ranking_key = key(StepKey::new("rank", &options.reranker)?, &mut inputs)?;
    let pages = Pages::open(options.source.as_ref(), None, observe)?;
    let key = key(responses_key(options)?, &mut inputs)?.input("pages", pages.hash());
    let reranker = options.reranker.open()?;
    // A dialogue leaves nothing to chance.
    let generator = load_generator(&options.generator, None, 0)?;
    let mut dialogues = wowpp::load(&options.dialogues.file)?.0;
    dialogues.truncate(options.dialogues.limit.unwrap_or(usize::MAX));
    let files = ["predictions", "ranking"].map(|name| PathBuf::from(format!("{name}.jsonl")));
    let answers = files.clone().map(|path| AnswerFile { name: stem(&path), paths: vec![path] });
    let mut mark = folder.begin_answers("run", answers.into())?;
    folder.write_config(options)?;
    account.took("load");

    let start = Instant::now();
    let [predictions, written] = &files;
    let step = FileStep {
        title: "rank sentences".into(),
        name: &stem(written),
        key: ranking_key,
        outputs: vec![written.clone()],
        inputs: &inputs,
    };
    let make = |_, portion: &[(String, wowpp::Dialogue)]| -> Result<Vec<Ranked>> {
        portion.iter().map(|(id, dialogue)| rank_one(id, dialogue, &*reranker)).collect()
    };
    let mut work = Lines { inputs: &dialogues, portion: PORTION, make, path: written };
    let finished = folder.complete(step, &mut work, observe)?;
    mark.done(&stem(written))?;
    account.took("rank sentences");
    let ranking = TaskEntry::new(&options.dialogues.file, content.clone(), vec![written.clone()], &finished);
    let ranked: Vec<Ranked> =
        jsonl::open(folder.root.join(written))?.records().collect::<sporran_kilt::Result<_>>()?;
    let ranking_seconds = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let asked: Vec<Asked> =
        dialogues.iter().zip(&ranked).map(|((id, own), ranked)| Asked::new(id, own, ranked)).collect();
    let step = FileStep {
        title: "respond".into(),
        name: &stem(predictions),
        key,
        outputs: vec![predictions.clone()],
        inputs: &inputs,
    };
    let make = |_, portion: &[Asked]| -> Result<Vec<Record>> {
        let made = portion.iter().zip(responses(&*generator, portion)?);
        Ok(made.map(|(asked, (response, read))| asked.record(response, &read, &pages)).collect())
    };
    let mut work = Lines { inputs: &asked, portion: PORTION, make, path: predictions };
    let finished = folder.complete(step, &mut work, observe)?;
    mark.done(&stem(predictions))?;
    account.took("respond");
    account.answered(TaskEntry::new(
        &options.dialogues.file,
        content.clone(),
        vec![predictions.clone()],
        &finished,
    ));
    account.answered(ranking);
    let (mut grounded, mut words) = (Vec::new(), Vec::new());
    for (asked, record) in asked.iter().zip(jsonl::open(folder.root.join(predictions))?.records::<Record>()) {
        let record = record?;
        let response =
            record.outputs().first().and_then(|output| output.answer.as_deref()).unwrap_or_default();
        words.push(response.split_whitespace().count() as f64);
        if let Some((best, _)) = asked.sentences.first() {
            grounded.push(Answers::new([best.text.as_str()]).score(response).f1);
        }
    }
    let generating_seconds = start.elapsed().as_secs_f64();

    let responded = Responded {
        name: options.name.clone(),
        dialogues: asked.len(),
        ranking: ranking::Report::of(&ranked, RELEVANT),
        knowledge_f1: Measure::mean(grounded),
        words: Measure::mean(words),
        seconds: [ranking_seconds, generating_seconds],
        predictions: folder.root.join(predictions),
        ranked: folder.root.join(written),
    };
    jsonl::write_json(folder.root.join("report.json"), &responded)?;
    account.read(&inputs);
    account.parts(pages.parts());
    account.finish(&folder, mark)?;
    Ok(responded)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The options that neither rankings nor responses depend on: where results go, the dialogues, which count for themselves, and
/// the source, whose content is in the hash of its pages.
const WITHOUT: [&str; 6] =
    ["name", "output", "dialogues", "source.path", "source.redirects", "source.indexes"];

fn responses_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("respond", options)?.without(&WITHOUT))
}

/// Dialogues that are responded to together.
const PORTION: usize = 32;

/// A dialogue with its sentences, best first.
struct Asked {
    id: Id,
    query: sporran_kilt::Query,
    sentences: Vec<(Passage, f32)>,
}

impl Asked {
    fn new(id: &str, dialogue: &wowpp::Dialogue, ranked: &Ranked) -> Self {
        let Selection { mut query, passages, .. } = Selection::new(id, dialogue, Labels::Crowd);
        query.dataset = Some(Dataset::Wow);
        let scored = |at: usize| (passages[at].clone(), ranked.candidates[at].score as f32);
        Self { id: Id::from(id), query, sentences: order(ranked).into_iter().map(scored).collect() }
    }

    fn record(&self, response: String, read: &[usize], pages: &Pages) -> Record {
        let sentences: Vec<(&Passage, f64)> = read
            .iter()
            .map(|&at| {
                let (passage, score) = &self.sentences[at];
                (passage, f64::from(*score))
            })
            .collect();
        record(self.id.clone(), &self.query.text, response, &sentences, pages)
    }
}

/// The response to each dialogue, and the sentences that it was written from.
fn responses(generator: &dyn Generator, asked: &[Asked]) -> Result<Vec<(String, Vec<usize>)>> {
    let candidates: Vec<Vec<Candidate<'_>>> = asked
        .iter()
        .map(|asked| {
            let read = asked.sentences.iter().take(generator.passages());
            read.map(|(passage, score)| Candidate { passage, score: *score }).collect()
        })
        .collect();
    let requests: Vec<Request<'_>> = asked
        .iter()
        .zip(&candidates)
        .map(|(asked, candidates)| Request { query: &asked.query, passages: candidates })
        .collect();
    let generations = generator.generate(&requests)?;
    Ok(generations.into_iter().map(|generation| (generation.text, generation.evidence)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::key::tests::assert_complete;

    #[test]
    fn every_option_is_in_the_key_but_those_that_change_no_response() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = "workflow = 'dialogue'\nname = 'd'\n[source]\npath = 'pages'\nredirects = 'r'\n\
                    [dialogues]\nfile = 'f'\nlimit = 3\n[reranker]\nkind = 'tfidf'\nmodel = 'm'\n\
                    [generator]\nkind = 'causal'\nmodel = 'c'\n";
        std::fs::write(&path, text).unwrap();
        let options = ResponseOptions::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| responses_key(tree).unwrap(), &WITHOUT);
    }
}
