//! Conditions on metadata, as a table of a config and as an expression of the command line.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Number;
use sporran_config::Document;

use super::glob::Glob;
use crate::{Error, Result};

/// `[retriever.filter]`: conditions on the metadata of passages. A passage must meet all conditions of the table.
///
/// The fields are those of the passage's record that KILT does not define, and `categories`. Four more are `title` (of
/// the page), and `section`, `line` and `page` of the passage, the last two for files that have them. `source` is the path of the file in the folder of its source, and `file` the
/// whole path. A key that no passage has is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilterOptions {
    /// The field of the conditions `equals`, `any-of`, `prefix`, `glob`, `at-least`, `at-most`, `since`, `until` and
    /// `exists`. A passage without the field meets none of them, except `exists = false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value of the field: a string, a number or a boolean. For a list, one of its strings. A string is also compared
    /// with numbers and booleans that are written like it. `*` in it is any characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Scalar>,
    /// Values of which the field has one, as for `equals`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_of: Option<Vec<Scalar>>,
    /// The first characters of the string, or of one string of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A glob that matches the whole string, or one string of a list: `*` is any characters, `?` is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// A glob that matches the field `source`, such as `handbook/*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The smallest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The largest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The first day, month or year, as `2024-05-31`, `2024-05` or `2024`. The field is a string that starts so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The last day, month or year, as for `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether the passage has the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// `[[retriever.filter.all]]`: tables of conditions that must all be met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Vec<FilterOptions>>,
    /// `[[retriever.filter.any]]`: tables of conditions of which at least one must be met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any: Option<Vec<FilterOptions>>,
    /// `[retriever.filter.not]`: conditions that must not be met together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<FilterOptions>>,
}

/// A value to compare fields with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string, which is also compared with numbers and booleans that are written like it.
    Text(String),
    /// A number.
    Number(Number),
    /// `true` or `false`.
    Boolean(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "the string `{text}`"),
            Self::Number(number) => write!(f, "the number {number}"),
            Self::Boolean(value) => write!(f, "`{value}`"),
        }
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => number.serialize(serializer),
            Self::Boolean(value) => serializer.serialize_bool(*value),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Boolean(value))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number.into()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number.into()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
                let wrong = || E::invalid_value(de::Unexpected::Float(number), &"a finite number");
                Number::from_f64(number).map(Scalar::Number).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// The condition of a table without a key, in messages.
const CONDITIONS: &str =
    "`equals`, `any-of`, `prefix`, `glob`, `at-least`, `at-most`, `since`, `until` or `exists`";

/// Whether a text is a year, a month, a day or a time, as ISO 8601 writes them, that a calendar and a clock have.
pub(super) fn is_date(text: &str) -> bool {
    let form = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(at, byte): (usize, u8)| match form.get(at) {
        Some(b'd') => byte.is_ascii_digit(),
        Some(b'T') => matches!(byte, b'T' | b' '),
        Some(&sign) => byte == sign,
        // Fractions of seconds and zones.
        None => matches!(byte, b'0'..=b'9' | b'.' | b'Z' | b'+' | b'-' | b':'),
    };
    let is_whole = matches!(text.len(), 4 | 7 | 10 | 16) || text.len() >= 19;
    if !is_whole || !text.bytes().enumerate().all(fits) {
        return false;
    }
    let number =
        |at: usize, digits: usize| text.get(at..at + digits).and_then(|text| text.parse::<u32>().ok());
    let within = |at: usize, least: u32, most: u32| {
        number(at, 2).is_none_or(|number| (least..=most).contains(&number))
    };
    let days = days_in(number(0, 4).unwrap_or_default(), number(5, 2).unwrap_or(1));
    // A day may end at 24:00, and a minute with a leap second.
    within(5, 1, 12) && within(8, 1, days) && within(11, 0, 24) && within(14, 0, 59) && within(17, 0, 60)
}

/// The number of days of a month.
fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl FilterOptions {
    /// Reports mistakes that need no store. `key` is the path of the table.
    pub fn check(&self, key: &str, document: &mut Document<'_>) {
        for (key, message) in self.mistakes(key) {
            document.report_key(&key, message);
        }
    }

    /// The mistakes of this table and its tables, each with the path of its key.
    pub(super) fn mistakes(&self, path: &str) -> Vec<(String, String)> {
        let Self {
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
        } = self;
        let mut found = Vec::new();
        let mut report = |at: &str, message: String| {
            let separator = if at.is_empty() { "" } else { "." };
            found.push((format!("{path}{separator}{at}"), message));
        };
        let has_condition = equals.is_some()
            || any_of.is_some()
            || prefix.is_some()
            || glob.is_some()
            || since.is_some()
            || until.is_some()
            || at_least.is_some()
            || at_most.is_some()
            || exists.is_some();
        match key {
            Some(key) if key.is_empty() => report("key", "expected the name of a field".to_owned()),
            Some(key) if !has_condition => {
                report("", format!("expected a condition on `{key}`: {CONDITIONS}"))
            }
            None if has_condition => {
                report("key", "is missing; the conditions of a table are about a field".to_owned());
            }
            None if source.is_none() && all.is_none() && any.is_none() && not.is_none() => {
                report("", "expected a condition: a `key`, `all`, `any` or `not`".to_owned());
            }
            _ => {}
        }
        if any_of.as_ref().is_some_and(Vec::is_empty) {
            report("any-of", "expected at least one value".to_owned());
        }
        for (name, bound) in [("at-least", at_least), ("at-most", at_most)] {
            if let Some(bound) = bound.filter(|bound| !bound.is_finite()) {
                report(name, format!("expected a finite number, found {bound}"));
            }
        }
        for (name, pattern) in [("glob", glob), ("source", source)] {
            if let Some(pattern) = pattern
                && let Err(error) = Glob::new(pattern)
            {
                report(name, format!("expected a glob, found `{pattern}`: {error}"));
            }
        }
        for (name, date) in [("since", since), ("until", until)] {
            if let Some(date) = date.as_ref().filter(|date| !is_date(date)) {
                report(
                    name,
                    format!("expected a date such as `2024-05-31`, `2024-05` or `2024`, found `{date}`"),
                );
            }
        }
        if let (Some(least), Some(most)) = (at_least, at_most)
            && least > most
        {
            report("at-least", format!("expected at most the {most} of `at-most`, found {least}"));
        }
        for (name, tables) in [("all", all), ("any", any)] {
            if tables.as_ref().is_some_and(Vec::is_empty) {
                report(name, "expected at least one table".to_owned());
            }
        }
        for (name, tables) in [("all", all), ("any", any)] {
            for (at, table) in tables.iter().flatten().enumerate() {
                found.extend(table.mistakes(&format!("{path}.{name}[{at}]")));
            }
        }
        if let Some(table) = not {
            found.extend(table.mistakes(&format!("{path}.not")));
        }
        found
    }

    /// Reads an expression: conditions joined by ` AND `.
    ///
    /// A condition is `key=value`, `key!=value`, `key>=number`, `key<=number`, `key>=date` or `key<=date`. `key!=value` also
    /// accepts passages without the field. The value of `source` and `file` can be a glob. A value in double quotes can have ` AND ` and outer spaces in it. A value is compared with
    /// strings, lists of strings, numbers and booleans, as [`equals`](Self::equals) does.
    ///
    /// ```
    /// use sporran_retriever::{FilterOptions, Scalar};
    ///
    /// let filter = FilterOptions::parse("lang=en AND year>=2000")?;
    /// let conditions = filter.all.unwrap();
    /// assert_eq!(conditions[0].equals, Some(Scalar::Text("en".into())));
    /// assert_eq!(conditions[1].at_least, Some(2000.0));
    /// # Ok::<(), sporran_retriever::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Filter`] for text that is no expression.
    pub fn parse(expression: &str) -> Result<Self> {
        let mut conditions = Vec::new();
        let mut rest = Some(expression);
        while let Some(text) = rest {
            let (condition, after) = condition(text)?;
            conditions.push(condition);
            rest = after;
        }
        Ok(match conditions.len() {
            1 => conditions.remove(0),
            _ => Self { all: Some(conditions), ..Self::default() },
        })
    }
}

/// Separates the conditions of an expression.
const AND: &str = " AND ";

/// The first condition of an expression, and the text after the separator.
fn condition(text: &str) -> Result<(FilterOptions, Option<&str>)> {
    let wrong = |expected: &str, found: &str| {
        Err(Error::Filter { message: format!("expected {expected}, found `{}`", found.trim()) })
    };
    let Some(at) = text.find(['=', '!', '<', '>']) else {
        return wrong(
            "`key=value`, `key!=value`, `key>=number`, `key>=date`, `key<=number` or `key<=date`",
            text,
        );
    };
    let (key, from) = (text[..at].trim(), &text[at..]);
    if key.is_empty() {
        return wrong("a field before the comparison", text);
    }
    let Some((operator, value)) =
        ["!=", ">=", "<=", "="].iter().find_map(|&sign| Some((sign, from.strip_prefix(sign)?.trim_start())))
    else {
        return wrong("`=`, `!=`, `>=` or `<=`", from);
    };
    let (value, is_quoted, rest) = match value.strip_prefix('"') {
        Some(quoted) => {
            let Some((value, after)) = quoted.split_once('"') else {
                return wrong("a quote that ends the value", value);
            };
            match after.strip_prefix(AND) {
                None if !after.trim().is_empty() => return wrong("` AND ` after the quoted value", after),
                rest => (value, true, rest),
            }
        }
        None => match value.split_once(AND) {
            Some((value, rest)) => (value.trim(), false, Some(rest)),
            None => (value.trim(), false, None),
        },
    };
    if value.is_empty() && !is_quoted {
        return wrong("a value after the comparison (`\"\"` for an empty one)", text);
    }
    let mut options = FilterOptions { key: Some(key.to_owned()), ..FilterOptions::default() };
    match operator {
        ">=" | "<=" => {
            if is_date(value) && value.contains('-') {
                let bound = if operator == ">=" { &mut options.since } else { &mut options.until };
                *bound = Some(value.to_owned());
                return Ok((options, rest));
            }
            let Some(number) = value.parse::<f64>().ok().filter(|number| number.is_finite()) else {
                let expected = format!("a number or a date such as `2024-05-31` after `{key}{operator}`");
                return wrong(&expected, value);
            };
            let bound = if operator == ">=" { &mut options.at_least } else { &mut options.at_most };
            *bound = Some(number);
        }
        _ => options.equals = Some(Scalar::Text(value.to_owned())),
    }
    if operator == "!=" {
        options = FilterOptions { not: Some(Box::new(options)), ..FilterOptions::default() };
    }
    Ok((options, rest))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_config::Text;

    use super::*;

    /// The options of a TOML text, or its mistakes.
    fn read(text: &str) -> Result<FilterOptions, String> {
        let text = Text::new(Path::new("c.toml"), text.to_owned(), &[]);
        let mut document = Document::parse(&text);
        let options: Option<FilterOptions> = document.read_root(&[]);
        if let Some(options) = &options {
            options.check("filter", &mut document);
        }
        let found: Vec<String> =
            document.into_diagnostics().iter().map(|it| format!("{}: {}", it.key, it.message)).collect();
        if found.is_empty() { Ok(options.unwrap()) } else { Err(found.join("\n")) }
    }

    fn of(key: &str) -> FilterOptions {
        FilterOptions { key: Some(key.into()), ..FilterOptions::default() }
    }

    fn equals(key: &str, value: &str) -> FilterOptions {
        FilterOptions { equals: Some(Scalar::Text(value.into())), ..of(key) }
    }

    fn all(tables: Vec<FilterOptions>) -> FilterOptions {
        FilterOptions { all: Some(tables), ..FilterOptions::default() }
    }

    #[test]
    fn expressions_compare_fields_and_and_joins_them() {
        let not = |inner| FilterOptions { not: Some(Box::new(inner)), ..FilterOptions::default() };
        let cases = [
            ("lang=en", equals("lang", "en")),
            (" lang = en ", equals("lang", "en")),
            ("title=a=b", equals("title", "a=b")),
            ("my key=two words", equals("my key", "two words")),
            ("lang=\" x AND y \"", equals("lang", " x AND y ")),
            ("lang=\"\"", equals("lang", "")),
            ("lang=AND", equals("lang", "AND")),
            ("lang!=en", not(equals("lang", "en"))),
            ("year>=2000", FilterOptions { at_least: Some(2000.0), ..of("year") }),
            ("year <= -1.5", FilterOptions { at_most: Some(-1.5), ..of("year") }),
            ("date>=2024-05", FilterOptions { since: Some("2024-05".into()), ..of("date") }),
            ("date<=2024-05-31", FilterOptions { until: Some("2024-05-31".into()), ..of("date") }),
            ("source=a/*.md", equals("source", "a/*.md")),
            (
                "a=1 AND b!=\"2\" AND c=3",
                all(vec![equals("a", "1"), not(equals("b", "2")), equals("c", "3")]),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(FilterOptions::parse(text).unwrap(), expected, "{text}");
            assert!(expected.mistakes("filter").is_empty(), "{text}");
        }
    }

    #[test]
    fn an_expression_that_cannot_be_read_is_an_error_that_names_the_part() {
        let cases = [
            (
                "",
                "expected `key=value`, `key!=value`, `key>=number`, `key>=date`, `key<=number` or `key<=date`, found ``",
            ),
            ("lang", "`key<=date`, found `lang`"),
            ("=en", "expected a field before the comparison, found `=en`"),
            ("year>2000", "expected `=`, `!=`, `>=` or `<=`, found `>2000`"),
            ("year!2000", "expected `=`, `!=`, `>=` or `<=`, found `!2000`"),
            ("year>=soon", "expected a number or a date such as `2024-05-31` after `year>=`, found `soon`"),
            ("year>=inf", "expected a number or a date such as `2024-05-31` after `year>=`, found `inf`"),
            (
                "day>=2024-13",
                "expected a number or a date such as `2024-05-31` after `day>=`, found `2024-13`",
            ),
            ("day<=2024-02-32", "a date such as `2024-05-31` after `day<=`, found `2024-02-32`"),
            ("lang=en AND day>=2023-02-30", "a date such as `2024-05-31` after `day>=`, found `2023-02-30`"),
            ("day>=2023-02-29", "after `day>=`, found `2023-02-29`"),
            ("day>=2023-04-31 AND lang=en", "after `day>=`, found `2023-04-31`"),
            ("day>=2024-02-29T25:00", "after `day>=`, found `2024-02-29T25:00`"),
            ("lang=", "expected a value after the comparison (`\"\"` for an empty one), found `lang=`"),
            ("lang=\"en", "expected a quote that ends the value, found `\"en`"),
            ("lang=\"en\" x", "expected ` AND ` after the quoted value, found `x`"),
            ("lang=en AND ", "`key<=date`, found ``"),
        ];
        for (text, expected) in cases {
            let message = FilterOptions::parse(text).unwrap_err().to_string();
            assert!(message.starts_with("filter: ") && message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_date_is_one_of_the_calendar() {
        for date in
            ["2024", "2024-02", "2024-02-29", "2000-02-29", "2023-12-31T23:59:60Z", "2024-05-31 24:00"]
        {
            assert!(is_date(date), "{date}");
        }
        for date in
            ["2023-02-29", "1900-02-29", "2024-06-31", "2024-00", "2024-05-00", "2024-05-31T12:60", "24"]
        {
            assert!(!is_date(date), "{date}");
        }
    }

    #[test]
    fn tables_are_read_and_their_mistakes_have_paths() {
        let text = "[[all]]\nkey = \"lang\"\nany-of = [\"en\", 3, true]\n\
                    [[all]]\nkey = \"year\"\nat-least = 2000\nat-most = 2010.5\n\
                    [[any]]\nnot = { key = \"draft\", exists = true }\n";
        let options = read(text).unwrap();
        let list = options.all.as_ref().unwrap();
        let expected = [Scalar::Text("en".into()), Scalar::Number(3.into()), Scalar::Boolean(true)];
        assert_eq!(list[0].any_of.as_deref(), Some(expected.as_slice()));
        assert_eq!((list[1].at_least, list[1].at_most), (Some(2000.0), Some(2010.5)));
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<FilterOptions>(&json).unwrap(), options);
        let cases = [
            ("", "filter: expected a condition: a `key`, `all`, `any` or `not`"),
            ("key = \"\"\nexists = true", "filter.key: expected the name of a field"),
            ("key = \"lang\"", "filter: expected a condition on `lang`: `equals`, `any-of`"),
            ("equals = 1", "filter.key: is missing; the conditions of a table are about a field"),
            ("key = \"a\"\nany-of = []", "filter.any-of: expected at least one value"),
            ("key = \"a\"\nat-least = nan", "filter.at-least: expected a finite number, found NaN"),
            (
                "key = \"a\"\nat-least = 2\nat-most = 1",
                "filter.at-least: expected at most the 1 of `at-most`, found 2",
            ),
            ("key = \"a\"\nsince = \"May\"", "filter.since: expected a date such as"),
            ("key = \"a\"\nuntil = \"2023-02-30\"", "filter.until: expected a date such as"),
            ("source = \"a[\"", "filter.source: expected a glob, found `a[`"),
            ("all = []", "filter.all: expected at least one table"),
            ("[[any]]\nkey = \"a\"\nexists = true\n[[any]]\n", "filter.any[1]: expected a condition"),
            ("[not]\nprefix = \"a\"", "filter.not.key: is missing"),
        ];
        for (text, expected) in cases {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(expected) && found.lines().count() == 1, "{found}");
        }
        for (text, expected) in [
            ("key = 3", "key: expected a string, found the number 3"),
            ("equals = [1]", "expected a string, a number or a boolean"),
            ("equals = inf", "expected a finite number"),
            ("kee = \"a\"", "kee: unknown field `kee`"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(expected), "{found}");
        }
    }
}
