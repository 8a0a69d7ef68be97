//! Questions for the addresses of a name or its servers, for a program that asks a resolver without
//! the C library. The library has no function for SRV records, and while the gateway looks up its
//! server, the library's resolver is the gateway itself, or blocked.

use std::net::IpAddr;

pub use sumlink_exit::resolver::nameservers;

use crate::private::addresses;
use crate::upstream::{ExchangeError, random_id};
use crate::wire::{Form, INTERNET, Message, Name, Query, Question, is_without_edns, kind, word};

/// A question for records of one type.
#[derive(Clone, Debug)]
struct Asked {
    id: u16,
    query: Query,
}

impl Asked {
    fn new(name: Name, kind: u16) -> Result<Self, ExchangeError> {
        Ok(Self {
            id: random_id()?,
            query: Query {
                question: Question {
                    name,
                    kind,
                    class: INTERNET,
                },
                is_dnssec_ok: false,
                is_checking_disabled: false,
            },
        })
    }

    /// An answer to this question.
    fn read<'a>(&self, answer: &'a [u8]) -> Option<Message<'a>> {
        self.query
            .is_answered_by(self.id, answer)
            .then(|| Message::read(answer).ok())
            .flatten()
    }
}

/// A question for the IPv4 or IPv6 addresses of a name.
#[derive(Clone, Debug)]
pub struct AddressQuestion(Asked);

impl AddressQuestion {
    /// A question with an unpredictable ID.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`] if the system has no random numbers.
    pub fn new(name: Name, ipv6: bool) -> Result<Self, ExchangeError> {
        let kind = if ipv6 { kind::AAAA } else { kind::A };
        Asked::new(name, kind).map(Self)
    }

    /// The message for a resolver.
    pub fn message(&self) -> Vec<u8> {
        self.0.query.encode(self.0.id, Form::Plain)
    }

    /// The addresses in an answer; empty if the name has none. `None` for a message that does not
    /// answer this question.
    pub fn addresses(&self, answer: &[u8]) -> Option<Vec<IpAddr>> {
        let message = self.0.read(answer)?;
        let records = message.answers();
        let wanted = records.filter(|record| record.kind == self.0.query.question.kind);
        Some(
            wanted
                .flat_map(|record| addresses(&message, &record))
                .collect(),
        )
    }
}

/// A server of a service (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Clients try servers with a lower priority first.
    pub priority: u16,
    /// Relative share of the clients among servers of one priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its name; the root if there is no such service.
    pub target: Name,
}

/// A question for the servers of a service, such as `_sumlink._tcp.example.org`.
#[derive(Clone, Debug)]
pub struct ServiceQuestion(Asked);

impl ServiceQuestion {
    /// A question with an unpredictable ID.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`] if the system has no random numbers.
    pub fn new(name: Name) -> Result<Self, ExchangeError> {
        Asked::new(name, kind::SRV).map(Self)
    }

    /// The message for a resolver. With `edns` the answer may have 1,232 bytes instead of 512.
    pub fn message(&self, edns: bool) -> Vec<u8> {
        let form = if edns { Form::Edns } else { Form::Plain };
        self.0.query.encode(self.0.id, form)
    }

    /// Whether an answer refuses EDNS, so that the question must be asked without it.
    pub fn is_without_edns(&self, answer: &[u8]) -> bool {
        is_without_edns(self.0.id, answer)
    }

    /// The servers in an answer, in its order; empty if there are none. `None` for a message that
    /// does not answer this question.
    pub fn services(&self, answer: &[u8]) -> Option<Vec<ServiceRecord>> {
        let message = self.0.read(answer)?;
        let records = message.answers().filter(|r| r.kind == kind::SRV);
        let read = |at: usize| {
            Some(ServiceRecord {
                priority: word(answer, at).ok()?,
                weight: word(answer, at + 2).ok()?,
                port: word(answer, at + 4).ok()?,
                // Some servers compress the name, although they should not.
                target: Name::read(answer, at + 6).ok()?.0,
            })
        };
        Some(records.filter_map(|record| read(record.data_at)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_the_question_count() {
        let name: Name = "vpn.example.test".parse().unwrap();
        let question = AddressQuestion::new(name.clone(), false).unwrap();
        let mut answer = question.message();
        // A response with recursion, and one record: a pointer to the name, A, IN, 60 s.
        answer[2] |= 0x80;
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        let found = question.addresses(&answer).unwrap();
        assert_eq!(found, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        let other = AddressQuestion::new(name, true).unwrap();
        assert_eq!(other.addresses(&answer), None);
        assert_eq!(question.addresses(&question.message()), None, "no response");
        for length in 0..answer.len() {
            assert_eq!(question.addresses(&answer[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_servers_of_a_service_are_read() {
        let name: Name = "_sumlink._tcp.example.test".parse().unwrap();
        let question = ServiceQuestion::new(name).unwrap();
        let mut answer = question.message(false);
        answer[2] |= 0x80;
        answer[7] = 2;
        // SRV, IN, 60 s: priority 10, weight 5, port 443, `a` below the question's third label; and
        // one without a service.
        let owner = 12 + "_sumlink".len() as u8 + 1 + "_tcp".len() as u8 + 1;
        answer.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, 10]);
        answer.extend([0, 10, 0, 5, 1, 187, 1, b'a', 0xc0, owner]);
        answer.extend([
            0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        ]);
        let found = question.services(&answer).unwrap();
        let target = "a.example.test".parse().unwrap();
        let expected = ServiceRecord {
            priority: 10,
            weight: 5,
            port: 443,
            target,
        };
        assert_eq!(found[0], expected);
        assert_eq!((found.len(), &found[1].target), (2, &Name::root()));
        for length in 0..answer.len() {
            assert_eq!(question.services(&answer[..length]), None, "{length}");
        }
    }
}
