//! Coreference over names of no type.

use crate::{Chain, Coreference, Document, EntityType, Mention, MentionFinder, MentionForm, Result};

/// Another coreference, which is told of what type names are by what a second finder finds where they stand: rules look for a
/// person behind `he`, and [`Proposals`](crate::Proposals) do not tell who is one. Nobody else reads those types.
pub struct Typed {
    /// What puts mentions together.
    pub coreference: Box<dyn Coreference>,
    /// What knows types.
    pub finder: Box<dyn MentionFinder>,
}

impl Coreference for Typed {
    fn chains(&self, document: &Document, mentions: &[Mention]) -> Result<Vec<Chain>> {
        let mut found: Vec<Mention> =
            self.finder.mentions(std::slice::from_ref(document))?.into_iter().flatten().collect();
        found.retain(|mention| mention.form == MentionForm::Name);
        let mut typed = mentions.to_vec();
        for mention in &mut typed {
            if mention.form != MentionForm::Name || mention.kind == EntityType::Date {
                continue;
            }
            // Names of one finder do not overlap, so that their ends rise as their starts do.
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
