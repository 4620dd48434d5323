//! Random changes of an input.

/// Numbers by the 64-bit generator `splitmix`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// Numbers at which counts and lengths go wrong.
const NUMBERS: [u64; 12] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, 1 << 62, i64::MAX as u64, u64::MAX];

/// `seed` with one to four changes, which depend on `number` alone: flipped bits, other bytes, great numbers in binary and in
/// digits, and parts that are cut off, removed, repeated or exchanged.
#[must_use]
pub fn mutated(seed: &[u8], number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut bytes = seed.to_vec();
    for _ in 0..random.of(&[1, 1, 1, 2, 4]) {
        change(&mut bytes, &mut random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    // The beginnings of binary files have their lengths and counts.
    let length = bytes.len();
    let reach = random.of(&[16, 256, 4096, length]).min(length);
    let at = random.below(reach);
    let end = |size: usize| (at + size).min(length);
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.of(&[0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'\\', b'{', b'[', b'-', b'9']),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end(random.of(&[1, 2, 4, 8, 64, 1024])))),
        4 => {
            let added: Vec<u8> = (0..random.of(&[1, 2, 8, 100])).map(|_| random.next() as u8).collect();
            bytes.splice(at..at, added);
        }
        5 => {
            let width = random.of(&[2, 4, 8]);
            let number = random.of(&NUMBERS).to_le_bytes();
            let stop = end(width);
            bytes[at..stop].copy_from_slice(&number[..stop - at]);
        }
        6 => {
            let part = bytes[at..end(random.of(&[1, 8, 64, 512]))].repeat(random.of(&[1, 2, 50]));
            bytes.splice(at..at, part);
        }
        7 => {
            let other = random.below(length);
            bytes.swap(at, other);
        }
        8 => {
            // A number in digits becomes another one.
            let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|start| at + start) else {
                return;
            };
            let stop = bytes[start..]
                .iter()
                .position(|byte| !byte.is_ascii_digit())
                .map_or(length, |stop| start + stop);
            let text = match random.below(8) {
                0 => "1e999".to_owned(),
                1 => "NaN".to_owned(),
                2 => "-1".to_owned(),
                _ => random.of(&NUMBERS).to_string(),
            };
            bytes.splice(start..stop, text.into_bytes());
        }
        _ => {
            let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let (one, other) = (random.below(lines.len()), random.below(lines.len()));
            match random.below(3) {
                0 => lines.swap(one, other),
                1 => lines.insert(one, lines[other]),
                _ => drop(lines.remove(one)),
            }
            *bytes = lines.join(&b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mutated;

    #[test]
    fn changes_depend_on_the_number_alone() {
        let seed = b"{\"a\": 12, \"b\": \"text\"}\nline\n";
        let changed: Vec<Vec<u8>> = (0..200).map(|number| mutated(seed, number)).collect();
        assert_eq!(changed, (0..200).map(|number| mutated(seed, number)).collect::<Vec<_>>());
        let others = changed.iter().filter(|bytes| bytes.as_slice() != seed).count();
        assert!(others > 170, "{others}");
        assert_eq!(mutated(b"", 1).len().min(1), 1);
    }
}
