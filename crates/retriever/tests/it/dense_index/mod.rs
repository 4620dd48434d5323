//! Dense indexes on disk: compared with a naive search, killed and resumed, and with all kinds of errors.

mod approximate;

use std::{
    cell::{Cell, RefCell},
    fs,
    path::Path,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_retriever::{
    Error, Result,
    dense::{
        Embeddings, FlatOptions, HnswLibrary, HnswOptions, Index, IndexOptions, Origin, PqBits, PqOptions,
        Similarity, Storage, VectorIndex, VectorStorage,
    },
};

const ORIGIN: Origin<'_> = Origin { encoder_hash: "e", passages_hash: "p" };
const DIM: usize = 40;

fn flat(storage: Storage, rescore: usize, rescore_storage: VectorStorage) -> IndexOptions {
    IndexOptions::Flat(FlatOptions { storage, rescore, rescore_storage })
}

fn random(count: usize, dim: usize, seed: u64) -> Embeddings {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values = (0..count * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    Embeddings::new(dim, values).unwrap()
}

/// Vectors from a number on, in portions.
fn portions(vectors: &Embeddings, from: u32) -> impl Iterator<Item = Result<Embeddings>> {
    let (dim, rest) = (vectors.dim(), &vectors.values()[from as usize * vectors.dim()..]);
    rest.chunks(Index::PORTION * dim).map(move |values| Embeddings::new(dim, values.to_vec()))
}

fn build(options: &IndexOptions, similarity: Similarity, vectors: &Embeddings, dir: &Path) -> Result<()> {
    let vectors_from = |from| portions(vectors, from);
    Index::build(options, similarity, vectors.dim(), ORIGIN, vectors_from, dir, &mut |_| {})
}

fn open(options: &IndexOptions, similarity: Similarity, dir: &Path) -> Result<Index> {
    Index::open(options, similarity, ORIGIN, dir)
}

/// The nearest vectors by definition: all scores in f64, sorted.
fn naive(vectors: &Embeddings, query: &[f32], similarity: Similarity, k: usize) -> Vec<(u32, f64)> {
    let product =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let length =
        |a: &[f32]| if similarity == Similarity::Cosine { product(a, a).sqrt().max(1e-30) } else { 1.0 };
    let differences = |row: &[f32], of: fn(f64) -> f64| -> f64 {
        row.iter().zip(query).map(|(a, b)| of(f64::from(*a) - f64::from(*b))).sum()
    };
    let score = |row: &[f32]| match similarity {
        Similarity::Euclidean => -differences(row, |difference| difference * difference).sqrt(),
        Similarity::Manhattan => -differences(row, f64::abs),
        _ => product(row, query) / length(row) / length(query),
    };
    let scores = vectors.rows().map(score);
    let mut found: Vec<(u32, f64)> = (0..).zip(scores).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.truncate(k);
    found
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn exact_search_finds_what_the_definition_finds() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let (vectors, queries) = (random(2500, DIM, 1), random(20, DIM, 2));
    // Scores are sums of 40 products of numbers up to 1 and seldom exceed 10. Half a step of f16 is 2^-11 of a value, of
    // int8 1/254 of the greatest of a vector, in both factors: random walks of 40 such errors.
    let root = (DIM as f64).sqrt();
    for (options, bound) in [
        (flat(Storage::F32, 0, VectorStorage::F16), 1e-5),
        (flat(Storage::F16, 0, VectorStorage::F16), 2.0 * root / 2048.0),
        (flat(Storage::Int8, 0, VectorStorage::F16), 4.0 * root / 254.0),
        (flat(Storage::Int8, 4, VectorStorage::F16), 2.0 * root / 2048.0),
        (flat(Storage::Int8, 4, VectorStorage::F32), 1e-5),
    ] {
        let all =
            [Similarity::InnerProduct, Similarity::Cosine, Similarity::Euclidean, Similarity::Manhattan];
        for similarity in all {
            if similarity.is_distance() && options != flat(Storage::F32, 0, VectorStorage::F16) {
                let error = build(&options, similarity, &vectors, &dir).unwrap_err();
                assert!(matches!(error, Error::Option { option: "index", .. }), "{error}");
                continue;
            }
            build(&options, similarity, &vectors, &dir).unwrap();
            let index = open(&options, similarity, &dir).unwrap();
            index.verify().unwrap();
            assert_eq!((index.len(), index.dim(), index.is_empty()), (2500, DIM, false));
            let found = index.search(&queries, 10, None).unwrap();
            for ((query, found), at) in queries.rows().zip(&found).zip(0..) {
                let all = naive(&vectors, query, similarity, 2500);
                assert_eq!(found.len(), 10);
                for (rank, (id, score)) in found.iter().enumerate() {
                    let (_, expected) = all.iter().find(|(of, _)| of == id).unwrap();
                    assert!((f64::from(*score) - expected).abs() < bound, "{options:?} {similarity:?}");
                    // The exact ones, or in f16 and int8 at least one that is as good up to the rounding.
                    assert!(all[rank].1 - expected < 2.0 * bound, "{options:?} {similarity:?} {at}");
                    if bound == 1e-5 {
                        assert_eq!(*id, all[rank].0, "{options:?} {similarity:?} {at}");
                    }
                }
            }
        }
    }
}

#[test]
fn equal_scores_are_ordered_by_number_and_a_filter_holds() {
    let place = tempfile::tempdir().unwrap();
    // Vector i is one of 7, so that each score is there 300 times.
    let seven = random(7, DIM, 3);
    let values = (0..2100).flat_map(|i| seven.values()[i % 7 * DIM..][..DIM].to_vec()).collect();
    let vectors = Embeddings::new(DIM, values).unwrap();
    let query = random(1, DIM, 4);
    let nearest = naive(&seven, query.values(), Similarity::InnerProduct, 1)[0].0;
    for options in [
        flat(Storage::F32, 0, VectorStorage::F16),
        flat(Storage::F16, 0, VectorStorage::F16),
        flat(Storage::Int8, 2, VectorStorage::F16),
    ] {
        let dir = place.path().join("index");
        build(&options, Similarity::InnerProduct, &vectors, &dir).unwrap();
        let index = open(&options, Similarity::InnerProduct, &dir).unwrap();
        let ids = |filter: Option<&(dyn Fn(u32) -> bool + Sync)>| -> Vec<u32> {
            index.search(&query, 20, filter).unwrap()[0].iter().map(|(id, _)| *id).collect()
        };
        assert!(ids(None).into_iter().eq((0..20).map(|i| 7 * i + nearest)), "{options:?}");
        assert!(ids(Some(&|id| id >= 700)).into_iter().eq((100..120).map(|i| 7 * i + nearest)));
        assert_eq!(ids(Some(&|id| id == 5)), [5]);
        assert!(index.search(&query, 0, None).unwrap()[0].is_empty());
        assert_eq!(index.search(&query, 9999, None).unwrap()[0].len(), 2100);
    }
}

#[test]
fn a_killed_build_goes_on_where_it_stopped_and_gives_the_same_bytes() {
    let place = tempfile::tempdir().unwrap();
    let vectors = random(3 * Index::PORTION + 100, 8, 5);
    let options = flat(Storage::Int8, 3, VectorStorage::F16);
    let whole = place.path().join("whole");
    let building = place.path().join(".whole.building");
    // The leftovers of a kill after two portions, during the write of the third and its line.
    let killed = place.path().join("killed");
    let vectors_from = |from| {
        portions(&vectors, from).enumerate().map(|(at, portion)| {
            if at == 2 {
                fs::create_dir(&killed).unwrap();
                for (name, mut bytes) in files(&building) {
                    bytes.extend(if name == "journal" { b"30".to_vec() } else { vec![7; 1001] });
                    fs::write(killed.join(name), bytes).unwrap();
                }
            }
            portion
        })
    };
    Index::build(&options, Similarity::Cosine, 8, ORIGIN, vectors_from, &whole, &mut |_| {}).unwrap();

    let again = place.path().join("again");
    let rest = place.path().join(".again.building");
    for (key, first) in [(ORIGIN, 2 * Index::PORTION as u32), (Origin { encoder_hash: "other", ..ORIGIN }, 0)]
    {
        fs::create_dir(&rest).unwrap();
        files(&killed).into_iter().for_each(|(name, bytes)| fs::write(rest.join(name), bytes).unwrap());
        let asked = Cell::new(None);
        let vectors_from = |from| {
            asked.set(Some(from));
            portions(&vectors, from)
        };
        Index::build(&options, Similarity::Cosine, 8, key, vectors_from, &again, &mut |_| {}).unwrap();
        // With another encoder nothing can be reused.
        assert_eq!(asked.get(), Some(first));
        if first > 0 {
            assert_eq!(files(&again), files(&whole));
        }
        assert!(!rest.exists());
    }
    assert!(files(&whole).iter().all(|(name, _)| ["header", "panels", "vectors"].contains(&name.as_str())));
}

#[test]
fn a_failed_build_keeps_its_vectors_and_the_index_that_was_there() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let vectors = random(2 * Index::PORTION + 5, 4, 6);
    let options = IndexOptions::default();
    build(&options, Similarity::InnerProduct, &random(3, 4, 7), &dir).unwrap();
    let failing = |from| {
        let failure = Err(Error::Passages { passage: 9, source: "gone".into() });
        portions(&vectors, from).take(1).chain([failure])
    };
    let origin = Origin { passages_hash: "other", ..ORIGIN };
    let similarity = Similarity::InnerProduct;
    let failed = Index::build(&options, similarity, 4, origin, failing, &dir, &mut |_| {});
    assert!(matches!(failed, Err(Error::Passages { passage: 9, .. })));
    assert_eq!(open(&options, similarity, &dir).unwrap().len(), 3);
    let reports = RefCell::new(Vec::new());
    let vectors_from = |from| portions(&vectors, from);
    Index::build(&options, similarity, 4, origin, vectors_from, &dir, &mut |at| {
        reports.borrow_mut().push(at)
    })
    .unwrap();
    assert_eq!(format!("{:?}", reports.borrow()[0]), format!("Encoded({})", Index::PORTION));
    assert_eq!(Index::open(&options, similarity, origin, &dir).unwrap().len(), 2 * Index::PORTION + 5);
}

#[test]
fn an_index_of_no_vectors_finds_nothing() {
    let place = tempfile::tempdir().unwrap();
    for options in [flat(Storage::F32, 0, VectorStorage::F16), flat(Storage::Int8, 2, VectorStorage::F32)] {
        let dir = place.path().join("index");
        let none = |_| [Embeddings::new(4, Vec::new())];
        Index::build(&options, Similarity::Cosine, 4, ORIGIN, none, &dir, &mut |_| {}).unwrap();
        let index = open(&options, Similarity::Cosine, &dir).unwrap();
        assert!(index.is_empty());
        assert_eq!(index.search(&random(2, 4, 9), 3, None).unwrap(), [vec![], vec![]]);
    }
}

#[test]
fn what_is_not_this_index_is_an_error_that_says_so() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let options = flat(Storage::Int8, 2, VectorStorage::F16);
    let similarity = Similarity::InnerProduct;
    let fresh = || build(&options, similarity, &random(100, 8, 10), &dir).unwrap();
    let at = |origin| Index::open(&options, similarity, origin, &dir).err().unwrap();
    fresh();
    assert!(matches!(at(Origin { encoder_hash: "f", ..ORIGIN }), Error::OtherEncoder { .. }));
    assert!(matches!(at(Origin { passages_hash: "q", ..ORIGIN }), Error::OtherPassages { .. }));
    let other =
        |options: &IndexOptions, similarity| open(options, similarity, &dir).err().unwrap().to_string();
    let error = other(&IndexOptions::default(), similarity);
    assert!(error.contains(r#""storage":"f32""#) && error.contains("build the index again"), "{error}");
    assert!(other(&options, Similarity::Cosine).contains("cosine"));
    // The number of rescored vectors is a search option.
    assert!(open(&flat(Storage::Int8, 9, VectorStorage::F16), similarity, &dir).is_ok());

    let edit = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(dir.join(name)).unwrap();
        change(&mut bytes);
        fs::write(dir.join(name), bytes).unwrap();
    };
    for name in ["panels", "vectors"] {
        edit(name, &|bytes| bytes[77] ^= 1);
        let error = at(ORIGIN);
        assert!(
            matches!(&error, Error::Kilt(sporran_kilt::Error::Checksum { path, .. }) if path.ends_with(name)),
            "{error}"
        );
        fresh();
        edit(name, &|bytes| bytes.truncate(bytes.len() - 1));
        assert!(matches!(at(ORIGIN), Error::Length { path, .. } if path.ends_with(name)));
        fresh();
    }
    edit("header", &|bytes| bytes["sporran-index ".len()] = b'7');
    assert!(matches!(at(ORIGIN), Error::Version { found: 7, .. }));
    fresh();
    edit("header", &|bytes| {
        let at = bytes.len() - 9;
        bytes[at] ^= 1;
    });
    assert!(matches!(at(ORIGIN), Error::Header { .. }));
}

#[test]
fn vectors_that_cannot_be_kept_or_searched_for_are_errors() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let vectors = |value: f32| Embeddings::new(2, vec![1.0, 2.0, 3.0, value]).unwrap();
    let half = flat(Storage::F16, 0, VectorStorage::F16);
    for (options, value) in [
        (IndexOptions::default(), f32::NAN),
        (IndexOptions::default(), f32::INFINITY),
        (IndexOptions::default(), 1e30),
        (half.clone(), 65_520.0),
    ] {
        let failed = build(&options, Similarity::InnerProduct, &vectors(value), &dir);
        assert!(matches!(failed, Err(Error::Vector { vector: 1, .. })), "{value} {failed:?}");
        fs::remove_dir_all(place.path().join(".index.building")).unwrap();
    }
    build(&half, Similarity::InnerProduct, &vectors(65_504.0), &dir).unwrap();
    let index = open(&half, Similarity::InnerProduct, &dir).unwrap();
    assert!(matches!(index.search(&vectors(f32::NAN), 1, None), Err(Error::Vector { vector: 1, .. })));
    let wide = index.search(&random(1, 3, 1), 1, None).unwrap_err().to_string();
    assert!(wide.contains("expected 2 values, as the index has, found 3 values"), "{wide}");
}

/// Vectors in clusters, like those of texts.
fn clustered(count: usize, dim: usize, seed: u64) -> Embeddings {
    let centres = random(count / 20 + 1, dim, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 1);
    let mut values = Vec::with_capacity(count * dim);
    for _ in 0..count {
        let centre = rng.random_range(0..centres.len()) * dim;
        values.extend(
            centres.values()[centre..][..dim].iter().map(|value| value + rng.random_range(-0.5..0.5)),
        );
    }
    Embeddings::new(dim, values).unwrap()
}

fn hnsw(search_width: usize) -> IndexOptions {
    IndexOptions::Hnsw(HnswOptions {
        search_width,
        links: 8,
        construction_width: 60,
        ..HnswOptions::default()
    })
}

#[test]
fn given_vectors_have_the_scores_that_a_search_gives_them() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let (vectors, queries) = (clustered(900, 24, 20), clustered(4, 24, 20));
    for options in [
        flat(Storage::F32, 0, VectorStorage::F16),
        flat(Storage::F16, 0, VectorStorage::F16),
        flat(Storage::Int8, 0, VectorStorage::F16),
        flat(Storage::Int8, 3, VectorStorage::F32),
        pq(PqBits::Eight, 0),
        pq(PqBits::Four, 2),
        hnsw(30),
    ] {
        build(&options, Similarity::Cosine, &vectors, &dir).unwrap();
        let index = open(&options, Similarity::Cosine, &dir).unwrap();
        let found = index.search(&queries, 7, None).unwrap();
        // In reverse order and one of them twice.
        let order = |found: &Vec<(u32, f32)>| found.iter().rev().chain(&found[..1]).copied().unzip();
        let (ids, scores): (Vec<Vec<u32>>, Vec<Vec<f32>>) = found.iter().map(order).unzip();
        assert_eq!(index.scores(&queries, &ids).unwrap(), scores, "{options:?}");
        let unknown = index.scores(&queries, &[vec![], vec![899], vec![900], vec![]]);
        assert!(matches!(unknown, Err(Error::Vector { vector: 900, .. })));
    }
}

fn pq(bits: PqBits, rescore: usize) -> IndexOptions {
    IndexOptions::Pq(PqOptions { bits, rescore, parts: Some(12), ..PqOptions::default() })
}
