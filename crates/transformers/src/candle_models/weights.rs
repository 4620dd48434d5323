//! The tensors of a folder, for candle's models.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};
use sporran_checkpoint::{Error, Result};

/// The tensors, and what a model did with them.
struct Tensors {
    path: PathBuf,
    tensors: HashMap<String, Tensor>,
    /// Stands for `lm_head.weight` where the weights have none.
    head: Option<Tensor>,
    used: Arc<Mutex<Used>>,
}

/// The tensors that a model has read, and the last one that was not there as it should be.
#[derive(Default)]
struct Used {
    read: BTreeSet<String>,
    missed: Option<Error>,
}

impl Tensors {
    fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name).or_else(|| (name == HEAD).then_some(self.head.as_ref()).flatten())
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self, error: Error) {
        self.used().missed = Some(error);
    }
}

impl SimpleBackend for Tensors {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let (path, tensor) = (self.path.clone(), name.to_owned());
        match self.find(name).map(Tensor::shape) {
            None => {
                self.missed(Error::MissingTensor { path, tensor, expected: shape });
                Err(candle_core::Error::CannotFindTensor { path: name.to_owned() })
            }
            Some(found) if *found != shape => {
                let found = found.clone();
                self.missed(Error::TensorShape { path, tensor, expected: shape, found });
                Err(candle_core::Error::CannotFindTensor { path: name.to_owned() })
            }
            Some(_) => self.get_unchecked(name, dtype, device),
        }
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let Some(tensor) = self.find(name) else {
            return Err(candle_core::Error::CannotFindTensor { path: name.to_owned() });
        };
        self.used().read.insert(name.to_owned());
        tensor.to_device(device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }
}

const HEAD: &str = "lm_head.weight";
/// The names of embedding tables.
const EMBEDDINGS: [&str; 4] = [
    "model.embed_tokens.weight",
    "transformer.word_embeddings.weight",
    "transformer.wte.weight",
    "backbone.embeddings.weight",
];

/// The weights of a folder in memory.
pub(crate) struct Weights {
    pub(super) vb: VarBuilder<'static>,
    path: PathBuf,
    names: BTreeSet<String>,
    used: Arc<Mutex<Used>>,
}

impl Weights {
    /// `tensors`, with the embeddings as a missing head unless the config says that the head `is_apart`. `path` names
    /// them in errors.
    pub(super) fn new(
        (tensors, path): (HashMap<String, Tensor>, PathBuf),
        is_apart: bool,
        (dtype, device): (DType, &Device),
    ) -> Self {
        let embeddings = EMBEDDINGS.iter().find_map(|name| tensors.get(*name)).cloned();
        let head = embeddings.filter(|_| !is_apart);
        let mut names: BTreeSet<String> = tensors.keys().cloned().collect();
        if !is_apart {
            // Some files store a tied head too.
            names.remove(HEAD);
        }
        // The steps of the angles and the masks of attention, which older versions stored.
        names.retain(|name| !name.ends_with("rotary_emb.inv_freq") && !name.ends_with("masked_bias"));
        let used = Arc::default();
        let backend = Tensors { path: path.clone(), tensors, head, used: Arc::clone(&used) };
        Self { vb: VarBuilder::from_backend(Box::new(backend), dtype, device.clone()), path, names, used }
    }

    /// The number of tensors.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    /// The error of a model that could not be made: the tensor that was missed, if there is one.
    pub(super) fn error(&self, error: candle_core::Error) -> Error {
        let missed = self.used.lock().unwrap_or_else(PoisonError::into_inner).missed.take();
        missed.unwrap_or(Error::Tensor(error))
    }

    /// Checks that a model has read all tensors: one that it ignores would change its results.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] for the first that it has not read.
    pub(super) fn check_all_read(&self) -> Result<()> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match self.names.iter().find(|name| !used.read.contains(*name)) {
            Some(name) => Err(Error::UnknownTensor { path: self.path.clone(), tensor: name.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(names: &[&str], is_apart: bool) -> Weights {
        let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
        let tensors = names.iter().map(|name| ((*name).to_owned(), tensor.clone())).collect();
        Weights::new((tensors, "w".into()), is_apart, (DType::F32, &Device::Cpu))
    }

    #[test]
    fn a_missing_head_is_the_embeddings_unless_it_is_apart() {
        let names = ["model.embed_tokens.weight"];
        assert!(weights(&names, false).vb.get((2, 3), HEAD).is_ok());
        let apart = weights(&names, true);
        let error = apart.error(apart.vb.get((2, 3), HEAD).unwrap_err()).to_string();
        assert_eq!(error, "w: expected tensor `lm_head.weight` of shape [2, 3], found none");
    }

    #[test]
    fn tensors_of_another_shape_and_tensors_that_are_not_read_are_errors() {
        let all = weights(&["a", "b", "layers.0.rotary_emb.inv_freq", HEAD], false);
        let error = all.error(all.vb.get((3, 2), "a").unwrap_err()).to_string();
        assert_eq!(error, "w: tensor `a`: expected shape [3, 2], found [2, 3]");
        all.vb.get((2, 3), "a").unwrap();
        let error = all.check_all_read().unwrap_err().to_string();
        assert!(error.ends_with("found `b`"), "{error}");
        all.vb.get((2, 3), "b").unwrap();
        all.check_all_read().unwrap();
    }
}
