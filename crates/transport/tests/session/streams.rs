//! Streams deliver their data and their end, in both directions.

use std::time::Duration;

use sumlink_transport::{Client, SecretKey, Stream, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Running, bytes, echo};

#[tokio::test(flavor = "multi_thread")]
async fn written_data_comes_back_complete_and_ended() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let stream = client.open_stream(echo().await).await.unwrap();
    let data = bytes(20_000_000);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent = data.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
        writer
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    writing.await.unwrap();
    assert!(received == data);
    let status = client.status().await;
    assert_eq!(
        (status.bytes_sent, status.bytes_received),
        (20_000_000, 20_000_000)
    );
    assert_eq!(status.paths.len(), 1);
    assert_eq!(status.paths[0].link, "lo");
    assert_eq!(server.handle.status().await[0].paths[0].link, "lo");
    client.close().await;
}

#[tokio::test]
async fn hundreds_of_streams_share_a_session() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |config| config.session.max_streams = 100).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let target = echo().await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..300usize {
        let (client, target) = (client.clone(), target.clone());
        tasks.spawn(async move {
            let mut stream = client.open_stream(target).await.unwrap();
            let data = bytes(1000 + i);
            stream.write_all(&data).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert!(back == data);
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_stream_is_reset_at_the_target() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let opening =
        tokio::spawn(async move { client.open_stream(target).await.map(|s| (client, s)) });
    let (mut tcp, _) = listener.accept().await.unwrap();
    let (_client, mut stream) = opening.await.unwrap().unwrap();
    stream.write_all(b"half of it").await.unwrap();
    let mut half = [0; 10];
    tcp.read_exact(&mut half).await.unwrap();
    drop(stream);
    let error = tcp.read(&mut half).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// The target's and the program's end of a stream.
async fn both_ends(client: &Client) -> (TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let (opened, accepted) = tokio::join!(client.open_stream(target), listener.accept());
    (accepted.unwrap().0, opened.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_side_that_finishes_second_delivers_everything() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let data = bytes(20_000_000);

    // The program writes everything, then the target answers and closes.
    let (mut tcp, mut stream) = both_ends(&client).await;
    stream.shutdown().await.unwrap();
    assert_eq!(tcp.read(&mut [0; 1]).await.unwrap(), 0);
    let answer = data.clone();
    let target = tokio::spawn(async move {
        tcp.write_all(&answer).await.unwrap();
        tcp.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(
        received == data,
        "{} of {} bytes",
        received.len(),
        data.len()
    );
    target.await.unwrap();

    // The target ends first and reads slowly; the program fills all buffers, finishes and closes.
    let (mut tcp, mut stream) = both_ends(&client).await;
    tcp.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    let mut sent = 0;
    let full = Duration::from_millis(300);
    loop {
        let from = sent % data.len();
        let to = data.len().min(from + 64 * 1024);
        match tokio::time::timeout(full, stream.write(&data[from..to])).await {
            Ok(len) => sent += len.unwrap(),
            Err(_) => break,
        }
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), sent);
    let whole = received
        .chunks(data.len())
        .all(|part| *part == data[..part.len()]);
    assert!(whole, "the copy differs");
}

/// A program finishes and closes while all buffers are full, and its target reads only as fast as
/// its answer is consumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_the_answer_delays_no_other() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let data = bytes(64 * 1024);
    let (mut tcp, mut stream) = both_ends(&client).await;
    let target = tokio::spawn(async move {
        let (mut reader, mut writer) = tcp.split();
        // An echo, until the end or until its output is no longer read.
        let mut total = 0;
        let mut part = vec![0; 64 * 1024];
        loop {
            let len = reader.read(&mut part).await.unwrap();
            if len == 0 {
                return total;
            }
            total += len;
            let _ = writer.write_all(&part[..len]).await;
        }
    });
    let mut sent = 0;
    let full = Duration::from_millis(300);
    while let Ok(len) = tokio::time::timeout(full, stream.write(&data)).await {
        sent += len.unwrap();
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let received = tokio::time::timeout(Duration::from_secs(30), target).await;
    assert_eq!(received.unwrap().unwrap(), sent);
}

#[tokio::test]
async fn a_reset_of_the_target_reaches_the_program() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let (opened, accepted) = tokio::join!(client.open_stream(target), listener.accept());
    let (mut stream, (mut tcp, _)) = (opened.unwrap(), accepted.unwrap());
    tcp.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    stream.read_exact(&mut half).await.unwrap();
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    let error = stream.read(&mut half).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
