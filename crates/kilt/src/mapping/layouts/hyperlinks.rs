//! Hyperlinks of the knowledge source, as training data of entity linking (Wu et al. 2020).

use rustc_hash::FxHashSet;
use serde::Deserialize;

use super::Layout;
use crate::{
    Error, Id, Result, Split,
    mapping::{
        mention::Tagged,
        own::Own,
        source::{Source, Take},
    },
    page::{Anchor, ParagraphKind},
    store::title_of_href,
};

/// Of a thousand links, one is in `dev` and one in `test`.
const PARTS: u64 = 1000;

/// The pages of the knowledge source. Each link in running text is a record: its words are tagged in the paragraph,
/// and the linked page is the answer. Of equal links of a page, the first is used. Links whose words are not at their
/// place are skipped.
///
/// A hash of the seed, the page and the link decides the split: one of a thousand links is in `dev`, one in `test`. It
/// also draws the links of the option `share`. So the pages are read once, and nothing is kept in memory.
pub(super) const LAYOUT: Layout = Layout {
    name: "hyperlinks",
    about: "links of the knowledge source's pages; --share draws a part of them, one of 1000 each is dev and test",
    options: &["seed", "share"],
    read,
};

#[derive(Deserialize)]
struct Page {
    wikipedia_id: Id,
    text: Vec<String>,
    #[serde(default)]
    anchors: Option<Vec<Anchor>>,
}

/// Text before a link, its words, and the text after it. None if the place is wrong.
fn parts<'a>(page: &'a Page, anchor: &Anchor) -> Option<(&'a str, &'a str, &'a str)> {
    let paragraph = page.text.get(usize::try_from(anchor.paragraph_id?).ok()?)?;
    if ParagraphKind::of(paragraph) != ParagraphKind::Text {
        return None;
    }
    let byte = |character: Option<i64>| {
        let mut bytes = paragraph.char_indices().map(|(at, _)| at).chain([paragraph.len()]);
        bytes.nth(usize::try_from(character?).ok()?)
    };
    let (start, end) = (byte(anchor.start)?, byte(anchor.end)?);
    let words = paragraph.get(start..end)?;
    let is_text = anchor.text.as_deref().is_none_or(|text| text.trim() == words.trim());
    (is_text && !words.trim().is_empty()).then(|| (&paragraph[..start], words, &paragraph[end..]))
}

/// A number that a page's link has for a seed, and that is evenly spread.
fn draw(seed: u64, page: &str, link: usize) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(&(link as u64).to_le_bytes()).update(page.as_bytes());
    let hash = hasher.finalize();
    hash.as_bytes()[..8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The split of a drawn number.
fn split(number: u64) -> Split {
    match number % PARTS {
        0 => Split::Dev,
        1 => Split::Test,
        _ => Split::Train,
    }
}

fn records(source: &Source<'_>, share: f64, page: &Page) -> Vec<Option<Own>> {
    let mut found = Vec::new();
    let mut known: FxHashSet<(&str, &str)> = FxHashSet::default();
    let id = page.wikipedia_id.text();
    for (link, anchor) in page.anchors.iter().flatten().enumerate() {
        let href = anchor.href.as_deref().filter(|href| !href.trim().is_empty());
        let valid = href.zip(parts(page, anchor));
        // The first of equal links stands for them in every split.
        if valid.is_some_and(|(href, (_, words, _))| !known.insert((href, words))) {
            continue;
        }
        let number = draw(source.options.seed(), &id, link);
        // Two parts of the hash, so that the share and the split are independent.
        let is_drawn = ((number >> 32) as f64) < share * f64::from(u32::MAX) + share;
        if !is_drawn || split(number & u64::from(u32::MAX)) != source.split {
            continue;
        }
        found.push(valid.map(|(href, (before, words, after))| {
            let title = title_of_href(href).replace('_', " ");
            Own::of_mention(format!("{id}:{link}"), &Tagged::new(before, words, after), title)
        }));
    }
    found
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let share = source.options.share.unwrap_or(1.0);
    if !(share > 0.0 && share <= 1.0) {
        let message = format!("the option `share`: expected a number above 0 and at most 1, found {share}");
        return Err(Error::Argument(message));
    }
    source.lines_with_made_ids(|_, page: Page| Ok(records(source, share, &page)), take)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::read as read_all, *};
    use crate::mapping::options::LayoutOptions;

    fn options(share: f64) -> LayoutOptions {
        LayoutOptions { share: Some(share), ..LayoutOptions::default() }
    }

    #[test]
    fn links_in_running_text_are_tagged() {
        let line = r#"{"_id":"7","wikipedia_id":"7","wikipedia_title":"Ann Lund","text":["Ann Lund","Ånn met Bo in Malmö. Bo left.","BULLET::::- Oslo"],"anchors":[{"text":"Bo","href":"Bo%20Dahl_%28singer%29","paragraph_id":1,"start":8,"end":10},{"text":"Malmö","href":"Malm%C3%B6","paragraph_id":1,"start":14,"end":19},{"text":"Bo","href":"Bo%20Dahl_%28singer%29","paragraph_id":1,"start":21,"end":23},{"text":"Oslo","href":"Oslo","paragraph_id":2,"start":12,"end":16},{"text":"Bo","href":"Bo","paragraph_id":1,"start":9,"end":11},{"text":"Bo","href":"Bo","paragraph_id":5,"start":0,"end":2}]}"#;
        // No link of this page is held out: see `draw`.
        assert!((0..6).all(|link| split(draw(0, "7", link) & u64::from(u32::MAX)) == Split::Train));
        let found = read_all(LAYOUT, &[line], Split::Train, &LayoutOptions::default()).unwrap();
        let bo = "Ånn met [START_ENT] Bo [END_ENT] in Malmö. Bo left.";
        let malmo = "Ånn met Bo in [START_ENT] Malmö [END_ENT] . Bo left.";
        assert_eq!(
            found,
            [
                Some(Own::of_mention("7:0", &Tagged::of_input(bo), "Bo Dahl (singer)")),
                Some(Own::of_mention("7:1", &Tagged::of_input(malmo), "Malmö")),
                // A list item, a wrong place, and a paragraph that does not exist.
                None,
                None,
                None,
            ]
        );
    }

    #[test]
    fn the_first_of_equal_links_is_the_only_one_of_all_splits() {
        let anchor = r##"{"text":"x","href":"X%23History","paragraph_id":0,"start":0,"end":1}"##;
        let line =
            format!(r#"{{"wikipedia_id":7,"text":["x"],"anchors":[{}]}}"#, vec![anchor; 3000].join(","));
        let read = |split| read_all(LAYOUT, &[&line], split, &options(1.0)).unwrap();
        assert_eq!(
            read(Split::Train),
            [Some(Own::of_mention("7:0", &Tagged::of_input("[START_ENT] x [END_ENT]"), "X"))]
        );
        assert!(read(Split::Dev).is_empty() && read(Split::Test).is_empty());
    }

    #[test]
    fn splits_and_shares_are_drawn_by_a_hash() {
        let anchors: Vec<String> = (0..20_000)
            .map(|at| format!(r#"{{"text":"x","href":"X{at}","paragraph_id":0,"start":0,"end":1}}"#))
            .collect();
        let line = format!(r#"{{"wikipedia_id":1,"text":["x"],"anchors":[{}]}}"#, anchors.join(","));
        let count = |split, share| read_all(LAYOUT, &[&line], split, &options(share)).unwrap().len();
        let all = [Split::Train, Split::Dev, Split::Test].map(|split| count(split, 1.0));
        assert_eq!(all.iter().sum::<usize>(), 20_000);
        // 20 are expected in each, with a standard deviation of 4.5.
        assert!((2..=40).contains(&all[1]) && (2..=40).contains(&all[2]), "{all:?}");
        // 5,000 of 20,000, with a standard deviation of 61.
        let quarter = count(Split::Train, 0.25);
        assert!((4_600..=5_400).contains(&quarter), "{quarter}");
    }

    #[test]
    fn wrong_pages_and_shares_are_named() {
        let message = read_all(
            LAYOUT,
            &["{\"wikipedia_id\":1,\"text\":[\"x\"]}\n{\"wikipedia_id\":1,\"text\":[7]}"],
            Split::Train,
            &options(1.0),
        )
        .unwrap_err()
        .to_string();
        assert!(message.contains("in0:2: field `text[0]`"), "{message}");
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            let message = read_all(LAYOUT, &["{}"], Split::Train, &options(share)).unwrap_err().to_string();
            assert!(message.contains("`share`: expected a number above 0 and at most 1"), "{message}");
        }
    }
}
