//! Rates of one bond, measured with the server's half in `sumlink_exit::speed`.

use std::time::{Duration, Instant, SystemTime};

use bytes::Buf;
use sumlink_transport::speed::Request;
use sumlink_transport::target::SPEED;
use sumlink_transport::{Class, Client, OpenError, Stream, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::{CliError, Failure};
use crate::exit::Exit;

/// The part of a measurement that does not count: TCP starts slowly.
const WARM_UP: u32 = 4;

/// Time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A port is part of each target; the server ignores this one.
const PORT: u16 = 1;

/// The server's report about its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Server {
    /// Its clock minus this machine's, in seconds; up to half a round trip wrong.
    pub(crate) clock_ahead_s: f64,
    /// Percent of a second in which all its processors were busy.
    pub(crate) busy: u8,
    /// The same for the busiest one.
    pub(crate) busiest: u8,
}

/// The rate in bit/s at which programs get data from the server.
pub(crate) async fn download(client: &Client, duration: Duration) -> Result<f64, CliError> {
    let (mut stream, _) = ask(client, Request::Download).await?;
    let begun = Instant::now();
    let warm = duration / WARM_UP;
    let mut counted = 0_u64;
    while let Some(left) = duration.checked_sub(begun.elapsed()) {
        let Ok(received) = timeout(left, stream.received()).await else {
            break;
        };
        let mut received = received.map_err(failed)?;
        let bytes = received.remaining();
        if bytes == 0 {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        received.advance(bytes);
        if begun.elapsed() >= warm {
            counted += bytes as u64;
        }
    }
    let measured = begun.elapsed().saturating_sub(warm);
    Ok(rate(counted, measured))
}

/// The rate in bit/s at which the server gets data from programs.
pub(crate) async fn upload(client: &Client, duration: Duration) -> Result<f64, CliError> {
    let (stream, _) = ask(client, Request::Upload).await?;
    let begun = Instant::now();
    let (mut counts, mut bytes) = tokio::io::split(stream);
    let piece = vec![0; 64 << 10];
    let sending = async {
        loop {
            if let Err(error) = bytes.write_all(&piece).await {
                return error;
            }
        }
    };
    let mut first = None;
    let mut last = None;
    let counting = async {
        while let Ok(count) = counts.read_u64().await {
            let sample = (begun.elapsed(), count);
            if first.is_none() && sample.0 >= duration / WARM_UP {
                first = Some(sample);
            }
            last = Some(sample);
        }
    };
    tokio::select! {
        error = sending => return Err(failed(error)),
        () = counting => return Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        () = tokio::time::sleep(duration) => {}
    }
    let (Some((from, before)), Some((to, after))) = (first, last) else {
        return Ok(0.0);
    };
    Ok(rate(
        u64::saturating_sub(after, before),
        to.saturating_sub(from),
    ))
}

/// The server's clock and load.
pub(crate) async fn server(client: &Client) -> Result<Server, CliError> {
    let asked = SystemTime::now();
    let (mut stream, clock) = ask(client, Request::Load).await?;
    let answered = SystemTime::now();
    let since_1970 = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    };
    let middle = f64::midpoint(since_1970(asked), since_1970(answered));
    let mut busy = [0; 2];
    match timeout(PATIENCE, stream.read_exact(&mut busy)).await {
        Ok(read) => read.map_err(failed)?,
        Err(_) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
    };
    Ok(Server {
        clock_ahead_s: clock as f64 / 1e3 - middle,
        busy: busy[0],
        busiest: busy[1],
    })
}

/// Opens a stream for this request; returns it with the server's clock, in milliseconds.
async fn ask(client: &Client, request: Request) -> Result<(Stream, u64), CliError> {
    let target = Target::new(SPEED, PORT).map_err(|error| failed(std::io::Error::other(error)))?;
    let opened = client.open_stream_as(target, Class::Background).await;
    let mut stream = opened.map_err(|error| {
        let reason = match error {
            OpenError::NameNotResolved => {
                "the server has no speed test: it runs an older version of sumlink".to_owned()
            }
            error => format!("the server refuses a speed test: {error}"),
        };
        Failure::new(Exit::Network, reason)
    })?;
    let asking = async {
        stream.write_u8(request as u8).await?;
        stream.flush().await?;
        stream.read_u64().await
    };
    let clock = match timeout(PATIENCE, asking).await {
        Ok(clock) => clock.map_err(failed)?,
        Err(_) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
    };
    Ok((stream, clock))
}

fn failed(error: std::io::Error) -> CliError {
    let reason = format!("the speed test ended early: {}", sumlink_util::plain(error));
    Failure::new(Exit::Network, reason).into()
}

fn rate(bytes: u64, time: Duration) -> f64 {
    match time.as_secs_f64() {
        0.0 => 0.0,
        seconds => bytes as f64 * 8.0 / seconds,
    }
}
