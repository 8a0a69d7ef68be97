//! What the local entries open their streams in.

use sumlink_proxy::Opener;
use sumlink_transport::{Class, Client, OpenError, Stream, Target};

/// The client's session: the present one, or the next, for which a stream waits a while.
#[derive(Clone, Debug)]
pub(crate) struct Bond {
    pub(crate) client: Client,
    /// A program need not wait for the server's word on a target that was connected a moment ago.
    pub(crate) early: bool,
}

impl Opener for Bond {
    type Stream = Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Stream, OpenError> {
        match self.early {
            true => self.client.open_stream_early(target, class).await,
            false => self.client.open_stream_as(target, class).await,
        }
    }
}
