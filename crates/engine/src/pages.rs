//! Stream bytes by offset, in pages: memory follows what is held, wherever in a window it lies.

use std::collections::VecDeque;
use std::ops::Range;

/// Size of a page in bytes. One touched byte holds one page, so this is also the finest grain of accounting.
pub const PAGE: usize = 2048;

type Page = Box<[u8; PAGE]>;

/// Bytes between two moving ends: written anywhere above the front, read anywhere, freed from the front.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Index of the page at the front of `pages`: offset divided by [`PAGE`].
    first: u64,
    /// Pages in order; untouched ones take no memory.
    pages: VecDeque<Option<Page>>,
    /// Pages that are held.
    held: usize,
}

impl Pages {
    /// Bytes of memory in pages.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held * PAGE
    }

    /// Stores `data` at `offset`, which must not lie before what was freed.
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

    /// Gives the bytes of `range` to `take`, page by page; all of it must have been written.
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

    /// Gives up everything below `offset`.
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

    /// Gives up everything.
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

/// Pages kept for the next use, so that a steady flow allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pages: Vec<Page>,
}

impl Spare {
    /// Pages kept at most: 1 MiB.
    const MOST: usize = (1 << 20) / PAGE;

    /// A page that has `data` from `at` on.
    fn take(&mut self, at: usize, data: &[u8]) -> Page {
        let mut page = match self.pages.pop() {
            Some(page) => page,
            None => match <&[u8; PAGE]>::try_from(data) {
                // No zeros are written that are overwritten at once.
                Ok(whole) => return Box::new(*whole),
                Err(_) => Box::new([0; PAGE]),
            },
        };
        page[at..at + data.len()].copy_from_slice(data);
        page
    }

    fn give(&mut self, page: Page) {
        if self.pages.len() < Self::MOST {
            self.pages.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
