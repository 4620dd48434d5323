//! Searches among the passages that a filter over metadata accepts.

use std::path::Path;

use proptest::prelude::*;
use sporran_kilt::{PassageId, PassageSplit, PassageStore, Query, store::BuildOptions};
use sporran_retriever::{
    Filter, FilterOptions, Filtered, Retriever,
    sparse::{Bm25, Bm25Options, Build},
};

/// A page of one passage: its words, its language and its year.
type Page = (Vec<String>, String, Option<i16>);

/// Whether a filter accepts a page, by its definition.
type Wanted<'a> = Box<dyn Fn(&Page) -> bool + 'a>;

fn store(folder: &Path, pages: &[Page]) -> PassageStore {
    let line = |(id, (words, lang, year)): (usize, &Page)| {
        let mut page = serde_json::json!({"wikipedia_id": id.to_string(), "wikipedia_title": format!("T{id}"),
            "text": [format!("T{id}"), words.join(" ")], "lang": lang});
        if let Some(year) = year {
            page["metadata"] = serde_json::json!({"year": year});
        }
        page.to_string()
    };
    let source = folder.join("pages.jsonl");
    let lines: Vec<String> = pages.iter().enumerate().map(line).collect();
    std::fs::write(&source, lines.join("\n")).unwrap();
    let options = BuildOptions { source, redirects: None, split: PassageSplit::Paragraph };
    PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap()
}

fn index(folder: &Path, store: &PassageStore) -> Bm25 {
    let passages = (0..store.len() as u32).map(PassageId).map(|id| {
        Ok::<_, std::convert::Infallible>((id, store.page_title(store.page_of(id)), store.text(id)))
    });
    let folder = folder.join("index");
    Bm25::build(&Bm25Options::default(), passages, store.hash(), &folder, Build::new(&mut |_| {})).unwrap();
    Bm25::open(&folder, store.hash()).unwrap()
}

fn page() -> impl Strategy<Value = Page> {
    let words = prop::collection::vec("[a-e]{2}", 0..20);
    (words, "en|de|fr", prop::option::of(1990i16..2010))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn filtered_bm25_is_the_full_ranking_without_the_others(
        mut pages in prop::collection::vec(page(), 1..80),
        asked in prop::collection::vec("[a-e]{2}", 1..8),
        (least, most) in (1985i16..2015, 1985i16..2015),
        k in 1usize..100,
    ) {
        // A key that no page has is an error.
        pages[0].2.get_or_insert(2000);
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), &pages);
        prop_assert_eq!(store.len(), pages.len());
        let index = index(folder.path(), &store);
        let query = Query::of_text("q", asked.join(" "));
        let full = index.retrieve_exhaustively(std::slice::from_ref(&query), pages.len()).unwrap().remove(0);

        let any = r#"{"any":[{"key":"lang","any-of":["de","fr"]},{"key":"year","exists":false}]}"#;
        let cases: [(FilterOptions, Wanted<'_>); 5] = [
            (FilterOptions::parse("lang=en").unwrap(), Box::new(|page| page.1 == "en")),
            (FilterOptions::parse("lang!=en").unwrap(), Box::new(|page| page.1 != "en")),
            (
                FilterOptions::parse(&format!("lang=de AND year>={least}")).unwrap(),
                Box::new(|page| page.1 == "de" && page.2.is_some_and(|year| year >= least)),
            ),
            (
                FilterOptions::parse(&format!("year>={least} AND year<={most}")).unwrap(),
                Box::new(|page| page.2.is_some_and(|year| (least..=most).contains(&year))),
            ),
            (serde_json::from_str(any).unwrap(), Box::new(|page| page.1 != "en" || page.2.is_none())),
        ];
        for (options, wanted) in cases {
            let selection = Filter::new(&options, &store).unwrap().select(&store).unwrap();
            let mut expected = full.clone();
            expected.retain(|hit| wanted(&pages[hit.passage.index()]));
            expected.truncate(k);
            let filter = |passage| selection.contains(passage);
            let queries = std::slice::from_ref(&query);
            prop_assert_eq!(&index.retrieve_filtered(queries, k, &filter).unwrap()[0], &expected);
            let boxed: Box<dyn Retriever> = Box::new(Bm25::open(folder.path().join("index"), store.hash()).unwrap());
            prop_assert_eq!(&Filtered::new(boxed, filter).retrieve(queries, k).unwrap()[0], &expected);
        }
    }
}
