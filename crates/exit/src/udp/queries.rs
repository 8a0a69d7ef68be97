//! A source's queries to the server's resolvers.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::Client;
use crate::datagram::FlowFailure;
use crate::resolver::Resolvers;
use crate::target::Target;

/// Queries of one source at once. A page with many hosts asks for some tens.
const MOST: usize = 256;

/// Queries that wait for an answer.
pub(super) struct Queries<'a> {
    resolvers: Option<&'a Resolvers>,
    running: JoinSet<(Target, Result<Bytes, FlowFailure>)>,
}

impl<'a> Queries<'a> {
    pub(super) fn new(resolvers: Option<&'a Resolvers>) -> Self {
        let running = JoinSet::new();
        Self { resolvers, running }
    }

    /// Sends a query, which the client has addressed to `target`.
    pub(super) fn ask(
        &mut self,
        target: &Target,
        query: &[u8],
        client: &Client,
    ) -> Result<(), FlowFailure> {
        let resolvers = self.resolvers.ok_or(FlowFailure::NotAllowed)?.clone();
        if self.running.len() >= MOST {
            return Err(FlowFailure::LimitReached);
        }
        let place = client
            .sockets
            .as_ref()
            .map(|sockets| Semaphore::try_acquire_owned(Arc::clone(sockets)))
            .transpose()
            .map_err(|_| FlowFailure::LimitReached)?;
        let (target, query) = (target.clone(), Bytes::copy_from_slice(query));
        self.running.spawn(async move {
            let answer = resolvers.ask(&query).await;
            drop(place);
            (target, answer.map_err(FlowFailure::from))
        });
        Ok(())
    }

    /// The next result. Cancel safe.
    pub(super) async fn next(&mut self) -> (Target, Result<Bytes, FlowFailure>) {
        loop {
            match self.running.join_next().await {
                Some(Ok(result)) => return result,
                Some(Err(_)) => {}
                None => return pending().await,
            }
        }
    }
}
