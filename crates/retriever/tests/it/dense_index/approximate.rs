//! Graph and quantised indexes against exact search.

use super::*;

#[test]
fn a_graph_finds_nearly_all_that_an_exact_search_finds() {
    let place = tempfile::tempdir().unwrap();
    let (vectors, queries) = (clustered(3000, 24, 11), clustered(100, 24, 11));
    for similarity in [Similarity::InnerProduct, Similarity::Cosine] {
        let (dir, exact) = (place.path().join("graph"), place.path().join("exact"));
        build(&hnsw(40), similarity, &vectors, &dir).unwrap();
        build(&IndexOptions::default(), similarity, &vectors, &exact).unwrap();
        let exact = open(&IndexOptions::default(), similarity, &exact).unwrap();
        let exact = exact.search(&queries, 10, None).unwrap();
        let found_of = |width: usize| {
            let index = open(&hnsw(width), similarity, &dir).unwrap();
            index.verify().unwrap();
            let found = index.search(&queries, 10, None).unwrap();
            let mut both = 0;
            for ((exact, found), query) in exact.iter().zip(&found).zip(queries.rows()) {
                assert_eq!(found.len(), 10);
                assert!(found.is_sorted_by(|a, b| b.1 < a.1 || (a.1 == b.1 && a.0 < b.0)));
                for (id, score) in found {
                    let same = exact.iter().find(|(of, _)| of == id);
                    assert!(same.is_none_or(|(_, of)| (of - score).abs() < 1e-4));
                    both += usize::from(same.is_some());
                }
                let alone = index.search(&Embeddings::new(24, query.to_vec()).unwrap(), 10, None).unwrap();
                assert_eq!(alone[0], *found);
            }
            both as f64 / 1000.0
        };
        let (narrow, wide) = (found_of(20), found_of(200));
        assert!(narrow > 0.9 && wide > 0.99 && wide >= narrow, "{similarity:?} {narrow} {wide}");
        let report = open(&hnsw(40), similarity, &dir).unwrap().report();
        let recall = report.recall.unwrap();
        assert_eq!((recall.queries, recall.k), (500, 10));
        assert!(recall.recall > 0.95 && report.unrepaired == 0, "{report:?}");
    }
}

#[test]
fn a_graph_is_the_same_on_any_number_of_threads() {
    let place = tempfile::tempdir().unwrap();
    let vectors = clustered(1500, 16, 12);
    let dirs = [1, 3].map(|threads| {
        let dir = place.path().join(threads.to_string());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| build(&hnsw(40), Similarity::InnerProduct, &vectors, &dir)).unwrap();
        dir
    });
    assert_eq!(files(&dirs[0]), files(&dirs[1]));
}

#[test]
fn every_vector_of_a_graph_is_found_by_itself_and_by_a_filter() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("graph");
    // Many equal vectors, and one that is far from all.
    let mut values = clustered(1200, 16, 13).values().to_vec();
    for i in 0..300 {
        let from = values[..16].to_vec();
        values[i * 16..][..16].copy_from_slice(&from);
    }
    values[1199 * 16..].fill(-3.0);
    let vectors = Embeddings::new(16, values).unwrap();
    for storage in [VectorStorage::F16, VectorStorage::F32] {
        let IndexOptions::Hnsw(options) = hnsw(32) else { unreachable!() };
        let options = IndexOptions::Hnsw(HnswOptions { storage, ..options });
        build(&options, Similarity::Cosine, &vectors, &dir).unwrap();
        let index = open(&options, Similarity::Cosine, &dir).unwrap();
        let found = index.search(&vectors, 1, None).unwrap();
        for (id, found) in found.iter().enumerate() {
            let same = found[0].0 == id as u32 || found[0].1 > 0.999;
            assert!(same, "{id} {found:?} {:?}", index.report());
        }
        for modulus in [2, 7, 400] {
            let filter = |id: u32| id % modulus == 1;
            let found = index.search(&vectors, 5, Some(&filter)).unwrap();
            let there = (0..1200).filter(|id| filter(*id)).count();
            assert!(
                found
                    .iter()
                    .all(|found| found.len() == there.min(5) && found.iter().all(|(id, _)| filter(*id)))
            );
        }
    }
}

#[test]
fn small_graphs_answer_and_damaged_ones_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("graph");
    for count in [0, 1, 2, 40] {
        let vectors = random(count, 6, 14);
        build(&hnsw(8), Similarity::InnerProduct, &vectors, &dir).unwrap();
        let index = open(&hnsw(8), Similarity::InnerProduct, &dir).unwrap();
        let found = index.search(&random(1, 6, 15), 50, None).unwrap();
        assert_eq!(found[0].len(), count);
    }
    let vectors = clustered(800, 6, 16);
    build(&hnsw(8), Similarity::InnerProduct, &vectors, &dir).unwrap();
    for name in ["links", "upper"] {
        let path = dir.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, vec![0xfe; bytes.len()]).unwrap();
        let error = open(&hnsw(8), Similarity::InnerProduct, &dir).err().unwrap();
        assert!(error.to_string().contains("checksum") && error.to_string().contains(name), "{error}");
        fs::write(&path, bytes).unwrap();
    }
    assert!(open(&hnsw(8), Similarity::InnerProduct, &dir).is_ok());
}

fn hnsw_rs(search_width: usize) -> IndexOptions {
    IndexOptions::Hnsw(HnswOptions { library: HnswLibrary::HnswRs, search_width, ..HnswOptions::default() })
}

#[test]
fn a_graph_of_hnsw_rs_finds_nearly_all_and_opens_again_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let (vectors, queries) = (clustered(3000, 24, 11), clustered(100, 24, 11));
    for similarity in [Similarity::InnerProduct, Similarity::Cosine] {
        let dirs = [1, 3].map(|threads| {
            let dir = place.path().join(threads.to_string());
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| build(&hnsw_rs(64), similarity, &vectors, &dir)).unwrap();
            dir
        });
        assert_eq!(files(&dirs[0]), files(&dirs[1]));
        let found_of = |width: usize, k: usize| {
            let index = open(&hnsw_rs(width), similarity, &dirs[0]).unwrap();
            index.verify().unwrap();
            index.search(&queries, k, None).unwrap()
        };
        let found = found_of(100, 10);
        assert_eq!(found, found_of(100, 10));
        let index = open(&hnsw_rs(100), similarity, &dirs[1]).unwrap();
        let mut both = 0;
        for (query, found) in queries.rows().zip(&found) {
            assert_eq!(found.len(), 10);
            assert!(found.is_sorted_by(|a, b| b.1 < a.1 || (a.1 == b.1 && a.0 < b.0)));
            let exact = naive(&vectors, query, similarity, 10);
            for (id, score) in found {
                let same = exact.iter().find(|(of, _)| of == id);
                assert!(same.is_none_or(|(_, of)| (of - f64::from(*score)).abs() < 1e-4));
                both += usize::from(same.is_some());
            }
            let one = Embeddings::new(24, query.to_vec()).unwrap();
            assert_eq!(index.search(&one, 10, None).unwrap()[0], *found);
            let ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
            let scores: Vec<f32> = found.iter().map(|(_, score)| *score).collect();
            assert_eq!(index.scores(&one, &[ids]).unwrap()[0], scores);
        }
        let report = index.report();
        let recall = both as f64 / 1000.0;
        assert!(recall > 0.95, "{similarity:?} {recall} {report:?}");
        assert!(report.recall.unwrap().recall > 0.9 && report.lost == report.unrepaired, "{report:?}");
        // A width of an eighth of all vectors or more is an exact search.
        let exact = found_of(400, 10);
        for (query, found) in queries.rows().zip(&exact) {
            let ids: Vec<u32> = naive(&vectors, query, similarity, 10).iter().map(|(id, _)| *id).collect();
            assert!(found.iter().map(|(id, _)| *id).eq(ids));
        }
    }
}

#[test]
fn a_filter_holds_in_a_search_of_hnsw_rs() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("graph");
    let vectors = clustered(1200, 16, 13);
    let IndexOptions::Hnsw(options) = hnsw_rs(32) else { unreachable!() };
    for (storage, parallel_build) in [(VectorStorage::F16, false), (VectorStorage::F32, true)] {
        let options = IndexOptions::Hnsw(HnswOptions { storage, parallel_build, ..options.clone() });
        build(&options, Similarity::Cosine, &vectors, &dir).unwrap();
        let index = open(&options, Similarity::Cosine, &dir).unwrap();
        for modulus in [2, 7, 400] {
            let filter = |id: u32| id % modulus == 1;
            let found = index.search(&vectors, 5, Some(&filter)).unwrap();
            let there = (0..1200).filter(|id| filter(*id)).count();
            for found in &found {
                assert!(found.len() == there.min(5) && found.iter().all(|(id, _)| filter(*id)));
            }
        }
        assert!(index.search(&vectors, 0, None).unwrap().iter().all(Vec::is_empty));
    }
}

#[test]
fn small_graphs_of_hnsw_rs_answer_and_damaged_and_broken_ones_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("graph");
    let similarity = Similarity::InnerProduct;
    for count in [0, 1, 2, 40] {
        build(&hnsw_rs(8), similarity, &random(count, 6, 14), &dir).unwrap();
        let index = open(&hnsw_rs(8), similarity, &dir).unwrap();
        assert_eq!(index.search(&random(1, 6, 15), 50, None).unwrap()[0].len(), count);
    }
    build(&hnsw_rs(8), similarity, &clustered(800, 6, 16), &dir).unwrap();
    for name in ["graph.hnsw.graph", "graph.hnsw.data", "vectors"] {
        let path = dir.join(name);
        let bytes = fs::read(&path).unwrap();
        for damaged in [vec![0xfe; bytes.len()], bytes[..bytes.len() - 1].to_vec()] {
            fs::write(&path, damaged).unwrap();
            let error = open(&hnsw_rs(8), similarity, &dir).err().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(open(&hnsw_rs(8), similarity, &dir).is_ok());
    // An index of one library does not open as one of the other.
    let other = open(&hnsw(8), similarity, &dir);
    assert!(matches!(other, Err(Error::OtherOptions { .. })));
    // With few links many vectors cannot be reached. An existing index stays.
    let IndexOptions::Hnsw(options) = hnsw_rs(8) else { unreachable!() };
    let few = IndexOptions::Hnsw(HnswOptions { links: 2, construction_width: 2, ..options });
    let broken = build(&few, similarity, &random(3000, 24, 20), &dir);
    assert!(matches!(broken, Err(Error::BrokenGraph { vectors: 3000, .. })), "{broken:?}");
    assert!(open(&hnsw_rs(8), similarity, &dir).is_ok());
}

#[test]
fn codes_find_what_stands_out_and_rescoring_nearly_all() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let (vectors, queries) = (clustered(3000, 24, 11), clustered(100, 24, 11));
    for (options, least) in [
        (pq(PqBits::Four, 0), 0.4),
        (pq(PqBits::Eight, 0), 0.7),
        (pq(PqBits::Four, 30), 0.97),
        (pq(PqBits::Eight, 10), 0.99),
    ] {
        for similarity in [Similarity::InnerProduct, Similarity::Cosine] {
            build(&options, similarity, &vectors, &dir).unwrap();
            let index = open(&options, similarity, &dir).unwrap();
            index.verify().unwrap();
            let found = index.search(&queries, 10, None).unwrap();
            let mut both = 0;
            for (query, found) in queries.rows().zip(&found) {
                assert_eq!(found.len(), 10);
                assert!(found.is_sorted_by(|a, b| b.1 < a.1 || (a.1 == b.1 && a.0 < b.0)));
                let exact = naive(&vectors, query, similarity, 10);
                both += found.iter().filter(|(id, _)| exact.iter().any(|(of, _)| of == id)).count();
                let alone = index.search(&Embeddings::new(24, query.to_vec()).unwrap(), 10, None).unwrap();
                assert_eq!(alone[0], *found);
            }
            let recall = both as f64 / 1000.0;
            assert!(recall > least, "{options:?} {similarity:?} {recall}");
            let measured = index.report().recall.unwrap().recall;
            assert!(measured > least - 0.1, "{options:?} {similarity:?} {measured}");
        }
    }
}

#[test]
fn codes_hold_to_a_filter_and_are_the_same_on_any_number_of_threads() {
    let place = tempfile::tempdir().unwrap();
    let vectors = clustered(1000, 24, 17);
    for options in [pq(PqBits::Four, 0), pq(PqBits::Eight, 3)] {
        let dirs = [1, 3].map(|threads| {
            let dir = place.path().join(threads.to_string());
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| build(&options, Similarity::InnerProduct, &vectors, &dir)).unwrap();
            dir
        });
        assert_eq!(files(&dirs[0]), files(&dirs[1]));
        let index = open(&options, Similarity::InnerProduct, &dirs[0]).unwrap();
        let filter = |id: u32| id % 300 == 7;
        let found = index.search(&vectors, 9, Some(&filter)).unwrap();
        assert!(found.iter().all(|found| found.len() == 4 && found.iter().all(|(id, _)| filter(*id))));
        assert!(index.search(&vectors, 0, None).unwrap().iter().all(Vec::is_empty));
    }
}

#[test]
fn few_vectors_can_be_coded_and_odd_parts_cannot() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    for count in [0, 1, 5] {
        let vectors = random(count, 24, 18);
        build(&pq(PqBits::Eight, 0), Similarity::Cosine, &vectors, &dir).unwrap();
        let index = open(&pq(PqBits::Eight, 0), Similarity::Cosine, &dir).unwrap();
        let found = index.search(&vectors, 9, None).unwrap();
        // With one code a vector nothing is lost.
        assert!(found.iter().enumerate().all(|(at, found)| found.len() == count && found[0].0 == at as u32));
    }
    for (bits, parts) in [(PqBits::Eight, 7), (PqBits::Eight, 0), (PqBits::Four, 3), (PqBits::Eight, 48)] {
        let options = IndexOptions::Pq(PqOptions { bits, parts: Some(parts), ..PqOptions::default() });
        let failed = build(&options, Similarity::Cosine, &random(3, 24, 19), &dir);
        assert!(matches!(failed, Err(Error::Option { option: "index.parts", .. })), "{parts}");
    }
}
