//! Questions for the addresses of a name, for a program that asks over a socket of its own: the
//! gateway looks up its server while this machine's resolver is the gateway itself, or blocked.

use std::net::IpAddr;

pub use sumlink_exit::resolver::nameservers;

use crate::private::addresses;
use crate::upstream::{ExchangeError, random_id};
use crate::wire::{Form, INTERNET, Message, Name, Query, Question, kind};

/// Longest answer over UDP to a question without EDNS, in bytes (RFC 1035, section 4.2.1).
pub const MAX_ANSWER: usize = 512;

/// A question for the IPv4 or IPv6 addresses of a name.
#[derive(Clone, Debug)]
pub struct AddressQuestion {
    id: u16,
    query: Query,
}

impl AddressQuestion {
    /// A question with an unpredictable ID.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`] if the system has no random numbers.
    pub fn new(name: Name, ipv6: bool) -> Result<Self, ExchangeError> {
        let kind = if ipv6 { kind::AAAA } else { kind::A };
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

    /// The message for a resolver.
    pub fn message(&self) -> Vec<u8> {
        self.query.encode(self.id, Form::Plain)
    }

    /// The addresses in an answer; empty if the name has none. `None` for a message that does not
    /// answer this question.
    pub fn addresses(&self, answer: &[u8]) -> Option<Vec<IpAddr>> {
        if !self.query.is_answered_by(self.id, answer) {
            return None;
        }
        let message = Message::read(answer).ok()?;
        let records = message.answers();
        let wanted = records.filter(|record| record.kind == self.query.question.kind);
        Some(
            wanted
                .flat_map(|record| addresses(&message, &record))
                .collect(),
        )
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
}
