//! Token rows as one padded tensor with its mask.

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, Result};

/// Token ids of several inputs, padded on the right to one length, with the mask that tells tokens from padding.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Token ids, shape (b, s), type u32; the pad id where there is no token.
    pub ids: Tensor,
    /// 1 at a token and 0 at padding, shape (b, s), type f32.
    pub mask: Tensor,
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
        Ok(Self { ids: Tensor::from_vec(ids, shape, device)?, mask: Tensor::from_vec(mask, shape, device)? })
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
        Ok(Self { ids, mask: mask.to_dtype(DType::F32)? })
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

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::Batch;

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
