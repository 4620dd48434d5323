//! Generated answers, and errors of generators.

use rustc_hash::FxHashSet;

/// The distinct answers of a text, in order.
pub(super) fn answers(text: &str, max_answers: usize) -> Vec<String> {
    let mut seen = FxHashSet::default();
    text.split(',')
        .map(str::trim)
        .filter(|answer| !answer.is_empty() && seen.insert(*answer))
        .take(max_answers)
        .map(str::to_owned)
        .collect()
}

/// An error of this crate as one of a reasoner.
pub(super) fn outside(error: crate::Error) -> sporran_reasoner::Error {
    sporran_reasoner::Error::Other(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_separated_by_commas() {
        assert_eq!(answers(" rock music, jazz,,jazz ,pop", 2), ["rock music", "jazz"]);
        assert!(answers(" , ", 3).is_empty());
    }

    #[test]
    fn an_error_of_this_crate_passes_through_a_reasoner() {
        let error = crate::Error::from(outside(crate::Error::Config(Vec::new())));
        assert!(matches!(error, crate::Error::Config(_)), "{error}");
    }
}
