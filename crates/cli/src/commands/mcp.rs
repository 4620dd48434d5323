//! `sporran mcp`.

use clap::Args;
use sporran_server::{ServerOptions, serve_stdio};

use super::served::Served;
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
};

/// `sporran mcp`
#[derive(Args)]
#[command(
    override_usage = "sporran mcp [OPTIONS] <CONFIG|SOURCE>...",
    after_help = "Examples:\n  \
        sporran mcp notes\n  \
        sporran mcp configs/quickstart.toml --run quickstart=runs/quickstart\n\
        \n\
        It speaks the Model Context Protocol over standard input and output until the input ends. Messages are on standard error. \
        `sporran serve` speaks it over HTTP, at /mcp.\n\
        \n\
        A client's config: {\"mcpServers\": {\"sporran\": {\"command\": \"sporran\", \"args\": [\"mcp\", \"notes\"]}}}"
)]
pub(crate) struct Mcp {
    #[command(flatten)]
    served: Served,
}

impl Mcp {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let options = self.served.options(context)?;
        let options = ServerOptions { browse: self.served.browse(&[], &[])?, ..options };
        if options.mounts.is_empty() && options.browse.runs.is_empty() {
            return Err(Error::Usage("expected a config, documents or `--run`".into()));
        }
        interrupt::keep(Kept::Nothing);
        self.served
            .with_cache(options, context, |options| Ok(serve_stdio(options, &mut context.observer())?))?;
        Ok(Outcome::default())
    }
}
