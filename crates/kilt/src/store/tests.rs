use std::path::PathBuf;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{PassageSplit, jsonl::Writer};

fn write(folder: &Path, name: &str, lines: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let mut writer = Writer::create(&path).unwrap();
    lines.iter().for_each(|line| writer.line(line.as_bytes()).unwrap());
    writer.finish().unwrap();
    path
}

fn build(
    folder: &Path,
    source: PathBuf,
    redirects: Option<PathBuf>,
    split: PassageSplit,
) -> Result<PassageStore> {
    let options = BuildOptions { source, redirects, split };
    PassageStore::build(&options, folder.join("store"), &mut |_| {})
}

const PAGES: [&str; 3] = [
    r#"{"wikipedia_id":"12","wikipedia_title":"Café Müller","text":["Café Müller\n","Ein Stück – 👍 von Pina.\n","Section::::Rezeption.\n","Es war ein Erfolg.\n"],"anchors":[]}"#,
    r#"{"wikipedia_id":7,"wikipedia_title":"The Band","text":["The Band\n"]}"#,
    r#"{"wikipedia_id":"9000000001","wikipedia_title":"the band","text":["the band\n","Another one.\n"]}"#,
];

#[test]
fn passages_have_exact_positions() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl.gz", &PAGES);
    let store = build(folder.path(), source, None, PassageSplit::Paragraph).unwrap();
    assert_eq!((store.pages(), store.len()), (3, 4));
    let passage = store.passage(PassageId(1));
    assert_eq!(passage.text, "Es war ein Erfolg.");
    assert_eq!((passage.section.as_str(), passage.start_paragraph), ("Section::::Rezeption.", 3));
    assert_eq!(store.passage(PassageId(0)).section, ABSTRACT);
    // 23 scalar values; the emoji and the umlaut count once.
    let first = store.passage(PassageId(0));
    assert_eq!((first.start_character, first.end_character), (0, 23));
    assert_eq!(first.text.chars().count(), 23);
    assert_eq!(store.page_of(PassageId(3)), PageIndex(2));
    assert_eq!(store.passages_of(PageIndex(0)), 0..2);
    store.verify().unwrap();
}

#[test]
fn pages_are_found_by_id_title_and_redirect() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let redirects = write(folder.path(), "redirects.tsv", &["Cafe Mueller\tCafé Müller", "Lost\tNowhere"]);
    let store = build(folder.path(), source, Some(redirects), PassageSplit::Page).unwrap();
    assert_eq!(store.page_by_id(" 7 "), Some(PageIndex(1)));
    assert_eq!(store.page_by_id("8"), None);
    assert_eq!(
        store.page_by_title("the band"),
        Some(PageIndex(2)),
        "the exact title goes before the first page"
    );
    assert_eq!(store.page_by_title("THE BAND"), Some(PageIndex(1)));
    assert_eq!(store.page_by_title("café_müller"), Some(PageIndex(0)));
    assert_eq!(store.page_by_title("cafe mueller"), Some(PageIndex(0)));
    assert_eq!(store.page_by_href("Caf%C3%A9%20M%C3%BCller"), Some(PageIndex(0)));
    assert_eq!(store.page_by_title("Lost"), None);
}

#[test]
fn the_same_pages_give_the_same_hash_and_another_split_another() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let hash = |split| build(folder.path(), source.clone(), None, split).unwrap().hash().to_owned();
    assert_eq!(hash(PassageSplit::Words), hash(PassageSplit::Words));
    assert_ne!(hash(PassageSplit::Words), hash(PassageSplit::Page));
}

#[test]
fn invalid_sources_are_reported_and_leave_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let twice = [PAGES[0], PAGES[1], r#"{"wikipedia_id":" 12","wikipedia_title":"X","text":[]}"#];
    let cases: [(&[&str], &str); 4] = [
        (&[], "expected at least one page, found none"),
        (&twice, "pages.jsonl:3: field `id`: `12` stands on line 1 already"),
        (
            &[PAGES[0], r#"{"wikipedia_id":"1","text":[]}"#],
            "pages.jsonl:2: field `.`: missing field `wikipedia_title`",
        ),
        (&[r#"{"wikipedia_id":"1","wikipedia_title":"T","text":["a",1]}"#], "pages.jsonl:1: field `text[1]`"),
    ];
    for (lines, expected) in cases {
        let source = write(folder.path(), "pages.jsonl", lines);
        let message = build(folder.path(), source, None, PassageSplit::Words).err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["pages.jsonl"]);
    }
}

#[test]
fn a_store_of_another_version_or_with_damage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let store = build(folder.path(), source, None, PassageSplit::Words).unwrap();
    let text = folder.path().join("store/text.bin");
    let mut bytes = std::fs::read(&text).unwrap();
    drop(store);
    bytes[3] ^= 1;
    std::fs::write(&text, &bytes).unwrap();
    let message = PassageStore::open(folder.path().join("store")).err().unwrap().to_string();
    assert!(message.contains("text.bin: the checksum is wrong: expected BLAKE3"), "{message}");
    let trusting = PassageStore::map(&folder.path().join("store")).unwrap();
    assert!(matches!(trusting.verify(), Err(Error::Checksum { .. })));
    std::fs::write(&text, &bytes[1..]).unwrap();
    let message = PassageStore::open(folder.path().join("store")).err().unwrap().to_string();
    assert!(message.contains("text.bin: expected "), "{message}");
    let manifest = folder.path().join("store/store.json");
    let old = std::fs::read_to_string(&manifest).unwrap().replace("\"version\": 1", "\"version\": 99");
    std::fs::write(&manifest, old).unwrap();
    let message = PassageStore::open(folder.path().join("store")).err().unwrap().to_string();
    assert!(message.contains("reads version 1, the store has version 99"), "{message}");
}

#[test]
fn a_plan_of_a_whole_source_counts_what_the_build_writes() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let plan = PassageStore::plan(&source, PassageSplit::Paragraph, PlanOptions::default()).unwrap();
    let store = build(folder.path(), source, None, PassageSplit::Paragraph).unwrap();
    assert!(plan.complete);
    assert_eq!((plan.pages, plan.passages), (3, 4));
    // The plan omits only the closing row of pages.bin.
    assert_eq!(plan.disk_bytes + PAGE_ROW as u64, store.bytes());
}

/// The results of all look-ups in a store, as text.
fn contents(store: &PassageStore) -> String {
    let pages: Vec<_> = (0..store.pages() as u32).map(PageIndex).collect();
    let of_pages: Vec<_> = pages
        .iter()
        .map(|page| {
            let paragraphs: Vec<_> = store.paragraphs(*page).collect();
            (store.page_id(*page), store.page_title(*page), paragraphs, store.passages_of(*page))
        })
        .collect();
    let passages: Vec<_> = (0..store.len() as u32)
        .map(PassageId)
        .map(|id| (store.page_of(id), store.text(id), store.passage(id)))
        .collect();
    let ids = ["12", "7", "9000000001", "1"].map(|id| store.page_by_id(id));
    let titles = ["Café Müller", "The Band", "THE BAND", "Cafe Mueller", "none"];
    let titles = titles.map(|title| store.page_by_title(title));
    let names: Vec<_> = store.names_of_pages().collect();
    format!("{of_pages:?} {passages:?} {ids:?} {titles:?} {names:?} {:?}", store.split())
}

/// Files like `bytes` with damage: flipped bits, other lengths, ranges of noise.
fn damages(bytes: &[u8], rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let mut all =
        vec![bytes[..bytes.len() - 1].to_vec(), Vec::new(), [bytes, &[0]].concat(), [bytes, bytes].concat()];
    for round in 0..90 {
        let mut damaged = bytes.to_vec();
        let at = rng.random_range(0..bytes.len());
        match round % 3 {
            0 => damaged[at] ^= 1 << rng.random_range(0..8),
            1 => damaged[at] = rng.random(),
            _ => {
                let end = (at + rng.random_range(1..16)).min(bytes.len());
                damaged[at..end].fill_with(|| rng.random());
            }
        }
        all.push(damaged);
    }
    all.retain(|damaged| damaged != bytes);
    all
}

#[test]
fn damage_anywhere_is_an_error_and_never_a_panic_or_another_content() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let redirects = write(folder.path(), "redirects.tsv", &["Cafe Mueller\tCafé Müller"]);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for split in [PassageSplit::Words, PassageSplit::Section] {
        let store = build(folder.path(), source.clone(), Some(redirects.clone()), split).unwrap();
        let expected = contents(&store);
        let names: Vec<String> = store.manifest.files.keys().cloned().chain([MANIFEST.to_owned()]).collect();
        assert_eq!(names.len(), 8);
        let (mut refused, mut unsound) = (0, 0);
        for name in names {
            let path = folder.path().join("store").join(&name);
            let bytes = std::fs::read(&path).unwrap();
            for damaged in damages(&bytes, &mut rng) {
                std::fs::write(&path, &damaged).unwrap();
                match PassageStore::open(folder.path().join("store")) {
                    Ok(store) => {
                        assert_eq!(name, MANIFEST, "only what JSON has room for can differ");
                        assert_eq!(contents(&store), expected);
                    }
                    Err(error) => {
                        assert!(error.is_input(), "{error}");
                        refused += 1;
                    }
                }
                // As after damage that a large store's stamp hides: wrong content is possible, but no panic.
                if let Ok(store) = PassageStore::map(&folder.path().join("store")) {
                    contents(&store);
                    unsound += usize::from(store.sound().is_err());
                }
            }
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(refused > 600 && unsound > 30, "{refused} {unsound}");
        assert_eq!(contents(&PassageStore::open(folder.path().join("store")).unwrap()), expected);
        assert!(store.sound().is_ok());
    }
}

#[test]
fn what_a_killed_build_left_goes_away_and_another_folder_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    // A killed build of another store, whose last file is complete.
    let killed = folder.path().join(".store-1.building");
    std::fs::create_dir(&killed).unwrap();
    std::fs::write(killed.join("text.bin"), "text").unwrap();
    std::fs::write(folder.path().join(".store-1.building.lock"), "").unwrap();
    // A store that is there is replaced.
    for _ in 0..2 {
        build(folder.path(), source.clone(), None, PassageSplit::Words).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["pages.jsonl", "store"]);
    }
    let options = BuildOptions { source, redirects: None, split: PassageSplit::Words };
    let error = PassageStore::build(&options, folder.path(), &mut |_| {}).err().unwrap();
    assert!(matches!(&error, Error::InTheWay { .. }) && error.is_input(), "{error}");
    assert!(folder.path().join("pages.jsonl").exists());
}
