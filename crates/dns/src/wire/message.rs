//! The structure of a message.

use super::{Malformed, Name};

/// Length of the header in bytes.
pub(super) const HEADER: usize = 12;

/// Bits of the header's second word (RFC 1035, section 4.1.1; RFC 4035, section 3).
pub(crate) mod flag {
    /// A response.
    pub(crate) const RESPONSE: u16 = 0x8000;
    /// The kind of query; 0 is a standard one.
    pub(crate) const OPCODE: u16 = 0x7800;
    /// The message is cut off.
    pub(crate) const TRUNCATED: u16 = 0x0200;
    /// The client asks for recursion.
    pub(crate) const RECURSION_DESIRED: u16 = 0x0100;
    /// The server offers recursion.
    pub(crate) const RECURSION_AVAILABLE: u16 = 0x0080;
    /// The server has validated the data.
    pub(crate) const AUTHENTIC: u16 = 0x0020;
    /// The client validates itself.
    pub(crate) const CHECKING_DISABLED: u16 = 0x0010;
    /// The lower bits of the response code.
    pub(crate) const CODE: u16 = 0x000f;
}

/// The question of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// The name.
    pub(crate) name: Name,
    /// The record type, such as 1 for A.
    pub(crate) kind: u16,
    /// The class, 1 for the internet.
    pub(crate) class: u16,
}

/// A message with one question and whole records.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) question: Question,
    /// The offset behind the question.
    pub(crate) question_end: usize,
    counts: [u16; 3],
}

/// The part of a message in which a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A record of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) section: Section,
    pub(crate) kind: u16,
    pub(crate) class: u16,
    pub(crate) ttl: u32,
    pub(crate) data: &'a [u8],
    /// Offsets of its name, its TTL and its data, and the one behind it.
    pub(crate) start: usize,
    pub(super) ttl_at: usize,
    pub(crate) data_at: usize,
    pub(super) end: usize,
}

impl<'a> Message<'a> {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// It does not have exactly one question, the name of the question is compressed, or a record
    /// is cut off. Bytes behind the last record are allowed.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let header = |at| word(bytes, at);
        let (id, flags) = (header(0)?, header(2)?);
        let counts = [header(6)?, header(8)?, header(10)?];
        if header(4)? != 1 {
            return Err(Malformed);
        }
        let (name, name_end) = Name::read(bytes, HEADER)?;
        if name_end != HEADER + name.as_bytes().len() {
            return Err(Malformed);
        }
        let question = Question {
            name,
            kind: word(bytes, name_end)?,
            class: word(bytes, name_end + 2)?,
        };
        let message = Self {
            bytes,
            id,
            flags,
            question,
            question_end: name_end + 4,
            counts,
        };
        let whole = message.walk().filter(Result::is_ok).count();
        if whole
            != counts
                .iter()
                .map(|count| usize::from(*count))
                .sum::<usize>()
        {
            return Err(Malformed);
        }
        Ok(message)
    }

    /// The records, in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> + '_ {
        self.walk().map_while(Result::ok)
    }

    /// The records of the answer.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Record<'a>> + '_ {
        self.records().take(usize::from(self.counts[0]))
    }

    /// The numbers of records in the three sections.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> [u16; 3] {
        self.counts
    }

    /// The response code without the bits in OPT.
    pub(crate) fn code(&self) -> u16 {
        self.flags & flag::CODE
    }

    /// The name of a record.
    pub(crate) fn owner(&self, record: &Record<'_>) -> Result<Name, Malformed> {
        Ok(Name::read(self.bytes, record.start)?.0)
    }

    /// The offset behind the name at `at`, if there is one.
    pub(crate) fn name_end(&self, at: usize) -> Option<usize> {
        Name::skip(self.bytes, at).ok()
    }

    fn walk(&self) -> impl Iterator<Item = Result<Record<'a>, Malformed>> + '_ {
        let [answers, authorities, additionals] = self.counts.map(usize::from);
        let sections = std::iter::repeat_n(Section::Answer, answers)
            .chain(std::iter::repeat_n(Section::Authority, authorities))
            .chain(std::iter::repeat_n(Section::Additional, additionals));
        let mut at = Some(self.question_end);
        sections.map_while(move |section| {
            let record = Record::read(self.bytes, at?, section);
            at = record.as_ref().ok().map(|record| record.end);
            Some(record)
        })
    }
}

impl<'a> Record<'a> {
    fn read(bytes: &'a [u8], start: usize, section: Section) -> Result<Self, Malformed> {
        let fixed = Name::skip(bytes, start)?;
        let length = usize::from(word(bytes, fixed + 8)?);
        let data_at = fixed + 10;
        let data = bytes.get(data_at..data_at + length).ok_or(Malformed)?;
        let ttl = u32::from(word(bytes, fixed + 4)?) << 16 | u32::from(word(bytes, fixed + 6)?);
        Ok(Self {
            section,
            kind: word(bytes, fixed)?,
            class: word(bytes, fixed + 2)?,
            ttl,
            data,
            start,
            ttl_at: fixed + 4,
            data_at,
            end: data_at + length,
        })
    }
}

/// The 16-bit number at `at`.
pub(crate) fn word(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A response for `a.b` with a CNAME and an address, both names compressed.
    pub(super) const RESPONSE: &[u8] =
        b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x01b\0\0\x01\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01c\xc0\x0e\
        \xc0\x21\0\x01\0\x01\0\0\0\x1e\0\x04\xc0\0\x02\x01";

    #[test]
    fn a_response_is_read_record_by_record() {
        let message = Message::read(RESPONSE).unwrap();
        assert_eq!(message.id, 0x1234);
        assert_eq!(message.question.name.to_string(), "a.b");
        let records: Vec<Record<'_>> = message.records().collect();
        assert_eq!((records[0].kind, records[0].ttl), (5, 60));
        assert_eq!((records[1].kind, records[1].ttl), (1, 30));
        assert_eq!(records[1].data, [192, 0, 2, 1]);
        assert_eq!(message.owner(&records[1]).unwrap().to_string(), "c.b");
    }

    #[test]
    fn every_cut_of_a_response_is_an_error() {
        for cut in 0..RESPONSE.len() {
            assert!(Message::read(&RESPONSE[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_question_that_is_compressed_or_missing_is_an_error() {
        let mut none = RESPONSE.to_vec();
        none[5] = 0;
        assert!(Message::read(&none).is_err());
        let two = b"\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\x01\0\x01\0\0\x01\0\x01";
        assert!(Message::read(two).is_err());
        let compressed = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\xc0\0\0\x01\0\x01";
        assert!(Message::read(compressed).is_err());
    }

    proptest! {
        #[test]
        fn changed_responses_and_random_bytes_do_not_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            random in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = RESPONSE.to_vec();
            for (place, value) in changes {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            for bytes in [bytes, random] {
                if let Ok(message) = Message::read(&bytes) {
                    for record in message.records() {
                        let _ = message.owner(&record);
                        prop_assert!(record.end <= bytes.len());
                    }
                }
            }
        }
    }
}
