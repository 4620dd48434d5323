//! What recurrent layers have in common: the tokens of padded rows one after the other, and convolutions over the last of them.

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::Result;

/// Moves the tokens of each row to its end, and back. Rows without padding stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Alignment(Option<Moves>);

#[derive(Debug)]
struct Moves {
    /// The place of each aligned position among all positions (r * t), and the other way round.
    to_end: Tensor,
    back: Tensor,
    /// 1 for each aligned token and 0 for padding (r, t, 1).
    mask: Tensor,
}

impl Alignment {
    /// That of rows whose tokens `mask` (r, t) marks.
    pub(super) fn new(mask: &[Vec<f32>], device: &Device) -> Result<Self> {
        if mask.iter().flatten().all(|mask| *mask != 0.0) {
            return Ok(Self::default());
        }
        let length = mask.first().map_or(0, Vec::len);
        let mut to_end = Vec::with_capacity(mask.len() * length);
        let mut aligned = Vec::with_capacity(mask.len() * length);
        for (row, mask) in mask.iter().enumerate() {
            let places = |is_token: bool| {
                let own = (0..length).filter(move |at| (mask[*at] != 0.0) == is_token);
                own.map(move |at| (row * length + at) as u32)
            };
            to_end.extend(places(false).chain(places(true)));
            let padding = places(false).count();
            aligned.extend((0..length).map(|at| f32::from(u8::from(at >= padding))));
        }
        let mut back = vec![0u32; to_end.len()];
        for (at, place) in to_end.iter().enumerate() {
            back[*place as usize] = at as u32;
        }
        Ok(Self(Some(Moves {
            to_end: Tensor::new(to_end, device)?,
            back: Tensor::new(back, device)?,
            mask: Tensor::from_vec(aligned, (mask.len(), length, 1), device)?,
        })))
    }

    fn moved(&self, xs: &Tensor, places: impl Fn(&Moves) -> &Tensor) -> Result<Tensor> {
        let Some(moves) = &self.0 else { return Ok(xs.clone()) };
        Ok(xs.flatten_to(1)?.index_select(places(moves), 0)?.reshape(xs.shape())?)
    }

    /// Rows (r, t, d) with their tokens at their ends.
    pub(crate) fn align(&self, xs: &Tensor) -> Result<Tensor> {
        self.moved(xs, |moves| &moves.to_end)
    }

    /// Aligned rows (r, t, d) with their tokens where they were.
    pub(crate) fn restore(&self, xs: &Tensor) -> Result<Tensor> {
        self.moved(xs, |moves| &moves.back)
    }

    /// Aligned rows (r, t, d) with zeros as padding.
    pub(crate) fn without_padding(&self, xs: &Tensor) -> Result<Tensor> {
        let Some(moves) = &self.0 else { return Ok(xs.clone()) };
        Ok(xs.broadcast_mul(&moves.mask.to_dtype(xs.dtype())?)?)
    }
}

/// A convolution over the last tokens of each channel of `xs` (r, t, channels), with weights (channels, 1, kernel) and a bias.
/// Before the first token are those of `window` (r, kernel - 1, channels), or zeros. The second result is the next window.
pub(crate) fn short_convolution(
    xs: &Tensor,
    window: Option<&Tensor>,
    (weights, bias): (&Tensor, Option<&Tensor>),
) -> Result<(Tensor, Tensor)> {
    let (rows, length, channels) = xs.dims3()?;
    let kernel = weights.dim(2)?;
    let before = match window {
        Some(window) => window.clone(),
        None => Tensor::zeros((rows, kernel - 1, channels), xs.dtype(), xs.device())?,
    };
    let all = if kernel == 1 { xs.clone() } else { Tensor::cat(&[&before, xs], 1)?.contiguous()? };
    // Sums of halves would be rounded after every token.
    let dtype = wide(xs);
    let (values, weights) = (all.to_dtype(dtype)?, weights.to_dtype(dtype)?);
    let part = |at: usize| -> Result<Tensor> {
        let weight = weights.narrow(2, at, 1)?.flatten_all()?;
        Ok(values.narrow(1, at, length)?.broadcast_mul(&weight)?)
    };
    let mut sum = part(0)?;
    for at in 1..kernel {
        sum = (sum + part(at)?)?;
    }
    if let Some(bias) = bias {
        sum = sum.broadcast_add(&bias.to_dtype(dtype)?)?;
    }
    Ok((sum.to_dtype(xs.dtype())?, all.narrow(1, length, kernel - 1)?.contiguous()?))
}

/// The type that states are kept in: f32, or f64 where `xs` have it.
pub(crate) fn wide(xs: &Tensor) -> DType {
    if xs.dtype() == DType::F64 { DType::F64 } else { DType::F32 }
}

/// `ln(1 + exp(x))` of each value.
pub(crate) fn softplus(xs: &Tensor) -> Result<Tensor> {
    // The power is bounded.
    Ok((xs.relu()? + (xs.abs()?.neg()?.exp()? + 1.0)?.log()?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::{Alignment, short_convolution};

    #[test]
    fn tokens_are_moved_to_the_ends_of_rows_and_back() {
        assert!(Alignment::new(&[vec![1.0, 1.0]], &Device::Cpu).unwrap().0.is_none());
        let mask = [vec![1.0, 0.0, 1.0, 0.0], vec![0.0, 0.0, 0.0, 1.0]];
        let alignment = Alignment::new(&mask, &Device::Cpu).unwrap();
        let xs = Tensor::arange(0f32, 8.0, &Device::Cpu).unwrap().reshape((2, 4, 1)).unwrap();
        let flat = |xs: &Tensor| xs.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let aligned = alignment.align(&xs).unwrap();
        let found = flat(&alignment.without_padding(&aligned).unwrap());
        assert_eq!(found, [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 7.0]);
        assert_eq!(flat(&alignment.restore(&aligned).unwrap()), flat(&xs));
    }

    #[test]
    fn a_convolution_goes_on_after_its_window() {
        let tensor = |values: &[f32], shape: (usize, usize, usize)| {
            Tensor::from_vec(values.to_vec(), shape, &Device::Cpu).unwrap()
        };
        let weights = tensor(&[1.0, 10.0, 100.0], (1, 1, 3));
        let flat = |xs: &Tensor| xs.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let (whole, window) =
            short_convolution(&tensor(&[1.0, 2.0, 3.0], (1, 3, 1)), None, (&weights, None)).unwrap();
        assert_eq!(flat(&whole), [100.0, 210.0, 321.0]);
        let (next, window) =
            short_convolution(&tensor(&[4.0], (1, 1, 1)), Some(&window), (&weights, None)).unwrap();
        assert_eq!((flat(&next), flat(&window)), (vec![432.0], vec![3.0, 4.0]));
    }
}
