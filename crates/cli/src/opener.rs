//! What the local entries open their streams in.

use sumlink_proxy::Opener;
use sumlink_transport::{Class, Client, Early, OpenError, Stream, Target};

/// The client's session: the present one, or the next, for which a stream waits a while.
#[derive(Clone, Debug)]
pub(crate) struct Bond {
    pub(crate) client: Client,
    /// Whether a program waits for the server's word.
    pub(crate) early: Early,
}

impl Opener for Bond {
    type Stream = Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Stream, OpenError> {
        let early = self.early;
        self.client.open_stream_early(target, class, early).await
    }
}
