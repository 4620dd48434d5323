//! Aggregates the labels of pieces of evidence into one verdict.

use super::Aggregate;

/// The label of a claim given a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// It is true.
    Supports = 0,
    /// It is false.
    Refutes = 1,
    /// Nothing.
    NotEnoughInfo = 2,
}

impl Label {
    /// As KILT's files write it. KILT has no claims without enough information. Such a label counts as refuted, as for NSMN there.
    #[must_use]
    pub fn answer(self) -> &'static str {
        match self {
            Self::Supports => "SUPPORTS",
            Self::Refutes | Self::NotEnoughInfo => "REFUTES",
        }
    }

    /// The opposite verdict.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Supports => Self::Refutes,
            Self::Refutes | Self::NotEnoughInfo => Self::Supports,
        }
    }
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Supports or refutes.
    pub label: Label,
    /// Its probability.
    pub score: f32,
}

/// Decides between supports and refutes from each piece's probabilities of supports, refutes and not enough info.
#[must_use]
pub fn verdict(opinions: &[[f32; 3]], aggregate: Aggregate) -> Verdict {
    let best = |label: Label| opinions.iter().map(|of| of[label as usize]).fold(0.0, f32::max);
    let sum = |label: Label| opinions.iter().map(|of| of[label as usize]).sum::<f32>();
    let votes = |label: Label| {
        let votes = opinions.iter().filter(|of| (0..3).all(|other| of[label as usize] >= of[other]));
        votes.count() as f32
    };
    let (mut for_it, mut against) = match aggregate {
        Aggregate::Vote => (votes(Label::Supports), votes(Label::Refutes)),
        Aggregate::Best => (best(Label::Supports), best(Label::Refutes)),
    };
    // The sums of probabilities decide ties and pieces that are all not enough info.
    if for_it == against {
        (for_it, against) = (sum(Label::Supports), sum(Label::Refutes));
    }
    let total = for_it + against;
    let share = |value: f32| if total > 0.0 { value / total } else { 0.5 };
    if for_it > against {
        Verdict { label: Label::Supports, score: share(for_it) }
    } else {
        Verdict { label: Label::Refutes, score: share(against) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_say_nothing_have_no_vote() {
        let opinions = [[0.1, 0.2, 0.7], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]];
        let found = verdict(&opinions, Aggregate::Vote);
        assert_eq!(found, Verdict { label: Label::Supports, score: 1.0 });
    }

    #[test]
    fn a_tie_is_decided_by_the_sum() {
        let found = verdict(&[[0.9, 0.1, 0.0], [0.3, 0.6, 0.1]], Aggregate::Vote);
        assert_eq!(found.label, Label::Supports);
        // 1.2 of 1.9.
        assert!((found.score - 1.2 / 1.9).abs() < 1e-6);
    }

    #[test]
    fn the_surest_piece_can_decide_alone() {
        let opinions = [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.05, 0.9, 0.05]];
        assert_eq!(verdict(&opinions, Aggregate::Vote).label, Label::Supports);
        assert_eq!(verdict(&opinions, Aggregate::Best).label, Label::Refutes);
    }

    #[test]
    fn nothing_to_read_refutes() {
        assert_eq!(verdict(&[], Aggregate::Vote), Verdict { label: Label::Refutes, score: 0.5 });
    }
}
