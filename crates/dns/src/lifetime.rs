//! How long a response may be kept.

use std::time::Duration;

use crate::wire::{Message, Query, Section, code, flag, kind, seconds};

/// Longest time for which a positive response is kept: one day, against TTLs that are mistakes
/// (RFC 8767, section 4, allows up to a week).
const MAX: u32 = 86_400;

/// Longest time for which a negative response is kept: three hours (RFC 2308, section 5).
const MAX_NEGATIVE: u32 = 10_800;

/// Time for which a failure is kept, at least one second (RFC 9520, section 3.2). It is short, so
/// that a bond that is up again is used at once.
pub(crate) const FAILURE: Duration = Duration::from_secs(1);

/// The time for which a response from upstream may be kept; `None` if it must not. The response
/// reports no failure.
///
/// The record that expires first counts for the whole response. A negative response lives as its
/// SOA record says (RFC 2308, section 5), and without one it is not kept.
pub(crate) fn lifetime(query: &Query, message: &Message<'_>) -> Option<Duration> {
    if message.flags & flag::TRUNCATED != 0 {
        return None;
    }
    let (wanted, code) = (query.question.kind, message.code());
    let is_wanted = |kind| kind == wanted || wanted == kind::ANY;
    let is_positive =
        code == code::NO_ERROR && message.answers().any(|record| is_wanted(record.kind));
    let records = message.records().filter(|record| record.kind != kind::OPT);
    let least = records.map(|record| seconds(record.ttl)).min();
    let ttl = if is_positive {
        least?.min(MAX)
    } else {
        let is_soa = |record: &crate::wire::Record<'_>| {
            record.section == Section::Authority && record.kind == kind::SOA
        };
        let soa = message.records().find(is_soa)?;
        let minimum = soa
            .data
            .last_chunk::<4>()
            .map(|end| u32::from_be_bytes(*end))?;
        least?.min(seconds(minimum)).min(MAX_NEGATIVE)
    };
    (ttl > 0).then(|| Duration::from_secs(ttl.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, address, answer, soa};

    fn of(wanted: u16, response: Answer) -> Option<u64> {
        let query = Query::new("a.example", wanted);
        let bytes = answer(&query, response);
        let message = Message::read(&bytes).unwrap();
        lifetime(&query, &message).map(|time| time.as_secs())
    }

    #[test]
    fn the_record_that_expires_first_counts() {
        let two = Answer::records([address("192.0.2.1", 300), address("192.0.2.2", 60)]);
        assert_eq!(of(kind::A, two), Some(60));
        let long = Answer::records([address("192.0.2.1", 1_000_000)]);
        assert_eq!(of(kind::A, long), Some(86_400));
        for never in [0, 1 << 31, u32::MAX] {
            let zero = Answer::records([address("192.0.2.1", never)]);
            assert_eq!(of(kind::A, zero), None);
        }
    }

    #[test]
    fn a_negative_answer_lives_as_its_soa_says() {
        for (ttl, minimum, expected) in [
            (300, 60, Some(60)),
            (60, 300, Some(60)),
            (90_000, 90_000, Some(10_800)),
            (0, 60, None),
            (60, 0, None),
        ] {
            for code in [code::NO_ERROR, code::NO_SUCH_NAME] {
                let negative = Answer::negative(code, Some(soa(ttl, minimum)));
                assert_eq!(of(kind::A, negative), expected);
            }
        }
        assert_eq!(
            of(kind::A, Answer::negative(code::NO_SUCH_NAME, None)),
            None
        );
    }

    #[test]
    fn an_alias_without_an_address_is_negative() {
        let alias = Answer::records([crate::testing::alias("b.example", 300)]);
        assert_eq!(of(kind::A, alias.clone()), None);
        assert_eq!(of(kind::CNAME, alias.clone()), Some(300));
        assert_eq!(of(kind::A, alias.with_authority(soa(600, 120))), Some(120));
    }
}
