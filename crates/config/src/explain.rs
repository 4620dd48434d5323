//! The manual of a config: every key with its meaning, unit, range and default, from the schema of its options.

use std::{collections::HashMap, fmt::Write};

use schemars::Schema;
use serde_json::Value;

use super::{WORKFLOW, is_at_or_below, join, schema::Node};

/// A table of a config.
struct Block<'s> {
    /// The path of the table, such as `retriever.names`. Empty for the root.
    path: String,
    /// Whether it is an array of tables, `[[path]]`.
    is_repeated: bool,
    meaning: String,
    is_required: bool,
    /// The `kind` of these keys, with its meaning.
    kind: Option<(&'s str, String)>,
    /// The kinds, if the config chooses none. Their keys are omitted.
    kinds: Vec<(&'s str, String)>,
    /// The path of an earlier table that lists the same keys.
    like: Option<String>,
    is_set: bool,
    keys: Vec<Key<'s>>,
}

/// A key of a table.
struct Key<'s> {
    name: &'s str,
    meaning: String,
    /// A description of the values.
    form: String,
    unit: Option<&'s str>,
    choices: Vec<(&'s str, String)>,
    is_required: bool,
    /// The default, as TOML.
    default: Option<String>,
    /// The value in the config, as TOML.
    set: Option<String>,
}

/// A position of the walk along a schema.
struct Position<'s, 'v> {
    path: String,
    is_repeated: bool,
    is_required: bool,
    node: Node<'s>,
    /// The table of the config at this position.
    set: Option<&'v toml::Table>,
    /// The default of this table in the table that contains it.
    default: Option<&'s Value>,
}

struct Walk<'s> {
    /// Whether a config chooses the kinds. Without a config, all kinds are listed.
    has_config: bool,
    /// The definitions that contain the position, with their paths.
    above: Vec<(&'s str, String)>,
    /// The listed tables: path, definition and default.
    listed: Vec<(String, &'s str, Option<&'s Value>)>,
    blocks: Vec<Block<'s>>,
}

impl<'s> Walk<'s> {
    fn blocks(schema: &'s Schema, config: Option<&toml::Table>) -> Vec<Block<'s>> {
        let mut walk =
            Self { has_config: config.is_some(), above: Vec::new(), listed: Vec::new(), blocks: Vec::new() };
        walk.visit(Position {
            path: String::new(),
            is_repeated: false,
            is_required: true,
            node: Node::root(schema),
            set: config,
            default: None,
        });
        walk.blocks
    }

    fn visit(&mut self, position: Position<'s, '_>) {
        let definition = position.node.definition();
        if let Some(definition) = definition.filter(|_| position.set.is_none()) {
            let key = (position.path.clone(), definition, position.default);
            if self.listed.contains(&key) {
                return;
            }
            self.listed.push(key);
        }
        let mut block = Block {
            path: position.path.clone(),
            is_repeated: position.is_repeated,
            meaning: clean(position.node.description()),
            is_required: position.is_required,
            kind: None,
            kinds: Vec::new(),
            like: None,
            is_set: position.set.is_some(),
            keys: Vec::new(),
        };
        let above = self.above.iter().find(|(name, _)| Some(*name) == definition);
        if let Some((_, path)) = above.filter(|_| position.set.is_none()) {
            block.like = Some(path.clone());
            self.blocks.push(block);
            return;
        }
        let kinds = position.node.kinds();
        let chosen = position.set.and_then(|table| table.get("kind")?.as_str());
        let meanings = || kinds.iter().map(|(name, node)| (*name, clean(node.description()))).collect();
        if self.has_config && position.set.is_none() && !kinds.is_empty() {
            block.kinds = meanings();
            self.blocks.push(block);
            return;
        }
        self.above.extend(definition.map(|name| (name, position.path.clone())));
        if kinds.is_empty() {
            let keys = position.node.properties();
            self.table(block, &position, keys);
        } else {
            for (name, node) in kinds.iter().filter(|(name, _)| chosen.is_none_or(|chosen| chosen == *name)) {
                let mut keys = node.properties();
                keys.retain(|(key, _)| *key != "kind");
                let mut shared = position.node.properties();
                shared.retain(|(key, _)| keys.iter().all(|(own, _)| own != key));
                keys.extend(shared);
                let block = Block {
                    path: block.path.clone(),
                    meaning: block.meaning.clone(),
                    kind: Some((name, clean(node.description()))),
                    kinds: Vec::new(),
                    like: None,
                    keys: Vec::new(),
                    ..block
                };
                self.table(block, &Position { node: *node, path: position.path.clone(), ..position }, keys);
            }
        }
        if definition.is_some() {
            self.above.pop();
        }
    }

    /// Lists the keys of a table, then its tables.
    fn table(&mut self, mut block: Block<'s>, position: &Position<'s, '_>, keys: Vec<(&'s str, Node<'s>)>) {
        let mut inner = Vec::new();
        for (name, node) in keys {
            let own = node.keyword("default");
            let default =
                position.default.and_then(|table| table.get(name)).or(own).filter(|it| !it.is_null());
            let is_required = position.node.requires(name) && default.is_none();
            let path = join(&position.path, name);
            let set = position.set.and_then(|table| table.get(name));
            let items = node.items().filter(|items| items.is_table());
            let values = node.values().filter(|values| values.is_table());
            let table = |path, is_repeated, node, set| Position {
                path,
                is_repeated,
                is_required,
                node,
                set,
                default: default.filter(|_| !is_repeated),
            };
            if node.is_table() {
                inner.push(table(path, false, node, set.and_then(toml::Value::as_table)));
            } else if let Some(items) = items {
                let set: Vec<_> = set.and_then(toml::Value::as_array).into_iter().flatten().collect();
                let tables = set.iter().filter_map(|item| item.as_table());
                inner.extend(tables.map(|set| table(path.clone(), true, items, Some(set))));
                if set.is_empty() {
                    inner.push(table(path, true, items, None));
                }
            } else if let Some(values) = values {
                let set = set.and_then(toml::Value::as_table).into_iter().flatten();
                let before = inner.len();
                for (key, value) in set {
                    inner.push(table(join(&path, key), false, values, value.as_table()));
                }
                if inner.len() == before {
                    inner.push(table(join(&path, "NAME"), false, values, None));
                }
            } else {
                block.keys.push(Key {
                    name,
                    meaning: clean(node.description()),
                    form: form(node),
                    unit: node.keyword("x-unit").and_then(Value::as_str),
                    choices: choices(node),
                    is_required,
                    default: default.map(|value| to_toml(value, node)),
                    set: set.map(ToString::to_string),
                });
            }
        }
        self.blocks.push(block);
        inner.into_iter().for_each(|position| self.visit(position));
    }
}

/// The paths of all keys outside of arrays of tables. Of a table whose `kind` the config chooses, the keys of this kind; of
/// others none.
pub(super) fn paths(schema: &Schema, config: &toml::Table) -> Vec<String> {
    let mut repeated: Vec<String> = Vec::new();
    let mut paths = Vec::new();
    for Block { path, is_repeated, keys, .. } in Walk::blocks(schema, Some(config)) {
        if is_repeated {
            repeated.push(path);
        } else if !repeated.iter().any(|above| is_at_or_below(&path, above)) {
            paths.extend(keys.iter().map(|key| join(&path, key.name)));
        }
    }
    paths
}

/// A doc comment as text of the manual: without the leading key or table, and without links.
fn clean(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(rest) = text.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(_, rest)| rest) {
        if rest.is_empty() {
            text.clear();
        } else if let Some(rest) = rest.strip_prefix(": ") {
            text = rest.to_owned();
        }
    }
    while let Some((before, rest)) = text.split_once("[`") {
        let Some((name, after)) = rest.split_once("`]") else { break };
        let after = match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
        text = format!("{before}`{name}`{after}");
    }
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => text,
    }
}

/// A description of the values: their range or their type.
fn form(node: Node<'_>) -> String {
    if let Some(range) = node.range() {
        return range.to_string();
    }
    if !choices(node).is_empty() {
        return "one of these names".to_owned();
    }
    if let Some(items) = node.items() {
        let items = match items.range() {
            Some(range) if range.is_bounded() => format!("numbers, each {range}"),
            Some(_) => "numbers".to_owned(),
            None if !choices(items).is_empty() => "names".to_owned(),
            None if items.items().is_some() => "lists".to_owned(),
            None if items.types().is_empty() => "values".to_owned(),
            None => "strings".to_owned(),
        };
        return format!("a list of {items}");
    }
    match node.types().first() {
        Some(&"boolean") => "`true` or `false`".to_owned(),
        Some(&"string") => "a string".to_owned(),
        Some(&"object") => "a table of strings".to_owned(),
        _ => "a value".to_owned(),
    }
}

fn choices(node: Node<'_>) -> Vec<(&str, String)> {
    let of = |node: Node<'_>| node.choices().is_empty();
    let node = match node.items() {
        Some(items) if of(node) => items,
        _ => node,
    };
    node.choices().into_iter().map(|(name, meaning)| (name, clean(meaning))).collect()
}

/// A default as TOML. An f32 is written with the digits of an f32.
fn to_toml(value: &Value, node: Node<'_>) -> String {
    let is_single = node.keyword("format").and_then(Value::as_str) == Some("float");
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if is_single { format!("{:?}", number as f32) } else { format!("{number:?}") }
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(items) => {
            let node = node.items().unwrap_or(node);
            let items: Vec<String> = items.iter().map(|item| to_toml(item, node)).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// The TOML header of a table.
fn header(block: &Block<'_>) -> String {
    if block.is_repeated { format!("[[{}]]", block.path) } else { format!("[{}]", block.path) }
}

/// All keys of a workflow as TOML with comments. Keys that the config does not set are commented out, with their defaults. So
/// the text is an equivalent config.
pub fn as_toml(workflow: &str, schema: &Schema, config: Option<&toml::Table>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{WORKFLOW} = \"{workflow}\"");
    for block in Walk::blocks(schema, config) {
        let mark = if block.is_set { "" } else { "# " };
        text.push('\n');
        comment(&mut text, &block.meaning);
        if let Some(path) = &block.like {
            comment(&mut text, &format!("Its keys are those of `[{path}]`."));
        }
        if !block.path.is_empty() {
            if block.is_required && !block.is_set {
                comment(&mut text, "Required.");
            }
            let _ = writeln!(text, "{mark}{}", header(&block));
        }
        if !block.kinds.is_empty() {
            comment(&mut text, "kind = one of:");
            named(&mut text, &block.kinds);
        }
        if let Some((kind, meaning)) = &block.kind {
            if meaning.is_empty() {
                let _ = writeln!(text, "{mark}kind = \"{kind}\"");
            } else {
                comment(&mut text, meaning);
                let _ = writeln!(text, "{mark}kind = \"{kind}\"");
            }
        }
        for key in &block.keys {
            comment(&mut text, &key.meaning);
            named(&mut text, &key.choices);
            let mut facts = vec![key.form.clone()];
            facts.extend(key.unit.map(|unit| format!("unit: {unit}")));
            facts.push(match &key.default {
                Some(default) => format!("default: {default}"),
                None if key.is_required => "required".to_owned(),
                None => "no default".to_owned(),
            });
            comment(&mut text, &format!("({})", facts.join("; ")));
            let _ = match (&key.set, &key.default) {
                (Some(set), _) => writeln!(text, "{} = {set} # set", key.name),
                (None, Some(default)) => writeln!(text, "# {} = {default}", key.name),
                (None, None) => writeln!(text, "# {} = ..", key.name),
            };
        }
    }
    text
}

/// Appends names with their meanings, one line each.
fn named(text: &mut String, names: &[(&str, String)]) {
    for (name, meaning) in names {
        let end = if meaning.is_empty() { String::new() } else { format!(": {meaning}") };
        comment(text, &format!("  \"{name}\"{end}"));
    }
}

/// The largest number of columns of a comment.
const WIDTH: usize = 100;

/// Appends words as lines of a comment, with the indentation of the first line.
fn comment(text: &mut String, words: &str) {
    let indent = &words[..words.len() - words.trim_start().len()];
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() >= WIDTH {
            let _ = writeln!(text, "# {line}");
            line.clear();
        }
        line.push_str(if line.is_empty() { indent } else { " " });
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "# {line}");
    }
}

/// A page of the manual with more lines begins with links to its tables.
const LONG_PAGE: usize = 100;

/// The manual page of a workflow.
pub fn as_markdown(workflow: &str, about: &str, schema: &Schema) -> String {
    let mut text = format!(
        "# `workflow = \"{workflow}\"`\n\n\
         `sporran docs config` generates this page from the program. Do not edit it.\n\n\
         {about}\n\n\
         `sporran init {workflow}` writes a config to start from. `sporran config show --explain` shows all keys of a config.\n"
    );
    let mut titles = Vec::new();
    let mut tables = String::new();
    for block in Walk::blocks(schema, None) {
        let title = match (&block.kind, block.path.is_empty()) {
            (_, true) => "Top-level keys".to_owned(),
            (Some((kind, _)), _) => format!("`{}`, `kind = \"{kind}\"`", header(&block)),
            (None, _) => format!("`{}`", header(&block)),
        };
        let _ = write!(tables, "\n## {title}\n");
        titles.push(title);
        let about = if block.path.is_empty() { "" } else { block.meaning.as_str() };
        let kind = block.kind.as_ref().map(|(_, meaning)| meaning.as_str()).unwrap_or_default();
        let like = block.like.as_ref().map(|path| format!("Its keys are those of `[{path}]`."));
        let required = if block.is_required && !block.path.is_empty() { "Required." } else { "" };
        let sentences = [about, kind, like.as_deref().unwrap_or_default(), required];
        let sentences: Vec<String> =
            sentences.into_iter().filter(|text| !text.is_empty()).map(ended).collect();
        if !sentences.is_empty() {
            let _ = write!(tables, "\n{}\n", sentences.join(" "));
        }
        if !block.keys.is_empty() {
            tables.push_str("\n| key | meaning | value | default |\n|---|---|---|---|\n");
        }
        for key in &block.keys {
            let mut meaning = ended(&key.meaning);
            for (name, about) in &key.choices {
                let about = if about.is_empty() { String::new() } else { format!(": {}", ended(about)) };
                let _ = write!(meaning, "<br>`{name}`{about}");
            }
            let unit = key.unit.map(|unit| format!(", in {unit}")).unwrap_or_default();
            let default = match &key.default {
                Some(default) => format!("`{default}`"),
                None if key.is_required => "required".to_owned(),
                None => String::new(),
            };
            let cells = [format!("`{}`", key.name), meaning, format!("{}{unit}", key.form), default];
            let _ = writeln!(tables, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    if text.lines().count() + tables.lines().count() > LONG_PAGE {
        text.push('\n');
        let mut links = HashMap::new();
        for title in &titles {
            let target = anchor(title);
            let before = links.entry(target.clone()).or_insert(0_usize);
            let number = if *before == 0 { String::new() } else { format!("-{before}") };
            let _ = writeln!(text, "- [{title}](#{target}{number})");
            *before += 1;
        }
    }
    text + &tables
}

/// The anchor that GitHub gives to a heading: small letters, hyphens for spaces, no punctuation but `-` and `_`.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The text, with a full stop if it has no punctuation at its end.
fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', '!', '?', ':']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_anchor_is_that_of_github() {
        assert_eq!(anchor("Top-level keys"), "top-level-keys");
        assert_eq!(anchor("`[retriever.names]`"), "retrievernames");
        assert_eq!(
            anchor("`[[retriever.parts]]`, `kind = \"entity-title\"`"),
            "retrieverparts-kind--entity-title"
        );
    }

    #[test]
    fn only_a_long_page_begins_with_links_to_its_tables() {
        let page = |keys: usize| {
            let keys: serde_json::Map<String, Value> =
                (0..keys).map(|key| (format!("key-{key:03}"), json!({ "type": "string" }))).collect();
            let schema = json!({ "type": "object", "properties": keys });
            as_markdown("answer", "Answers.", &Schema::try_from(schema).unwrap())
        };
        let links = "of a config.\n\n- [Top-level keys](#top-level-keys)\n\n## Top-level keys\n";
        assert!(!page(3).contains(links));
        let long = page(100);
        assert!(long.contains(links), "{long}");
    }
}
