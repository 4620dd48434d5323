//! `sporran train`.

use clap::Args;

use sporran_pipeline::{korc, links, population, rules, selection, tagging};

use super::{ConfigArgs, print, print_json, reason};
use crate::{error::Result, progress::Progress};

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
        // It has `[data]` as well, which a config of selection is told by.
        if korc::is_reason(&self.config.config, &self.config.overrides)? {
            let options = korc::ReasonOptions::load(&self.config.config, &self.config.overrides)?;
            let reasoned = korc::train(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&reasoned) } else { print(&reason::told(&reasoned)) };
        }
        if links::is_links(&self.config.config, &self.config.overrides)? {
            let options = links::LinksOptions::load(&self.config.config, &self.config.overrides)?;
            let fitted = links::train(&options, &mut |event| progress.event(event))?;
            if self.json {
                return print_json(&fitted);
            }
            let best = fitted.best.map_or_else(String::new, |(epoch, score)| {
                format!(
                    ", best behind pass {epoch} with a mean reciprocal rank of {score:.4} on the valid part"
                )
            });
            return print(&format!("{} passes{best}\nmodel: {}\n", fitted.epochs, fitted.model.display()));
        }
        if population::is_population(&self.config.config, &self.config.overrides)? {
            let options = population::PopulationOptions::load(
                &self.config.config,
                &self.config.overrides,
                population::Purpose::Train,
            )?;
            let learned = population::train(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&learned) } else { print(&populated(&learned)) };
        }
        if selection::is_selection(&self.config.config, &self.config.overrides)? {
            let options = selection::SelectionOptions::load(&self.config.config, &self.config.overrides)?;
            let fitted = selection::train(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&fitted) } else { print(&told(&fitted)) };
        }
        if tagging::is_tagging(&self.config.config, &self.config.overrides)? {
            let options = tagging::TaggingOptions::load(&self.config.config, &self.config.overrides)?;
            let trained = tagging::train(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&trained) } else { print(&told_tagger(&trained)) };
        }
        if rules::is_rules(&self.config.config, &self.config.overrides)? {
            let options = rules::RulesOptions::load(&self.config.config, &self.config.overrides)?;
            let mined = rules::mine(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&mined) } else { print(&mined_told(&mined)) };
        }
        let options = self.config.load()?;
        let trained = sporran_pipeline::train(&options, &mut |event| progress.event(event))?;
        if self.json {
            return print_json(&trained);
        }
        let best = trained.best.map_or_else(String::new, |(step, score)| {
            format!(", best at step {step} with a mean score of {:.1} on the judged records", score * 100.0)
        });
        print(&format!("{} steps{best}\nmodel: {}\n", trained.steps, trained.model.display()))
    }
}

fn populated(learned: &population::Learned) -> String {
    format!(
        "{} steps\ncandidates hold {:.1} of 100 facts\nF1 on the documents that were left out {:.1}\nmodel: {}\n",
        learned.steps,
        learned.covered * 100.0,
        learned.judged * 100.0,
        learned.model.display()
    )
}

fn told(fitted: &selection::Fitted) -> String {
    let mut text = format!("{} steps\n", fitted.steps);
    for model in &fitted.models {
        text.push_str(&format!("model: {}\n", model.display()));
    }
    if let Some(ranking) = &fitted.ranking {
        text.push_str(&format!("ranking: {}\n", ranking.display()));
    }
    text
}

fn told_tagger(trained: &tagging::TrainedTagger) -> String {
    let best = trained.best.map_or_else(String::new, |(step, f1)| {
        format!(", best at step {step} with an F1 of {:.1}", f1 * 100.0)
    });
    let mut text = format!("{} steps{best}\nmodel: {}\n", trained.steps, trained.model.display());
    for tested in &trained.tests {
        if let Some(spans) = &tested.spans {
            let (precision, recall) = (spans.precision * 100.0, spans.recall * 100.0);
            let f1 = spans.f1 * 100.0;
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
                facts.exact * 100.0,
                facts.typed * 100.0,
                facts.overlap * 100.0
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
