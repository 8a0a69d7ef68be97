//! Which names an answered address belongs to.

use std::net::IpAddr;
use std::time::Duration;

use crate::private::addresses;
use crate::wire::{Message, Name, kind};

/// Most aliases that are followed. Resolvers follow a few more than that at most.
const MAX_ALIASES: usize = 16;

/// Reports each address in the answer with its names: that of the question, the aliases, and the
/// address's own. Hints of SVCB and HTTPS records count, because browsers connect to them.
pub(crate) fn report(message: &Message<'_>, mut observe: impl FnMut(&[String], IpAddr, Duration)) {
    let mut chain = vec![message.question.name.clone()];
    let mut names = vec![message.question.name.to_string()];
    while chain.len() <= MAX_ALIASES {
        let own = &chain[chain.len() - 1];
        let Some(alias) = alias_of(message, own).filter(|alias| !chain.contains(alias)) else {
            break;
        };
        names.push(alias.to_string());
        chain.push(alias);
    }
    for record in message.answers() {
        let found = addresses(message, &record);
        if found.is_empty() {
            continue;
        }
        let owner = message.owner(&record).ok();
        let Some(place) = owner.and_then(|owner| chain.iter().position(|name| *name == owner))
        else {
            continue;
        };
        let ttl = Duration::from_secs(crate::wire::seconds(record.ttl).into());
        for address in found {
            observe(&names[..=place], address, ttl);
        }
    }
}

/// The name for which `name` is an alias. (The CNAME record that follows from a DNAME record is in
/// the answer, too: RFC 6672, section 3.1.)
fn alias_of(message: &Message<'_>, name: &Name) -> Option<Name> {
    let is_own = |record: &crate::wire::Record<'_>| {
        record.kind == kind::CNAME && message.owner(record).as_ref() == Ok(name)
    };
    let record = message.answers().find(is_own)?;
    Some(Name::read(message.bytes, record.data_at).ok()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, address, alias, answer};
    use crate::wire::Query;

    fn reported(records: Vec<crate::testing::Data>) -> Vec<(String, String, u64)> {
        let query = Query::new("www.example", kind::A);
        let bytes = answer(&query, Answer::records(records));
        let mut all = Vec::new();
        report(&Message::read(&bytes).unwrap(), |names, address, ttl| {
            all.push((names.join(" "), address.to_string(), ttl.as_secs()));
        });
        all
    }

    #[test]
    fn all_names_of_a_chain_are_reported() {
        let records = vec![
            alias("cdn.example", 300),
            alias("edge.example", 60).of("cdn.example"),
            address("192.0.2.1", 30).of("edge.example"),
            address("192.0.2.2", 40).of("edge.example"),
            address("192.0.2.3", 50).of("stranger.example"),
        ];
        let names = "www.example cdn.example edge.example";
        let expected = [("192.0.2.1", 30), ("192.0.2.2", 40)];
        let expected = expected.map(|(address, ttl)| (names.to_owned(), address.to_owned(), ttl));
        assert_eq!(reported(records), expected);
    }

    #[test]
    fn a_chain_that_is_a_loop_ends() {
        let records = vec![
            alias("b.example", 300),
            alias("www.example", 300).of("b.example"),
            address("192.0.2.1", 30).of("b.example"),
        ];
        let expected = (
            "www.example b.example".to_owned(),
            "192.0.2.1".to_owned(),
            30,
        );
        assert_eq!(reported(records), [expected]);
    }
}
