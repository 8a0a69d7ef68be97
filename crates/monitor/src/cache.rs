//! The report that all answers share.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::metrics::{self, Format};
use crate::{Report, Watched};

/// Age up to which a report is used again.
const FRESH: Duration = Duration::from_millis(100);

/// A report is used for at least this many times as long as it took to make: reports take no more
/// than a tenth of one processor, however many sessions there are and requests come.
const PART: u32 = 10;

/// Makes reports, each for all requests of the next 0.1 s.
#[derive(Debug)]
pub(crate) struct Cache<W> {
    program: W,
    per_client: bool,
    newest: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    until: Instant,
    shot: Arc<Shot>,
}

/// A report, and its texts once they were requested.
#[derive(Debug)]
pub(crate) struct Shot {
    pub(crate) report: Report,
    per_client: bool,
    json: OnceLock<Bytes>,
    prometheus: OnceLock<Bytes>,
    open_metrics: OnceLock<Bytes>,
}

impl<W: Watched> Cache<W> {
    pub(crate) fn new(program: W, per_client: bool) -> Self {
        Self {
            program,
            per_client,
            newest: Mutex::default(),
        }
    }

    /// Makes the next request wait for a new report.
    pub(crate) async fn renew(&self) {
        *self.newest.lock().await = None;
    }

    /// The watched program.
    pub(crate) fn program(&self) -> &W {
        &self.program
    }

    /// A report that is fresh enough. Requests that come meanwhile wait for the same one.
    pub(crate) async fn get(&self) -> Arc<Shot> {
        let mut newest = self.newest.lock().await;
        let began = Instant::now();
        if let Some(kept) = newest.as_ref().filter(|kept| began < kept.until) {
            return Arc::clone(&kept.shot);
        }
        let mut report = self.program.report().await;
        // Other users of this machine may read the port; the control socket is for its owner only.
        for session in &mut report.sessions {
            session.streams = Vec::new();
            session.flows = Vec::new();
        }
        let shot = Arc::new(Shot {
            report,
            per_client: self.per_client,
            json: OnceLock::new(),
            prometheus: OnceLock::new(),
            open_metrics: OnceLock::new(),
        });
        // The text is the larger part of the work if there are many sessions.
        shot.metrics(Format::Prometheus);
        let made = Instant::now();
        let until = made + FRESH.max(made.duration_since(began) * PART);
        *newest = Some(Kept {
            until,
            shot: Arc::clone(&shot),
        });
        shot
    }
}

impl Shot {
    /// The report as `sumlink status --json` prints it, without the targets of streams and flows.
    pub(crate) fn json(&self) -> Bytes {
        let json = self.json.get_or_init(|| {
            let text = serde_json::to_vec(&self.report);
            text.unwrap_or_default().into()
        });
        json.clone()
    }

    /// The metrics as text.
    pub(crate) fn metrics(&self, format: Format) -> Bytes {
        let kept = match format {
            Format::Prometheus => &self.prometheus,
            Format::OpenMetrics => &self.open_metrics,
        };
        let text = kept.get_or_init(|| metrics::text(&self.report, format, self.per_client).into());
        text.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::broadcast;

    use super::*;

    struct Slow(AtomicU64, Duration);

    impl Watched for Slow {
        async fn report(&self) -> Report {
            tokio::time::sleep(self.1).await;
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            Report {
                note: count.to_string(),
                ..Report::default()
            }
        }

        async fn set_link(
            &self,
            _: String,
            _: Option<sumlink_transport::LinkPolicy>,
        ) -> Result<sumlink_transport::LinkReport, String> {
            Err("no links".to_owned())
        }

        fn events(&self) -> broadcast::Receiver<Arc<str>> {
            broadcast::channel(1).1
        }
    }

    #[tokio::test]
    async fn requests_share_a_report_while_it_is_fresh() {
        let cache = Cache::new(Slow(AtomicU64::new(0), Duration::from_millis(30)), true);
        let (first, second) = tokio::join!(cache.get(), cache.get());
        assert!(Arc::ptr_eq(&first, &second));
        // It took 30 ms, so it is kept for 300 ms.
        let began = Instant::now();
        let mut reports = 0;
        while began.elapsed() < Duration::from_secs(1) {
            reports += u64::from(!Arc::ptr_eq(&cache.get().await, &first));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(reports > 0);
        let made = cache.program().0.load(Ordering::Relaxed);
        assert!((2..=4).contains(&made), "{made} reports in 1 s");
    }
}
