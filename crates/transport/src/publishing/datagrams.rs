//! The client's side of a published UDP port: a socket to the target for each remote.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, Received};
use sumlink_exit::outgoing::Outgoing;
use sumlink_exit::recent::Recent;
use sumlink_exit::target::{Host, Target};
use sumlink_exit::udp_io::{Packet, UdpIo, UdpOptions};
use tokio::net::lookup_host;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::traffic::Traffic;
use crate::session::sources::SourceHandle;

/// Remotes of a port at once. The server admits fewer unless its configuration differs.
const MOST: usize = 1024;

/// Silence after which a remote makes room for another one.
const YIELD_AFTER: Duration = Duration::from_secs(5);

/// Silence after which a remote's socket is closed (RFC 4787, REQ-5: the recommended default).
const IDLE: Duration = Duration::from_secs(300);

/// Datagrams of one remote that wait for its task.
const QUEUE: usize = 256;

/// Answers that wait for the session.
const ANSWERS: usize = 1024;

/// Events and datagrams taken at once.
const BATCH: usize = 64;

/// Receive buffer of each socket in bytes; the system's `net.core.rmem_max` applies.
const RECEIVE_BUFFER: usize = 1 << 20;

/// An answer of the target to a remote.
type Answer = (Target, Result<Bytes, FlowFailure>);

/// A remote that sends to the port.
struct Remote {
    number: u64,
    sender: Sender<Bytes>,
    last: Instant,
    task: tokio::task::AbortHandle,
}

/// Passes datagrams between the port and the target until the source ends.
///
/// Each remote is a separate socket, so the target sees different ports and can answer each.
pub(super) async fn serve(
    mut source: SourceHandle,
    target: &Target,
    outgoing: &Outgoing,
    traffic: &Traffic,
) {
    let mut remotes: Recent<Target, Remote> = Recent::default();
    let mut counted = std::collections::HashMap::new();
    // Each returns its remote and its number.
    let mut tasks: JoinSet<(Target, u64)> = JoinSet::new();
    let (answer_sender, mut answers) = channel::<Answer>(ANSWERS);
    let (mut events, mut batch) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut next = 0;
    loop {
        tokio::select! {
            received = source.receive(&mut events, BATCH) => {
                if received == 0 {
                    return;
                }
                for (remote, event) in events.drain(..) {
                    let Received::Datagram(payload) = event else {
                        continue;
                    };
                    let now = Instant::now();
                    let payload = match remotes.touch(&remote) {
                        None => payload,
                        Some(known) => {
                            known.last = now;
                            match known.sender.try_send(payload) {
                                Ok(()) | Err(TrySendError::Full(_)) => continue,
                                // Its socket has just been closed.
                                Err(TrySendError::Closed(payload)) => payload,
                            }
                        }
                    };
                    if remotes.len() >= MOST && remotes.get(&remote).is_none() {
                        let oldest = remotes.oldest().map(|(_, remote)| remote.last);
                        if oldest.is_none_or(|last| now < last + YIELD_AFTER) {
                            continue;
                        }
                        if let Some((_, oldest)) = remotes.pop_oldest() {
                            oldest.task.abort();
                            counted.remove(&oldest.number);
                        }
                    }
                    let (sender, receiver) = channel(QUEUE);
                    // The channel is new and has room.
                    let _ = sender.try_send(payload);
                    let (number, key) = (next, remote.clone());
                    next += 1;
                    let relaying = relay(
                        remote.clone(), target.clone(), outgoing.clone(), receiver,
                        answer_sender.clone(),
                    );
                    let task = tasks.spawn(async move {
                        relaying.await;
                        (key, number)
                    });
                    counted.insert(number, traffic.count());
                    let new = Remote { number, sender, last: now, task };
                    if let Some(former) = remotes.insert(remote, new) {
                        counted.remove(&former.number);
                    }
                }
            }
            count = answers.recv_many(&mut batch, BATCH) => {
                debug_assert!(count > 0, "this side holds a sender");
                for (remote, answer) in batch.drain(..) {
                    if let Some(known) = remotes.touch(&remote) {
                        known.last = Instant::now();
                    }
                    match answer {
                        // A session that cannot take it drops it, as a network does.
                        Ok(payload) => drop(source.send(&remote, payload, None)),
                        Err(failure) => source.report(&remote, failure),
                    }
                }
            }
            Some(ended) = tasks.join_next() => {
                if let Ok((remote, number)) = ended {
                    counted.remove(&number);
                    if remotes.get(&remote).is_some_and(|remote| remote.number == number) {
                        remotes.remove(&remote);
                    }
                }
            }
        }
    }
}

/// Relays the datagrams of one remote until it is idle.
async fn relay(
    remote: Target,
    target: Target,
    outgoing: Outgoing,
    mut receiver: Receiver<Bytes>,
    answers: Sender<Answer>,
) {
    let io = match open(&target, &outgoing).await {
        Ok(io) => io,
        Err(error) => {
            tracing::debug!(%target, %error, "cannot reach a published port's target");
            let failure = FlowFailure::from_send(&error).unwrap_or(FlowFailure::Other);
            let _ = answers.try_send((remote, Err(failure)));
            return;
        }
    };
    let idle = sleep_until(Instant::now() + IDLE);
    tokio::pin!(idle);
    let mut batch = Vec::with_capacity(BATCH);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            count = receiver.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return;
                }
                last = Instant::now();
                let packets = batch.iter().map(|body| Packet {
                    remote: None,
                    local: None,
                    head: &[],
                    body,
                });
                let mut failure = None;
                io.send(&packets.collect::<Vec<_>>(), |_, error| {
                    failure = FlowFailure::from_send(&error);
                });
                batch.clear();
                if let Some(failure) = failure {
                    let _ = answers.try_send((remote.clone(), Err(failure)));
                }
            }
            ready = io.ready() => {
                let Ok(ready) = ready else {
                    return pending().await;
                };
                last = Instant::now();
                if ready.is_error() {
                    io.take_errors(|error| {
                        let _ = answers.try_send((remote.clone(), Err(error.failure)));
                    });
                }
                // Nothing waits if another task has taken it.
                let _ = io.try_receive(|arrival| {
                    let payload = Bytes::copy_from_slice(arrival.payload);
                    let _ = answers.try_send((remote.clone(), Ok(payload)));
                });
            }
            () = &mut idle => {
                if last.elapsed() >= IDLE {
                    return;
                }
                idle.as_mut().reset(last + IDLE);
            }
        }
    }
}

/// A socket that is connected to the target.
async fn open(target: &Target, outgoing: &Outgoing) -> io::Result<UdpIo> {
    let address = match &target.host {
        Host::Ip(ip) => SocketAddr::new(*ip, target.port),
        Host::Name(name) => {
            let mut addresses = lookup_host((name.as_str(), target.port)).await?;
            addresses.next().ok_or(io::ErrorKind::NotFound)?
        }
    };
    let local: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let options = UdpOptions {
        errors: true,
        receive_buffer: RECEIVE_BUFFER,
        ..UdpOptions::default()
    };
    let io = UdpIo::bind_over(SocketAddr::new(local, 0), options, outgoing)?;
    io.connect(address)?;
    Ok(io)
}
