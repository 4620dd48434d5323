//! A collection of a source that has changed equals one that is built anew.

use std::fs;

use sporran_documents::{Collection, Error};
use sporran_kilt::PassageSplit;

use crate::{World, read};

/// The collection in the folder of indexes, and the same one built anew. Gives the numbers of unchanged and removed files.
fn same(world: &World) -> (u64, u64) {
    let updated = world.collect().unwrap();
    let fresh = world.path("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).unwrap();
    }
    let anew = world.collect_in("fresh").unwrap();
    assert_eq!(updated.content(), anew.content());
    let lines = |path: &std::path::Path| zstd::decode_all(&read(path)[..]).unwrap();
    assert_eq!(
        String::from_utf8(lines(&updated.pages())).unwrap(),
        String::from_utf8(lines(&anew.pages())).unwrap()
    );
    let hash = |collection| {
        let store = world.store(collection, PassageSplit::Words);
        (store.hash().to_owned(), store.metadata_hash().map(str::to_owned))
    };
    assert_eq!(hash(&updated), hash(&anew));
    updated.verify().unwrap();
    let problems = |collection: &sporran_documents::Collection| collection.summary().problems.clone();
    assert_eq!(problems(&updated), problems(&anew));
    (updated.summary().unchanged, updated.summary().removed)
}

#[test]
fn changed_files_are_read_again_and_deleted_ones_leave() {
    let world = World::new();
    for at in 0..20 {
        world.write(&format!("d{at}.md"), format!("# T{at}\n\nText {at}.\n"));
    }
    world.write("bad.bin", [0, 1, 2, 3, 0]);
    let rows = |from: u64, to: u64| {
        (from..to).map(|id| format!("{{\"id\":{id},\"text\":\"row {id}\"}}\n")).collect::<String>()
    };
    world.write("rows.jsonl", rows(0, 50));
    assert_eq!(same(&world), (0, 0));
    world.write("d3.md", "# New\n\nOther text.\n");
    world.remove("d7.md");
    world.write("new/e.txt", "More.");
    assert_eq!(same(&world), (20, 1));
    // Nothing has changed: the same folder.
    let before = world.collect().unwrap();
    assert_eq!(world.collect().unwrap().folder(), before.folder());
    // A record of a second file equals one of the first one.
    world.write("rows0.jsonl", rows(49, 60));
    assert_eq!(same(&world), (22, 0));
    let told =
        "rows0.jsonl: 1 record has an id that an earlier record has, and its title and text; it is left out";
    assert!(world.problems().contains(&told.to_owned()));
    world.write("d1.md", "x");
    assert_eq!(same(&world), (21, 0));
    world.write("a/rows.jsonl", rows(10, 12));
    assert_eq!(same(&world), (21, 0));
    world.remove("rows.jsonl");
    world.remove("a/rows.jsonl");
    assert_eq!(same(&world), (21, 2));
    // Other options are another source.
    let collections = || {
        fs::read_dir(world.path("indexes"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("documents-"))
            .count()
    };
    assert_eq!(collections(), 1);
}

#[test]
fn rows_of_two_tables_can_have_the_same_ids() {
    for header in ["id,text,note", "id,text,title"] {
        let world = World::new();
        world.write("a.csv", format!("{header}\n1,Tea.,x\n2,Milk.,y\n"));
        world.write("b.csv", format!("{header}\n1,Beer.,z\n1,Wine.,z\n1,Tea.,x\n3,Rum.,z\n"));
        let expected = ["1: Tea.", "2: Milk.", "b.csv#1: Beer.", "b.csv#2: Wine.", "3: Rum."];
        assert_eq!(world.rows(), expected, "{header}");
        let has = "an id that an earlier record has";
        assert_eq!(
            world.problems(),
            [
                format!("b.csv: 1 record has {has}, and its title and text; it is left out"),
                format!("b.csv: 2 records have {has}; the id of each is the file and the number of the row"),
            ]
        );
        assert_eq!(world.collect().unwrap().summary().incomplete(), 0);
        // A file before the others takes the ids.
        world.write("a.jsonl", "{\"id\":\"b.csv#1\",\"text\":\"Gin.\"}\n{\"text\":\"Ale.\"}\n");
        world.write("0.csv", format!("{header}\n3,Mead.,z\n"));
        assert_eq!(same(&world).0, 1);
        let expected = [
            "3: Mead.",
            "1: Tea.",
            "2: Milk.",
            "b.csv#1: Gin.",
            "a.jsonl#2: text: Ale.",
            "b.csv#1#2: Beer.",
            "b.csv#2: Wine.",
            "b.csv#4: Rum.",
        ];
        assert_eq!(world.rows(), expected, "{header}");
    }
    // Ids of the whole source are those of the same record.
    let mut world = World::new();
    world.options.columns =
        Some(sporran_documents::Columns { id: Some("id".into()), ..sporran_documents::Columns::default() });
    world.write("a.csv", "id,text\n1,Tea.\n");
    world.write("b.csv", "id,text\n1,Beer.\n2,Rum.\n");
    assert_eq!(world.rows(), ["1: text: Tea.", "2: text: Rum."]);
    assert_eq!(
        world.problems(),
        ["b.csv: 1 record has an id that an earlier record has; it was not read".to_owned()]
    );
}

#[test]
fn a_large_file_is_copied_as_a_whole() {
    let world = World::new();
    let row = |id: u64| format!("{id},{}\n", format!("w{id} ").repeat(100));
    world.write("big.csv", "n,text\n".to_owned() + &(0..30_000).map(row).collect::<String>());
    assert!(fs::metadata(world.path("docs/big.csv")).unwrap().len() > 8 << 20);
    world.write("z.txt", "one");
    assert_eq!(same(&world), (0, 0));
    world.write("z.txt", "two");
    assert_eq!(same(&world), (1, 0));
}

#[test]
fn a_file_that_changes_or_disappears_is_told_and_read_the_next_time() {
    let world = World::new();
    world.write("a.txt", "Tea.");
    world.write("b.txt", "Milk.");
    world.write("c.txt", "Beer.");
    let row = |id: u64| format!("{{\"id\":{id},\"text\":\"{}\"}}\n", format!("w{id} ").repeat(400));
    let rows = |from: u64| (from..from + 6000).map(row).collect::<String>();
    world.write("big.jsonl", rows(0));
    let listing = world.list();
    world.write("b.txt", "Milk and honey.");
    world.remove("c.txt");
    world.write("big.jsonl", rows(1));
    let build = |listing, strict| {
        Collection::open_or_build(listing, &world.options, strict, &world.path("indexes"), &mut |_| {})
    };
    let error = build(&listing, true).unwrap_err();
    assert!(error.is_input() && matches!(error, Error::Strict { .. }), "{error}");
    let collection = build(&listing, false).unwrap();
    let told = |collection: &Collection| -> Vec<String> {
        let problems = collection.summary().problems.iter();
        problems.map(|found| found.to_string().rsplit('/').next().unwrap().to_owned()).collect()
    };
    let [changed, gone] = ["changed", "disappeared"]
        .map(|what| format!("{what} while the source was read; the next run reads it again"));
    assert_eq!(
        told(&collection),
        [format!("b.txt: {changed}"), format!("big.jsonl: {changed}"), format!("c.txt: {gone}")]
    );
    assert_eq!((collection.summary().files, collection.summary().pages), (1, 1));
    assert_ne!(collection.content(), listing.content());
    collection.verify().unwrap();
    // The listed content is there again: the same listing reads the files.
    world.write("b.txt", "Milk.");
    world.write("c.txt", "Beer.");
    world.write("big.jsonl", rows(0));
    let again = world.list();
    assert_eq!(again.content(), listing.content());
    let collection = build(&again, true).unwrap();
    assert_eq!((collection.summary().files, collection.summary().pages), (4, 6003));
    assert_eq!((collection.content(), collection.summary().unchanged), (again.content().as_str(), 1));
    assert_eq!(same(&world).0, 1);
}
