//! Both ends of datagram carriers, with what their tests send and receive.

mod datagrams;
mod ending;
mod joining;
mod links;

use bytes::Bytes;
use tokio::time::timeout;

use super::DatagramCarrier;
use super::fixture::SOON;

/// A datagram of `len` bytes, at least 4, that begins with its number.
fn numbered(number: u32, len: usize) -> Bytes {
    let mut datagram = number.to_be_bytes().to_vec();
    datagram.resize(len, 0xa5);
    datagram.into()
}

fn number(datagram: &Bytes) -> u32 {
    u32::from_be_bytes(datagram[..4].try_into().unwrap())
}

/// Sends a datagram as soon as there is room.
async fn send(carrier: &mut DatagramCarrier, datagram: Bytes) {
    let wait = async {
        carrier.writable().await;
        carrier.send(datagram).unwrap();
    };
    timeout(SOON, wait).await.expect("room within 20 s");
}

/// Waits for at least one datagram.
async fn receive(carrier: &mut DatagramCarrier) -> Vec<Bytes> {
    let mut out = Vec::new();
    let received = carrier.receive(&mut out, 64);
    let count = timeout(SOON, received).await.expect("a datagram").unwrap();
    assert_eq!(count, out.len());
    out
}
