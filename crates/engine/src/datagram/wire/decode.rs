//! Decodes records and reports malformed bytes.

use core::ops::RangeInclusive;

use super::{
    Data, FIRST_OPTIONAL, Half, MAX_OFFSET, MAX_REPORT_RANGES, MAX_TARGET, Open, Record, Report,
    TIME_MODULUS, kind,
};
use crate::{Class, varint};

/// Bytes that do not form a packet; the peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The header is truncated, or its time out of range.
    #[error("malformed header of a datagram packet")]
    Header,
    /// The type is neither known nor optional.
    #[error("datagram record of unknown type {0:#x}")]
    UnknownType(u64),
    /// The record is truncated, or a field is out of range.
    #[error("malformed {0} record")]
    Malformed(&'static str),
}

/// The records of a packet in their order. Unknown optional ones are skipped, and nothing follows
/// an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records in `bytes`, which follow the header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn decode(&mut self) -> Result<Option<Record<'a>>, PacketError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let kind = self.int("packet's")?;
            match kind {
                kind::PING => return Ok(Some(Record::Ping)),
                kind::REPORT => return self.report().map(Record::Report).map(Some),
                kind::FLOW_CLOSE => {
                    let (flow, reason) = (self.int("FLOW_CLOSE")?, self.int("FLOW_CLOSE")?);
                    return Ok(Some(Record::Close { flow, reason }));
                }
                kind::FLOW_FAILED => {
                    let mut int = || self.int("FLOW_FAILED");
                    let (flow, version, code) = (int()?, int()?, int()?);
                    return Ok(Some(Record::Failed {
                        flow,
                        version,
                        code,
                    }));
                }
                kind::DATA..=kind::DATA_END => {
                    return self.data(kind).map(Record::Data).map(Some);
                }
                optional if optional >= FIRST_OPTIONAL && optional & 1 == 1 => {
                    let len = self.int("optional")?;
                    self.bytes(len, "optional")?;
                }
                unknown => return Err(PacketError::UnknownType(unknown)),
            }
        }
    }

    fn report(&mut self) -> Result<Report, PacketError> {
        const NAME: &str = "REPORT";
        let malformed = PacketError::Malformed(NAME);
        let (path, received_at) = (self.int(NAME)?, self.int(NAME)?);
        if received_at >= TIME_MODULUS {
            return Err(malformed);
        }
        let (largest, more) = (self.int(NAME)?, self.int(NAME)?);
        if more >= MAX_REPORT_RANGES as u64 {
            return Err(malformed);
        }
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::with_capacity(more as usize + 1);
        let mut end = largest;
        loop {
            // A range has one packet more than the number says, and so has a gap.
            let start = end.checked_sub(self.int(NAME)?).ok_or(malformed)?;
            ranges.push(start..=end);
            if ranges.len() as u64 > more {
                break;
            }
            let gap = self.int(NAME)?;
            end = start.checked_sub(gap + 2).ok_or(malformed)?;
        }
        Ok(Report {
            path,
            received_at,
            ranges,
        })
    }

    fn data(&mut self, kind: u64) -> Result<Data<'a>, PacketError> {
        const NAME: &str = "DATA";
        let malformed = PacketError::Malformed(NAME);
        let (flow, sequence) = (self.int(NAME)?, self.int(NAME)?);
        let open = match kind & kind::OPEN {
            0 => None,
            _ => {
                let (source, class, len) = (self.int(NAME)?, self.int(NAME)?, self.int(NAME)?);
                if Class::of_open(class).is_none() || len > MAX_TARGET as u64 {
                    return Err(malformed);
                }
                let target = self.bytes(len, NAME)?;
                Some(Open {
                    source,
                    class,
                    target,
                })
            }
        };
        let after = match kind & kind::AFTER {
            0 => None,
            _ => Some(self.int(NAME)?),
        };
        let half = match kind & kind::HALF {
            0 => None,
            _ => Some(match self.int(NAME)? {
                0 => Half::First,
                offset @ 1..=MAX_OFFSET => Half::Second { offset },
                _ => return Err(malformed),
            }),
        };
        let len = match kind & kind::LENGTH {
            0 => self.rest.len() as u64,
            _ => self.int(NAME)?,
        };
        let payload = self.bytes(len, NAME)?;
        Ok(Data {
            flow,
            sequence,
            open,
            after,
            half,
            payload,
        })
    }

    fn int(&mut self, name: &'static str) -> Result<u64, PacketError> {
        varint::read(&mut self.rest).ok_or(PacketError::Malformed(name))
    }

    fn bytes(&mut self, len: u64, name: &'static str) -> Result<&'a [u8], PacketError> {
        let malformed = PacketError::Malformed(name);
        let len = usize::try_from(len).map_err(|_| malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.decode().transpose();
        if matches!(record, Some(Err(_))) {
            self.rest = &[];
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::wire::{Header, Packet};

    fn records(bytes: &[u8]) -> Result<Vec<Record<'_>>, PacketError> {
        Records::new(bytes).collect()
    }

    #[test]
    fn unknown_records_are_refused_unless_optional() {
        assert_eq!(records(&[0x05]), Err(PacketError::UnknownType(5)));
        assert_eq!(records(&[0x20]), Err(PacketError::UnknownType(0x20)));
        let skipped = [0x40, 0x41, 0x02, 0xaa, 0xbb, 0x01];
        assert_eq!(records(&skipped), Ok(vec![Record::Ping]));
        assert!(records(&skipped[..4]).is_err());
    }

    #[test]
    fn reports_below_zero_or_with_too_many_ranges_are_malformed() {
        // path, time, largest, further ranges, length of the first
        let whole = [0x02, 3, 9, 9, 0, 9];
        assert!(records(&whole).is_ok());
        assert!(records(&[0x02, 3, 9, 9, 0, 10]).is_err());
        assert!(records(&[0x02, 3, 9, 9, 1, 7, 0, 0]).is_ok());
        assert!(records(&[0x02, 3, 9, 9, 1, 7, 1, 0]).is_err());
        assert!(records(&[0x02, 3, 9, 63, 32]).is_err());
    }

    #[test]
    fn a_time_beyond_the_modulus_is_malformed() {
        let mut bytes = vec![0];
        varint::write(TIME_MODULUS, &mut bytes);
        assert_eq!(Header::decode(&mut &bytes[..]), None);
        assert_eq!(Packet::decode(&bytes), Err(PacketError::Header));
    }

    #[test]
    fn an_impossible_offset_and_unknown_classes_are_malformed() {
        assert!(records(&[0x18, 4, 0, 1]).is_ok());
        assert!(records(&[0x18, 4, 0, 0x80, 0, 0xff, 0xff]).is_ok());
        assert!(records(&[0x18, 4, 0, 0x80, 1, 0, 0]).is_err());
        assert!(records(&[0x12, 4, 0, 1, 4, 1, b't']).is_ok());
        assert!(records(&[0x12, 4, 0, 1, 5, 1, b't']).is_err());
    }
}
