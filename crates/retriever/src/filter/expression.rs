//! A filter over the metadata of a store's passages, and the passages that it accepts.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde_json::Number;
use sporran_kilt::{
    Field, FieldKind, FilePlace, Metadata, PassageId, PassageStore, passage::ABSTRACT, store::PageIndex,
};

use super::{
    glob::Glob,
    options::{FilterOptions, Scalar, is_date},
};
use crate::{Error, Result};

/// The key of the page's title.
const TITLE: &str = "title";
/// The key of the passage's section.
const SECTION: &str = "section";
/// The key of a file's path in the folder of its source.
const SOURCE: &str = "source";
/// The key of a file's whole path.
const FILE: &str = "file";
/// The keys of the line and of the page of its file on which a passage starts.
const LINE: &str = "line";
const PAGE: &str = "page";

/// Conditions on the metadata of a store's passages, with the keys and types of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    root: Condition,
    /// Whether passages of a page can differ by their sections.
    has_section: bool,
    /// Whether they can differ by their places in the file.
    has_place: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Field(String, Test),
}

/// A condition on the value of a field. No value of a missing field meets it.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    AnyOf(Vec<Scalar>),
    Prefix(String),
    Globs(Vec<Glob>),
    Dates { since: Option<String>, until: Option<String> },
    Range { least: Option<f64>, most: Option<f64> },
    Exists,
}

/// A passage as conditions see it.
struct Described<'s> {
    metadata: &'s Metadata,
    title: &'s str,
    section: &'s str,
    /// The place at which it starts, if a condition is about it.
    place: FilePlace,
}

impl Described<'_> {
    /// The line or the page on which it starts, if its record does not name one.
    fn number(&self, key: &str) -> Option<Field> {
        let number = if key == LINE { self.place.line } else { self.place.page };
        Some(Field::Number(number?.into()))
    }
}

/// The place at which a passage starts.
fn place(store: &PassageStore, id: PassageId) -> FilePlace {
    let (paragraph, bytes) = store.pieces(id).next().unwrap_or_default();
    store.file_place(store.page_of(id), paragraph, bytes.start as u32)
}

impl Filter {
    /// Reads the conditions with the keys of a store.
    ///
    /// # Errors
    /// [`Error::Filter`] for a key that the store lacks, with the keys that it has; for a value of another type than the
    /// field's; and for options that [`FilterOptions::check`] reports.
    pub fn new(options: &FilterOptions, store: &PassageStore) -> Result<Self> {
        if let Some((key, message)) = options.mistakes("filter").into_iter().next() {
            return Err(Error::Filter { message: format!("`{key}`: {message}") });
        }
        let root = condition(options, store)?;
        let has_place = root.names(LINE) || root.names(PAGE);
        Ok(Self { has_section: root.names(SECTION), has_place, root })
    }

    /// The passages of a store that the filter accepts. It reads the metadata of every page once.
    ///
    /// # Errors
    /// [`Error::Kilt`] for a damaged store.
    pub fn select(&self, store: &PassageStore) -> Result<Selection> {
        let words: Vec<AtomicU64> = (0..store.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let accept = |passage: u32| {
            if let Some(word) = words.get(passage as usize / 64) {
                word.fetch_or(1 << (passage % 64), Ordering::Relaxed);
            }
        };
        (0..store.pages() as u32).into_par_iter().map(PageIndex).for_each(|page| {
            let (metadata, title) = (store.metadata(page), store.page_title(page));
            let own = metadata.section().unwrap_or(ABSTRACT);
            let accepts =
                |section, place| self.root.accepts(&Described { metadata: &metadata, title, section, place });
            let passages = store.passages_of(page);
            if self.has_section || self.has_place {
                let accepts = |&passage: &u32| {
                    let id = PassageId(passage);
                    let place = if self.has_place { place(store, id) } else { FilePlace::default() };
                    accepts(store.header(id).unwrap_or(own), place)
                };
                passages.filter(accepts).for_each(accept);
            } else if accepts(own, FilePlace::default()) {
                passages.for_each(accept);
            }
        });
        store.sound()?;
        Ok(Selection { words: words.into_iter().map(AtomicU64::into_inner).collect() })
    }
}

/// A set of passages, a bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    words: Vec<u64>,
}

impl Selection {
    /// Whether a passage is in the set.
    pub fn contains(&self, passage: PassageId) -> bool {
        self.words.get(passage.index() / 64).is_some_and(|word| word >> (passage.0 % 64) & 1 == 1)
    }

    /// The number of passages.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are no passages.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }
}

/// The condition of a table.
fn condition(options: &FilterOptions, store: &PassageStore) -> Result<Condition> {
    let FilterOptions {
        key,
        equals,
        any_of,
        prefix,
        glob,
        source,
        at_least,
        at_most,
        since,
        until,
        exists,
        all,
        any,
        not,
    } = options;
    let mut conditions = Vec::new();
    let globs = |patterns: &[&str]| {
        let wrong = |message| Error::Filter { message };
        patterns.iter().map(|pattern| Glob::new(pattern).map_err(wrong)).collect::<Result<Vec<_>>>()
    };
    if let Some(pattern) = source {
        kinds(SOURCE, store)?;
        conditions.push(Condition::Field(stored(SOURCE, store).to_owned(), Test::Globs(globs(&[pattern])?)));
    }
    if let Some(key) = key {
        let key = &stored(key, store).to_owned();
        let kinds = kinds(key, store)?;
        let of = |test| Condition::Field(key.clone(), test);
        let needs = |kind: &[FieldKind], found: &str| {
            if kinds.iter().any(|other| kind.contains(other)) {
                Ok(())
            } else {
                Err(wrong(key, &kinds, found))
            }
        };
        let values = |values: &[Scalar]| {
            let texts: Vec<&str> = values
                .iter()
                .filter_map(|value| match value {
                    Scalar::Text(text) => Some(text.as_str()),
                    Scalar::Number(_) | Scalar::Boolean(_) => None,
                })
                .collect();
            if [SOURCE, FILE].contains(&key.as_str()) && texts.iter().any(|text| Glob::is_glob(text)) {
                return Ok(of(Test::Globs(globs(&texts)?)));
            }
            // Other texts can have question marks and brackets, as titles do.
            let has_texts = kinds.iter().any(|kind| matches!(kind, FieldKind::Text | FieldKind::List));
            if has_texts && texts.iter().any(|text| text.contains('*')) {
                let globs = texts.iter().map(|text| Glob::of_stars(text));
                let globs: Result<Vec<Glob>, String> = globs.collect();
                return Ok(of(Test::Globs(globs.map_err(|message| Error::Filter { message })?)));
            }
            let values: Result<Vec<Vec<Scalar>>> =
                values.iter().map(|value| typed(key, value, &kinds)).collect();
            values.map(|values| of(Test::AnyOf(values.concat())))
        };
        if let Some(value) = equals {
            conditions.push(values(std::slice::from_ref(value))?);
        }
        if let Some(listed) = any_of {
            conditions.push(values(listed)?);
        }
        if let Some(prefix) = prefix {
            needs(&[FieldKind::Text, FieldKind::List], &format!("the prefix `{prefix}`"))?;
            conditions.push(of(Test::Prefix(prefix.clone())));
        }
        if let Some(pattern) = glob {
            needs(&[FieldKind::Text, FieldKind::List], &format!("the glob `{pattern}`"))?;
            conditions.push(of(Test::Globs(globs(&[pattern])?)));
        }
        if since.is_some() || until.is_some() {
            needs(&[FieldKind::Text, FieldKind::List], "a range of dates")?;
            conditions.push(of(Test::Dates { since: since.clone(), until: until.clone() }));
        }
        if at_least.is_some() || at_most.is_some() {
            // `date>=2024` is about a number where the field has a number, and about a year where it has a string.
            let bounds = [*at_least, *at_most].map(|bound| bound.map(year));
            if bounds.iter().flatten().all(Option::is_some) && kinds.contains(&FieldKind::Text) {
                let [since, until] = bounds.map(Option::flatten);
                let dates = of(Test::Dates { since, until });
                let numbers = of(Test::Range { least: *at_least, most: *at_most });
                conditions.push(Condition::Any(vec![dates, numbers]));
            } else {
                needs(&[FieldKind::Number], "a range of numbers")?;
                conditions.push(of(Test::Range { least: *at_least, most: *at_most }));
            }
        }
        if let Some(exists) = exists {
            let has = of(Test::Exists);
            conditions.push(if *exists { has } else { Condition::Not(Box::new(has)) });
        }
    }
    let all_of = |tables: &[FilterOptions]| -> Result<Vec<Condition>> {
        tables.iter().map(|table| condition(table, store)).collect()
    };
    if let Some(tables) = all {
        conditions.extend(all_of(tables)?);
    }
    if let Some(tables) = any {
        conditions.push(Condition::Any(all_of(tables)?));
    }
    if let Some(table) = not {
        conditions.push(Condition::Not(Box::new(condition(table, store)?)));
    }
    Ok(Condition::All(conditions))
}

/// A number of four digits as a year.
fn year(number: f64) -> Option<String> {
    let is_year = number.fract() == 0.0 && (1000.0..10_000.0).contains(&number);
    is_year.then(|| format!("{number:.0}"))
}

/// The field of a key: records that only name a `file` have it as their source.
fn stored<'k>(key: &'k str, store: &PassageStore) -> &'k str {
    let is_named = |key: &str| store.keys().contains_key(key);
    if key == SOURCE && !is_named(SOURCE) && is_named(FILE) { FILE } else { key }
}

/// The types of a field's values.
fn kinds(key: &str, store: &PassageStore) -> Result<Vec<FieldKind>> {
    let key = stored(key, store);
    if [TITLE, SECTION].contains(&key) {
        return Ok(vec![FieldKind::Text]);
    }
    if let Some(kinds) = store.keys().get(key) {
        return Ok(kinds.clone());
    }
    // Documents have the places of their paragraphs, which are no fields.
    let has_number = |page: u32| {
        let first = store.passages_of(PageIndex(page)).next().map(|id| place(store, PassageId(id)));
        first.is_some_and(|first| if key == LINE { first.line.is_some() } else { first.page.is_some() })
    };
    if [LINE, PAGE].contains(&key) && store.has_places() && (0..store.pages() as u32).any(has_number) {
        return Ok(vec![FieldKind::Number]);
    }
    let own = store.keys().keys().map(String::as_str).filter(|other| ![TITLE, SECTION].contains(other));
    let listed: Vec<String> = own.chain([TITLE, SECTION]).map(|key| format!("`{key}`")).collect();
    let mut message = format!("unknown key `{key}`; the keys of the passages are {}", listed.join(", "));
    if store.metadata_hash().is_none() {
        message.push_str(&format!(
            "; {} has no metadata: if the source has fields, an earlier version built the store; delete this folder, \
             and the next run builds it again",
            store.folder().display()
        ));
    }
    Err(Error::Filter { message })
}

fn wrong(key: &str, kinds: &[FieldKind], found: &str) -> Error {
    let kinds: Vec<String> = kinds.iter().map(FieldKind::to_string).collect();
    Error::Filter { message: format!("the values of `{key}` are {}, found {found}", kinds.join(" and ")) }
}

/// A value as each of the types of a field that it can have.
fn typed(key: &str, value: &Scalar, kinds: &[FieldKind]) -> Result<Vec<Scalar>> {
    let as_kind = |kind: &FieldKind| match (kind, value) {
        (FieldKind::Text | FieldKind::List, Scalar::Text(_))
        | (FieldKind::Number, Scalar::Number(_))
        | (FieldKind::Boolean, Scalar::Boolean(_)) => Some(value.clone()),
        (FieldKind::Number, Scalar::Text(text)) => number(text).map(Scalar::Number),
        (FieldKind::Boolean, Scalar::Text(text)) => text.parse().ok().map(Scalar::Boolean),
        _ => None,
    };
    let values: Vec<Scalar> = kinds.iter().filter_map(as_kind).collect();
    if values.is_empty() { Err(wrong(key, kinds, &value.to_string())) } else { Ok(values) }
}

/// A text as a number.
fn number(text: &str) -> Option<Number> {
    let whole = text.trim().parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(text.trim().parse().ok()?))
}

/// Whether two numbers are equal. Whole numbers are compared exactly.
fn same(a: &Number, b: &Number) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

impl Condition {
    fn names(&self, key: &str) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.names(key)),
            Self::Not(part) => part.names(key),
            Self::Field(other, _) => other == key,
        }
    }

    fn accepts(&self, passage: &Described<'_>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.accepts(passage)),
            Self::Any(parts) => parts.iter().any(|part| part.accepts(passage)),
            Self::Not(part) => !part.accepts(passage),
            Self::Field(key, test) => match key.as_str() {
                TITLE => test.accepts_text(passage.title),
                SECTION => test.accepts_text(passage.section),
                key => match passage.metadata.get(key) {
                    Some(field) => test.accepts(field),
                    None if [LINE, PAGE].contains(&key) => {
                        passage.number(key).is_some_and(|number| test.accepts(&number))
                    }
                    None => false,
                },
            },
        }
    }
}

impl Test {
    fn accepts_text(&self, text: &str) -> bool {
        match self {
            Self::AnyOf(values) => {
                values.iter().any(|value| matches!(value, Scalar::Text(other) if other == text))
            }
            Self::Prefix(prefix) => text.starts_with(prefix),
            Self::Globs(globs) => globs.iter().any(|glob| glob.matches(text)),
            Self::Dates { since, until } => {
                // A date is compared with the part of it that the bound has.
                let text = text.trim();
                let part = |bound: &String| {
                    let length = bound.len().min(text.len());
                    text.get(..length)
                        .map(|text| (text.replacen(' ', "T", 1), bound[..length].replacen(' ', "T", 1)))
                };
                let is_after = |bound: &String| part(bound).is_some_and(|(text, bound)| text >= bound);
                let is_before = |bound: &String| part(bound).is_some_and(|(text, bound)| text <= bound);
                text.get(..text.len().min(10)).is_some_and(is_date)
                    && since.as_ref().is_none_or(is_after)
                    && until.as_ref().is_none_or(is_before)
            }
            Self::Range { .. } => false,
            Self::Exists => true,
        }
    }

    fn accepts(&self, field: &Field) -> bool {
        match (field, self) {
            (Field::Text(text), _) => self.accepts_text(text),
            (_, Self::Exists) => true,
            (Field::List(items), _) => items.iter().any(|item| self.accepts_text(item)),
            (Field::Number(number), Self::AnyOf(values)) => {
                values.iter().any(|value| matches!(value, Scalar::Number(other) if same(number, other)))
            }
            (Field::Number(number), Self::Range { least, most }) => number.as_f64().is_some_and(|number| {
                least.is_none_or(|least| least <= number) && most.is_none_or(|most| number <= most)
            }),
            // YAML and CSV give a year alone as a number.
            (Field::Number(number), Self::Dates { .. }) => {
                number.as_f64().and_then(year).is_some_and(|year| self.accepts_text(&year))
            }
            (Field::Boolean(field), Self::AnyOf(values)) => values.contains(&Scalar::Boolean(*field)),
            (Field::Number(_) | Field::Boolean(_), Self::Prefix(_) | Self::Globs(_))
            | (Field::Boolean(_), Self::Dates { .. } | Self::Range { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_kilt::{PassageSplit, store::BuildOptions};

    use super::*;

    const PAGES: [&str; 5] = [
        r#"{"wikipedia_id":"1","wikipedia_title":"Oslo","text":["Oslo","a","Section::::Life.","b"],"lang":"no","year":1048,"draft":false}"#,
        r#"{"wikipedia_id":"2","wikipedia_title":"Bergen","text":["Bergen","c"],"lang":"no","year":1070.5,"tags":["sea","rain"]}"#,
        r#"{"wikipedia_id":"3","wikipedia_title":"Paris","text":["Paris","d"],"lang":"fr","year":"unknown","draft":true}"#,
        r#"{"wikipedia_id":"4","wikipedia_title":"Berlin","text":["Berlin","e"],"section":"Intro","id":9007199254740993}"#,
        r#"{"wikipedia_id":"5","wikipedia_title":"Rome","text":["Rome","f"],"lang":"it","tags":["hills"],"year":-753}"#,
    ];

    fn store(folder: &Path, pages: &[&str]) -> PassageStore {
        let source = folder.join("pages.jsonl");
        std::fs::write(&source, pages.join("\n")).unwrap();
        let options = BuildOptions { source, redirects: None, split: PassageSplit::Paragraph };
        PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap()
    }

    /// The passages that a filter accepts. Oslo has the passages 0 and 1, the other pages have one each.
    fn accepted(store: &PassageStore, options: &FilterOptions) -> Result<Vec<u32>> {
        let selection = Filter::new(options, store)?.select(store)?;
        let found: Vec<u32> =
            (0..store.len() as u32).filter(|&id| selection.contains(PassageId(id))).collect();
        assert_eq!((selection.len(), selection.is_empty()), (found.len(), found.is_empty()));
        Ok(found)
    }

    #[test]
    fn conditions_accept_the_passages_of_their_pages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), &PAGES);
        let cases: [(&str, &[u32]); 18] = [
            ("lang=no", &[0, 1, 2]),
            ("lang!=no", &[3, 4, 5]),
            ("lang=no AND year>=1050", &[2]),
            ("year>=1048", &[0, 1, 2]),
            ("year<=1070.5 AND year>=-752", &[0, 1, 2]),
            ("year=1048", &[0, 1]),
            ("year=1048.0", &[0, 1]),
            ("year=unknown", &[3]),
            ("draft=true", &[3]),
            ("draft=false", &[0, 1]),
            ("tags=sea", &[2]),
            ("tags!=hills", &[0, 1, 2, 3, 4]),
            ("title=Oslo", &[0, 1]),
            ("section=Intro", &[4]),
            ("section=Section::::Life.", &[1]),
            ("section=Section::::Abstract.", &[0, 2, 3, 5]),
            ("id=9007199254740992", &[]),
            ("id=9007199254740993", &[4]),
        ];
        for (text, expected) in cases {
            assert_eq!(accepted(&store, &FilterOptions::parse(text).unwrap()).unwrap(), expected, "{text}");
        }
        let of = |json: &str| serde_json::from_str::<FilterOptions>(json).unwrap();
        let cases: [(&str, &[u32]); 9] = [
            (r#"{"key":"lang","any-of":["it","fr"]}"#, &[3, 5]),
            (r#"{"key":"lang","exists":false}"#, &[4]),
            (r#"{"key":"draft","exists":true}"#, &[0, 1, 3]),
            (r#"{"key":"title","prefix":"Ber"}"#, &[2, 4]),
            (r#"{"key":"tags","prefix":"r"}"#, &[2]),
            (r#"{"any":[{"key":"tags","equals":"hills"},{"key":"year","at-most":1048}]}"#, &[0, 1, 5]),
            (r#"{"not":{"key":"lang","any-of":["no","it"]},"key":"year","exists":true}"#, &[3]),
            (r#"{"key":"year","equals":-753}"#, &[5]),
            (r#"{"all":[{"key":"lang","equals":"no"},{"not":{"key":"draft","equals":false}}]}"#, &[2]),
        ];
        for (json, expected) in cases {
            assert_eq!(accepted(&store, &of(json)).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn globs_match_files_and_dates_are_compared_as_far_as_they_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(
            folder.path(),
            &[
                r#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A","a"],"file":"d/handbook/a.md","source":"handbook/a.md","date":"2024-05-31"}"#,
                r#"{"wikipedia_id":"2","wikipedia_title":"B","text":["B","b"],"file":"d/handbook/x/b.md","source":"handbook/x/b.md","date":"2024-06-01T10:00:00Z"}"#,
                r#"{"wikipedia_id":"3","wikipedia_title":"C","text":["C","c"],"file":"d/news/c[1].md","source":"news/c[1].md","date":"2023"}"#,
                r#"{"wikipedia_id":"4","wikipedia_title":"D","text":["D","d"],"date":"soon"}"#,
            ],
        );
        let cases: [(&str, &[u32]); 12] = [
            ("source=handbook/*", &[0, 1]),
            ("source!=handbook/*", &[2, 3]),
            ("source=*.md", &[0, 1, 2]),
            ("source=news/c[1].md", &[2]),
            ("file=d/news/*", &[2]),
            ("title=?", &[]),
            ("date>=2024-05-31", &[0, 1]),
            ("date>=2024-06", &[1]),
            ("date>=2024", &[0, 1]),
            ("date<=2023", &[2]),
            ("date<=2024-05-31", &[0, 2]),
            ("date<=2024-06-01 AND date>=2024-05", &[0, 1]),
        ];
        for (text, expected) in cases {
            assert_eq!(accepted(&store, &FilterOptions::parse(text).unwrap()).unwrap(), expected, "{text}");
        }
        // A year that is a number, beside dates that are strings.
        let mixed = tempfile::tempdir().unwrap();
        let dated = self::store(
            mixed.path(),
            &[
                r#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A","a"],"date":2025}"#,
                r#"{"wikipedia_id":"2","wikipedia_title":"B","text":["B","b"],"date":"2024-06"}"#,
                r#"{"wikipedia_id":"3","wikipedia_title":"C","text":["C","c"],"date":"2023-01-01"}"#,
            ],
        );
        for (text, expected) in [("date>=2024", [0, 1]), ("date>=2024-01", [0, 1]), ("date<=2024", [1, 2])] {
            assert_eq!(accepted(&dated, &FilterOptions::parse(text).unwrap()).unwrap(), expected, "{text}");
        }
        let of = |json: &str| serde_json::from_str::<FilterOptions>(json).unwrap();
        assert_eq!(accepted(&store, &of(r#"{"source":"handbook/?.md"}"#)).unwrap(), [0]);
        assert_eq!(accepted(&store, &of(r#"{"key":"title","glob":"[AB]"}"#)).unwrap(), [0, 1]);
        assert_eq!(accepted(&store, &of(r#"{"key":"date","since":"2023","until":"2023"}"#)).unwrap(), [2]);
    }

    #[test]
    fn pages_of_documents_are_numbers_and_stars_match_in_every_text() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(
            folder.path(),
            &[
                r#"{"wikipedia_id":"1","wikipedia_title":"Who? [a]","text":["Who? [a]","a","b"],"file":"a.pdf","places":[[[0,1,1]],[[0,4,2]],[[0,9,3]]]}"#,
                r#"{"wikipedia_id":"2","wikipedia_title":"Mills","text":["Mills","Section::::Old mills.","c"],"file":"b.md","places":[[[0,1,0]],[[0,2,0]],[[0,3,0]]],"tags":["red","blue"]}"#,
            ],
        );
        assert_eq!(store.len(), 3);
        let cases: [(&str, &[u32]); 11] = [
            ("page>=3", &[1]),
            ("page>=2", &[0, 1]),
            ("page=2", &[0]),
            ("page<=1", &[]),
            ("line>=4", &[0, 1]),
            ("line=3", &[2]),
            ("title=Who*", &[0, 1]),
            ("title=*? [a]", &[0, 1]),
            ("section=*Old*", &[2]),
            ("tags=b*", &[2]),
            ("title!=M*", &[0, 1]),
        ];
        for (text, expected) in cases {
            assert_eq!(accepted(&store, &FilterOptions::parse(text).unwrap()).unwrap(), expected, "{text}");
        }
        // Without places, `page` is no key.
        let other = tempfile::tempdir().unwrap();
        let other = self::store(other.path(), &PAGES);
        let error = accepted(&other, &FilterOptions::parse("page>=2").unwrap()).unwrap_err();
        assert!(error.to_string().contains("unknown key `page`"), "{error}");
    }

    #[test]
    fn unknown_keys_and_values_of_another_type_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), &PAGES);
        let cases = [
            (
                r#"{"key":"lnag","equals":"no"}"#,
                "filter: unknown key `lnag`; the keys of the passages are `draft`, `id`, `lang`, `tags`, `year`, \
                 `title`, `section`",
            ),
            (
                r#"{"key":"draft","equals":"maybe"}"#,
                "filter: the values of `draft` are `true` or `false`, found the string `maybe`",
            ),
            (r#"{"key":"lang","equals":3}"#, "the values of `lang` are strings, found the number 3"),
            (r#"{"key":"tags","any-of":["sea",true]}"#, "`tags` are lists of strings, found `true`"),
            (r#"{"key":"lang","at-least":3}"#, "`lang` are strings, found a range of numbers"),
            (r#"{"key":"draft","prefix":"t"}"#, "`draft` are `true` or `false`, found the prefix `t`"),
            (r#"{"key":"title","at-most":3}"#, "the values of `title` are strings, found a range of numbers"),
            (r#"{"any":[{"key":"id","equals":"x"}]}"#, "`id` are numbers, found the string `x`"),
            (r#"{"key":"lang"}"#, "filter: `filter`: expected a condition on `lang`"),
        ];
        for (json, expected) in cases {
            let options = serde_json::from_str(json).unwrap();
            let message = accepted(&store, &options).unwrap_err().to_string();
            assert!(message.contains(expected) && message.starts_with("filter: "), "{message}");
            assert!(!message.contains("earlier version"), "{message}");
        }
    }

    #[test]
    fn a_store_without_metadata_has_titles_and_sections_and_tells_how_to_build_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let store =
            store(folder.path(), &[r#"{"wikipedia_id":"1","wikipedia_title":"Oslo","text":["Oslo","a"]}"#]);
        assert_eq!(accepted(&store, &FilterOptions::parse("title=Oslo").unwrap()).unwrap(), [0]);
        let message = accepted(&store, &FilterOptions::parse("lang=no").unwrap()).unwrap_err().to_string();
        assert!(message.contains("the keys of the passages are `title`, `section`; "), "{message}");
        let folder = store.folder().display().to_string();
        assert!(
            message.contains(&folder) && message.contains("delete this folder, and the next run"),
            "{message}"
        );
    }
}
