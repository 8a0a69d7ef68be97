//! The reading of messages, for the fuzz target.

use crate::wire::{Age, ClientQuery, Message, local, render, storable};
use crate::{chain, private};

/// Reads bytes as a client's question, and as an upstream's response to it. Nothing may panic, and
/// a client must get a well-formed message.
pub fn message(bytes: &[u8]) {
    let client = ClientQuery::read(bytes);
    if let Ok(client) = &client {
        let stored = local(&client.query.question, 3, 0, &[]);
        let reply = render(
            client,
            &stored,
            Age::Seconds(1),
            client.udp_limit(),
            Some(15),
        );
        let reply = reply.unwrap_or_default();
        assert!(reply.len() <= client.udp_limit().max(bytes.len() + 64));
        assert!(Message::read(&reply).is_ok());
    }
    let Ok(response) = Message::read(bytes) else {
        return;
    };
    let _ = private::find(&response, &[]);
    chain::report(&response, |names, _, _| assert!(!names.is_empty()));
    let stored = storable(&response, 7);
    assert!(stored.len() <= bytes.len());
    let kept = Message::read(&stored);
    assert!(kept.is_ok_and(|kept| kept.question == response.question));
    if let Ok(client) = client {
        for limit in [512, 65_535] {
            let reply = render(&client, &stored, Age::Stale(30), limit, None);
            let reply = reply.unwrap_or_default();
            assert!(Message::read(&reply).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn seeds() -> Vec<Vec<u8>> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/dns");
        let files = std::fs::read_dir(path).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn changed_seeds_keep_the_promises(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            for mut seed in seeds() {
                for (place, value) in &changes {
                    let place = place.index(seed.len());
                    seed[place] = *value;
                }
                super::message(&seed);
            }
        }
    }
}
