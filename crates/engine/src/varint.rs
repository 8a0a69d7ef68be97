//! Variable-length integers, as in RFC 9000, section 16.

/// The largest value that fits: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Length of `value` on the wire, in bytes. Values above [`MAX`] cannot be encoded.
pub const fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value`.
///
/// # Panics
///
/// If `value` exceeds [`MAX`]. The engine bounds every integer below that before it calls this.
pub fn write(value: u64, out: &mut Vec<u8>) {
    assert!(
        value <= MAX,
        "{value} does not fit into a variable-length integer"
    );
    match len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes an integer off the front of `bytes`; none if it is truncated.
pub fn read(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, _) = bytes.split_first()?;
    let len = 1usize << (first >> 6);
    let (head, rest) = bytes.split_at_checked(len)?;
    let mut value = u64::from(first & 0x3f);
    for &byte in &head[1..] {
        value = value << 8 | u64::from(byte);
    }
    *bytes = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_appendix_a1() {
        let examples: [(&[u8], u64); 5] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (mut bytes, value) in examples {
            assert_eq!(read(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn limits_round_trip_and_truncation_is_detected() {
        for value in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX] {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(out.len(), len(value));
            assert_eq!(read(&mut &out[..]), Some(value));
            for cut in 0..out.len() {
                assert_eq!(read(&mut &out[..cut]), None);
            }
        }
    }
}
