//! Questions in datagrams, and over TCP where datagrams do not suffice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, Received, SendError};
use sumlink_exit::target::Target;
use sumlink_proxy::{DatagramOpener, OpenError, Opener};
use tokio::time::{Instant, sleep_until, timeout};

use super::stream::{IDLE, StreamExchange};
use super::tls::plain_connect;
use super::{Boxed, CLASS, Exchange, ExchangeError, Response, random_id};
use crate::wire::{Form, Message, Query, flag, is_without_edns};

/// Bounds of the time after which a question is sent again. The pause doubles each time.
const FIRST_RESEND: Duration = Duration::from_millis(250);
const LAST_RESEND: Duration = Duration::from_secs(2);

/// The first pause, in smoothed round-trip times.
const RESEND_TIMES: u32 = 3;

/// Time without an answer after which TCP is tried as well: networks exist that drop datagrams to
/// port 53.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Events taken at once.
const BATCH: usize = 16;

/// Asks in datagrams. Each question has a separate source: behind the bond, that is a separate UDP
/// port, which an attacker has to guess besides the ID (RFC 5452, section 9.2).
pub(super) struct DatagramExchange<O> {
    target: Target,
    opener: O,
    stream: StreamExchange,
    /// Smoothed round-trip time in microseconds, 0 if unknown.
    srtt: AtomicU64,
}

/// How the exchange of datagrams ended, if it did.
enum Outcome {
    Answer(Bytes),
    /// The answer is too long for a datagram.
    Truncated,
    /// The bond does not carry datagrams.
    Unsupported,
}

impl<O: Opener + DatagramOpener> DatagramExchange<O> {
    pub(super) fn new(target: Target, opener: O) -> Self {
        let connect = plain_connect(target.clone(), opener.clone());
        Self {
            target,
            opener,
            stream: StreamExchange::new(connect, IDLE, false),
            srtt: AtomicU64::new(0),
        }
    }

    async fn ask(&self, query: &Query) -> Result<Response, ExchangeError> {
        let mut datagrams = std::pin::pin!(self.ask_in_datagrams(query));
        let outcome = match timeout(PATIENCE, &mut datagrams).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let mut stream = std::pin::pin!(self.stream.ask(query));
                tokio::select! {
                    outcome = &mut datagrams => outcome,
                    response = &mut stream => match response {
                        Ok(response) => return Ok(response),
                        Err(_) => datagrams.await,
                    },
                }
            }
        };
        match outcome {
            Ok(Outcome::Answer(message)) => Ok(Response { message, age: 0 }),
            Ok(Outcome::Truncated | Outcome::Unsupported) | Err(ExchangeError::Datagrams(_)) => {
                self.stream.ask(query).await
            }
            Err(error) => Err(error),
        }
    }

    async fn ask_in_datagrams(&self, query: &Query) -> Result<Outcome, ExchangeError> {
        let mut socket = match self.opener.bind(CLASS).await {
            Ok(socket) => socket,
            // Older servers carry streams only.
            Err(OpenError::Unreachable) => return Ok(Outcome::Unsupported),
            Err(error) => return Err(error.into()),
        };
        let mut form = Form::Edns;
        let (mut id, mut pause) = (random_id()?, self.first_pause());
        let mut events = Vec::with_capacity(BATCH);
        let mut is_resent = false;
        'send: loop {
            let sent = Instant::now();
            let message = Bytes::from(query.encode(id, form));
            match socket.send(&self.target, message, CLASS) {
                Ok(()) => {}
                Err(SendError::Unsupported) => return Ok(Outcome::Unsupported),
                Err(error) => return Err(ExchangeError::Datagrams(error.to_string())),
            }
            loop {
                events.clear();
                tokio::select! {
                    count = socket.receive(&mut events, BATCH) => {
                        if count == 0 {
                            return Err(ExchangeError::Closed);
                        }
                    }
                    () = sleep_until(sent + pause) => {
                        pause = (2 * pause).min(LAST_RESEND);
                        is_resent = true;
                        continue 'send;
                    }
                }
                for (remote, event) in events.drain(..) {
                    if remote != self.target {
                        continue;
                    }
                    let answer = match event {
                        Received::Datagram(answer) => answer,
                        Received::Failed(failure) => {
                            return Err(ExchangeError::Datagrams(failure.to_string()));
                        }
                    };
                    if form == Form::Edns && is_without_edns(id, &answer) {
                        (form, id) = (Form::Plain, random_id()?);
                        continue 'send;
                    }
                    if !query.is_answered_by(id, &answer) {
                        continue;
                    }
                    if !is_resent {
                        self.learn(sent.elapsed());
                    }
                    let is_truncated = Message::read(&answer)
                        .is_ok_and(|message| message.flags & flag::TRUNCATED != 0);
                    return Ok(if is_truncated {
                        Outcome::Truncated
                    } else {
                        Outcome::Answer(answer)
                    });
                }
            }
        }
    }

    fn first_pause(&self) -> Duration {
        match self.srtt.load(Ordering::Relaxed) {
            0 => LAST_RESEND / 2,
            srtt => {
                let pause = RESEND_TIMES * Duration::from_micros(srtt);
                pause.clamp(FIRST_RESEND, LAST_RESEND)
            }
        }
    }

    /// Smooths as TCP does (RFC 6298, section 2).
    fn learn(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_micros())
            .unwrap_or(u64::MAX / 8)
            .max(1);
        let srtt = match self.srtt.load(Ordering::Relaxed) {
            0 => sample,
            srtt => srtt - srtt / 8 + sample / 8,
        };
        self.srtt.store(srtt.max(1), Ordering::Relaxed);
    }
}

impl<O: Opener + DatagramOpener> Exchange for DatagramExchange<O> {
    fn exchange<'a>(&'a self, query: &'a Query) -> Boxed<'a, Result<Response, ExchangeError>> {
        Box::pin(self.ask(query))
    }
}
