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
const HIDDEN: [&str; 10] =
    ["script", "style", "template", "noframes", "noembed", "noscript", "iframe", "svg", "object", "nav"];
/// How many hidden elements an end tag can be that of.
const DEEPEST: usize = 64;
/// Elements with the whole text of a page, which a script shows once it is loaded.
const WHOLE: [&str; 3] = ["html", "body", "main"];
/// Elements without content, which nothing closes.
const EMPTY: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];
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
    run(text, 0)
}

/// The blocks of a piece of HTML that starts on `line`.
pub(crate) fn blocks(text: &str, line: u32) -> Vec<Block> {
    run(text, line - 1).blocks
}

fn run(text: &str, line_shift: u32) -> Document {
    let is_xml = is_xhtml(text);
    // A hidden element that is never closed would hide the rest of the page, so a further reading shows it. The last reading hides
    // no element by its attributes, which could go on for as many readings as a page has names.
    let mut shown = Vec::new();
    let mut readings = 0;
    loop {
        let hides_by_attribute = readings < 2;
        readings += 1;
        let state =
            State { line_shift, is_xml, hides_by_attribute, shown: shown.clone(), ..State::default() };
        let tokenizer = Tokenizer::new(Sink(RefCell::new(state)), TokenizerOpts::default());
        let queue = BufferQueue::default();
        // A tendril holds at most 4 GiB, which the limit of a file's size is below.
        queue.push_back(StrTendril::from_slice(text));
        while let TokenizerResult::Script(()) = tokenizer.feed(&queue) {}
        tokenizer.end();
        let mut state = tokenizer.sink.0.into_inner();
        state.end_hidden();
        // The names that are hidden without attributes are few.
        if state.unclosed.is_empty() || readings > HIDDEN.len() + 2 {
            return state.finish();
        }
        shown.append(&mut state.unclosed);
    }
}

/// Whether a file is XHTML, where `<title/>` is an element without content.
fn is_xhtml(text: &str) -> bool {
    let head = text.trim_start();
    let head = &head[..head.floor_char_boundary(1024)];
    head.starts_with("<?xml") || head.contains("http://www.w3.org/1999/xhtml")
}

/// The encoding that the first bytes of an HTML or XHTML file declare.
pub(crate) fn declared(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).to_ascii_lowercase();
    let declaration = head.trim_start().strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    let in_xml = declaration.and_then(|(declaration, _)| declaration.split_once("encoding="));
    let after = in_xml.or_else(|| head.split_once("charset="))?.1.trim_start_matches(['"', '\'', ' ']);
    let end =
        after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(after.len());
    (end > 0).then(|| after[..end].to_owned())
}

struct Sink(RefCell<State>);

#[derive(Default)]
struct State {
    document: Document,
    flow: Flow,
    line_shift: u32,
    is_xml: bool,
    /// Whether elements with `hidden` or `display:none` are hidden.
    hides_by_attribute: bool,
    /// The hidden elements that are open.
    hidden: Vec<String>,
    /// Hidden elements that the page ended without closing them.
    unclosed: Vec<String>,
    /// Elements that are not hidden, though they could be.
    shown: Vec<String>,
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

    /// Whether `<![CDATA[` begins text.
    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.0.borrow().is_xml
    }
}

impl State {
    /// Ends all hidden elements. A script or a style ends with the page in any case.
    fn end_hidden(&mut self) {
        let ends_with_page = ["script", "style", "noframes", "noembed", "iframe"];
        let open = self.hidden.drain(..).filter(|name| !ends_with_page.contains(&name.as_str()));
        self.unclosed.extend(open);
    }

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
        // Deeper ones are left to the end of the page, so that an end tag is not compared with too many.
        let deepest = self.hidden.len().saturating_sub(DEEPEST);
        if !opens
            && let Some(at) =
                self.hidden[deepest..].iter().rposition(|open| open == name).map(|at| deepest + at)
        {
            // Also ends what is not closed inside of it.
            self.hidden.truncate(at);
            return TokenSinkResult::Continue;
        }
        if !opens && ["body", "html"].contains(&name) {
            self.end_hidden();
        }
        let is_empty = tag.self_closing && self.is_xml;
        // An element inside of a hidden one of its name must not end it.
        let is_hidden = HIDDEN.contains(&name)
            || self.hidden.last().is_some_and(|open| open == name)
            || (self.hides_by_attribute
                && is_invisible(tag)
                && !EMPTY.contains(&name)
                && !WHOLE.contains(&name));
        if is_hidden && opens && !tag.self_closing && !self.shown.iter().any(|shown| shown == name) {
            self.hidden.push(name.to_owned());
        }
        let raw = match name {
            _ if is_empty => TokenSinkResult::Continue,
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
            "title" if is_empty => {}
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

/// Whether a browser does not show the content of an element.
fn is_invisible(tag: &Tag) -> bool {
    let style = attribute(tag, "style").unwrap_or_default();
    let style: String = style.chars().filter(|c| !c.is_whitespace()).collect();
    attribute(tag, "hidden").is_some() || style.to_ascii_lowercase().contains("display:none")
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
            ("<p>a</p><object data=x><p>b</p></body>", "ab"),
            ("<nav><svg><path></nav><p>a", "a"),
            ("<nav><svg>b</svg><p>a", "a"),
            ("<html><nav>a</body></html>", "a"),
            ("<div hidden><div>a</div>b</div>c", "c"),
            ("<p style='color: red; display : none'>a</p><noscript>b</noscript><br hidden>c", "c"),
            ("<p hidden>a<p>b", "ab"),
            ("<body style='display:none'><p>a</body>", "a"),
            ("<a1 hidden>a<a2 hidden></a1><a2 hidden>b<a3 hidden></a2>c<a1 hidden>d", "abcd"),
        ] {
            let found: Vec<String> = read(text).blocks.into_iter().map(|block| block.text).collect();
            assert_eq!(found.concat(), expected, "{text}");
        }
        assert_eq!(declared(b"<meta charset='ISO-8859-1'>").as_deref(), Some("iso-8859-1"));
        let xml = b"<?xml version='1.0' encoding='ISO-8859-2'?><meta charset=utf-8>";
        assert_eq!(declared(xml).as_deref(), Some("iso-8859-2"));
        assert_eq!(declared(b"<?xml version='1.0'?><p encoding='x'>"), None);
    }

    #[test]
    fn elements_of_xhtml_can_close_themselves() {
        let text = "<?xml version='1.0'?><html><head><title/><script src='x'/></head><body><iframe/><textarea/><h1>Two</h1>\
                    <p><![CDATA[a < b]]> c</p></body></html>";
        let document = read(text);
        let found: Vec<&str> = document.blocks.iter().map(|block| block.text.as_str()).collect();
        assert_eq!((found, document.title), (vec!["Two", "a < b c"], None));
    }
}
