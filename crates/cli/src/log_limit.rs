//! Limits the log lines that a peer, a stranger or a local program can cause.
//!
//! Every log line passes through this layer. The limit holds for each kind of line (the place in
//! the program that writes it) and each client; lines without a client, such as those about
//! strangers, share one limit.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sumlink_engine::PeerText;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber, callsite};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::spool;

/// Sustained lines per second of one kind and client; see [`BURST`].
const PER_SECOND: u32 = 1;
/// The same for the levels debug and trace, which are written only on request.
const DEBUG_PER_SECOND: u32 = 100;
/// Seconds of the sustained rate that may be written at once after a pause.
const BURST: u32 = 30;

/// Interval between reports of suppressed lines.
const REPORT: Duration = Duration::from_secs(10);

/// Target of these reports, which are not limited themselves.
const TARGET: &str = "sumlink::suppressed";

/// Field of a session's span that names the client.
const CLIENT: &str = "key";

/// Admits a limited number of lines of each kind and counts the others. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLimit {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals the first suppressed line.
    suppressed: Condvar,
    /// All lines that were suppressed so far.
    all: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    kinds: HashMap<(callsite::Identifier, Client), Kind>,
    has_thread: bool,
}

/// The client that causes a line, as a part of its key; `None` if no session is known.
type Client = Option<Arc<str>>;

/// The lines of one kind and client.
#[derive(Debug)]
struct Kind {
    metadata: &'static Metadata<'static>,
    bucket: Bucket,
    suppressed: u64,
    /// Message of the first suppressed line.
    example: PeerText,
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    per_second: u32,
    /// Lines that may be written at once.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_second: u32, now: Instant) -> Self {
        Self {
            per_second,
            tokens: f64::from(per_second * BURST),
            at: now,
        }
    }

    /// Takes a token for one more line, if there is one.
    fn takes(&mut self, now: Instant) -> bool {
        self.fill(now);
        let takes = self.tokens >= 1.0;
        self.tokens -= if takes { 1.0 } else { 0.0 };
        takes
    }

    /// Whether the bucket holds no trace of earlier lines.
    fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= f64::from(self.per_second * BURST)
    }

    fn fill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        let most = f64::from(self.per_second * BURST);
        self.tokens = (self.tokens + seconds * f64::from(self.per_second)).min(most);
        self.at = now;
    }
}

impl LogLimit {
    /// Reports the lines suppressed since the last report.
    pub(crate) fn report(&self) {
        let now = Instant::now();
        let mut reports = Vec::new();
        let mut state = self.shared.lock();
        for ((_, client), kind) in &mut state.kinds {
            if kind.suppressed > 0 {
                let suppressed = std::mem::take(&mut kind.suppressed);
                let example = std::mem::take(&mut kind.example);
                reports.push((*kind.metadata.level(), client.clone(), suppressed, example));
            }
        }
        state.kinds.retain(|_, kind| !kind.bucket.is_full(now));
        // The reports pass through this limit like every other line.
        drop(state);
        for (level, client, suppressed, example) in reports {
            let key = client.as_deref();
            // The level of the suppressed lines, so that a filter that shows the lines shows the
            // report.
            match level {
                Level::ERROR => {
                    tracing::error!(target: TARGET, key, suppressed, %example, "{WORDS}")
                }
                Level::WARN => tracing::warn!(target: TARGET, key, suppressed, %example, "{WORDS}"),
                Level::INFO => tracing::info!(target: TARGET, key, suppressed, %example, "{WORDS}"),
                _ => tracing::debug!(target: TARGET, key, suppressed, %example, "{WORDS}"),
            }
        }
    }

    /// Lines suppressed since the program began.
    pub(crate) fn suppressed(&self) -> u64 {
        self.shared.all.load(Ordering::Relaxed)
    }

    fn admits(&self, event: &Event<'_>, client: Client, now: Instant) -> bool {
        let metadata = event.metadata();
        let mut state = self.shared.lock();
        let kind = state.kinds.entry((metadata.callsite(), client));
        let kind = kind.or_insert_with(|| Kind {
            metadata,
            bucket: Bucket::new(per_second(metadata.level()), now),
            suppressed: 0,
            example: PeerText::default(),
        });
        if kind.bucket.takes(now) {
            return true;
        }
        if kind.suppressed == 0 {
            let mut message = Message::default();
            event.record(&mut message);
            kind.example = message.0;
        }
        kind.suppressed += 1;
        self.shared.all.fetch_add(1, Ordering::Relaxed);
        let is_alone = std::mem::replace(&mut state.has_thread, true);
        drop(state);
        if !is_alone {
            self.start();
        }
        self.shared.suppressed.notify_one();
        false
    }

    /// Starts the reporting thread when there is something to report.
    fn start(&self) {
        let limit = self.clone();
        spool::spawn("log limit", move || {
            loop {
                limit.wait();
                std::thread::sleep(REPORT);
                limit.report();
            }
        });
    }

    /// Waits until a line is suppressed.
    fn wait(&self) {
        let state = self.shared.lock();
        let is_calm = |state: &mut State| state.kinds.values().all(|kind| kind.suppressed == 0);
        let _woken = self.shared.suppressed.wait_while(state, is_calm);
    }
}

const WORDS: &str = "lines suppressed: too many of one kind";

fn per_second(level: &Level) -> u32 {
    match *level <= Level::INFO {
        true => PER_SECOND,
        false => DEBUG_PER_SECOND,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLimit {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut key = Key::default();
        attributes.record(&mut key);
        if let Some(span) = ctx.span(id)
            && key.0.is_some()
        {
            span.extensions_mut().insert(key);
        }
    }

    fn event_enabled(&self, event: &Event<'_>, ctx: Context<'_, S>) -> bool {
        if event.metadata().target() == TARGET {
            return true;
        }
        let mut spans = ctx.event_scope(event).into_iter().flatten();
        let client = spans.find_map(|span| span.extensions().get::<Key>()?.0.clone());
        self.admits(event, client, Instant::now())
    }
}

/// The client named by a span.
#[derive(Debug, Default)]
struct Key(Client);

impl Visit for Key {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == CLIENT {
            self.0 = Some(format!("{value:?}").into());
        }
    }
}

/// The message of an event.
#[derive(Debug, Default)]
struct Message(PeerText);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = PeerText::from(format!("{value:?}").as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry;

    use super::*;

    #[test]
    fn a_bucket_admits_a_burst_and_then_one_line_per_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1, start);
        let mut count = |at: Duration| (0..100).filter(|_| bucket.takes(start + at)).count();
        assert_eq!(count(Duration::ZERO), BURST as usize);
        assert_eq!(count(Duration::from_millis(900)), 0);
        assert_eq!(count(Duration::from_secs(5)), 5);
        assert_eq!(count(Duration::from_secs(3600)), BURST as usize);
        assert!(!bucket.is_full(start + Duration::from_secs(3610)));
        assert!(bucket.is_full(start + Duration::from_secs(3700)));
    }

    /// Counts written lines, and lines that reports call suppressed.
    #[derive(Clone, Default)]
    struct Counts(Arc<(AtomicUsize, AtomicUsize, AtomicUsize)>);

    impl<S: Subscriber> Layer<S> for Counts {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let (lines, reports, suppressed) = &*self.0;
            struct LeftOut<'a>(&'a AtomicUsize);
            impl Visit for LeftOut<'_> {
                fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
                fn record_u64(&mut self, _: &Field, value: u64) {
                    self.0.fetch_add(value as usize, Ordering::Relaxed);
                }
            }
            if event.metadata().target() == TARGET {
                reports.fetch_add(1, Ordering::Relaxed);
                event.record(&mut LeftOut(suppressed));
            } else {
                lines.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn each_kind_and_client_has_a_limit_and_every_line_is_counted() {
        let (limit, counts) = (LogLimit::default(), Counts::default());
        // Keeps the thread from reporting while this test counts.
        limit.shared.lock().has_thread = true;
        let flood = |name: &'static str| {
            for _ in 0..1000 {
                tracing::info!(name, "one kind");
            }
            for _ in 0..1000 {
                tracing::warn!(name, "another\nkind");
            }
        };
        with_default(registry().with(limit.clone()).with(counts.clone()), || {
            flood("a stranger");
            tracing::error_span!("session", key = "first", id = 1).in_scope(|| flood("first"));
            // Another session of the same client shares the limit.
            tracing::error_span!("session", key = "first", id = 2).in_scope(|| flood("first"));
            tracing::error_span!("session", key = "second").in_scope(|| flood("second"));
            limit.report();
        });
        let (lines, reports, suppressed) = &*counts.0;
        let lines = lines.load(Ordering::Relaxed);
        // Two kinds from three sources: a burst each, plus the lines of a slow machine's seconds.
        assert!((6 * 30..6 * 60).contains(&lines), "{lines}");
        assert_eq!(reports.load(Ordering::Relaxed), 6);
        assert_eq!(lines + suppressed.load(Ordering::Relaxed), 8000);
    }
}
