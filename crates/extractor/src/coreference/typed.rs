//! Coreference over names without types.

use crate::{Chain, Coreference, Document, EntityType, Mention, MentionFinder, MentionForm, Result};

/// A coreference with the types of another finder. Rules need a person as antecedent of `he`, but
/// [`RuleMentions`](crate::RuleMentions) have no types. Other stages do not read these types.
pub struct TypedCoreference {
    /// The wrapped coreference.
    pub coreference: Box<dyn Coreference>,
    /// The finder that provides types.
    pub finder: Box<dyn MentionFinder>,
}

impl Coreference for TypedCoreference {
    fn chains(&self, document: &Document, mentions: &[Mention]) -> Result<Vec<Chain>> {
        let mut found: Vec<Mention> =
            self.finder.mentions(std::slice::from_ref(document))?.into_iter().flatten().collect();
        found.retain(|mention| mention.form == MentionForm::Name);
        let mut typed = mentions.to_vec();
        for mention in &mut typed {
            if mention.form != MentionForm::Name || mention.kind == EntityType::Date {
                continue;
            }
            // Names of one finder do not overlap, so their ends are in the same order as their starts.
            let first = found.partition_point(|other| other.span.end <= mention.span.start);
            let shared = |other: &Mention| {
                other.span.end.min(mention.span.end).saturating_sub(other.span.start.max(mention.span.start))
            };
            let overlapping = found[first..].iter().take_while(|other| other.span.start < mention.span.end);
            if let Some(other) = overlapping.max_by_key(|other| shared(other)) {
                mention.kind = other.kind;
            }
        }
        self.coreference.chains(document, &typed)
    }
}
