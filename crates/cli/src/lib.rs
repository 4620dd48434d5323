//! The `sporran` program as a function: each verb calls the library and prints the result.
//!
//! Results go to standard output, progress and logs to standard error. Exit code 0: done; 1: the work failed; 2: the
//! call, the config or an input was wrong; 130: Ctrl-C.

mod commands;
mod error;
mod forms;
mod help;
mod interrupt;
mod outcome;
mod paths;
mod progress;
mod settings;

use std::{
    env,
    ffi::OsString,
    io::IsTerminal,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
};

use clap::{CommandFactory, FromArgMatches, Parser};
use sporran_kernels::Isa;
use sporran_kilt::jsonl::Limits;
use sporran_pipeline::MOST_THREADS;
use tracing_subscriber::fmt::time::SystemTime;

use crate::{commands::Command, error::Error, outcome::Context};

/// Heading of the options that every verb has.
const GLOBAL: &str = "Global options";

/// Retrieve, rerank, read, reason and extract for knowledge-intensive language tasks, with evidence.
#[derive(Parser)]
#[command(
    name = "sporran",
    bin_name = "sporran",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Help on a command: sporran COMMAND --help\n\
                  First run:         sporran run configs/quickstart.toml"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print JSON instead of text: one object, or one object per line
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Show more log messages; twice shows details
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    /// Show errors only: no progress, no warnings
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    quiet: bool,
    /// Number of threads, at most 1024; all cores by default
    #[arg(long, global = true, value_name = "N", value_parser = threads, help_heading = GLOBAL)]
    threads: Option<NonZeroUsize>,
    /// Widest instruction set to use: portable, avx2, avx512, vnni or amx. Machines with the same one give equal results
    #[arg(long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    isa: Option<Isa>,
    /// MiB of the longest line of an input, and of the longest element of a JSON array
    #[arg(long, global = true, value_name = "MIB", help_heading = GLOBAL, hide_short_help = true,
          default_value_t = Limits::DEFAULT.line >> 20, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    max_line: u64,
    /// A compressed input may unpack to N times its size. Inputs that unpack to at most 1 GiB have no such limit
    #[arg(long, global = true, value_name = "N", help_heading = GLOBAL, hide_short_help = true,
          default_value_t = Limits::DEFAULT.expansion, value_parser = clap::value_parser!(u64).range(1..))]
    max_expansion: u64,
    /// MiB of the longest window of a zstd input, which takes so much memory; rounded down to a power of two
    #[arg(long, global = true, value_name = "MIB", help_heading = GLOBAL, hide_short_help = true,
          default_value_t = Limits::DEFAULT.window >> 20, value_parser = clap::value_parser!(u64).range(1..=2048))]
    max_window: u64,
}

/// Limits the kernels to an instruction set.
fn limit(isa: Option<Isa>) -> error::Result<()> {
    match isa {
        Some(isa) if Isa::limit(isa) != isa => Err(Error::Usage(format!(
            "--isa: expected an instruction set of this machine, found `{isa}`; the widest one here is `{}`",
            Isa::detected()
        ))),
        _ => Ok(()),
    }
}

/// Reads a command line. The process ends here after `--help`, `--version` and wrong calls.
fn parse(arguments: &[OsString]) -> Result<Cli, u8> {
    let parsed = help::grouped(Cli::command())
        .try_get_matches_from(arguments)
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| {
        let words: Vec<String> =
            arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        match forms::old_form(&words) {
            Some(old) if error.use_stderr() => {
                old.print();
                old.exit_code()
            }
            // clap prints help to standard output and errors to standard error.
            _ => error.exit(),
        }
    })
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads: Option<NonZeroUsize> = text.parse().ok();
    threads
        .filter(|threads| threads.get() <= MOST_THREADS)
        .ok_or_else(|| format!("expected a number from 1 to {MOST_THREADS}, found `{text}`"))
}

/// Runs the program with a command line, whose first value is the program's name. Returns its exit code.
///
/// It sets the process up: logs, the number of threads, the handler of Ctrl-C. So it is called once in a process, before other
/// threads start.
#[must_use]
pub fn run(arguments: &[OsString]) -> u8 {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => tracing::Level::ERROR,
        // A server logs its requests.
        (_, 0) if matches!(cli.command, Command::Serve(_)) => tracing::Level::INFO,
        (_, 0) => tracing::Level::WARN,
        (_, 1) => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    // A line that cannot be written is left out; by default it would be a panic.
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .without_time();
    // In colour unless NO_COLOR is set; never in a file.
    if cli.json && matches!(cli.command, Command::Serve(_)) {
        log.json().flatten_event(true).with_timer(SystemTime).init();
    } else if std::io::stderr().is_terminal() {
        log.init()
    } else {
        log.with_ansi(false).init()
    }
    let threads = match cli.threads {
        Some(threads) => Some(threads),
        None => match settings::user() {
            Ok(user) => user.threads,
            Err(error) => {
                error.print();
                return error.exit_code();
            }
        },
    };
    if let Some(threads) = threads {
        // candle starts its own threads and reads their number from this variable.
        // SAFETY: no thread has been started yet, so nothing else reads the environment.
        unsafe { env::set_var("RAYON_NUM_THREADS", threads.to_string()) };
        if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global() {
            tracing::warn!("--threads has no effect: {error}");
        }
    }
    Limits { line: cli.max_line << 20, expansion: cli.max_expansion, window: cli.max_window << 20 }.set();
    interrupt::install();
    let context = Context { quiet: cli.quiet, json: cli.json, verbose: cli.verbose };
    let work =
        || limit(cli.isa).and_then(|()| cli.command.run(&context)).and_then(|outcome| context.print(outcome));
    let done = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(unwinding) if unwinding.is::<interrupt::Interrupted>() => return interrupt::end(),
        Err(panic) => resume_unwind(panic),
    };
    match done {
        Ok(()) => 0,
        // The reader closed the pipe, as `head` does in `sporran .. | head`.
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) => {
            error.print();
            error.exit_code()
        }
    }
}

/// The folder of a model: its path, the name of an imported model under `models`, or `hf:ID[@REV]`, which is downloaded.
///
/// # Errors
/// The message, where there is no such model.
pub fn model_folder(model: &Path) -> Result<PathBuf, String> {
    commands::models::resolve(model, true).map_err(|error| error.text())
}

/// The folder of cached indexes: that of the user's config, or the one of the XDG specification.
///
/// # Errors
/// The message, where there is no home folder or the user's config is wrong.
pub fn cache_folder() -> Result<PathBuf, String> {
    settings::user().and_then(|user| settings::cache(&user)).map_err(|error| error.text())
}
