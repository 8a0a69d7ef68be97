//! The parts of a trace that the chart shows.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Deserialize;
use sumlink_engine::RangeSet;

/// A line of a trace.
#[derive(Debug, Deserialize)]
struct Line {
    t_ns: u64,
    event: String,
    side: String,
    path: Option<u32>,
    link: Option<usize>,
    stream: Option<u64>,
    offset: Option<u64>,
    bytes: Option<u64>,
    waiting: Option<u64>,
}

/// A piece of a stream that a path was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) path: u32,
    pub(super) stream: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Some of its bytes had been sent before.
    pub(super) is_again: bool,
}

/// Bytes delivered to the receiving program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Read {
    pub(super) at: u64,
    pub(super) stream: u64,
    /// Position of the program after the delivery.
    pub(super) end: u64,
}

/// Time in which the receiver held bytes but could not deliver any: from, to, and the path that
/// carried the missing byte.
pub(super) type Wait = (u64, u64, u32);

/// The sender's view of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Working,
    Stalled,
    Gone,
}

/// The events of one direction.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) pieces: Vec<Piece>,
    pub(super) reads: Vec<Read>,
    /// Bytes that the receiver held out of order, over time.
    pub(super) held: Vec<(u64, u64)>,
    pub(super) waits: Vec<Wait>,
    /// The link of each path.
    pub(super) links: BTreeMap<u32, usize>,
    /// Changes of the state of the sender's paths.
    pub(super) states: Vec<(u64, u32, State)>,
    /// Bytes sent more than once.
    pub(super) twice: u64,
    /// Base of each stream in the chart: the bytes of the streams before it.
    pub(super) floors: BTreeMap<u64, u64>,
    /// Times of the first and the last event.
    pub(super) span: (u64, u64),
    /// Bytes of all streams.
    pub(super) height: u64,
    /// `down` if the server sent the data.
    pub(super) direction: &'static str,
}

impl Timeline {
    /// Reads a trace; `None` if no bytes were sent.
    pub(super) fn read(trace: impl BufRead) -> Result<Option<Self>, String> {
        let mut sides = [Self::default(), Self::default()];
        let mut links = BTreeMap::new();
        let mut span: Option<(u64, u64)> = None;
        for (number, line) in trace.lines().enumerate() {
            let place = |what: String| format!("line {}: {what}", number + 1);
            let line = line.map_err(|error| place(error.to_string()))?;
            let line: Line =
                serde_json::from_str(&line).map_err(|error| place(error.to_string()))?;
            let from_server = line.side == "server";
            if let (Some(path), Some(link)) = (line.path, line.link) {
                links.insert(path, link);
            }
            if line.event == "data" || line.event == "read" {
                let (first, _) = span.unwrap_or((line.t_ns, line.t_ns));
                span = Some((first, line.t_ns));
            }
            // These events are recorded by the receiver of the other side's data.
            let is_receivers = matches!(line.event.as_str(), "read" | "held");
            let sender = from_server != is_receivers;
            sides[usize::from(sender)].take(&line);
        }
        let [mut up, mut down] = sides;
        (up.direction, down.direction) = ("up", "down");
        let sent = |story: &Self| story.pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        let mut story = if sent(&down) >= sent(&up) { down } else { up };
        if story.pieces.is_empty() {
            return Ok(None);
        }
        (story.links, story.span) = (links, span.unwrap_or_default());
        story.stack();
        story.find_repeats();
        story.find_waits();
        Ok(Some(story))
    }

    fn take(&mut self, line: &Line) {
        let at = line.t_ns;
        let state = match line.event.as_str() {
            "up" | "recovered" => Some(State::Working),
            "stalled" => Some(State::Stalled),
            "down" => Some(State::Gone),
            _ => None,
        };
        if let (Some(state), Some(path)) = (state, line.path) {
            self.states.push((at, path, state));
        }
        if let Some(waiting) = line.waiting {
            self.held.push((at, waiting));
        }
        let (Some(stream), Some(offset), Some(bytes)) = (line.stream, line.offset, line.bytes)
        else {
            return;
        };
        match (line.path, line.waiting) {
            (Some(path), _) => self.pieces.push(Piece {
                at,
                path,
                stream,
                offset,
                bytes,
                is_again: false,
            }),
            (None, Some(_)) => self.reads.push(Read {
                at,
                stream,
                end: offset + bytes,
            }),
            (None, None) => {}
        }
    }

    /// For each piece the distance from the reader's position in its stream at that time; 0 for
    /// repetitions of delivered bytes.
    pub(super) fn ahead(&self) -> Vec<u64> {
        let mut reads = self.reads.iter().peekable();
        let mut given: BTreeMap<u64, u64> = BTreeMap::new();
        let pieces = self.pieces.iter().map(|piece| {
            while let Some(read) = reads.next_if(|read| read.at <= piece.at) {
                given.insert(read.stream, read.end);
            }
            let given = given.get(&piece.stream).copied().unwrap_or(0);
            piece.offset.saturating_sub(given)
        });
        pieces.collect()
    }

    /// Stacks the streams on top of each other.
    fn stack(&mut self) {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut order = Vec::new();
        for piece in &self.pieces {
            let end = ends.entry(piece.stream).or_insert_with(|| {
                order.push(piece.stream);
                0
            });
            *end = (*end).max(piece.offset + piece.bytes);
        }
        for stream in order {
            self.floors.insert(stream, self.height);
            self.height += ends[&stream];
        }
    }

    fn find_repeats(&mut self) {
        let mut sent: BTreeMap<u64, RangeSet> = BTreeMap::new();
        for piece in &mut self.pieces {
            let set = sent.entry(piece.stream).or_default();
            let new = set.insert(piece.offset..piece.offset + piece.bytes);
            piece.is_again = new < piece.bytes;
            self.twice += piece.bytes - new;
        }
    }

    /// A receiver that holds bytes waits for the next byte after those that it has delivered.
    fn find_waits(&mut self) {
        // Before the first delivery, the program waits for the first byte.
        let mut last: BTreeMap<u64, Read> = BTreeMap::new();
        for Piece { at, stream, .. } in self.pieces.iter().copied() {
            last.entry(stream).or_insert(Read { at, stream, end: 0 });
        }
        let mut missing: Vec<(u64, u64, u64, u64)> = Vec::new();
        for read in &self.reads {
            if let Some(before) = last.insert(read.stream, *read)
                && let Some(begun) = self.begins_to_hold(before.at, read.at)
            {
                missing.push((begun, read.at, read.stream, before.end));
            }
        }
        // The path that sent the byte last before its arrival is taken as the one that delivered
        // it: the sender knows no better.
        let mut of_stream: BTreeMap<u64, Vec<&Piece>> = BTreeMap::new();
        for piece in &self.pieces {
            of_stream.entry(piece.stream).or_default().push(piece);
        }
        let mut waits = Vec::new();
        let mut from: BTreeMap<u64, usize> = BTreeMap::new();
        for (begun, ended, stream, byte) in missing {
            let Some(pieces) = of_stream.get(&stream) else {
                continue;
            };
            // Pieces before all reader positions are skipped.
            let start = from.entry(stream).or_default();
            while pieces
                .get(*start)
                .is_some_and(|piece| piece.offset + piece.bytes <= byte)
            {
                *start += 1;
            }
            // The bytes may be held for another stream: the receiver reports only the sum.
            let mut sent = pieces[*start..]
                .iter()
                .take_while(|piece| piece.at <= begun);
            if !sent.any(|piece| piece.offset > byte) {
                continue;
            }
            let carried = pieces[*start..]
                .iter()
                .take_while(|piece| piece.at <= ended)
                .filter(|piece| (piece.offset..piece.offset + piece.bytes).contains(&byte));
            if let Some(piece) = carried.last() {
                waits.push((begun, ended, piece.path));
            }
        }
        self.waits = waits;
    }

    /// The time at which the receiver began to hold out-of-order bytes: between two moments, or at
    /// the first one.
    fn begins_to_hold(&self, from: u64, to: u64) -> Option<u64> {
        let later = self.held.partition_point(|(at, _)| *at <= from);
        let (before, later) = self.held.split_at(later);
        if before.last().is_some_and(|(_, waiting)| *waiting > 0) {
            return Some(from);
        }
        let between = later.iter().take_while(|(at, _)| *at < to);
        let mut held = between.filter(|(_, waiting)| *waiting > 0);
        held.next().map(|(at, _)| *at)
    }
}
