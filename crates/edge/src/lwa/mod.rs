//! LWA: packets carry sequence numbers over the links, and the receiver puts them in order before anybody sees them, for at
//! most as long as a timer runs (3GPP TS 36.323, PDCP with reordering for split bearers).

mod header;
mod reorder;

pub use header::{FORGOTTEN, Header, SequenceBits, is_numbered, is_young};
pub use reorder::{Reorder, ReorderConfig, ReorderStats};
