//! `[workload]`: the traffic over the links.

mod lan;

use std::time::Duration;

use sumlink_engine::Class;

use sumlink_settings::session::parse_class;
use sumlink_settings::units::{parse_duration, parse_rate, parse_size};

use super::datagrams::{self, Datagrams};
use super::document::Document;
use super::section::{Section, keep};

/// The traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Bulk traffic.
    Bulk,
    /// Objects in sequence, each on a separate connection.
    Files {
        /// Their sizes in bytes, in this order.
        sizes: Vec<u64>,
        /// Number of repetitions of the whole list.
        count: u64,
        /// Time from the end of one object to the request of the next.
        gap: Duration,
        /// Minimum rate in bits per second: no object is requested before the preceding ones could
        /// have arrived at this rate, gaps included. All faster systems therefore request each
        /// object at the same time.
        pace: Option<u64>,
        /// Time limit for an object; the results count objects that took longer.
        limit: Option<Duration>,
        /// Whether each object gets a fresh laboratory, in which the system has carried no traffic
        /// before.
        cold: bool,
    },
    /// A small question and its answer, repeated on one connection.
    Requests {
        /// Bytes of a question.
        request: u64,
        /// Bytes of its answer.
        answer: u64,
        /// Time from an answer to the next question.
        gap: Duration,
        /// Whether an additional connection carries bulk traffic in the run's direction.
        load: bool,
    },
    /// Messages of one size at a constant rate.
    Cbr {
        /// Bits per second.
        rate: u64,
        /// Bytes of each message.
        message: u64,
    },
    /// A bulk download with curl.
    Curl,
    /// Short connections, each with a small question and its answer, as fast as possible.
    Connections {
        /// Connections at a time.
        parallel: u64,
        /// Bytes of an answer.
        answer: u64,
    },
    /// Connections that stay open until the end.
    Open {
        /// Their number.
        count: u64,
    },
    /// Questions to a name server, one after another.
    Dns {
        /// Whether the same few names are asked for again and again, which a forwarder caches;
        /// otherwise every name is new.
        cached: bool,
        /// Time from an answer to the next question.
        gap: Duration,
    },
    /// Datagrams at a fixed schedule.
    Datagrams(Datagrams),
    /// A bulk transfer over HTTP/3.
    Http3 {
        /// Whether small datagrams make round trips at the same time.
        probe: bool,
    },
    /// Live video that ffmpeg generates, encodes and pushes from the client to the server.
    Video(Video),
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
    /// Name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Files { .. } => "files",
            Self::Requests { .. } => "requests",
            Self::Cbr { .. } => "cbr",
            Self::Curl => "curl",
            Self::Connections { .. } => "connections",
            Self::Open { .. } => "open",
            Self::Dns { .. } => "dns",
            Self::Datagrams(datagrams) => datagrams.kind.name(),
            Self::Http3 { .. } => "http3",
            Self::Video(_) => "video",
            Self::Command { .. } => "command",
        }
    }

    /// Whether its measured traffic consists of UDP datagrams, which not every system carries.
    pub fn needs_udp(&self) -> bool {
        match self {
            Self::Datagrams(_) | Self::Http3 { .. } | Self::Dns { .. } => true,
            Self::Video(video) => video.protocol == VideoProtocol::Srt,
            _ => false,
        }
    }

    /// Whether it is only between the hosts behind a gateway.
    pub fn needs_lan(&self) -> bool {
        matches!(
            self,
            Self::Curl | Self::Connections { .. } | Self::Open { .. } | Self::Dns { .. }
        )
    }

    /// Whether bulk traffic over TCP accompanies the measured traffic.
    pub fn has_load(&self) -> bool {
        match self {
            Self::Requests { load, .. } => *load,
            Self::Datagrams(datagrams) => datagrams.load,
            _ => false,
        }
    }
}

/// The classes of the workload's connections, as configured for sumlink; it detects the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Class of the measured connections.
    pub measured: Option<Class>,
    /// Class of the bulk traffic that accompanies the measured connections.
    pub load: Option<Class>,
}

/// Live video: encoding, transport and playback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// The transport.
    pub protocol: VideoProtocol,
    /// Bits per second of the encoder, constant over time.
    pub rate: u64,
    /// Pixels of a picture: width and height.
    pub size: (u32, u32),
    /// Pictures per second.
    pub frames: u32,
    /// Time from the capture of a picture to its display.
    pub buffer: Duration,
}

/// A protocol for pushing video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoProtocol {
    /// An MPEG transport stream on a TCP connection.
    MpegTs,
    /// RTMP, which is FLV on a TCP connection after a handshake.
    Rtmp,
    /// An MPEG transport stream over SRT, which repeats lost datagrams within its latency.
    Srt,
}

impl VideoProtocol {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::MpegTs => "mpegts",
            Self::Rtmp => "rtmp",
            Self::Srt => "srt",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        [Self::MpegTs, Self::Rtmp, Self::Srt]
            .into_iter()
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| format!("'{text}' is none of mpegts, rtmp, srt"))
    }
}

/// Range of message sizes: a header with a stamp, and the size of a buffer.
const MESSAGE: std::ops::RangeInclusive<u64> = 16..=1_000_000;

/// Reads the block `[workload]`.
pub(crate) fn read(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
) -> Option<(Workload, Classes)> {
    let kind = section.text(document, "kind");
    if !section.has("kind") {
        section.missing(
            document,
            "kind",
            "kind = \"bulk\" (or files, requests, cbr, curl, connections, open, dns, datagrams, call, \
             game, http3, video, command)",
        );
    }
    let kind = kind?;
    let workload = match kind.value.as_str() {
        "bulk" => Some(Workload::Bulk),
        "files" => read_files(document, &mut section),
        "requests" => read_requests(document, &mut section),
        "cbr" => read_cbr(document, &mut section),
        "curl" => Some(Workload::Curl),
        "connections" => Some(lan::read_connections(document, &mut section)),
        "open" => lan::read_open(document, &mut section),
        "dns" => Some(lan::read_dns(document, &mut section)),
        "datagrams" => datagrams::read_constant(document, &mut section).map(Workload::Datagrams),
        "call" => datagrams::read_call(document, &mut section).map(Workload::Datagrams),
        "game" => datagrams::read_game(document, &mut section).map(Workload::Datagrams),
        "http3" => Some(Workload::Http3 {
            probe: section.boolean(document, "probe").unwrap_or(false),
        }),
        "video" => read_video(document, &mut section),
        "command" => read_command(document, &mut section),
        other => {
            let reason = format!(
                "kind: '{other}' is none of bulk, files, requests, cbr, curl, connections, open, dns, \
                 datagrams, call, game, http3, video, command"
            );
            document.problem(&kind.span, reason);
            return None;
        }
    };
    let class = section.parsed(document, "class", parse_class);
    let load_class = section.parsed(document, "load_class", parse_class);
    let has_load = workload.as_ref().is_some_and(Workload::has_load);
    if let Some(at) = load_class
        .as_ref()
        .filter(|_| !has_load && workload.is_some())
    {
        let reason = "load_class: the workload has no load: this key needs `load = true`";
        document.problem(&at.span, reason);
    }
    section.finish(document);
    let classes = Classes {
        measured: class.map(|at| at.value),
        load: load_class.map(|at| at.value),
    };
    workload.map(|workload| (workload, classes))
}

fn read_files(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    if !section.has("sizes") {
        section.missing(document, "sizes", "sizes = [\"10kB\", \"1MB\"]");
    }
    let listed = section.texts(document, "sizes")?;
    let count = section.integer(document, "count", 1..1_000_001);
    let gap = section.parsed(document, "gap", parse_duration);
    let pace = section.parsed(document, "pace", parse_rate);
    if let Some(at) = pace.as_ref().filter(|at| at.value == 0) {
        document.problem(&at.span, "pace: must be above 0, such as \"100mbit\"");
    }
    let limit = section.parsed(document, "limit", parse_duration);
    let cold = section.boolean(document, "cold").unwrap_or(false);
    let mut sizes = Vec::new();
    for at in &listed {
        let size = keep(document, &at.span, "sizes", parse_size(&at.value))?;
        if size == 0 {
            document.problem(&at.span, "sizes: an object must have at least 1 byte");
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
        pace: pace.map(|at| at.value),
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
            "rate: less than one message in eight seconds gives no usable figures",
        );
    }
    Some(Workload::Cbr {
        rate: rate.value,
        message: message.value,
    })
}

/// Sizes that x264 accepts in 4:2:0: an even number of pixels in each dimension.
const PIXELS: std::ops::RangeInclusive<u32> = 64..=3840;

fn read_video(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Workload> {
    let rate = section.parsed(document, "rate", parse_rate);
    if !section.has("rate") {
        section.missing(document, "rate", "rate = \"5mbit\"");
    }
    let protocol = section.parsed(document, "protocol", VideoProtocol::parse);
    let size = section.parsed(document, "size", parse_pixels);
    let frames = section.integer(document, "frames", 1..121);
    let buffer = section.parsed(document, "buffer", parse_duration);
    let rate = rate?;
    if !(100_000..=200_000_000).contains(&rate.value) {
        document.problem(&rate.span, "rate: must be from 100kbit to 200mbit");
    }
    Some(Workload::Video(Video {
        protocol: protocol.map_or(VideoProtocol::MpegTs, |at| at.value),
        rate: rate.value,
        size: size.map_or((1280, 720), |at| at.value),
        frames: frames.map_or(30, |at| at.value as u32),
        buffer: buffer.map_or(Duration::from_secs(1), |at| at.value),
    }))
}

fn parse_pixels(text: &str) -> Result<(u32, u32), String> {
    let sides = text.split_once('x');
    sides
        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)))
        .filter(|(width, height)| {
            [width, height]
                .iter()
                .all(|side| PIXELS.contains(side) && **side % 2 == 0)
        })
        .ok_or_else(|| {
            format!("'{text}' is not a size such as 1280x720, with even numbers from 64 to 3840")
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
            document.problem(&at.span, "a command must have at least one word");
        }
    }
    Some(Workload::Command {
        server: server?.value,
        client: client?.value,
        port: u16::try_from(port?.value).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_pictures_are_even() {
        assert_eq!(parse_pixels("1280x720"), Ok((1280, 720)));
        for wrong in ["1281x720", "1280", "x", "0x0", "99999x2"] {
            assert!(parse_pixels(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn protocols_are_read_by_name() {
        assert_eq!(VideoProtocol::parse("srt"), Ok(VideoProtocol::Srt));
        let error = VideoProtocol::parse("hls").unwrap_err();
        assert!(error.contains("none of mpegts, rtmp, srt"), "{error}");
    }
}
