//! KnowledgeNet's score of predicted facts, as in its public evaluator.
//!
//! A gold fact is found if any predicted fact of its passage matches it. A predicted fact is wrong if it
//! matches neither a gold fact nor another correct prediction, and if its passage is exhaustively annotated
//! for its property. Facts outside of the annotation cannot be wrong.

use std::{fmt, ops::AddAssign, path::Path, str::FromStr};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::Measure;
use crate::{
    Error, Id, Result,
    knowledgenet::{self, Fact, Passage},
};

/// The properties whose objects are dates or literals, so that no link can be right.
const WITHOUT_LINK: [&str; 3] = ["5", "14", "15"];

/// When two facts of one property are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Both mentions have the same span.
    SpanExact,
    /// Both mentions overlap.
    SpanOverlap,
    /// Both links name the same entity. Facts without both links are skipped, as are properties 5, 14 and 15
    /// and duplicates in a passage.
    Uri,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 3] = [Self::SpanExact, Self::SpanOverlap, Self::Uri];

    /// The evaluator's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SpanExact => "span_exact",
            Self::SpanOverlap => "span_overlap",
            Self::Uri => "uri",
        }
    }

    fn matches(self, a: &Fact, b: &Fact) -> bool {
        let spans =
            |fact: &Fact| ((fact.subject_start, fact.subject_end), (fact.object_start, fact.object_end));
        let ((a_subject, a_object), (b_subject, b_object)) = (spans(a), spans(b));
        a.property == b.property
            && match self {
                Self::SpanExact => a_subject == b_subject && a_object == b_object,
                Self::SpanOverlap => overlap(a_subject, b_subject) && overlap(a_object, b_object),
                Self::Uri => match (a.uris(), b.uris()) {
                    (Some((a_subject, a_object)), Some((b_subject, b_object))) => {
                        same_entity(a_subject, b_subject) && same_entity(a_object, b_object)
                    }
                    _ => false,
                },
            }
    }
}

impl FromStr for Method {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|method| method.name() == text)
            .ok_or_else(|| format!("expected span_exact, span_overlap or uri, found `{text}`"))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether two spans share a character. Empty spans that touch the other also count, as in the evaluator.
fn overlap(a: (usize, usize), b: (usize, usize)) -> bool {
    let starts_in = |x: (usize, usize), y: (usize, usize)| x.0 >= y.0 && x.0 < y.1;
    let ends_in = |x: (usize, usize), y: (usize, usize)| x.1 > y.0 && x.1 <= y.1;
    starts_in(a, b) || starts_in(b, a) || ends_in(a, b) || ends_in(b, a)
}

/// Whether two links name the same entity: their last parts are equal.
pub fn same_entity(a: &str, b: &str) -> bool {
    entity(a) == entity(b)
}

/// The entity of a link: its last part.
pub fn entity(uri: &str) -> &str {
    uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Correct, wrong and missed facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gold facts that were found.
    pub found: usize,
    /// Predicted facts that are wrong.
    pub wrong: usize,
    /// Gold facts that were not found.
    pub missed: usize,
}

impl Counts {
    /// Found over found and wrong. Without predictions it is 0, as in the public evaluator, and has no value
    /// without gold facts.
    pub fn precision(self) -> Measure {
        self.share(self.wrong)
    }

    /// Found over found and missed. Without gold facts it is 0, as in the public evaluator, and has no value
    /// without predictions.
    pub fn recall(self) -> Measure {
        self.share(self.missed)
    }

    /// The harmonic mean of precision and recall; 0 if both are, and no value without gold and predicted
    /// facts.
    pub fn f1(self) -> Measure {
        self.precision().harmonic(self.recall())
    }

    fn share(self, rest: usize) -> Measure {
        if self.found + self.wrong + self.missed == 0 {
            return Measure::default();
        }
        Measure::from(Measure::share(self.found, self.found + rest).or_zero())
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.wrong += other.wrong;
        self.missed += other.missed;
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("precision", &self.precision())?;
        map.serialize_entry("recall", &self.recall())?;
        map.serialize_entry("f1", &self.f1())?;
        map.end()
    }
}

/// Micro-averaged figures, in all and for each property that has any fact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Over all properties.
    pub total: Counts,
    /// By name, in order of first occurrence in gold, then in predictions.
    pub properties: Vec<(String, Counts)>,
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Properties<'a>(&'a [(String, Counts)]);
        impl Serialize for Properties<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(name, counts)| (name, counts)))
            }
        }
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("precision", &self.total.precision())?;
        map.serialize_entry("recall", &self.total.recall())?;
        map.serialize_entry("f1", &self.total.f1())?;
        map.serialize_entry("properties", &Properties(&self.properties))?;
        map.end()
    }
}

/// A document of one of the two files, with the facts that the method compares.
struct Read {
    line: u64,
    id: Id,
    passages: Vec<Passage>,
}

/// Scores a file of predictions against gold; `fold` skips the documents of other folds in both.
///
/// # Errors
/// [`Error::DuplicateId`] for a duplicate document, [`Error::Record`] for a duplicate passage; [`Error::Empty`] for a file
/// without documents of the fold; [`Error::MissingPrediction`] for a gold document with facts but without prediction;
/// [`Error::Record`] for a predicted document or passage with facts that gold lacks, for a gold passage with facts but
/// without prediction, and for a fact of a property that no passage names; read errors.
pub fn evaluate(
    gold: impl AsRef<Path>,
    guess: impl AsRef<Path>,
    method: Method,
    fold: Option<i64>,
) -> Result<Report> {
    let (gold_path, guess_path) = (gold.as_ref(), guess.as_ref());
    let mut names = FxHashMap::default();
    let gold = read(gold_path, fold, &mut names, method)?;
    check_properties(gold_path, &gold, &names)?;
    if names.is_empty() {
        let expected = "expected gold documents whose passages are annotated for properties \
                        (`exhaustivelyAnnotatedProperties`), found none";
        return Err(Error::Argument(format!("{}: {expected}", gold_path.display())));
    }
    let mut known = names.clone();
    let mut guess = read(guess_path, fold, &mut known, method)?;
    if !guess.iter().flat_map(facts).any(|fact| known.contains_key(&fact.property)) {
        check_properties(guess_path, &guess, &known)?;
    }
    if method == Method::Uri {
        // The evaluator then uses only properties with linked gold facts.
        let linked: FxHashSet<&Id> = gold.iter().flat_map(facts).map(|fact| &fact.property).collect();
        names.retain(|property, _| linked.contains(property));
    }
    let places: FxHashMap<Id, usize> =
        guess.iter().enumerate().map(|(at, read)| (read.id.clone(), at)).collect();
    let mut tally = Tally::default();
    for document in &gold {
        for (at, passage) in
            document.passages.iter().enumerate().filter(|(_, passage)| !passage.facts.is_empty())
        {
            let Some(&place) = places.get(&document.id) else {
                let missing = |read: &&Read| !places.contains_key(&read.id) && facts(read).next().is_some();
                let count = gold.iter().filter(missing).count();
                return Err(Error::MissingPrediction {
                    path: guess_path.to_owned(),
                    id: document.id.to_string(),
                    count,
                });
            };
            let predicted = &mut guess[place];
            let line = predicted.line;
            let Some(predicted) = predicted.passages.iter_mut().find(|predicted| predicted.id == passage.id)
            else {
                let message = format!("expected the passage `{}` of the gold file, found none", passage.id);
                return Err(Error::record(guess_path, line, "passages", message));
            };
            count_found(&passage.facts, &mut predicted.facts, method, |fact, found| {
                let name = names.get(&fact.property).ok_or_else(|| {
                    let message =
                        format!("expected a property that a passage names, found `{}`", fact.property);
                    Error::record(gold_path, document.line, format!("passages[{at}].facts"), message)
                })?;
                let counts = tally.of(name);
                *(if found { &mut counts.found } else { &mut counts.missed }) += 1;
                Ok(())
            })?;
        }
    }
    let places: FxHashMap<&Id, usize> = gold.iter().enumerate().map(|(at, read)| (&read.id, at)).collect();
    for document in &guess {
        for (at, passage) in
            document.passages.iter().enumerate().filter(|(_, passage)| !passage.facts.is_empty())
        {
            let fail = |message| Error::record(guess_path, document.line, format!("passages[{at}]"), message);
            let Some(&place) = places.get(&document.id) else {
                return Err(fail(format!("expected a document of the gold file, found `{}`", document.id)));
            };
            let Some(annotated) = gold[place].passages.iter().find(|annotated| annotated.id == passage.id)
            else {
                return Err(fail(format!("expected a passage of the gold file, found `{}`", passage.id)));
            };
            for fact in &passage.facts {
                let counts = annotated.exhaustive.iter().any(|property| property.id == fact.property);
                if let (true, Some(name)) = (counts, names.get(&fact.property)) {
                    tally.of(name).wrong += 1;
                }
            }
        }
    }
    let total = tally.0.iter().fold(Counts::default(), |sum, (_, counts)| Counts {
        found: sum.found + counts.found,
        wrong: sum.wrong + counts.wrong,
        missed: sum.missed + counts.missed,
    });
    Ok(Report { total, properties: tally.0 })
}

fn facts(read: &Read) -> impl Iterator<Item = &Fact> {
    read.passages.iter().flat_map(|passage| &passage.facts)
}

/// Returns for each gold fact whether it is found, and removes the matching predicted facts.
fn count_found(
    gold: &[Fact],
    predicted: &mut Vec<Fact>,
    method: Method,
    mut each: impl FnMut(&Fact, bool) -> Result<()>,
) -> Result<()> {
    let mut right = vec![false; predicted.len()];
    for fact in gold {
        // Another gold fact may match the same prediction, so none is removed before the end.
        let matched: Vec<usize> =
            (0..predicted.len()).filter(|&at| method.matches(fact, &predicted[at])).collect();
        each(fact, !matched.is_empty())?;
        for (at, right) in right.iter_mut().enumerate() {
            *right = *right || matched.iter().any(|&other| method.matches(&predicted[at], &predicted[other]));
        }
    }
    let mut right = right.into_iter();
    predicted.retain(|_| !right.next().unwrap_or_default());
    Ok(())
}

/// Counts by the properties' names, in the order of their first count.
#[derive(Default)]
struct Tally(Vec<(String, Counts)>);

impl Tally {
    fn of(&mut self, name: &str) -> &mut Counts {
        let at = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.0.push((name.to_owned(), Counts::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

fn read(
    path: &Path,
    fold: Option<i64>,
    names: &mut FxHashMap<Id, String>,
    method: Method,
) -> Result<Vec<Read>> {
    let mut documents: Vec<Read> = Vec::new();
    let mut seen: FxHashMap<Id, u64> = FxHashMap::default();
    for document in knowledgenet::numbered(path)? {
        let (line, document) = document?;
        if fold.is_some_and(|fold| fold != document.fold) {
            continue;
        }
        if let Some(first) = seen.insert(document.id.clone(), line) {
            return Err(Error::DuplicateId {
                path: path.to_owned(),
                line,
                first,
                field: "documentId",
                id: document.id.to_string(),
            });
        }
        if let Some((field, message)) = document.repeated() {
            return Err(Error::record(path, line, field, message));
        }
        for property in document.passages.iter().flat_map(|passage| &passage.exhaustive) {
            names.insert(property.id.clone(), property.name.clone());
        }
        documents.push(Read { line, id: document.id, passages: document.passages });
    }
    if documents.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "document of the fold" });
    }
    if method == Method::Uri {
        let passages = documents.iter_mut().flat_map(|document| &mut document.passages);
        passages.for_each(|passage| keep_linked(&mut passage.facts));
    }
    Ok(documents)
}

/// Checks that some passage is annotated for the property of each fact; `names` has those properties.
fn check_properties(path: &Path, documents: &[Read], names: &FxHashMap<Id, String>) -> Result<()> {
    for document in documents {
        for (at, passage) in document.passages.iter().enumerate() {
            if let Some(fact) = passage.facts.iter().position(|fact| !names.contains_key(&fact.property)) {
                let message = format!(
                    "expected a property that a passage is annotated for, found `{}`",
                    passage.facts[fact].property
                );
                let field = format!("passages[{at}].facts[{fact}].propertyId");
                return Err(Error::record(path, document.line, field, message));
            }
        }
    }
    Ok(())
}

/// Keeps the distinct facts of a passage that the comparison of links uses.
pub fn keep_linked(facts: &mut Vec<Fact>) {
    let mut seen = FxHashSet::default();
    facts.retain(|fact| {
        let Some((subject, object)) = fact.uris() else { return false };
        !WITHOUT_LINK.contains(&&*fact.property.text())
            && seen.insert((subject.to_owned(), fact.property.clone(), object.to_owned()))
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fact(property: &str, spans: [usize; 4], uris: [&str; 2]) -> Value {
        json!({"propertyId": property, "subjectStart": spans[0], "subjectEnd": spans[1], "objectStart": spans[2],
            "objectEnd": spans[3], "subjectUri": uris[0], "objectUri": uris[1]})
    }

    fn file(facts: &[Value]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let property =
            |id: &str, name: &str| json!({"propertyId": id, "propertyName": name, "propertyDescription": ""});
        let document = json!({"fold": 4, "documentId": "d", "documentText": "", "passages": [{
            "passageId": "d:0", "passageStart": 0, "passageEnd": 9, "passageText": "",
            "exhaustivelyAnnotatedProperties": [property("1", "BORN"), property("5", "DATE")], "facts": facts}, {
            "passageId": "d:1", "passageStart": 10, "passageEnd": 12, "passageText": "",
            "exhaustivelyAnnotatedProperties": [property("2", "SPOUSE")], "facts": []}]});
        std::fs::write(file.path(), document.to_string()).unwrap();
        file
    }

    fn counts(gold: &[Value], guess: &[Value], method: Method) -> Counts {
        evaluate(file(gold).path(), file(guess).path(), method, Some(4)).unwrap().total
    }

    #[test]
    fn spans_match_exactly_or_by_overlap() {
        let gold = [fact("1", [0, 5, 10, 15], ["", ""])];
        let guess = [fact("1", [3, 5, 14, 20], ["", ""])];
        assert_eq!(counts(&gold, &guess, Method::SpanOverlap), Counts { found: 1, wrong: 0, missed: 0 });
        assert_eq!(counts(&gold, &guess, Method::SpanExact), Counts { found: 0, wrong: 1, missed: 1 });
        let adjacent = [fact("1", [5, 6, 14, 20], ["", ""])];
        assert_eq!(counts(&gold, &adjacent, Method::SpanOverlap), Counts { found: 0, wrong: 1, missed: 1 });
    }

    #[test]
    fn what_overlaps_a_right_fact_is_not_wrong() {
        let gold = [fact("1", [0, 5, 10, 15], ["", ""])];
        let guess = [fact("1", [3, 8, 10, 15], ["", ""]), fact("1", [6, 9, 10, 15], ["", ""])];
        assert_eq!(counts(&gold, &guess, Method::SpanOverlap), Counts { found: 1, wrong: 0, missed: 0 });
    }

    #[test]
    fn properties_that_a_passage_is_not_annotated_for_do_not_count() {
        let guess = [fact("2", [0, 5, 10, 15], ["", ""])];
        let nothing = counts(&[], &guess, Method::SpanExact);
        assert_eq!(nothing, Counts::default());
        // With neither gold nor predicted facts there is nothing to score.
        let json = serde_json::to_string(&nothing).unwrap();
        assert_eq!(json, r#"{"precision":null,"recall":null,"f1":null}"#);
        let gold = [fact("1", [0, 5, 10, 15], ["", ""])];
        // Nor does a property that no passage of the gold file has.
        let other = [gold[0].clone(), fact("9", [0, 5, 10, 15], ["", ""])];
        assert_eq!(counts(&gold, &other, Method::SpanExact), Counts { found: 1, wrong: 0, missed: 0 });
        let silent = counts(&gold, &[], Method::SpanExact);
        assert_eq!((silent.precision(), silent.recall(), silent.f1()), (0.0.into(), 0.0.into(), 0.0.into()));
    }

    #[test]
    fn links_match_by_their_last_part_and_repetitions_count_once() {
        let gold = [fact("1", [0, 1, 2, 3], ["http://w/Q1", "Q2"]), fact("5", [0, 1, 2, 3], ["Q1", "Q7"])];
        let guess = [
            fact("1", [7, 8, 9, 9], ["Q1/", "http://w/Q2"]),
            fact("1", [0, 1, 2, 3], ["Q1", "Q9"]),
            fact("1", [4, 5, 2, 3], ["Q1", "Q9"]),
            fact("1", [4, 5, 2, 3], ["Q1", ""]),
        ];
        assert_eq!(counts(&gold, &guess, Method::Uri), Counts { found: 1, wrong: 1, missed: 0 });
    }

    #[test]
    fn the_report_names_properties() {
        let gold = [fact("1", [0, 1, 2, 3], ["", ""])];
        let report = evaluate(file(&gold).path(), file(&gold).path(), Method::SpanExact, None).unwrap();
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"precision":1.0,"recall":1.0,"f1":1.0,"properties":{"BORN":{"precision":1.0,"recall":1.0,"f1":1.0}}}"#
        );
    }

    #[test]
    fn faults_are_named() {
        let right = file(&[fact("1", [0, 1, 2, 3], ["", ""])]);
        let unknown = file(&[fact("77", [0, 1, 2, 3], ["", ""])]);
        let run = |gold: &Path, guess: &Path, fold| {
            evaluate(gold, guess, Method::SpanExact, fold).unwrap_err().to_string()
        };
        let message = run(right.path(), unknown.path(), None);
        assert!(message.contains("passages[0].facts[0].propertyId") && message.contains("`77`"), "{message}");
        assert!(run(right.path(), right.path(), Some(3)).contains("at least one document of the fold"));
        let text = std::fs::read_to_string(right.path()).unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), text.replace(r#""documentId":"d""#, r#""documentId":"e""#)).unwrap();
        assert!(run(right.path(), other.path(), None).contains("no prediction for id `d` (1 of"));
        std::fs::write(other.path(), text.replace("\"d:0\"", "\"d:9\"")).unwrap();
        assert!(run(right.path(), other.path(), None).contains("expected the passage `d:0`"));
        std::fs::write(other.path(), format!("{text}\n{text}")).unwrap();
        assert!(run(right.path(), other.path(), None).contains("`d` stands on line 1"));
        std::fs::write(other.path(), text.replace("\"d:1\"", "\"d:0\"")).unwrap();
        assert!(run(other.path(), right.path(), None).contains("different passage ids, found `d:0` twice"));
        assert!("exact".parse::<Method>().unwrap_err().contains("`exact`"));
    }
}
