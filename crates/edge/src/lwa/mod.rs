//! LWA: packets carry sequence numbers over the links. The receiver restores their order before
//! delivery and waits for a missing packet until a timer expires (3GPP TS 36.323, PDCP with
//! reordering for split bearers).

mod header;
mod reorder;

pub use header::{FORGOTTEN, Header, SequenceBits, is_numbered, is_young};
pub use reorder::{Reorder, ReorderConfig, ReorderStats};
