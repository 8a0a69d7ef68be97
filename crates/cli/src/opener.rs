//! Opens streams for the local entries.

use std::time::Duration;

use sumlink_proxy::{DatagramOpener, Opener};
use sumlink_transport::datagrams::DatagramSource;
use sumlink_transport::target::OwnService;
use sumlink_transport::{Class, Client, Early, OpenError, Stream, Target};
use tokio::sync::watch;
use tokio::time::timeout;

/// The client's session; while it reconnects, a stream waits for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Bond {
    pub(crate) client: Client,
    /// When a stream is reported as connected before the server confirms it.
    pub(crate) early: Early,
}

impl Opener for Bond {
    type Stream = Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Stream, OpenError> {
        // Those are for the owner of the bond, not for every program or host that may use it.
        if target.own_service() == Some(OwnService::Speed) {
            return Err(OpenError::NotAllowed);
        }
        let early = self.early;
        self.client.open_stream_early(target, class, early).await
    }
}

impl DatagramOpener for Bond {
    type Socket = DatagramSource;

    /// Never fails: without a session, datagrams wait for the next one for a few seconds.
    async fn bind(&self, class: Option<Class>) -> Result<DatagramSource, OpenError> {
        Ok(self.client.bind_datagrams(class, None))
    }
}

/// Time for which a stream or a source waits for the first session.
const FIRST_SESSION: Duration = Duration::from_secs(30);

/// A bond that is still being made; streams wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    session: watch::Receiver<Option<Client>>,
    early: Early,
}

impl Late {
    /// `session` has the client once it is connected.
    pub(crate) fn new(session: watch::Receiver<Option<Client>>, early: Early) -> Self {
        Self { session, early }
    }

    async fn bond(&self) -> Result<Bond, OpenError> {
        let mut session = self.session.clone();
        let connected = timeout(FIRST_SESSION, session.wait_for(Option::is_some)).await;
        let connected = connected.map_err(|_| OpenError::TimedOut)?;
        let client = connected.ok().and_then(|client| client.clone());
        Ok(Bond {
            client: client.ok_or(OpenError::SessionClosed)?,
            early: self.early,
        })
    }
}

impl Opener for Late {
    type Stream = Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Stream, OpenError> {
        self.bond().await?.open(target, class).await
    }
}

impl DatagramOpener for Late {
    type Socket = DatagramSource;

    async fn bind(&self, class: Option<Class>) -> Result<DatagramSource, OpenError> {
        self.bond().await?.bind(class).await
    }
}
