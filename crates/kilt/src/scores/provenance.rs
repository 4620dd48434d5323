//! Scores of predicted evidence against gold evidence, as in KILT's public scorer.
//!
//! The rank key identifies an item of evidence: its page (`wikipedia_id`), or several joined fields.

use std::{borrow::Cow, cmp::Ordering, fmt, str::FromStr};

use rustc_hash::FxHashSet;

use super::line::{Field, Rows};

/// The fields of a provenance item that make up its rank key, such as `wikipedia_id` or `wikipedia_id,section`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RankKeys(Vec<String>);

impl RankKeys {
    /// Pages: `wikipedia_id`.
    pub fn page() -> Self {
        Self(vec!["wikipedia_id".into()])
    }

    /// Paragraphs of pages: `wikipedia_id,start_paragraph_id,end_paragraph_id`.
    pub fn paragraph() -> Self {
        Self(vec!["wikipedia_id".into(), "start_paragraph_id".into(), "end_paragraph_id".into()])
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl FromStr for RankKeys {
    type Err = String;
    /// Field names with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(format!(
                "expected names of provenance fields with commas between them, found `{text}`"
            ));
        }
        Ok(Self(names))
    }
}

impl fmt::Display for RankKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The gold evidence of a record: the key sets of its outputs.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// All keys, sorted and concatenated, with the end of each. The sets below are indices into this list.
    keys: Box<str>,
    ends: Box<[usize]>,
    /// Distinct key sets of outputs whose items have every field, for R-precision.
    relevant: Sets,
    /// Distinct key sets of outputs with the field `provenance`, for the rank.
    sets: Sets,
}

/// Distinct sets of numbers, each sorted.
#[derive(Clone, Debug, Default)]
struct Sets {
    numbers: Vec<u32>,
    /// The end of each set.
    ends: Vec<usize>,
}

impl Sets {
    /// Adds a set unless it is there.
    fn insert(&mut self, numbers: impl Iterator<Item = u32>) {
        let start = self.numbers.len();
        self.numbers.extend(numbers);
        self.numbers[start..].sort_unstable();
        let mut kept = start;
        for at in start..self.numbers.len() {
            if at == start || self.numbers[at] != self.numbers[kept - 1] {
                self.numbers[kept] = self.numbers[at];
                kept += 1;
            }
        }
        self.numbers.truncate(kept);
        if self.iter().any(|known| known == &self.numbers[start..]) {
            self.numbers.truncate(start);
        } else {
            self.ends.push(kept);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.numbers[start..end])
    }
}

/// A key, and whether all its fields exist.
type Key<'a> = (Cow<'a, str>, bool);

impl Evidence {
    /// The evidence from outputs with lists of complete keys; `None` is an output without evidence.
    pub fn new<'a, I, J>(outputs: I) -> Self
    where
        I: IntoIterator<Item = Option<J>>,
        J: IntoIterator<Item = &'a str>,
    {
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        for output in outputs.into_iter().flatten() {
            keys.extend(output.into_iter().map(|key| (Cow::Borrowed(key), true)));
            ends.push(keys.len());
        }
        Self::build(&keys, &ends)
    }

    /// The evidence in the given columns of each output's items.
    pub(super) fn from_rows<'l>(outputs: impl Iterator<Item = Rows<'l, 'l>>, columns: &[usize]) -> Self {
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        for rows in outputs {
            keys.extend(rows.iter().map(|row| key_of(row, columns)));
            ends.push(keys.len());
        }
        Self::build(&keys, &ends)
    }

    /// From the keys of all outputs, and where each output's keys end.
    fn build(all: &[Key<'_>], outputs: &[usize]) -> Self {
        let mut sorted: Vec<&str> = all.iter().map(|(key, _)| &**key).collect();
        sorted.sort_unstable();
        sorted.dedup();
        // `sorted` contains every key, so the search cannot fail.
        let place = |key: &str| sorted.partition_point(|known| *known < key) as u32;
        let (mut relevant, mut sets) = (Sets::default(), Sets::default());
        let mut start = 0;
        for &end in outputs {
            let output = &all[start..end];
            start = end;
            sets.insert(output.iter().map(|(key, _)| place(key)));
            if output.iter().any(|(_, complete)| *complete) {
                let complete = output.iter().filter(|(_, complete)| *complete);
                relevant.insert(complete.map(|(key, _)| place(key)));
            }
        }
        let keys: String = sorted.concat();
        let ends = sorted.iter().scan(0, |end, key| {
            *end += key.len();
            Some(*end)
        });
        Self { ends: ends.collect(), keys: keys.into(), relevant, sets }
    }

    /// The index of a key, `None` if no set has it.
    fn place(&self, key: &str) -> Option<u32> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = (low + high) / 2;
            let start = middle.checked_sub(1).map_or(0, |before| self.ends[before]);
            match self.keys[start..self.ends[middle]].cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Some(middle as u32),
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Walks predicted keys, best first.
    ///
    /// ```
    /// use sporran_kilt::scores::provenance::Evidence;
    ///
    /// // Two alternative sets of gold pages: page 1, or the pages 2 and 3.
    /// let gold = Evidence::new([Some(vec!["1"]), Some(vec!["2", "3"])]);
    /// let rank = gold.rank(["2", "1", "4"]);
    /// assert_eq!((rank.success(1), rank.success(5), rank.recall(5)), (0.0, 1.0, 0.5));
    /// ```
    pub fn rank<'a>(&self, predicted: impl IntoIterator<Item = &'a str>) -> Rank {
        self.rank_unique(&unique(predicted))
    }

    fn rank_unique(&self, predicted: &[&str]) -> Rank {
        let places: Vec<Option<u32>> = predicted.iter().map(|key| self.place(key)).collect();
        let mut rank = Rank {
            r_precision: self.r_precision(&places),
            held: places.len(),
            completed: Vec::new(),
            sets: 0,
        };
        if places.is_empty() {
            return rank;
        }
        rank.sets = self.sets.ends.len();
        if places.iter().all(Option::is_none) {
            return rank;
        }
        // A point is the set that it completes. A set's new point replaces its old one.
        let mut points: Vec<Option<usize>> = Vec::with_capacity(places.len());
        let mut state: Vec<(usize, Option<usize>)> = self.sets.iter().map(|set| (set.len(), None)).collect();
        let mut removed = vec![];
        for place in places {
            let Some(place) = place else {
                points.push(None);
                continue;
            };
            for (at, set) in self.sets.iter().enumerate() {
                if set.binary_search(&place).is_err() {
                    continue;
                }
                let (left, point) = &mut state[at];
                if let Some(old) = point.replace(points.len()) {
                    removed.push(old);
                }
                *left -= 1;
                points.push((*left == 0).then_some(at));
            }
        }
        removed.sort_unstable();
        let mut gone = 0;
        for (at, point) in points.iter().enumerate() {
            if removed.get(gone) == Some(&at) {
                gone += 1;
            } else if point.is_some() {
                rank.completed.push(at - gone);
            }
        }
        rank
    }

    /// The best share, over output items, of its R keys among the first R predicted ones.
    fn r_precision(&self, places: &[Option<u32>]) -> f64 {
        let share = |set: &[u32]| {
            let first = &places[..set.len().min(places.len())];
            let found = first.iter().flatten().filter(|place| set.binary_search(place).is_ok()).count();
            found as f64 / set.len() as f64
        };
        self.relevant.iter().map(share).fold(0.0, f64::max)
    }

    /// Walks the items of a prediction, best first; items without one of the columns are skipped.
    pub(super) fn rank_rows(&self, rows: Option<Rows<'_, '_>>, columns: &[usize]) -> Rank {
        let rows = rows.into_iter().flat_map(Rows::iter);
        if let &[column] = columns {
            return self.rank(rows.filter_map(|row| row[column].key()));
        }
        let keys: Vec<Cow<'_, str>> = rows
            .map(|row| key_of(row, columns))
            .filter_map(|(key, complete)| complete.then_some(key))
            .collect();
        self.rank(keys.iter().map(|key| &**key))
    }
}

/// A row's key without missing fields, and whether all fields exist.
fn key_of<'r>(row: &'r [Field<'_>], columns: &[usize]) -> Key<'r> {
    if let &[column] = columns {
        let key = row[column].key();
        return (Cow::Borrowed(key.unwrap_or_default()), key.is_some());
    }
    let mut key = String::new();
    let mut parts = 0;
    for part in columns.iter().filter_map(|&column| row[column].key()) {
        if parts > 0 {
            key.push('+');
        }
        key.push_str(part);
        parts += 1;
    }
    (Cow::Owned(key), parts == columns.len())
}

/// The first occurrence of each key.
fn unique<'a>(keys: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    /// Below this, comparing is faster than hashing.
    const FEW: usize = 24;
    let mut unique: Vec<&str> = Vec::with_capacity(FEW);
    let mut seen = FxHashSet::default();
    for key in keys {
        let new = if unique.len() < FEW {
            !unique.contains(&key)
        } else {
            if seen.is_empty() {
                seen.extend(unique.iter().copied());
            }
            seen.insert(key)
        };
        if new {
            unique.push(key);
        }
    }
    unique
}

/// The positions in a prediction where gold sets are complete.
///
/// Every distinct gold set is one point, at the position of its last key. Every other predicted key is one
/// point.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    /// R-precision, 0 to 1.
    pub r_precision: f64,
    /// The number of different predicted keys.
    pub held: usize,
    /// The points, counted from 0, at which a set is complete, ascending.
    completed: Vec<usize>,
    /// The number of distinct gold sets; 0 without predictions.
    sets: usize,
}

impl Rank {
    fn completed_in(&self, k: usize) -> usize {
        self.completed.partition_point(|&point| point < k)
    }

    /// The share of gold sets that are complete within the first k points.
    pub fn recall(&self, k: usize) -> f64 {
        if self.sets == 0 { 0.0 } else { self.completed_in(k) as f64 / self.sets as f64 }
    }

    /// The complete gold sets within the first k points, over k.
    pub fn precision(&self, k: usize) -> f64 {
        if k == 0 { 0.0 } else { self.completed_in(k) as f64 / k as f64 }
    }

    /// 1 if a gold set is complete within the first k points.
    pub fn success(&self, k: usize) -> f64 {
        if self.completed_in(k) > 0 { 1.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(outputs: &[Option<&[&str]>]) -> Evidence {
        Evidence::new(outputs.iter().map(|keys| keys.map(|keys| keys.iter().copied())))
    }

    #[test]
    fn a_set_ranks_at_its_last_page() {
        let gold = evidence(&[Some(&["a", "b"]), Some(&["c"])]);
        let rank = gold.rank(["a", "x", "b", "c"]);
        // The point of "a" is removed: x, {a, b}, {c}.
        assert_eq!((rank.completed.as_slice(), rank.held), ([1, 2].as_slice(), 4));
        assert_eq!(
            (rank.recall(2), rank.recall(3), rank.precision(2), rank.success(1)),
            (0.5, 1.0, 0.5, 0.0)
        );
        // R = 2 for the first item: only "a" of the first two; R = 1 for the second: not first.
        assert_eq!(rank.r_precision, 0.5);
    }

    #[test]
    fn equal_sets_count_once_and_an_empty_one_counts() {
        let gold = evidence(&[Some(&["a"]), Some(&["a", "a"]), Some(&[]), None]);
        assert_eq!(gold.rank(["a"]).recall(5), 0.5);
        assert_eq!(gold.rank(["a"]).r_precision, 1.0);
    }

    #[test]
    fn a_page_of_two_sets_makes_two_points() {
        let gold = evidence(&[Some(&["a"]), Some(&["a", "b"])]);
        let rank = gold.rank(["a", "b"]);
        // {a} is complete, then {a, b}, which replaces its point.
        assert_eq!(rank.completed, [0, 1]);
        assert_eq!(rank.precision(2), 1.0);
    }

    #[test]
    fn without_predictions_or_sets_all_is_0() {
        let rank = evidence(&[Some(&["a"])]).rank([]);
        assert_eq!(
            (rank.r_precision, rank.recall(5), rank.precision(5), rank.success(5)),
            (0.0, 0.0, 0.0, 0.0)
        );
        let rank = evidence(&[None]).rank(["a"]);
        assert_eq!(
            (rank.r_precision, rank.recall(5), rank.precision(5), rank.success(5)),
            (0.0, 0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn repeated_predictions_count_once_however_many() {
        let many: Vec<String> = (0..100).flat_map(|at| [at.to_string(), (at / 2).to_string()]).collect();
        let keys = unique(many.iter().map(String::as_str));
        assert_eq!(keys, (0..100).map(|at| at.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn rank_keys_are_names_with_commas() {
        let keys: RankKeys = "wikipedia_id, section".parse().unwrap();
        assert_eq!(keys.to_string(), "wikipedia_id,section");
        assert!("wikipedia_id,".parse::<RankKeys>().is_err());
    }
}
