//! Training checkpoints: values, optimiser state and position.

use std::{collections::BTreeMap, path::Path};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    file::{self, Data, Mapped},
    optimizer::State,
};
use crate::{Error, Result};

/// The names of the optimiser state of tensor `index`.
fn memories(index: usize) -> [String; 2] {
    [format!("state.{index}.first"), format!("state.{index}.second")]
}

/// Writes a checkpoint of the training that `identity` names. The write is atomic.
pub(crate) fn write<'a>(
    path: &Path,
    identity: &str,
    position: &impl Serialize,
    mut tensors: Vec<(String, Vec<usize>, Data<'a>)>,
    states: &'a [State],
) -> Result<()> {
    for (index, state) in states.iter().enumerate() {
        for (name, values) in memories(index).into_iter().zip([&state.first, &state.second]) {
            tensors.push((name, vec![1, values.len()], Data::F32(values)));
        }
    }
    let json = serde_json::to_string(position).map_err(|error| Error::model(path, error.to_string()))?;
    let metadata =
        BTreeMap::from([("identity".to_owned(), identity.to_owned()), ("position".to_owned(), json)]);
    file::write(path, &metadata, &tensors)
}

/// Opens a checkpoint and returns its values and its position. The optimiser state is read into `states`.
///
/// # Errors
/// [`Error::Model`] for a checkpoint of another training.
pub(crate) fn open<P: DeserializeOwned>(
    path: &Path,
    identity: &str,
    states: &mut [State],
) -> Result<(Mapped, P)> {
    let mapped = Mapped::open(path)?;
    if mapped.metadata("identity")? != identity {
        let message = "expected a checkpoint of this training, found one with other options, another seed or other triples; remove it or choose another `name`";
        return Err(Error::model(path, message));
    }
    let position = serde_json::from_str(mapped.metadata("position")?)
        .map_err(|error| Error::model(path, error.to_string()))?;
    for (at, state) in states.iter_mut().enumerate() {
        let [first, second] = memories(at);
        state.first = mapped.values(&first, [1, state.first.len()])?;
        state.second = mapped.values(&second, [1, state.second.len()])?;
    }
    Ok((mapped, position))
}
