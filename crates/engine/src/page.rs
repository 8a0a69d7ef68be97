//! A page of stream bytes, the unit of memory.

/// Size of a page in bytes. A single byte occupies a whole page, so this is also the granularity of
/// memory accounting.
pub const PAGE: usize = 2048;

pub(crate) type Page = Box<[u8; PAGE]>;
