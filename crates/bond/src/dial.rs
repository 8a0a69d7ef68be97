//! Timeouts and pauses of dialing.

use std::time::Duration;

use crate::Instant;

/// Head start of an attempt before the next one begins (RFC 8305, section 5: Connection Attempt
/// Delay).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Time limit for making a TCP connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for TLS and for each frame of the handshake; a busy server gives an unknown peer
/// less.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a carrier waits while another one creates the session: a round trip of most links.
///
/// A second attempt beside the first costs no more than a new connection, because the server
/// creates one session and answers the second request with "exists".
pub const MAKING_PATIENCE: Duration = Duration::from_secs(1);

/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Pause before UDP is tried again on a link that blocks it; doubles up to the second value.
const BLOCKED_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Pause after the end of a path, before its link is tried again.
pub const ENDED_PAUSE: Duration = RETRY_PAUSE.0;

/// Pause after the session refused a path: another path has to end first.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Maximum time between two checks of the links, even without events.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Pause before a lost session is created anew; doubles up to the second value. Each attempt
/// resolves the server's name, so a server that has moved is found within three seconds.
pub const RENEW_PAUSE: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_millis(2500));

/// A session that lasted this long resets the pauses: the server did not accept it only to end it
/// at once.
pub const LASTING: Duration = Duration::from_secs(10);

/// Time until the next connection attempt on a silent link that has been tried for `tried_for`.
pub fn attempt_pause(tried_for: Duration) -> Duration {
    match tried_for.as_secs() {
        0..10 => ATTEMPT_DELAY,
        10..60 => Duration::from_secs(1),
        _ => Duration::from_secs(5),
    }
}

/// Pause after `failures` failed dials in a row.
pub fn retry_pause(failures: u32) -> Duration {
    let pause = RETRY_PAUSE.0 * 2u32.pow(failures.clamp(1, 8) - 1);
    pause.min(RETRY_PAUSE.1)
}

/// Pause after a failed attempt to make a datagram carrier, the `failures`-th in a row before it.
/// A link on which UDP does not pass (`is_blocked`) rarely changes while it lasts, so it is tried
/// seldom.
pub fn datagram_pause(failures: u32, is_blocked: bool) -> Duration {
    let (first, most) = match is_blocked {
        true => BLOCKED_PAUSE,
        false => RETRY_PAUSE,
    };
    most.min(first * 2u32.pow(failures.min(8)))
}

/// When the links are next checked, after the check at `looked`. `retries` are the times before
/// which links that lack a carrier are not dialed.
pub fn next_look(looked: Instant, retries: impl Iterator<Item = Instant>) -> Instant {
    // Counted from the last check: other events, which are frequent while bytes move, must not
    // delay it.
    let regular = looked + LOOK_EVERY;
    let at = retries.min().map_or(regular, |retry| retry.min(regular));
    at.max(looked + RETRY_PAUSE.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    #[test]
    fn blocked_udp_is_tried_seldom_and_forever() {
        let secs = |failures| datagram_pause(failures, true).as_secs();
        assert_eq!(
            [0, 1, 2, 6, 100, u32::MAX].map(secs),
            [5, 10, 20, 300, 300, 300]
        );
        assert_eq!(datagram_pause(0, false), RETRY_PAUSE.0);
        assert_eq!(datagram_pause(9, false), RETRY_PAUSE.1);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = [0, 1, 2, 3, 4, 5, 6, 7, 100, u32::MAX].map(retry_pause);
        let ms = pauses.map(|pause| pause.as_millis());
        assert_eq!(
            ms,
            [250, 250, 500, 1000, 2000, 4000, 5000, 5000, 5000, 5000]
        );
    }

    #[test]
    fn a_silent_link_is_tried_less_often_after_a_while() {
        let ms = [0, 9, 10, 59, 60, 1_000_000]
            .map(|seconds| attempt_pause(Duration::from_secs(seconds)).as_millis());
        assert_eq!(ms, [250, 250, 1000, 1000, 5000, 5000]);
    }

    #[test]
    fn links_are_checked_when_one_is_due_and_regularly_but_not_continuously() {
        let next = |retry: &[Duration]| next_look(START, retry.iter().map(|pause| START + *pause));
        assert_eq!(next(&[]), START + LOOK_EVERY);
        let [short, long] = [Duration::from_secs(1), Duration::from_secs(60)];
        assert_eq!(next(&[long]), START + LOOK_EVERY);
        assert_eq!(next(&[long, short]), START + short);
        assert_eq!(next(&[Duration::ZERO]), START + RETRY_PAUSE.0);
    }
}
