//! KILT's eleven datasets, their five tasks, splits, file names and headline scores.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of the eleven datasets of KILT (Petroni et al., 2021, table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Dataset {
    /// FEVER: whether a claim is supported or refuted.
    #[serde(rename = "fever")]
    Fever,
    /// AIDA CoNLL-YAGO: entity linking in news.
    #[serde(rename = "aidayago2")]
    AidaYago2,
    /// WNED-WIKI: entity linking in Wikipedia.
    #[serde(rename = "wned")]
    Wned,
    /// WNED-CWEB: entity linking in web pages.
    #[serde(rename = "cweb")]
    Cweb,
    /// T-REx: slot filling.
    #[serde(rename = "trex")]
    Trex,
    /// Zero-shot RE: slot filling with unseen relations.
    #[serde(rename = "structured_zeroshot")]
    StructuredZeroshot,
    /// Natural Questions.
    #[serde(rename = "nq")]
    Nq,
    /// HotpotQA: questions that need two pages.
    #[serde(rename = "hotpotqa")]
    HotpotQa,
    /// TriviaQA, whose files ship without their questions.
    #[serde(rename = "triviaqa")]
    TriviaQa,
    /// ELI5: long answers.
    #[serde(rename = "eli5")]
    Eli5,
    /// Wizard of Wikipedia: the next turn of a dialogue.
    #[serde(rename = "wow")]
    Wow,
}

/// A kind of work that several datasets share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Claim in, `SUPPORTS` or `REFUTES` out.
    FactChecking,
    /// One tagged mention in, a page's title out.
    EntityLinking,
    /// `subject [SEP] relation` in, object out.
    SlotFilling,
    /// Question in, answer out.
    OpenDomainQa,
    /// Turns in, the next one out.
    Dialogue,
}

/// A part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// For training.
    Train,
    /// For validation.
    Dev,
    /// Inputs without gold.
    Test,
}

/// The answer score that KILT's leaderboard shows for a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Metric {
    /// Exact match of trimmed strings.
    #[serde(rename = "accuracy")]
    Accuracy,
    /// Exact match after normalisation.
    #[serde(rename = "em")]
    ExactMatch,
    /// F1 over normalised tokens.
    #[serde(rename = "f1")]
    F1,
    /// F of the longest common subsequence.
    #[serde(rename = "rougel")]
    RougeL,
}

impl Metric {
    /// The key in a report's `downstream` object.
    pub fn key(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::ExactMatch => "em",
            Self::F1 => "f1",
            Self::RougeL => "rougel",
        }
    }
}

impl Dataset {
    /// All eleven, in the order of the paper's tables.
    pub const ALL: [Self; 11] = [
        Self::Fever,
        Self::AidaYago2,
        Self::Wned,
        Self::Cweb,
        Self::Trex,
        Self::StructuredZeroshot,
        Self::Nq,
        Self::HotpotQa,
        Self::TriviaQa,
        Self::Eli5,
        Self::Wow,
    ];

    /// What its files' names start with.
    pub fn stem(self) -> &'static str {
        match self {
            Self::Fever => "fever",
            Self::AidaYago2 => "aidayago2",
            Self::Wned => "wned",
            Self::Cweb => "cweb",
            Self::Trex => "trex",
            Self::StructuredZeroshot => "structured_zeroshot",
            Self::Nq => "nq",
            Self::HotpotQa => "hotpotqa",
            Self::TriviaQa => "triviaqa",
            Self::Eli5 => "eli5",
            Self::Wow => "wow",
        }
    }

    /// The dataset of that stem.
    pub fn from_stem(stem: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dataset| dataset.stem() == stem)
    }

    /// The task that it belongs to.
    pub fn task(self) -> Task {
        match self {
            Self::Fever => Task::FactChecking,
            Self::AidaYago2 | Self::Wned | Self::Cweb => Task::EntityLinking,
            Self::Trex | Self::StructuredZeroshot => Task::SlotFilling,
            Self::Nq | Self::HotpotQa | Self::TriviaQa | Self::Eli5 => Task::OpenDomainQa,
            Self::Wow => Task::Dialogue,
        }
    }

    /// The answer score in the paper's tables.
    pub fn metric(self) -> Metric {
        match self {
            Self::Fever
            | Self::AidaYago2
            | Self::Wned
            | Self::Cweb
            | Self::Trex
            | Self::StructuredZeroshot => Metric::Accuracy,
            Self::Nq | Self::HotpotQa | Self::TriviaQa => Metric::ExactMatch,
            Self::Eli5 => Metric::RougeL,
            Self::Wow => Metric::F1,
        }
    }

    /// Whether a split is published: WNED-WIKI and WNED-CWEB have no training part.
    pub fn has_split(self, split: Split) -> bool {
        split != Split::Train || !matches!(self, Self::Wned | Self::Cweb)
    }

    /// The published file's name; TriviaQA's says `_id`, since its questions are joined later.
    pub fn file_name(self, split: Split) -> String {
        let id = if self == Self::TriviaQa { "_id" } else { "" };
        let split = match split {
            Split::Train => format!("train{id}"),
            Split::Dev => format!("dev{id}"),
            Split::Test => format!("test{id}_without_answers"),
        };
        format!("{}-{split}-kilt.jsonl", self.stem())
    }

    /// The dataset at the start of a task file's name: of `hotpotqa-dev-kilt.jsonl`, and of a part of it such
    /// as `hotpotqa-covered-kilt.jsonl`.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        let rest = name.strip_suffix("-kilt.jsonl")?;
        let is = |dataset: &Self| rest.strip_prefix(dataset.stem()).is_some_and(|part| part.starts_with('-'));
        Self::ALL.into_iter().find(is)
    }

    /// The dataset and split of a file with a published name, compressed or not. TriviaQA's joined file,
    /// without `_id`, is recognised too.
    pub fn from_file_name(name: &str) -> Option<(Self, Split)> {
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        let rest = name.strip_suffix("-kilt.jsonl")?;
        Self::ALL.into_iter().find_map(|dataset| {
            let split = match rest.strip_prefix(dataset.stem())?.strip_prefix('-')? {
                "train" | "train_id" => Split::Train,
                "dev" | "dev_id" => Split::Dev,
                "test_without_answers" | "test_id_without_answers" => Split::Test,
                _ => return None,
            };
            Some((dataset, split))
        })
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stem())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_lead_back_to_their_dataset_and_split() {
        for dataset in Dataset::ALL {
            for split in [Split::Train, Split::Dev, Split::Test] {
                assert_eq!(Dataset::from_file_name(&dataset.file_name(split)), Some((dataset, split)));
            }
            assert_eq!(Dataset::from_stem(dataset.stem()), Some(dataset));
        }
        assert_eq!(
            Dataset::from_file_name("triviaqa-dev-kilt.jsonl.gz"),
            Some((Dataset::TriviaQa, Split::Dev))
        );
        assert_eq!(Dataset::from_file_name("nq-dev.jsonl"), None);
        assert_eq!(Dataset::of_file_name("hotpotqa-covered-kilt.jsonl.gz"), Some(Dataset::HotpotQa));
        assert_eq!(Dataset::of_file_name("triviaqa-dev_id-kilt.jsonl"), Some(Dataset::TriviaQa));
        for other in ["hotpotqa-covered.jsonl", "hotpotqa2-dev-kilt.jsonl", "dev-kilt.jsonl"] {
            assert_eq!(Dataset::of_file_name(other), None);
        }
    }
}
