//! The server's sessions, for carriers that join one and for requests about one.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::half_open::{HalfOpenLimit, Vouched};
use crate::api::status::SessionStatus;
use crate::carrier::Carrier;
use crate::carrier::keys::PublicKey;
use crate::carrier::quic::DatagramCarrier;
use crate::session::command::Command;

/// A session's identity: the client's key, and the identifier chosen by the client.
pub(super) type SessionId = (PublicKey, [u8; 16]);

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<SessionId, Entry>);

/// One session.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    commands: UnboundedSender<Command>,
    begun: Instant,
    /// Carriers with a reserved place that are not yet paths of the session.
    joining: Arc<tokio::sync::Mutex<usize>>,
    /// The addresses of its paths, latest last.
    addresses: Arc<Mutex<VecDeque<Vouched>>>,
}

/// Maximum number of addresses that one session keeps known: more than a client has links, and few
/// enough that a client with many sessions gains no advantage.
const MAX_ADDRESSES: usize = 32;

impl Sessions {
    pub(super) fn contains(&self, id: &SessionId) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<&Entry> {
        self.0.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SessionId, &Entry)> {
        self.0.iter()
    }

    /// The sessions of one client, the oldest first.
    pub(super) fn of_client(&self, client: &PublicKey) -> Vec<(SessionId, Entry)> {
        let own = self.0.iter().filter(|((key, _), _)| key == client);
        let mut own: Vec<_> = own.map(|(id, entry)| (*id, entry.clone())).collect();
        own.sort_by_key(|(_, entry)| entry.begun);
        own
    }

    pub(super) fn insert(&mut self, id: SessionId, entry: Entry) {
        self.0.insert(id, entry);
    }

    /// Removes a session, unless another session has taken its identity; returns whether it was
    /// listed.
    pub(super) fn remove(&mut self, id: &SessionId, entry: &Entry) -> bool {
        let is_there = self
            .get(id)
            .is_some_and(|there| there.commands.same_channel(&entry.commands));
        is_there && self.0.remove(id).is_some()
    }
}

impl Entry {
    /// A session whose first carrier is about to join.
    pub(super) fn new(commands: UnboundedSender<Command>) -> Self {
        Self {
            commands,
            begun: Instant::now(),
            joining: Arc::new(tokio::sync::Mutex::new(1)),
            addresses: Arc::default(),
        }
    }

    /// Reserves a place for one more path, of at most `limit`, until [`Entry::fill`]. Returns
    /// whether one was free.
    pub(super) async fn reserve(&self, limit: usize) -> bool {
        let mut joining = self.joining.lock().await;
        let paths = self.status().await.map_or(0, |status| status.paths.len());
        let has_place = paths + *joining < limit;
        *joining += usize::from(has_place);
        has_place
    }

    /// Puts the carrier into its place, or releases the place. Under the lock, so that
    /// [`Entry::reserve`] counts every carrier once.
    pub(super) async fn fill(&self, carrier: Option<Carrier>) {
        let mut joining = self.joining.lock().await;
        *joining -= 1;
        if let Some(carrier) = carrier {
            let _ = self.commands.send(Command::Add(Box::new(carrier)));
        }
    }

    /// Adds a datagram carrier to the session.
    pub(super) fn add_datagrams(&self, carrier: DatagramCarrier) {
        let _ = self.commands.send(Command::AddDatagrams(Box::new(carrier)));
    }

    /// Counts an address among those of live sessions as long as this session lives.
    pub(super) fn vouch(&self, limit: &Arc<HalfOpenLimit>, address: IpAddr) {
        let vouched = limit.vouch(address);
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        addresses.retain(|known| !known.covers(address));
        if addresses.len() >= MAX_ADDRESSES {
            addresses.pop_front();
        }
        addresses.push_back(vouched);
    }

    /// Ends the session and sends the client the reason.
    pub(super) fn close(&self, reason: &str) {
        let _ = self.commands.send(Command::Close(reason.to_owned()));
    }

    /// The session's status; `None` if it has ended.
    pub(super) async fn status(&self) -> Option<SessionStatus> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Status(reply)).ok()?;
        answer.await.ok()
    }

    /// Whether the session has no path, and none is joining.
    pub(super) async fn is_without_path(&self) -> bool {
        let joining = self.joining.lock().await;
        *joining == 0
            && self
                .status()
                .await
                .is_none_or(|status| status.paths.is_empty())
    }
}

/// The first of these sessions without a path.
pub(super) async fn oldest_without_path(
    sessions: Vec<(SessionId, Entry)>,
) -> Option<(SessionId, Entry)> {
    for (id, entry) in sessions {
        if entry.is_without_path().await {
            return Some((id, entry));
        }
    }
    None
}
