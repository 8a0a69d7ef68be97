//! How many connections the server has refused, by reason.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sumlink_engine::frame::RefuseCode;

use crate::carrier::handshake::CarrierError;
use crate::carrier::quic::QuicError;
use crate::carrier::tls::HandshakeError;

/// The reasons, by the names that status and metrics have for them.
const REASONS: [&str; 12] = [
    "unknown_key",
    "invitation",
    "other_server_key",
    "not_sumlink",
    "version",
    "protocol",
    "timeout",
    "broken",
    "displaced",
    "no_session",
    "limit",
    "stopping",
];

/// Refused connections since the server began, one count for each reason.
#[derive(Debug, Default)]
pub(super) struct Refused([AtomicU64; REASONS.len()]);

impl Refused {
    /// Counts a TCP connection that did not prove a key; without an error, it made room for another
    /// one.
    pub(super) fn handshake(&self, error: Option<&CarrierError>) {
        self.count(error.map_or("displaced", of_carrier));
    }

    /// Counts a QUIC connection that did not prove a key.
    pub(super) fn datagrams(&self, error: &QuicError) {
        self.count(match error {
            QuicError::Keys(error) => of_tls(error),
            QuicError::Join(error) => of_carrier(error),
            QuicError::VersionMismatch => "version",
            QuicError::TimedOut { .. } => "timeout",
            _ => "broken",
        });
    }

    /// Counts a connection with a valid key that was refused with this code.
    pub(super) fn code(&self, code: RefuseCode) {
        self.count(of_code(code));
    }

    /// All counts, also those that are 0.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        let counts = REASONS.iter().zip(&self.0);
        let counts = counts.map(|(reason, count)| {
            let count = count.load(Ordering::Relaxed);
            ((*reason).to_owned(), count)
        });
        counts.collect()
    }

    fn count(&self, reason: &str) {
        let mut counts = REASONS.iter().zip(&self.0);
        if let Some((_, count)) = counts.find(|(known, _)| **known == reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn of_carrier(error: &CarrierError) -> &'static str {
    match error {
        CarrierError::Tls(error) => of_tls(error),
        CarrierError::TimedOut => "timeout",
        CarrierError::NoInvitation => "invitation",
        CarrierError::Protocol(_) | CarrierError::Balancer(_) | CarrierError::OtherServer => {
            "protocol"
        }
        CarrierError::Refused { code, .. } => of_code(*code),
        CarrierError::Io(_) => "broken",
    }
}

fn of_tls(error: &HandshakeError) -> &'static str {
    match error {
        HandshakeError::UnknownClient { .. } => "unknown_key",
        HandshakeError::PinnedElsewhere => "other_server_key",
        HandshakeError::VersionMismatch => "version",
        HandshakeError::Closed | HandshakeError::Io(_) => "broken",
        _ => "not_sumlink",
    }
}

fn of_code(code: RefuseCode) -> &'static str {
    match code {
        RefuseCode::Version => "version",
        RefuseCode::NoSuchSession => "no_session",
        RefuseCode::SessionExists | RefuseCode::Limit => "limit",
        RefuseCode::Stopping => "stopping",
        _ => "protocol",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_known_reason() {
        let refused = Refused::default();
        refused.handshake(None);
        refused.handshake(Some(&CarrierError::TimedOut));
        refused.handshake(Some(&CarrierError::NoInvitation));
        refused.handshake(Some(&CarrierError::Protocol("")));
        refused.handshake(Some(&HandshakeError::NotTls.into()));
        refused.handshake(Some(&HandshakeError::Closed.into()));
        refused.datagrams(&QuicError::VersionMismatch);
        refused.datagrams(&HandshakeError::NoKey.into());
        for code in 0..=6 {
            refused.code(RefuseCode::from_code(code));
        }
        let counts = refused.counts();
        assert_eq!(counts.values().sum::<u64>(), 15, "{counts:?}");
        assert_eq!((counts["not_sumlink"], counts["limit"]), (2, 2));
        assert_eq!(counts["unknown_key"], 0);
    }
}
