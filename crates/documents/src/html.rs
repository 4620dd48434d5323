//! HTML: the visible text with its headings. The tokens of the HTML standard are enough for it, and they have lines.

use std::cell::RefCell;

use html5ever::{
    TokenizerResult,
    buffer_queue::BufferQueue,
    tendril::StrTendril,
    tokenizer::{
        Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
        states::RawKind::{Rawtext, Rcdata, ScriptData},
    },
};

use crate::{
    Block, Document,
    flow::{Flow, table},
};

/// Elements whose content is not visible.
const HIDDEN: [&str; 9] =
    ["script", "style", "template", "noframes", "noembed", "iframe", "svg", "object", "nav"];
/// Elements that begin and end a paragraph.
const BLOCKS: [&str; 38] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "button",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hgroup",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "menu",
    "ol",
    "option",
    "p",
    "pre",
    "search",
    "section",
    "select",
    "summary",
    "ul",
    "head",
];

/// The structure of an HTML file.
pub(crate) fn read(text: &str) -> Document {
    let sink = Sink::default();
    sink.0.borrow_mut().line_shift = 0;
    run(text, sink)
}

/// The blocks of a piece of HTML that starts on `line`.
pub(crate) fn blocks(text: &str, line: u32) -> Vec<Block> {
    let sink = Sink::default();
    sink.0.borrow_mut().line_shift = line - 1;
    run(text, sink).blocks
}

fn run(text: &str, sink: Sink) -> Document {
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let queue = BufferQueue::default();
    // A tendril holds at most 4 GiB, which the limit of a file's size is below.
    queue.push_back(StrTendril::from_slice(text));
    while let TokenizerResult::Script(()) = tokenizer.feed(&queue) {}
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

/// The value of `charset` in the first bytes of an HTML file.
pub(crate) fn declared(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).to_ascii_lowercase();
    let after = head.split_once("charset=")?.1.trim_start_matches(['"', '\'', ' ']);
    let end =
        after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(after.len());
    (end > 0).then(|| after[..end].to_owned())
}

#[derive(Default)]
struct Sink(RefCell<State>);

#[derive(Default)]
struct State {
    document: Document,
    flow: Flow,
    line_shift: u32,
    /// The hidden elements that are open.
    hidden: Vec<String>,
    /// The level of the open heading; 0 if none is.
    heading: u8,
    preformatted: u32,
    in_title: bool,
    title: String,
    /// Whether a cell of the row precedes.
    in_row: bool,
    /// The rows of the open table, as far as their cells have no blocks in them.
    rows: Vec<Block>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
        let mut state = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => state.tag(&tag),
            Token::CharacterTokens(text) => {
                state.text(&text, line as u32);
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

impl State {
    fn text(&mut self, text: &str, line: u32) {
        if self.in_title {
            self.title.push_str(text);
        } else if self.hidden.is_empty() {
            // A token ends on its line.
            let line = (line + self.line_shift).saturating_sub(text.matches('\n').count() as u32).max(1);
            match self.preformatted > 0 {
                true => self.flow.push_verbatim(text, line, 0),
                false => self.flow.push(text, line, 0),
            }
        }
    }

    fn end_block(&mut self) {
        if let Some(block) = self.flow.finish(self.heading) {
            self.end_table();
            self.document.blocks.push(block);
        }
    }

    fn end_row(&mut self) {
        if self.in_row && self.heading == 0 {
            self.rows.extend(self.flow.finish(0));
        } else {
            self.end_block();
        }
    }

    fn end_table(&mut self) {
        self.document.blocks.extend(table(std::mem::take(&mut self.rows)));
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let (name, opens) = (&*tag.name, tag.kind == TagKind::StartTag);
        if self.hidden.last().is_some_and(|open| open == name) && !opens {
            self.hidden.pop();
            return TokenSinkResult::Continue;
        }
        if HIDDEN.contains(&name) && opens && !tag.self_closing {
            self.hidden.push(name.to_owned());
        }
        let raw = match name {
            "script" if opens => return TokenSinkResult::RawData(ScriptData),
            "style" | "noframes" | "noembed" | "iframe" | "xmp" if opens => {
                return TokenSinkResult::RawData(Rawtext);
            }
            "title" | "textarea" if opens => TokenSinkResult::RawData(Rcdata),
            _ => TokenSinkResult::Continue,
        };
        if !self.hidden.is_empty() {
            return raw;
        }
        match name {
            "title" => {
                self.in_title = opens;
                if !opens && self.document.title.is_none() {
                    let title = std::mem::take(&mut self.title);
                    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
                    self.document.title = Some(title).filter(|title| !title.is_empty());
                }
            }
            "meta" if opens => self.meta(tag),
            "html" if opens => {
                if let Some(language) = attribute(tag, "lang") {
                    self.document.describe("lang", language);
                }
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_block();
                self.heading = if opens { name.as_bytes()[1] - b'0' } else { 0 };
            }
            "pre" => {
                self.end_block();
                self.preformatted =
                    if opens { self.preformatted + 1 } else { self.preformatted.saturating_sub(1) };
            }
            "td" | "th" if opens => {
                if std::mem::replace(&mut self.in_row, true) && !self.flow.is_empty() {
                    self.flow.push(" | ", 0, 0);
                }
                self.flow.space();
            }
            "td" | "th" => {}
            "br" | "img" | "input" | "textarea" | "wbr" => {
                if name == "br" && self.preformatted > 0 {
                    self.flow.push_verbatim("\n", 0, 0);
                }
                if name != "wbr" {
                    self.flow.space();
                }
            }
            "tr" | "table" => {
                self.end_row();
                self.in_row = false;
                if name == "table" {
                    self.end_table();
                }
            }
            _ if BLOCKS.contains(&name) => {
                // A heading stays one if a block is in it.
                if self.heading == 0 {
                    self.end_block();
                } else {
                    self.flow.space();
                }
                self.in_row = false;
            }
            _ => {}
        }
        raw
    }

    fn meta(&mut self, tag: &Tag) {
        let name = attribute(tag, "name").or_else(|| attribute(tag, "property"));
        let (Some(name), Some(content)) = (name, attribute(tag, "content")) else { return };
        let name = name.to_ascii_lowercase();
        let key = match name.as_str() {
            "author" | "dc.creator" | "article:author" => "author",
            "date" | "dc.date" | "article:published_time" => "date",
            "description" | "keywords" => &name,
            _ => return,
        };
        self.document.describe(key, content);
    }

    fn finish(mut self) -> Document {
        self.end_block();
        self.end_table();
        self.document
    }
}

fn attribute<'t>(tag: &'t Tag, name: &str) -> Option<&'t str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_text_has_its_headings_and_lines() {
        let text = "<!doctype html><html lang=en><head><title> All\n tea </title>\n<meta name=author content='Ann'><style>p {}</style></head>\n<body><nav>Home</nav><h1>Tea</h1>\n<p>It is <b>hot</b>\n&amp; wet.<p>Next</p><script>if (a < b) {}</script>\n<h2><div>Brew</div></h2><ul><li>boil<li>pour</ul>\n<pre>a\n  b</pre><table><tr><th>x<th>y<tr><td>1<td>2</table></body></html>";
        let document = read(text);
        let found: Vec<_> = document
            .blocks
            .iter()
            .map(|block| (block.level, block.marks[0].line, block.text.as_str()))
            .collect();
        let expected = [
            (1, 4, "Tea"),
            (0, 5, "It is hot & wet."),
            (0, 6, "Next"),
            (2, 7, "Brew"),
            (0, 7, "boil"),
            (0, 7, "pour"),
            (0, 8, "a\n  b"),
            (0, 9, "x | y\n1 | 2"),
        ];
        assert_eq!(found, expected);
        assert_eq!(document.title.as_deref(), Some("All tea"));
        assert_eq!(serde_json::to_string(&document.metadata).unwrap(), r#"{"lang":"en","author":"Ann"}"#);
        assert_eq!(document.blocks[1].marks[1].line, 6);
    }

    #[test]
    fn damaged_html_gives_its_text() {
        for (text, expected) in [
            ("<p>a<", "a<"),
            ("<p>a</b></div>", "a"),
            ("a<!--", "a"),
            ("<script>a", ""),
            ("<title>a", ""),
            ("<svg><p>x</svg>a", "a"),
            ("<p>a\0", "a"),
        ] {
            let found: Vec<String> = read(text).blocks.into_iter().map(|block| block.text).collect();
            assert_eq!(found.concat(), expected, "{text}");
        }
        assert_eq!(declared(b"<meta charset='ISO-8859-1'>").as_deref(), Some("iso-8859-1"));
    }
}
