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
fn pages_without_a_title_have_passages_and_are_not_found_by_title() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(
        folder.path(),
        "pages.jsonl",
        &[
            r#"{"wikipedia_id":"1","wikipedia_title":"","text":["","Whales sing."]}"#,
            r#"{"wikipedia_id":"2","wikipedia_title":" ","text":["","Coins are heavy."]}"#,
            r#"{"wikipedia_id":"3","wikipedia_title":"T","text":["T\n"]}"#,
        ],
    );
    let store = build(folder.path(), source, None, PassageSplit::Words).unwrap();
    assert_eq!((store.pages(), store.len()), (3, 3));
    assert_eq!(
        (store.text(PassageId(0)), store.text(PassageId(1))),
        ("Whales sing.".into(), "Coins are heavy.".into())
    );
    assert_eq!(
        (store.page_by_title(""), store.page_of_title(" "), store.page_by_title("_")),
        (None, None, None)
    );
    assert_eq!(store.names_of_pages().map(|(_, name, _)| name).collect::<Vec<_>>(), ["T"]);
    let source =
        write(folder.path(), "wrong.jsonl", &[r#"{"wikipedia_id":" ","wikipedia_title":"","text":[]}"#]);
    let message = build(folder.path(), source, None, PassageSplit::Words).err().unwrap().to_string();
    assert!(message.contains("wrong.jsonl:1: field `wikipedia_id`: expected an id"), "{message}");
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
    let again = r#"{"wikipedia_id":"1","wikipedia_id":"2","wikipedia_title":"T","text":[]}"#;
    let cases: [(&[&str], &str); 5] = [
        (&[], "expected at least one page, found none"),
        (&[again], "duplicate field `wikipedia_id`"),
        (&twice, "pages.jsonl:3: field `wikipedia_id`: `12` stands on line 1 already"),
        (&[PAGES[0], r#"{"wikipedia_id":"1","text":[]}"#], "pages.jsonl:2: missing field `wikipedia_title`"),
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
    for (pages, passages) in [(PAGES, 4), (DESCRIBED, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let source = write(folder.path(), "pages.jsonl", &pages);
        let plan = PassageStore::plan(&source, PassageSplit::Paragraph, PlanOptions::default()).unwrap();
        let store = build(folder.path(), source, None, PassageSplit::Paragraph).unwrap();
        assert!(plan.complete);
        assert_eq!((plan.pages, plan.passages), (3, passages));
        // The plan omits only the closing row of pages.bin.
        assert_eq!(plan.disk_bytes + PAGE_ROW as u64, store.bytes());
    }
}

/// The first page has no metadata.
const DESCRIBED: [&str; 3] = [
    PAGES[1],
    r#"{"wikipedia_id":"8","wikipedia_title":"Tea","text":["Tea","It is hot."],"categories":"Drinks, Hot drinks","history":{"revid":1},"year":2001,"metadata":{"year":5,"lang":"en"},"draft":false}"#,
    r#"{"wikipedia_id":"9","wikipedia_title":"Notes","text":["Notes","Boil water.","Section::::Milk.","Add milk."],"metadata":{"file":"a/tea.md","line":12,"section":"Brewing","tags":["x","y"],"depth":[1]}}"#,
];

#[test]
fn metadata_and_places_survive_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &DESCRIBED);
    let store = build(folder.path(), source, None, PassageSplit::Paragraph).unwrap();
    let json = |page| serde_json::to_string(&store.metadata(PageIndex(page))).unwrap();
    assert_eq!(json(0), "{}");
    assert_eq!(
        json(1),
        r#"{"categories":["Drinks","Hot drinks"],"draft":false,"lang":"en","year":2001}"#,
        "the record's own year precedes that of its object"
    );
    assert_eq!(json(2), r#"{"file":"a/tea.md","line":12,"section":"Brewing","tags":["x","y"]}"#);
    let keys: Vec<(&str, &[FieldKind])> =
        store.keys().iter().map(|(key, kinds)| (key.as_str(), kinds.as_slice())).collect();
    assert_eq!(
        keys,
        [
            ("categories", [FieldKind::List].as_slice()),
            ("draft", &[FieldKind::Boolean]),
            ("file", &[FieldKind::Text]),
            ("lang", &[FieldKind::Text]),
            ("line", &[FieldKind::Number]),
            ("section", &[FieldKind::Text]),
            ("tags", &[FieldKind::List]),
            ("year", &[FieldKind::Number]),
        ]
    );
    assert!(store.has_places());
    let [plain, tea, boil, milk] = [0, 1, 2, 3].map(|id| store.passage(PassageId(id)));
    assert!(plain.file.is_empty() && plain.metadata.is_empty() && tea.file.is_empty());
    assert_eq!((tea.section.as_str(), tea.metadata.iter().count()), (ABSTRACT, 4));
    assert_eq!(boil.file.to_string(), "a/tea.md, line 12");
    assert_eq!((boil.section.as_str(), milk.section.as_str()), ("Brewing", "Section::::Milk."));
    assert_eq!(serde_json::to_string(&boil.metadata).unwrap(), r#"{"tags":["x","y"]}"#);
    assert_eq!(boil.metadata, milk.metadata);
    assert_eq!((store.header(PassageId(2)), store.header(PassageId(3))), (None, Some("Section::::Milk.")));
    store.verify().unwrap();
    store.sound().unwrap();
}

#[test]
fn metadata_change_neither_the_hash_nor_the_files_of_a_store_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &PAGES);
    let plain = build(folder.path(), source.clone(), None, PassageSplit::Words).unwrap();
    assert_eq!((plain.metadata_hash(), plain.keys().len(), plain.has_places()), (None, 0, false));
    let manifest = std::fs::read_to_string(folder.path().join("store/store.json")).unwrap();
    assert!(!manifest.contains("metadata") && !folder.path().join("store/fields.bin").exists());
    let hash = plain.hash().to_owned();
    drop(plain);
    let described = PAGES.map(|page| page.replacen('{', r#"{"lang":"de","#, 1));
    write(folder.path(), "pages.jsonl", &[&described[0], &described[1], &described[2]]);
    let store = build(folder.path(), source.clone(), None, PassageSplit::Words).unwrap();
    assert_eq!(store.hash(), hash);
    let first = store.metadata_hash().unwrap().to_owned();
    drop(store);
    let other = described[0].replace("de", "en");
    write(folder.path(), "pages.jsonl", &[&other, &described[1], &described[2]]);
    let store = build(folder.path(), source, None, PassageSplit::Words).unwrap();
    assert_ne!(store.metadata_hash().unwrap(), first);
}

#[test]
fn a_store_of_an_earlier_version_opens_without_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &DESCRIBED);
    drop(build(folder.path(), source, None, PassageSplit::Words).unwrap());
    // Earlier versions write neither the files nor the entry.
    let path = folder.path().join("store/store.json");
    let mut manifest: serde_json::Value = crate::jsonl::read_json(&path).unwrap();
    manifest.as_object_mut().unwrap().remove("metadata").unwrap();
    std::fs::write(&path, manifest.to_string()).unwrap();
    for name in [FIELDS, FIELD_ENDS] {
        std::fs::remove_file(folder.path().join("store").join(name)).unwrap();
    }
    let store = PassageStore::open(folder.path().join("store")).unwrap();
    assert_eq!((store.metadata_hash(), store.keys().len()), (None, 0));
    assert!(store.passage(PassageId(1)).metadata.is_empty());
    store.sound().unwrap();
}

#[test]
fn damaged_metadata_are_an_error_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "pages.jsonl", &DESCRIBED);
    drop(build(folder.path(), source, None, PassageSplit::Words).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut unsound = 0;
    for name in [FIELDS, FIELD_ENDS] {
        let path = folder.path().join("store").join(name);
        let bytes = std::fs::read(&path).unwrap();
        for damaged in damages(&bytes, &mut rng) {
            std::fs::write(&path, &damaged).unwrap();
            let error = PassageStore::open(folder.path().join("store")).err().unwrap();
            assert!(error.is_input() && error.to_string().contains(name), "{error}");
            if let Ok(store) = PassageStore::map(&folder.path().join("store")) {
                contents(&store);
                unsound += usize::from(store.sound().is_err());
            }
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(unsound > 10, "{unsound}");
    let path = folder.path().join("store").join(MANIFEST);
    let manifest = std::fs::read_to_string(&path).unwrap().replace("\"lang\"", "\"long\"");
    std::fs::write(&path, manifest).unwrap();
    let error = PassageStore::open(folder.path().join("store")).err().unwrap();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
}

#[test]
fn names_of_fields_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let name = "n".repeat((1 << 20) - 3);
    let page = |id: u32, name: &str| {
        format!(r#"{{"wikipedia_id":"{id}","wikipedia_title":"T","text":[],"{name}":1}}"#)
    };
    let lines = [page(1, &name), page(2, "abc"), page(3, &name)];
    let source = write(folder.path(), "pages.jsonl", &lines.each_ref().map(String::as_str));
    assert_eq!(build(folder.path(), source, None, PassageSplit::Words).unwrap().keys().len(), 2);
    let lines = [page(1, &name), page(2, "abcd")];
    let source = write(folder.path(), "pages.jsonl", &lines.each_ref().map(String::as_str));
    let message = build(folder.path(), source, None, PassageSplit::Words).err().unwrap().to_string();
    assert!(
        message.contains("pages.jsonl:2: field `abcd`: expected names of fields of at most"),
        "{message}"
    );
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

#[test]
fn passages_of_one_long_paragraph_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let paragraph = "four words of text ".repeat(1_200_000);
    let page = serde_json::json!({"wikipedia_id": "1", "wikipedia_title": "A", "text": ["A", paragraph]});
    let source = write(folder.path(), "pages.jsonl", &[&page.to_string()]);
    let build = BuildOptions { source, redirects: None, split: Split::Words };
    let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
    assert_eq!(store.len(), 48_000);
    // Reading the whole paragraph for each passage takes minutes.
    let start = std::time::Instant::now();
    let expected = "four words of text ".repeat(25);
    assert!((0..48_000).all(|id| store.text(PassageId(id)) == expected.trim_end()));
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn pages_of_several_sources_are_named_by_the_paths_that_a_user_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.jsonl");
    let page = |id: &str| {
        format!(
            "{{\"wikipedia_id\":{id:?},\"wikipedia_title\":\"T\",\"text\":[\"T\",\"b\"],\"file\":{id:?}}}"
        )
    };
    let ids = ["/home/ann/a/x.md", "/home/ann/rows.csv#2", "/home/ann/ab/y.md", "plain.md"];
    std::fs::write(&source, ids.map(page).join("\n")).unwrap();
    let options = BuildOptions { source, redirects: None, split: PassageSplit::Page };
    let store = PassageStore::build(&options, folder.path().join("store"), &mut |_| {}).unwrap();
    let named = |stored: &str, shown: &str| (stored.to_owned(), shown.to_owned());
    let store =
        store.with_sources(vec![named("/home/ann/a", "a"), named("/home/ann/rows.csv", "../rows.csv")]);
    let found: Vec<String> = (0..4).map(|page| store.page_id(PageIndex(page)).into_owned()).collect();
    assert_eq!(found, ["a/x.md", "../rows.csv#2", "/home/ann/ab/y.md", "plain.md"]);
    assert_eq!(store.passage(PassageId(1)).page_id, "../rows.csv#2");
    for (page, (shown, stored)) in found.iter().zip(ids).enumerate() {
        let page = Some(PageIndex(page as u32));
        assert_eq!((store.page_by_id(shown), store.page_by_id(stored)), (page, page), "{shown}");
    }
    assert_eq!(store.page_by_id("a/none.md"), None);
}
