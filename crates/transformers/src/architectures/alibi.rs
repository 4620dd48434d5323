//! Positions as biases of scores (Press et al. 2022, "ALiBi"): a key's bias falls with its distance from the query.

use half::bf16;

/// The biases of a model's heads.
#[derive(Debug, Clone)]
pub(crate) struct Alibi {
    /// For each head, what a bias falls by with each token.
    slopes: Vec<f32>,
    /// The factor of biases that are rounded to bf16, as Falcon's are; others are not.
    rounded: Option<f32>,
}

/// The biases of one head: `values[start + query * step..]` has one for each key, and `hidden` for keys after the query.
#[derive(Debug)]
pub(crate) struct HeadBiases {
    pub(crate) values: Vec<f32>,
    pub(crate) start: usize,
    pub(crate) step: isize,
}

impl Alibi {
    /// The slopes of BLOOM for this many heads.
    pub(crate) fn new(heads: usize) -> Self {
        // As many as the greatest power of two, and others between them.
        let whole = 1usize << heads.max(1).ilog2();
        let slope = |count: usize, at: usize| {
            let base = 2f32.powf(-(2f32.powf(3.0 - count.ilog2() as f32)));
            base.powi(at as i32)
        };
        let first = (1..=whole).map(|at| slope(whole, at));
        let between = (0..heads - whole).map(|at| slope(2 * whole, 2 * at + 1));
        Self { slopes: first.chain(between).collect(), rounded: None }
    }

    /// The same, rounded to bf16 and then scaled.
    pub(crate) fn rounded(heads: usize, factor: f32) -> Self {
        Self { rounded: Some(factor), ..Self::new(heads) }
    }

    /// The slopes of MPT, of which the least is 2 to the power of minus `most`.
    pub(crate) fn down_to(heads: usize, most: f32) -> Self {
        let whole = heads.max(1).next_power_of_two();
        let all: Vec<f32> =
            (1..=whole).map(|at| 2f32.powf(at as f32 * (most / whole as f32)).recip()).collect();
        let slopes = if whole == heads {
            all
        } else {
            let every_other = |from: usize| all.iter().skip(from).step_by(2);
            every_other(1).chain(every_other(0)).take(heads).copied().collect()
        };
        Self { slopes, rounded: None }
    }

    /// The number of heads.
    pub(crate) fn heads(&self) -> usize {
        self.slopes.len()
    }

    /// The bias of a head on the score of the token at `key` for the one at `query`.
    pub(crate) fn bias(&self, head: usize, query: usize, key: usize) -> f32 {
        let slope = self.slopes[head];
        match self.rounded {
            None => -slope * (query - key) as f32,
            // Falcon's biases grow with the key's place: only their differences matter.
            Some(factor) => {
                let of = |value: f32| bf16::from_f32(value).to_f32();
                of(of(slope) * of(key as f32)) * factor
            }
        }
    }

    /// The biases of a head for all queries of a sequence of `length` tokens.
    pub(crate) fn biases(&self, head: usize, length: usize, hidden: f32) -> HeadBiases {
        let seen = |query: usize, key: usize| if key <= query { self.bias(head, query, key) } else { hidden };
        if self.rounded.is_some() {
            let row = |query: usize| (0..length).map(move |key| (query, key));
            let values = (0..length).flat_map(row).map(|(query, key)| seen(query, key)).collect();
            return HeadBiases { values, start: 0, step: length as isize };
        }
        // By the distance from the query, from that of the last query to the first key on.
        let last = length - 1;
        let values = (0..2 * length - 1).map(|at| seen(last, at)).collect();
        HeadBiases { values, start: last, step: -1 }
    }

    /// The biases of a head for the last token of a sequence of `length`, that of the last key first.
    pub(crate) fn of_last(&self, head: usize, length: usize) -> Vec<f32> {
        (0..length).rev().map(|key| self.bias(head, length - 1, key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Alibi;

    #[test]
    fn slopes_are_those_of_transformers() {
        // From `build_alibi_tensor` of BLOOM and `build_mpt_alibi_tensor` of MPT.
        assert_eq!(Alibi::new(4).slopes, [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(Alibi::new(6).slopes, [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
        assert_eq!(Alibi::down_to(4, 8.0).slopes, [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(Alibi::down_to(6, 8.0).slopes, [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
    }

    #[test]
    fn biases_of_a_sequence_are_those_of_its_tokens() {
        for alibi in [Alibi::new(3), Alibi::rounded(3, 0.5)] {
            let biases = alibi.biases(1, 5, -9.0);
            for query in 0..5 {
                let start = biases.start.wrapping_add_signed(query as isize * biases.step);
                for key in 0..5 {
                    let expected = if key <= query { alibi.bias(1, query, key) } else { -9.0 };
                    assert_eq!(biases.values[start + key], expected, "{query} {key}");
                }
            }
            let last: Vec<f32> = (0..5).rev().map(|key| alibi.bias(1, 4, key)).collect();
            assert_eq!(alibi.of_last(1, 5), last);
        }
        // 257 has nine digits in binary, and bf16 eight.
        assert_eq!(Alibi::rounded(4, 2.0).bias(0, 300, 257), 128.0);
    }
}
