//! Models whose relations are vectors: question vectors and their gradients.

use super::options::ModelKind;

/// Computes the question vector from the vectors `entity` and `relation`. With `inverse`, the question starts
/// from the object and asks for subjects.
pub(super) fn forward(model: ModelKind, inverse: bool, entity: &[f32], relation: &[f32], out: &mut [f32]) {
    let half = out.len() / 2;
    match model {
        ModelKind::DistMult => {
            for ((out, e), r) in out.iter_mut().zip(entity).zip(relation) {
                *out = e * r;
            }
        }
        ModelKind::TransE => {
            let sign = if inverse { -1.0 } else { 1.0 };
            for ((out, e), r) in out.iter_mut().zip(entity).zip(relation) {
                *out = e + sign * r;
            }
        }
        ModelKind::ComplEx => {
            let sign = if inverse { -1.0 } else { 1.0 };
            let ((e_re, e_im), (r_re, r_im)) = (entity.split_at(half), relation.split_at(half));
            let (out_re, out_im) = out.split_at_mut(half);
            for k in 0..half {
                let (r_re, r_im) = (r_re[k], sign * r_im[k]);
                out_re[k] = e_re[k] * r_re - e_im[k] * r_im;
                out_im[k] = e_re[k] * r_im + e_im[k] * r_re;
            }
        }
        ModelKind::RotatE => {
            let sign = if inverse { -1.0 } else { 1.0 };
            let (e_re, e_im) = entity.split_at(half);
            let (out_re, out_im) = out.split_at_mut(half);
            for k in 0..half {
                let (sin, cos) = (sign * relation[k]).sin_cos();
                out_re[k] = e_re[k] * cos - e_im[k] * sin;
                out_im[k] = e_re[k] * sin + e_im[k] * cos;
            }
        }
        ModelKind::Rescal | ModelKind::TuckEr | ModelKind::ConvE => {
            unreachable!("these models have modules of their own")
        }
    }
}

/// Computes the gradients of a question's two vectors from that of its result, `to`.
pub(super) fn backward(
    model: ModelKind,
    inverse: bool,
    (entity, relation): (&[f32], &[f32]),
    to: &[f32],
    (to_entity, to_relation): (&mut [f32], &mut [f32]),
) {
    let half = to.len() / 2;
    match model {
        ModelKind::DistMult => {
            for k in 0..to.len() {
                to_entity[k] = to[k] * relation[k];
                to_relation[k] = to[k] * entity[k];
            }
        }
        ModelKind::TransE => {
            let sign = if inverse { -1.0 } else { 1.0 };
            to_entity.copy_from_slice(to);
            to_relation.iter_mut().zip(to).for_each(|(out, to)| *out = sign * to);
        }
        ModelKind::ComplEx => {
            let sign = if inverse { -1.0 } else { 1.0 };
            let ((e_re, e_im), (r_re, r_im)) = (entity.split_at(half), relation.split_at(half));
            let (to_re, to_im) = to.split_at(half);
            let (to_e_re, to_e_im) = to_entity.split_at_mut(half);
            let (to_r_re, to_r_im) = to_relation.split_at_mut(half);
            for k in 0..half {
                let (r_re, r_im) = (r_re[k], sign * r_im[k]);
                to_e_re[k] = to_re[k] * r_re + to_im[k] * r_im;
                to_e_im[k] = to_im[k] * r_re - to_re[k] * r_im;
                to_r_re[k] = to_re[k] * e_re[k] + to_im[k] * e_im[k];
                to_r_im[k] = sign * (to_im[k] * e_re[k] - to_re[k] * e_im[k]);
            }
        }
        ModelKind::RotatE => {
            let sign = if inverse { -1.0 } else { 1.0 };
            let (e_re, e_im) = entity.split_at(half);
            let (to_re, to_im) = to.split_at(half);
            let (to_e_re, to_e_im) = to_entity.split_at_mut(half);
            for k in 0..half {
                let (sin, cos) = (sign * relation[k]).sin_cos();
                to_e_re[k] = to_re[k] * cos + to_im[k] * sin;
                to_e_im[k] = to_im[k] * cos - to_re[k] * sin;
                let (re, im) = (e_re[k] * cos - e_im[k] * sin, e_re[k] * sin + e_im[k] * cos);
                to_relation[k] = sign * (to_im[k] * re - to_re[k] * im);
            }
        }
        ModelKind::Rescal | ModelKind::TuckEr | ModelKind::ConvE => {
            unreachable!("these models have modules of their own")
        }
    }
}
