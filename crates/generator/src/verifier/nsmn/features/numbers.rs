//! Five random but fixed values of a short number, so that equal numbers have equal features.

use super::digits::is_number;

/// The values of a number.
pub(super) const NUMBER_FEATURES: usize = 5;

const ROWS: usize = 20_000;
const BOUND: f64 = 0.1;
const SEED: u32 = 6;
const MAX_CHARACTERS: usize = 5;

/// The values of all numbers. A number's hash selects its row.
#[derive(Debug)]
pub(super) struct NumberTable {
    rows: Vec<[f32; NUMBER_FEATURES]>,
}

impl NumberTable {
    /// The release's table: 20,000 rows, uniform between -0.1 and 0.1, as NumPy's `RandomState(6)` draws them.
    #[must_use]
    pub(super) fn new() -> Self {
        let mut random = MersenneTwister::new(SEED);
        let mut value = || {
            // In this order, as NumPy rounds it.
            let uniform = -BOUND + (BOUND - -BOUND) * random.unit();
            uniform as f32
        };
        let rows = (0..ROWS).map(|_| std::array::from_fn(|_| value())).collect();
        Self { rows }
    }

    /// A token's values; zeros where it is no number or has more than five digits.
    #[must_use]
    pub(super) fn of(&self, token: &str) -> [f32; NUMBER_FEATURES] {
        if token.chars().count() > MAX_CHARACTERS || !is_number(token) {
            return [0.0; NUMBER_FEATURES];
        }
        self.rows[murmur_hash(token.as_bytes()) as usize % ROWS]
    }
}

impl Default for NumberTable {
    fn default() -> Self {
        Self::new()
    }
}

/// `MurmurHash3_x86_32` with seed 0.
fn murmur_hash(bytes: &[u8]) -> u32 {
    let mixed = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = words.iter().fold(0, |hash: u32, word| {
        let hash = (hash ^ mixed(u32::from_le_bytes(*word))).rotate_left(13);
        hash.wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    hash ^= mixed(rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)));
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

const STATE: usize = 624;

/// MT19937 (Matsumoto and Nishimura 1998), seeded from one number.
struct MersenneTwister {
    state: [u32; STATE],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; STATE];
        for at in 1..STATE {
            let last = state[at - 1];
            state[at] = (last ^ last >> 30).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        Self { state, next: STATE }
    }

    fn word(&mut self) -> u32 {
        if self.next == STATE {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn twist(&mut self) {
        for at in 0..STATE {
            let joined = self.state[at] & 1 << 31 | self.state[(at + 1) % STATE] & !(1 << 31);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + 397) % STATE] ^ joined >> 1 ^ odd;
        }
        self.next = 0;
    }

    /// A number in [0, 1) of 53 random bits.
    fn unit(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * f64::from(1 << 26) + f64::from(low)) / (1_u64 << 53) as f64
    }
}
