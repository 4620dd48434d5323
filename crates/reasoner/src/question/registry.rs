//! The list of reasoner kinds.

use sporran_config::kinds;

use super::{
    kind::ReasonerKind,
    options::{EmbedOptions, EmbedStarOptions, TransferOptions},
};

kinds! {
    /// `[reasoner]`, by `kind`. `Other` has the kinds that use other stages as well.
    pub enum ReasonerOptions<Other>: dyn ReasonerKind {
        /// `kind = "embed-kgqa"`: the question with its document as a vector among those of the entities, scored by ComplEx.
        "embed-kgqa" => EmbedKgqa(EmbedOptions),
        /// `kind = "embed-kgqa-star"`: EmbedKGQA with trained vectors of the part of the knowledge base that the documents name.
        "embed-kgqa-star" => EmbedStar(EmbedStarOptions),
        /// `kind = "transfer-net"`: steps over the triples from the question's entity or the entities of the document.
        "transfer-net" => TransferNet(TransferOptions),
    }
}
