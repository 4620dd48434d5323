//! Microkernels in assembly.
//!
//! Compilers keep a pointer and multiples of the stride, and compute an address for each row's value: eleven
//! additions for 24 multiplications. On Intel's processors these compete for ports, which costs a quarter of
//! the speed. Here a pointer and the stride address three rows, and four steps share the additions.

use super::LANES;

/// The number of panel bytes that a step reads.
const STEP: usize = 4 * LANES;

/// Expands `$do!` for each of the rows: with the address of the row's value, the numbers of its sums' two
/// vectors, those of AVX-512's and of AVX2's registers for its value, and `$with`.
#[rustfmt::skip]
macro_rules! rows {
    ($do:ident 1 $with:tt) => { $do!("{a0}", 0 1, 26 14, $with) };
    ($do:ident 2 $with:tt) => { concat!(rows!($do 1 $with), $do!("{a0} + {stride}", 2 3, 27 15, $with)) };
    ($do:ident 3 $with:tt) => { concat!(rows!($do 2 $with), $do!("{a0} + 2*{stride}", 4 5, 28 14, $with)) };
    ($do:ident 4 $with:tt) => { concat!(rows!($do 3 $with), $do!("{a3}", 6 7, 29 15, $with)) };
    ($do:ident 5 $with:tt) => { concat!(rows!($do 4 $with), $do!("{a3} + {stride}", 8 9, 26 14, $with)) };
    ($do:ident 6 $with:tt) => { concat!(rows!($do 5 $with), $do!("{a3} + 2*{stride}", 10 11, 27 15, $with)) };
    ($do:ident 7 $with:tt) => { concat!(rows!($do 6 $with), $do!("{a6}", 12 13, 28 14, $with)) };
    ($do:ident 8 $with:tt) => { concat!(rows!($do 7 $with), $do!("{a6} + {stride}", 14 15, 29 15, $with)) };
    ($do:ident 9 $with:tt) => { concat!(rows!($do 8 $with), $do!("{a6} + 2*{stride}", 16 17, 26 14, $with)) };
    ($do:ident 10 $with:tt) => { concat!(rows!($do 9 $with), $do!("{a9}", 18 19, 27 15, $with)) };
    ($do:ident 11 $with:tt) => { concat!(rows!($do 10 $with), $do!("{a9} + {stride}", 20 21, 28 14, $with)) };
    ($do:ident 12 $with:tt) => { concat!(rows!($do 11 $with), $do!("{a9} + 2*{stride}", 22 23, 29 15, $with)) };
}

pub(super) mod avx2;
pub(super) mod avx512;
