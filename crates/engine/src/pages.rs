//! Stream bytes by offset, in pages. Memory grows with the bytes held, wherever in a window they
//! are.

use std::collections::VecDeque;
use std::ops::Range;

use crate::page::{PAGE, Page};
use crate::received::Received;

/// Bytes between two moving ends: written anywhere above the front, read anywhere, freed from the
/// front.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Index of the page at the front of `pages`: offset divided by [`PAGE`].
    first: u64,
    /// Pages in order; pages without data take no memory.
    pages: VecDeque<Option<Page>>,
    /// Number of allocated pages.
    held: usize,
}

impl Pages {
    /// Memory in pages, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held * PAGE
    }

    /// Stores `data` at `offset`, which must not be below the freed offset.
    pub(crate) fn write(&mut self, mut offset: u64, mut data: &[u8], spare: &mut Spare) {
        while !data.is_empty() {
            let (page, at) = self.slot(offset);
            let (part, rest) = data.split_at(data.len().min(PAGE - at));
            match &mut self.pages[page] {
                Some(page) => page[at..at + part.len()].copy_from_slice(part),
                none => {
                    *none = Some(spare.take(at, part));
                    self.held += 1;
                }
            }
            offset += part.len() as u64;
            data = rest;
        }
    }

    /// Passes the bytes of `range` to `take`, page by page. All of them must have been written.
    pub(crate) fn read(&self, range: Range<u64>, mut take: impl FnMut(&[u8])) {
        let mut offset = range.start;
        while offset < range.end {
            let index = offset / PAGE as u64 - self.first;
            let at = (offset % PAGE as u64) as usize;
            let part = (range.end - offset).min((PAGE - at) as u64) as usize;
            let page = self.pages.get(index as usize).and_then(Option::as_ref);
            let page = page.expect("only written ranges are read");
            take(&page[at..at + part]);
            offset += part as u64;
        }
    }

    /// Moves the bytes of `range` to `out` and frees everything before it. The whole range must
    /// have been written. Pages are moved without copying. If the range ends within a page, that
    /// page stays, since more may be written there, and its bytes are copied.
    pub(crate) fn hand_over(&mut self, range: Range<u64>, spare: &mut Spare, out: &mut Received) {
        self.free_below(range.start, spare);
        out.reserve((range.end - range.start) as usize / PAGE + 2);
        let mut offset = range.start;
        while offset < range.end {
            let (index, at) = self.slot(offset);
            let part = at..PAGE.min(at + (range.end - offset) as usize);
            offset += part.len() as u64;
            let page = &mut self.pages[index];
            if part.end == PAGE {
                out.push(page.take().expect("only written ranges are read"), part);
                self.held -= 1;
            } else {
                let page = page.as_ref().expect("only written ranges are read");
                out.push(spare.take(part.start, &page[part.clone()]), part);
            }
        }
        self.free_below(range.end, spare);
    }

    /// Frees everything below `offset`.
    pub(crate) fn free_below(&mut self, offset: u64, spare: &mut Spare) {
        while (self.first + 1) * PAGE as u64 <= offset {
            self.first += 1;
            match self.pages.pop_front() {
                Some(Some(page)) => {
                    self.held -= 1;
                    spare.give(page);
                }
                Some(None) => {}
                None => self.first = offset / PAGE as u64,
            }
        }
    }

    /// Frees everything.
    pub(crate) fn clear(&mut self, spare: &mut Spare) {
        self.pages
            .drain(..)
            .flatten()
            .for_each(|page| spare.give(page));
        self.held = 0;
    }

    fn slot(&mut self, offset: u64) -> (usize, usize) {
        let index = (offset / PAGE as u64 - self.first) as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        (index, (offset % PAGE as u64) as usize)
    }
}

/// Pages kept for reuse, so that a steady flow allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pages: Vec<Page>,
}

impl Spare {
    /// Most pages that are kept: 1 MiB.
    const MAX: usize = (1 << 20) / PAGE;

    /// Returns a page with `data` stored from `at` on.
    fn take(&mut self, at: usize, data: &[u8]) -> Page {
        let mut page = match self.pages.pop() {
            Some(page) => page,
            None => match <&[u8; PAGE]>::try_from(data) {
                // Avoids writing zeros that are overwritten at once.
                Ok(whole) => return Box::new(*whole),
                Err(_) => Box::new([0; PAGE]),
            },
        };
        page[at..at + data.len()].copy_from_slice(data);
        page
    }

    /// Takes unused pages back.
    pub(crate) fn give_all(&mut self, pages: impl Iterator<Item = Page>) {
        let room = Self::MAX.saturating_sub(self.pages.len());
        self.pages.extend(pages.take(room));
    }

    fn give(&mut self, page: Page) {
        if self.pages.len() < Self::MAX {
            self.pages.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_follows_the_pages_touched() {
        let (mut pages, mut spare) = (Pages::default(), Spare::default());
        pages.write(10 * PAGE as u64 - 1, b"ab", &mut spare);
        assert_eq!(pages.held_bytes(), 2 * PAGE);
        let mut out = Vec::new();
        pages.read(10 * PAGE as u64 - 1..10 * PAGE as u64 + 1, |part| {
            out.push(part.to_vec());
        });
        assert_eq!(out, [b"a", b"b"]);
        pages.free_below(10 * PAGE as u64, &mut spare);
        assert_eq!(pages.held_bytes(), PAGE);
        pages.free_below(1 << 40, &mut spare);
        assert_eq!(pages.held_bytes(), 0);
        pages.write((1 << 40) + 5, b"c", &mut spare);
        assert_eq!(pages.held_bytes(), PAGE);
        assert_eq!(spare.pages.len(), 1);
    }

    proptest! {
        /// Whatever the order of the writes, the bytes handed over are the written text, and no
        /// memory is held afterwards.
        #[test]
        fn bytes_handed_over_equal_bytes_written(
            pieces in prop::collection::vec(1..3 * PAGE, 1..20),
            backwards: bool,
            at_once in 1..5_usize,
        ) {
            let (mut pages, mut spare) = (Pages::default(), Spare::default());
            let len: usize = pieces.iter().sum();
            let text: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut start = 0;
            let ranges = pieces.iter().map(|len| {
                start += len;
                start - len..start
            });
            let mut ranges: Vec<Range<usize>> = ranges.collect();
            if backwards {
                ranges.reverse();
            }
            let mut received = Received::default();
            let mut handed = 0;
            for (index, range) in ranges.iter().enumerate() {
                pages.write(range.start as u64, &text[range.clone()], &mut spare);
                let is_whole = index + 1 == ranges.len();
                let is_in_order = !backwards && (index + 1) % at_once == 0;
                if is_whole || is_in_order {
                    let end = if is_whole { len } else { range.end };
                    pages.hand_over(handed as u64..end as u64, &mut spare, &mut received);
                    handed = end;
                }
            }
            let left = if len.is_multiple_of(PAGE) { 0 } else { PAGE };
            prop_assert_eq!(pages.held_bytes(), left);
            prop_assert_eq!(received.remaining(), len);
            prop_assert!(received.copy_to_bytes(len) == text);
        }
    }

    #[test]
    fn an_empty_range_hands_over_no_page() {
        let (mut pages, mut spare) = (Pages::default(), Spare::default());
        pages.write(0, b"ab", &mut spare);
        let mut received = Received::default();
        pages.hand_over(1..1, &mut spare, &mut received);
        assert_eq!((pages.held_bytes(), received.memory()), (PAGE, 0));
    }

    #[test]
    fn whole_pages_are_handed_over_and_the_last_one_stays_writable() {
        let (mut pages, mut spare) = (Pages::default(), Spare::default());
        let text: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        pages.write(0, &text[..2 * PAGE + 5], &mut spare);
        let first = pages.pages[0].as_ref().unwrap().as_ptr();
        let mut received = Received::default();
        pages.hand_over(0..PAGE as u64, &mut spare, &mut received);
        assert_eq!(received.chunk().as_ptr(), first);
        pages.hand_over(PAGE as u64..2 * PAGE as u64 + 5, &mut spare, &mut received);
        assert_eq!(pages.held_bytes(), PAGE);
        pages.write(2 * PAGE as u64 + 5, &text[2 * PAGE + 5..], &mut spare);
        pages.hand_over(
            2 * PAGE as u64 + 5..3 * PAGE as u64,
            &mut spare,
            &mut received,
        );
        assert_eq!((pages.held_bytes(), received.memory()), (0, 4 * PAGE));
        assert_eq!(received.copy_to_bytes(text.len()), text);
        spare.give_all(received.into_pages());
        assert_eq!(spare.pages.len(), 4);
    }
}
