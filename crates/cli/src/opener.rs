//! Opens streams for the local entries.

use sumlink_proxy::{DatagramOpener, Opener};
use sumlink_transport::datagrams::DatagramSource;
use sumlink_transport::{Class, Client, Early, OpenError, Stream, Target};

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
