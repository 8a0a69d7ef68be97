//! A bounded queue of datagrams between the device and the task of a source.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sumlink_proxy::Class;
use tokio::sync::Notify;

/// Most datagrams that wait.
const MAX: usize = 256;

/// Most bytes that wait, unless a single packet is longer.
const MAX_BYTES: usize = 512 * 1024;

/// A datagram of a program.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The remote; its port is 0 for echo requests.
    pub(crate) remote: std::net::SocketAddr,
    /// Its payload.
    pub(crate) payload: Bytes,
    /// The beginning of its packet, for an error about it.
    pub(crate) quote: Bytes,
    /// Length of the packet.
    pub(crate) packet_len: usize,
    /// Whether the packet arrived in fragments or in a super-packet.
    pub(crate) is_joined: bool,
    pub(crate) class: Option<Class>,
}

/// The sending end. Dropping it ends the queue.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

/// The receiving end. Dropping it closes the queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    has_ended: bool,
    is_closed: bool,
}

/// A new queue.
pub(crate) fn mailbox() -> (Sender, Receiver) {
    let shared = Arc::<Shared>::default();
    let sender = Sender {
        shared: Arc::clone(&shared),
    };
    (sender, Receiver { shared })
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Appends a datagram and returns how many older ones were dropped for it. Gives it back if the
    /// receiver has gone.
    pub(crate) fn push(&self, item: Item) -> Result<u64, Item> {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            return Err(item);
        }
        let mut dropped = 0;
        let len = item.packet_len;
        while queue.items.len() >= MAX || (queue.bytes + len > MAX_BYTES && !queue.items.is_empty())
        {
            if let Some(oldest) = queue.items.pop_front() {
                queue.bytes -= oldest.packet_len;
                dropped += 1;
            }
        }
        queue.bytes += len;
        queue.items.push_back(item);
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(dropped)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.arrived.notify_one();
    }
}

impl Receiver {
    /// Waits for datagrams and moves all of them into `items`, which is empty. Leaves it empty when
    /// the sender has gone. Cancel safe.
    pub(crate) async fn take(&self, items: &mut VecDeque<Item>) {
        loop {
            {
                let mut queue = self.shared.lock();
                if !queue.items.is_empty() {
                    std::mem::swap(&mut queue.items, items);
                    queue.bytes = 0;
                    return;
                }
                if queue.has_ended {
                    return;
                }
            }
            self.shared.arrived.notified().await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        queue.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u16, packet_len: usize) -> Item {
        Item {
            remote: ([192, 0, 2, 1], number).into(),
            payload: Bytes::new(),
            quote: Bytes::new(),
            packet_len,
            is_joined: false,
            class: None,
        }
    }

    #[tokio::test]
    async fn a_full_queue_loses_its_oldest_datagrams() {
        let (sender, receiver) = mailbox();
        for number in 0..300 {
            let dropped = sender.push(item(number, 100)).unwrap();
            assert_eq!(dropped, u64::from(usize::from(number) >= MAX));
        }
        let mut items = VecDeque::new();
        receiver.take(&mut items).await;
        assert!(items.iter().map(|item| item.remote.port()).eq(44..300));
        items.clear();
        for number in 0..20 {
            sender.push(item(number, 60_000)).unwrap();
        }
        receiver.take(&mut items).await;
        assert_eq!(items.len(), MAX_BYTES / 60_000);
        items.clear();
        drop(sender);
        receiver.take(&mut items).await;
        assert!(items.is_empty());
    }

    #[test]
    fn a_queue_without_a_receiver_gives_the_datagram_back() {
        let (sender, receiver) = mailbox();
        sender.push(item(1, 1)).unwrap();
        drop(receiver);
        assert_eq!(sender.push(item(2, 1)).unwrap_err().remote.port(), 2);
    }
}
