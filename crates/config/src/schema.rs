//! The schema of a workflow's options: its keys, their meanings and their values.
//!
//! The option types derive it. The checks of ranges and the manual in [`super::explain`] use only the schema.

use std::fmt;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{Document, is_at_or_below, join};

/// The schema of options as in a config, with the definitions that it refers to.
pub fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// The schema of `T` with an additional key of type `K` at the root.
pub fn with_key<T: JsonSchema, K: JsonSchema>(key: &str) -> Schema {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let added = generator.subschema_for::<K>();
    let mut schema = generator.into_root_schema_for::<T>();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(key.to_owned(), added.to_value());
    }
    schema
}

/// A position in a schema.
#[derive(Clone, Copy)]
pub(super) struct Node<'s> {
    root: &'s Value,
    at: &'s Value,
}

impl<'s> Node<'s> {
    pub(super) fn root(schema: &'s Schema) -> Self {
        Self { root: schema.as_value(), at: schema.as_value() }
    }

    fn to(self, at: &'s Value) -> Self {
        Self { at, ..self }
    }

    /// The name of the definition that it refers to, directly or in an alternative.
    pub(super) fn definition(self) -> Option<&'s str> {
        let name = |at: &'s Value| at.get("$ref")?.as_str()?.rsplit('/').next();
        name(self.at).or_else(|| self.alternatives().into_iter().find_map(|other| name(other.at)))
    }

    /// The schema, the schemas that it refers to, and those of its `allOf`. A keyword can be in any of them.
    fn parts(self) -> Vec<&'s Value> {
        let mut parts = vec![self.at];
        let mut next = 0;
        while let Some(&part) = parts.get(next) {
            let reference = part.get("$ref").and_then(Value::as_str);
            parts.extend(reference.and_then(|path| self.root.pointer(path.trim_start_matches('#'))));
            parts.extend(part.get("allOf").and_then(Value::as_array).into_iter().flatten());
            next += 1;
        }
        parts
    }

    /// The schemas of its `anyOf` and `oneOf`.
    fn alternatives(self) -> Vec<Self> {
        let lists = |part: &'s Value| [part.get("anyOf"), part.get("oneOf")];
        let found = self.parts().into_iter().flat_map(lists).flatten().filter_map(Value::as_array).flatten();
        found.map(|at| self.to(at)).collect()
    }

    /// The value of a keyword.
    pub(super) fn keyword(self, name: &str) -> Option<&'s Value> {
        self.parts().into_iter().find_map(|part| part.get(name))
    }

    /// The value of a keyword here or in an alternative, such as the value of an `Option`.
    fn keyword_of_any(self, name: &str) -> Option<&'s Value> {
        self.keyword(name)
            .or_else(|| self.alternatives().into_iter().find_map(|other| other.keyword_of_any(name)))
    }

    /// The description of the field, else that of its type.
    pub(super) fn description(self) -> &'s str {
        self.keyword_of_any("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// The value of the key `kind` in a table of this schema, if there is only one.
    pub(super) fn kind(self) -> Option<&'s str> {
        self.parts().into_iter().find_map(|part| part.pointer("/properties/kind/const")?.as_str())
    }

    /// The tables of each `kind`.
    pub(super) fn kinds(self) -> Vec<(&'s str, Self)> {
        let mut kinds = Vec::new();
        for other in self.alternatives() {
            match other.kind() {
                Some(kind) => kinds.push((kind, other)),
                None => kinds.extend(other.kinds()),
            }
        }
        kinds
    }

    /// The keys of a table, except those of its kinds.
    pub(super) fn properties(self) -> Vec<(&'s str, Self)> {
        let own = self.parts().into_iter().filter_map(|part| part.get("properties")?.as_object()).flatten();
        let mut found: Vec<_> = own.map(|(key, at)| (key.as_str(), self.to(at))).collect();
        for other in self.alternatives().into_iter().filter(|other| other.kind().is_none()) {
            found.extend(other.properties());
        }
        found
    }

    /// Whether a table must have a key. An optional table must have it if the config has the table.
    pub(super) fn requires(self, key: &str) -> bool {
        self.parts().into_iter().any(|part| {
            part.get("required").and_then(Value::as_array).is_some_and(|keys| keys.iter().any(|it| it == key))
        }) || self.alternatives().into_iter().any(|other| other.kind().is_none() && other.requires(key))
    }

    /// The values of a table with arbitrary keys.
    pub(super) fn values(self) -> Option<Self> {
        let found = self.keyword_of_any("additionalProperties").filter(|at| at.is_object());
        found.map(|at| self.to(at))
    }

    /// The items of a list.
    pub(super) fn items(self) -> Option<Self> {
        self.keyword_of_any("items").map(|at| self.to(at))
    }

    /// Whether it is a table with known keys or with a `kind`.
    pub(super) fn is_table(self) -> bool {
        !self.properties().is_empty() || !self.kinds().is_empty()
    }

    /// The schema of a key in a table of some `kind`.
    fn key(self, key: &str, kind: Option<&str>) -> Option<Self> {
        let own = self.properties().into_iter().find(|(name, _)| *name == key).map(|(_, node)| node);
        own.or_else(|| {
            let (_, table) = self.kinds().into_iter().find(|(name, _)| Some(*name) == kind)?;
            table.key(key, kind)
        })
        .or_else(|| self.values())
    }

    /// The names of the types of values, such as `integer`.
    pub(super) fn types(self) -> Vec<&'s str> {
        let mut types = Vec::new();
        match self.keyword("type") {
            Some(Value::String(name)) => types.push(name.as_str()),
            Some(Value::Array(names)) => types.extend(names.iter().filter_map(Value::as_str)),
            _ => types.extend(self.alternatives().into_iter().flat_map(Self::types)),
        }
        types.retain(|name| *name != "null");
        types
    }

    /// The allowed strings, each with its meaning.
    pub(super) fn choices(self) -> Vec<(&'s str, &'s str)> {
        let listed = self.keyword("enum").and_then(Value::as_array).into_iter().flatten();
        let mut choices: Vec<_> = listed.filter_map(Value::as_str).map(|name| (name, "")).collect();
        for other in self.alternatives() {
            match other.at.get("const").and_then(Value::as_str) {
                Some(name) => choices.push((name, other.description())),
                None => choices.extend(other.choices()),
            }
        }
        choices
    }

    /// The range of numbers. `None` if values are not numbers.
    pub(super) fn range(self) -> Option<Range> {
        let types = self.types();
        let is_whole = types.contains(&"integer");
        if !is_whole && !types.contains(&"number") {
            return None;
        }
        let bound = |name: &str| self.keyword_of_any(name).and_then(Value::as_f64);
        let least = bound("minimum").map(|at| (at, false));
        let most = bound("maximum").map(|at| (at, false));
        Some(Range {
            is_whole,
            least: bound("exclusiveMinimum").map(|at| (at, true)).or(least),
            most: bound("exclusiveMaximum").map(|at| (at, true)).or(most),
        })
    }
}

/// A range of numbers. Each bound has a flag that excludes the bound itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    is_whole: bool,
    least: Option<(f64, bool)>,
    most: Option<(f64, bool)>,
}

impl Range {
    /// Whether there are numbers outside of the range.
    pub(super) fn is_bounded(self) -> bool {
        self.least.is_some() || self.most.is_some()
    }

    fn holds(self, number: f64) -> bool {
        let above = self.least.is_none_or(|(at, is_excluded)| number > at || (number == at && !is_excluded));
        let below = self.most.is_none_or(|(at, is_excluded)| number < at || (number == at && !is_excluded));
        above && below && (number.is_finite() || !self.is_bounded())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.is_whole { "a whole number" } else { "a number" };
        match (self.least, self.most) {
            (None, None) => f.write_str(noun),
            (Some((least, false)), None) if self.is_whole => write!(f, "at least {least}"),
            (Some((least, false)), None) => write!(f, "a number of at least {least}"),
            (Some((least, true)), None) => write!(f, "{noun} above {least}"),
            (None, Some((most, false))) => write!(f, "{noun} of at most {most}"),
            (None, Some((most, true))) => write!(f, "{noun} below {most}"),
            (Some((least, is_excluded)), Some((most, is_most_excluded))) => {
                let from = if is_excluded { "above" } else { "from" };
                let to = match (is_excluded, is_most_excluded) {
                    (true, false) => "and up to",
                    (true, true) => "and below",
                    (false, false) => "to",
                    (false, true) => "to below",
                };
                write!(f, "{noun} {from} {least} {to} {most}")
            }
        }
    }
}

impl Document<'_> {
    /// Reports numbers outside of the ranges of a schema, and integers that TOML cannot hold. Omits further mistakes at these
    /// keys.
    pub fn check_ranges(&mut self, schema: &Schema) {
        let mut found = Vec::new();
        outside_of_table(self.root.get_ref(), Node::root(schema), "", &mut found);
        for (at, key, message) in found {
            if !self.suspects.iter().any(|suspect| is_at_or_below(&key, suspect)) {
                self.report(at, key.clone(), message);
            }
            self.suspects.push(key);
        }
    }
}

/// Numbers outside of their ranges: the byte in the text, the key, and the message.
type Outside = Vec<(usize, String, String)>;

fn outside_of_table(table: &DeTable<'_>, node: Node<'_>, path: &str, found: &mut Outside) {
    let kind = table.get("kind").and_then(|kind| kind.get_ref().as_str());
    for (key, value) in table {
        if let Some(inner) = node.key(key.get_ref(), kind) {
            let key_path = join(path, key.get_ref());
            outside(value.get_ref(), key.span().start, inner, &key_path, found);
        }
    }
}

fn outside(value: &DeValue<'_>, at: usize, node: Node<'_>, path: &str, found: &mut Outside) {
    let (written, number) = match value {
        DeValue::Table(table) => return outside_of_table(table, node, path, found),
        DeValue::Array(items) => {
            let Some(node) = node.items() else { return };
            for (number, item) in items.iter().enumerate() {
                let path =
                    if item.get_ref().is_table() { format!("{path}[{number}]") } else { path.to_owned() };
                outside(item.get_ref(), at, node, &path, found);
            }
            return;
        }
        DeValue::Integer(integer) => {
            let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
            if number.is_some_and(|number| i64::try_from(number).is_err()) {
                // TOML has integers of 64 bits with a sign, and configs are written again.
                let message =
                    format!("expected a number of at most {}, found {}", i64::MAX, integer.as_str());
                found.push((at, path.to_owned(), message));
                return;
            }
            (integer.as_str(), number.map(|number| number as f64))
        }
        DeValue::Float(float) => (float.as_str(), float.as_str().parse().ok()),
        _ => return,
    };
    if let (Some(number), Some(range)) = (number, node.range())
        && !range.holds(number)
    {
        found.push((at, path.to_owned(), format!("expected {range}, found {written}")));
    }
}
