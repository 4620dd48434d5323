//! Rotary positions.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{values, with_values};

#[derive(Debug, Clone)]
struct Rotary {
    /// The cosines and sines of angles (r or 1, 1, t, v).
    cos: Tensor,
    sin: Tensor,
    heads: usize,
    /// Whether values are turned back.
    is_back: bool,
}

impl CustomOp1 for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, length, width) = layout.shape().dims3()?;
        let (angles, _, _, turned) = self.cos.dims4()?;
        let (head, half) = (width / self.heads, turned / 2);
        let mut out = values(storage, layout)?.to_vec();
        with_values(&self.cos, |cos| {
            with_values(&self.sin, |sin| {
                let tokens = out.par_chunks_exact_mut(width).with_min_len(16).enumerate();
                tokens.for_each(|(at, token)| {
                    let angle = if angles == rows { at } else { at % length };
                    let (cos, sin) = (&cos[angle * turned..][..half], &sin[angle * turned..][..half]);
                    for head in token.chunks_exact_mut(head) {
                        let (first, rest) = head.split_at_mut(half);
                        for (((x, y), &c), &s) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
                            let s = if self.is_back { -s } else { s };
                            (*x, *y) = (*x * c - *y * s, *y * c + *x * s);
                        }
                    }
                });
                Ok(())
            })
        })?;
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        // The transpose of a rotation turns back.
        let back = Self { is_back: !self.is_back, ..self.clone() };
        gradient.contiguous()?.apply_op1_no_bwd(&back).map(Some)
    }
}

/// Turns each pair of values of `xs` (r, t, heads * w), which lie half a part apart in a head, by its angle. `cos` and `sin`
/// are (r or 1, 1, t, v), with the two halves of `v` alike. The values of a head after the first `v` stay (Su et al. 2021).
pub fn rotary(xs: &Tensor, heads: usize, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (rows, length, width) = xs.dims3()?;
    let (angles, one, positions, turned) = cos.dims4()?;
    let fits = heads > 0 && width % heads == 0 && turned % 2 == 0 && turned <= width / heads;
    if !fits || one != 1 || positions != length || (angles != 1 && angles != rows) || sin.dims() != cos.dims()
    {
        candle_core::bail!(
            "rotary: {heads} heads of {:?}, cosines {:?} and sines {:?} do not fit",
            xs.shape(),
            cos.shape(),
            sin.shape()
        );
    }
    let [cos, sin] = [cos.contiguous()?.detach(), sin.contiguous()?.detach()];
    xs.contiguous()?.apply_op1(Rotary { cos, sin, heads, is_back: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attention::rotate,
        fused::tests::{assert_close, gradients, wave},
    };

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        for (rows, turned) in [(2, 6), (1, 6), (2, 4)] {
            let angles = wave(&[rows, 1, 3, turned / 2], 0.8);
            let angles = Tensor::cat(&[&angles, &angles], 3).unwrap();
            let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
            let inputs = [wave(&[2, 3, 12], 0.9)];
            let fused = gradients(&inputs, |x| rotary(&x[0], 2, &cos, &sin));
            let plain = gradients(&inputs, |x| {
                let heads = x[0].reshape((2, 3, 2, 6))?.transpose(1, 2)?.contiguous()?;
                let turned = rotate(&heads, &cos, &sin).map_err(candle_core::Error::wrap)?;
                turned.transpose(1, 2)?.reshape((2, 3, 12))
            });
            assert_close(&fused, &plain);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error() {
        let run = |xs: &[usize], angles: &[usize]| {
            let angles = wave(angles, 0.3);
            rotary(&wave(xs, 0.5), 2, &angles, &angles)
        };
        assert!(run(&[2, 3, 8], &[1, 1, 3, 4]).is_ok());
        assert!(run(&[2, 3, 8], &[1, 1, 2, 4]).is_err());
        assert!(run(&[2, 3, 8], &[3, 1, 3, 4]).is_err());
        assert!(run(&[2, 3, 8], &[1, 1, 3, 6]).is_err());
    }
}
