//! `sporran evaluate`: one file per scorer.

mod agreement;
mod answer_sets;
mod facts;
mod figures;
mod kilt;
mod links;
mod mentions;
mod ranking;
mod relations;
mod rounds;
mod trec;

use clap::Subcommand;

pub(super) use self::rounds::Rounds;
use crate::{error::Result, outcome::Outcome};

/// `sporran evaluate`
#[derive(Subcommand)]
pub(crate) enum Evaluate {
    /// Score predictions of KILT tasks: answers and evidence
    Kilt(kilt::Kilt),
    /// Score ranked candidates, such as WOW++'s knowledge selection
    Ranking(ranking::Ranking),
    /// Score a TREC run against judgements: nDCG, average precision, recall and others
    Trec(trec::Trec),
    /// List the mentions of each text with right and wrong predictions of entity linking
    Mentions(mentions::Mentions),
    /// Score extracted facts in KnowledgeNet's layout
    Facts(facts::Facts),
    /// Score link prediction of an embedding or a network over a knowledge base
    Links(links::Links),
    /// Score relations between the entities of documents in DocRED's layout
    Relations(relations::Relations),
    /// Score answer sets, as KoRC does: P-ACC and P-F1
    AnswerSets(answer_sets::AnswerSets),
    /// Measure the agreement of annotators (Cohen's and Fleiss' kappa)
    Agreement(agreement::Agreement),
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Kilt(command) => command.run(),
            Self::Ranking(command) => command.run(),
            Self::Trec(command) => command.run(),
            Self::Mentions(command) => command.run(),
            Self::Facts(command) => command.run(),
            Self::Links(command) => command.run(),
            Self::Relations(command) => command.run(),
            Self::AnswerSets(command) => command.run(),
            Self::Agreement(command) => command.run(),
        }
    }
}
