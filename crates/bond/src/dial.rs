//! Timeouts and pauses of dialing.

use std::time::Duration;

use crate::Instant;

/// How long an attempt runs alone before the next one begins (RFC 8305, section 5: Connection Attempt
/// Delay).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How long a TCP connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer may take for TLS and for each frame of the handshake; a busy server gives an unknown
/// peer less.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a carrier waits while another one creates the session: a round trip of most links.
///
/// A second attempt beside the first costs no more than a new connection, because the server creates one
/// session and answers the second request with "exists".
pub const MAKING_PATIENCE: Duration = Duration::from_secs(1);

/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Pause after the end of a path, before its link is tried again.
pub const ENDED_PAUSE: Duration = RETRY_PAUSE.0;

/// The same for a path that the session did not take: another path has to go first.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Links are looked at this often even when nothing was heard of them.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Pause before a lost session is made anew; doubles up to the second value. Each attempt looks up the
/// server's name, so a server that has moved is found within three seconds.
pub const RENEW_PAUSE: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_millis(2500));

/// After a session that lasted for so long the pauses begin anew: it was none that the server only takes
/// to end it at once.
pub const LASTING: Duration = Duration::from_secs(10);

/// Time until the next connection begins on a silent link that has been tried for so long.
pub fn attempt_pause(tried_for: Duration) -> Duration {
    match tried_for.as_secs() {
        0..10 => ATTEMPT_DELAY,
        10..60 => Duration::from_secs(1),
        _ => Duration::from_secs(5),
    }
}

/// Pause after so many failed dials in a row.
pub fn retry_pause(failures: u32) -> Duration {
    let pause = RETRY_PAUSE.0 * 2u32.pow(failures.clamp(1, 8) - 1);
    pause.min(RETRY_PAUSE.1)
}

/// When the links are next looked at, after the look at `looked`. `retries` are the times before which
/// links that lack a carrier are not dialed.
pub fn next_look(looked: Instant, retries: impl Iterator<Item = Instant>) -> Instant {
    // Counted from the last look: other news, which is frequent while bytes move, must not delay it.
    let regular = looked + LOOK_EVERY;
    let at = retries.min().map_or(regular, |retry| retry.min(regular));
    at.max(looked + RETRY_PAUSE.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

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
    fn links_are_looked_at_when_one_is_due_and_regularly_but_not_all_the_time() {
        let next = |retry: &[Duration]| next_look(START, retry.iter().map(|pause| START + *pause));
        assert_eq!(next(&[]), START + LOOK_EVERY);
        let [short, long] = [Duration::from_secs(1), Duration::from_secs(60)];
        assert_eq!(next(&[long]), START + LOOK_EVERY);
        assert_eq!(next(&[long, short]), START + short);
        assert_eq!(next(&[Duration::ZERO]), START + RETRY_PAUSE.0);
    }
}
