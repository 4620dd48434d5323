//! Integers of 7 bits a byte, lowest first, the eighth bit set on all but the last byte.

/// Appends `value`.
pub(crate) fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a value from the front of `bytes`; none if they end too early or it exceeds 64 bits.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(values in prop::collection::vec(any::<u64>(), 0..20), shift in 0u32..64) {
            let mut bytes = Vec::new();
            for &value in &values {
                write(value >> shift, &mut bytes);
            }
            let mut rest = bytes.as_slice();
            for &value in &values {
                prop_assert_eq!(read(&mut rest), Some(value >> shift));
            }
            prop_assert_eq!(read(&mut rest), None);
        }
    }
}
