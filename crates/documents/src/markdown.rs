//! Markdown: headings, paragraphs, list items, code and tables.

use pulldown_cmark::{Event, MetadataBlockKind, Options, Parser, Tag, TagEnd};
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
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut document = Document::default();
    let mut flow = Flow::default();
    let (mut in_code, mut fields, mut cells) = (false, None, 0);
    let (mut markup, mut markup_line) = (String::new(), 0);
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = line_of(range.start);
        match event {
            Event::Start(tag) => match tag {
                Tag::MetadataBlock(kind) => fields = Some((kind, String::new())),
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
                TagEnd::MetadataBlock(_) => {
                    if let Some((kind, text)) = fields.take() {
                        front_matter(&text, kind, &mut document);
                    }
                }
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
            Event::Text(text) => match &mut fields {
                Some((_, fields)) => fields.push_str(&text),
                None if in_code => flow.push_verbatim(&text, line, 0),
                None => flow.push(&text, line, 0),
            },
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

/// Reads the lines `key: value` (or `key = value`) of front matter. Lists are in brackets or lines of `- item`. Other YAML
/// is not read.
fn front_matter(text: &str, kind: MetadataBlockKind, document: &mut Document) {
    let separator = match kind {
        MetadataBlockKind::YamlStyle => ':',
        MetadataBlockKind::PlusesStyle => '=',
    };
    let plain = |text: &str| {
        let text = text.trim();
        let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
        quoted('"').or_else(|| quoted('\'')).unwrap_or(text).to_owned()
    };
    let mut list: Option<(String, Vec<Value>)> = None;
    let mut found: Vec<(String, Value)> = Vec::new();
    for line in text.lines() {
        if let (Some((_, items)), Some(item)) = (&mut list, line.trim_start().strip_prefix("- ")) {
            items.push(plain(item).into());
            continue;
        }
        found.extend(
            list.take().filter(|(_, items)| !items.is_empty()).map(|(key, items)| (key, items.into())),
        );
        let Some((key, value)) = line.split_once(separator) else { continue };
        if key.starts_with([' ', '\t', '#', '-']) || key.trim().is_empty() {
            continue;
        }
        let (key, value) = (key.trim().to_owned(), value.trim());
        if value.is_empty() {
            list = Some((key, Vec::new()));
        } else if let Some(items) = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
            let items: Vec<Value> =
                items.split(',').map(plain).filter(|item| !item.is_empty()).map(Value::from).collect();
            found.push((key, items.into()));
        } else {
            found.push((key, crate::record::metadata_of(&plain(value))));
        }
    }
    found.extend(list.map(|(key, items)| (key, items.into())));
    for (key, value) in found {
        match (key.as_str(), value.as_str()) {
            ("title", Some(title)) => document.title = Some(title.to_owned()),
            _ => {
                document.metadata.insert(key, value);
            }
        }
    }
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
    }
}
