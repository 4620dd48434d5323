//! Markdown: headings, paragraphs, list items, code and tables.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde_json::Value;

use crate::{Document, flow::Flow, html};

/// The structure of a text in Markdown.
pub(crate) fn read(text: &str) -> Document {
    let starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line_of = |byte: usize| starts.partition_point(|&start| start <= byte) as u32;
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES;
    let mut document = Document::default();
    // The parser takes any text between two lines for metadata, anywhere.
    let (body, fields) = front_matter(text).unwrap_or_default();
    for (key, value) in fields {
        match (key.as_str(), value.as_str()) {
            ("title", Some(title)) => {
                document.title = Some(title.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            _ => {
                document.metadata.insert(key, value);
            }
        }
    }
    let mut flow = Flow::default();
    let (mut in_code, mut cells) = (false, 0);
    let (mut markup, mut markup_line) = (String::new(), 0);
    for (event, range) in Parser::new_ext(&text[body..], options).into_offset_iter() {
        let line = line_of(body + range.start);
        match event {
            Event::Start(tag) => match tag {
                Tag::HtmlBlock => (markup, markup_line) = (String::new(), line),
                Tag::CodeBlock(_) => {
                    document.blocks.extend(flow.finish(0));
                    in_code = true;
                }
                Tag::TableHead | Tag::TableRow => cells = 0,
                Tag::TableCell => {
                    if cells > 0 {
                        flow.push_verbatim(" | ", 0, 0);
                    }
                    cells += 1;
                }
                Tag::Paragraph
                | Tag::Heading { .. }
                | Tag::Item
                | Tag::List(_)
                | Tag::Table(_)
                | Tag::BlockQuote(_)
                | Tag::FootnoteDefinition(_) => document.blocks.extend(flow.finish(0)),
                _ => {}
            },
            Event::End(tag) => match tag {
                TagEnd::HtmlBlock => {
                    let blocks = html::blocks(&markup, markup_line);
                    document.blocks.extend(flow.finish(0));
                    document.blocks.extend(blocks);
                }
                TagEnd::Heading(level) => document.blocks.extend(flow.finish(level as u8)),
                TagEnd::CodeBlock => {
                    in_code = false;
                    document.blocks.extend(flow.finish(0));
                }
                TagEnd::TableHead | TagEnd::TableRow => flow.push_verbatim("\n", 0, 0),
                TagEnd::Paragraph | TagEnd::Item | TagEnd::Table | TagEnd::BlockQuote(_) => {
                    document.blocks.extend(flow.finish(0));
                }
                _ => {}
            },
            Event::Text(text) if in_code => flow.push_verbatim(&text, line, 0),
            Event::Text(text) => flow.push(&text, line, 0),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                flow.push(&text, line, 0)
            }
            Event::Html(text) => markup.push_str(&text),
            Event::InlineHtml(tag) => {
                if tag.to_ascii_lowercase().starts_with("<br") {
                    flow.space();
                }
            }
            Event::SoftBreak | Event::HardBreak => flow.space(),
            Event::Rule => document.blocks.extend(flow.finish(0)),
            Event::FootnoteReference(_) | Event::TaskListMarker(_) => {}
        }
    }
    document.blocks.extend(flow.finish(0));
    document
}

/// The longest key of front matter, in bytes. A longer text before a colon is a sentence.
const LONGEST_KEY: usize = 40;

/// The front matter with which a text begins: the bytes until its end, and its fields. It has lines `key: value` between lines
/// of `---`, or lines `key = value` between lines of `+++`. Other text there is none.
fn front_matter(text: &str) -> Option<(usize, Vec<(String, Value)>)> {
    let rest = text.trim_start_matches(['\n', '\r']);
    let mut end = text.len() - rest.len();
    let fence = ["---", "+++"].into_iter().find(|fence| rest.starts_with(fence))?;
    let mut lines = rest.split_inclusive('\n');
    let first = lines.next().filter(|first| first.trim_end() == fence)?;
    end += first.len();
    let mut inner = Vec::new();
    for line in lines {
        end += line.len();
        let line = line.trim_end();
        let is_yaml = fence == "---";
        if line == fence || (is_yaml && line == "...") {
            let found = if is_yaml { yaml(&inner)? } else { toml(&inner) };
            return (!found.is_empty()).then_some((end, found));
        }
        inner.push(line);
    }
    None
}

/// A value while its lines are read.
enum Open {
    /// A value on one line, which indented lines continue.
    Plain(String),
    /// The items of a list, a line each.
    Items(Vec<Value>),
    /// The indented lines after `|`, or after `>`, which folds them.
    Block { folds: bool, lines: Vec<String> },
}

impl Open {
    fn of(value: &str) -> Self {
        let mark = value.trim_end_matches(|c: char| matches!(c, '+' | '-') || c.is_ascii_digit());
        match mark {
            "" if value.is_empty() => Self::Items(Vec::new()),
            ">" | "|" => Self::Block { folds: mark == ">", lines: Vec::new() },
            _ => Self::Plain(value.to_owned()),
        }
    }

    /// Takes an indented line, or a line of `- item`. False if the value has no such line.
    fn take(&mut self, line: &str) -> bool {
        let (text, is_indented) = (line.trim(), line.starts_with([' ', '\t']));
        match self {
            Self::Block { lines, .. } if is_indented => lines.push(line.to_owned()),
            Self::Items(items) => match text.strip_prefix("- ") {
                Some(item) => items.push(unquoted(item).into()),
                // A mapping in a field is not read.
                None if !items.is_empty() || text == "-" || text.ends_with(':') || text.contains(": ") => {}
                None => *self = Self::Plain(text.to_owned()),
            },
            Self::Plain(value) if is_indented => {
                value.push(' ');
                value.push_str(text);
            }
            _ => return false,
        }
        true
    }

    /// The value; `None` for one without a text.
    fn value(self) -> Option<Value> {
        match self {
            Self::Plain(text) => Some(plain(&text)),
            Self::Items(items) => (!items.is_empty()).then(|| items.into()),
            Self::Block { folds, lines } => {
                let indent = |line: &String| line.len() - line.trim_start().len();
                let least = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
                let lines: Vec<&str> = lines.iter().map(|line| line.get(least..).unwrap_or("")).collect();
                let text = match folds {
                    false => lines.join("\n"),
                    true => {
                        let paragraphs = lines.split(|line| line.is_empty());
                        paragraphs.map(|lines| lines.join(" ")).collect::<Vec<_>>().join("\n")
                    }
                };
                let text = text.trim();
                (!text.is_empty()).then(|| text.into())
            }
        }
    }
}

/// The fields of lines of YAML; `None` if a line is neither a field nor a part of one.
fn yaml(lines: &[&str]) -> Option<Vec<(String, Value)>> {
    let mut found: Vec<(String, Open)> = Vec::new();
    for line in lines {
        let is_part = line.starts_with([' ', '\t']) || line.starts_with("- ");
        match found.last_mut() {
            Some((_, Open::Block { lines, .. })) if line.is_empty() => lines.push(String::new()),
            _ if line.is_empty() || line.starts_with('#') => {}
            Some((_, open)) if is_part => {
                if !open.take(line) {
                    return None;
                }
            }
            _ => {
                let (key, value) = line.split_once(':')?;
                let is_key = !is_part && !key.trim().is_empty() && key.len() <= LONGEST_KEY;
                // A colon inside a word is that of an address or a time.
                if !is_key || !(value.is_empty() || value.starts_with([' ', '\t'])) {
                    return None;
                }
                found.push((unquoted(key), Open::of(value.trim())));
            }
        }
    }
    Some(found.into_iter().filter_map(|(key, open)| Some((key, open.value()?))).collect())
}

/// The fields `key = value` of lines of TOML. Tables and values of several lines are not read.
fn toml(lines: &[&str]) -> Vec<(String, Value)> {
    let field = |line: &&str| {
        let (key, value) = line.split_once('=')?;
        let is_key = !key.starts_with([' ', '\t', '#', '-', '[']) && !key.trim().is_empty();
        (is_key && !value.trim().is_empty()).then(|| (unquoted(key), plain(value.trim())))
    };
    lines.iter().filter_map(field).collect()
}

/// A value on one line: a list in brackets, a number or a text.
fn plain(value: &str) -> Value {
    match value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
        Some(items) => {
            let items = items.split(',').map(unquoted).filter(|item| !item.is_empty());
            items.map(Value::from).collect::<Vec<_>>().into()
        }
        None => crate::record::metadata_of(&unquoted(value)),
    }
}

/// A text without quotes and blanks around it.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks as level, first line and text.
    fn blocks(text: &str) -> Vec<(u8, u32, String)> {
        let blocks = read(text).blocks.into_iter();
        blocks
            .map(|block| (block.level, block.marks.first().map_or(0, |mark| mark.line), block.text))
            .collect()
    }

    fn of(level: u8, line: u32, text: &str) -> (u8, u32, String) {
        (level, line, text.to_owned())
    }

    #[test]
    fn headings_paragraphs_lists_and_code_have_their_lines() {
        let text = "# Tea *time*\n\nIt is\nhot.\n\nBrew\n----\n\n- boil\n  - slowly\n- pour\n\n```sh\nmake  tea\ndrink\n```\n> quoted `code`\n";
        let expected = [
            of(1, 1, "Tea time"),
            of(0, 3, "It is hot."),
            of(2, 6, "Brew"),
            of(0, 9, "boil"),
            of(0, 10, "slowly"),
            of(0, 11, "pour"),
            of(0, 14, "make  tea\ndrink"),
            of(0, 17, "quoted code"),
        ];
        assert_eq!(blocks(text), expected);
        assert_eq!(read(text).blocks[1].marks[1].line, 4);
    }

    #[test]
    fn tables_and_html_are_text() {
        let text = "| a | b |\n|---|---|\n| 1 | **2** |\n\n<div>\n<p>in <b>it</b></p>\n</div>\n\nan &amp; <i>end</i>\n";
        assert_eq!(blocks(text), [of(0, 1, "a | b\n1 | 2"), of(0, 6, "in it"), of(0, 9, "an & end")]);
    }

    #[test]
    fn front_matter_is_metadata() {
        let text = "---\ntitle: \"All about tea\"\ndate: 2024-05-01\nyear: 2024\ntags: [a, 'b']\nauthors:\n  - Ann\n  - Bob\nnested:\n  x: 1\n---\n# Intro\n";
        let document = read(text);
        assert_eq!(document.title.as_deref(), Some("All about tea"));
        let found = serde_json::to_string(&document.metadata).unwrap();
        let expected = r#"{"date":"2024-05-01","year":2024,"tags":["a","b"],"authors":["Ann","Bob"]}"#;
        assert_eq!((found.as_str(), document.blocks[0].marks[0].line), (expected, 12));
        let toml = read("+++\ntitle = \"Tea\"\n[extra]\nyear = 2024\n+++\nIt is hot.\n");
        assert_eq!((toml.title.as_deref(), toml.metadata["year"].as_u64()), (Some("Tea"), Some(2024)));
    }

    #[test]
    fn values_of_front_matter_can_have_several_lines() {
        let text = "---\ntitle: >\n  All about\n  tea\nsummary: |\n  Boil.\n    Pour.\n\n  Drink.\nnote: >-\n  a\n  b\n\n  c\nplain: x\n  y\nnext:\n  z\ntags: [a,\n  b]\n# remark\nlast: 1\n---\nText.\n";
        let document = read(text);
        assert_eq!(document.title.as_deref(), Some("All about tea"));
        let found = serde_json::to_string(&document.metadata).unwrap();
        let expected = r#"{"summary":"Boil.\n  Pour.\n\nDrink.","note":"a b\nc","plain":"x y","next":"z","tags":["a","b"],"last":1}"#;
        assert_eq!((found.as_str(), document.blocks[0].text.as_str()), (expected, "Text."));
    }

    #[test]
    fn text_between_lines_is_no_front_matter() {
        for text in [
            "---\nThe mill is old.\n---\nIt is red.\n",
            "---\ntitle: x\nThe mill is old.\n---\nIt is red.\n",
            "It is red.\n\n---\nnote: The mill is old.\n---\n",
            "---\n10:30 The mill is old.\n---\nIt is red.\n",
            "---\n\nThe mill is old. It is red.",
        ] {
            let document = read(text);
            let found: String = document.blocks.iter().map(|block| block.text.as_str()).collect();
            assert!(found.contains("The mill is old.") && found.contains("It is red."), "{text}: {found}");
            assert!(document.metadata.is_empty() && document.title.is_none(), "{text}");
        }
    }
}
