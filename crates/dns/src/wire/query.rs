//! Queries: those of clients, and those to upstream resolvers.

use super::edns::{self, Edns, PLAIN_SIZE, UDP_SIZE};
use super::message::{HEADER, word};
use super::{Message, Question, code, flag, kind};

/// Block of the padding of encrypted queries, in bytes (RFC 8467, section 4.1).
const PADDING_BLOCK: usize = 128;

/// A query of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientQuery {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) query: Query,
    pub(crate) edns: Option<Edns>,
    /// The bytes of the question, with the client's choice of upper and lower case.
    pub(super) question: Box<[u8]>,
}

/// Why a message gets no ordinary answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A response, or less than a header: an answer could start a loop.
    Ignore,
    /// It gets this answer.
    Reply(Vec<u8>),
}

/// A query as it is sent upstream, and the key of the cache. Everything else in a client's query
/// concerns only the hop to the forwarder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Query {
    pub(crate) question: Question,
    /// The answer includes signatures (the DO bit, RFC 3225).
    pub(crate) is_dnssec_ok: bool,
    /// The answer may be data that does not validate (the CD bit, RFC 4035, section 3.2.2).
    pub(crate) is_checking_disabled: bool,
}

/// The form of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// With EDNS.
    Edns,
    /// With EDNS, padded for an encrypted connection.
    Padded,
    /// Without EDNS, for a resolver that does not know it.
    Plain,
}

impl ClientQuery {
    /// Reads a client's message.
    ///
    /// # Errors
    ///
    /// It is not a query for records that a forwarder can answer.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let header = (word(bytes, 0), word(bytes, 2));
        let (Ok(id), Ok(flags)) = header else {
            return Err(Unreadable::Ignore);
        };
        if bytes.len() < HEADER || flags & flag::RESPONSE != 0 {
            return Err(Unreadable::Ignore);
        }
        if flags & flag::OPCODE != 0 {
            return Err(refusal(id, flags, code::NOT_IMPLEMENTED));
        }
        let Ok(message) = Message::read(bytes) else {
            return Err(refusal(id, flags, code::FORMAT_ERROR));
        };
        if matches!(message.question.kind, kind::AXFR | kind::IXFR) {
            return Err(refusal(id, flags, code::REFUSED));
        }
        let edns = Edns::of(&message);
        if matches!(edns, Some(Edns { version: 1.., .. })) {
            let mut reply = header_only(id, flags, code::BAD_VERSION);
            reply[11] = 1;
            edns::append(&mut reply, code::BAD_VERSION, false, None);
            return Err(Unreadable::Reply(reply));
        }
        Ok(Self {
            id,
            flags,
            question: bytes[HEADER..message.question_end].into(),
            query: Query {
                is_dnssec_ok: edns.is_some_and(|edns| edns.is_dnssec_ok),
                is_checking_disabled: flags & flag::CHECKING_DISABLED != 0,
                question: message.question,
            },
            edns,
        })
    }

    /// Longest response over UDP, in bytes.
    pub(crate) fn udp_limit(&self) -> usize {
        let size = self.edns.map_or(PLAIN_SIZE, |edns| edns.udp_size);
        usize::from(size.min(UDP_SIZE))
    }
}

impl Query {
    /// A query for records of the internet, as a client without DNSSEC sends it.
    #[cfg(test)]
    pub(crate) fn new(name: &str, kind: u16) -> Self {
        Self {
            question: Question {
                name: name.parse().unwrap(),
                kind,
                class: super::INTERNET,
            },
            is_dnssec_ok: false,
            is_checking_disabled: false,
        }
    }

    /// The message to an upstream resolver. It asks for the AD bit (RFC 6840, section 5.7), which
    /// answers from the cache then have for all clients.
    pub(crate) fn encode(&self, id: u16, form: Form) -> Vec<u8> {
        let mut flags = flag::RECURSION_DESIRED | flag::AUTHENTIC;
        if self.is_checking_disabled {
            flags |= flag::CHECKING_DISABLED;
        }
        let additional = u16::from(form != Form::Plain);
        let mut out = Vec::with_capacity(PADDING_BLOCK);
        for word in [id, flags, 1, 0, 0, additional] {
            out.extend(word.to_be_bytes());
        }
        out.extend(self.question.name.as_bytes());
        out.extend(self.question.kind.to_be_bytes());
        out.extend(self.question.class.to_be_bytes());
        if form != Form::Plain {
            edns::append(&mut out, code::NO_ERROR, self.is_dnssec_ok, None);
        }
        if form == Form::Padded {
            edns::pad(&mut out, PADDING_BLOCK);
        }
        out
    }

    /// Whether `bytes` is a response to this query with this ID (RFC 5452, section 9.1).
    pub(crate) fn is_answered_by(&self, id: u16, bytes: &[u8]) -> bool {
        Message::read(bytes).is_ok_and(|message| {
            message.id == id
                && message.flags & flag::RESPONSE != 0
                && message.flags & flag::OPCODE == 0
                && message.question == self.question
        })
    }
}

/// A response without a question.
fn header_only(id: u16, flags: u16, code: u16) -> Vec<u8> {
    let kept = flags & (flag::OPCODE | flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
    let flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | kept | (code & flag::CODE);
    let words = [id, flags, 0, 0, 0, 0];
    words.into_iter().flat_map(u16::to_be_bytes).collect()
}

fn refusal(id: u16, flags: u16, code: u16) -> Unreadable {
    Unreadable::Reply(header_only(id, flags, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_comes_back_from_its_message() {
        for (is_dnssec_ok, is_checking_disabled) in [(false, true), (true, false)] {
            let query = Query {
                is_dnssec_ok,
                is_checking_disabled,
                ..Query::new("example.org", kind::AAAA)
            };
            for form in [Form::Edns, Form::Padded] {
                let bytes = query.encode(7, form);
                let read = ClientQuery::read(&bytes).unwrap();
                assert_eq!((read.id, &read.query), (7, &query));
                assert_eq!(read.udp_limit(), 1232);
                assert_eq!(form == Form::Padded, bytes.len() == PADDING_BLOCK);
            }
        }
        let plain = Query::new(".", 2).encode(0, Form::Plain);
        assert_eq!(ClientQuery::read(&plain).unwrap().udp_limit(), 512);
    }

    #[test]
    fn messages_that_are_no_questions_get_an_error_or_nothing() {
        let query = Query::new("example.org", kind::A).encode(7, Form::Edns);
        let with = |at: usize, value: u8| {
            let mut bytes = query.clone();
            bytes[at] = value;
            match ClientQuery::read(&bytes).unwrap_err() {
                Unreadable::Ignore => None,
                Unreadable::Reply(reply) => {
                    assert_eq!(reply[..2], bytes[..2]);
                    Some(u16::from(reply[3]) & flag::CODE)
                }
            }
        };
        assert_eq!(with(2, 0x80), None);
        assert_eq!(with(2, 0x28), Some(code::NOT_IMPLEMENTED));
        assert_eq!(with(5, 0), Some(code::FORMAT_ERROR));
        assert_eq!(with(11, 3), Some(code::FORMAT_ERROR));
        let kind_low = 12 + 13 + 1;
        assert_eq!(with(kind_low, 252), Some(code::REFUSED));
        let version = kind_low + 3 + 6;
        assert_eq!(with(version, 1), Some(code::BAD_VERSION & flag::CODE));
        for cut in 0..HEADER {
            let error = ClientQuery::read(&query[..cut]).unwrap_err();
            assert_eq!(error, Unreadable::Ignore);
        }
    }

    #[test]
    fn answers_to_other_questions_do_not_count() {
        let query = Query::new("example.org", kind::A);
        let mut answer = query.encode(7, Form::Plain);
        assert!(!query.is_answered_by(7, &answer));
        answer[2] |= 0x80;
        assert!(query.is_answered_by(7, &answer));
        assert!(!query.is_answered_by(8, &answer));
        assert!(!Query::new("example.com", kind::A).is_answered_by(7, &answer));
        assert!(!Query::new("example.org", kind::AAAA).is_answered_by(7, &answer));
        assert!(!query.is_answered_by(7, &answer[..answer.len() - 1]));
    }
}
