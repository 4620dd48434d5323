//! How long texts are cut, as text-embeddings-inference is told.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::Failure;

/// The side from which a long text is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Direction {
    /// The beginning goes.
    #[serde(alias = "left")]
    Left,
    /// The end goes.
    #[default]
    #[serde(alias = "right")]
    Right,
}

impl Direction {
    pub(super) fn checked(self) -> Result<(), Failure> {
        match self {
            Self::Right => Ok(()),
            Self::Left => {
                let message =
                    "`truncation_direction`: expected `Right`; this server cuts the end of long texts";
                Err(Failure::invalid("truncation_direction", message))
            }
        }
    }
}

/// How long texts of a reranker or a classifier are cut.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Cutting {
    /// Whether long texts are cut: `true`.
    #[serde(default)]
    truncate: Option<bool>,
    /// The side from which they are cut: `Right`.
    #[serde(default)]
    truncation_direction: Direction,
}

impl Cutting {
    pub(super) fn checked(self) -> Result<(), Failure> {
        self.truncation_direction.checked()?;
        match self.truncate {
            Some(false) => {
                let message = "`truncate`: expected `true`; this endpoint cuts long texts";
                Err(Failure::invalid("truncate", message))
            }
            _ => Ok(()),
        }
    }
}

/// How long texts are cut, and what precedes each.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Reading {
    /// Whether long texts are cut; `false` refuses them.
    #[serde(default)]
    pub(super) truncate: Option<bool>,
    /// The side from which they are cut: `Right`.
    #[serde(default)]
    pub(super) truncation_direction: Direction,
    /// The name of the model's prompt before each text.
    #[serde(default)]
    pub(super) prompt_name: Option<String>,
}
