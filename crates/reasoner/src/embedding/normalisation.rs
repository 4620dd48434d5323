//! Batch normalisation (Ioffe and Szegedy, 2015): statistics of groups of values over a batch, and gradients.
//!
//! Values come as runs, each of one group, the groups in turn, or as rows with one value a group. Sums are
//! computed in parts that fit the cache.

use sporran_kernels::{Isa, Normalised, NormalisedBack, mean_and_spread, rectify_back};

use super::parameters::Parameters;

/// The constant added to variances.
const EPSILON: f32 = 1e-5;
/// The momentum of the running statistics.
const MOMENTUM: f32 = 0.1;

/// The count, mean and squared deviations of each group's values in a part of a batch.
pub(super) struct Moments {
    count: f64,
    means: Vec<f64>,
    squares: Vec<f64>,
}

impl Moments {
    /// The moments of no values.
    pub(super) fn new(groups: usize) -> Self {
        Self { count: 0.0, means: vec![0.0; groups], squares: vec![0.0; groups] }
    }

    /// The moments of rows.
    pub(super) fn of_rows(values: &[f32], groups: usize) -> Self {
        let mut moments = Self::new(groups);
        moments.count = (values.len() / groups) as f64;
        for row in values.chunks_exact(groups) {
            moments.means.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        moments.means.iter_mut().for_each(|sum| *sum /= moments.count);
        for row in values.chunks_exact(groups) {
            for ((sum, value), mean) in moments.squares.iter_mut().zip(row).zip(&moments.means) {
                *sum += (f64::from(*value) - mean).powi(2);
            }
        }
        moments
    }

    /// Adds one run of `run` values for each group.
    pub(super) fn add_runs(&mut self, values: &[f32], run: usize) {
        let count = run as f64;
        let together = self.count + count;
        for ((values, mean), squares) in values.chunks_exact(run).zip(&mut self.means).zip(&mut self.squares)
        {
            let (own, spread) = mean_and_spread(Isa::detected(), values);
            merge((self.count, mean, squares), (count, own, spread));
        }
        self.count = together;
    }
}

/// Merges the moments of other values of the group (Chan et al., 1979).
fn merge(to: (f64, &mut f64, &mut f64), (count, mean, squares): (f64, f64, f64)) {
    let together = to.0 + count;
    let apart = mean - *to.1;
    *to.1 += apart * count / together;
    *to.2 += squares + apart * apart * to.0 * count / together;
}

/// Means and variances, each over `count` values.
pub(super) struct Statistics {
    means: Vec<f32>,
    variances: Vec<f32>,
    count: f64,
}

impl Statistics {
    /// The statistics of all parts. There is at least one part.
    pub(super) fn of(parts: Vec<Moments>) -> Self {
        let mut all = Moments::new(parts[0].means.len());
        for part in parts {
            let groups = all.means.iter_mut().zip(&mut all.squares).zip(part.means.iter().zip(&part.squares));
            for ((mean, squares), (own, spread)) in groups {
                merge((all.count, mean, squares), (part.count, *own, *spread));
            }
            all.count += part.count;
        }
        Self {
            means: all.means.iter().map(|mean| *mean as f32).collect(),
            variances: all.squares.iter().map(|squares| (squares / all.count) as f32).collect(),
            count: all.count,
        }
    }

    /// The running statistics.
    pub(super) fn running(parameters: &Parameters, mean: usize, variance: usize) -> Self {
        let values = |at: usize| parameters.tensors[at].values.clone();
        Self { means: values(mean), variances: values(variance), count: 0.0 }
    }

    /// Moves the running statistics towards these.
    pub(super) fn follow(&self, parameters: &mut Parameters, mean: usize, variance: usize) {
        // The unbiased variance, as is usual.
        let correction = (self.count / (self.count.max(2.0) - 1.0)) as f32;
        for (at, found, factor) in [(mean, &self.means, 1.0), (variance, &self.variances, correction)] {
            for (running, found) in parameters.tensors[at].values.iter_mut().zip(found) {
                *running += MOMENTUM * (found * factor - *running);
            }
        }
    }

    fn inverse(&self) -> impl Iterator<Item = f32> {
        self.variances.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt())
    }

    /// The normalisation of each group, with scale and shift.
    pub(super) fn lines(&self, scale: &[f32], shift: &[f32]) -> Vec<Normalised> {
        let groups = self.inverse().zip(&self.means).zip(scale.iter().zip(shift));
        groups
            .map(|((inverse, mean), (scale, shift))| Normalised {
                mean: *mean,
                slope: inverse * scale,
                shift: *shift,
            })
            .collect()
    }

    /// Computes the backward pass of the groups from the pulls of all parts. Adds the gradients of scale and
    /// shift, which are the tensors `scale_at` and the next.
    pub(super) fn back(
        &self,
        parts: Vec<Pulls>,
        scale: &[f32],
        scale_at: usize,
        gradients: &mut [Vec<f32>],
    ) -> Vec<NormalisedBack> {
        let mut sums = vec![[0f64; 2]; scale.len()];
        for Pulls(part) in &parts {
            for (sum, part) in sums.iter_mut().zip(part) {
                sum[0] += part[0];
                sum[1] += part[1];
            }
        }
        let groups = sums.iter().enumerate().zip(self.inverse().zip(&self.means).zip(scale));
        groups
            .map(|((group, [plain, pulled]), ((inverse, mean), scale))| {
                let pulled = pulled * f64::from(inverse);
                gradients[scale_at][group] += pulled as f32;
                gradients[scale_at + 1][group] += *plain as f32;
                NormalisedBack {
                    mean: *mean,
                    factor: inverse * scale,
                    plain: (plain / self.count) as f32,
                    pulled: (pulled / self.count * f64::from(inverse)) as f32,
                }
            })
            .collect()
    }
}

/// For each group of a part of a batch: the sum of gradients, and of gradients times deviations from the
/// mean.
pub(super) struct Pulls(Vec<[f64; 2]>);

impl Pulls {
    /// The pulls of no values.
    pub(super) fn new(groups: usize) -> Self {
        Self(vec![[0.0; 2]; groups])
    }

    /// The pulls of rows.
    pub(super) fn of_rows(to: &[f32], values: &[f32], statistics: &Statistics) -> Self {
        let groups = statistics.means.len();
        let mut pulls = Self::new(groups);
        for (to, values) in to.chunks_exact(groups).zip(values.chunks_exact(groups)) {
            let rows = to.iter().zip(values).zip(&statistics.means);
            for ([plain, pulled], ((to, value), mean)) in pulls.0.iter_mut().zip(rows) {
                *plain += f64::from(*to);
                *pulled += f64::from(*to * (value - mean));
            }
        }
        pulls
    }

    /// Propagates the gradients of rectified values, one question's runs, through the rectifier and adds
    /// them. `active` holds the outputs of the rectifier times each group's factor.
    pub(super) fn rectify_back(
        &mut self,
        to: &mut [f32],
        (active, factors): (&[f32], &[f32]),
        values: &[f32],
        statistics: &Statistics,
        run: usize,
    ) {
        let runs = to.chunks_exact_mut(run).zip(active.chunks_exact(run)).zip(values.chunks_exact(run));
        for ((((to, active), values), factor), (sums, mean)) in
            runs.zip(factors).zip(self.0.iter_mut().zip(&statistics.means))
        {
            let own = rectify_back(Isa::detected(), (active, *factor), (values, *mean), to);
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
    }
}
