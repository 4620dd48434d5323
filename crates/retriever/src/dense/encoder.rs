//! The interface of text encoders.

use crate::{Error, Result};

/// Vectors of equal length, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    dim: usize,
    values: Vec<f32>,
}

impl Embeddings {
    /// Vectors of `dim` values each, row by row.
    ///
    /// # Errors
    /// [`Error::Embeddings`] if the values are not a whole number of vectors, or `dim` is 0.
    pub fn new(dim: usize, values: Vec<f32>) -> Result<Self> {
        if dim == 0 || !values.len().is_multiple_of(dim) {
            return Err(Error::Embeddings { dim, values: values.len() });
        }
        Ok(Self { dim, values })
    }

    /// The length of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there is no vector.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All values, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The vectors in their order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.dim)
    }
}

/// Encodes texts as vectors.
///
/// Vector `i` is that of text `i`, independently of the other texts up to rounding. The similarity of two
/// vectors (usually their dot product) is the similarity of their texts.
pub trait Encoder: Send + Sync {
    /// The length of the vectors.
    fn dim(&self) -> usize;

    /// The vectors of `texts`.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    fn encode(&self, texts: &[&str]) -> Result<Embeddings>;

    /// The vectors of passages, given as title and text, joined as in the encoder's training.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    fn encode_passages(&self, passages: &[(&str, &str)]) -> Result<Embeddings>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_whole_vectors() {
        let embeddings = Embeddings::new(2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((embeddings.len(), embeddings.dim()), (2, 2));
        assert_eq!(embeddings.rows().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        for (dim, count) in [(0, 0), (2, 3)] {
            assert!(matches!(Embeddings::new(dim, vec![0.0; count]), Err(Error::Embeddings { .. })));
        }
    }
}
