//! MurmurHash3 of Austin Appleby, the variant for 32 bits (`MurmurHash3_x86_32`).

/// The hash of some bytes with seed 0.
pub(crate) fn murmur3_32(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = words.iter().fold(0u32, |hash, word| {
        (hash ^ scrambled(u32::from_le_bytes(*word)))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xE654_6B64)
    });
    if !rest.is_empty() {
        let mut word = [0; 4];
        word[..rest.len()].copy_from_slice(rest);
        hash ^= scrambled(u32::from_le_bytes(word));
    }
    // The algorithm counts the length in 32 bits.
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ hash >> 13).wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

fn scrambled(word: u32) -> u32 {
    word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_come_out() {
        // Published values of the reference implementation with seed 0.
        assert_eq!(murmur3_32(b""), 0);
        assert_eq!(murmur3_32(b"test"), 0xBA6B_D213);
        assert_eq!(murmur3_32(b"Hello, world!"), 0xC036_3E43);
        assert_eq!(murmur3_32(b"The quick brown fox jumps over the lazy dog"), 0x2E4F_F723);
    }
}
