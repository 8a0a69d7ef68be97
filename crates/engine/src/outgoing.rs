//! The bytes that a stream sends: copied into pages, or shared with the caller that wrote them.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::page::PAGE;
use crate::pages::{Pages, Spare};

/// Chunks shorter than this are copied, because a chunk keeps the whole allocation that it is part
/// of alive.
const MIN_SHARED: usize = 2 * PAGE;

/// Bytes from the acknowledged offset to the end of the written data. They are read anywhere and
/// freed from the front.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pages: Pages,
    /// Chunks outside the pages, with their offsets, in order.
    shared: VecDeque<(u64, Bytes)>,
}

impl Outgoing {
    /// Appends a copy of `data`, which begins at `offset`.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], spare: &mut Spare) {
        self.pages.write(offset, data, spare);
    }

    /// Appends the chunk, which begins at `offset`, without copying it where that saves time.
    pub(crate) fn share(&mut self, offset: u64, chunk: Bytes, spare: &mut Spare) {
        match chunk.len() {
            ..MIN_SHARED => self.pages.write(offset, &chunk, spare),
            _ => self.shared.push_back((offset, chunk)),
        }
    }

    /// Passes the bytes of `range` to `take`, piece by piece. All of them must have been written
    /// and not freed.
    pub(crate) fn read(&self, range: Range<u64>, mut take: impl FnMut(&[u8])) {
        let mut at = range.start;
        let mut next = self
            .shared
            .partition_point(|(start, chunk)| start + chunk.len() as u64 <= at);
        while at < range.end {
            match self.shared.get(next) {
                Some((start, chunk)) if *start <= at => {
                    let end = range.end.min(start + chunk.len() as u64);
                    take(&chunk[(at - start) as usize..(end - start) as usize]);
                    at = end;
                    next += 1;
                }
                chunk => {
                    let end = chunk.map_or(range.end, |(start, _)| range.end.min(*start));
                    self.pages.read(at..end, &mut take);
                    at = end;
                }
            }
        }
    }

    /// Frees everything below `offset`. A chunk is freed once all of it is below.
    pub(crate) fn free_below(&mut self, offset: u64, spare: &mut Spare) {
        self.pages.free_below(offset, spare);
        while let Some((start, chunk)) = self.shared.front()
            && start + chunk.len() as u64 <= offset
        {
            self.shared.pop_front();
        }
    }

    /// Frees everything.
    pub(crate) fn clear(&mut self, spare: &mut Spare) {
        self.pages.clear(spare);
        self.shared = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write(usize),
        Share(usize),
        /// A range of the stored bytes: from and to, in thousandths.
        Read(u64, u64),
        Free(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let len = || prop_oneof![1..10_usize, 1..20_000_usize];
        prop_oneof![
            len().prop_map(Op::Write),
            len().prop_map(Op::Share),
            (0..1000_u64, 0..1000_u64).prop_map(|(from, to)| Op::Read(from, to)),
            (0..1000_u64).prop_map(Op::Free),
        ]
    }

    proptest! {
        #[test]
        fn bytes_read_equal_bytes_written(ops in prop::collection::vec(op(), 1..60)) {
            let (mut outgoing, mut spare) = (Outgoing::default(), Spare::default());
            let (mut all, mut freed) = (Vec::new(), 0_u64);
            for op in ops {
                let offset = all.len() as u64;
                let piece = |len: usize| -> Vec<u8> {
                    (0..len).map(|index| ((offset as usize + index) % 251) as u8).collect()
                };
                let place = |part: u64| freed + (offset - freed) * part / 1000;
                match op {
                    Op::Write(len) => {
                        outgoing.write(offset, &piece(len), &mut spare);
                        all.extend(piece(len));
                    }
                    Op::Share(len) => {
                        outgoing.share(offset, piece(len).into(), &mut spare);
                        all.extend(piece(len));
                    }
                    Op::Read(from, to) => {
                        let (from, to) = (place(from.min(to)), place(from.max(to)));
                        let mut read = Vec::new();
                        outgoing.read(from..to, |part| read.extend_from_slice(part));
                        prop_assert_eq!(&read, &all[from as usize..to as usize]);
                    }
                    Op::Free(part) => {
                        freed = place(part);
                        outgoing.free_below(freed, &mut spare);
                    }
                }
            }
        }
    }

    #[test]
    fn a_chunk_is_freed_once_it_is_fully_acknowledged() {
        let (mut outgoing, mut spare) = (Outgoing::default(), Spare::default());
        let memory = Bytes::from(vec![7; 3 * MIN_SHARED]);
        outgoing.share(0, memory.slice(..10), &mut spare);
        assert!(memory.is_unique(), "short chunks are copied");
        outgoing.share(10, memory.clone(), &mut spare);
        outgoing.free_below(10 + memory.len() as u64 - 1, &mut spare);
        assert!(!memory.is_unique());
        outgoing.free_below(10 + memory.len() as u64, &mut spare);
        assert!(memory.is_unique());
        outgoing.share(10 + memory.len() as u64, memory.clone(), &mut spare);
        outgoing.clear(&mut spare);
        assert!(memory.is_unique());
    }
}
