//! The maximum recall of a relation classifier: the share of annotated facts among its candidates.

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    counted,
    observe::{Event, Observer},
    scores::Measure,
};

use super::Reach;

/// The recall of the candidates of the classifier, on the validation documents (Mesquita et al., 2019, table
/// 4). None without such documents or facts, and where it was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MaximumRecall {
    /// The share of facts with a candidate: a pair for the property whose mentions overlap those of the fact. For a model that
    /// generates facts: the share of facts that can be generated.
    #[serde(rename = "maximum_recall_text")]
    pub text: Measure,
    /// The share of facts with two links for which a candidate has the same links; each fact counts once for a passage. None
    /// without a linker, and for a model that generates facts, which has no candidates.
    #[serde(rename = "maximum_recall_link")]
    pub link: Measure,
}

impl MaximumRecall {
    /// Computes the shares and reports them before training. `documents` is the number of validation documents.
    pub fn reported(reach: Reach, documents: usize, observe: &mut Observer<'_>) -> Self {
        let Reach { facts, text, linked, link } = reach;
        let found = Self { text: Measure::share(text, facts), link: Measure::share(link, linked) };
        observe(Event::Note {
            text: format!(
                "{}: candidates cover {text} of {} ({:.3}), and {link} of {linked} by links ({:.3})",
                counted(documents as u64, "validation document"),
                counted(facts as u64, "fact"),
                found.text,
                found.link
            ),
        });
        found
    }
}
