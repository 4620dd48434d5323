//! A tensor of a weight file: its place there and its bytes in the order of rows.

use std::borrow::Cow;

use safetensors::Dtype;

/// A tensor of a file.
#[derive(Debug, Clone)]
pub(crate) struct StoredTensor {
    /// The name in the file.
    pub(crate) name: String,
    /// The type of its elements.
    pub(crate) dtype: Dtype,
    /// Its shape.
    pub(crate) shape: Vec<usize>,
    /// The offset of its first element in the file, in bytes.
    pub(super) start: usize,
    /// The distances, in elements, from one index of a dimension to the next; rows are packed where it is none.
    pub(super) strides: Option<Vec<usize>>,
}

impl StoredTensor {
    /// The number of elements. Both readers check that they are within the file, so this cannot overflow.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    pub(super) fn item_size(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// Whether the elements lie one after the other.
    pub(super) fn is_packed(&self) -> bool {
        let Some(strides) = &self.strides else { return true };
        if self.count() == 0 {
            return true;
        }
        let mut packed = 1;
        std::iter::zip(&self.shape, strides).rev().all(|(&size, &stride)| {
            let fits = size <= 1 || stride == packed;
            packed *= size;
            fits
        })
    }

    /// The bytes of the elements in the order of rows, out of those of the file.
    pub(super) fn bytes<'a>(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        let (count, item) = (self.count(), self.item_size());
        let strides = match &self.strides {
            Some(strides) if !self.is_packed() => strides,
            _ => return Cow::Borrowed(&file[self.start..self.start + count * item]),
        };
        let mut bytes = Vec::with_capacity(count * item);
        let mut index = vec![0; self.shape.len()];
        for _ in 0..count {
            let offset: usize = std::iter::zip(&index, strides).map(|(at, stride)| at * stride).sum();
            let start = self.start + offset * item;
            bytes.extend_from_slice(&file[start..start + item]);
            for (at, &size) in std::iter::zip(&mut index, &self.shape).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        Cow::Owned(bytes)
    }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::StoredTensor;

    fn tensor(shape: &[usize], strides: &[usize]) -> StoredTensor {
        let (name, shape, strides) = ("w".into(), shape.to_vec(), Some(strides.to_vec()));
        StoredTensor { name, dtype: Dtype::I16, shape, start: 1, strides }
    }

    #[test]
    fn a_transposed_tensor_is_read_in_the_order_of_rows() {
        let file: Vec<u8> = (0..13).collect();
        // Elements of two bytes from byte 1 on: 1 2 | 3 4 | 5 6 | 7 8 | 9 10 | 11 12.
        let rows = tensor(&[2, 3], &[3, 1]);
        assert_eq!(*rows.bytes(&file), file[1..]);
        let columns = tensor(&[2, 3], &[1, 2]);
        assert!(!columns.is_packed());
        assert_eq!(*columns.bytes(&file), [1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
        // The stride of a dimension of one element says nothing.
        assert!(tensor(&[1, 3], &[77, 1]).is_packed());
        assert_eq!(*tensor(&[1, 3], &[77, 1]).bytes(&file), file[1..7]);
    }
}
