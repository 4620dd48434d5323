//! Token rows as one padded tensor with its mask.

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};

/// Token ids of several inputs, padded on the right to one length, with the mask that separates tokens from padding.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Token ids, shape (b, s), type u32; the pad id where there is no token.
    pub ids: Tensor,
    /// 1 at a token and 0 at padding, shape (b, s), type f32.
    pub mask: Tensor,
    /// Which part of an input a token belongs to, shape (b, s), type u32, for the encoders that tell first and second
    /// texts apart.
    pub types: Option<Tensor>,
}

impl Batch {
    /// Pads `rows` with `pad` to the length of the longest.
    ///
    /// # Errors
    /// [`Error::Batch`] where there is no row, or a row has no token.
    pub fn new<R: AsRef<[u32]>>(rows: &[R], pad: u32, device: &Device) -> Result<Self> {
        let length = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
        if rows.is_empty() {
            return Err(Error::Batch { expected: "at least one row".into(), found: "no row".into() });
        }
        if let Some(at) = rows.iter().position(|row| row.as_ref().is_empty()) {
            return Err(Error::Batch {
                expected: "at least one token in every row".into(),
                found: format!("no token in row {at}"),
            });
        }
        let mut ids = Vec::with_capacity(rows.len() * length);
        let mut mask = Vec::with_capacity(rows.len() * length);
        for row in rows {
            let row = row.as_ref();
            ids.extend_from_slice(row);
            ids.resize(ids.len() + length - row.len(), pad);
            mask.resize(mask.len() + row.len(), 1f32);
            mask.resize(ids.len(), 0f32);
        }
        let shape = (rows.len(), length);
        Ok(Self {
            ids: Tensor::from_vec(ids, shape, device)?,
            mask: Tensor::from_vec(mask, shape, device)?,
            types: None,
        })
    }

    /// The same with token types, which are 0 at padding.
    ///
    /// # Errors
    /// [`Error::Batch`] where `rows` are more, fewer or longer than those of the batch.
    pub fn with_types<R: AsRef<[u32]>>(self, rows: &[R]) -> Result<Self> {
        let (size, length) = self.ids.dims2()?;
        let longest = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
        if rows.len() != size || longest > length {
            return Err(Error::Batch {
                expected: format!("token types of {size} rows of at most {length} tokens"),
                found: format!("{} rows of at most {longest}", rows.len()),
            });
        }
        let mut types = Vec::with_capacity(size * length);
        for row in rows {
            types.extend_from_slice(row.as_ref());
            types.resize(types.len() + length - row.as_ref().len(), 0);
        }
        let types = Some(Tensor::from_vec(types, (size, length), self.ids.device())?);
        Ok(Self { types, ..self })
    }

    /// The same with every `id` hidden as padding is, wherever it stands.
    ///
    /// # Errors
    /// A tensor error.
    pub fn hiding(self, id: u32) -> Result<Self> {
        let mask = (self.mask * self.ids.ne(id)?.to_dtype(DType::F32)?)?;
        Ok(Self { mask, ..self })
    }

    /// A batch from tensors that are already padded: `ids` (b, s) of type u32 and `mask` (b, s) of any type,
    /// 1 at a token and 0 at padding.
    ///
    /// # Errors
    /// [`Error::Batch`] where the two shapes differ.
    pub fn from_tensors(ids: Tensor, mask: &Tensor) -> Result<Self> {
        if ids.dims2()? != mask.dims2()? {
            return Err(Error::Batch {
                expected: format!("a mask of the shape of the ids, {:?}", ids.shape()),
                found: format!("{:?}", mask.shape()),
            });
        }
        Ok(Self { ids, mask: mask.to_dtype(DType::F32)?, types: None })
    }

    /// The token ids of every input, without padding.
    ///
    /// # Errors
    /// A tensor error.
    pub fn rows(&self) -> Result<Vec<Vec<u32>>> {
        let (ids, mask) = (self.ids.to_vec2::<u32>()?, self.mask.to_vec2::<f32>()?);
        let row = |(ids, mask): (Vec<u32>, Vec<f32>)| {
            ids.into_iter().zip(mask).filter(|(_, mask)| *mask > 0.0).map(|(id, _)| id).collect()
        };
        Ok(ids.into_iter().zip(mask).map(row).collect())
    }

    /// The number of inputs, b.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ids.dims()[0]
    }

    /// The padded length, s.
    #[must_use]
    pub fn length(&self) -> usize {
        self.ids.dims()[1]
    }
}

/// Groups rows of these lengths into batches of at most `rows` rows and `tokens` tokens, padding included. A longer row
/// forms a separate batch. The longest come first, so a batch has rows of similar length and little padding.
#[must_use]
pub fn length_batches(lengths: &[usize], rows: usize, tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(lengths[at]), at));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for at in order {
        match batches.last_mut() {
            // The first row of a batch is its longest, so it sets the cost of each further row.
            Some(batch) if batch.len() < rows && (batch.len() + 1) * lengths[batch[0]] <= tokens => {
                batch.push(at);
            }
            _ => batches.push(vec![at]),
        }
    }
    batches
}

/// The results of `work` on every batch, in order: on a CPU the batches share its threads, a GPU takes one after the
/// other, with all that it has and without the states of others in its memory.
///
/// # Errors
/// An error of `work`.
pub fn each_batch<T: Send, E: Send>(
    device: &Device,
    batches: &[Vec<usize>],
    work: impl Fn(&[usize]) -> Result<T, E> + Sync + Send,
) -> Result<Vec<T>, E> {
    if device.is_cpu() {
        batches.par_iter().map(|batch| work(batch)).collect()
    } else {
        batches.iter().map(|batch| work(batch)).collect()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::{Batch, length_batches};

    #[test]
    fn token_types_are_padded_with_zeros_and_have_the_batch_s_shape() {
        let batch = Batch::new(&[vec![5, 6, 1], vec![7]], 9, &Device::Cpu).unwrap();
        let typed = batch.clone().with_types(&[vec![0, 1, 1], vec![1]]).unwrap();
        assert_eq!(typed.types.unwrap().to_vec2::<u32>().unwrap(), [[0, 1, 1], [1, 0, 0]]);
        let error = batch.with_types(&[vec![0, 1, 1, 1], vec![0]]).unwrap_err().to_string();
        assert!(error.ends_with("of 2 rows of at most 3 tokens, found 2 rows of at most 4"), "{error}");
    }

    #[test]
    fn batches_hold_every_row_once_within_both_budgets() {
        // Longest first: 30 alone (over the budget), 9 alone (two would be 18), 4 4 3 (4 x 3 = 12), 2 1.
        let batches = length_batches(&[3, 9, 1, 4, 4, 2, 30], 3, 12);
        assert_eq!(batches, [vec![6], vec![1], vec![3, 4, 0], vec![5, 2]]);
    }

    #[test]
    fn rows_are_padded_on_the_right_and_masked() {
        let batch = Batch::new(&[vec![5, 6, 1], vec![7, 1]], 9, &Device::Cpu).unwrap();
        assert_eq!((batch.size(), batch.length()), (2, 3));
        assert_eq!(batch.ids.to_vec2::<u32>().unwrap(), [[5, 6, 1], [7, 1, 9]]);
        assert_eq!(batch.mask.to_vec2::<f32>().unwrap(), [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]);
        assert_eq!(batch.rows().unwrap(), [vec![5, 6, 1], vec![7, 1]]);
    }

    #[test]
    fn a_batch_needs_rows_and_every_row_a_token() {
        let none: [Vec<u32>; 0] = [];
        assert!(Batch::new(&none, 0, &Device::Cpu).unwrap_err().to_string().contains("no row"));
        let error = Batch::new(&[vec![1], vec![]], 0, &Device::Cpu).unwrap_err();
        assert!(error.to_string().contains("no token in row 1"));
    }

    #[test]
    fn a_mask_of_another_shape_is_refused() {
        let ids = Tensor::zeros((2, 3), candle_core::DType::U32, &Device::Cpu).unwrap();
        let mask = Tensor::ones((2, 2), candle_core::DType::U8, &Device::Cpu).unwrap();
        assert!(Batch::from_tensors(ids, &mask).is_err());
    }
}
