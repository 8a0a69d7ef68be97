//! The sender of a video: an unmodified ffmpeg generates, encodes and pushes it.
//!
//! Its pictures are those of a live camera: picture n is due at the time of the first one plus n
//! times the interval, and carries that time as its presentation time. When the connection does not
//! accept more data, ffmpeg waits and catches up later; the pictures' times stay the same, so
//! waiting for the connection is part of the delay.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::LabError;
use crate::process::Process;
use crate::programs;
use crate::scenario::{Video, VideoProtocol};
use crate::systems::Stage;
use crate::topology::{SERVER_V4, Side, client_v4};
use crate::traffic::{Route, now_ns};

use super::TRANSPORT_STREAM;

/// Presentation times are in ticks of 90 kHz.
pub(super) const TICKS: f64 = 90_000.0;
/// They start this number of seconds before the run, so that none is negative.
pub(super) const LEAD_S: f64 = 10.0;
/// The encoder may deviate from its rate by the output of this fraction of a second.
const ENCODER_BUFFER: u64 = 4;
/// Seconds between key frames.
const KEY_FRAMES: u32 = 2;

/// Time for the caller to find the listener, which starts at the same time.
const SRT_CONNECT: Duration = Duration::from_secs(10);
/// Time in which SRT repeats lost datagrams; both ends have it.
const SRT_LATENCY: Duration = Duration::from_millis(200);

/// The options that both ends of SRT have in common.
pub(super) fn srt_options() -> String {
    /// Seven packets of a transport stream.
    const PAYLOAD: u32 = 1316;
    format!("latency={}&pkt_size={PAYLOAD}", SRT_LATENCY.as_micros())
}

/// Starts it on the client's side.
pub(crate) fn start(
    stage: &Stage<'_>,
    video: &Video,
    entry: SocketAddr,
    route: &Route,
    mptcp: bool,
    epoch_ns: u64,
) -> Result<Process, LabError> {
    if let Some(link) = route.device() {
        pin(stage, link)?;
    }
    let ffmpeg = programs::find("ffmpeg")?;
    let mut command = match mptcp {
        true => {
            let mut command = Command::new(programs::find("mptcpize")?);
            command.arg("run").arg(ffmpeg);
            command
        }
        false => Command::new(ffmpeg),
    };
    command.args(arguments(video, entry, zero_us(epoch_ns)?));
    Process::start(
        stage.lab,
        stage.directory,
        stage.near,
        "workload-client",
        command,
    )
}

/// The wall clock in microseconds at time zero of the pictures' clock.
fn zero_us(epoch_ns: u64) -> Result<i64, LabError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_err(|error| LabError::system("reading the clock", error))?;
    let until = (epoch_ns as i64 - now_ns() as i64) / 1000;
    Ok(now.as_micros() as i64 + until - (LEAD_S * 1e6) as i64)
}

/// ffmpeg cannot bind to an interface, so the only route to the server leads over that link.
fn pin(stage: &Stage<'_>, link: &str) -> Result<(), LabError> {
    let number = stage.links().position(|name| name == link).unwrap_or(0);
    let destination = format!("{SERVER_V4}/32");
    let source = client_v4(number).to_string();
    let mut ip = Command::new(programs::find("ip")?);
    ip.args([
        "route",
        "replace",
        &destination,
        "dev",
        link,
        "src",
        &source,
    ]);
    let output = stage.lab.run(Side::Client, move || ip.output())?;
    let output = output.map_err(|error| LabError::system("running ip", error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::system(
            format!("making the route over {link}"),
            String::from_utf8_lossy(&output.stderr).trim(),
        )),
    }
}

/// The arguments of ffmpeg.
fn arguments(video: &Video, entry: SocketAddr, zero_us: i64) -> Vec<String> {
    let Video {
        rate,
        frames,
        size: (width, height),
        ..
    } = video;
    let pause = TICKS / f64::from(*frames);
    let source = format!(
        "testsrc2=size={width}x{height}:rate={frames},realtime=limit=86400,settb=1/90000,\
         setpts='st(0\\,if(N\\,ld(0)\\,(RTCTIME-{zero_us})*0.09))+N*{pause}'"
    );
    let kilobits = rate / 1000;
    let rate_of = |part: u64| format!("{}k", kilobits / part);
    let (rate, ahead) = (rate_of(1), rate_of(ENCODER_BUFFER));
    let interval = (frames * KEY_FRAMES).to_string();
    let mut arguments: Vec<&str> =
        vec!["-hide_banner", "-nostdin", "-loglevel", "error", "-copyts"];
    arguments.extend(["-f", "lavfi", "-i", &source, "-an", "-pix_fmt", "yuv420p"]);
    arguments.extend([
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-tune",
        "zerolatency",
    ]);
    // At a constant rate with filler data, as in broadcasters' encoders.
    arguments.extend([
        "-b:v", &rate, "-minrate", &rate, "-maxrate", &rate, "-bufsize", &ahead,
    ]);
    arguments.extend(["-x264-params", "nal-hrd=cbr", "-g", &interval]);
    arguments.extend(["-enc_time_base", "1:90000", "-fps_mode", "passthrough"]);
    arguments.extend(["-flush_packets", "1"]);
    let target = match video.protocol {
        VideoProtocol::MpegTs => {
            arguments.extend(TRANSPORT_STREAM);
            format!("tcp://{entry}?tcp_nodelay=1")
        }
        VideoProtocol::Srt => {
            arguments.extend(TRANSPORT_STREAM);
            let connect = SRT_CONNECT.as_millis();
            format!(
                "srt://{entry}?mode=caller&connect_timeout={connect}&{}",
                srt_options()
            )
        }
        VideoProtocol::Rtmp => {
            arguments.extend(["-flvflags", "no_duration_filesize", "-f", "flv"]);
            format!("rtmp://{entry}/live/video")
        }
    };
    arguments.push(&target);
    arguments.into_iter().map(str::to_owned).collect()
}
