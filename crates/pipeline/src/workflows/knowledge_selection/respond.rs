//! Responses to dialogues. A reranker or the annotation selects sentences, and a generator writes the next turn from the
//! dialogue and the sentences (Eric et al., 2021, give the best sentence to GPT-2).

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Instant,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_generator::{Candidate, Generator, GeneratorOptions, Request, TrainOptions, check_generator};
use sporran_kilt::{
    Dataset, Id, Passage, Record, counted, jsonl,
    observe::Observer,
    scores::{
        Measure,
        answer::Answers,
        ranking::{self, RELEVANT, Ranked},
        rouge_l,
    },
    wowpp::{self, repaired},
};
use sporran_reranker::{RerankerOptions, training::GradedQuery};

use super::{
    data::{gold_passage, graded},
    rank::{WITHOUT_SENTENCE, order, rank_one, record, sentence_id},
    train_generator::{self, ResponseExamples},
};
use crate::{
    Result,
    config::{self, Config},
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

/// A whole config of responses.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ResponseOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source with the articles of the sentences. Without it, predictions have no provenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceOptions>,
    /// `[dialogues]`: the input dialogues.
    pub dialogues: DialoguesOptions,
    /// `[reranker]`: the reranker of sentences. Only `dialogues.sentence = "reranker"` needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reranker: Option<RerankerOptions>,
    /// `[generator]`: the generator of responses.
    pub generator: GeneratorOptions,
    /// `[train]`: the training of the generator's model by `sporran train`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainOptions<ResponseExamples>>,
}

/// `[dialogues]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DialoguesOptions {
    /// The file, in WOW++'s layout.
    pub file: PathBuf,
    /// The number of dialogues to use, the first ones.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// The sentence that the generator reads.
    #[serde(default)]
    pub sentence: SentenceChoice,
}

/// The selection of the sentence that a response is based on (Eric et al., 2021, section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SentenceChoice {
    /// The best sentence of `[reranker]`, such as one of kind `tfidf` or `cross-encoder`.
    #[default]
    Reranker,
    /// The dialogue's `gold_sentence`, which `sporran convert gold` adds. `sporran compare responses` leaves out dialogues without
    /// one.
    Gold,
    /// The sentence with the largest confidence of the annotators; of several, the first one in the file.
    CrowdBest,
}

/// The keys outside of the stages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    source: Option<SourceOptions>,
    dialogues: DialoguesOptions,
    train: Option<TrainOptions<ResponseExamples>>,
}

impl Config for ResponseOptions {
    const WORKFLOWS: &'static [&'static str] = &["dialogue"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let reranker = document.read_stage("reranker");
        let generator = document.require_stage("generator");
        let General { name, output, source, dialogues, train } =
            document.read_root(&["reranker", "generator"])?;
        let reranker = reranker.ok()?;
        if reranker.is_none() && dialogues.sentence == SentenceChoice::Reranker {
            document.report_key("reranker", "is missing");
            return None;
        }
        Some(Self { name, output, source, dialogues, reranker, generator: generator.ok()?, train })
    }

    fn check(&self, document: &mut Document<'_>) {
        if !self.dialogues.file.is_file() {
            document.report_key("dialogues.file", format!("no file {}", self.dialogues.file.display()));
        }
        pages::check(self.source.as_ref(), ("source", None), document);
        if let Some(reranker) = self.used_reranker() {
            reranker.check("reranker", document);
        }
        // A run with a model does not need the files of its training.
        let models = self.generator.models("generator");
        let has_model = !models.is_empty() && models.iter().all(|model| model.folder.exists());
        self.check_generation(!has_model, document);
    }
}

impl ResponseOptions {
    /// Reads and checks a config for a training, which needs neither the dialogues nor the reranker of a run.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(super) fn load_for_training(path: &Path, overrides: &[String]) -> Result<Self> {
        config::load(path, overrides, |options: &Self, document| {
            if options.train.is_none() {
                train_generator::report_missing(document);
            }
            options.check_generation(true, document);
        })
    }

    /// Reports mistakes of the generator and, if the model is to be trained, of its training.
    fn check_generation(&self, is_to_train: bool, document: &mut Document<'_>) {
        // These kinds need a passage store, which dialogues do not have.
        if matches!(self.generator, GeneratorOptions::Verifier(_) | GeneratorOptions::MemNet(_)) {
            let message = "expected a kind that reads passages: `causal`, `seq2seq`, `fid`, `rag-sequence`, `rag-token`";
            document.report_key("generator.kind", message);
        }
        check_generator(&*self.generator, ("generator", self.train.is_none()), None, document);
        if let Some(train) = self.train.as_ref().filter(|_| is_to_train) {
            train_generator::check(train, &self.generator, document);
        }
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }

    /// The reranker, if it selects the sentences.
    fn used_reranker(&self) -> Option<&RerankerOptions> {
        self.reranker.as_ref().filter(|_| self.dialogues.sentence == SentenceChoice::Reranker)
    }
}

/// The report of a run: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseReport {
    /// The name of the run.
    pub name: String,
    /// The number of dialogues.
    pub dialogues: usize,
    /// The scores of the ranking of sentences by the annotators' labels.
    pub ranking: ranking::Report,
    /// Knowledge F1 (Shuster et al., 2021): the mean word F1 of responses and the best sentences. It is independent of the
    /// generator's input, and excludes dialogues without sentences.
    pub knowledge_f1: Measure,
    /// The mean ROUGE-L of responses and the humans' turns, which are the field `response` of dialogues.
    pub rouge_l: Measure,
    /// The number of dialogues with a `response`.
    pub references: usize,
    /// The number of dialogues without a sentence for the generator.
    pub without_sentence: usize,
    /// The mean number of words of a response.
    pub words: Measure,
    /// The durations of ranking and of generation in seconds, without loading.
    pub seconds: [f64; 2],
    /// The predictions in KILT's layout: the response, with the pages of the sentences' articles as provenance.
    pub predictions: PathBuf,
    /// The file with the scores of all sentences.
    pub ranked: PathBuf,
}

impl fmt::Display for ResponseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, knowledge F1 {:.1}, {:.1} words a response",
            counted(self.dialogues as u64, "dialogue"),
            self.knowledge_f1.percent(),
            self.words
        )?;
        if self.references > 0 {
            writeln!(f, "ROUGE-L {:.1} over {} human responses", self.rouge_l.percent(), self.references)?;
        }
        if self.without_sentence > 0 {
            writeln!(f, "{} without a sentence", counted(self.without_sentence as u64, "dialogue"))?;
        }
        writeln!(f, "ranking: {}", self.ranking)?;
        let [ranking, responses] = self.seconds;
        write!(f, "{ranking:.1} s for ranking, {responses:.1} s for responses")
    }
}

/// Ranks the sentences of dialogues, and generates responses from the best ones. Writes predictions, ranking,
/// report and manifest into the run's folder. A killed run resumes at the first missing portion.
///
/// # Errors
/// Errors of files or models; [`crate::Error::Busy`] if another process uses the run's folder.
pub fn respond(options: &ResponseOptions, observe: &mut Observer<'_>) -> Result<ResponseReport> {
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let content = inputs.file(&options.dialogues.file)?;
    let mut dialogues = wowpp::load(&options.dialogues.file)?.0;
    dialogues.truncate(options.dialogues.limit.unwrap_or(usize::MAX));
    let has_gold = |(_, dialogue): &(String, wowpp::Dialogue)| dialogue.gold_sentence().is_some();
    if options.dialogues.sentence == SentenceChoice::Gold && !dialogues.iter().any(has_gold) {
        let file = options.dialogues.file.display();
        let message =
            format!("{file}: expected a `gold_sentence`, found none; `sporran convert gold` adds it");
        return Err(sporran_kilt::Error::Argument(message).into());
    }
    let folder = RunDir::open(options.folder())?;
    let key = |key: StepKey, inputs: &mut Inputs| -> Result<StepKey> {
        let key = key.read(inputs)?.input("content", content.as_str()).input("portion", PORTION.to_string());
        Ok(key.input("limit", format!("{:?}", options.dialogues.limit)))
    };
    let sentence = options.dialogues.sentence;
    let by = match options.used_reranker() {
        Some(reranker) => StepKey::new("rank", reranker)?,
        None => StepKey::new("rank", &BTreeMap::from([("sentence", sentence)]))?,
    };
    let ranking_key = key(by, &mut inputs)?;
    let pages = Pages::open(options.source.as_ref(), None, observe)?;
    let key = key(responses_key(options)?, &mut inputs)?.input("pages", pages.hash());
    let reranker = options.used_reranker().map(|reranker| reranker.open()).transpose()?;
    // No generator for dialogues uses the seed.
    let generator = load_generator(&options.generator, None, 0)?;
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
        let one = |(id, dialogue): &(String, wowpp::Dialogue)| match &reranker {
            Some(reranker) => rank_one(id, dialogue, &**reranker),
            None => Ok(annotated(id, dialogue, sentence)),
        };
        portion.iter().map(one).collect()
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
    let ranked_dialogues: Vec<RankedDialogue> = dialogues
        .iter()
        .zip(&ranked)
        .map(|((id, own), ranked)| RankedDialogue::new(id, own, ranked, sentence))
        .collect();
    let step = FileStep {
        title: "respond".into(),
        name: &stem(predictions),
        key,
        outputs: vec![predictions.clone()],
        inputs: &inputs,
    };
    let make = |_, portion: &[RankedDialogue]| -> Result<Vec<Record>> {
        let made = portion.iter().zip(responses(&*generator, portion)?);
        Ok(made.map(|(dialogue, (response, read))| dialogue.record(response, &read, &pages)).collect())
    };
    let mut work = Lines { inputs: &ranked_dialogues, portion: PORTION, make, path: predictions };
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
    let (mut grounded, mut words, mut overlaps) = (Vec::new(), Vec::new(), Vec::new());
    for (dialogue, record) in
        ranked_dialogues.iter().zip(jsonl::open(folder.root.join(predictions))?.records::<Record>())
    {
        let record = record?;
        let response =
            record.outputs().first().and_then(|output| output.answer.as_deref()).unwrap_or_default();
        words.push(response.split_whitespace().count() as f64);
        if let Some((best, _)) = dialogue.sentences.first() {
            grounded.push(Answers::new([best.text.as_str()]).score(response).f1);
        }
        overlaps.extend(dialogue.reference.as_ref().map(|reference| rouge_l(response, reference)));
    }
    let generating_seconds = start.elapsed().as_secs_f64();

    let report = ResponseReport {
        name: options.name.clone(),
        dialogues: ranked_dialogues.len(),
        ranking: ranking::Report::of(&ranked, RELEVANT),
        knowledge_f1: Measure::mean(grounded),
        references: overlaps.len(),
        rouge_l: Measure::mean(overlaps),
        without_sentence: ranked_dialogues.iter().filter(|dialogue| dialogue.sentences.is_empty()).count(),
        words: Measure::mean(words),
        seconds: [ranking_seconds, generating_seconds],
        predictions: folder.root.join(predictions),
        ranked: folder.root.join(written),
    };
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    account.read(&inputs);
    account.parts(pages.parts());
    account.finish(&folder, mark)?;
    Ok(report)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Options that are not in the key: output folders; the training; the file of dialogues, whose content is a separate input; and
/// the source, because the key has the hash of its pages.
const WITHOUT: [&str; 8] = [
    "name",
    "output",
    "train",
    "dialogues.file",
    "dialogues.limit",
    "source.path",
    "source.redirects",
    "source.indexes",
];

fn responses_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("respond", options)?.without(&WITHOUT))
}

/// The number of dialogues in a portion.
const PORTION: usize = 32;

/// The ranking of a dialogue's sentences by their annotation: 1 for the gold sentence and 0 for others, or the annotators'
/// confidence.
fn annotated(id: &str, dialogue: &wowpp::Dialogue, choice: SentenceChoice) -> Ranked {
    let gold = dialogue.gold_places().first().copied();
    let candidate = |(at, sentence): (usize, &wowpp::AnnotatedSentence)| ranking::Candidate {
        id: sentence_id(at),
        confidence: sentence.confidence,
        score: match choice {
            SentenceChoice::Gold => f64::from(u8::from(gold == Some(at))),
            SentenceChoice::CrowdBest | SentenceChoice::Reranker => sentence.confidence,
        },
    };
    let sentences = dialogue.annotated_sentences.iter().enumerate();
    Ranked { id: id.into(), candidates: sentences.map(candidate).collect() }
}

/// A dialogue with its ranked sentences, best first. With the gold sentence, it is the only one.
struct RankedDialogue {
    id: Id,
    query: sporran_kilt::Query,
    sentences: Vec<(Passage, f32)>,
    /// The human's response.
    reference: Option<String>,
}

impl RankedDialogue {
    fn new(id: &str, dialogue: &wowpp::Dialogue, ranked: &Ranked, choice: SentenceChoice) -> Self {
        let GradedQuery { mut query, passages, .. } = graded(id, dialogue);
        query.dataset = Some(Dataset::Wow);
        let scored = |at: usize| (passages[at].clone(), ranked.candidates[at].score as f32);
        let sentences = match choice {
            SentenceChoice::Gold => gold_passage(dialogue).map(|gold| (gold, 1.0)).into_iter().collect(),
            SentenceChoice::CrowdBest => {
                let mut order: Vec<usize> = (0..passages.len()).collect();
                let score = |at: usize| ranked.candidates[at].score;
                order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
                order.into_iter().map(scored).collect()
            }
            SentenceChoice::Reranker => order(ranked).into_iter().map(scored).collect(),
        };
        Self { id: Id::from(id), query, sentences, reference: dialogue.response().map(repaired) }
    }

    fn record(&self, response: String, read: &[usize], pages: &Pages) -> Record {
        let sentences: Vec<(&Passage, f64)> = read
            .iter()
            .map(|&at| {
                let (passage, score) = &self.sentences[at];
                (passage, f64::from(*score))
            })
            .collect();
        let mut record = record(self.id.clone(), &self.query.text, response, &sentences, pages);
        if self.sentences.is_empty()
            && let Some(meta) = record.meta.as_mut().and_then(|meta| meta.as_object_mut())
        {
            meta.insert(WITHOUT_SENTENCE.to_owned(), true.into());
        }
        record
    }
}

/// The response to each dialogue, and the indices of the sentences in its prompt.
fn responses(generator: &dyn Generator, dialogues: &[RankedDialogue]) -> Result<Vec<(String, Vec<usize>)>> {
    let candidates: Vec<Vec<Candidate<'_>>> = dialogues
        .iter()
        .map(|dialogue| {
            let read = dialogue.sentences.iter().take(generator.passages());
            read.map(|(passage, score)| Candidate { passage, score: *score }).collect()
        })
        .collect();
    let requests: Vec<Request<'_>> = dialogues
        .iter()
        .zip(&candidates)
        .map(|(dialogue, candidates)| Request { query: &dialogue.query, passages: candidates })
        .collect();
    let generations = generator.generate(&requests)?;
    Ok(generations.into_iter().map(|generation| (generation.text, generation.evidence)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::mistakes, run_dir::key::tests::assert_complete};

    #[test]
    fn the_annotation_chooses_the_gold_sentence_or_the_one_of_most_annotators() {
        let json = r#"{"turns": ["a"], "topic": "t", "gold_sentence": "T <knowledge_separator> One.", "response": "Yes.",
            "annotated_sentences": [{"label": "T <knowledge_separator> One.", "confidence": 0.2},
                {"label": "T <knowledge_separator> Two.", "confidence": 0.9}]}"#;
        let mut dialogue: wowpp::Dialogue = serde_json::from_str(json).unwrap();
        let texts = |dialogue: &wowpp::Dialogue, choice| {
            let ranked = annotated("d", dialogue, choice);
            let found = RankedDialogue::new("d", dialogue, &ranked, choice);
            assert_eq!(found.reference.as_deref(), Some("Yes."));
            found.sentences.into_iter().map(|(passage, _)| passage.text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&dialogue, SentenceChoice::CrowdBest), ["Two.", "One."]);
        assert_eq!(texts(&dialogue, SentenceChoice::Gold), ["One."]);
        let scores = |choice| {
            annotated("d", &dialogue, choice).candidates.iter().map(|it| it.score).collect::<Vec<_>>()
        };
        assert_eq!(
            (scores(SentenceChoice::Gold), scores(SentenceChoice::CrowdBest)),
            (vec![1.0, 0.0], vec![0.2, 0.9])
        );
        // Of equal sentences, the first one.
        let mut equal = dialogue.clone();
        equal.annotated_sentences[0].confidence = 0.9;
        assert_eq!(texts(&equal, SentenceChoice::CrowdBest), ["One.", "Two."]);
        // A gold sentence that was not annotated, and none.
        dialogue.extra.insert("gold_sentence".into(), "U <knowledge_separator> Three.".into());
        assert_eq!(texts(&dialogue, SentenceChoice::Gold), ["Three."]);
        dialogue.extra.remove("gold_sentence");
        assert!(texts(&dialogue, SentenceChoice::Gold).is_empty());
        let meta = |choice| {
            let ranked = annotated("d", &dialogue, choice);
            let found = RankedDialogue::new("d", &dialogue, &ranked, choice);
            found.record("Hm.".into(), &[], &Pages::default()).meta.unwrap()
        };
        assert_eq!(meta(SentenceChoice::Gold)[WITHOUT_SENTENCE], true);
        // A generator that reads no sentence is another case.
        assert!(meta(SentenceChoice::CrowdBest).get(WITHOUT_SENTENCE).is_none());
    }

    #[test]
    fn only_the_reranker_needs_its_table() {
        let text = "workflow = \"dialogue\"\nname = \"d\"\n[dialogues]\nfile = \"none.json\"\n\
                    [generator]\nkind = \"causal\"\nmodel = \"c\"\n";
        let check = |overrides: &[&str]| mistakes(text, overrides, ResponseOptions::load);
        assert!(check(&[]).contains("`reranker`: is missing"), "{}", check(&[]));
        let gold = check(&["dialogues.sentence=gold"]);
        assert!(!gold.contains("reranker") && gold.contains("no file none.json"), "{gold}");
        assert!(check(&["dialogues.sentence=crowd"]).contains("`crowd-best`"));
    }

    #[test]
    fn every_option_is_in_the_key_but_those_that_change_no_response() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = "workflow = 'dialogue'\nname = 'd'\n[source]\npath = 'pages'\nredirects = 'r'\n\
                    [dialogues]\nfile = 'f'\nlimit = 3\n[reranker]\nkind = 'tfidf'\nmodel = 'm'\n\
                    [generator]\nkind = 'causal'\nmodel = 'c'\n[train]\nmodel = 't'\n\
                    [train.examples]\nfiles = ['x']\n";
        std::fs::write(&path, text).unwrap();
        let options = ResponseOptions::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| responses_key(tree).unwrap(), &WITHOUT);
    }
}
