//! The server's half of a speed test: a stream to [`SPEED`](crate::target::SPEED) measures the bond
//! and nothing beyond the server.
//!
//! The client writes one byte, a [`Request`]; the server answers with its clock and serves the
//! request (docs/protocol-publish.md, "Speed test").

use std::io;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{interval, sleep, timeout};

use crate::processors::Processors;

/// Longest duration of one request.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Interval between the counts of received bytes.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Duration for which the processors are measured.
const MEASURED: Duration = Duration::from_secs(1);

/// Bytes read or written at once.
const PIECE: usize = 64 << 10;

/// The bytes of a download.
static ZEROS: [u8; PIECE] = [0; PIECE];

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// The server sends bytes until the client ends the stream.
    Download = 0,
    /// The server discards the client's bytes, and reports ten times a second how many bytes it
    /// has received so far, as a number of 8 bytes; the last one follows the client's last byte.
    Upload = 1,
    /// The server reports how busy its processors are during one second, as two bytes: percent of
    /// all of them, and of the busiest one.
    Load = 2,
}

impl Request {
    fn of(byte: u8) -> Option<Self> {
        [Self::Download, Self::Upload, Self::Load]
            .into_iter()
            .find(|request| *request as u8 == byte)
    }
}

/// Serves one request, for at most [`LONGEST`].
///
/// # Errors
///
/// The stream fails, as it does when the client ends a download, or the request is unknown.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    match timeout(LONGEST, answer(stream)).await {
        Ok(served) => served,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let byte = stream.read_u8().await?;
    let request = Request::of(byte).ok_or(io::ErrorKind::InvalidData)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    stream
        .write_u64(u64::try_from(now).unwrap_or(u64::MAX))
        .await?;
    stream.flush().await?;
    match request {
        Request::Download => send(stream).await,
        Request::Upload => receive(stream).await,
        Request::Load => {
            let before = Processors::now();
            sleep(MEASURED).await;
            let busy = Processors::now().busy_since(&before);
            stream.write_all(&[busy.all, busy.busiest]).await?;
            stream.shutdown().await
        }
    }
}

async fn send(mut stream: impl AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        stream.write_all(&ZEROS).await?;
    }
}

async fn receive(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut received = 0;
    let mut report = interval(REPORT_INTERVAL);
    loop {
        tokio::select! {
            read = stream.read(&mut piece) => match read? {
                0 => break,
                read => received += read as u64,
            },
            _ = report.tick() => {
                stream.write_u64(received).await?;
                stream.flush().await?;
            }
        }
    }
    stream.write_u64(received).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// A request, the server's clock, and the task that serves it.
    async fn ask(
        request: u8,
    ) -> (
        tokio::io::DuplexStream,
        tokio::task::JoinHandle<io::Result<()>>,
    ) {
        let (mut ours, theirs) = duplex(1 << 20);
        let serving = tokio::spawn(serve(theirs));
        ours.write_u8(request).await.unwrap();
        (ours, serving)
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_ends_with_its_reader() {
        let (mut stream, serving) = ask(Request::Download as u8).await;
        assert!(stream.read_u64().await.unwrap() > 0);
        let mut bytes = vec![1; 3 << 20];
        stream.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        drop(stream);
        let error = serving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_count_of_an_upload_is_exact() {
        let (mut stream, serving) = ask(Request::Upload as u8).await;
        stream.read_u64().await.unwrap();
        stream.write_all(&vec![7; 300_001]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut counts = Vec::new();
        while let Ok(count) = stream.read_u64().await {
            counts.push(count);
        }
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!(counts.last(), Some(&300_001));
        serving.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_load_is_two_percentages() {
        let (mut stream, serving) = ask(Request::Load as u8).await;
        stream.read_u64().await.unwrap();
        let mut busy = Vec::new();
        stream.read_to_end(&mut busy).await.unwrap();
        assert!(busy.len() == 2 && busy.iter().all(|percent| *percent <= 100));
        serving.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_requests_and_endless_ones_are_ended() {
        let (_stream, serving) = ask(3).await;
        let error = serving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let (_stream, serving) = ask(Request::Upload as u8).await;
        let error = serving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
