//! AIDA CoNLL-YAGO (Hoffart et al. 2011).

use std::path::Path;

use super::Layout;
use crate::{
    Error, Result, Split, jsonl,
    mapping::{
        mention::Tagged,
        own::Own,
        source::{Source, Take},
    },
    store::percent_decoded,
};

/// What the first line of a document starts with.
const START: &str = "-DOCSTART-";

/// `AIDA-YAGO2-dataset.tsv`: a line a token. The line of a token in a mention has further columns: `B` or `I`, the
/// mention, the YAGO entity, and the address and the id of the Wikipedia page. Mentions without an entity (`--NME--`)
/// are skipped.
///
/// The documents whose names have `testa` are `dev`, those with `testb` are `test`, the others are `train`.
pub(super) const LAYOUT: Layout = Layout {
    name: "aida",
    about: "AIDA-YAGO2-dataset.tsv; testa is dev, testb is test; the mention is tagged within 256 tokens",
    options: &[],
    read,
};

/// A mention: its tokens in the document, its text, and the address of its page.
struct Mention {
    start: usize,
    end: usize,
    text: String,
    url: Option<String>,
}

/// A document that is being read.
struct Document {
    name: String,
    tokens: Vec<String>,
    mentions: Vec<Mention>,
    /// Whether the next token can continue the last mention.
    is_open: bool,
}

impl Document {
    fn split(&self) -> Split {
        if self.name.contains("testa") {
            Split::Dev
        } else if self.name.contains("testb") {
            Split::Test
        } else {
            Split::Train
        }
    }

    /// Adds the token of a line.
    fn add(&mut self, path: &Path, line: u64, columns: &[&str]) -> Result<()> {
        let wrong = |field: &str, message: String| Error::record(path, line, field, message);
        let at = self.tokens.len();
        self.tokens.push(columns[0].trim().to_owned());
        let [_, tag, text, _, rest @ ..] = columns else {
            self.is_open = false;
            let only_token = columns.len() == 1;
            return if only_token {
                Ok(())
            } else {
                let message =
                    format!("expected 1 column, or at least 4 in a mention, found {}", columns.len());
                Err(wrong(".", message))
            };
        };
        match (*tag, self.is_open) {
            ("B", _) => {
                let url = rest.first().map(|url| url.trim()).filter(|url| !url.is_empty());
                let (text, url) = (text.trim().to_owned(), url.map(str::to_owned));
                self.mentions.push(Mention { start: at, end: at + 1, text, url });
                self.is_open = true;
                Ok(())
            }
            ("I", true) => {
                if let Some(mention) = self.mentions.last_mut() {
                    mention.end = at + 1;
                }
                Ok(())
            }
            ("I", false) => Err(wrong("tag", "expected `B` at the start of a mention, found `I`".to_owned())),
            _ => Err(wrong("tag", format!("expected `B` or `I`, found `{tag}`"))),
        }
    }

    /// Hands over the records of its mentions.
    fn finish(self, take: &mut Take<'_>) -> Result<()> {
        let mut linked = 0;
        for mention in &self.mentions {
            let Mention { start, end, text, url } = mention;
            let record = url.as_deref().map(|url| {
                let name = url.rsplit_once("/wiki/").map_or(url, |(_, name)| name);
                let title = percent_decoded(name).replace('_', " ");
                let [before, after] =
                    [&self.tokens[..*start], &self.tokens[*end..]].map(|part| part.join(" "));
                // As in KILT's ids, mentions without an entity do not count.
                let id = format!("{}:{linked}", self.name);
                linked += 1;
                Own::of_mention(id, &Tagged::new(&before, text, &after), title)
            });
            take(record)?;
        }
        Ok(())
    }
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let mut finish = |document: Option<Document>| match document {
        Some(document) if document.split() == source.split => document.finish(&mut *take),
        _ => Ok(()),
    };
    for path in source.inputs {
        let mut document: Option<Document> = None;
        for line in jsonl::open(path)?.lines() {
            let (number, line) = line?;
            if let Some(rest) = line.strip_prefix(START) {
                finish(document.take())?;
                let name = rest.trim().trim_start_matches('(').trim_end_matches(')').trim();
                if name.is_empty() {
                    let message = format!("expected `{START} (NAME)`, found no name");
                    return Err(Error::record(path, number, "document", message));
                }
                let name = name.to_owned();
                document = Some(Document { name, tokens: Vec::new(), mentions: Vec::new(), is_open: false });
                continue;
            }
            let columns: Vec<&str> = line.split('\t').collect();
            match &mut document {
                Some(document) => document.add(path, number, &columns)?,
                None => {
                    let message = format!("expected `{START} (NAME)` before the first token, found `{line}`");
                    return Err(Error::record(path, number, "document", message));
                }
            }
        }
        finish(document)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{dev, read as read_all},
        *,
    };
    use crate::mapping::options::LayoutOptions;

    const TEXT: &str = "-DOCSTART- (1 EU)\n\
        EU\tB\tEU\t--NME--\n\
        rejects\n\
        German\tB\tGerman\tGermany\thttp://en.wikipedia.org/wiki/Germany\t11867\t/m/0345h\n\
        call\n\n\
        -DOCSTART- (947testa CRICKET)\n\
        Anghel\tB\tAnghel Iord\\u0103nescu\tAnghel_Iord\\u0103nescu\thttp://en.wikipedia.org/wiki/Anghel_Iord%C4%83nescu\t1\t/m/1\n\
        Iordanescu\tI\tAnghel Iord\\u0103nescu\tAnghel_Iord\\u0103nescu\thttp://en.wikipedia.org/wiki/Anghel_Iord%C4%83nescu\t1\t/m/1\n\
        Leeds\tB\tLeeds\tLeeds_(club)\thttp://en.wikipedia.org/wiki/Leeds_(club)\t2\t/m/2\n\
        won\n\n\
        .\n\
        -DOCSTART- (1163testb SOCCER)\n\
        Japan\tB\tJapan\tJapan\thttp://en.wikipedia.org/wiki/Japan\t3\t/m/3\n";

    #[test]
    fn each_linked_mention_is_tagged_in_its_document() {
        let found = dev(LAYOUT, TEXT).unwrap();
        let name = "Anghel Iord\\u0103nescu";
        assert_eq!(
            found,
            [
                Some(Own::of_mention(
                    "947testa CRICKET:0",
                    &Tagged::of_input(&format!("[START_ENT] {name} [END_ENT] Leeds won .")),
                    "Anghel Iordănescu"
                )),
                Some(Own::of_mention(
                    "947testa CRICKET:1",
                    &Tagged::of_input("Anghel Iordanescu [START_ENT] Leeds [END_ENT] won ."),
                    "Leeds (club)"
                )),
            ]
        );
    }

    #[test]
    fn the_documents_names_are_the_splits() {
        let ids = |split| {
            let found = read_all(LAYOUT, &[TEXT], split, &LayoutOptions::default()).unwrap();
            found.into_iter().map(|own| own.map(|own| own.id.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(ids(Split::Train), [None, Some("1 EU:0".to_owned())]);
        assert_eq!(ids(Split::Test), [Some("1163testb SOCCER:0".to_owned())]);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, expected) in [
            (
                "EU\n",
                "in0:1: field `document`: expected `-DOCSTART- (NAME)` before the first token, found `EU`",
            ),
            ("-DOCSTART- ()\n", "in0:1: field `document`: expected `-DOCSTART- (NAME)`, found no name"),
            ("-DOCSTART- (1)\nEU\tB\n", "in0:2: expected 1 column, or at least 4 in a mention, found 2"),
            ("-DOCSTART- (1)\nEU\nEU\tI\tEU\t--NME--\n", "in0:3: field `tag`: expected `B` at the start"),
            ("-DOCSTART- (1)\nEU\tO\tEU\t--NME--\n", "in0:2: field `tag`: expected `B` or `I`, found `O`"),
        ] {
            let message = dev(LAYOUT, text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
