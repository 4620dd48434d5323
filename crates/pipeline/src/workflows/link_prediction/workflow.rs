//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{LinksOptions, NetworkConfig, train as learn, train_network};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "link-prediction"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<LinksOptions>(
    "link-prediction",
    "embedding",
    "Embeds the entities and relations of a knowledge base, and predicts missing triples.",
    r#"name = "link-prediction"
[data]
folder = "kb"
[embedding]
model = "complex"
"#,
)
.with_train(train);

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = LinksOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}

/// `workflow = "graph-network"`
pub(crate) const GRAPH_NETWORK: Workflow = Workflow::new::<NetworkConfig>(
    "graph-network",
    "network",
    "Trains a network over the graph of a knowledge base, which predicts missing triples.",
    r#"name = "graph-network"
[data]
folder = "kb"
[network]
"#,
)
.with_train(train_graph_network);

fn train_graph_network(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = NetworkConfig::load(path, overrides)?;
    observe(Event::Folder { path: options.output.join(&options.name) });
    let trained = train_network(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}
