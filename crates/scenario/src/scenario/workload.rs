//! `[workload]`: what is carried over the links.

use std::time::Duration;

use crate::units::{parse_duration, parse_rate, parse_size};

use super::document::Document;
use super::section::{Section, keep};

/// What is carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// As many bytes as there is room for.
    Bulk,
    /// Objects one after the other, each on a connection of its own.
    Files {
        /// Their sizes in bytes, in this order.
        sizes: Vec<u64>,
        /// How often the whole list is fetched.
        count: u64,
        /// Time from the end of one to the request of the next.
        gap: Duration,
        /// How long an object may take; the results say how many took longer.
        limit: Option<Duration>,
        /// Whether each object has a laboratory of its own, in which the system has carried nothing before.
        cold: bool,
    },
    /// A small question and its answer, over and over on one connection.
    Requests {
        /// Bytes of a question.
        request: u64,
        /// Bytes of its answer.
        answer: u64,
        /// Time from an answer to the next question.
        gap: Duration,
        /// Whether a further connection carries as many bytes as there is room for, in the run's direction.
        load: bool,
    },
    /// Messages of one size at a constant rate.
    Cbr {
        /// Bits per second.
        rate: u64,
        /// Bytes of each message.
        message: u64,
    },
    /// Two programs of the user's choice.
    Command {
        /// The server's command line; it must listen on the port.
        server: String,
        /// The client's command line; `{server}`, `{port}` and `{link}` are replaced.
        client: String,
        /// The TCP port that the server listens on.
        port: u16,
    },
}

impl Workload {
    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Files { .. } => "files",
            Self::Requests { .. } => "requests",
            Self::Cbr { .. } => "cbr",
            Self::Command { .. } => "command",
        }
    }
}

/// The least and the most bytes of a message: a header with a stamp, and what a buffer may hold.
const MESSAGE: std::ops::RangeInclusive<u64> = 16..=1_000_000;

/// Reads the block `[workload]`.
pub(crate) fn read(document: &mut Document<'_>, mut section: Section<'_, '_>) -> Option<Workload> {
    let kind = section.text(document, "kind");
    if !section.has("kind") {
        section.missing(
            document,
            "kind",
            "kind = \"bulk\" (or files, requests, cbr, command)",
        );
    }
    let kind = kind?;
    let workload = match kind.value.as_str() {
        "bulk" => Some(Workload::Bulk),
        "files" => read_files(document, &mut section),
        "requests" => read_requests(document, &mut section),
        "cbr" => read_cbr(document, &mut section),
        "command" => read_command(document, &mut section),
        other => {
            let reason = format!("kind: '{other}' is none of bulk, files, requests, cbr, command");
            document.problem(&kind.span, reason);
            return None;
        }
    };
    section.finish(document);
    workload
}

fn read_files(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    if !section.has("sizes") {
        section.missing(document, "sizes", "sizes = [\"10kB\", \"1MB\"]");
    }
    let listed = section.texts(document, "sizes")?;
    let count = section.integer(document, "count", 1..1_000_001);
    let gap = section.parsed(document, "gap", parse_duration);
    let limit = section.parsed(document, "limit", parse_duration);
    let cold = section.boolean(document, "cold").unwrap_or(false);
    let mut sizes = Vec::new();
    for at in &listed {
        let size = keep(document, &at.span, "sizes", parse_size(&at.value))?;
        if size == 0 {
            document.problem(&at.span, "sizes: an object has at least 1 byte");
        }
        sizes.push(size);
    }
    if sizes.is_empty() {
        section.missing(document, "sizes", "sizes = [\"10kB\", \"1MB\"]");
        return None;
    }
    Some(Workload::Files {
        sizes,
        count: count.map_or(1, |at| at.value),
        gap: gap.map_or(Duration::ZERO, |at| at.value),
        limit: limit.map(|at| at.value),
        cold,
    })
}

fn read_requests(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    let mut size = |key: &'static str, without: u64| {
        let size = section.parsed(document, key, parse_size);
        if let Some(at) = size.as_ref().filter(|at| !MESSAGE.contains(&at.value)) {
            document.problem(&at.span, format!("{key}: from 16B to 1MB"));
        }
        size.map_or(without, |at| at.value)
    };
    let (request, answer) = (size("request", 100), size("answer", 1000));
    let gap = section.parsed(document, "gap", parse_duration);
    let load = section.boolean(document, "load").unwrap_or(false);
    Some(Workload::Requests {
        request,
        answer,
        gap: gap.map_or(Duration::from_millis(50), |at| at.value),
        load,
    })
}

fn read_cbr(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    let rate = section.parsed(document, "rate", parse_rate);
    let message = section.parsed(document, "message", parse_size);
    for (key, example) in [
        ("rate", "rate = \"5mbit\""),
        ("message", "message = \"1200B\""),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let (rate, message) = (rate?, message?);
    if !MESSAGE.contains(&message.value) {
        document.problem(&message.span, "message: from 16B to 1MB");
    }
    if rate.value < message.value {
        document.problem(
            &rate.span,
            "rate: less than one message in eight seconds measures nothing",
        );
    }
    Some(Workload::Cbr {
        rate: rate.value,
        message: message.value,
    })
}

fn read_command(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    let server = section.text(document, "server");
    let client = section.text(document, "client");
    let port = section.integer(document, "port", 1..65_536);
    for (key, example) in [
        ("server", "server = \"iperf3 --server --one-off\""),
        (
            "client",
            "client = \"iperf3 --client {server} --port {port}\"",
        ),
        ("port", "port = 5201"),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    for at in [&server, &client].into_iter().flatten() {
        if at.value.split_whitespace().next().is_none() {
            document.problem(&at.span, "a command has at least one word");
        }
    }
    Some(Workload::Command {
        server: server?.value,
        client: client?.value,
        port: u16::try_from(port?.value).ok()?,
    })
}
