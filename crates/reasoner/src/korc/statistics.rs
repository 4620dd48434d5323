//! Statistics of a built benchmark, as in the paper's table.

use std::fmt;

use rustc_hash::FxHashSet;
use serde::Serialize;
use sporran_kilt::scores::Measure;

use super::build::{Built, SPLITS, Sources};

/// Statistics of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SplitStatistics {
    /// The split.
    pub split: String,
    /// The number of documents with questions.
    pub documents: usize,
    /// The number of relations in questions.
    pub relations: usize,
    /// Questions.
    pub questions: usize,
    /// Words of a document, the mean over questions.
    pub words: Measure,
    /// Answers of a question, the mean.
    pub answers: Measure,
    /// Triples of an answer's chain, the mean over the answers that have one.
    pub hops: Measure,
    /// Of those, the triples from the document.
    pub hops_in_document: Measure,
}

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
    /// The splits.
    pub splits: Vec<SplitStatistics>,
}

impl fmt::Display for Statistics {
    /// A table with one row a split.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { documents, mentions, document_relations, rules, triples, splits } = self;
        writeln!(
            f,
            "{documents} documents, {mentions} mentions, {document_relations} relations in documents"
        )?;
        writeln!(f, "{rules} rules in chains, {triples} triples left in the knowledge base")?;
        write!(
            f,
            "{:<16}{:>10}{:>10}{:>10}{:>8}{:>9}{:>7}{:>10}",
            "split", "documents", "relations", "questions", "words", "answers", "hops", "in text"
        )?;
        for split in splits {
            write!(
                f,
                "\n{:<16}{:>10}{:>10}{:>10}{:>8.1}{:>9.2}{:>7.2}{:>10.2}",
                split.split,
                split.documents,
                split.relations,
                split.questions,
                split.words,
                split.answers,
                split.hops,
                split.hops_in_document
            )?;
        }
        Ok(())
    }
}

impl Statistics {
    /// Counts the benchmark.
    pub fn of(sources: &Sources<'_>, built: &Built) -> Self {
        let chains = built.origins.iter().flatten().flat_map(|origin| &origin.chains);
        let rules: FxHashSet<usize> = chains.map(|chain| chain.rule).collect();
        let split = |at: usize| {
            let (origins, questions) = (&built.origins[at], &built.questions[at]);
            let chains = || origins.iter().flat_map(|origin| &origin.chains);
            let said: usize = chains().map(|chain| chain.document.len()).sum();
            let added: usize = chains().map(|chain| chain.knowledge.len()).sum();
            let words = questions.iter().map(|question| question.document().split_whitespace().count()).sum();
            SplitStatistics {
                split: SPLITS[at].to_owned(),
                documents: origins.iter().map(|origin| origin.document).collect::<FxHashSet<_>>().len(),
                relations: origins.iter().map(|origin| origin.relation).collect::<FxHashSet<_>>().len(),
                questions: origins.len(),
                words: Measure::share(words, questions.len()),
                answers: Measure::share(
                    origins.iter().map(|origin| origin.answers.len()).sum(),
                    origins.len(),
                ),
                hops: Measure::share(said + added, chains().count()),
                hops_in_document: Measure::share(said, chains().count()),
            }
        };
        Self {
            documents: sources.documents.len(),
            mentions: sources.documents.iter().map(|document| document.mentions.len()).sum(),
            document_relations: sources.documents.iter().map(|document| document.relations.len()).sum(),
            rules: rules.len(),
            triples: built.knowledge.len(),
            splits: (0..SPLITS.len()).map(split).collect(),
        }
    }
}
