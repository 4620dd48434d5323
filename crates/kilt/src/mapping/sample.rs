//! Random splits from a seed.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Split;

/// A random order of the numbers below `count`.
pub(super) fn shuffled(seed: u64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Fisher and Yates' shuffle, spelt out: a new version of `rand` must not change the splits.
    for last in (1..count).rev() {
        order.swap(last, rng.random_range(0..=last as u64) as usize);
    }
    order
}

/// Divides the numbers below `count` at random into `dev`, `test` and the rest, `train`. Returns for each number
/// whether it is in `split`. If there are too few numbers, `dev` comes first.
pub(super) fn members(seed: u64, count: usize, dev: usize, test: usize, split: Split) -> Vec<bool> {
    let dev = dev.min(count);
    let held_out = dev + test.min(count - dev);
    let range: Range<usize> = match split {
        Split::Dev => 0..dev,
        Split::Test => dev..held_out,
        Split::Train => held_out..count,
    };
    let mut is_member = vec![false; count];
    shuffled(seed, count)[range].iter().for_each(|&number| is_member[number] = true);
    is_member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_one_split_and_the_seed_decides() {
        let of = |seed, split| members(seed, 120, 12, 24, split);
        let [train, dev, test] = [Split::Train, Split::Dev, Split::Test].map(|split| of(3, split));
        let count = |members: &[bool]| members.iter().filter(|&&is| is).count();
        assert_eq!((count(&train), count(&dev), count(&test)), (84, 12, 24));
        for at in 0..120 {
            assert_eq!(u8::from(train[at]) + u8::from(dev[at]) + u8::from(test[at]), 1);
        }
        assert_eq!(dev, of(3, Split::Dev));
        assert_ne!(dev, of(4, Split::Dev));
    }

    #[test]
    fn dev_comes_first_where_numbers_are_few() {
        assert_eq!(members(0, 1, 5, 5, Split::Dev), [true]);
        assert_eq!(members(0, 1, 5, usize::MAX, Split::Test), [false]);
        assert!(members(0, 0, 5, 5, Split::Train).is_empty());
    }
}
