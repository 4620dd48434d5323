//! Adapters of LoRA, merged with their base models.
//!
//! An adapter's pairs of matrices A (r x inputs) and B (outputs x r) stand for the sum W + s B A of a layer, with s from the
//! config.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Shape};
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use crate::{
    adapter::{Adapter, CONFIG, WEIGHTS, ends_with},
    error::{Error, Result},
    hub::{Hub, ModelId},
    json::{self, parse},
    save::{Raw, appear, tensor_bytes, write_weights},
    tokenizer::{self, Tokenizer},
    weights::{StoredTensor, WeightFile, open_weights},
};

/// The ends of the names of embedding tables and of heads with a row for each token.
const TABLES: [&str; 5] =
    ["embed_tokens.weight", "word_embeddings.weight", "wte.weight", "shared.weight", "lm_head.weight"];

/// What a merge did.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The base model's folder.
    pub base: PathBuf,
    /// The number of layers that a product was added to.
    pub layers: usize,
    /// The last words of these layers' names.
    pub modules: BTreeSet<String>,
    /// The rank that the config sets.
    pub rank: usize,
    /// The `lora_alpha` that the config sets.
    pub alpha: f64,
    /// Whether products are divided by the rank's root instead of the rank.
    pub is_rank_stabilised: bool,
    /// The tensors that the adapter has as a whole, in place of the base model's.
    pub replaced: Vec<String>,
    /// The tensors that the base model lacks.
    pub added: Vec<String>,
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules = self.modules.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let kind = if self.is_rank_stabilised { "rsLoRA" } else { "LoRA" };
        write!(f, "{kind} of {} layers ({modules}), r {}, alpha {}", self.layers, self.rank, self.alpha)?;
        for (what, tensors) in [("replaced", &self.replaced), ("added", &self.added)] {
            if !tensors.is_empty() {
                write!(f, "; {what}: {}", tensors.join(", "))?;
            }
        }
        write!(f, "; base model {}", self.base.display())
    }
}

/// A layer's two matrices.
#[derive(Default)]
struct Pair<'a> {
    a: Option<&'a StoredTensor>,
    b: Option<&'a StoredTensor>,
}

impl Adapter {
    /// The base model that the config names: a folder, an imported model, or a model in the hub's cache, which is not asked
    /// for anything.
    ///
    /// # Errors
    /// [`Error::MissingBase`] where it is none of these, [`Error::Config`] where the config names none.
    pub fn base(&self, hub: Hub) -> Result<PathBuf> {
        if let Some(folder) = self.base_folder()? {
            return Ok(folder);
        }
        let (path, base) = (self.folder.join(CONFIG), self.base_name()?);
        let id = match &self.config.revision {
            Some(revision) if !revision.is_empty() => format!("{base}@{revision}"),
            _ => base.to_owned(),
        };
        let cached = id.parse::<ModelId>().and_then(|id| hub.offline(true).folder(&id, &mut |_| {}));
        cached.map_err(|error| match error {
            Error::ModelId { .. } | Error::NotCached { .. } => Error::MissingBase { path, base: base.into() },
            other => other,
        })
    }

    /// The text of the merged model's `config.json`. Of the weights only names and shapes are read.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge).
    pub fn model_config(&self, base: &Path) -> Result<String> {
        let (adapter, files) = (self.weights()?, open_weights(base)?.0);
        let mut merge = Merge::new(&adapter, &files, base)?;
        let (_, wholes) = merge.sorted()?;
        let mut is_added = false;
        for (name, tensor) in wholes {
            is_added |= merge.fit(&name, tensor)?.is_none();
        }
        if is_added {
            name_head(&mut merge.config, self.config.task_type.as_deref());
        }
        Ok(Value::Object(merge.config).to_string())
    }

    fn weights(&self) -> Result<WeightFile> {
        let path = WEIGHTS.iter().map(|file| self.folder.join(file)).find(|path| path.is_file());
        let expected = "adapter_model.safetensors or adapter_model.bin";
        let path = path.ok_or_else(|| Error::MissingFile { folder: self.folder.clone(), expected })?;
        WeightFile::open(&path, expected)
    }

    /// The base model's weights with the adapter merged into them, and the path that stands for them in errors. The tensors
    /// that differ from the base model's are in a temporary file.
    pub(crate) fn merged_weights(&self, base: &Path) -> Result<(Vec<WeightFile>, PathBuf)> {
        let adapter = self.weights()?;
        let (mut files, _) = open_weights(base)?;
        let mut merge = Merge::new(&adapter, &files, base)?;
        let merged = self.apply(&mut merge)?;
        let new = merge.new;
        let scratch = tempfile::tempdir().map_err(Error::io(&std::env::temp_dir(), "create"))?;
        let path = scratch.path().join("model.safetensors");
        let tensors = new.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), Raw { dtype: *dtype, shape, bytes: Cow::Borrowed(bytes.as_slice()) })
        });
        write_weights(tensors.collect(), &path)?;
        let changed = WeightFile::open(&path, "model.safetensors")?.named(adapter.path());
        files.iter_mut().for_each(|file| file.retain(|name| !new.contains_key(name)));
        files.push(changed);
        tracing::info!(adapter = %self.folder.display(), "{merged}");
        Ok((files, adapter.path().to_owned()))
    }

    /// Writes the base model with the adapter merged into it as the folder `to`, which must not exist or be empty: whole or
    /// not at all. The sums are computed in f32 and rounded to the base model's types. The tokenizer is the adapter's where
    /// its folder has one.
    ///
    /// # Errors
    /// [`Error::Adapter`] where the adapter's tensors are not those of layers of the base model, [`Error::Exists`], and
    /// those of reading and writing weights.
    pub fn merge(&self, base: &Path, to: &Path) -> Result<Merged> {
        let adapter = self.weights()?;
        let (files, _) = open_weights(base)?;
        let mut merge = Merge::new(&adapter, &files, base)?;
        let merged = self.apply(&mut merge)?;
        let Merge { config, new, .. } = merge;
        appear(to, |folder| {
            self.copy_companions(base, folder)?;
            let path = folder.join("config.json");
            let text = format!("{:#}\n", Value::Object(config));
            fs::write(&path, text).map_err(Error::io(&path, "write"))?;
            write_tensors(&files, new, &folder.join("model.safetensors"))
        })?;
        Ok(merged)
    }

    /// Computes the tensors and the config of the merged model.
    fn apply(&self, merge: &mut Merge<'_>) -> Result<Merged> {
        let mut merged = Merged {
            base: merge.base.into(),
            layers: 0,
            modules: BTreeSet::new(),
            rank: self.config.r,
            alpha: self.config.lora_alpha,
            is_rank_stabilised: self.config.use_rslora,
            replaced: Vec::new(),
            added: Vec::new(),
        };
        let (pairs, wholes) = merge.sorted()?;
        for (module, pair) in &pairs {
            if !self.config.targets(module) {
                return Err(merge.wrong(format!("expected modules of `target_modules`, found `{module}`")));
            }
            merge.add(module, pair, self.config.scale(module))?;
            merged.layers += 1;
            merged.modules.insert(module.rsplit('.').next().unwrap_or(module).to_owned());
        }
        for (name, tensor) in wholes {
            // Beside the matrices of a head, PEFT writes the base model's own layer.
            if name.strip_suffix(".weight").is_some_and(|module| pairs.contains_key(module)) {
                continue;
            }
            match merge.replace(&name, tensor)? {
                Some(replaced) => merged.replaced.push(replaced),
                None => merged.added.push(name),
            }
        }
        if !merged.added.is_empty() {
            name_head(&mut merge.config, self.config.task_type.as_deref());
        }
        Ok(merged)
    }

    fn copy_companions(&self, base: &Path, to: &Path) -> Result<()> {
        let folder = if Tokenizer::has_files(&self.folder) { self.folder.as_path() } else { base };
        let tokenizer = tokenizer::FILES.map(|name| folder.join(name));
        let others = [base.join("generation_config.json"), self.folder.join("README.md")];
        for from in tokenizer.into_iter().chain(others).filter(|path| path.is_file()) {
            let into = to.join(from.file_name().unwrap_or_default());
            fs::copy(&from, &into).map_err(Error::io(&from, "copy"))?;
        }
        Ok(())
    }
}

/// A merge: the files, and the tensors that differ from the base model's.
struct Merge<'a> {
    adapter: &'a WeightFile,
    files: &'a [WeightFile],
    base: &'a Path,
    config: Map<String, Value>,
    /// By the base model's names, or by the adapter's for tensors that it lacks.
    new: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

/// A layer's matrices by its name, and whole tensors by theirs.
type Sorted<'a> = (BTreeMap<String, Pair<'a>>, Vec<(String, &'a StoredTensor)>);

impl<'a> Merge<'a> {
    /// A merge with the base model's folder, whose weights are `files`.
    fn new(adapter: &'a WeightFile, files: &'a [WeightFile], base: &'a Path) -> Result<Self> {
        let path = base.join("config.json");
        let text = json::text(&path)?
            .ok_or_else(|| Error::MissingFile { folder: base.into(), expected: "config.json" })?;
        Ok(Self { adapter, files, base, config: parse(&path, &text)?, new: BTreeMap::new() })
    }

    fn wrong(&self, problem: String) -> Error {
        Error::Adapter { path: self.adapter.path().into(), problem }
    }

    /// The adapter's tensors.
    fn sorted(&self) -> Result<Sorted<'a>> {
        let mut pairs: BTreeMap<String, Pair<'a>> = BTreeMap::new();
        let mut wholes = Vec::new();
        for tensor in self.adapter.tensors() {
            let name = tensor.name.strip_prefix("base_model.model.").ok_or_else(|| {
                self.wrong(format!(
                    "expected names that begin with `base_model.model.`, found `{}`",
                    tensor.name
                ))
            })?;
            let name = name.replace(".base_layer.", ".").replace(".modules_to_save.", ".");
            if let Some(module) = name.strip_suffix(".lora_A.weight") {
                pairs.entry(module.to_owned()).or_default().a = Some(tensor);
            } else if let Some(module) = name.strip_suffix(".lora_B.weight") {
                pairs.entry(module.to_owned()).or_default().b = Some(tensor);
            } else if name.contains("lora_") {
                let expected = "expected the matrices `lora_A.weight` and `lora_B.weight` of layers";
                return Err(self.wrong(format!("{expected}, found `{}`", tensor.name)));
            } else {
                wholes.push((name, tensor));
            }
        }
        if pairs.is_empty() && wholes.is_empty() {
            return Err(self.wrong("expected tensors, found none".into()));
        }
        Ok((pairs, wholes))
    }

    /// The base model's tensor of a name. One of the two names may have a further beginning, such as that of a head's class.
    fn find(&self, name: &str) -> Result<Option<(&'a WeightFile, &'a StoredTensor)>> {
        let all =
            || self.files.iter().flat_map(|file| file.tensors().iter().map(move |tensor| (file, tensor)));
        if let Some(found) = all().find(|(_, tensor)| tensor.name == name) {
            return Ok(Some(found));
        }
        let mut similar =
            all().filter(|(_, tensor)| ends_with(&tensor.name, name) || ends_with(name, &tensor.name));
        match (similar.next(), similar.next()) {
            (Some((_, one)), Some((_, other))) => {
                let found = format!("found `{}` and `{}`", one.name, other.name);
                Err(self.wrong(format!("expected one tensor of the base model for `{name}`, {found}")))
            }
            (found, _) => Ok(found),
        }
    }

    /// Adds the product of a layer's matrices to the base model's tensor.
    fn add(&mut self, module: &str, pair: &Pair<'_>, (rank, factor): (usize, f64)) -> Result<()> {
        let (Some(a), Some(b)) = (pair.a, pair.b) else {
            return Err(self.wrong(format!("expected both matrices of `{module}`, found one")));
        };
        if a.shape.len() != 2 || b.shape.len() != 2 || a.shape[0] != rank || b.shape[1] != rank {
            let found = format!("found {:?} and {:?}", a.shape, b.shape);
            return Err(self.wrong(format!("expected matrices of rank {rank} for `{module}`, {found}")));
        }
        let name = format!("{module}.weight");
        let Some((file, tensor)) = self.find(&name)? else {
            let base = self.base.display();
            return Err(
                self.wrong(format!("expected a tensor `{name}` in the base model {base}, found none"))
            );
        };
        let read = |tensor| self.adapter.read(tensor, DType::F32, &Device::Cpu);
        let mut product = read(b)?.matmul(&read(a)?)?;
        // GPT-2's layers hold their matrices with inputs first.
        if self.config.get("model_type").is_some_and(|kind| kind == "gpt2") {
            product = product.t()?;
        }
        if product.dims() != tensor.shape {
            return Err(Error::TensorShape {
                path: file.path().into(),
                tensor: tensor.name.clone(),
                expected: product.shape().clone(),
                found: Shape::from(tensor.shape.as_slice()),
            });
        }
        let sum = (file.read(tensor, DType::F32, &Device::Cpu)? + product.affine(factor, 0.0)?)?;
        let bytes = tensor_bytes(&sum, file.dtype(tensor)?)?;
        self.new.insert(tensor.name.clone(), (tensor.dtype, tensor.shape.clone(), bytes));
        Ok(())
    }

    /// Takes a whole tensor of the adapter. Returns the name of the base model's tensor that it replaces, if there is one.
    fn replace(&mut self, name: &str, tensor: &StoredTensor) -> Result<Option<String>> {
        let Some((file, old)) = self.fit(name, tensor)? else {
            self.adapter.dtype(tensor)?;
            let bytes = self.adapter.bytes(tensor).into_owned();
            self.new.insert(name.to_owned(), (tensor.dtype, tensor.shape.clone(), bytes));
            return Ok(None);
        };
        let value = self.adapter.read(tensor, DType::F32, &Device::Cpu)?;
        let bytes = tensor_bytes(&value, file.dtype(old)?)?;
        self.new.insert(old.name.clone(), (old.dtype, tensor.shape.clone(), bytes));
        Ok(Some(old.name.clone()))
    }

    /// Finds the base model's tensor in whose place a whole tensor of the adapter comes, and changes the config accordingly.
    fn fit(
        &mut self,
        name: &str,
        tensor: &StoredTensor,
    ) -> Result<Option<(&'a WeightFile, &'a StoredTensor)>> {
        let found = self.find(name)?;
        let rows = tensor.shape.first().copied().unwrap_or(0);
        let is_table = TABLES.iter().any(|end| ends_with(name, end));
        if let Some((_, old)) = found {
            let same_rest =
                tensor.shape.len() == old.shape.len() && tensor.shape.get(1..) == old.shape.get(1..);
            if !same_rest {
                return Err(Error::TensorShape {
                    path: self.adapter.path().into(),
                    tensor: tensor.name.clone(),
                    expected: Shape::from(old.shape.as_slice()),
                    found: Shape::from(tensor.shape.as_slice()),
                });
            }
            if is_table && rows != old.shape[0] {
                self.config.insert("vocab_size".into(), rows.into());
            }
        }
        let is_head = !is_table && tensor.shape.len() == 2 && !name.contains(".layer");
        let differs = found.is_none_or(|(_, old)| old.shape.first() != tensor.shape.first());
        if is_head
            && differs
            && ["classifier.weight", "score.weight", "out_proj.weight"].iter().any(|end| ends_with(name, end))
        {
            self.label(rows);
        }
        Ok(found)
    }

    /// Names the labels of a head of `count` rows where the config has another number of them.
    fn label(&mut self, count: usize) {
        let known = self.config.get("id2label").and_then(Value::as_object).map(Map::len);
        if known != Some(count) {
            let labels: Map<String, Value> =
                (0..count).map(|id| (id.to_string(), format!("LABEL_{id}").into())).collect();
            let ids: Map<String, Value> = (0..count).map(|id| (format!("LABEL_{id}"), id.into())).collect();
            self.config.insert("id2label".into(), labels.into());
            self.config.insert("label2id".into(), ids.into());
        }
    }
}

/// Names the class of a base model that got a head for the adapter's task.
fn name_head(config: &mut Map<String, Value>, task: Option<&str>) {
    let end = match task {
        Some("SEQ_CLS") => "ForSequenceClassification",
        Some("TOKEN_CLS") => "ForTokenClassification",
        Some("QUESTION_ANS") => "ForQuestionAnswering",
        _ => return,
    };
    let Some(class) = config.get("architectures").and_then(|classes| classes[0].as_str()) else { return };
    let stem = ["For", "Model", "LMHead"].iter().filter_map(|part| class.find(part)).min();
    let named = format!("{}{end}", &class[..stem.unwrap_or(class.len())]);
    config.insert("architectures".into(), json!([named]));
}

/// Writes the base model's tensors, with the `new` ones in their places and after them.
fn write_tensors(
    files: &[WeightFile],
    mut new: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    path: &Path,
) -> Result<()> {
    let changed: HashMap<String, _> = files
        .iter()
        .flat_map(WeightFile::tensors)
        .filter_map(|tensor| Some((tensor.name.clone(), new.remove(&tensor.name)?)))
        .collect();
    let kept = files.iter().flat_map(|file| file.tensors().iter().map(move |tensor| (file, tensor)));
    let mut tensors: Vec<(&str, Raw<'_>)> = kept
        .map(|(file, tensor)| {
            let raw = match changed.get(&tensor.name) {
                Some((dtype, shape, bytes)) => {
                    Raw { dtype: *dtype, shape, bytes: Cow::Borrowed(bytes.as_slice()) }
                }
                None => Raw { dtype: tensor.dtype, shape: &tensor.shape, bytes: file.bytes(tensor) },
            };
            (tensor.name.as_str(), raw)
        })
        .collect();
    tensors.extend(new.iter().map(|(name, (dtype, shape, bytes))| {
        (name.as_str(), Raw { dtype: *dtype, shape, bytes: Cow::Borrowed(bytes.as_slice()) })
    }));
    write_weights(tensors, path)
}
