//! Measures of rankings, by the names of the Python package `ir_measures`, with the definitions of trec_eval.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// trec_eval's constant that keeps the quotient of inferred average precision defined.
const EPSILON: f64 = 0.00001;

/// A measure with its cutoff and its relevance level, such as `nDCG@10` or `P(rel=2)@5`.
///
/// ```
/// use sporran_kilt::scores::trec::RankingMeasure;
///
/// let measures = RankingMeasure::list("nDCG@10, AP, P(rel=2)@5")?;
/// assert_eq!(measures[2].name(), "P(rel=2)@5");
/// assert!("nDCG@0".parse::<RankingMeasure>().is_err());
/// # Ok::<(), sporran_kilt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankingMeasure {
    name: String,
    kind: Kind,
    /// The first ranks that count; `usize::MAX` for all.
    cutoff: usize,
    /// The lowest grade of a relevant document.
    level: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ndcg,
    Ap,
    Precision,
    Recall,
    ReciprocalRank,
    RPrecision,
    Bpref,
    Success,
    InferredAp,
    SetPrecision,
    SetRecall,
    SetF,
}

/// Whether a measure has a cutoff.
#[derive(Clone, Copy, PartialEq)]
enum Cutoff {
    Required,
    Optional,
    None,
}

/// A measure's name, another name of it, and whether it has a cutoff.
const TABLE: [(Kind, &str, &str, Cutoff); 12] = [
    (Kind::Ndcg, "nDCG", "NDCG", Cutoff::Optional),
    (Kind::Ap, "AP", "MAP", Cutoff::Optional),
    (Kind::Precision, "P", "Precision", Cutoff::Required),
    (Kind::Recall, "R", "Recall", Cutoff::Required),
    (Kind::ReciprocalRank, "RR", "MRR", Cutoff::Optional),
    (Kind::RPrecision, "Rprec", "RPrec", Cutoff::None),
    (Kind::Bpref, "Bpref", "BPref", Cutoff::None),
    (Kind::Success, "Success", "Success", Cutoff::Required),
    (Kind::InferredAp, "infAP", "infAP", Cutoff::None),
    (Kind::SetPrecision, "SetP", "SetP", Cutoff::None),
    (Kind::SetRecall, "SetR", "SetR", Cutoff::None),
    (Kind::SetF, "SetF", "SetF", Cutoff::None),
];

/// What the measures need to know of the ranking of one query.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRanking<'a> {
    /// The number of ranked documents.
    pub(super) retrieved: usize,
    /// The ranks, from 1, and the grades of the ranked documents with a judgement, best first.
    pub(super) found: &'a [(usize, i32)],
    /// The grades of all judged documents, highest first. A negative grade means that the document was in the pool of
    /// documents to judge, but was not judged.
    pub(super) grades: &'a [i32],
}

impl RankingMeasure {
    /// The name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first ranks that count; `None` for all.
    pub fn cutoff(&self) -> Option<usize> {
        (self.cutoff < usize::MAX).then_some(self.cutoff)
    }

    /// The measures of a list with commas or blanks between them.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is not a measure's, a wrong parameter, an empty list and a repeated measure.
    pub fn list(text: &str) -> Result<Vec<Self>> {
        let mut depth = 0i32;
        let names = text.split(|letter: char| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth <= 0 && (letter == ',' || letter.is_whitespace())
        });
        let mut measures: Vec<Self> = Vec::new();
        for name in names.filter(|name| !name.is_empty()) {
            let measure: Self = name.parse()?;
            if measures.iter().any(|other| other.name == measure.name) {
                return Err(Error::Argument(format!("measures: `{name}` stands twice")));
            }
            measures.push(measure);
        }
        if measures.is_empty() {
            return Err(Error::Argument("measures: expected at least one, such as `nDCG@10`".to_owned()));
        }
        Ok(measures)
    }

    /// The value of one ranking, 0 to 1; 0 without a relevant document.
    pub(super) fn value(&self, ranking: JudgedRanking<'_>) -> f64 {
        let JudgedRanking { retrieved, found, grades } = ranking;
        let is_relevant = |grade: i32| grade >= self.level;
        let relevant = grades.iter().filter(|&&grade| is_relevant(grade)).count();
        // The ranks of relevant documents, best first.
        let hits = || found.iter().filter(|&&(_, grade)| is_relevant(grade)).map(|&(rank, _)| rank);
        let within = |cutoff: usize| hits().take_while(|&rank| rank <= cutoff).count();
        match self.kind {
            Kind::Ndcg => {
                ratio(self.gain(found.iter().copied()), self.gain((1..).zip(grades.iter().copied())))
            }
            Kind::Ap => {
                let ranks = hits().take_while(|&rank| rank <= self.cutoff);
                let precisions = (1..).zip(ranks).map(|(count, rank)| f64::from(count) / rank as f64);
                ratio(total(precisions), relevant as f64)
            }
            Kind::Precision => within(self.cutoff) as f64 / self.cutoff as f64,
            Kind::Recall => ratio(within(self.cutoff) as f64, relevant as f64),
            Kind::ReciprocalRank => {
                hits().next().filter(|&rank| rank <= self.cutoff).map_or(0.0, |rank| 1.0 / rank as f64)
            }
            Kind::RPrecision => ratio(within(relevant) as f64, relevant as f64),
            Kind::Bpref => self.bpref(ranking, relevant),
            Kind::Success => f64::from(u8::from(within(self.cutoff) > 0)),
            Kind::InferredAp => ratio(self.inferred(found), relevant as f64),
            Kind::SetPrecision => ratio(hits().count() as f64, retrieved as f64),
            Kind::SetRecall => ratio(hits().count() as f64, relevant as f64),
            // The harmonic mean of both.
            Kind::SetF => ratio(2.0 * hits().count() as f64, (retrieved + relevant) as f64),
        }
    }

    /// Discounted cumulative gain of ranks and grades, best first. A gain is a positive grade, whatever the level.
    fn gain(&self, ranked: impl Iterator<Item = (usize, i32)>) -> f64 {
        let counted = ranked.take_while(|&(rank, _)| rank <= self.cutoff).filter(|&(_, grade)| grade > 0);
        total(counted.map(|(rank, grade)| f64::from(grade) / ((rank + 1) as f64).log2()))
    }

    /// The share of preferences of relevant documents over others that the ranking keeps; only judged documents count
    /// (Buckley and Voorhees, "Retrieval Evaluation with Incomplete Information", 2004).
    fn bpref(&self, ranking: JudgedRanking<'_>, relevant: usize) -> f64 {
        let others = ranking.grades.iter().filter(|&&grade| (0..self.level).contains(&grade)).count();
        let (mut above, mut sum) = (0usize, 0.0);
        for &(_, grade) in ranking.found.iter().filter(|&&(_, grade)| grade >= 0) {
            if grade < self.level {
                above += 1;
            } else {
                let lost =
                    if above == 0 { 0.0 } else { above.min(relevant) as f64 / others.min(relevant) as f64 };
                sum += 1.0 - lost;
            }
        }
        ratio(sum, relevant as f64)
    }

    /// The sum of inferred precision at relevant documents (Yilmaz and Aslam, "Estimating Average Precision with
    /// Incomplete and Imperfect Judgments", 2006).
    fn inferred(&self, found: &[(usize, i32)]) -> f64 {
        // Documents above the current rank: relevant, judged, and in the pool.
        let (mut relevant, mut judged, mut pooled, mut sum) = (0.0, 0.0, 0.0, 0.0);
        for &(rank, grade) in found {
            if grade >= self.level {
                let (rank, above) = (rank as f64, (rank - 1) as f64);
                let precision = (relevant + EPSILON) / (judged + 2.0 * EPSILON);
                let in_pool = if above > 0.0 { pooled / above } else { 0.0 };
                sum += 1.0 / rank + above / rank * in_pool * precision;
                relevant += 1.0;
            }
            judged += f64::from(u8::from(grade >= 0));
            pooled += 1.0;
        }
        sum
    }
}

/// The sum. It is 0 without values, where `Iterator::sum` gives -0.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// The quotient; 0 for a divisor of 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for RankingMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl FromStr for RankingMeasure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let wrong = |message: String| Error::Argument(format!("measure `{text}`: {message}"));
        let (rest, cutoff) = match text.rsplit_once('@') {
            Some((rest, cutoff)) => (rest.trim_end(), Some(cutoff.trim())),
            None => (text, None),
        };
        let (name, parameters) = match rest.split_once('(') {
            Some((name, parameters)) => {
                let inner = parameters.trim_end().strip_suffix(')');
                (
                    name.trim_end(),
                    Some(inner.ok_or_else(|| wrong("expected `)` after `(`".to_owned()))?.trim()),
                )
            }
            None => (rest, None),
        };
        let row = TABLE.iter().find(|(_, own, other, _)| name == *own || name == *other);
        let Some(&(kind, own, _, takes)) = row else {
            let names: Vec<String> = TABLE.iter().map(|(_, name, _, takes)| form(name, *takes)).collect();
            return Err(wrong(format!("expected {}, found `{name}`", names.join(", "))));
        };
        let cutoff = match (cutoff, takes) {
            (Some(_), Cutoff::None) => return Err(wrong(format!("expected `{own}` without a cutoff"))),
            (None, Cutoff::Required) => return Err(wrong(format!("expected a cutoff, as in `{own}@10`"))),
            (None, _) => usize::MAX,
            (Some(cutoff), _) => cutoff
                .parse()
                .ok()
                .filter(|&cutoff| cutoff > 0)
                .ok_or_else(|| wrong(format!("expected a cutoff of at least 1, found `{cutoff}`")))?,
        };
        let level = match parameters.filter(|parameters| !parameters.is_empty()) {
            None => 1,
            Some(_) if kind == Kind::Ndcg => {
                return Err(wrong(
                    "expected no parameter; gains do not depend on a relevance level".to_owned(),
                ));
            }
            Some(parameter) => {
                let value = parameter.split_once('=').filter(|(key, _)| key.trim() == "rel");
                let level = value.and_then(|(_, value)| value.trim().parse().ok()).filter(|&level| level > 0);
                let expected =
                    || format!("expected the parameter `rel=N` with N of at least 1, found `{parameter}`");
                level.ok_or_else(|| wrong(expected()))?
            }
        };
        Ok(Self { name: text.to_owned(), kind, cutoff, level })
    }
}

/// How a measure is written.
fn form(name: &str, takes: Cutoff) -> String {
    match takes {
        Cutoff::Required => format!("{name}@k"),
        Cutoff::Optional => format!("{name}[@k]"),
        Cutoff::None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(measure: &str, found: &[(usize, i32)], grades: &[i32]) -> f64 {
        let measure: RankingMeasure = measure.parse().unwrap();
        measure.value(JudgedRanking { retrieved: 10, found, grades })
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn a_ranking_without_relevant_documents_has_positive_zeros() {
        for (_, name, _, cutoff) in TABLE {
            let name = form(name, cutoff).replace("[@k]", "@5").replace("@k", "@5");
            for found in [&[][..], &[(1, 0)]] {
                let zero = value(&name, found, &[1, 0]);
                assert!(zero == 0.0 && zero.is_sign_positive(), "{name}: {zero}");
            }
        }
    }

    #[test]
    fn values_follow_the_definitions() {
        // Ten documents: grade 1 at rank 2, 0 at 3, 3 at 4; a document of grade 2 is not found.
        let (found, grades): (&[_], &[_]) = (&[(2, 1), (3, 0), (4, 3)], &[3, 2, 1, 0]);
        let of = |measure: &str| value(measure, found, grades);
        let log = |rank: u32| f64::from(rank + 1).log2();
        let ideal = 3.0 + 2.0 / log(2) + 1.0 / log(3);
        close(of("nDCG"), (1.0 / log(2) + 3.0 / log(4)) / ideal);
        close(of("nDCG@2"), (1.0 / log(2)) / (3.0 + 2.0 / log(2)));
        close(of("AP"), (1.0 / 2.0 + 2.0 / 4.0) / 3.0);
        close(of("AP@3"), 1.0 / 2.0 / 3.0);
        close(of("AP(rel=2)"), 1.0 / 4.0 / 2.0);
        close(of("P@5"), 2.0 / 5.0);
        close(of("P(rel=3)@4"), 1.0 / 4.0);
        close(of("R@2"), 1.0 / 3.0);
        close(of("RR"), 1.0 / 2.0);
        close(of("RR@1"), 0.0);
        close(of("RR(rel=2)"), 1.0 / 4.0);
        close(of("Rprec"), 1.0 / 3.0);
        close(of("Success@1"), 0.0);
        close(of("Success@2"), 1.0);
        // One other judged document, above the second relevant one.
        close(of("Bpref"), (1.0 + (1.0 - 1.0 / 1.0)) / 3.0);
        let inferred = 1.0 / 2.0 + 1.0 / 2.0 * 0.0;
        let second = 1.0 / 4.0 + 3.0 / 4.0 * (2.0 / 3.0) * ((1.0 + EPSILON) / (2.0 + 2.0 * EPSILON));
        close(of("infAP"), (inferred + second) / 3.0);
        close(of("SetP"), 2.0 / 10.0);
        close(of("SetR"), 2.0 / 3.0);
        close(of("SetF"), 2.0 * (0.2 * 2.0 / 3.0) / (0.2 + 2.0 / 3.0));
    }

    #[test]
    fn without_a_relevant_document_every_value_is_0() {
        let names = "nDCG,nDCG@5,AP,AP@5,P@5,R@5,RR,RR@5,Rprec,Bpref,Success@5,infAP,SetP,SetR,SetF";
        for measure in RankingMeasure::list(names).unwrap() {
            for (found, grades) in [(&[][..], &[][..]), (&[(1, 0), (2, -1)], &[0, -1]), (&[], &[2])] {
                let value = measure.value(JudgedRanking { retrieved: found.len(), found, grades });
                assert_eq!(value, 0.0, "{measure}");
            }
        }
    }

    #[test]
    fn names_are_those_of_ir_measures() {
        let list = RankingMeasure::list("MAP NDCG@10,P( rel = 2 )@5 , R(rel=1)@100").unwrap();
        let names: Vec<&str> = list.iter().map(RankingMeasure::name).collect();
        assert_eq!(names, ["MAP", "NDCG@10", "P( rel = 2 )@5", "R(rel=1)@100"]);
        assert_eq!((list[2].level, list[2].cutoff, list[0].cutoff), (2, 5, usize::MAX));
        for (text, expected) in [
            ("ndcg@10", "measure `ndcg@10`: expected nDCG[@k], AP[@k], P@k,"),
            ("P", "expected a cutoff, as in `P@10`"),
            ("Rprec@5", "expected `Rprec` without a cutoff"),
            ("P@0", "a cutoff of at least 1, found `0`"),
            ("P@x", "a cutoff of at least 1, found `x`"),
            ("P(rel=0)@5", "`rel=N` with N of at least 1, found `rel=0`"),
            ("P(level=1)@5", "found `level=1`"),
            ("AP(rel=1", "expected `)` after `(`"),
            ("nDCG(rel=1)@5", "expected no parameter"),
            (" , ", "measures: expected at least one"),
            ("AP,P@5,AP", "`AP` stands twice"),
        ] {
            let message = RankingMeasure::list(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
