//! Received bytes on their way to a reader, in the pages that they were stored in on arrival.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use bytes::Buf;

use crate::page::{PAGE, Page};

/// Bytes of a stream, in order, as [`Session::read_pages`](crate::Session::read_pages) hands them
/// over.
///
/// They are in pages of [`PAGE`] bytes; [`Buf::chunks_vectored`] lends many of them at once. The
/// pages return to the session with [`Session::recycle`](crate::Session::recycle), or to the heap.
#[derive(Default)]
pub struct Received {
    parts: Vec<Part>,
    /// Index of the first part that has not been fully read.
    next: usize,
    /// Number of unread bytes.
    remaining: usize,
}

/// The bytes of one page that belong to the reader.
struct Part {
    page: Page,
    range: Range<usize>,
}

impl Received {
    /// Memory in pages, in bytes, including pages that have been read.
    pub fn memory(&self) -> usize {
        self.parts.len() * PAGE
    }

    /// Reserves space for `pages` more pages.
    pub(crate) fn reserve(&mut self, pages: usize) {
        self.parts.reserve(pages);
    }

    /// Appends `range` of `page`.
    pub(crate) fn push(&mut self, page: Page, range: Range<usize>) {
        self.remaining += range.len();
        self.parts.push(Part { page, range });
    }

    pub(crate) fn into_pages(self) -> impl Iterator<Item = Page> {
        self.parts.into_iter().map(|part| part.page)
    }
}

/// Shows only the length: the bytes are the program's, and a page may also hold bytes of its
/// previous use.
impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("remaining", &self.remaining)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

/// A copy in newly allocated pages, for bytes that do not come from a session.
impl From<&[u8]> for Received {
    fn from(bytes: &[u8]) -> Self {
        let mut received = Self::default();
        for part in bytes.chunks(PAGE) {
            let mut page = Box::new([0; PAGE]);
            page[..part.len()].copy_from_slice(part);
            received.push(page, 0..part.len());
        }
        received
    }
}

impl Buf for Received {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.parts.get(self.next).map_or(&[], Part::bytes)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.parts[self.next..].iter().zip(slices);
        let filled = parts.map(|(part, slice)| *slice = IoSlice::new(part.bytes()));
        filled.count()
    }

    /// # Panics
    ///
    /// If fewer than `count` bytes are left.
    fn advance(&mut self, mut count: usize) {
        assert!(
            count <= self.remaining,
            "only readable bytes can be consumed"
        );
        self.remaining -= count;
        while let Some(part) = self.parts.get_mut(self.next)
            && count >= part.range.len()
        {
            count -= part.range.len();
            part.range.start = part.range.end;
            self.next += 1;
        }
        if let Some(part) = self.parts.get_mut(self.next) {
            part.range.start += count;
        }
    }
}

impl Part {
    fn bytes(&self) -> &[u8] {
        &self.page[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(ranges: &[Range<usize>]) -> Received {
        let mut received = Received::default();
        for (index, range) in ranges.iter().enumerate() {
            received.push(Box::new([index as u8; PAGE]), range.clone());
        }
        received
    }

    #[test]
    fn it_is_read_across_pages() {
        let mut received = received(&[PAGE - 1..PAGE, 0..PAGE, 0..3]);
        assert_eq!(
            (received.remaining(), received.memory()),
            (PAGE + 4, 3 * PAGE)
        );
        assert_eq!(received.chunk(), [0]);
        received.advance(2);
        assert_eq!(received.chunk(), &[1; PAGE - 1]);
        let mut slices = [IoSlice::new(&[]); 5];
        assert_eq!(received.chunks_vectored(&mut slices), 2);
        assert_eq!(*slices[1], [2; 3]);
        let mut rest = vec![0; PAGE + 2];
        received.copy_to_slice(&mut rest);
        assert_eq!(rest[PAGE - 2..], [1, 2, 2, 2]);
        assert!(received.chunk().is_empty() && !received.has_remaining());
        assert_eq!(received.into_pages().count(), 3);
    }

    #[test]
    #[should_panic = "only readable bytes can be consumed"]
    fn reading_beyond_the_end_panics() {
        received(&[0..3, 0..3]).advance(7);
    }
}
