//! DNS messages (RFC 1035, section 4): just enough for a name server of tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{internet_v4, internet_v6};

/// Types of records.
const A: u16 = 1;
const AAAA: u16 = 28;
/// Bytes of a header, and of an answer's fixed part with a pointer to the name of the question.
const HEADER: usize = 12;
const POINTER: [u8; 2] = [0xc0, HEADER as u8];
/// Class IN.
const IN: u16 = 1;
/// Codes of answers.
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;
/// Time to live of an answer in seconds, and that of names below `short`.
const TTL: u32 = 300;
const SHORT_TTL: u32 = 1;
/// Answers for names below `big`: more than fits into a datagram of 512 bytes (section 2.3.4).
const MANY: u8 = 60;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    id: [u8; 2],
    recursion_desired: bool,
    /// In lower case, without the last dot.
    pub(super) name: String,
    /// The type of the wanted records.
    pub(super) kind: u16,
    /// As in the message.
    question: Vec<u8>,
}

impl Query {
    /// Parses a message with one question; `None` for any other.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let header = message.get(..HEADER)?;
        let is_question = header[2] & 0xf8 == 0 && header[4..6] == [0, 1];
        if !is_question {
            return None;
        }
        let mut labels = Vec::new();
        let mut at = HEADER;
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            match length {
                0 => break,
                // Longer ones are pointers, which a question has no use for.
                1..=63 => {
                    let label = message.get(at..at + length)?;
                    labels.push(String::from_utf8(label.to_ascii_lowercase()).ok()?);
                    at += length;
                }
                _ => return None,
            }
        }
        let end = at + 4;
        let kind = message.get(at..end)?;
        Some(Self {
            id: [header[0], header[1]],
            recursion_desired: header[2] & 1 != 0,
            name: labels.join("."),
            kind: u16::from_be_bytes([kind[0], kind[1]]),
            question: message[HEADER..end].to_vec(),
        })
    }

    fn first_label(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// The answer; `None` for names that get none.
    pub(super) fn answer(&self, over_tcp: bool) -> Option<Vec<u8>> {
        let label = self.first_label();
        let mut ttl = TTL;
        let mut code = NO_ERROR;
        let hosts = match label {
            "silent" => return None,
            "missing" => {
                code = NO_SUCH_NAME;
                0..=0
            }
            "big" => 1..=MANY,
            "short" => {
                ttl = SHORT_TTL;
                1..=1
            }
            _ => {
                let number = label
                    .strip_prefix('h')
                    .and_then(|number| number.parse().ok());
                let host = number
                    .filter(|number| (1..=254).contains(number))
                    .unwrap_or(1);
                host..=host
            }
        };
        let records = hosts.filter_map(|host| self.record(label, host));
        let mut records: Vec<Vec<u8>> = records.collect();
        if code != NO_ERROR {
            records.clear();
        }
        let truncated = records.len() > 1 && !over_tcp;
        if truncated {
            records.clear();
        }
        let mut message = self.id.to_vec();
        // An answer, authoritative, and recursion is available.
        message.push(0x84 | u8::from(truncated) << 1 | u8::from(self.recursion_desired));
        message.push(0x80 | code);
        for count in [1, records.len() as u16, 0, 0] {
            message.extend(count.to_be_bytes());
        }
        message.extend(&self.question);
        for record in records {
            message.extend(POINTER);
            message.extend(self.kind.to_be_bytes());
            message.extend(IN.to_be_bytes());
            message.extend(ttl.to_be_bytes());
            message.extend((record.len() as u16).to_be_bytes());
            message.extend(record);
        }
        Some(message)
    }

    /// The data of the record of the wanted type.
    fn record(&self, label: &str, host: u8) -> Option<Vec<u8>> {
        let private = label == "private";
        match self.kind {
            A if private => Some(PRIVATE_V4.octets().to_vec()),
            A => Some(internet_v4(host).octets().to_vec()),
            AAAA if private => Some(PRIVATE_V6.octets().to_vec()),
            AAAA => Some(internet_v6(host).octets().to_vec()),
            _ => None,
        }
    }
}

/// What names below `private` mean: an attack by rebinding.
const PRIVATE_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
const PRIVATE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// A question for the addresses of a name.
pub(crate) fn question(id: u16, name: &str) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    // Recursion is desired; one question.
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(label.len().min(63) as u8);
        message.extend(label.bytes().take(63));
    }
    message.push(0);
    message.extend(A.to_be_bytes());
    message.extend(IN.to_be_bytes());
    message
}

/// The id of an answer that has a record; `None` for any other message.
pub(crate) fn answered(message: &[u8]) -> Option<u16> {
    let header = message.get(..HEADER)?;
    let is_answer = header[2] & 0x80 != 0 && header[3] & 0x0f == NO_ERROR;
    let has_record = header[6..8] != [0, 0];
    (is_answer && has_record).then(|| u16::from_be_bytes([header[0], header[1]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(name: &str, kind: u16) -> Query {
        let mut message = question(7, name);
        let at = message.len() - 4;
        message[at..at + 2].copy_from_slice(&kind.to_be_bytes());
        Query::parse(&message).unwrap()
    }

    #[test]
    fn a_name_has_the_address_of_the_internet_host() {
        let query = asked("www.Example.test", A);
        assert_eq!((query.name.as_str(), query.kind), ("www.example.test", A));
        let answer = query.answer(false).unwrap();
        assert_eq!(answered(&answer), Some(7));
        assert!(answer.ends_with(&[0, 4, 203, 0, 113, 1]), "{answer:?}");
        let answer = asked("h9.example.test", AAAA).answer(false).unwrap();
        assert!(answer.ends_with(&internet_v6(9).octets()), "{answer:?}");
        let answer = asked("private.example.test", A).answer(false).unwrap();
        assert!(answer.ends_with(&[192, 168, 1, 1]), "{answer:?}");
        // Other types have no records.
        let answer = asked("www.example.test", 16).answer(false).unwrap();
        assert_eq!((answer[3] & 15, &answer[6..8]), (NO_ERROR, &[0, 0][..]));
    }

    #[test]
    fn some_names_have_no_usual_answer() {
        let answer = asked("missing.example.test", A).answer(false).unwrap();
        assert_eq!(answer[3] & 15, NO_SUCH_NAME);
        assert_eq!(answered(&answer), None);
        assert_eq!(asked("silent.example.test", A).answer(false), None);
        let big = asked("big.example.test", A);
        let (datagram, stream) = (big.answer(false).unwrap(), big.answer(true).unwrap());
        assert_eq!(datagram[2] & 2, 2, "truncated");
        assert_eq!((stream[2] & 2, stream[7]), (0, MANY));
        assert!(stream.len() > 512);
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_panic(message: Vec<u8>) {
            if let Some(query) = Query::parse(&message) {
                query.answer(false);
            }
            answered(&message);
        }
    }
}
