//! `sporran train`.

use clap::Args;
use sporran_pipeline::{
    Config, ConfigKind, Observer, documents, korc, links,
    population::{self, PopulationOptions, Purpose},
    rules, selection, slots, tagging,
};

use super::{ConfigArgs, convert::QUESTIONS_ARE_BUILT};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
};

/// `sporran train`
#[derive(Args)]
#[command(after_help = "Example: sporran train configs/extractor/ner-bilstm.toml")]
pub(crate) struct Train {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Train {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        self.train(&mut context.observer())
    }

    fn train(&self, observe: &mut Observer<'_>) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        let started = |folder| interrupt::keep(Kept::Folder(folder));
        match ConfigKind::of(path, overrides)? {
            ConfigKind::Run => {
                let options = self.config.load()?;
                started(options.general.output.join(&options.general.name));
                let trained = sporran_pipeline::train(&options, observe)?;
                Ok(Outcome::of(&trained)?.with_model(&trained.model))
            }
            ConfigKind::Links => {
                let options = links::LinksOptions::load(path, overrides)?;
                started(options.folder());
                let fitted = links::train(&options, observe)?;
                Ok(Outcome::of(&fitted)?.with_model(&fitted.model))
            }
            ConfigKind::Network => {
                let options = links::NetworkConfig::load(path, overrides)?;
                started(options.output.join(&options.name));
                let fitted = links::train_network(&options, observe)?;
                Ok(Outcome::of(&fitted)?.with_model(&fitted.model))
            }
            ConfigKind::Reason => {
                let options = korc::ReasonOptions::load(path, overrides)?;
                started(options.folder());
                let reasoned = korc::train(&options, observe)?;
                Ok(Outcome::of(&reasoned)?.with_model(&reasoned.model))
            }
            ConfigKind::Questions => Err(Error::Input(QUESTIONS_ARE_BUILT.into())),
            ConfigKind::Rules => {
                let options = rules::RulesOptions::load(path, overrides)?;
                started(options.folder());
                let mined = rules::mine(&options, observe)?;
                Ok(Outcome::of(&mined)?.with_model(&mined.model))
            }
            ConfigKind::Documents => {
                let options = documents::DocumentsOptions::load(path, overrides)?;
                started(options.folder());
                let learned = documents::train(&options, observe)?;
                Ok(Outcome::of(&learned)?.with_model(&learned.trained.model))
            }
            ConfigKind::Population => {
                let options = PopulationOptions::load_for(path, overrides, Purpose::Train)?;
                started(options.folder());
                let learned = population::train(&options, observe)?;
                Ok(Outcome::of(&learned)?.with_model(&learned.model))
            }
            ConfigKind::Linking | ConfigKind::Responses => Err(Error::Input(format!(
                "{}: this config trains nothing; use `sporran run`",
                path.display()
            ))),
            ConfigKind::Selection => {
                let options = selection::SelectionOptions::load(path, overrides)?;
                started(options.folder());
                let fitted = selection::train(&options, observe)?;
                Ok(fitted.models.iter().fold(Outcome::of(&fitted)?, Outcome::with_model))
            }
            ConfigKind::Slots => {
                let options = slots::SlotsOptions::load(path, overrides)?;
                started(options.folder());
                let learned = slots::train(&options, observe)?;
                Ok(Outcome::of(&learned)?.with_model(&learned.trained.model))
            }
            ConfigKind::Tagging => {
                let options = tagging::TaggingOptions::load(path, overrides)?;
                started(options.folder());
                let trained = tagging::train(&options, observe)?;
                Ok(Outcome::of(&trained)?.with_model(&trained.model))
            }
        }
    }
}
