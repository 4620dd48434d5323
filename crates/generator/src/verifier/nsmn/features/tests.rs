//! The features and their inputs, compared with nltk, NumPy and scikit-learn (`scripts/reference/nsmn_wordnet.py`).

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use super::{numbers::NumberTable, *};
use serde::Deserialize;
use sporran_checkpoint::Error;

type Rows = Vec<HashMap<usize, f32>>;

#[derive(Deserialize)]
struct Expected {
    pairs: Vec<Pair>,
    forms: Vec<String>,
    synsets: Vec<Synset>,
    stems: Vec<(String, String)>,
    numbers: Vec<(String, [f32; 5])>,
}

/// A form, its part of speech, and a synset of it: lemma names, hypernyms, hyponyms, antonyms.
type Synset = (String, String, Vec<String>, Vec<String>, Vec<String>, Vec<String>);

#[derive(Deserialize)]
struct Pair {
    texts: [Vec<String>; 2],
    tags: [Vec<String>; 2],
    features: [Rows; 2],
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsmn/verifier/wordnet")
}

fn expected() -> Expected {
    let text = fs::read_to_string(folder().join("../../features.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn tokens(text: &[String]) -> Vec<&str> {
    text.iter().map(String::as_str).collect()
}

#[test]
fn tags_are_those_of_nltk() {
    let tagger = PerceptronTagger::open(&folder()).unwrap();
    for Pair { texts, tags, .. } in expected().pairs {
        for (text, tags) in texts.iter().zip(tags) {
            assert_eq!(tagger.tag(&tokens(text)), tags, "{text:?}");
        }
    }
}

#[test]
fn synsets_are_those_of_nltk() {
    let wordnet = WordNet::open(&folder()).unwrap();
    let Expected { forms, synsets, .. } = expected();
    let parts = PartOfSpeech::ALL.into_iter().zip(["n", "v", "a", "r"]);
    let pairs = forms.iter().flat_map(|form| parts.clone().map(move |(part, letter)| (form, part, letter)));
    let found = pairs.flat_map(|(form, part, letter)| {
        let wordnet = &wordnet;
        wordnet.synsets(form, part).into_iter().map(move |synset| {
            let firsts = |synsets: &[u32]| {
                let mut names: Vec<_> = synsets
                    .iter()
                    .filter_map(|&synset| wordnet.lemma_names(synset).next())
                    .map(str::to_owned)
                    .collect();
                names.sort_unstable();
                names
            };
            let antonyms: BTreeSet<_> = wordnet
                .antonym_ids(synset)
                .iter()
                .map(|&name| wordnet.names()[name as usize].to_string())
                .collect();
            (
                form.clone(),
                letter.to_owned(),
                wordnet.lemma_names(synset).map(str::to_owned).collect(),
                firsts(wordnet.pointers().hypernyms.row(synset)),
                firsts(wordnet.pointers().hyponyms.row(synset)),
                antonyms.into_iter().collect(),
            )
        })
    });
    assert_eq!(found.collect::<Vec<_>>(), synsets);
}

#[test]
fn stems_are_those_of_nltk() {
    for (word, expected) in expected().stems {
        assert_eq!(stem(&word), expected, "{word}");
    }
}

#[test]
fn numbers_are_those_of_numpy_and_scikit_learn() {
    let table = NumberTable::new();
    for (token, expected) in expected().numbers {
        assert_eq!(table.of(&token), expected, "{token}");
    }
}

#[test]
fn features_are_those_of_the_release() {
    let features = Features::open(&folder()).unwrap();
    let mut found = [false; FEATURES];
    for Pair { texts: [premise, hypothesis], features: [first, second], .. } in expected().pairs {
        let computed = features.of(&tokens(&premise), &tokens(&hypothesis));
        for (computed, expected) in [(computed.0, first), (computed.1, second)] {
            let full =
                |row: &HashMap<usize, f32>| std::array::from_fn(|at| row.get(&at).copied().unwrap_or(0.0));
            let expected: Vec<[f32; FEATURES]> = expected.iter().map(full).collect();
            assert_eq!(computed, expected, "{premise:?} {hypothesis:?}");
            for row in computed {
                row.iter().zip(&mut found).for_each(|(&value, found)| *found |= value != 0.0);
            }
        }
    }
    assert_eq!(found, [true; FEATURES], "each feature occurs");
    assert!(features.of(&[], &["dog"]).0.is_empty());
}

/// Opens a copy of the data in which `change` has edited a file.
fn open_changed(file: &str, change: impl Fn(&str) -> String) -> Error {
    let scratch = tempfile::TempDir::new().unwrap();
    let copy = scratch.path();
    for entry in fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let text = fs::read_to_string(copy.join(file)).unwrap();
    fs::write(copy.join(file), change(&text)).unwrap();
    Features::open(copy).unwrap_err()
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let cases: [(&str, &str, &str, usize); 8] = [
        ("data.adj", "02 big", "0x big", 2),
        ("data.adj", "02 big", "2 big", 3),
        ("data.adj", "0102", "0109", 2),
        ("data.verb", "00 v", "00 n", 2),
        ("index.noun", "ax n 1", "ax n 2", 4),
        ("index.adv", "slowly r", "slowly q", 6),
        ("verb.exc", "ran run", "", 3),
        ("averaged_perceptron_tagger_eng.tagdict.json", "\"DT\"", "7", 2),
    ];
    for (file, old, new, line) in cases {
        let error = open_changed(file, |text| text.replacen(old, new, 1));
        let Error::Line { path, line: found, problem } = error else { panic!("{error}") };
        assert_eq!((path.file_name().unwrap().to_str(), found), (Some(file), line), "{problem}");
    }
    let missing = Features::open(&folder().join("missing")).unwrap_err();
    assert!(matches!(missing, Error::MissingFile { .. }), "{missing}");
}
