//! `sporran ask`: answers with evidence out of files and folders.

mod page;
mod session;

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use sporran_kilt::{counted, printable_line};
use sporran_pipeline::{
    Event, UserOptions,
    workflows::answer::{AskOptions, Asker, CitedAnswer, suggested_model},
};
use sporran_retriever::FilterOptions;

use self::page::Page;
use super::{answer_model::AnswerModel, models};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome, stderr},
    paths, settings,
};

/// `sporran ask`
#[derive(Args)]
#[command(
    override_usage = "sporran ask [OPTIONS] <SOURCE>... [QUESTION]",
    after_help = "Examples:\n  \
        sporran ask notes \"where was Mira Oberlin born\"\n  \
        sporran ask notes report.pdf \"what does it cost\" --model models/SmolLM2-360M-Instruct --json\n  \
        sporran ask notes\n\
        \n\
        Without a generator the best passages are the answer. The last of several arguments is the question, unless it is a \
        file or a folder. Without a question, each line of standard input is one; on a terminal there is a prompt with a \
        history.\n\
        \n\
        With --json, each answer is an object with question, answer and evidence: file, page, line (row for Parquet), \
        section, paragraph, start, end, text, score. With --verbose, it also has the sentences of the answer with their \
        citations, and each passage its end_paragraph."
)]
pub(crate) struct Ask {
    #[command(flatten)]
    sources: Sources,
    /// Passages that are evidence and that a generator reads
    #[arg(long, default_value_t = 5, value_name = "N")]
    passages: usize,
    /// Answer only from passages whose metadata match, such as `lang=en AND year>=2000`; see `sporran retrieve --help`. The
    /// option can be repeated; then all must match
    #[arg(long, value_name = "CONDITIONS")]
    filter: Vec<String>,
    /// Encoder for dense retrieval, whose ranking is fused with that of BM25: a folder, an imported model's name, or
    /// hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    embed: Option<PathBuf>,
    /// Reranker of the best passages, such as a cross-encoder: a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    rerank: Option<PathBuf>,
    /// Classifier with the labels of fact checking, which decides whether a passage supports a sentence of the answer. By
    /// default their words decide
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    verify: Option<PathBuf>,
    /// Maximum number of tokens of an answer
    #[arg(long, default_value_t = 200, value_name = "N")]
    max_new_tokens: usize,
    /// Print the config that the sources and the models stand for, and answer nothing
    #[arg(long)]
    show_config: bool,
}

/// The sources of questions, and the generator.
#[derive(Args)]
pub(super) struct Sources {
    /// Files and folders, or one config of the workflow `answer`
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    words: Vec<String>,
    /// Fail if a file cannot be read. By default the other files are read, and standard error lists what is missing
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    model: AnswerModel,
}

impl Sources {
    /// The options of these sources with their generator, and the user's config. A config as the source has its own models;
    /// the user's do not apply.
    pub(super) fn options(&self, sources: &[String], context: &Context) -> Result<(AskOptions, UserOptions)> {
        let mut user = settings::user()?;
        let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
        sources.iter().try_for_each(|source| paths::file_or_folder(source))?;
        let options = AskOptions::new(sources, settings::cache(&user)?);
        if options.config().is_some() {
            user = UserOptions { cache: user.cache, threads: user.threads, ..UserOptions::default() };
        }
        let options = AskOptions { strict: self.strict, ..options };
        Ok((self.model.of(options, Some(&user), context)?, user))
    }

    /// The keys of the user's config for the generator.
    pub(super) fn users_keys(&self) -> Vec<&'static str> {
        self.model.users_keys()
    }

    /// All arguments as sources.
    pub(super) fn all(&self) -> &[String] {
        &self.words
    }

    /// The sources and the question, if there is one.
    fn split(&self) -> Result<(&[String], Option<&str>)> {
        match self.words.split_last() {
            Some((question, sources)) if !sources.is_empty() && !Path::new(question).exists() => {
                if looks_like_a_path(question) {
                    let path = paths::missing("file or folder", Path::new(question));
                    let message =
                        format!("{path}; a question ends with a question mark or has several words");
                    return Err(Error::Input(message));
                }
                if question.trim().is_empty() {
                    return Err(Error::Usage("QUESTION: expected a question, found a blank text".into()));
                }
                Ok((sources, Some(question)))
            }
            _ => Ok((&self.words, None)),
        }
    }
}

/// Whether a text is probably a mistyped path: one word with a separator or with an ending such as `.md`.
fn looks_like_a_path(text: &str) -> bool {
    let has_ending = Path::new(text).extension().and_then(|ending| ending.to_str()).is_some_and(|ending| {
        (1..=8).contains(&ending.len()) && ending.chars().all(|c| c.is_ascii_alphanumeric())
    });
    let is_word = !text.contains(char::is_whitespace) && !text.is_empty() && !text.ends_with(['?', '.', '!']);
    is_word && (has_ending || text.contains(std::path::MAIN_SEPARATOR))
}

impl Ask {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (sources, question) = self.sources.split()?;
        let (options, user) = self.sources.options(sources, context)?;
        let options = AskOptions {
            embedder: settings::resolve(
                self.embed.as_deref(),
                user.embedder.as_deref(),
                "embedder",
                context,
            )?,
            reranker: settings::resolve(
                self.rerank.as_deref(),
                user.reranker.as_deref(),
                "reranker",
                context,
            )?,
            verifier: self
                .verify
                .as_deref()
                .map(|model| models::resolve(model, context.quiet))
                .transpose()?,
            filters: self.filter.iter().map(|text| FilterOptions::parse(text)).collect::<Result<_, _>>()?,
            passages: self.passages,
            max_new_tokens: self.max_new_tokens,
            ..options
        };
        let mut users: Vec<&str> = self.sources.users_keys();
        users.extend(self.embed.is_none().then_some("embedder"));
        users.extend(self.rerank.is_none().then_some("reranker"));
        let blame = |error: sporran_pipeline::Error| settings::blame(error.into(), &users);
        if self.show_config {
            let shown = options.shown().map_err(blame)?.to_toml()?;
            let value: toml::Table =
                toml::from_str(&shown).map_err(|error| Error::Input(error.message().to_owned()))?;
            return Outcome::new(shown, &value);
        }
        interrupt::keep(Kept::Folder(options.cache.clone()));
        let mut draw = context.observer();
        // That an index is up to date is the usual case here.
        let open = |options: &AskOptions| {
            let quiet: &mut dyn FnMut(Event) = &mut |event| match event {
                Event::Skip { .. } => {}
                event => draw(event),
            };
            Asker::open(options, quiet).map_err(blame)
        };
        let (asker, _spare) = settings::with_cache(options, context, open)?;
        if !asker.generates() && !context.quiet && !context.json {
            stderr(&format!("{}\n", advice()));
        }
        interrupt::keep(Kept::Nothing);
        let page = Page::new(context.verbose > 0);
        match question {
            Some(question) => {
                let answer = asker.ask(question)?;
                Outcome::new(page.text(&answer), &json(&answer, context)?)
            }
            None => session::run(context, |question, conversation| {
                let Some(conversation) = conversation else {
                    let answer = asker.ask(question)?;
                    return context.row(&json(&answer, context)?, |_| page.text(&answer));
                };
                let answer = asker.ask_in(question, conversation)?;
                let carried = conversation.carried();
                if !carried.is_empty() && !context.quiet {
                    stderr(&format!("asked together with: {}\n", printable_line(&carried.join(" "))));
                }
                context.row(&answer, |answer| page.text(answer))
            }),
        }
    }
}

/// The answer as JSON; with `--verbose` also its sentences, and the last paragraphs of the evidence.
fn json(answer: &CitedAnswer, context: &Context) -> Result<Value> {
    let failed = |error: serde_json::Error| Error::Stream { stream: "standard output", source: error.into() };
    let mut value = serde_json::to_value(answer).map_err(failed)?;
    if let Some(object) = value.as_object_mut().filter(|_| context.verbose > 0) {
        object.insert("sentences".to_owned(), json!(answer.sentences));
        let items = object.get_mut("evidence").and_then(Value::as_array_mut);
        for (item, passage) in items.into_iter().flatten().zip(&answer.evidence) {
            item["end_paragraph"] = passage.end_paragraph.into();
        }
    }
    Ok(value)
}

/// What to do for answers in sentences: the generator that fits the machine.
fn advice() -> String {
    let cores = rayon::current_num_threads();
    let memory = settings::memory("MemAvailable");
    let Some(model) = suggested_model(memory.unwrap_or(0), cores) else {
        return "no generator: this machine has too little free memory for one".to_owned();
    };
    let cores = counted(cores as u64, "core");
    let machine = format!("{cores}, {:.1} GiB free", memory.unwrap_or(0) as f64 / f64::from(1 << 30));
    let name = model.name();
    if Path::new("models").join(name).is_dir() {
        return format!("no generator: add `--model {name}` for answers in sentences");
    }
    format!(
        "no generator: `sporran models pull {}` fetches one for this machine ({machine}); then add `--model {name}`",
        model.id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        sources: Sources,
    }

    fn sources(words: &[&str]) -> Sources {
        let line = std::iter::once(&"ask").chain(words);
        <Line as clap::Parser>::parse_from(line).sources
    }

    #[test]
    fn the_last_argument_is_the_question_unless_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_str().unwrap();
        let asked = |words: &[&str]| {
            sources(words).split().map(|(known, asked)| (known.len(), asked.map(str::to_owned)))
        };
        assert_eq!(asked(&[place]).unwrap(), (1, None));
        assert_eq!(asked(&[place, place]).unwrap(), (2, None));
        assert_eq!(asked(&[place, "what is tea"]).unwrap(), (1, Some("what is tea".into())));
        assert_eq!(asked(&[place, "TCP/IP?"]).unwrap(), (1, Some("TCP/IP?".into())));
        // A single argument is a source, whether it exists or not.
        assert_eq!(asked(&["none"]).unwrap(), (1, None));
        for wrong in ["notes/b", "notes.md"] {
            let error = asked(&[place, wrong]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("no file or folder {wrong}")), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert_eq!(asked(&[place, " "]).unwrap_err().exit_code(), 2);
    }
}
