//! Reads tables and reports all mistakes, with their lines and the most similar keys.
//!
//! serde stops at its first error. This module then removes the wrong entry and reads the table again, until there are no more
//! mistakes or an entry cannot be removed.

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

use super::{
    Document, Table, join, nearest,
    words::{Form, plain},
};

/// The largest number of reported mistakes of a table.
const MAX_MISTAKES: usize = 100;

impl<'t> Document<'t> {
    /// Reads a table and reports all mistakes in it. The options are read without the wrong entries, so that their other values
    /// can be checked. `None` if that is impossible. `also` are further known keys, for suggestions in messages.
    pub fn read<T: DeserializeOwned>(&mut self, key: &str, mut table: Table<'t>, also: &[&str]) -> Option<T> {
        let also = &[also, std::mem::take(&mut self.taken)].concat();
        let mut removed: Vec<String> = Vec::new();
        loop {
            let error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(value) => return Some(value),
                Err(error) => error,
            };
            let message = error.message().trim();
            if let Some(field) = quoted_after(message, "missing field ") {
                // A field that was removed as wrong is already reported.
                if !removed.iter().any(|path| path.rsplit('.').next() == Some(field)) {
                    let at = error.span().map_or(table.span().start, |span| span.start);
                    let path = table_at(table.get_ref(), at, key);
                    self.report(at, join(&path, field), "is missing".to_owned());
                }
                return None;
            }
            let Some(span) = error.span() else {
                self.report(table.span().start, key.to_owned(), with_nearest(message, also).0);
                return None;
            };
            if let Some(names) = expected_fields(message)
                && let Some(unknown) = take_unknown(table.get_mut(), span.start, key, &names)
            {
                // Removes all unknown keys of a table at once. One at a time would take quadratic time.
                removed.extend(self.report_unknown(message, unknown, (key, also)));
                continue;
            }
            if removed.len() >= MAX_MISTAKES {
                let message = format!("has more than {MAX_MISTAKES} mistakes; the rest is not listed");
                self.report(span.start, key.to_owned(), message);
                return None;
            }
            let Some(path) = remove_at(table.get_mut(), span.start, key) else {
                self.report(span.start, key.to_owned(), with_nearest(message, also).0);
                return None;
            };
            let (message, meant) = with_nearest(message, also);
            self.suspects.push(path.clone());
            // The intended key has its default, so checks of it can fail.
            self.suspects.extend(meant.map(|meant| match path.rsplit_once('.') {
                Some((above, _)) => join(above, &meant),
                None => meant,
            }));
            self.report(span.start, path.clone(), message);
            removed.push(path);
        }
    }

    /// Reports unknown fields with serde's message about the first one, and returns their paths. Reports at most
    /// [`MAX_MISTAKES`] of them.
    fn report_unknown(
        &mut self,
        message: &str,
        unknown: Vec<Unknown>,
        (key, also): (&str, &[&str]),
    ) -> Vec<String> {
        let rest = unknown.len().saturating_sub(MAX_MISTAKES);
        let first = unknown.first().map(|field| format!("`{}`", field.name)).unwrap_or_default();
        let next = unknown.get(MAX_MISTAKES).map(|field| (field.at, field.above.clone()));
        let mut paths = Vec::with_capacity(unknown.len());
        for (number, Unknown { at, above, name }) in unknown.into_iter().enumerate() {
            let path = join(&above, &name);
            if number < MAX_MISTAKES {
                // The other tables are of this table, not of one in it.
                let also = if above == key { also } else { &[] };
                let (message, meant) = with_nearest(&message.replacen(&first, &format!("`{name}`"), 1), also);
                self.suspects.push(path.clone());
                // The intended key has its default, so checks of it can fail.
                self.suspects.extend(meant.map(|meant| join(&above, &meant)));
                self.report(at, path.clone(), message);
            }
            paths.push(path);
        }
        if let Some((at, above)) = next {
            self.report(at, above, format!("has {rest} more unknown keys, which are not listed"));
        }
        paths
    }
}

/// Removes the innermost entry that covers byte `at`, and returns its path.
fn remove_at(table: &mut DeTable<'_>, at: usize, path: &str) -> Option<String> {
    let covers = |span: std::ops::Range<usize>| span.start <= at && at < span.end.max(span.start + 1);
    let name =
        table.iter().find(|(key, value)| covers(key.span()) || covers(value.span()) || within(value, at))?.0;
    let name = name.get_ref().to_string();
    let path = join(path, &name);
    let (key, value) = table.get_key_value(name.as_str())?;
    if !covers(key.span()) && value.span().start != at {
        match table.get_mut(name.as_str()).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => {
                if let Some(removed) = remove_at(inner, at, &path) {
                    return Some(removed);
                }
            }
            Some(DeValue::Array(items)) => {
                for (number, item) in items.iter_mut().enumerate() {
                    if let DeValue::Table(inner) = item.get_mut()
                        && let Some(removed) = remove_at(inner, at, &format!("{path}[{number}]"))
                    {
                        return Some(removed);
                    }
                }
            }
            _ => {}
        }
    }
    table.remove(name.as_str());
    Some(path)
}

/// A field that a table does not have.
struct Unknown {
    at: usize,
    /// The path of the table.
    above: String,
    name: String,
}

/// The known fields in serde's message about an unknown field.
fn expected_fields(message: &str) -> Option<Vec<&str>> {
    quoted_after(message, "unknown field ")?;
    let (_, listed) = message.split_once(", expected ")?;
    Some(listed.split('`').skip(1).step_by(2).collect())
}

/// Removes the fields that are not in `names` from the table with the key at byte `at`. `None` if that key is not such a
/// field.
fn take_unknown(table: &mut DeTable<'_>, at: usize, path: &str, names: &[&str]) -> Option<Vec<Unknown>> {
    let is_known = |name: &str| names.contains(&name);
    if table.iter().any(|(key, _)| key.span().start == at && !is_known(key.get_ref())) {
        let mut unknown = Vec::new();
        for (key, value) in std::mem::replace(table, DeTable::new()) {
            if is_known(key.get_ref()) {
                table.insert(key, value);
            } else {
                let name = key.get_ref().to_string();
                unknown.push(Unknown { at: key.span().start, above: path.to_owned(), name });
            }
        }
        // The field in serde's message is the first.
        unknown.sort_by_key(|field| field.at != at);
        return Some(unknown);
    }
    let (key, value) = table.iter_mut().find(|(_, value)| within(value, at))?;
    let path = join(path, key.get_ref());
    match value.get_mut() {
        DeValue::Table(inner) => take_unknown(inner, at, &path, names),
        DeValue::Array(items) => {
            items.iter_mut().enumerate().find_map(|(number, item)| match item.get_mut() {
                DeValue::Table(inner) => take_unknown(inner, at, &format!("{path}[{number}]"), names),
                _ => None,
            })
        }
        _ => None,
    }
}

/// Whether a value covers byte `at`. A table with several headers has entries outside its span.
fn within(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    let span = value.span();
    (span.start <= at && at < span.end)
        || match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().any(|(key, value)| key.span().contains(&at) || within(value, at))
            }
            DeValue::Array(items) => items.iter().any(|item| within(item, at)),
            _ => false,
        }
}

/// The path of the innermost table that starts at or covers byte `at`.
fn table_at(table: &DeTable<'_>, at: usize, path: &str) -> String {
    for (key, value) in table {
        let inner = join(path, key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) if within(value, at) => return table_at(table, at, &inner),
            DeValue::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    if let DeValue::Table(table) = item.get_ref()
                        && within(item, at)
                    {
                        return table_at(table, at, &format!("{inner}[{number}]"));
                    }
                }
            }
            _ => {}
        }
    }
    path.to_owned()
}

/// The word in backquotes after the prefix `before` of serde's message.
fn quoted_after<'m>(message: &'m str, before: &str) -> Option<&'m str> {
    message.strip_prefix(before)?.strip_prefix('`')?.split('`').next()
}

/// Keys of earlier versions with their new names. A key can have several new names, in different tables.
const RENAMED: [(&str, &str); 19] = [
    ("also", "then"),
    ("block", "group-size"),
    ("forms", "mention-forms"),
    ("half", "dtype"),
    ("hidden", "hidden-size"),
    ("hidden", "mask-probability"),
    ("inner", "hidden-size"),
    ("judge-every", "validation-every"),
    ("judged", "validation-records"),
    ("judged", "validation-share"),
    ("least-confidence", "min-confidence"),
    ("most-answers", "max-answers"),
    ("passes", "epochs"),
    ("rate", "learning-rate"),
    ("reranker", "reranker-training"),
    ("selection", "reranker"),
    ("silver", "weak-labels"),
    ("store", "dtype"),
    ("width", "hidden-size"),
];

/// serde's message in the words of a config, with the most similar name that it lists, and that name. `also` are names that
/// serde does not list.
fn with_nearest(message: &str, also: &[&str]) -> (String, Option<String>) {
    let (message, meant) = in_serdes_words(message, also);
    (plain(&message, Form::Toml), meant)
}

fn in_serdes_words(message: &str, also: &[&str]) -> (String, Option<String>) {
    let field = quoted_after(message, "unknown field ");
    let Some(wrong) = field.or_else(|| quoted_after(message, "unknown variant ")) else {
        return (message.to_owned(), None);
    };
    let listed = message.split_once(", expected ").map_or("", |(_, listed)| listed);
    let names = listed.split('`').skip(1).step_by(2).chain(also.iter().copied());
    if let Some(old) = field {
        let is_here = |(name, new): &&(&str, &str)| *name == old && names.clone().any(|name| name == *new);
        let new: Vec<&str> = RENAMED.iter().filter(is_here).map(|(_, new)| *new).collect();
        if let Some(first) = new.first() {
            let new_names: Vec<String> = new.iter().map(|new| format!("`{new}`")).collect();
            let message = format!("unknown key `{old}`; it is {} now", new_names.join(" or "));
            return (message, Some((*first).to_owned()));
        }
    }
    let near = nearest(wrong, names).map(str::to_owned);
    let mut message = message.to_owned();
    if field.is_some() && !listed.is_empty() {
        also.iter().for_each(|name| message.push_str(&format!(", `{name}`")));
    }
    match near {
        Some(near) => (format!("{message}; did you mean `{near}`?"), field.map(|_| near)),
        None => (message, None),
    }
}
