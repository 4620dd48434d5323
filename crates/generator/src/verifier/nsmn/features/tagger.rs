//! The averaged perceptron tagger of nltk (`nltk.pos_tag`), with the tags of the Penn Treebank.

use std::{collections::HashMap, path::Path};

use sporran_checkpoint::{Error, Result};

use super::{
    digits::{is_digit, is_number},
    records::read,
};

const FILES: &str = "averaged_perceptron_tagger_eng";
const START: [&str; 2] = ["-START-", "-START2-"];
const END: [&str; 2] = ["-END-", "-END2-"];

/// A tagger of English tokens.
#[derive(Debug)]
pub(super) struct PerceptronTagger {
    /// In order, so that of equally good tags the last is nltk's.
    classes: Vec<String>,
    /// The tags of words that have one tag only.
    known: HashMap<String, String>,
    /// A feature's weights for the classes.
    weights: HashMap<Box<str>, Box<[(u32, f64)]>>,
}

impl PerceptronTagger {
    /// Reads a folder with the three files of nltk's package `averaged_perceptron_tagger_eng`: `.weights.json`,
    /// `.tagdict.json` and `.classes.json`.
    ///
    /// # Errors
    ///
    /// Where a file cannot be read or holds something else.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let mut classes: Vec<String> = json(folder, "classes", "a list of tags")?;
        classes.sort_unstable();
        classes.dedup();
        if classes.is_empty() {
            return Err(malformed(folder, "classes", 1, "there is no tag".to_owned()));
        }
        let known = json(folder, "tagdict", "an object of tags")?;
        let weights: HashMap<String, HashMap<String, f64>> =
            json(folder, "weights", "an object of objects of numbers")?;
        let weights = weights.into_iter().map(|(feature, weights)| {
            let class = |(tag, weight)| classes.binary_search(&tag).ok().map(|class| (class as u32, weight));
            (feature.into_boxed_str(), weights.into_iter().filter_map(class).collect())
        });
        Ok(Self { weights: weights.collect(), classes, known })
    }

    /// The tag of each token.
    #[must_use]
    pub(super) fn tag(&self, tokens: &[&str]) -> Vec<&str> {
        let mut context: Vec<String> = START.map(str::to_owned).into();
        context.extend(tokens.iter().map(|token| normalized(token)));
        context.extend(END.map(str::to_owned));
        let [mut before, mut before_that] = START;
        let mut tags = Vec::with_capacity(tokens.len());
        for (token, around) in tokens.iter().zip(context.windows(5)) {
            let tag = match self.known.get(*token) {
                Some(tag) if !tag.is_empty() => tag,
                _ => self.best(&features(token, around, before, before_that)),
            };
            tags.push(tag);
            (before_that, before) = (before, tag);
        }
        tags
    }

    /// The tag of the highest score. The weights are added in the features' order, as another one can round otherwise.
    fn best(&self, features: &[String]) -> &str {
        let mut scores = vec![0.0; self.classes.len()];
        for weights in features.iter().filter_map(|feature| self.weights.get(feature.as_str())) {
            for &(class, weight) in weights {
                scores[class as usize] += weight;
            }
        }
        let best =
            (0..scores.len()).reduce(|best, class| if scores[class] >= scores[best] { class } else { best });
        best.map_or("", |best| &self.classes[best])
    }
}

/// A token as its neighbours see it.
fn normalized(token: &str) -> String {
    if token.contains('-') && !token.starts_with('-') {
        "!HYPHEN".to_owned()
    } else if is_number(token) && token.chars().count() == 4 {
        "!YEAR".to_owned()
    } else if token.starts_with(is_digit) {
        "!DIGITS".to_owned()
    } else {
        token.to_lowercase()
    }
}

fn suffix(word: &str) -> &str {
    let start = word.char_indices().rev().nth(2).map_or(0, |(at, _)| at);
    &word[start..]
}

/// A token's features. `around` has the two normalised tokens before it, itself and the two after it.
fn features(token: &str, around: &[String], before: &str, before_that: &str) -> [String; 14] {
    let first = token.chars().next().map(String::from).unwrap_or_default();
    [
        "bias".to_owned(),
        format!("i suffix {}", suffix(token)),
        format!("i pref1 {first}"),
        format!("i-1 tag {before}"),
        format!("i-2 tag {before_that}"),
        format!("i tag+i-2 tag {before} {before_that}"),
        format!("i word {}", around[2]),
        format!("i-1 tag+i word {before} {}", around[2]),
        format!("i-1 word {}", around[1]),
        format!("i-1 suffix {}", suffix(&around[1])),
        format!("i-2 word {}", around[0]),
        format!("i+1 word {}", around[3]),
        format!("i+1 suffix {}", suffix(&around[3])),
        format!("i+2 word {}", around[4]),
    ]
}

fn malformed(folder: &Path, kind: &str, line: usize, problem: String) -> Error {
    Error::Line { path: folder.join(format!("{FILES}.{kind}.json")), line, problem }
}

fn json<T: serde::de::DeserializeOwned>(folder: &Path, kind: &str, what: &str) -> Result<T> {
    let text = read(&folder.join(format!("{FILES}.{kind}.json")))?;
    serde_json::from_str(&text)
        .map_err(|error| malformed(folder, kind, error.line(), format!("the file is not {what}: {error}")))
}
