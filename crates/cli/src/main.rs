//! The `sporran` program: its verbs are library calls and printing.
//!
//! Results go to standard output, progress and logs to standard error. Exit code 0: done; 1: the work failed; 2: the
//! call, the config or an input was wrong.

mod commands;
mod error;
mod progress;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use sporran_kernels::Isa;

use crate::{commands::Command, error::Error};

/// Retrieve, read, reason and extract for knowledge-intensive language tasks; predictions carry their evidence.
#[derive(Parser)]
#[command(version, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more about what is done; twice for details.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Say nothing but errors: no progress, no warnings.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Threads to work with; all cores by default.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
    /// The widest instruction set to use: portable, avx2, avx512, vnni or amx. The same one on two machines makes their results
    /// equal; the widest that the machine has by default.
    #[arg(long, global = true, value_name = "NAME")]
    isa: Option<Isa>,
}

/// Keeps the kernels to an instruction set.
fn limit(isa: Option<Isa>) -> error::Result<()> {
    match isa {
        Some(isa) if Isa::limit(isa) != isa => Err(Error::Usage(format!(
            "--isa: expected an instruction set that this machine has, found `{isa}`; the widest here is `{}`",
            Isa::detected()
        ))),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => tracing::Level::ERROR,
        (_, 0) => tracing::Level::WARN,
        (_, 1) => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time();
    // Colours by default, unless NO_COLOR says otherwise; a file wants none either.
    if std::io::stderr().is_terminal() {
        log.init()
    } else {
        log.with_ansi(false).init()
    }
    if let Some(threads) = cli.threads {
        // candle has threads of its own, and takes their number from here.
        // SAFETY: no thread has been started yet, so that nothing else looks at the environment.
        unsafe { std::env::set_var("RAYON_NUM_THREADS", threads.to_string()) };
        if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global() {
            tracing::warn!("--threads has no effect: {error}");
        }
    }
    match limit(cli.isa).and_then(|()| cli.command.run(cli.quiet)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has seen enough, as with `sporran .. | head`.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
