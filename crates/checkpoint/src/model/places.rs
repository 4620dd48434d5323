//! Which tensor of the weight files is which parameter of the model.

use std::{collections::BTreeMap, path::Path};

use candle_core::Shape;
use safetensors::Dtype;

use crate::{
    architecture::Architecture,
    error::{Error, Result},
    parameters::Parameter,
    part::Part,
    weights::{
        RawTensor, StoredTensor, WeightFile,
        quantised::{self, BLOCKS, EXPONENTS, Packing, SCALES},
    },
};

/// A parameter, and where its elements are, unless it starts fresh.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) parameter: Parameter,
    pub(super) stored: Option<Elements>,
}

/// Where the elements of a parameter are: the indices of a file and of a tensor there, and those of the scales of quantised ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements {
    pub(super) tensor: (usize, usize),
    scales: (usize, usize),
    pub(super) packing: Option<Packing>,
}

impl Elements {
    fn plain(tensor: (usize, usize)) -> Self {
        Self { tensor, scales: tensor, packing: None }
    }

    /// The tensors, with their names for a parameter called `name`.
    pub(super) fn stored(&self, name: &str) -> Vec<(String, (usize, usize))> {
        match self.packing {
            None => vec![(name.into(), self.tensor)],
            Some(Packing::Fp8) => vec![(name.into(), self.tensor), (format!("{name}{SCALES}"), self.scales)],
            Some(Packing::Mxfp4) => {
                vec![(format!("{name}{BLOCKS}"), self.tensor), (format!("{name}{EXPONENTS}"), self.scales)]
            }
        }
    }

    /// The tensors in `files`, each with its file.
    fn of<'a>(&self, files: &'a [WeightFile]) -> [(&'a WeightFile, &'a StoredTensor); 2] {
        [self.tensor, self.scales].map(|(file, tensor)| (&files[file], &files[file].tensors()[tensor]))
    }

    /// The shape of the parameter; none where it is quantised in a form that has another one.
    pub(super) fn shape(&self, files: &[WeightFile]) -> Option<Vec<usize>> {
        let [(_, tensor), _] = self.of(files);
        match (self.packing, tensor.shape.as_slice()) {
            (Some(Packing::Mxfp4), [leading @ .., rows, groups, size]) => {
                Some([leading, &[groups * size * 2, *rows]].concat())
            }
            (Some(Packing::Mxfp4), _) => None,
            (_, shape) => Some(shape.to_vec()),
        }
    }

    /// Checks that the elements are those of `parameter`.
    fn check(&self, files: &[WeightFile], parameter: &Parameter) -> Result<()> {
        let [(file, tensor), scales] = self.of(files);
        if self.packing == Some(Packing::Mxfp4) {
            return quantised::check_mxfp4(file, tensor, scales, parameter.shape.dims());
        }
        if tensor.shape != parameter.shape.dims() {
            return Err(Error::TensorShape {
                path: file.path().into(),
                tensor: tensor.name.clone(),
                expected: parameter.shape.clone(),
                found: Shape::from(tensor.shape.as_slice()),
            });
        }
        match self.packing {
            Some(_) => quantised::check_fp8(file, tensor, scales),
            None => file.dtype(tensor).map(|_| ()),
        }
    }

    /// The elements: quantised ones as the numbers that they stand for.
    pub(super) fn raw<'a>(&self, files: &'a [WeightFile]) -> Result<RawTensor<'a>> {
        let [(file, tensor), scales] = self.of(files);
        match self.packing {
            None => file.raw(tensor),
            Some(Packing::Fp8) => quantised::fp8(file, tensor, scales),
            Some(Packing::Mxfp4) => Ok(quantised::mxfp4(file, tensor, scales)),
        }
    }
}

/// The tensors of a checkpoint by the names that the model gives them.
pub(super) struct Stored<'a> {
    files: &'a [WeightFile],
    /// For each of the model's names, the indices of the file and of the tensor there.
    names: BTreeMap<String, (usize, usize)>,
    /// Tensors whose place in the model another one has.
    doubles: Vec<(usize, usize)>,
}

impl<'a> Stored<'a> {
    /// The tensors of `files` without `prefix`, which all their names begin with; of a `part`, those alone that are its own,
    /// under its names.
    pub(super) fn of(
        files: &'a [WeightFile],
        architecture: &dyn Architecture,
        part: Option<Part>,
        prefix: &str,
    ) -> Self {
        let mut stored = Self { files, names: BTreeMap::new(), doubles: Vec::new() };
        for (at, file) in files.iter().enumerate() {
            for (index, tensor) in file.tensors().iter().enumerate() {
                let name = tensor.name.strip_prefix(prefix).unwrap_or(&tensor.name);
                let inner = match part {
                    Some(part) => part.inner(name),
                    None => Some(name.into()),
                };
                let Some(inner) = inner else { continue };
                let name = architecture.canonical(&inner);
                // The name that the model itself gives comes before one that only stands for it.
                let is_exact = name == inner;
                match stored.names.get_mut(&name) {
                    Some(place) if is_exact => {
                        stored.doubles.push(std::mem::replace(place, (at, index)));
                    }
                    Some(_) => stored.doubles.push((at, index)),
                    None => {
                        stored.names.insert(name, (at, index));
                    }
                }
            }
        }
        stored
    }

    /// Whether a tensor's name begins with `start`.
    pub(super) fn has(&self, start: &str) -> bool {
        self.names.range(start.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(start))
    }

    /// The number of the model's parameters that the tensors have.
    fn matches(&self, parameters: &[Parameter]) -> usize {
        let has = |name: &str| self.names.contains_key(name);
        let is_stored = |name: &str| has(name) || has(&format!("{name}{BLOCKS}"));
        parameters.iter().filter(|parameter| is_stored(&parameter.name)).count()
    }

    fn path(&self, (file, _): (usize, usize)) -> &'a Path {
        self.files[file].path()
    }

    fn tensor(&self, (file, tensor): (usize, usize)) -> &'a StoredTensor {
        &self.files[file].tensors()[tensor]
    }

    fn same_values(&self, a: (usize, usize), b: (usize, usize)) -> bool {
        let (one, other) = (self.tensor(a), self.tensor(b));
        (one.dtype, &one.shape) == (other.dtype, &other.shape)
            && self.files[a.0].bytes(one) == self.files[b.0].bytes(other)
    }

    /// Keeps only the main name of the embedding table where the weights have it under several. Returns whether a head
    /// that the config ties has separate values.
    pub(super) fn unify_embeddings(&mut self, architecture: &dyn Architecture) -> Result<bool> {
        let Some(table) = architecture.embedding() else { return Ok(false) };
        let mut untied = false;
        for other in table.others.iter().copied().chain(table.tied_head) {
            let Some(&place) = self.names.get(other) else { continue };
            let Some(&first) = self.names.get(table.name) else {
                self.names.insert(table.name.into(), place);
                self.names.remove(other);
                continue;
            };
            if self.same_values(first, place) {
                self.names.remove(other);
            } else if table.tied_head == Some(other) {
                let file = self.path(place).display();
                tracing::warn!(%file, "the config ties the head to the embeddings, but the weights do not");
                untied = true;
            } else {
                return Err(Error::Config {
                    path: self.path(place).into(),
                    field: other.into(),
                    expected: format!("the same values as `{}`", table.name),
                    found: "others".into(),
                });
            }
        }
        Ok(untied)
    }

    /// Where the elements of the parameter that the model calls `name` are, which are taken out.
    pub(super) fn take(&mut self, name: &str) -> Option<Elements> {
        let Some(tensor) = self.names.remove(name) else {
            let tensor = self.names.remove(&format!("{name}{BLOCKS}"))?;
            let scales = self.names.remove(&format!("{name}{EXPONENTS}"))?;
            return Some(Elements { tensor, scales, packing: Some(Packing::Mxfp4) });
        };
        if self.tensor(tensor).dtype != Dtype::F8_E4M3 {
            return Some(Elements::plain(tensor));
        }
        let Some(scales) = self.names.remove(&format!("{name}{SCALES}")) else {
            return Some(Elements::plain(tensor));
        };
        // The scales of activations, which are not rounded here.
        let layer = name.strip_suffix(".weight").unwrap_or(name);
        for scale in ["activation_scale", "input_scale"] {
            self.names.remove(&format!("{layer}.{scale}"));
        }
        Some(Elements { tensor, scales, packing: Some(Packing::Fp8) })
    }

    /// Where each parameter of the model lies, with its shape and type checked. `index` is the file that lists the
    /// tensors.
    pub(super) fn locate(&mut self, architecture: &dyn Architecture, index: &Path) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for parameter in architecture.parameters()? {
            let stored = self.take(&parameter.name);
            let Some(elements) = stored else {
                if architecture.is_optional(&parameter.name) {
                    places.push(Place { parameter, stored });
                    continue;
                }
                let (path, tensor, expected) = (index.into(), parameter.name, parameter.shape);
                return Err(Error::MissingTensor { path, tensor, expected });
            };
            elements.check(self.files, &parameter)?;
            places.push(Place { parameter, stored });
        }
        Ok(places)
    }

    /// The tensors that no parameter has taken, by the model's own names. A head that is trained on the model may read them.
    pub(super) fn rest(&self) -> Vec<(String, (usize, usize))> {
        self.names.iter().map(|(name, place)| (name.clone(), *place)).collect()
    }

    /// The tensors that no parameter has taken, by their stored names, in order.
    pub(super) fn surplus(self, architecture: &dyn Architecture) -> Vec<String> {
        let unused = self.names.iter().filter(|(name, _)| !architecture.is_ignorable(name));
        let places = unused.map(|(_, place)| *place).chain(self.doubles.iter().copied());
        let mut surplus: Vec<String> = places
            .map(|place| {
                let tensor = &self.tensor(place).name;
                let file = self.path(place).display();
                tracing::warn!(%file, tensor, "the model does not use this tensor");
                tensor.clone()
            })
            .collect();
        surplus.sort_unstable();
        surplus
    }
}

/// The prefix of all tensor names in `files` that the model's own names lack, such as `module.` of PyTorch's wrappers:
/// dotted words that all names begin with, as few of them as give the most parameters. It is empty where the names fit
/// best as they are.
pub(super) fn shared_prefix(
    files: &[WeightFile],
    architecture: &dyn Architecture,
    part: Option<Part>,
) -> Result<String> {
    let parameters = architecture.parameters()?;
    let matches = |prefix: &str| Stored::of(files, architecture, part, prefix).matches(&parameters);
    let (mut best, mut most) = (String::new(), matches(""));
    let mut names = files.iter().flat_map(WeightFile::tensors).map(|tensor| tensor.name.as_str());
    let Some(first) = names.next() else { return Ok(best) };
    for (dot, _) in first.match_indices('.') {
        let prefix = &first[..=dot];
        if most == parameters.len() || !names.clone().all(|name| name.starts_with(prefix)) {
            break;
        }
        let found = matches(prefix);
        if found > most {
            (best, most) = (prefix.to_owned(), found);
        }
    }
    Ok(best)
}
