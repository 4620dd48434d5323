//! Shards: the parts of a verb's work that separate processes do, and the checks before their results are merged.
//!
//! A shard is a folder with a manifest, [`MANIFEST`], which is written last. It has the shard's number, the options and the
//! hashes of the inputs that decide the results, the ranges of its inputs, and the length and the hash of each result.
//! [`ShardSet::find`] refuses shards that are missing, doubled, stale, foreign or damaged.

use std::{
    collections::BTreeMap,
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
};

use super::{Contents, File};
use crate::{Error, Result, ShardFault, hash_json, jsonl};

/// The file that makes a folder a shard.
pub const MANIFEST: &str = "shard.json";
const FORMAT: &str = "sporran-shard";
const VERSION: u32 = 1;
/// The last part of a shard's folder is this, its index, `-of-` and the number of shards.
const ENDING: &str = ".shard-";
/// The greatest number of missing shards that an error lists.
const LISTED: usize = 10;

/// One of several equal parts of the work, written `INDEX/COUNT`, such as `0/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    index: u32,
    of: u32,
}

impl Shard {
    /// The shard `index` of `of`, from 0; none if there is no such shard.
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (index < of).then_some(Self { index, of })
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// The number of shards.
    #[must_use]
    pub fn of(self) -> u32 {
        self.of
    }

    /// Its range of `total` items. All shards together have each item once, in order. A range begins at a multiple of `unit`,
    /// which is at least 1, and is empty if there are fewer units than shards.
    #[must_use]
    pub fn range(self, total: usize, unit: usize) -> Range<usize> {
        let unit = unit.max(1);
        let units = total.div_ceil(unit) as u128;
        let before = |shards: u32| {
            let first = units * u128::from(shards) / u128::from(self.of);
            // At most the number of units.
            (first as usize).saturating_mul(unit).min(total)
        };
        before(self.index)..before(self.index + 1)
    }

    /// The folder of the shard of a work with this name.
    #[must_use]
    pub fn folder_name(self, name: &str) -> String {
        format!("{name}{ENDING}{}-of-{}", self.index, self.of)
    }

    /// The shard whose folder has this name; none for other folders.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Option<Self> {
        let (_, numbers) = folder.file_name()?.to_str()?.rsplit_once(ENDING)?;
        let (index, of) = numbers.split_once("-of-")?;
        Self::new(index.parse().ok()?, of.parse().ok()?)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let shard = numbers.and_then(|(index, of)| Self::new(index.parse().ok()?, of.parse().ok()?));
        shard.ok_or_else(|| {
            format!("expected a shard and the number of shards, from `0/N` to `N-1/N`, found `{text}`")
        })
    }
}

impl Serialize for Shard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The range of an input that a shard covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRange {
    /// The first item.
    pub from: u64,
    /// The end, exclusive.
    pub to: u64,
    /// All items of the input.
    pub of: u64,
}

impl ShardRange {
    /// A range of `of` items.
    #[must_use]
    pub fn new(range: &Range<usize>, of: usize) -> Self {
        Self { from: range.start as u64, to: range.end as u64, of: of as u64 }
    }
}

/// A result of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    bytes: u64,
    blake3: String,
}

/// What a shard is a part of, and what it covers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardManifest {
    format: String,
    version: u32,
    /// The verb, such as `run`.
    pub verb: String,
    /// The name of the whole work.
    pub name: String,
    /// Which shard.
    pub shard: Shard,
    /// The options that decide the results, by their dotted paths. Hashes of contents replace paths of models.
    pub config: BTreeMap<String, String>,
    /// The hashes of the inputs, and the program's version, by what they are.
    pub inputs: BTreeMap<String, String>,
    /// The range of each input.
    pub ranges: BTreeMap<String, ShardRange>,
    /// What the verb needs for the merge: see [`details`](Self::details).
    details: serde_json::Value,
    /// The results, by their paths in the folder.
    files: BTreeMap<String, Written>,
    /// BLAKE3 of all other fields.
    hash: String,
}

impl ShardManifest {
    /// The input that names the instruction set of results that a model rounds.
    pub const ISA: &str = "instruction set";

    /// The manifest of a shard, without inputs, ranges and results.
    #[must_use]
    pub fn new(verb: &str, name: &str, shard: Shard) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            verb: verb.to_owned(),
            name: name.to_owned(),
            shard,
            config: BTreeMap::new(),
            inputs: BTreeMap::new(),
            ranges: BTreeMap::new(),
            details: serde_json::Value::Null,
            files: BTreeMap::new(),
            hash: String::new(),
        }
    }

    fn content_hash(&self) -> String {
        hash_json(&Self { hash: String::new(), ..self.clone() })
    }

    /// Hashes the results, which are paths in `folder`, and writes the manifest with what the verb needs for the merge. The
    /// folder is a shard from then on.
    ///
    /// # Errors
    /// [`Error::Io`] if a result cannot be read or the manifest cannot be written.
    pub fn write(
        mut self,
        folder: &Path,
        results: impl IntoIterator<Item = PathBuf>,
        details: &impl Serialize,
    ) -> Result<Self> {
        let failed = |error: serde_json::Error| Error::io(&folder.join(MANIFEST), "write", error.into());
        self.details = serde_json::to_value(details).map_err(failed)?;
        for result in results {
            let path = folder.join(&result);
            let file = fs::File::open(&path).map_err(|error| Error::io(&path, "open", error))?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(file).map_err(|error| Error::io(&path, "read", error))?;
            let written = Written { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() };
            self.files.insert(result.to_string_lossy().into_owned(), written);
        }
        self.hash = self.content_hash();
        jsonl::write_json(folder.join(MANIFEST), &self)?;
        Ok(self)
    }

    /// The manifest in a folder; none if the folder has none.
    ///
    /// # Errors
    /// [`Error::Shard`] for a manifest that is damaged or of another version.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        if !path.is_file() {
            return Ok(None);
        }
        let damaged = |message: String| Error::shard(folder, ShardFault::Damaged, message);
        let manifest: Self = jsonl::read_json(&path)
            .map_err(|error| damaged(format!("{MANIFEST} cannot be read: {error}")))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let Self { format, version, .. } = &manifest;
            let message =
                format!("{MANIFEST}: expected {FORMAT} of version {VERSION}, found {format} of {version}");
            return Err(Error::shard(folder, ShardFault::Foreign, message));
        }
        if manifest.hash != manifest.content_hash() {
            return Err(damaged(format!("{MANIFEST} was changed after it was written")));
        }
        Ok(Some(manifest))
    }

    /// What the verb needs for the merge. `folder` is the shard's.
    ///
    /// # Errors
    /// [`Error::Shard`] if the manifest is of another version of the program or damaged.
    pub fn details<T: DeserializeOwned>(&self, folder: &Path) -> Result<T> {
        serde_json::from_value(self.details.clone()).map_err(|error| {
            let message = format!("{MANIFEST}: field `details`: {}", jsonl::plain_json(&error.to_string()));
            Error::shard(folder, ShardFault::Damaged, message)
        })
    }

    /// The paths of the results in the folder.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Reads all results and compares them with their hashes.
    ///
    /// # Errors
    /// [`Error::Shard`] for the first result that is missing or was changed; [`Error::Io`].
    pub fn verify(&self, folder: &Path) -> Result<()> {
        let damaged = |message: String| Error::shard(folder, ShardFault::Damaged, message);
        for (name, written) in &self.files {
            match fs::metadata(folder.join(name)) {
                Err(_) => return Err(damaged(format!("expected the file {name}, found none"))),
                Ok(found) if found.len() != written.bytes => {
                    let (expected, found) = (written.bytes, found.len());
                    return Err(damaged(format!("{name}: expected {expected} bytes, found {found}")));
                }
                Ok(_) => {}
            }
        }
        let listed =
            self.files.iter().map(|(name, Written { bytes, blake3 })| File { name, bytes: *bytes, blake3 });
        Contents::new(folder, listed).verify().map_err(|error| match error {
            Error::Checksum { path, .. } => {
                let name = path.strip_prefix(folder).unwrap_or(&path);
                damaged(format!("{}: the checksum is wrong", name.display()))
            }
            other => other,
        })
    }
}

/// All shards of a work, in order.
#[derive(Clone, Debug)]
pub struct ShardSet {
    shards: Vec<(PathBuf, ShardManifest)>,
}

impl ShardSet {
    /// As [`open`](Self::open). Also reads all results of the shards.
    ///
    /// # Errors
    /// As [`open`](Self::open), and for damaged results.
    pub fn find(folders: &[PathBuf]) -> Result<Self> {
        let set = Self::open(folders)?;
        set.shards.iter().try_for_each(|(folder, shard)| shard.verify(folder))?;
        Ok(set)
    }

    /// The shards in folders, each a shard or a folder of shards. They are those of one work, complete, and made of the same
    /// options and inputs.
    ///
    /// # Errors
    /// [`Error::Shard`] for the first shard that cannot be merged, [`Error::Argument`] for a folder without shards,
    /// [`Error::Io`].
    pub fn open(folders: &[PathBuf]) -> Result<Self> {
        let (mut shards, mut unfinished) = (Vec::new(), Vec::new());
        for folder in folders {
            shards_in(folder, &mut shards, &mut unfinished)?;
        }
        let Some((first, whole)) = shards.first().cloned() else {
            let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
            let unfinished = unfinished.iter().map(|path: &PathBuf| path.display().to_string());
            let mut message = format!("expected shards in {}, found none", folders.join(", "));
            for folder in unfinished {
                message.push_str(&format!("; {folder} is not finished"));
            }
            return Err(Error::Argument(message));
        };
        let named = first.display();
        for (folder, shard) in &shards[1..] {
            let foreign = |message: String| Err(Error::shard(folder, ShardFault::Foreign, message));
            if (&shard.verb, &shard.name) != (&whole.verb, &whole.name) {
                let [this, that] =
                    [shard, &whole].map(|shard| format!("`{}` of `{}`", shard.verb, shard.name));
                return foreign(format!(
                    "it is one of {this}, and {named} is one of {that}; name the folders of one work"
                ));
            }
            if shard.shard.of != whole.shard.of {
                return foreign(format!("it is shard {}, and {named} is shard {}", shard.shard, whole.shard));
            }
            if let Some((name, here, there)) = difference(&shard.config, &whole.config) {
                return foreign(format!("`{name}` is {here}, and {there} in {named}"));
            }
            if let Some((name, here, there)) = difference(&shard.inputs, &whole.inputs) {
                if name == ShardManifest::ISA {
                    return foreign(format!(
                        "its models ran with the instruction set {here}, and those of {named} with {there}, which round \
                         differently; make all shards with the same `--isa`"
                    ));
                }
                let message = format!(
                    "`{name}` is {here}, and {there} in {named}; run the shard that was made of the older one again"
                );
                return Err(Error::shard(folder, ShardFault::Stale, message));
            }
        }
        shards.sort_by_key(|(_, shard)| shard.shard);
        if let Some([(one, shard), (other, _)]) =
            shards.array_windows().find(|[(_, one), (_, other)]| one.shard == other.shard)
        {
            let message = format!("shard {} is in {} too", shard.shard, one.display());
            return Err(Error::shard(other, ShardFault::Doubled, message));
        }
        let has = |index: u32| shards.iter().any(|(_, shard)| shard.shard.index == index);
        let missing: Vec<Shard> = (0..whole.shard.of)
            .filter(|&index| !has(index))
            .map(|index| Shard { index, ..whole.shard })
            .collect();
        if let Some(shard) = missing.first() {
            let mut numbers =
                missing.iter().take(LISTED).map(Shard::to_string).collect::<Vec<_>>().join(", ");
            if let Some(more @ 1..) = missing.len().checked_sub(LISTED) {
                numbers.push_str(&format!(" and {more} more"));
            }
            let folder_name = shard.folder_name(&whole.name);
            let half =
                unfinished.iter().find(|path| path.file_name().is_some_and(|name| *name == *folder_name));
            let state = half
                .map_or("it is not there".to_owned(), |path| format!("{} is not finished", path.display()));
            let message = format!(
                "expected {numbers} of {}; {state}; `sporran {} CONFIG --shard {shard}` makes it",
                whole.shard.of, whole.verb
            );
            let parent = first.parent().unwrap_or(&first);
            return Err(Error::shard(&parent.join(folder_name), ShardFault::Missing, message));
        }
        let set = Self { shards };
        set.check_ranges()?;
        Ok(set)
    }

    /// Checks that the ranges of each input follow one another and cover it.
    fn check_ranges(&self) -> Result<()> {
        let (_, first) = &self.shards[0];
        for name in first.ranges.keys() {
            let mut end = 0;
            for (folder, shard) in &self.shards {
                let found = shard.ranges.get(name).copied();
                let is_next = found.is_some_and(|range| {
                    range.from == end
                        && range.to >= end
                        && range.to <= range.of
                        && range.of == first.ranges[name].of
                });
                let Some(range) = found.filter(|_| is_next) else {
                    let message = format!("`{name}`: expected a range from {end} on, found {found:?}");
                    return Err(Error::shard(folder, ShardFault::Damaged, message));
                };
                end = range.to;
            }
            let (folder, last) = &self.shards[self.shards.len() - 1];
            if end != last.ranges[name].of {
                let message = format!("`{name}`: expected a range to {}, found {end}", last.ranges[name].of);
                return Err(Error::shard(folder, ShardFault::Damaged, message));
            }
        }
        Ok(())
    }

    /// The folders with their manifests, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Path, &ShardManifest)> {
        self.shards.iter().map(|(folder, shard)| (folder.as_path(), shard))
    }

    /// The first shard.
    #[must_use]
    pub fn first(&self) -> (&Path, &ShardManifest) {
        let (folder, shard) = &self.shards[0];
        (folder, shard)
    }

    /// Writes the results with this path, one after the other, to a file that appears only when it is complete.
    ///
    /// # Errors
    /// [`Error::Io`] if a result cannot be read or the file cannot be written.
    pub fn concatenate(&self, result: &str, to: &Path) -> Result<()> {
        let mut writer = jsonl::Writer::create(to)?;
        let mut buffer = vec![0; 1 << 20];
        for (folder, _) in self.iter() {
            let path = folder.join(result);
            let mut file = fs::File::open(&path).map_err(|error| Error::io(&path, "open", error))?;
            loop {
                let read = std::io::Read::read(&mut file, &mut buffer);
                match read.map_err(|error| Error::io(&path, "read", error))? {
                    0 => break,
                    read => writer.bytes(&buffer[..read])?,
                }
            }
        }
        writer.finish()
    }
}

/// The first entry that differs: its name and both values.
fn difference<'m>(
    here: &'m BTreeMap<String, String>,
    there: &'m BTreeMap<String, String>,
) -> Option<(&'m str, &'m str, &'m str)> {
    let of = |map: &'m BTreeMap<String, String>, name: &str| map.get(name).map_or("nothing", String::as_str);
    let names = here.keys().chain(there.keys());
    let mut all = names.map(|name| (name.as_str(), of(here, name), of(there, name)));
    all.find(|(_, here, there)| here != there)
}

/// Adds the shards at a folder or in it, and the folders of shards without a manifest.
fn shards_in(
    folder: &Path,
    shards: &mut Vec<(PathBuf, ShardManifest)>,
    unfinished: &mut Vec<PathBuf>,
) -> Result<()> {
    if !folder.is_dir() {
        return Err(Error::Argument(format!(
            "{}: expected a folder of shards, found none",
            folder.display()
        )));
    }
    let mut add = |folder: &Path| -> Result<bool> {
        let manifest = ShardManifest::read(folder)?;
        let is_shard = manifest.is_some();
        shards.extend(manifest.map(|manifest| (folder.to_owned(), manifest)));
        Ok(is_shard)
    };
    if add(folder)? {
        return Ok(());
    }
    if Shard::of_folder(folder).is_some() {
        unfinished.push(folder.to_owned());
        return Ok(());
    }
    let failed = |error| Error::io(folder, "read", error);
    let mut inner = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        inner.push(entry.map_err(failed)?.path());
    }
    inner.sort();
    for path in inner.iter().filter(|path| Shard::of_folder(path).is_some()) {
        if !add(path)? {
            unfinished.push(path.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_item_once_in_whole_units() {
        for (total, unit, of) in [(0, 1, 3), (1, 1, 3), (7, 1, 3), (10, 4, 2), (160, 128, 7), (5, 9, 1)] {
            let mut end = 0;
            for index in 0..of {
                let range = Shard::new(index, of).unwrap().range(total, unit);
                assert_eq!(range.start, end);
                assert!(range.is_empty() || range.start.is_multiple_of(unit), "{range:?}");
                end = range.end;
            }
            assert_eq!(end, total);
        }
        // Two units of 128 among three shards: 0, 1 and 1.
        let ranges = [0, 1, 2].map(|index| Shard::new(index, 3).unwrap().range(160, 128));
        assert_eq!(ranges, [0..0, 0..128, 128..160]);
    }

    #[test]
    fn a_shard_is_its_index_and_the_number_of_shards() {
        let shard: Shard = "2/7".parse().unwrap();
        assert_eq!((shard.index(), shard.of(), shard.to_string()), (2, 7, "2/7".to_owned()));
        assert_eq!(shard.folder_name("a.b"), "a.b.shard-2-of-7");
        assert_eq!(Shard::of_folder(Path::new("x/a.b.shard-2-of-7")), Some(shard));
        for wrong in ["7/7", "0/0", "1", "a/b", "-1/2", "1/2/3", ""] {
            let message = wrong.parse::<Shard>().unwrap_err();
            assert!(message.contains("from `0/N` to `N-1/N`"), "{message}");
        }
        assert_eq!(Shard::of_folder(Path::new("x/a.shard-2-of-2")), None);
    }

    /// Writes shard `index` of `of` with some letters of the text, and returns its folder.
    fn written(root: &Path, (index, of): (u32, u32), change: impl FnOnce(&mut ShardManifest)) -> PathBuf {
        let text = "abcdefg";
        let shard = Shard::new(index, of).unwrap();
        let folder = root.join(shard.folder_name("r"));
        let range = shard.range(text.len(), 1);
        jsonl::write(folder.join("out/text"), &text.as_bytes()[range.clone()]).unwrap();
        let mut manifest = ShardManifest::new("run", "r", shard);
        manifest.config.insert("k1".into(), "0.9".into());
        manifest.inputs.insert("source".into(), "abc".into());
        manifest.ranges.insert("text".into(), ShardRange::new(&range, text.len()));
        change(&mut manifest);
        manifest.write(&folder, [PathBuf::from("out/text")], &"details").unwrap();
        folder
    }

    fn refused(folders: &[PathBuf], fault: ShardFault) -> String {
        match ShardSet::find(folders).unwrap_err() {
            Error::Shard { fault: found, message, folder } if found == fault => {
                format!("{}: {message}", folder.display())
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn shards_of_any_number_are_found_in_roots_and_give_the_whole() {
        for of in [1, 2, 3, 9] {
            let place = tempfile::tempdir().unwrap();
            let roots = [place.path().join("a"), place.path().join("b")];
            for index in 0..of {
                written(&roots[index as usize % 2], (index, of), |_| {});
            }
            let named: Vec<PathBuf> = roots.iter().filter(|root| root.is_dir()).cloned().collect();
            let set = ShardSet::find(&named).unwrap();
            assert_eq!(set.iter().len(), of as usize);
            let whole = place.path().join("whole");
            set.concatenate("out/text", &whole).unwrap();
            assert_eq!(fs::read_to_string(whole).unwrap(), "abcdefg");
        }
    }

    #[test]
    fn every_kind_of_wrong_shard_is_named() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("runs");
        let make = |index| written(&root, (index, 3), |_| {});
        let here = || vec![root.clone()];
        let error = ShardSet::find(&[place.path().join("none")]).unwrap_err().to_string();
        assert!(error.ends_with("none: expected a folder of shards, found none"), "{error}");
        fs::create_dir(&root).unwrap();
        let error = ShardSet::find(&here()).unwrap_err().to_string();
        assert!(error.starts_with("expected shards in ") && error.ends_with("found none"), "{error}");

        let first = make(0);
        let message = refused(&here(), ShardFault::Missing);
        assert!(message.contains("r.shard-1-of-3: expected 1/3, 2/3 of 3; it is not there"), "{message}");
        assert!(message.contains("`sporran run CONFIG --shard 1/3` makes it"), "{message}");
        let many = written(&place.path().join("many"), (0, 20), |_| {});
        let message = refused(&[many], ShardFault::Missing);
        assert!(
            message.contains("expected 1/20, 2/20, ") && message.contains("10/20 and 9 more of 20"),
            "{message}"
        );
        let (second, third) = (make(1), make(2));
        fs::remove_file(third.join(MANIFEST)).unwrap();
        let message = refused(&here(), ShardFault::Missing);
        assert!(message.contains("r.shard-2-of-3 is not finished"), "{message}");

        make(2);
        let again = written(&place.path().join("other"), (1, 3), |_| {});
        let message = refused(&[root.clone(), again.clone()], ShardFault::Doubled);
        assert!(message.contains("shard 1/3 is in ") && message.contains("runs/r.shard-1-of-3"), "{message}");

        type Change = (fn(&mut ShardManifest), ShardFault, &'static str);
        let changes: [Change; 4] = [
            (|shard| shard.name = "s".into(), ShardFault::Foreign, "it is one of `run` of `s`, and "),
            (
                |shard| drop(shard.config.insert("k1".into(), "1.2".into())),
                ShardFault::Foreign,
                "`k1` is 1.2, and 0.9 in ",
            ),
            (
                |shard| drop(shard.inputs.insert("source".into(), "abd".into())),
                ShardFault::Stale,
                "`source` is abd, and abc in ",
            ),
            (|shard| shard.ranges.clear(), ShardFault::Damaged, "`text`: expected a range from 2 on"),
        ];
        for (change, fault, expected) in changes {
            written(&root, (1, 3), change);
            let message = refused(&here(), fault);
            assert!(message.contains("r.shard-1-of-3: ") && message.contains(expected), "{message}");
        }
        make(1);
        let of_two = written(&place.path().join("two"), (1, 2), |_| {});
        let message = refused(&[first, of_two, third], ShardFault::Foreign);
        assert!(message.contains("it is shard 1/2, and ") && message.contains(" is shard 0/3"), "{message}");

        let set = ShardSet::find(&here()).unwrap();
        let (folder, manifest) = set.first();
        assert_eq!(manifest.details::<String>(folder).unwrap(), "details");
        let error = manifest.details::<u32>(folder).unwrap_err().to_string();
        assert!(error.contains("field `details`: "), "{error}");
        let text = second.join("out/text");
        let good = fs::read(&text).unwrap();
        fs::write(&text, "xy").unwrap();
        assert!(refused(&here(), ShardFault::Damaged).contains("out/text: the checksum is wrong"));
        fs::write(&text, "x").unwrap();
        assert!(refused(&here(), ShardFault::Damaged).contains("out/text: expected 2 bytes, found 1"));
        fs::remove_file(&text).unwrap();
        assert!(refused(&here(), ShardFault::Damaged).contains("expected the file out/text, found none"));
        fs::write(&text, good).unwrap();
        let path = second.join(MANIFEST);
        let manifest = fs::read_to_string(&path).unwrap();
        fs::write(&path, manifest.replace("0.9", "0.8")).unwrap();
        assert!(refused(&here(), ShardFault::Damaged).contains("was changed after it was written"));
        fs::write(&path, &manifest[..20]).unwrap();
        assert!(refused(&here(), ShardFault::Damaged).contains("cannot be read"));
    }
}
