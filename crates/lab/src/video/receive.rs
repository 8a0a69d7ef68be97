//! The receiver of a video: records when the last byte of each picture arrived.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use crate::error::LabError;
use crate::programs;
use crate::results::Frame;
use crate::scenario::{Video, VideoProtocol};
use crate::systems::Stage;
use crate::traffic::{connection, now_ns};

use super::TRANSPORT_STREAM;
use super::mpegts::{Parser, Picture};
use super::send::{LEAD_S, TICKS, srt_options};

/// The command that receives it on the server's side.
pub(crate) fn command(stage: &Stage<'_>, video: &Video, mptcp: bool) -> Result<Command, LabError> {
    let mut command = Command::new(programs::own()?);
    let address = match video.protocol {
        // Answers must come from the address to which the datagrams went.
        VideoProtocol::Srt => stage.target(),
        // On every address: tunnels come from the server's own loopback.
        _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, stage.port)),
    };
    command.args(["traffic", "watch", "--listen", &address.to_string()]);
    match video.protocol {
        VideoProtocol::MpegTs => {}
        VideoProtocol::Rtmp => drop(command.arg("--rtmp")),
        VideoProtocol::Srt => drop(command.arg("--srt")),
    }
    if mptcp {
        command.arg("--mptcp");
    }
    Ok(command)
}

/// Receives one stream, and prints a line for each picture, until the stream ends or the process is
/// killed.
pub(crate) fn watch(
    address: SocketAddr,
    mptcp: bool,
    protocol: VideoProtocol,
) -> Result<(), LabError> {
    let failed = |error: io::Error| LabError::system(format!("receiving on {address}"), error);
    let input = match protocol {
        VideoProtocol::MpegTs => None,
        VideoProtocol::Rtmp => Some((Some("-listen"), format!("rtmp://{address}/live/video"))),
        VideoProtocol::Srt => {
            let options = srt_options();
            Some((None, format!("srt://{address}?mode=listener&{options}")))
        }
    };
    if let Some((listen, input)) = input {
        // ffmpeg accepts the connection and extracts the pictures; the same parser reads its
        // output.
        let mut ffmpeg = Command::new(programs::find("ffmpeg")?);
        ffmpeg.args(["-hide_banner", "-nostdin", "-loglevel", "error", "-copyts"]);
        ffmpeg.args([
            "-fflags",
            "nobuffer",
            "-probesize",
            "32",
            "-analyzeduration",
            "0",
        ]);
        if let Some(listen) = listen {
            ffmpeg.args([listen, "1"]);
        }
        ffmpeg.args(["-i", &input]);
        ffmpeg.args(["-c", "copy", "-flush_packets", "1"]);
        ffmpeg.args(TRANSPORT_STREAM).arg("pipe:1");
        let mut child = ffmpeg.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let seen = child
            .stdout
            .take()
            .map_or(Ok(()), |mut out| print_pictures(&mut out));
        let status = child.wait().map_err(failed)?;
        seen.map_err(failed)?;
        return match status.success() {
            true => Ok(()),
            false => Err(failed(io::Error::other(format!(
                "ffmpeg exited with {status}"
            )))),
        };
    }
    let socket = connection::socket(address, mptcp).map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    socket.listen(1).map_err(failed)?;
    // Open until the end: without a listener the kernel's MPTCP accepts no further subflow.
    let listener = TcpListener::from(socket);
    let (mut stream, _) = listener.accept().map_err(failed)?;
    print_pictures(&mut stream).map_err(failed)
}

/// Prints the pictures of a transport stream.
fn print_pictures(stream: &mut dyn Read) -> io::Result<()> {
    let mut parser = Parser::default();
    let mut buffer = vec![0; 64 << 10];
    let mut out = io::stdout().lock();
    let mut gaps = 0;
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let pictures = parser
            .take(&buffer[..length], now_ns())
            .map_err(io::Error::other)?;
        for Picture {
            pts,
            arrived_ns,
            bytes,
        } in &pictures
        {
            writeln!(out, "picture {pts} {arrived_ns} {bytes}")?;
        }
        if parser.gaps > gaps {
            gaps = parser.gaps;
            writeln!(out, "gaps {gaps}")?;
        }
        out.flush()?;
    }
}

/// The output of the receiver.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pictures: Vec<Picture>,
    /// Number of gaps in the packets, which TCP rules out.
    pub(crate) gaps: u64,
}

/// Parses its lines; other lines are error messages, and the last one may be incomplete.
pub(crate) fn parse(text: &str) -> Seen {
    let mut seen = Seen::default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let mut words = line.split(' ');
        let word = words.next();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (word, &numbers[..]) {
            (Some("picture"), [pts, arrived_ns, bytes]) => seen.pictures.push(Picture {
                pts: *pts,
                arrived_ns: *arrived_ns,
                bytes: *bytes,
            }),
            (Some("gaps"), [gaps]) => seen.gaps = *gaps,
            _ => {}
        }
    }
    seen
}

impl Seen {
    /// The pictures on the clock of a run that began at that time.
    pub(crate) fn frames(&self, epoch_ns: u64) -> Vec<Frame> {
        let frame = |picture: &Picture| Frame {
            captured_s: picture.pts as f64 / TICKS - LEAD_S,
            arrived_s: (picture.arrived_ns as f64 - epoch_ns as f64) / 1e9,
            bytes: picture.bytes,
        };
        self.pictures.iter().map(frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_frames() {
        let seen = parse("a warning\npicture 900000 2500000000 700\ngaps 2\npicture 903000 26");
        assert_eq!((seen.pictures.len(), seen.gaps), (1, 2));
        let frames = seen.frames(2_000_000_000);
        assert_eq!(
            (frames[0].captured_s, frames[0].arrived_s, frames[0].bytes),
            (0.0, 0.5, 700)
        );
        assert_eq!(parse(""), Seen::default());
    }
}
