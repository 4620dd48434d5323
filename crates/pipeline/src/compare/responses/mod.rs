//! Blind comparison of the responses of two systems by people: sheets to fill in, and the figures of filled sheets
//! (Eric et al., 2021, tables 4 and 5).

mod sheet;
mod votes;

use serde::{Deserialize, Serialize};
use sporran_kilt::Id;

pub use sheet::{Sheet, SheetOptions, write_sheet};
pub use votes::{PreferenceFigures, RatingFigures, VoteFigures, VoteReport, read_votes};

/// What annotators vote on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VoteKind {
    /// Which of two responses is better, or a tie. A row has both responses in random order.
    #[default]
    Preference,
    /// 0, 1 or 2 for one response. The rows of both systems are mixed.
    Rating,
}

impl VoteKind {
    /// The allowed votes.
    fn votes(self) -> [&'static str; 3] {
        match self {
            Self::Preference => ["1", "2", TIE],
            Self::Rating => ["0", "1", "2"],
        }
    }
}

/// The vote for neither response.
const TIE: &str = "tie";

/// The dimensions of a response that annotators vote on.
const DIMENSIONS: [&str; 2] = ["appropriate", "informative"];

/// The columns of a sheet that votes are read from, besides the dimensions.
const SHEET: &str = "sheet";
const ROW: &str = "row";

/// The file that says which response is whose. Annotators do not get it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    /// The code of the sheet, which each of its rows has.
    sheet: String,
    kind: VoteKind,
    seed: u64,
    /// The names of the two systems.
    systems: [String; 2],
    /// The files of their responses.
    files: [std::path::PathBuf; 2],
    /// The rows in the order of the sheet, from row 1.
    rows: Vec<KeyRow>,
}

/// A row of a sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRow {
    /// The record.
    id: Id,
    /// The number of the system, 0 or 1, of each response in the row.
    systems: Vec<usize>,
}
