//! Statistics of a built benchmark, as in the paper's table.

use std::fmt;

use rustc_hash::FxHashSet;
use serde::Serialize;
use sporran_kilt::{counted, korc::Question, statistics::korc::Table};

use super::build::{Built, SPLITS, Sources};

/// Statistics of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// The number of source documents.
    pub documents: usize,
    /// The number of entity mentions in them.
    pub mentions: usize,
    /// The number of triples in them.
    pub document_relations: usize,
    /// The number of rules used in chains.
    pub rules: usize,
    /// The number of remaining triples of the knowledge base.
    pub triples: usize,
    /// The questions of a language model that passed the inspection; none without such questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phrased: Option<usize>,
    /// The splits, and all of them together.
    #[serde(flatten)]
    pub table: Table,
}

impl fmt::Display for Statistics {
    /// The sources, then table 1 of the paper.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { documents, mentions, document_relations, rules, triples, phrased, table } = self;
        writeln!(
            f,
            "{}, {}, {} in documents",
            counted(*documents as u64, "document"),
            counted(*mentions as u64, "mention"),
            counted(*document_relations as u64, "relation")
        )?;
        writeln!(
            f,
            "{} in chains, {} left in the knowledge base",
            counted(*rules as u64, "rule"),
            counted(*triples as u64, "triple")
        )?;
        if let Some(phrased) = phrased {
            writeln!(f, "{} of a language model", counted(*phrased as u64, "question"))?;
        }
        write!(f, "{table}")
    }
}

impl Statistics {
    /// Counts the benchmark.
    pub fn of(sources: &Sources<'_>, built: &Built) -> Self {
        let chains = built.origins.iter().flatten().flat_map(|origin| &origin.chains);
        let rules: FxHashSet<usize> = chains.map(|chain| chain.rule).collect();
        let splits: Vec<(&str, &[Question])> =
            SPLITS.into_iter().zip(built.questions.iter().map(Vec::as_slice)).collect();
        Self {
            documents: sources.documents.len(),
            mentions: sources.documents.iter().map(|document| document.mentions.len()).sum(),
            document_relations: sources.documents.iter().map(|document| document.relations.len()).sum(),
            rules: rules.len(),
            triples: built.knowledge.len(),
            phrased: None,
            table: Table::of(&splits),
        }
    }
}
