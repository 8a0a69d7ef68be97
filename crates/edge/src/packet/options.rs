//! The options of a TCP header.

use super::Malformed;

/// Kinds (IANA, "TCP Option Kind Numbers").
const END: u8 = 0;
pub(super) const NOP: u8 = 1;
pub(super) const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
pub(super) const SACK_PERMITTED: u8 = 4;
pub(super) const SACK: u8 = 5;
pub(super) const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AUTHENTICATION: u8 = 29;
const MULTIPATH: u8 = 30;

/// The largest shift count (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;

/// SACK blocks in header order, each from its left to its right edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); 4],
    count: u8,
}

impl SackBlocks {
    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The blocks in header order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.blocks[..usize::from(self.count)].iter().copied()
    }

    /// Appends a block; blocks that do not fit into a header are omitted.
    pub fn push(&mut self, left: u32, right: u32) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (left, right);
            self.count += 1;
        }
    }
}

/// Parsed options, and the packet offsets of those that are edited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size in bytes, and the offset of its value.
    pub mss: Option<(u16, usize)>,
    /// Window scale, at most 14.
    pub window_scale: Option<u8>,
    /// Offset of "SACK permitted".
    pub sack_permitted: Option<usize>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// Offset and total length of the SACK option.
    pub sack_at: Option<(usize, usize)>,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// Offset of the timestamps option.
    pub timestamps_at: Option<usize>,
    /// The segment is signed together with its header (MD5, TCP-AO), so edits would break it.
    pub signed: bool,
    /// The flow must not be edited: its segments are signed (MD5, TCP-AO), or its acknowledgments
    /// have a second number with a different meaning (Multipath TCP).
    pub sealed: bool,
}

impl Options {
    /// Parses the options that start at `offset` of the packet. If an option occurs twice, the last
    /// one counts, as in Linux; edits apply to all of its kind.
    pub(super) fn read(bytes: &[u8], offset: usize) -> Result<Self, Malformed> {
        let mut options = Self::default();
        each(bytes, |kind, value, at| {
            options.take(kind, value, offset + at);
        })?;
        Ok(options)
    }

    /// Parses one option. An option of the wrong length is ignored, as RFC 9293, section 3.1 allows
    /// for unknown ones.
    fn take(&mut self, kind: u8, value: &[u8], at: usize) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some((u16::from_be_bytes([a, b]), at + 2)),
            (WINDOW_SCALE, &[shift]) => {
                self.window_scale = Some(shift.min(LARGEST_SCALE));
            }
            (SACK_PERMITTED, []) => self.sack_permitted = Some(at),
            (SACK, _) if !value.is_empty() && value.len().is_multiple_of(8) => {
                self.sack_at = Some((at, value.len() + 2));
                self.sack = SackBlocks::default();
                for block in value.chunks_exact(8) {
                    self.sack.push(number(block), number(&block[4..]));
                }
            }
            (TIMESTAMPS, _) if value.len() == 8 => {
                self.timestamps = Some((number(value), number(&value[4..])));
                self.timestamps_at = Some(at);
            }
            (MD5 | AUTHENTICATION, _) => (self.sealed, self.signed) = (true, true),
            (MULTIPATH, _) => self.sealed = true,
            _ => {}
        }
    }
}

/// Calls `visit` with the kind, value and offset of each option.
pub(super) fn each(bytes: &[u8], mut visit: impl FnMut(u8, &[u8], usize)) -> Result<(), Malformed> {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            END => break,
            NOP => at += 1,
            kind => {
                let len = usize::from(*bytes.get(at + 1).ok_or(Malformed::TcpOption)?);
                if len < 2 {
                    return Err(Malformed::TcpOption);
                }
                let value = bytes.get(at + 2..at + len).ok_or(Malformed::TcpOption)?;
                visit(kind, value, at);
                at += len;
            }
        }
    }
    Ok(())
}

/// The 32-bit number at the start of at least four bytes.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
