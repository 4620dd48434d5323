//! FEVER's claims (Thorne et al. 2018, 2019).

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use super::Layout;
use crate::{
    Error, Id, Result, jsonl,
    mapping::{
        own::{Claim, Own, Piece, distinct},
        source::{Place, Source, Take, files_of},
    },
};

/// Lines of `{id, label, claim, evidence}`, of FEVER and of FEVER 2.0. The evidence is a list of sets, each of which
/// suffices for the label. A piece of a set is a page title and a sentence number. Claims that cannot be verified are
/// skipped.
///
/// The sentences' texts are in FEVER's `wiki-pages`, the option `texts`. Without it, whole pages are the evidence. A
/// sentence that these pages lack is as one whose page is missing.
pub(super) const LAYOUT: Layout = Layout {
    name: "fever",
    about: "FEVER 1 and 2.0: the claims' JSON lines, and --texts wiki-pages for the sentences; NOT ENOUGH INFO is left out",
    options: &["texts"],
    read,
};

/// Two numbers of the annotation, a page title, and a sentence number.
type Evidence = (Value, Value, Option<String>, Option<i64>);

#[derive(Deserialize)]
struct Line {
    id: Id,
    label: String,
    claim: String,
    evidence: Vec<Vec<Evidence>>,
}

/// A line of `wiki-pages`: the sentences are lines of a number, a text and the names of links, between tabs.
#[derive(Deserialize)]
struct WikiPage {
    id: String,
    lines: String,
}

/// A page and the number of a sentence.
type Sentence = (String, i64);

/// FEVER's spelling of brackets and colons in titles.
const SPELLINGS: [(&str, &str); 7] = [
    ("-LRB-", "("),
    ("-RRB-", ")"),
    ("-LSB-", "["),
    ("-RSB-", "]"),
    ("-LCB-", "{"),
    ("-RCB-", "}"),
    ("-COLON-", ":"),
];

fn plain(text: &str) -> String {
    SPELLINGS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The label of a claim that cannot be verified.
const UNKNOWN: &str = "NOT ENOUGH INFO";

/// The label in upper case.
fn verdict(place: &Place<'_>, line: &Line) -> Result<&'static str> {
    let label = line.label.trim();
    let known = ["SUPPORTS", "REFUTES", UNKNOWN].into_iter().find(|known| known.eq_ignore_ascii_case(label));
    known.ok_or_else(|| {
        place.wrong("label", format!("expected `SUPPORTS`, `REFUTES` or `{UNKNOWN}`, found `{label}`"))
    })
}

/// The composed form of a page's name: the claims and the pages decompose different letters.
fn composed(title: &str) -> String {
    title.nfc().collect()
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let texts = sentences(source)?;
    let record = |label: &str, line: Line| {
        let piece = |(_, _, title, number): Evidence| {
            let title = title?;
            let name = plain(&title.replace('_', " "));
            if source.options.texts.is_empty() {
                return Some(Piece::page(name));
            }
            let text = number.and_then(|number| texts.get(&(composed(&title), number)));
            Some(Piece::sentence(name, text.cloned()))
        };
        let sets = line.evidence.into_iter().map(|set| set.into_iter().filter_map(piece).collect());
        Own::new(line.id, line.claim, vec![Claim::of_answers(vec![label.to_owned()], distinct(sets))])
    };
    let convert = |place: &Place<'_>, line: Line| {
        let label = verdict(place, &line)?;
        Ok(vec![(label != UNKNOWN).then(|| record(label, line))])
    };
    source.lines(convert, take)
}

/// The sentences of the evidence, by page and number; none without the pages.
fn sentences(source: &Source<'_>) -> Result<FxHashMap<Sentence, String>> {
    let mut found = FxHashMap::default();
    if source.options.texts.is_empty() {
        return Ok(found);
    }
    let mut needed: FxHashSet<Sentence> = FxHashSet::default();
    for path in source.inputs {
        if path.as_os_str() == "-" {
            let message =
                "the claims are read twice with `texts`; give them as a file, not as standard input";
            return Err(Error::Argument(message.to_owned()));
        }
        for line in jsonl::open(path)?.records::<Line>() {
            let line = line?;
            // A wrong label is an error when the claims are read again.
            if !line.label.trim().eq_ignore_ascii_case(UNKNOWN) {
                let evidence = line.evidence.into_iter().flatten();
                needed
                    .extend(evidence.filter_map(|(_, _, title, number)| Some((composed(&title?), number?))));
            }
        }
    }
    let pages: FxHashSet<&str> = needed.iter().map(|(title, _)| title.as_str()).collect();
    for path in files_of(&source.options.texts)? {
        jsonl::open(&path)?.batches::<WikiPage>(|batch| {
            for (_, page) in batch {
                let title = composed(&page.id);
                if !pages.contains(title.as_str()) {
                    continue;
                }
                for line in page.lines.split('\n') {
                    let mut columns = line.split('\t');
                    // A line without a number continues the links of the one before it.
                    let Some(Ok(number)) = columns.next().map(str::parse) else { continue };
                    let text = columns.next().unwrap_or_default().trim();
                    let sentence = (title.clone(), number);
                    if !text.is_empty() && needed.contains(&sentence) {
                        found.insert(sentence, plain(text));
                    }
                }
            }
            Ok(())
        })?;
    }
    if found.is_empty() && !needed.is_empty() {
        let path = source.options.texts.first().cloned().unwrap_or_default();
        return Err(Error::Empty { path, what: "sentence of the claims' evidence" });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, dev, read},
        *,
    };
    use crate::{Split, mapping::options::LayoutOptions};

    const CLAIMS: &str = r#"{"id":5,"label":"SUPPORTS","verifiable":"VERIFIABLE","claim":"Lund sang.","evidence":[[[1,2,"Ann_Lund_-LRB-singer-RRB-",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1],[1,3,"Malmo\u0308",0]]]}
{"id":6,"label":"NOT ENOUGH INFO","verifiable":"NOT VERIFIABLE","claim":"?","evidence":[[[1,null,null,null]]]}
{"id":"500007","label":"refutes","claim":"Lund ran.","evidence":[[[1,2,"Ann_Lund_-LRB-singer-RRB-",0]],[[1,4,null,null]]]}
"#;

    #[test]
    fn each_set_of_sentences_is_evidence_and_what_cannot_be_verified_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let wiki = folder.path().join("wiki-pages");
        jsonl::write(
            wiki.join("wiki-001.jsonl"),
            br#"{"id":"","text":"","lines":""}
{"id":"Ann_Lund_-LRB-singer-RRB-","text":"..","lines":"0\tAnn Lund -LRB- born 1920 -RRB- sang .\tSong\tsong\n1\tShe lived in Oslo .\tOslo\tOslo\n2\t\n"}
"#,
        )
        .unwrap();
        // A composed letter in the pages, two characters in the claims.
        jsonl::write(
            wiki.join("wiki-002.jsonl"),
            "{\"id\":\"Malm\u{f6}\",\"text\":\"\",\"lines\":\"0\\tA city .\"}\n".as_bytes(),
        )
        .unwrap();
        let options = LayoutOptions { texts: vec![wiki], ..LayoutOptions::default() };
        let found = read(LAYOUT, &[CLAIMS], Split::Dev, &options).unwrap();
        let [sang, lived, city] = [
            "Ann Lund (singer)|Ann Lund ( born 1920 ) sang .",
            "Ann Lund (singer)|She lived in Oslo .",
            "Malmo\u{308}|A city .",
        ];
        assert_eq!(
            found,
            [
                Some(Own::new(5i64, "Lund sang.", vec![claim("SUPPORTS", &[&[sang], &[lived, city]])])),
                None,
                Some(Own::new("500007", "Lund ran.", vec![claim("REFUTES", &[&[sang]])])),
            ]
        );
    }

    #[test]
    fn a_sentence_that_the_pages_lack_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let wiki = folder.path().join("wiki.jsonl");
        let page = br#"{"id":"Ann_Lund_-LRB-singer-RRB-","lines":"0\tAnn Lund sang ."}"#;
        jsonl::write(&wiki, page).unwrap();
        let options = LayoutOptions { texts: vec![wiki], ..LayoutOptions::default() };
        let found = read(LAYOUT, &[CLAIMS], Split::Dev, &options).unwrap();
        let lost: Vec<Vec<bool>> = found[0].as_ref().unwrap().claims[0]
            .evidence
            .iter()
            .map(|set| set.iter().map(|piece| piece.is_lost).collect())
            .collect();
        assert_eq!(lost, [vec![false], vec![true, true]]);
    }

    #[test]
    fn pages_are_the_evidence_without_the_sentences() {
        let found = dev(LAYOUT, CLAIMS).unwrap();
        let lund = "Ann Lund (singer)";
        let expected = claim("SUPPORTS", &[&[lund], &[lund, "Malmo\u{308}"]]);
        assert_eq!(found[0].as_ref().unwrap().claims, [expected]);
    }

    #[test]
    fn wrong_files_are_named() {
        let message =
            dev(LAYOUT, "\n{\"id\":1,\"label\":\"SUPPORTS\",\"claim\":\"c\",\"evidence\":[[[1,2,3,4]]]}")
                .unwrap_err()
                .to_string();
        assert!(message.contains("in0:2: field `evidence[0][0]"), "{message}");
        let message =
            dev(LAYOUT, "{\"id\":1,\"label\":\"SUPPORTED\",\"claim\":\"c\",\"evidence\":[]}").unwrap_err();
        let expected =
            "in0:1: field `label`: expected `SUPPORTS`, `REFUTES` or `NOT ENOUGH INFO`, found `SUPPORTED`";
        assert!(message.to_string().contains(expected), "{message}");
        let folder = tempfile::tempdir().unwrap();
        let wiki = folder.path().join("wiki.jsonl");
        let options = LayoutOptions { texts: vec![wiki.clone()], ..LayoutOptions::default() };
        for (text, expected) in [
            ("{\"id\":\"a\"}", "wiki.jsonl:1: missing field `lines`"),
            ("{\"id\":\"a\",\"lines\":\"0\\tx\"}", "expected at least one sentence of the claims' evidence"),
        ] {
            jsonl::write(&wiki, text.as_bytes()).unwrap();
            let message = read(LAYOUT, &[CLAIMS], Split::Dev, &options).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
