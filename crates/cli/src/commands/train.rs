//! `sporran train`.

use clap::Args;

use serde::Serialize;
use sporran_pipeline::{
    Config, ConfigKind, Trained, documents, korc, links,
    population::{self, PopulationOptions, Purpose},
    rules, selection, slots, tagging,
};

use super::{ConfigArgs, convert::QUESTIONS_ARE_BUILT, print, print_json, reason};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

/// `sporran train`
#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl Train {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let mut progress = Progress::new(quiet);
        let (path, overrides) = (&self.config.config, &self.config.overrides);
        let observe = &mut |event| progress.event(event);
        match ConfigKind::of(path, overrides)? {
            ConfigKind::Run => {
                let trained = sporran_pipeline::train(&self.config.load()?, observe)?;
                self.tell(&trained, trained_told)
            }
            ConfigKind::Links => {
                let fitted = links::train(&links::LinksOptions::load(path, overrides)?, observe)?;
                self.tell(&fitted, embedded_told)
            }
            ConfigKind::Network => {
                let fitted = links::train_network(&links::NetworkConfig::load(path, overrides)?, observe)?;
                self.tell(&fitted, embedded_told)
            }
            ConfigKind::Reason => {
                let reasoned = korc::train(&korc::ReasonOptions::load(path, overrides)?, observe)?;
                self.tell(&reasoned, reason::told)
            }
            ConfigKind::Questions => Err(Error::Usage(QUESTIONS_ARE_BUILT.into())),
            ConfigKind::Rules => {
                let mined = rules::mine(&rules::RulesOptions::load(path, overrides)?, observe)?;
                self.tell(&mined, mined_told)
            }
            ConfigKind::Documents => {
                let options = documents::DocumentsOptions::load(path, overrides)?;
                self.tell(&documents::train(&options, observe)?, documents_told)
            }
            ConfigKind::Population => {
                let options = PopulationOptions::load_for(path, overrides, Purpose::Train)?;
                self.tell(&population::train(&options, observe)?, populated_told)
            }
            ConfigKind::Linking | ConfigKind::Responses => {
                let message = "a config of links or responses trains nothing; `sporran run` writes them";
                Err(Error::Usage(message.into()))
            }
            ConfigKind::Selection => {
                let options = selection::SelectionOptions::load(path, overrides)?;
                self.tell(&selection::train(&options, observe)?, selected_told)
            }
            ConfigKind::Slots => {
                let options = slots::SlotsOptions::load(path, overrides)?;
                self.tell(&slots::train(&options, observe)?, slots_told)
            }
            ConfigKind::Tagging => {
                let trained = tagging::train(&tagging::TaggingOptions::load(path, overrides)?, observe)?;
                self.tell(&trained, tagged_told)
            }
        }
    }

    /// Prints an outcome as JSON or in words.
    fn tell<T: Serialize>(&self, outcome: &T, words: impl Fn(&T) -> String) -> Result<()> {
        if self.json { print_json(outcome) } else { print(&words(outcome)) }
    }
}

fn trained_told(trained: &Trained) -> String {
    let best = trained.best.map_or_else(String::new, |(step, score)| {
        format!(", best at step {step} with a mean score of {:.1} on the judged records", score * 100.0)
    });
    format!("{} steps{best}\nmodel: {}\n", trained.steps, trained.model.display())
}

fn embedded_told(fitted: &links::Fitted) -> String {
    let best = fitted.best.map_or_else(String::new, |(epoch, score)| {
        format!(", best behind pass {epoch} with a mean reciprocal rank of {score:.4} on the valid part")
    });
    format!("{} passes{best}\nmodel: {}\n", fitted.epochs, fitted.model.display())
}

fn populated_told(learned: &population::Learned) -> String {
    format!(
        "{} steps\nmaximum recall on the documents that were left out: text {:.3}, link {:.3}\n\
         F1 on these documents {:.1}\nmodel: {}\n",
        learned.steps,
        learned.maximum_recall.text,
        learned.maximum_recall.link,
        learned.judged.percent(),
        learned.model.display()
    )
}

fn documents_told(learned: &documents::TrainedDocuments) -> String {
    let best = learned.trained.best.map_or_else(String::new, |(step, f1)| {
        format!(", best at step {step} with an F1 of {:.1} on the documents that were left out", f1 * 100.0)
    });
    format!("{} steps{best}\nmodel: {}\n", learned.trained.steps, learned.trained.model.display())
}

fn slots_told(learned: &slots::TrainedSlots) -> String {
    let best = learned.trained.best.map_or_else(String::new, |(step, f1)| {
        format!(", best at step {step} with an F1 of {:.1} on the relations that judge", f1 * 100.0)
    });
    let [known, judges, unseen] = learned.relations;
    format!(
        "{known} relations learned, {judges} judged, {unseen} left alone; {} steps{best}\nmodel: {}\n",
        learned.trained.steps,
        learned.trained.model.display()
    )
}

fn selected_told(fitted: &selection::Fitted) -> String {
    let mut text = format!("{} steps\n", fitted.steps);
    for model in &fitted.models {
        text.push_str(&format!("model: {}\n", model.display()));
    }
    if let Some(ranking) = &fitted.ranking {
        text.push_str(&format!("ranking: {}\n", ranking.display()));
    }
    if let Some(scores) = &fitted.scores {
        text.push_str(&format!("{scores}\n"));
    }
    text
}

fn tagged_told(trained: &tagging::TrainedTagger) -> String {
    let best = trained.best.map_or_else(String::new, |(step, f1)| {
        format!(", best at step {step} with an F1 of {:.1}", f1 * 100.0)
    });
    let mut text = format!("{} steps{best}\nmodel: {}\n", trained.steps, trained.model.display());
    for tested in &trained.tests {
        if let Some(spans) = &tested.spans {
            let (precision, recall) = (spans.precision.percent(), spans.recall.percent());
            let f1 = spans.f1.percent();
            text.push_str(&format!(
                "{}: precision {precision:.1}, recall {recall:.1}, F1 {f1:.1}\n",
                tested.file
            ));
        }
        if let Some(facts) = &tested.facts {
            text.push_str(&format!(
                "{}: of {} names and dates of facts {:.1} % found, {:.1} % with their type, {:.1} % in part\n",
                tested.file,
                facts.gold,
                facts.exact.percent(),
                facts.typed.percent(),
                facts.overlap.percent()
            ));
        }
    }
    text
}

fn mined_told(mined: &rules::Mined) -> String {
    let mut text = format!("{} rules\nmodel: {}\n", mined.rules, mined.model.display());
    for (part, scores) in [("valid", &mined.valid), ("test", &mined.test)] {
        if let Some(scores) = scores {
            text.push_str(&format!(
                "{part}: MRR {:.3}, hits@1 {:.3}, hits@3 {:.3}, hits@10 {:.3}\n",
                scores.mrr, scores.hits_at_1, scores.hits_at_3, scores.hits_at_10
            ));
        }
    }
    text
}
