//! Content that differs at every offset, so that a misplaced byte is detected.

/// Words in the repeated block, to which a different number is added each time.
const WORDS: usize = 8192;
/// Increment per block, added to every word: odd, so that it takes 2^64 blocks to repeat.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The content of a flow: 64-bit words in little-endian order.
pub(crate) struct Pattern {
    block: Vec<u64>,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        // Marsaglia, "Xorshift RNGs", 2003.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let block = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        });
        Self {
            block: block.take(WORDS).collect(),
        }
    }

    fn word(&self, index: u64) -> u64 {
        let round = index / WORDS as u64;
        self.block[(index % WORDS as u64) as usize].wrapping_add(round.wrapping_mul(STEP))
    }

    fn byte(&self, offset: u64) -> u8 {
        self.word(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// Fills a buffer with the content from that offset on.
    pub(crate) fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            if !at.is_multiple_of(8) || rest.len() < 8 {
                rest[0] = self.byte(at);
                rest = &mut rest[1..];
                at += 1;
                continue;
            }
            let (words, add) = self.run_of_words(at / 8, rest.len() / 8);
            let (now, later) = rest.split_at_mut(words.len() * 8);
            for (chunk, word) in now.chunks_exact_mut(8).zip(words) {
                chunk.copy_from_slice(&word.wrapping_add(add).to_le_bytes());
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// Index of the first byte that differs from the content at that offset.
    pub(crate) fn difference(&self, offset: u64, buffer: &[u8]) -> Option<u64> {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            if !at.is_multiple_of(8) || rest.len() < 8 {
                if rest[0] != self.byte(at) {
                    return Some(at);
                }
                rest = &rest[1..];
                at += 1;
                continue;
            }
            let (words, add) = self.run_of_words(at / 8, rest.len() / 8);
            let (now, later) = rest.split_at(words.len() * 8);
            // One branch-free pass over the words; the position is determined only if they differ.
            let differs = now
                .chunks_exact(8)
                .zip(words)
                .fold(0, |sum, (chunk, word)| {
                    let read = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
                    sum | (read ^ word.wrapping_add(add))
                });
            if differs != 0 {
                let place = now
                    .iter()
                    .enumerate()
                    .map(|(i, byte)| (at + i as u64, byte));
                return place
                    .into_iter()
                    .find(|(at, byte)| self.byte(*at) != **byte)
                    .map(|(at, _)| at);
            }
            at += now.len() as u64;
            rest = later;
        }
        None
    }

    /// Words from that index up to the end of the block, at most `most`, and the number to add to
    /// each.
    fn run_of_words(&self, index: u64, most: usize) -> (&[u64], u64) {
        let start = (index % WORDS as u64) as usize;
        let end = (start + most).min(WORDS);
        let round = index / WORDS as u64;
        (&self.block[start..end], round.wrapping_mul(STEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_verified_in_pieces_of_any_size() {
        let pattern = Pattern::new();
        let mut whole = vec![0; 3 * WORDS * 8 + 5];
        pattern.fill(3, &mut whole);
        assert_eq!(pattern.difference(3, &whole), None);
        let mut offset = 0;
        for len in [1, 7, 8, 9, 65_536, 13, 100_000] {
            let piece = &whole[offset..offset + len];
            assert_eq!(pattern.difference(3 + offset as u64, piece), None);
            offset += len;
        }
    }

    #[test]
    fn a_wrong_byte_and_a_wrong_place_are_found() {
        let pattern = Pattern::new();
        let mut bytes = vec![0; 100_000];
        pattern.fill(0, &mut bytes);
        bytes[70_001] ^= 1;
        assert_eq!(pattern.difference(0, &bytes), Some(70_001));
        bytes[70_001] ^= 1;
        // Exactly one block later.
        assert!(pattern.difference(WORDS as u64 * 8, &bytes).is_some());
        assert!(pattern.difference(8, &bytes).is_some());
    }
}
