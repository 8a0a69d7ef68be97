//! A client and a server session joined by model carriers: reliable and ordered, each with a rate
//! and a delay.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::BufMut;

use crate::{Class, Config, Event, Instant, PathId, PathSample, Received, Role, Session, StreamId};

/// Bytes in a segment.
const MSS: usize = 1448;

/// One end of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One direction of a carrier.
#[derive(Debug, Default)]
struct Lane {
    /// Pieces in flight and their arrival times.
    pieces: VecDeque<(Instant, Vec<u8>)>,
    /// Time at which the rate server is free again.
    busy_until: Instant,
    /// Pieces that have arrived while their reader was busy.
    unread: VecDeque<Vec<u8>>,
    /// Bytes that have arrived, and the time at which the sender receives the acknowledgment.
    acknowledgments: VecDeque<(Instant, u64)>,
    /// Bytes acknowledged; in slow start they open the window by the same amount.
    acknowledged: u64,
}

/// A carrier.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// Bytes per second in each direction.
    pub(crate) rate: f64,
    /// One-way delay.
    pub(crate) delay: Duration,
    /// While set, nothing arrives, but nothing is lost either: TCP would retransmit.
    pub(crate) blackhole: bool,
    /// The rate that TCP still assumes, in bytes per second; none while it knows the true one.
    pub(crate) believed: Option<f64>,
    /// TCP sends almost nothing, to measure the lowest round trip.
    pub(crate) pauses: bool,
    lanes: [Lane; 2],
}

/// The state of a program at one end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) received: Vec<u8>,
    pub(crate) finished: bool,
    pub(crate) reset: Option<u64>,
    /// Bytes to be written, the number already written, and whether the end follows.
    to_write: Vec<u8>,
    written: usize,
    finish: bool,
    /// The program does not read while this is set.
    pub(crate) stalled: bool,
    /// The program has closed its end.
    pub(crate) left: bool,
    /// Arrival time of the last byte.
    pub(crate) done_at: Instant,
    /// Arrival times with the bytes received by then, in order.
    pub(crate) arrivals: Vec<(Instant, usize)>,
}

/// The two sessions and their environment.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Session,
    pub(crate) server: Session,
    pub(crate) carriers: BTreeMap<PathId, Carrier>,
    pub(crate) programs: BTreeMap<(Side, StreamId), Program>,
    pub(crate) events: Vec<(Side, Event)>,
    /// Cuts arriving data into pieces of this size.
    pub(crate) cut: usize,
    /// The carriers report deliveries.
    pub(crate) reports_deliveries: bool,
    /// Time until which each side's processor is busy with other work.
    paused_until: [Instant; 2],
    next_path: u32,
    /// Streams opened so far.
    opened: u64,
    steps: u64,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(Config::new(Role::Client), Config::new(Role::Server))
    }

    pub(crate) fn with(client: Config, server: Config) -> Self {
        let now = Instant::from_secs(1);
        Self {
            now,
            client: Session::new(client, now).expect("the configuration is valid"),
            server: Session::new(server, now).expect("the configuration is valid"),
            carriers: BTreeMap::new(),
            programs: BTreeMap::new(),
            events: Vec::new(),
            cut: usize::MAX,
            reports_deliveries: false,
            paused_until: [now; 2],
            next_path: 0,
            opened: 0,
            steps: 0,
        }
    }

    /// A pair with a path for each (Mbit/s, one-way milliseconds), after the exchange of the first
    /// credit.
    pub(crate) fn connected(links: &[(f64, u64)]) -> Self {
        let mut pair = Self::new();
        pair.connect(links);
        pair
    }

    pub(crate) fn connect(&mut self, links: &[(f64, u64)]) {
        for &(mbit, ms) in links {
            self.add_path(mbit, ms);
        }
        self.run_until(
            |pair| pair.client.send_credit.streams > 0,
            Duration::from_secs(10),
        );
    }

    /// A path beyond the scheduler's limit is not created; the returned number then belongs to no
    /// path.
    pub(crate) fn add_path(&mut self, mbit: f64, ms: u64) -> PathId {
        let id = PathId(self.next_path);
        self.next_path += 1;
        if self
            .client
            .check_path()
            .or(self.server.check_path())
            .is_err()
        {
            return id;
        }
        let rate = mbit * 1e6 / 8.0;
        let delay = Duration::from_millis(ms);
        let lanes = [Lane::default(), Lane::default()];
        self.carriers.insert(
            id,
            Carrier {
                rate,
                delay,
                blackhole: false,
                believed: None,
                pauses: false,
                lanes,
            },
        );
        self.client.path_up(id, self.now);
        self.server.path_up(id, self.now);
        id
    }

    /// Opens the window of every carrier, as if it had carried much data.
    pub(crate) fn end_slow_start(&mut self) {
        let carriers = self.carriers.values_mut();
        let lanes = carriers.flat_map(|carrier| &mut carrier.lanes);
        lanes.for_each(|lane| lane.acknowledged += 1 << 40);
    }

    /// The carrier ends; its data in flight is lost.
    pub(crate) fn kill_path(&mut self, id: PathId) {
        self.carriers.remove(&id);
        self.client.path_down(id, self.now);
        self.server.path_down(id, self.now);
    }

    pub(crate) fn session(&mut self, side: Side) -> &mut Session {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Opens a stream from the client.
    pub(crate) fn open(&mut self) -> StreamId {
        self.try_open().expect("streams are available")
    }

    /// Opens a stream from the client, if the server permits another one.
    pub(crate) fn try_open(&mut self) -> Option<StreamId> {
        // Every third stream is urgent.
        let class = match self.opened % 3 {
            2 => Class::Conversational,
            _ => Class::Background,
        };
        self.opened += 1;
        self.try_open_as(class)
    }

    /// Opens a stream from the client, of the given class or of one that both sides learn.
    pub(crate) fn open_as(&mut self, class: impl Into<Option<Class>>) -> StreamId {
        self.try_open_as(class).expect("streams are available")
    }

    fn try_open_as(&mut self, class: impl Into<Option<Class>>) -> Option<StreamId> {
        let id = self.client.open_stream(b"target", class, self.now).ok()?;
        self.programs.insert((Side::Client, id), Program::default());
        Some(id)
    }

    /// Whether the program has the stream: it opened it, or the session has reported it.
    pub(crate) fn knows(&self, side: Side, id: StreamId) -> bool {
        let reported = |(at, event): &(Side, Event)| {
            *at == side && matches!(event, Event::Opened { stream, .. } if *stream == id)
        };
        side == Side::Client || self.events.iter().any(reported)
    }

    /// The program writes `data`, and the end after it if `finish`.
    pub(crate) fn write(&mut self, side: Side, id: StreamId, data: &[u8], finish: bool) {
        let program = self.programs.entry((side, id)).or_default();
        program.to_write.extend_from_slice(data);
        program.finish |= finish;
        self.pump(side, id);
    }

    pub(crate) fn program(&mut self, side: Side, id: StreamId) -> &mut Program {
        self.programs.entry((side, id)).or_default()
    }

    /// The bytes that the program at one end has written for the other so far.
    pub(crate) fn written(&self, side: Side, id: StreamId) -> &[u8] {
        self.programs
            .get(&(side, id))
            .map_or(&[], |program| &program.to_write[..program.written])
    }

    /// Number of bytes that a program has yet to write.
    pub(crate) fn unwritten(&self, side: Side, id: StreamId) -> usize {
        self.programs
            .get(&(side, id))
            .map_or(0, |program| program.to_write.len() - program.written)
    }

    /// For `time` one side's processor has none for its session and programs; arriving data waits
    /// in its sockets.
    pub(crate) fn pause(&mut self, side: Side, time: Duration) {
        self.paused_until[side as usize] = self.now + time;
    }

    fn is_paused(&self, side: Side) -> bool {
        self.now < self.paused_until[side as usize]
    }

    /// A program resets its stream.
    pub(crate) fn reset(&mut self, side: Side, id: StreamId, code: u64) {
        let now = self.now;
        self.session(side).reset(id, code, now);
        let program = self.program(side, id);
        program.reset = program.reset.or(Some(code));
    }

    /// A program closes its end; the bytes that the session has accepted from it are still
    /// delivered.
    pub(crate) fn abandon(&mut self, side: Side, id: StreamId) {
        let now = self.now;
        self.session(side).abandon(id, now);
        let program = self.program(side, id);
        program.left = true;
        program.to_write.truncate(program.written);
        program.finish = false;
    }

    /// Checks the invariants that hold at every step.
    fn check(&self) {
        for session in [&self.client, &self.server] {
            let stats = session.stats();
            assert!(stats.receive_memory <= session.config.memory, "{stats:?}");
            assert!(stats.send_buffered <= session.config.memory, "{stats:?}");
            assert!(
                session.control.len() < 4096,
                "{} control frames wait",
                session.control.len()
            );
        }
    }

    /// Checks that both sides agree on the credit after all streams have ended, and that all of it
    /// has been returned.
    pub(crate) fn check_settled(&self) {
        for (here, there) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let stats = here.stats();
            assert_eq!((stats.streams_open, here.own_streams), (0, 0), "{self:?}");
            assert_eq!(
                (stats.send_buffered, stats.receive_memory, stats.reorder),
                (0, 0, 0)
            );
            assert_eq!(
                (
                    here.counters.pieces,
                    here.send_credit.pieces,
                    here.send_credit.buffered
                ),
                (0, 0, 0)
            );
            assert_eq!(here.send_credit.used, there.receive_credit.used, "{self:?}");
            assert_eq!(there.receive_credit.released, there.receive_credit.used);
            assert!(here.ready.is_empty() && !here.writers.are_ahead());
        }
    }

    /// A stalled program reads again.
    pub(crate) fn resume(&mut self, side: Side, id: StreamId) {
        self.program(side, id).stalled = false;
        self.read(side, id);
    }

    /// Runs until `done`, for at most `time`; returns whether it was done.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool, time: Duration) -> bool {
        let end = self.now + time;
        loop {
            self.exchange();
            self.check();
            if done(self) {
                return true;
            }
            match self.next_moment() {
                Some(at) if at <= end => {
                    assert!(at >= self.now, "time goes backwards");
                    self.steps = if at == self.now { self.steps + 1 } else { 0 };
                    assert!(self.steps < 1000, "livelock at {:?}: {self:?}", self.now);
                    self.now = at;
                    self.deliver();
                }
                _ => {
                    self.now = end;
                    self.deliver();
                    self.exchange();
                    return done(self);
                }
            }
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(|_| false, time);
    }

    /// Runs until all written bytes and ends have been read, on all streams.
    pub(crate) fn run_to_end(&mut self, time: Duration) {
        let over = self.run_until(
            |pair| {
                pair.programs.values().all(|p| {
                    p.reset.is_some() || (p.finished && p.written == p.to_write.len() && !p.finish)
                })
            },
            time,
        );
        assert!(over, "not done after {time:?}: {self:?}");
    }

    /// Handles events and lets both sides send until nothing moves.
    fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for side in Side::BOTH {
                if self.is_paused(side) {
                    continue;
                }
                while let Some(event) = self.session(side).poll_event() {
                    moved = true;
                    self.on_event(side, event);
                }
                let ids: Vec<PathId> = self.carriers.keys().copied().collect();
                for id in ids {
                    moved |= self.transmit(side, id);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn on_event(&mut self, side: Side, event: Event) {
        match &event {
            Event::Opened { stream, .. } => {
                self.programs.entry((side, *stream)).or_default();
                let now = self.now;
                // The next frame may have reset it.
                let _ = self.session(side).accept(*stream, now);
                self.pump(side, *stream);
            }
            Event::Readable { stream } => self.read(side, *stream),
            Event::Writable { stream } => self.pump(side, *stream),
            Event::Reset { stream, code } => self.program(side, *stream).reset = Some(*code),
            _ => {}
        }
        self.events.push((side, event));
    }

    /// A stalled program at the client reads at most `most` bytes.
    pub(crate) fn read_some(&mut self, id: StreamId, most: usize) {
        let now = self.now;
        let mut data = Vec::new();
        // A stream that has ended has nothing to read.
        let _ = self.client.read(id, most, &mut data, now);
        let program = self.program(Side::Client, id);
        program.received.extend(data);
        program.arrivals.push((now, program.received.len()));
    }

    fn read(&mut self, side: Side, id: StreamId) {
        let program = self.program(side, id);
        if program.stalled || program.left {
            return;
        }
        let now = self.now;
        let mut data = Vec::new();
        loop {
            // Copies at one end and pages at the other, so that the tests cover both.
            let session = self.session(side);
            let read = match side {
                Side::Client => session.read(id, 10_000, &mut data, now),
                Side::Server => {
                    let mut received = Received::default();
                    let outcome = session.read_pages(id, 5, &mut received, now);
                    data.put(&mut received);
                    session.recycle(received);
                    outcome
                }
            };
            let Ok(outcome) = read else {
                break;
            };
            if outcome.finished || outcome.len == 0 {
                let program = self.program(side, id);
                program.finished |= outcome.finished;
                break;
            }
        }
        let program = self.program(side, id);
        program.done_at = now;
        program.received.extend(data);
        program.arrivals.push((now, program.received.len()));
    }

    fn pump(&mut self, side: Side, id: StreamId) {
        let now = self.now;
        let session = match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        let program = self.programs.entry((side, id)).or_default();
        if program.left {
            return;
        }
        // A test may make a server's program write before the stream has reached it; the program
        // then writes once the stream is opened.
        let Ok(taken) = session.write(id, &program.to_write[program.written..], now) else {
            return;
        };
        program.written += taken;
        if program.finish && program.written == program.to_write.len() {
            // It may have been reset.
            let _ = session.finish(id, now);
            program.finish = false;
        }
    }

    /// Gives one piece to a carrier with space for it; returns whether it did.
    fn transmit(&mut self, side: Side, id: PathId) -> bool {
        let now = self.now;
        let Some(carrier) = self.carriers.get(&id) else {
            return false;
        };
        let lane = &carrier.lanes[side as usize];
        let mut sample = carrier.sample(lane, now);
        if self.reports_deliveries {
            sample.delivered = lane.acknowledged / MSS as u64;
        }
        self.session(side).path_stats(id, sample, now);
        if sample.full {
            return false;
        }
        let mut out = Vec::new();
        if self
            .session(side)
            .poll_transmit(id, 16 * 1024, now, &mut out)
            == 0
        {
            return false;
        }
        if let Some(carrier) = self.carriers.get_mut(&id) {
            // It arrives in segments, as from TCP; several at once if they follow each other fast.
            let segment = MSS.max((carrier.rate * 0.002) as usize);
            let lane = &mut carrier.lanes[side as usize];
            for piece in out.chunks(segment) {
                let time = Duration::from_secs_f64(piece.len() as f64 / carrier.rate);
                lane.busy_until = lane.busy_until.max(now) + time;
                lane.pieces
                    .push_back((lane.busy_until + carrier.delay, piece.to_vec()));
            }
        }
        true
    }

    fn next_moment(&self) -> Option<Instant> {
        let mut moments: Vec<Instant> = Vec::new();
        for carrier in self.carriers.values() {
            for side in Side::BOTH {
                let lane = &carrier.lanes[side as usize];
                if !carrier.blackhole {
                    moments.extend(lane.pieces.front().map(|(at, _)| (*at).max(self.now)));
                }
                if !lane.unread.is_empty() {
                    moments.push(self.paused_until[side.peer() as usize].max(self.now));
                }
                moments.extend(lane.acknowledgments.front().map(|(at, _)| *at));
                if lane.busy_until > self.now {
                    moments.push(
                        self.now + (lane.busy_until - self.now).min(Duration::from_millis(1)),
                    );
                }
            }
        }
        for (side, session) in Side::BOTH.into_iter().zip([&self.client, &self.server]) {
            if let Some(at) = session.poll_timeout() {
                // A full carrier may hold up due work, so check again soon.
                let at = if at > self.now {
                    at
                } else {
                    self.now + Duration::from_millis(1)
                };
                moments.push(at.max(self.paused_until[side as usize]));
            }
        }
        moments.into_iter().min()
    }

    fn deliver(&mut self) {
        let now = self.now;
        let ids: Vec<PathId> = self.carriers.keys().copied().collect();
        for id in ids {
            for side in Side::BOTH {
                if let Some(carrier) = self.carriers.get_mut(&id) {
                    let arrives = !carrier.blackhole;
                    let heard = now + carrier.delay;
                    let lane = &mut carrier.lanes[side as usize];
                    lane.acknowledge(now);
                    if arrives {
                        lane.arrive(now, heard);
                    }
                }
                while !self.is_paused(side.peer())
                    && let Some(carrier) = self.carriers.get_mut(&id)
                    && let Some(piece) = carrier.lanes[side as usize].unread.pop_front()
                {
                    let cut = self.cut.min(piece.len());
                    for part in piece.chunks(cut) {
                        let result = self.session(side.peer()).handle_frames(id, part, now);
                        result.expect("well-behaved peers");
                    }
                }
            }
        }
        for side in Side::BOTH {
            if !self.is_paused(side) {
                self.session(side).handle_timeout(now);
            }
        }
    }
}

impl Lane {
    /// The receiver's TCP takes the data that has arrived, and acknowledges it whether or not its
    /// program has time.
    fn arrive(&mut self, now: Instant, heard: Instant) {
        while self.pieces.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, piece)) = self.pieces.pop_front()
        {
            self.acknowledgments.push_back((heard, piece.len() as u64));
            self.unread.push_back(piece);
        }
    }

    /// The sender receives the acknowledgments that have arrived by now.
    fn acknowledge(&mut self, now: Instant) {
        while let Some((at, bytes)) = self.acknowledgments.front()
            && *at <= now
        {
            self.acknowledged += bytes;
            self.acknowledgments.pop_front();
        }
    }
}

impl Carrier {
    fn sample(&self, lane: &Lane, now: Instant) -> PathSample {
        let unsent = (lane.busy_until.saturating_sub(now)).as_secs_f64() * self.rate;
        let srtt = 2 * self.delay + Duration::from_micros(500);
        let full = (2.0 * self.rate * srtt.as_secs_f64()) as u64 + 64 * 1024;
        let cwnd = full.min(14_600 + lane.acknowledged);
        // The time between the acknowledgments of one window shows the rate.
        let measured = lane.acknowledged > 14_600;
        let under_way: u64 = lane
            .pieces
            .iter()
            .map(|(_, piece)| piece.len() as u64)
            .sum();
        let unheard: u64 = lane.acknowledgments.iter().map(|(_, bytes)| bytes).sum();
        PathSample {
            srtt,
            rttvar: srtt / 8,
            mss: MSS as u32,
            cwnd,
            min_rtt: srtt,
            in_flight: (under_way + unheard).saturating_sub(unsent as u64),
            unsent: unsent as u64,
            full: under_way + unheard >= cwnd || unsent as u64 > 32 * 1024,
            pauses: self.pauses,
            pacing_rate: (1.2 * cwnd as f64 / srtt.as_secs_f64()) as u64,
            delivery_rate: if measured {
                self.believed.unwrap_or(self.rate) as u64
            } else {
                0
            },
            ..PathSample::default()
        }
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "at {:?}", self.now)?;
        for (name, session) in [("client", &self.client), ("server", &self.server)] {
            writeln!(
                f,
                "{name}: {:?}, due {:?}",
                session.stats(),
                session.poll_timeout()
            )?;
            for path in session.path_stats_all(self.now) {
                writeln!(f, "  {path:?}")?;
            }
        }
        for (key, program) in &self.programs {
            let (received, left) = (
                program.received.len(),
                program.to_write.len() - program.written,
            );
            writeln!(
                f,
                "{key:?}: received {received}, to write {left}, finished {}",
                program.finished
            )?;
        }
        Ok(())
    }
}
