//! Keys that decide whether finished work is up to date: a hash of all options of a step and of its input files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::hash_json;
use sporran_training::TrainingOptions;
use toml::Value;

use crate::{
    Result,
    config::unwritable,
    run_dir::{folder::check_finished, inputs::Inputs},
};

/// The options and inputs that determine the results of a step.
///
/// A key starts with all options of a config, including defaults, so that new options are part of it
/// automatically. Each use has a list of options to remove, which do not change the results. Hashes of
/// contents replace the paths of inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepKey {
    /// The name of the step.
    step: String,
    /// The values of options by dotted path, and the hashes of inputs by name.
    values: BTreeMap<String, String>,
}

impl StepKey {
    /// The key of a step with these options.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for a value without a form in TOML, such as a number beyond 64 bits.
    pub(crate) fn new(step: &str, options: &impl Serialize) -> Result<Self> {
        let mut values = BTreeMap::new();
        flatten("", &Value::try_from(options).map_err(unwritable)?, &mut values);
        // Options of an optimiser without `warmup-steps` have the key of its default.
        let optimizers = values.keys().filter_map(|path| path.strip_suffix(".label-smoothing"));
        for optimizer in optimizers.map(str::to_owned).collect::<Vec<_>>() {
            let warmup = values.entry(format!("{optimizer}.warmup-steps"));
            warmup.or_insert_with(|| TrainingOptions::WARMUP_STEPS.to_string());
        }
        Ok(Self { step: step.to_owned(), values })
    }

    /// The key of a training with these options. Excludes output folders, intervals of checkpoints and devices.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub(crate) fn training(options: &impl Serialize) -> Result<Self> {
        const ANYWHERE: [&str; 3] = ["checkpoint-every", "parallel-batches", "device"];
        let mut key = Self::new("train", options)?.without(&["name", "output", "then"]);
        key.values.retain(|path, _| !ANYWHERE.contains(&path.rsplit('.').next().unwrap_or_default()));
        Ok(key)
    }

    /// Removes options that do not change the results, by their dotted path or that of their table.
    pub(crate) fn without(mut self, paths: &[&str]) -> Self {
        self.values.retain(|path, _| !paths.iter().any(|outer| is_within(path, outer)));
        self
    }

    /// Adds the hash of an input.
    pub(crate) fn input(mut self, name: &str, hash: impl Into<String>) -> Self {
        self.values.insert(name.to_owned(), hash.into());
        self
    }

    /// Replaces each path of an existing file or folder by the hash of its content.
    ///
    /// # Errors
    /// Those of [`Inputs`]; [`crate::Error::Unfinished`] for the result of an unfinished run or training.
    pub(crate) fn read(mut self, inputs: &mut Inputs) -> Result<Self> {
        for (option, value) in &mut self.values {
            let named = serde_json::from_str::<String>(value).ok().map(PathBuf::from);
            if let Some(path) = named.filter(|path| is_input(option, path)) {
                check_finished(&path)?;
                *value = hash_json(&inputs.content(&path)?);
            }
        }
        Ok(self)
    }

    /// The key with these values.
    pub(crate) fn of_values(step: &str, values: BTreeMap<String, String>) -> Self {
        Self { step: step.to_owned(), values }
    }

    /// The values of options by dotted path, and the hashes of inputs by name.
    pub(crate) fn into_values(self) -> BTreeMap<String, String> {
        self.values
    }

    /// The BLAKE3 hash of the key, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        hash_json(self)
    }

    /// The first difference of two keys: its name, the value of this key and that of the other.
    pub(crate) fn difference<'k>(&'k self, other: &'k Self) -> Option<[&'k str; 3]> {
        const NONE: &str = "nothing";
        if self.step != other.step {
            return Some(["the step", &self.step, &other.step]);
        }
        let mut names: Vec<&String> = self.values.keys().chain(other.values.keys()).collect();
        names.sort_unstable();
        let of = |key: &'k Self, name: &str| key.values.get(name).map_or(NONE, String::as_str);
        let mut both = names.into_iter().map(|name| [name.as_str(), of(self, name), of(other, name)]);
        both.find(|[_, here, there]| here != there)
    }

    /// The dotted paths of options and the names of inputs.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

/// Whether an option is `outer`, or in the table `outer`.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Inserts the values of a tree by their paths. An empty table or list is a value, because its presence can matter.
fn flatten(path: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, values);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, value) in items.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), value, values);
            }
        }
        Value::String(text) => {
            // Serializing text cannot fail.
            values.insert(path.to_owned(), serde_json::to_string(text).unwrap_or_default());
        }
        value => {
            values.insert(path.to_owned(), value.to_string());
        }
    }
}

/// Whether an option's value is the path of an input: an existing file or folder. Excludes options with
/// words, which can also be names of folders in the working directory, and the folders of indexes and shards.
fn is_input(option: &str, path: &Path) -> bool {
    const OTHERS: [&str; 9] =
        ["kind", "name", "format", "split", "coreference", "indexes", "shards", "version", "train-version"];
    let last = option.rsplit('.').next().unwrap_or_default();
    let last = last.split('[').next().unwrap_or_default();
    // `.` and the like have no name.
    path.file_name().is_some() && !OTHERS.contains(&last) && (path.is_file() || path.is_dir())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Changes each leaf of a tree. Returns the path of each with the changed tree.
    pub(crate) fn changed(tree: &Value) -> Vec<(String, Value)> {
        let change = |leaf: &Value| match leaf {
            Value::String(text) => Value::String(format!("{text}x")),
            Value::Integer(number) => Value::Integer(number + 1),
            Value::Float(number) => Value::Float(number + 0.5),
            Value::Boolean(truth) => Value::Boolean(!truth),
            other => panic!("no option is {other}"),
        };
        let below = |path: String, inner: &Value, put: &dyn Fn(Value) -> Value| -> Vec<(String, Value)> {
            let join = |rest: String| {
                let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
                format!("{path}{dot}{rest}")
            };
            changed(inner).into_iter().map(|(rest, inner)| (join(rest), put(inner))).collect()
        };
        match tree {
            Value::Table(table) => {
                let each = table.iter().flat_map(|(key, inner)| {
                    below(key.clone(), inner, &|inner| {
                        let mut table = table.clone();
                        table.insert(key.clone(), inner);
                        Value::Table(table)
                    })
                });
                each.collect()
            }
            Value::Array(items) => {
                let each = items.iter().enumerate().flat_map(|(at, inner)| {
                    below(format!("[{at}]"), inner, &|inner| {
                        let mut items = items.clone();
                        items[at] = inner;
                        Value::Array(items)
                    })
                });
                each.collect()
            }
            leaf => vec![(String::new(), change(leaf))],
        }
    }

    /// Asserts that exactly the options in `exempt` do not change a key.
    pub(crate) fn assert_complete(options: &Value, key: impl Fn(&Value) -> StepKey, exempt: &[&str]) {
        let first = key(options);
        let all = changed(options);
        for (path, other) in &all {
            let is_exempt = exempt.iter().any(|outer| is_within(path, outer));
            assert_eq!(key(other).digest() == first.digest(), is_exempt, "`{path}`");
        }
        for outer in exempt {
            assert!(all.iter().any(|(path, _)| is_within(path, outer)), "`{outer}` is no option");
        }
    }

    #[test]
    fn every_value_counts_and_neither_order_nor_what_is_taken_out_does() {
        let key = |text: &str| StepKey::new("s", &toml::from_str::<toml::Table>(text).unwrap()).unwrap();
        let one = key("a = 1\n[t]\nb = [1, 2]\nc = {}\n");
        assert_eq!(one.digest(), key("t = { c = {}, b = [1, 2] }\na = 1\n").digest());
        for other in [
            "a = 1\n[t]\nb = [2, 1]\nc = {}\n",
            "a = 1\n[t]\nb = [1, 2]\n",
            "a = 1.0\nt = {b = [1, 2], c = {}}",
        ] {
            assert_ne!(one.digest(), key(other).digest(), "{other}");
        }
        let two = key("a = 1\nab = 3\n[t]\nb = [7]\n");
        assert_eq!(one.clone().without(&["t"]).without(&["a"]).names().count(), 0);
        assert_eq!(two.clone().without(&["t", "a"]).names().collect::<Vec<_>>(), ["ab"]);
        assert_eq!(one.difference(&two), Some(["ab", "nothing", "3"]));
        let read = one.clone().input("i", "h");
        assert_eq!(one.difference(&read), Some(["i", "nothing", "h"]));
        assert_eq!(read.difference(&read), None);
    }

    #[test]
    fn the_default_warm_up_has_the_key_of_its_number() {
        let key = |text: &str| StepKey::new("s", &toml::from_str::<toml::Table>(text).unwrap()).unwrap();
        let default = key("[o]\nlabel-smoothing = 0.0\n");
        assert_eq!(default, key("[o]\nlabel-smoothing = 0.0\nwarmup-steps = 100\n"));
        assert_ne!(default, key("[o]\nlabel-smoothing = 0.0\nwarmup-steps = 99\n"));
    }

    #[test]
    fn a_change_of_each_leaf_is_made_once() {
        let tree: Value =
            toml::from_str("a = 1\nb = [true, 'x']\n[t.u]\nc = 1.5\n").map(Value::Table).unwrap();
        let paths: Vec<String> = changed(&tree).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a", "b[0]", "b[1]", "t.u.c"]);
        assert_eq!(changed(&tree)[2].1["b"][1].as_str(), Some("xx"));
        assert_eq!(changed(&tree)[3].1["t"]["u"]["c"].as_float(), Some(2.0));
    }

    #[test]
    fn the_contents_of_files_and_models_count_and_not_where_they_are() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/m/config.json", "{}");
        write("a/shown.jsonl", "{}");
        let key = |folder: &str, more: &str| {
            let at = place.path().join(folder);
            let text =
                format!("model = '{0}/m'\nfiles = ['{0}/shown.jsonl']\nmark = '{more}'\n", at.display());
            let options: toml::Table = toml::from_str(&text).unwrap();
            StepKey::new("s", &options).unwrap().read(&mut Inputs::default()).unwrap().digest()
        };
        let first = key("a", ".");
        assert_ne!(first, key("a", "/"));
        write("b/m/config.json", "{}");
        write("b/shown.jsonl", "{}");
        assert_eq!(first, key("b", "."));
        write("b/shown.jsonl", "{\"id\": 1}");
        let second = key("b", ".");
        write("b/m/config.json", "{ }");
        assert!(first != second && second != key("b", "."));
    }
}
