//! How many annotated facts a classifier is asked about: what it cannot exceed.

use serde::Serialize;
use sporran_extractor::{
    Link,
    relations::{Annotated, Properties, Reach},
};
use sporran_kilt::{knowledgenet, scores::Measure};

use crate::observe::{Event, Observer};

/// The recall of the candidates that reach the classifier, on the documents that were not learned from (Mesquita et al.,
/// 2019, table 4). Nothing where there are no such documents or facts, and where it was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MaximumRecall {
    /// Of facts: both mentions of a pair that is asked for the property overlap the fact's. Of a model that writes facts: they
    /// can be written.
    #[serde(rename = "maximum_recall_text")]
    pub text: Measure,
    /// Of facts with two links, each once a passage: a pair that is asked for the property has both. Counted where there is a
    /// linker, and not for a model that writes facts, which has no candidates.
    #[serde(rename = "maximum_recall_link")]
    pub link: Measure,
}

impl MaximumRecall {
    /// From counts; says them at once, since training takes long.
    pub(super) fn told(reach: Reach, documents: usize, observe: &mut Observer<'_>) -> Self {
        let Reach { facts, text, linked, link } = reach;
        let found = Self { text: Measure::share(text, facts), link: Measure::share(link, linked) };
        observe(Event::Note {
            text: format!(
                "{documents} documents are left out; candidates hold {text} of their {facts} facts ({:.3}) and \
                 {link} of {linked} by links ({:.3})",
                found.text, found.link
            ),
        });
        found
    }
}

/// A document that is left out, with what it was annotated as.
pub(super) struct LeftOut<'a> {
    pub(super) source: &'a knowledgenet::Document,
    pub(super) annotated: &'a Annotated,
    /// The links of its mentions, where there is a linker.
    pub(super) links: Option<&'a [Option<Link>]>,
}

/// Counts what a classifier is asked about; `asks` is as [`Reach::add`] has it, with the document's number before.
pub(super) fn reach(
    documents: &[LeftOut<'_>],
    properties: &Properties,
    asks: impl Fn(usize, usize, usize, usize) -> bool,
) -> Reach {
    let mut reach = Reach::default();
    for (at, document) in documents.iter().enumerate() {
        let asks = |sentence, pair, label| asks(at, sentence, pair, label);
        reach.add(document.source, properties, document.annotated, document.links, asks);
    }
    reach
}
