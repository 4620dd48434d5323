use proptest::prelude::*;

use super::{super::header::Header, *};
use crate::layout::{self, Folder};

struct Ratio;

impl Scorer for Ratio {
    fn impact(&self, passage: u32, count: u32) -> f32 {
        count as f32 / (count as f32 + 1.0 + (passage % 7) as f32)
    }
}

fn postings() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop_oneof![Just(127usize), Just(128), Just(129), Just(256), 1usize..700].prop_flat_map(|length| {
        let counts = prop_oneof![8 => Just(1u32), 2 => 1u32..9, 1 => 1u32..5_000_000];
        prop::collection::vec((prop_oneof![9 => 1u32..5, 1 => 1u32..1000], counts), length).prop_map(
            |steps| {
                let mut next = 0;
                steps
                    .into_iter()
                    .map(|(step, count)| {
                        next += step;
                        (next - 1, count)
                    })
                    .collect()
            },
        )
    })
}

/// Writes one list after another one, so that offsets are not all zero.
fn with_cursor(list: &[(u32, u32)], check: impl FnOnce(Cursor<'_>)) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("index");
    let folder = Folder::create("bm25", (&path).into()).unwrap();
    let mut writer = PostingsWriter::create(&folder).unwrap();
    let other: Vec<_> = (0..130).map(|passage| (passage * 3, 1)).collect();
    writer.put(&other, &Ratio).unwrap();
    let entry = writer.put(list, &Ratio).unwrap();
    let header = Header {
        kind: "bm25".into(),
        options: serde_json::Value::Null,
        passages: u32::MAX,
        passages_hash: String::new(),
        terms: 2,
        postings: 0,
        tokens: 0,
        sections: writer.finish().unwrap().into(),
    };
    folder.finish(&header).unwrap();
    let (_, mut files) = layout::open::<Header>(&path, "bm25", "").unwrap();
    let postings = Postings::open(&mut files).unwrap();
    check(postings.cursor(1, &entry, 2.0).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cursor_gives_back_every_posting_window_by_window(list in postings(), width in 1usize..600) {
        with_cursor(&list, |mut cursor| {
            let end = list.last().unwrap().0 + 1;
            for from in (0..end).step_by(width) {
                let to = from + width as u32;
                let (bound, _) = cursor.window_bound(from, to).unwrap();
                let mut scores = vec![0.0; width];
                let mut touched = Vec::new();
                cursor.accumulate(from, &mut scores, &Ratio, |place| touched.push(place)).unwrap();
                let mut expected = vec![0.0; width];
                let mut places = Vec::new();
                for &(passage, count) in list.iter().filter(|posting| (from..to).contains(&posting.0)) {
                    places.push((passage - from) as usize);
                    expected[(passage - from) as usize] = 2.0 * Ratio.impact(passage, count);
                }
                assert_eq!(scores, expected);
                assert_eq!(touched, places);
                assert!(scores.iter().all(|&score| score <= bound && bound <= cursor.bound));
            }
        });
    }

    #[test]
    fn a_cursor_scores_any_rising_choice_of_passages(list in postings(), step in 1usize..400) {
        with_cursor(&list, |mut cursor| {
            for passage in (0..list.last().unwrap().0 + 3).step_by(step) {
                let expected = list
                    .iter()
                    .find(|posting| posting.0 == passage)
                    .map_or(0.0, |&(_, count)| 2.0 * Ratio.impact(passage, count));
                assert_eq!(cursor.score(passage, &Ratio).unwrap(), expected);
            }
        });
    }
}
