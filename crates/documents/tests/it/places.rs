//! The passages of documents and the places where their texts are.

use sporran_documents::{Columns, OneOrMore};
use sporran_kilt::{
    Field, PassageId, PassageSplit,
    passage::{Unit, Windows},
};

use crate::World;

#[test]
fn passages_of_text_markdown_and_html_have_lines_and_sections() {
    let world = World::new();
    world.write("a_note.txt", "One\ntwo.\n\nThree.\n");
    world.write("b.md", "# Tea\n\nLead.\n\n## Brew\n\n### Hot\n\nBoil\nit.\n\n- pour\n\n## Drink\n");
    world.write("c.html", "<title>Milk</title>\n<h1>Cow</h1>\n<p>It is\nwhite.</p>");
    let expected = [
        "a_note.txt, line 1, paragraphs 1 to 1: One two.",
        "a_note.txt, line 4, paragraphs 2 to 2: Three.",
        "b.md, line 3, paragraphs 1 to 1: Lead.",
        "b.md, line 5, Brew > Hot, paragraphs 2 to 4: Brew Hot Boil it.",
        "b.md, line 12, Brew > Hot, paragraphs 5 to 5: pour",
        "b.md, line 14, Drink, paragraphs 6 to 6: Drink",
        "c.html, line 2, Cow, paragraphs 1 to 2: Cow It is white.",
    ];
    assert_eq!(world.passages(PassageSplit::Paragraph), expected);
    let expected = [
        "a_note.txt, line 1, paragraphs 1 to 2: One two. Three.",
        "b.md, line 3, paragraphs 1 to 1: Lead.",
        "b.md, line 5, Brew > Hot, paragraphs 2 to 5: Brew Hot Boil it. pour",
        "b.md, line 14, Drink, paragraphs 6 to 6: Drink",
        "c.html, line 2, Cow, paragraphs 1 to 2: Cow It is white.",
    ];
    assert_eq!(world.passages(PassageSplit::Section), expected);
    let store = world.store(&world.collect().unwrap(), PassageSplit::Page);
    let titles: Vec<String> = (0..3).map(|id| store.passage(PassageId(id)).title).collect();
    assert_eq!(titles, ["a note", "Tea", "Milk"]);
    assert_eq!(store.passage(PassageId(1)).text, "Lead. Brew Hot Boil it. pour Drink");
}

#[test]
fn a_passage_that_starts_within_a_paragraph_has_its_own_line() {
    let world = World::new();
    let lines: Vec<String> = (1..=60).map(|line| format!("W{line} x y z.")).collect();
    world.write("long.txt", lines.join("\n"));
    let windows = |unit, size, overlap| PassageSplit::Windows(Windows { unit, size, overlap });
    for (split, every) in
        [(PassageSplit::Words, 25), (windows(Unit::Sentences, 10, 5), 5), (windows(Unit::Words, 40, 0), 10)]
    {
        let found = world.passages(split);
        for (at, passage) in found.iter().enumerate() {
            let line = at * every + 1;
            let expected = format!("long.txt, line {line}, paragraphs 1 to 1: W{line} x y z.");
            assert!(passage.starts_with(&expected), "{passage}");
        }
        assert!(found.last().unwrap().ends_with("W60 x y z."), "{split:?}");
    }
}

#[test]
fn rows_of_tables_and_objects_are_pages_with_their_lines() {
    let mut world = World::new();
    world.write(
        "people.csv",
        "id,name,bio,year\r\n7,Ann,\"She\r\nsings.\",1990\r\n9,Bob,,1991\r\n11,Eve,He dances.,x\r\n",
    );
    world.write("list.jsonl", "{\"a\": \"b\", \"n\": [1, 2]}\n\n{\"a\": \"c\"}\n");
    let expected = [
        "list.jsonl, line 1, paragraphs 1 to 1: a: b n: 1, 2",
        "list.jsonl, line 3, paragraphs 1 to 1: a: c",
        "people.csv, line 2, paragraphs 1 to 1: id: 7 name: Ann bio: She\nsings. year: 1990",
        "people.csv, line 4, paragraphs 1 to 1: id: 9 name: Bob year: 1991",
        "people.csv, line 5, paragraphs 1 to 1: id: 11 name: Eve bio: He dances. year: x",
    ];
    let found: Vec<String> = world
        .passages(PassageSplit::Page)
        .iter()
        .map(|text| {
            let (place, text) = text.split_once(": ").unwrap();
            let text = text
                .replace("\r\n", "\n")
                .replace("\nname", " name")
                .replace("\nbio", " bio")
                .replace("\nyear", " year")
                .replace("\nn:", " n:");
            format!("{place}: {text}")
        })
        .collect();
    assert_eq!(found, expected);
    // With columns, a file that lacks them is told.
    world.options.columns = Some(Columns {
        id: Some("id".into()),
        title: Some("name".into()),
        text: Some("bio".into()),
        metadata: Some(OneOrMore::from(vec!["year".to_owned()])),
    });
    let collection = world.collect().unwrap();
    let store = world.store(&collection, PassageSplit::Page);
    let ann = store.passage(PassageId(0));
    assert_eq!((ann.page_id.as_str(), ann.title.as_str(), ann.file.line), ("7", "Ann", Some(2)));
    assert_eq!(ann.metadata.get("year"), Some(&Field::Number(1990.into())));
    assert_eq!(store.page_by_id("11").map(|page| store.page_title(page)), Some("Eve"));
    assert_eq!(store.len(), 2);
    let problems = world.problems();
    assert!(
        problems.contains(&"list.jsonl:1: expected a column `id`, found a, n".to_owned()),
        "{problems:?}"
    );
    assert!(problems.contains(&"list.jsonl: has no record with text".to_owned()), "{problems:?}");
    assert!(problems.contains(&"people.csv: 1 record has no text".to_owned()), "{problems:?}");
}

#[test]
fn other_columns_of_records_with_ids_and_texts_are_metadata() {
    let world = World::new();
    world.write(
        "a.jsonl",
        "{\"id\":\"1\",\"text\":\"Tea.\",\"lang\":\"en\",\"year\":1990,\"tags\":[\"a\"]}\n",
    );
    world.write("b.csv", "id,text,lang,price\n2,Milk.,de,1.50\n");
    let store = world.store(&world.collect().unwrap(), PassageSplit::Page);
    let (tea, milk) = (store.passage(PassageId(0)), store.passage(PassageId(1)));
    assert_eq!((tea.text.as_str(), milk.text.as_str()), ("Tea.", "Milk."));
    assert_eq!(tea.metadata.get("lang"), Some(&Field::Text("en".into())));
    assert_eq!(tea.metadata.get("year"), Some(&Field::Number(1990.into())));
    assert!(tea.metadata.get("tags").is_some());
    assert_eq!(milk.metadata.get("lang"), Some(&Field::Text("de".into())));
    let price = milk.metadata.get("price");
    assert!(matches!(price, Some(Field::Number(price)) if price.as_f64() == Some(1.5)), "{price:?}");
}

#[test]
fn layouts_of_other_systems_keep_their_ids() {
    let world = World::new();
    world.write(
        "beir.jsonl",
        "{\"_id\":\"d1\",\"title\":\"T\",\"text\":\"x\",\"metadata\":{\"lang\":\"en\"}}",
    );
    world.write("dpr.tsv", "id\ttext\ttitle\n5\t\"a \"\"b\"\"\"\tFive\n");
    world.write(
        "kilt.jsonl",
        "{\"wikipedia_id\":\"k\",\"wikipedia_title\":\"K\",\"text\":[\"K\",\"y\",\"Section::::S.\",\"z\"]}\n",
    );
    let store = world.store(&world.collect().unwrap(), PassageSplit::Paragraph);
    let found: Vec<_> = (0..store.len() as u32)
        .map(|id| store.passage(PassageId(id)))
        .map(|passage| (passage.page_id, passage.text, passage.file.line))
        .collect();
    let of = |id: &str, text: &str, line: Option<u64>| (id.to_owned(), text.to_owned(), line);
    assert_eq!(
        found,
        [of("d1", "x", Some(1)), of("5", "a \"b\"", Some(2)), of("k", "y", None), of("k", "z", None)]
    );
    assert_eq!(store.passage(PassageId(3)).section, "Section::::S.");
    assert_eq!(store.passage(PassageId(0)).metadata.get("source"), Some(&Field::Text("beir.jsonl".into())));
}
