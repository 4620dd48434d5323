//! WNED-WIKI and WNED-CWEB (Guo and Barbosa 2018).

use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

use super::Layout;
use crate::{
    Error, Result, Split, jsonl,
    mapping::{
        mention::Tagged,
        own::Own,
        sample,
        source::{Source, Take},
    },
};

/// An XML file of documents, `<document docName=".."><annotation><mention/><wikiName/><offset/><length/>`, and a folder
/// of the documents' raw texts, the option `texts`. Mentions without a page (no name, or `NIL`) are skipped.
///
/// The documents are divided at random: `dev` takes documents until it has half of the mentions, `test` has the others. There
/// is no `train`.
pub(super) const LAYOUT: Layout = Layout {
    name: "wned",
    about: "WNED-WIKI and WNED-CWEB: the XML file and --texts RawText; --seed divides the documents into dev and test",
    options: &["seed", "texts"],
    read,
};

/// A document with its linked mentions.
struct Mentioned {
    name: String,
    /// The folder's file of its text.
    file: PathBuf,
    mentions: Vec<Mention>,
}

/// A mention in a text.
struct Mention {
    /// The mention's bytes in the text.
    start: usize,
    end: usize,
    title: String,
}

impl Mentioned {
    /// Hands over the records of its mentions.
    fn take(self, take: &mut Take<'_>) -> Result<()> {
        let Self { name, file, mentions } = self;
        let text = jsonl::read_to_string(&file)?;
        for (number, Mention { start, end, title }) in mentions.into_iter().enumerate() {
            // The file is unchanged since the first reading, or the range is checked again.
            let parts = text.get(..start).zip(text.get(start..end)).zip(text.get(end..));
            let Some(((before, words), after)) = parts else { return Err(Error::Changed { path: file }) };
            take(Some(Own::of_mention(
                format!("{name}:{number}"),
                &Tagged::new(before, words, after),
                title,
            )))?;
        }
        Ok(())
    }
}

/// A parsed file, for errors.
struct Xml<'a> {
    path: &'a Path,
    document: &'a Document<'a>,
}

impl Xml<'_> {
    fn wrong(&self, node: Node<'_, '_>, field: &str, message: impl Into<String>) -> Error {
        let line = self.document.text_pos_at(node.range().start).row;
        Error::record(self.path, line.into(), field, message)
    }

    /// The text of a node's child.
    fn text<'n>(&self, node: Node<'n, '_>, name: &str) -> Result<&'n str> {
        let child = node.children().find(|child| child.has_tag_name(name));
        let child = child.ok_or_else(|| {
            self.wrong(
                node,
                name,
                format!("expected the element in `{}`, found none", node.tag_name().name()),
            )
        })?;
        Ok(child.text().unwrap_or_default())
    }

    /// The number in a node's child.
    fn number(&self, node: Node<'_, '_>, name: &str) -> Result<usize> {
        let text = self.text(node, name)?.trim();
        text.parse().map_err(|_| self.wrong(node, name, format!("expected a number, found `{text}`")))
    }
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    if source.split == Split::Train {
        return Err(Error::Argument(
            "the layout `wned` has the splits `dev` and `test`, no `train`".to_owned(),
        ));
    }
    let [folder] = source.options.texts.as_slice() else {
        let found = source.options.texts.len();
        let message =
            format!("the layout `wned` needs one folder of raw texts, the option `texts`; found {found}");
        return Err(Error::Argument(message));
    };
    let mut documents_of: Vec<Mentioned> = Vec::new();
    for path in source.inputs {
        let text = jsonl::read_to_string(path)?;
        // XML has no place for a byte order mark inside a string.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let document = Document::parse(text).map_err(|error| {
            let line = error.pos().row;
            Error::record(path, line.into(), ".", format!("expected XML: {error}"))
        })?;
        let xml = Xml { path, document: &document };
        let mut documents = document.descendants().filter(|node| node.has_tag_name("document")).peekable();
        if documents.peek().is_none() {
            return Err(Error::Empty { path: path.clone(), what: "element `document`" });
        }
        for node in documents {
            let name = node.attribute("docName").map(str::trim).unwrap_or_default();
            // A name is a file of the folder, and no path to another one.
            if name.is_empty() || Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(xml.wrong(
                    node,
                    "docName",
                    format!("expected the name of a file, found `{name}`"),
                ));
            }
            let file = folder.join(name);
            let text = jsonl::read_to_string(&file)?;
            let annotations = node.children().filter(|node| node.has_tag_name("annotation"));
            let mentions: Result<Vec<Mention>> =
                annotations.filter_map(|node| mention(&xml, node, &file, &text).transpose()).collect();
            documents_of.push(Mentioned { name: name.to_owned(), mentions: mentions?, file });
        }
    }
    let members = members(&documents_of, source.options.seed(), source.split);
    for (document, is_member) in documents_of.into_iter().zip(members) {
        if is_member {
            document.take(take)?;
        }
    }
    Ok(())
}

/// Whether each document is in `split`: `dev` has the first ones of a random order that have half of the mentions.
fn members(documents: &[Mentioned], seed: u64, split: Split) -> Vec<bool> {
    let all: usize = documents.iter().map(|document| document.mentions.len()).sum();
    let mut is_member = vec![false; documents.len()];
    let mut before = 0;
    for at in sample::shuffled(seed, documents.len()) {
        is_member[at] = (2 * before < all) == (split == Split::Dev);
        before += documents[at].mentions.len();
    }
    is_member
}

/// The mention of an annotation; none without a page.
fn mention(xml: &Xml<'_>, node: Node<'_, '_>, file: &Path, text: &str) -> Result<Option<Mention>> {
    let words = xml.text(node, "mention")?.trim();
    let title = xml.text(node, "wikiName")?.trim();
    let (offset, length) = (xml.number(node, "offset")?, xml.number(node, "length")?);
    if title.is_empty() || title == "NIL" {
        return Ok(None);
    }
    let start = byte(text, offset);
    let end = start.and_then(|start| Some(start + byte(&text[start..], length)?));
    let place = start.zip(end).filter(|&(start, end)| text[start..end] == *words && !words.is_empty());
    // Some offsets count other units. Then the mention is the nearest one.
    let nearest = || {
        let places = text.match_indices(words).filter(|_| !words.is_empty()).map(|(at, _)| at);
        places.min_by_key(|&at| at.abs_diff(start.unwrap_or(text.len())))
    };
    let place = place.or_else(|| nearest().map(|at| (at, at + words.len())));
    let Some((start, end)) = place else {
        let message = format!("expected words of {}, found `{words}`", file.display());
        return Err(xml.wrong(node, "mention", message));
    };
    let title = title.replace('_', " ");
    Ok(Some(Mention { start, end, title }))
}

/// The byte of a character; none beyond the end.
fn byte(text: &str, character: usize) -> Option<usize> {
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.into_iter().nth(character)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{super::testing::read as read_all, *};
    use crate::mapping::options::LayoutOptions;

    /// A file with annotations of one document, `a`, and a folder with its text.
    fn read_one(text: &str, annotations: &str, split: Split, seed: u64) -> Result<Vec<Option<Own>>> {
        let folder = tempfile::tempdir().unwrap();
        jsonl::write(folder.path().join("a"), text.as_bytes()).unwrap();
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<wikipedia.entityAnnotation>\n<document docName=\"a\">\n{annotations}</document>\n</wikipedia.entityAnnotation>\n"
        );
        let options =
            LayoutOptions { texts: vec![folder.path().into()], seed: Some(seed), ..LayoutOptions::default() };
        read_all(LAYOUT, &[&xml], split, &options)
    }

    fn annotation(mention: &str, name: &str, offset: usize) -> String {
        let length = mention.chars().count();
        let mention = mention.replace('&', "&amp;");
        format!(
            "<annotation>\n<mention>{mention}</mention><wikiName>{name}</wikiName><offset>{offset}</offset><length>{length}</length></annotation>\n"
        )
    }

    #[test]
    fn a_mention_is_tagged_in_the_raw_text() {
        let text = "É Malmö is a city.\nA&B is in Malmö.";
        let annotations = [
            annotation("Malmö", "Malmö", 2),
            annotation("A&B", "A_and_B", 19),
            // The offset is wrong by one, so the nearest mention is meant.
            annotation("Malmö", "Malmö_FF", 30),
            annotation("city", "NIL", 13),
            annotation("is", "", 8),
        ]
        .concat();
        let both: Vec<Own> = [Split::Dev, Split::Test]
            .into_iter()
            .flat_map(|split| read_one(text, &annotations, split, 0).unwrap())
            .flatten()
            .collect();
        let expected = [
            ("a:0", "É [START_ENT] Malmö [END_ENT] is a city. A&B is in Malmö.", "Malmö"),
            ("a:1", "É Malmö is a city. [START_ENT] A&B [END_ENT] is in Malmö.", "A and B"),
            ("a:2", "É Malmö is a city. A&B is in [START_ENT] Malmö [END_ENT] .", "Malmö FF"),
        ]
        .map(|(id, input, title)| Own::of_mention(id, &Tagged::of_input(input), title));
        let mut found = both;
        found.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(found, expected);
    }

    #[test]
    fn documents_are_divided_by_the_seed_until_dev_has_half_of_the_mentions() {
        let folder = tempfile::tempdir().unwrap();
        jsonl::write(folder.path().join("t"), "x ".repeat(4).as_bytes()).unwrap();
        let annotations: String = (0..4).map(|at| annotation("x", "X", 2 * at)).collect();
        let names: Vec<String> = (0..9).map(|at| format!("d{at}")).collect();
        for name in &names {
            std::fs::copy(folder.path().join("t"), folder.path().join(name)).unwrap();
        }
        let documents: String = names
            .iter()
            .map(|name| format!("<document docName=\"{name}\">\n{annotations}</document>\n"))
            .collect();
        let xml = format!("<wikipedia.entityAnnotation>\n{documents}</wikipedia.entityAnnotation>\n");
        let of = |split, seed| {
            let options = LayoutOptions {
                texts: vec![folder.path().into()],
                seed: Some(seed),
                ..LayoutOptions::default()
            };
            let found = read_all(LAYOUT, &[&xml], split, &options).unwrap();
            let ids = found.into_iter().map(|own| own.unwrap().id.to_string());
            ids.map(|id| id.split(':').next().unwrap().to_owned()).collect::<Vec<String>>()
        };
        let (dev, test) = (of(Split::Dev, 1), of(Split::Test, 1));
        // Five of nine documents have at least half of the 36 mentions.
        assert_eq!((dev.len(), test.len()), (20, 16));
        let [dev, test] = [dev, test].map(BTreeSet::from_iter);
        assert!(dev.is_disjoint(&test) && dev.len() == 5 && test.len() == 4, "{dev:?} {test:?}");
        assert_ne!(dev, of(Split::Dev, 2).into_iter().collect());
    }

    #[test]
    fn wrong_files_and_options_are_named() {
        let read = |annotations: &str| read_one("Oslo", annotations, Split::Dev, 0).unwrap_err().to_string();
        let text = annotation("Oslo", "Oslo", 0);
        for (annotations, expected) in [
            (
                text.replace("<offset>0</offset>", ""),
                "in0:4: field `offset`: expected the element in `annotation`",
            ),
            (
                text.replace("<length>4", "<length>four"),
                "in0:4: field `length`: expected a number, found `four`",
            ),
            (annotation("Bonn", "Bonn", 0), "in0:4: field `mention`: expected words of "),
            ("<annotation>\n".to_owned(), "expected XML: "),
        ] {
            let message = read(&annotations);
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
        let folder = tempfile::tempdir().unwrap();
        let options = LayoutOptions { texts: vec![folder.path().into()], ..LayoutOptions::default() };
        for (xml, split, expected) in [
            ("<a/>", Split::Dev, "expected at least one element `document`"),
            (
                "<a><document docName=\"../b\"/></a>",
                Split::Dev,
                "in0:1: field `docName`: expected the name of a file",
            ),
            ("<a/>", Split::Train, "no `train`"),
        ] {
            let message = read_all(LAYOUT, &[xml], split, &options).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
        let message =
            read_all(LAYOUT, &["<a/>"], Split::Dev, &LayoutOptions::default()).unwrap_err().to_string();
        assert!(message.contains("needs one folder of raw texts"), "{message}");
    }
}
