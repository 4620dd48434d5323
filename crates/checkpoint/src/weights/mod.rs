//! The weights of a model's folder: safetensors or PyTorch's `.bin`, in one file or in shards with an index.

mod file;
mod files;
mod loose;
mod mapped;
mod pickle;
mod pytorch;
pub(crate) mod quantised;
mod tensor;

pub use file::RawTensor;
pub(crate) use file::WeightFile;
pub(crate) use files::open_weights;
pub(crate) use loose::type_name;
pub use loose::{tensor_shapes, tensors, tensors_of, tensors_under, weight_types};
pub use mapped::MappedBytes;
pub use quantised::check_quantisation;
pub(crate) use tensor::StoredTensor;
