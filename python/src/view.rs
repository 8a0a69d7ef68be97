//! A scheduler's view, copied out of the engine: Python objects may outlive the engine's borrows.

use pyo3::prelude::*;
use sumlink_engine::LossState;
use sumlink_engine::scheduler as engine;

/// A path with its latest measurements.
#[pyclass(frozen, get_all, module = "sumlink_sim._native")]
pub(crate) struct Path {
    id: u32,
    is_backup: bool,
    srtt: f64,
    rttvar: f64,
    min_rtt: f64,
    mss: u64,
    cwnd: u64,
    ssthresh: Option<u64>,
    loss: &'static str,
    in_flight: u64,
    unsent: u64,
    local_queue: u64,
    full: bool,
    delivery_rate: u64,
    rate: f64,
    delay: f64,
    segments: u64,
    retransmitted: u64,
    is_late: bool,
    flights: Vec<Py<Flight>>,
}

/// Bytes of a stream in flight on a path.
#[pyclass(frozen, get_all, module = "sumlink_sim._native")]
pub(crate) struct Flight {
    stream: u64,
    start: u64,
    end: u64,
    sent_at: f64,
    expected_at: f64,
    repeated: bool,
}

/// A stream with unsent bytes.
#[pyclass(frozen, get_all, module = "sumlink_sim._native")]
pub(crate) struct Stream {
    id: u64,
    traffic_class: &'static str,
    unsent: Vec<(u64, u64)>,
    sendable_end: u64,
    acknowledged: u64,
    written: u64,
    highest_sent: u64,
    is_finished: bool,
}

/// The state at one moment.
#[pyclass(frozen, get_all, module = "sumlink_sim._native")]
pub(crate) struct View {
    now: f64,
    paths: Vec<Py<Path>>,
    streams: Vec<Py<Stream>>,
    repeat_budget: u64,
    race_budget: u64,
    memory: u64,
}

#[pymethods]
impl View {
    /// The first unsent bytes within credit, for schedulers that choose only the path.
    fn lowest_unsent(&self, budget: u64) -> Option<(&'static str, u64, u64, u64)> {
        self.streams.iter().find_map(|stream| {
            let stream = stream.get();
            let &(start, end) = stream.unsent.first()?;
            let end = end
                .min(stream.sendable_end)
                .min(start.saturating_add(budget));
            (start < end).then_some(("send", stream.id, start, end))
        })
    }
}

impl Path {
    pub(crate) fn of(
        py: Python<'_>,
        path: &sumlink_engine::Path,
        view: &engine::View<'_>,
        flights: bool,
    ) -> PyResult<Py<Self>> {
        let sample = path.sample();
        let of_stream = |flight: &sumlink_engine::Flight| {
            Py::new(
                py,
                Flight {
                    stream: flight.stream,
                    start: flight.range.start,
                    end: flight.range.end,
                    sent_at: flight.sent_at.as_secs_f64(),
                    expected_at: flight.expected_at.as_secs_f64(),
                    repeated: flight.repeated,
                },
            )
        };
        let flights = match flights {
            true => path.flights().map(of_stream).collect::<PyResult<_>>()?,
            false => Vec::new(),
        };
        Py::new(
            py,
            Self {
                id: path.id().0,
                is_backup: path.is_backup(),
                srtt: path.srtt().as_secs_f64(),
                rttvar: sample.rttvar.as_secs_f64(),
                min_rtt: sample.min_rtt.as_secs_f64(),
                mss: path.mss(),
                cwnd: path.cwnd(),
                ssthresh: sample.ssthresh,
                loss: match sample.loss {
                    LossState::Open => "open",
                    LossState::Recovery => "recovery",
                    LossState::Timeout => "timeout",
                },
                in_flight: sample.in_flight,
                unsent: sample.unsent,
                local_queue: sample.local_queue,
                full: sample.full,
                delivery_rate: sample.delivery_rate,
                rate: path.rate(),
                delay: path.delay().as_secs_f64(),
                segments: sample.segments,
                retransmitted: sample.retransmitted,
                is_late: path.is_late(view.now),
                flights,
            },
        )
    }
}

impl View {
    pub(crate) fn of(py: Python<'_>, view: &engine::View<'_>, flights: bool) -> PyResult<Py<Self>> {
        let paths = view.active_paths();
        let streams = view.ready_streams().map(|stream| {
            let unsent = stream.unsent().iter();
            Py::new(
                py,
                Stream {
                    id: stream.id(),
                    traffic_class: stream.class().name(),
                    unsent: unsent.map(|range| (range.start, range.end)).collect(),
                    sendable_end: view.sendable_end(stream),
                    acknowledged: stream.acknowledged(),
                    written: stream.written(),
                    highest_sent: stream.highest_sent(),
                    is_finished: stream.is_finished(),
                },
            )
        });
        let whole = Self {
            now: view.now.as_secs_f64(),
            streams: streams.collect::<PyResult<_>>()?,
            paths: paths
                .map(|path| Path::of(py, path, view, flights))
                .collect::<PyResult<_>>()?,
            repeat_budget: view.repeat_budget(),
            race_budget: view.race_budget(),
            memory: view.memory(),
        };
        Py::new(py, whole)
    }
}
