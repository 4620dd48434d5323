//! `[generator]` with `kind = "verifier"`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_transformers::{DeviceName, PairOptions, Precision, Truncation};

use crate::{Error, Result};

/// `[generator]` with `kind = "verifier"`: checks the claims of FEVER.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VerifierOptions {
    /// The folder of a classifier of pairs of claim and evidence with three labels, `SUPPORTS`, `REFUTES` and
    /// `NOT ENOUGH INFO`, or those of natural language inference: an encoder such as BERT, or a matching network (NSMN).
    pub model: PathBuf,
    /// Passages that are read, at most.
    #[serde(default = "passages")]
    #[schemars(extend("x-unit" = "passages"))]
    pub passages: usize,
    /// The unit of evidence: `lead` (the first sentence of each passage's page), `passage` or `sentence`.
    #[serde(default)]
    pub evidence: UnitKind,
    /// Whether an encoder reads the claim alone (Thorne and Vlachos 2020). Such a config needs no passages, and `[train]`
    /// needs no `[source]`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claim_only: bool,
    /// Whether the page's title is read before the evidence.
    #[serde(default = "titles")]
    pub titles: bool,
    /// How labels become a verdict: `vote` (the label of most pieces) or `best` (the label with the highest probability).
    #[serde(default)]
    pub aggregate: Aggregate,
    /// `[generator.pages]`: keeps the pages that a network chooses.
    #[serde(default)]
    pub pages: Option<PageOptions>,
    /// `[generator.selection]`: keeps the most relevant pieces and reads them as one.
    #[serde(default)]
    pub selection: Option<SelectionOptions>,
    /// Tokens of a pair, at most; by default as many as the model can read.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The numbers that it computes with: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where it computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer pair forms a separate batch.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

/// The unit of evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnitKind {
    /// The first sentence of a page.
    #[default]
    Lead,
    /// A passage.
    Passage,
    /// A sentence of a passage.
    Sentence,
}

/// How the labels of pieces become a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    /// The label of most pieces that are not `NOT ENOUGH INFO`.
    #[default]
    Vote,
    /// The label with the highest probability in any piece.
    Best,
}

/// `[generator.pages]`: which pages are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PageOptions {
    /// The folder of a classifier of pairs of claim and page, whose second label means that the page has evidence. Of a page
    /// it reads the title and the first sentence.
    pub model: PathBuf,
    /// Pages that are kept, at most.
    #[serde(default = "pages")]
    #[schemars(range(min = 1), extend("x-unit" = "pages"))]
    pub pages: usize,
    /// The minimum probability of a kept page. If no page reaches it, the best one is kept.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f32,
    /// Scores only pages whose title has a disambiguation in parentheses. Pages whose whole title the claim contains come
    /// first, then unambiguous pages in the retriever's order, then the scored pages.
    #[serde(default)]
    pub ambiguous_only: bool,
}

/// `[generator.selection]`: which pieces are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SelectionOptions {
    /// The folder of a classifier of pairs of claim and sentence, whose second label means that the sentence is evidence.
    pub model: PathBuf,
    /// Pieces that are kept, at most.
    #[serde(default = "sentences")]
    #[schemars(range(min = 1))]
    pub sentences: usize,
    /// The minimum probability of a kept piece. The best piece is always kept.
    #[serde(default = "threshold")]
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f32,
}

fn passages() -> usize {
    100
}

fn titles() -> bool {
    true
}

fn batch_tokens() -> usize {
    4096
}

fn sentences() -> usize {
    5
}

fn pages() -> usize {
    10
}

fn threshold() -> f32 {
    0.5
}

impl VerifierOptions {
    /// A folder's model with the defaults of a config.
    #[must_use]
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            passages: passages(),
            evidence: UnitKind::default(),
            claim_only: false,
            titles: titles(),
            aggregate: Aggregate::default(),
            pages: None,
            selection: None,
            max_tokens: None,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: batch_tokens(),
        }
    }

    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// [`Error::Option`] for a value out of its range.
    pub fn check(&self) -> Result<()> {
        let least_one = [
            ("passages", self.passages),
            ("batch-tokens", self.batch_tokens),
            ("pages.pages", self.pages.as_ref().map_or(1, |pages| pages.pages)),
            ("selection.sentences", self.selection.as_ref().map_or(1, |selection| selection.sentences)),
        ];
        for (option, value) in least_one {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        if self.claim_only && (self.pages.is_some() || self.selection.is_some()) {
            let expected = "`false` with `pages` or `selection`, which choose evidence";
            return Err(Error::Option { option: "claim-only", expected, found: "true".into() });
        }
        Ok(())
    }

    /// The number of passages that are read, at most.
    pub(super) fn most_passages(&self) -> usize {
        if self.claim_only { 0 } else { self.passages }
    }

    /// How the models read.
    #[must_use]
    pub fn pairs(&self) -> PairOptions {
        PairOptions {
            max_tokens: self.max_tokens,
            // The claim is short, so the evidence is truncated.
            truncation: Truncation::LongestFirst,
            first_room: None,
            precision: self.precision,
            device: self.device,
            batch_tokens: self.batch_tokens,
        }
    }
}
