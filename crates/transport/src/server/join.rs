//! Strangers with an invitation: the one exchange that a server has with a key that it does not
//! know.
//!
//! An invitation's tag is checked before any cryptography, so that guesses cost no more than other
//! strangers. A peer with a tag but without its secret has read the tag from the network: such
//! handshakes are limited for each tag and for all together.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_engine::frame::RefuseCode;
use sumlink_exit::bucket::Bucket;
use tokio::time::Instant;

use super::Shared;
use super::half_open::{Host, host};
use crate::api::join::Invitations;
use crate::carrier::handshake::{CarrierError, JoinAttempt, JoinCarrier};
use crate::carrier::tag::Tag;

/// Limits how often strangers may try.
#[derive(Debug)]
pub(super) struct JoinLimit(Mutex<Limits>);

#[derive(Debug)]
struct Limits {
    /// Answers to guesses for each host's network.
    networks: HashMap<Host, Bucket>,
    /// Handshakes for each tag.
    tags: HashMap<Tag, Bucket>,
    /// Handshakes of all.
    all: Bucket,
}

/// Tokens per second, and most of them.
type Rate = (f64, f64);

/// Tags that one network may try. A client needs one.
const NETWORK: Rate = (1.0, 10.0);

/// Handshakes with one tag.
const TAG: Rate = (0.5, 5.0);

/// Handshakes of all strangers with an invitation: at most a fiftieth of a core.
const ALL: Rate = (50.0, 50.0);

/// Networks and tags that are remembered.
const MAX_REMEMBERED: usize = 4096;

impl JoinLimit {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Limits {
            networks: HashMap::new(),
            tags: HashMap::new(),
            all: full(ALL, now),
        }))
    }

    /// Whether a stranger from this address may continue with a tag.
    fn admits(&self, from: IpAddr, tag: Option<&Tag>, open: &dyn Invitations) -> bool {
        let now = Instant::now();
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !take(&mut limits.networks, host(from), NETWORK, now) {
            return false;
        }
        let Some(tag) = tag.filter(|tag| open.knows(tag)) else {
            return false;
        };
        // The limit of all is last: a tag that is tried too often takes nothing from it.
        take(&mut limits.tags, *tag, TAG, now) && limits.all.take(1, now)
    }
}

/// Takes a token of one bucket of many. When there are too many, full ones are forgotten, and all
/// if that does not suffice: a flood from as many networks then gets a few more answers.
fn take<K: Eq + std::hash::Hash>(
    buckets: &mut HashMap<K, Bucket>,
    key: K,
    rate: Rate,
    now: Instant,
) -> bool {
    if buckets.len() >= MAX_REMEMBERED && !buckets.contains_key(&key) {
        buckets.retain(|_, bucket| !bucket.is_full(now));
        if buckets.len() >= MAX_REMEMBERED {
            buckets.clear();
        }
    }
    let bucket = buckets.entry(key);
    bucket.or_insert_with(|| full(rate, now)).take(1, now)
}

fn full((rate, most): Rate, now: Instant) -> Bucket {
    Bucket::new(rate, most, now)
}

impl Shared {
    /// Decides about a stranger with an invitation, before TLS. `None` refuses it.
    pub(super) fn admit_join(&self, attempt: &JoinAttempt) -> Option<Arc<dyn Invitations>> {
        let open = self.config.invitations.as_ref()?;
        let may = self
            .joins
            .admits(attempt.from.ip(), attempt.tag.as_ref(), open.as_ref());
        may.then(|| Arc::clone(open))
    }

    /// The exchange with a stranger that has proved its key.
    pub(super) async fn serve_join(
        &self,
        open: &dyn Invitations,
        carrier: JoinCarrier,
        patience: Duration,
        from: SocketAddr,
    ) {
        let key = carrier.key;
        let (secret, carrier) = match carrier.secret(patience).await {
            Ok(asked) => asked,
            Err(error) => return tracing::info!(%from, %error, "invitation not used"),
        };
        let answered: Result<(), CarrierError> = match open.redeem(secret, key).await {
            Ok(Some(name)) => {
                tracing::info!(%from, client = %name, %key, "a new client has joined");
                carrier.joined(&name).await
            }
            Ok(None) => {
                tracing::info!(%from, "refused an invitation that is wrong, used or expired");
                carrier.refuse(RefuseCode::Limit, "").await
            }
            Err(reason) => {
                tracing::warn!(%from, %reason, "cannot add a client that has an invitation");
                carrier.refuse(RefuseCode::Limit, &reason).await
            }
        };
        if let Err(error) = answered {
            tracing::info!(%from, %error, "a client with an invitation left before the answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use super::*;
    use crate::api::join::Redeemed;
    use crate::carrier::keys::PublicKey;

    /// Knows one tag.
    #[derive(Debug)]
    struct One;

    impl Invitations for One {
        fn knows(&self, tag: &Tag) -> bool {
            *tag == [1; 16]
        }

        fn redeem(
            &self,
            _: [u8; 16],
            _: PublicKey,
        ) -> Pin<Box<dyn Future<Output = Redeemed> + Send + '_>> {
            Box::pin(async { Ok(None) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_are_limited_by_network_and_leave_others_their_way() {
        let limit = JoinLimit::new();
        let attacker = |number: u128| IpAddr::V6((0x2001_0db8 << 96 | number).into());
        let honest: IpAddr = "192.0.2.7".parse().unwrap();
        for number in 0..10_000 {
            assert!(!limit.admits(attacker(number), Some(&[2; 16]), &One));
        }
        // Even the right tag does not help within that network now, and does elsewhere.
        assert!(!limit.admits(attacker(0), Some(&[1; 16]), &One));
        assert!(limit.admits(honest, Some(&[1; 16]), &One));
        assert!(!limit.admits(honest, None, &One));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(limit.admits(attacker(0), Some(&[1; 16]), &One));
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_with_a_known_tag_are_limited_wherever_they_come_from() {
        let limit = JoinLimit::new();
        let from = |number: u32| IpAddr::V4(number.into());
        let admitted = |range: std::ops::Range<u32>| {
            range
                .filter(|number| limit.admits(from(*number), Some(&[1; 16]), &One))
                .count()
        };
        assert_eq!(admitted(0..20_000), 5);
        assert!(limit.0.lock().unwrap().networks.len() <= MAX_REMEMBERED);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(admitted(20_000..20_100), 1);
    }
}
