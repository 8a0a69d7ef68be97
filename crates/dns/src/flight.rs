//! Questions in flight to upstreams. Equal ones are asked once.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_proxy::{Client, Limit, Usage};
use tokio::sync::watch;

use crate::resolved::Resolved;
use crate::wire::Query;

/// Age after which a question makes room for a newer one of the same client. Most resolvers answer
/// earlier.
const YIELD_AFTER: Duration = Duration::from_secs(1);

/// The open questions. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    limit: Limit,
    open: Arc<Mutex<HashMap<Query, Flight>>>,
}

/// An open question.
#[derive(Debug)]
struct Flight {
    result: watch::Receiver<Option<Resolved>>,
    usage: Usage,
}

/// Gives the result of a question.
pub(crate) type Landing = Pin<Box<dyn Future<Output = Resolved> + Send>>;

/// How a question joins the open ones.
pub(crate) enum Landed {
    /// It is the first of its kind.
    First(Landing),
    /// It waits for an equal one.
    Merged(Landing),
    /// Too many are open, and the client has its share of them.
    Full,
}

/// Removes a flight from the open ones, also when its task panics or is aborted.
struct Open {
    flights: Flights,
    query: Query,
    result: watch::Sender<Option<Resolved>>,
}

impl Flights {
    /// At most `most` different questions. Clients share them fairly.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            limit: Limit::new("open questions", most, Some(YIELD_AFTER)),
            open: Arc::default(),
        }
    }

    /// Joins an equal question, or resolves this one with `resolve`, in a separate task: if a
    /// client gives up, others and the cache still get the answer. The question counts for the
    /// client that has fewer, if several ask it.
    pub(crate) fn join(
        &self,
        query: &Query,
        client: Client,
        resolve: impl Future<Output = Resolved> + Send + 'static,
    ) -> Landed {
        let mut open = self.lock();
        if let Some(flight) = open.get(query) {
            flight.usage.share(client);
            return Landed::Merged(Box::pin(land(flight.result.clone())));
        }
        let Some(mut place) = self.limit.place(client) else {
            return Landed::Full;
        };
        let (result, flight) = watch::channel(None);
        let opened = Flight {
            result: flight.clone(),
            usage: place.usage(),
        };
        open.insert(query.clone(), opened);
        let guard = Open {
            flights: self.clone(),
            query: query.clone(),
            result,
        };
        tokio::spawn(async move {
            let resolved = tokio::select! {
                resolved = resolve => resolved,
                () = place.lost() => Resolved::Failed,
            };
            drop(place);
            guard.result.send_replace(Some(resolved));
        });
        Landed::First(Box::pin(land(flight)))
    }

    /// Lets new questions be asked again, although equal ones are open.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Query, Flight>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let own = self.result.subscribe();
        let mut open = self.flights.lock();
        if open
            .get(&self.query)
            .is_some_and(|flight| flight.result.same_channel(&own))
        {
            open.remove(&self.query);
        }
    }
}

async fn land(mut flight: watch::Receiver<Option<Resolved>>) -> Resolved {
    match flight.wait_for(Option::is_some).await {
        Ok(resolved) => resolved.clone().unwrap_or(Resolved::Failed),
        Err(_) => Resolved::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const OWN: Client = Client::Host;

    fn result(landed: Landed) -> Landing {
        match landed {
            Landed::First(landing) | Landed::Merged(landing) => landing,
            Landed::Full => panic!("no room"),
        }
    }

    #[tokio::test]
    async fn equal_questions_share_a_result_and_the_next_one_is_asked_again() {
        let flights = Flights::new(2);
        let query = Query::new("a.example", 1);
        for round in 0..2u8 {
            let (release, released) = tokio::sync::oneshot::channel::<()>();
            let first = flights.join(&query, OWN, async move {
                released.await.unwrap();
                Resolved::Response(vec![round].into())
            });
            assert!(matches!(first, Landed::First(_)));
            let second = flights.join(&query, OWN, pending());
            assert!(matches!(second, Landed::Merged(_)));
            release.send(()).unwrap();
            for landed in [result(first).await, result(second).await] {
                let Resolved::Response(content) = landed else {
                    panic!("{landed:?}");
                };
                assert_eq!(content[..], [round]);
            }
            while !flights.lock().is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn the_number_of_open_questions_is_limited() {
        let flights = Flights::new(1);
        let _first = flights.join(&Query::new("a.example", 1), OWN, pending());
        let second = flights.join(&Query::new("b.example", 1), OWN, pending());
        assert!(matches!(second, Landed::Full));
        assert!(matches!(
            flights.join(&Query::new("a.example", 1), OWN, pending()),
            Landed::Merged(_)
        ));
    }

    /// One client asks for many names that no resolver answers, and another one for a few.
    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_questions_makes_room_for_others() {
        let flights = Flights::new(4);
        let busy = Client::lan([192, 0, 2, 7].into());
        let name = |number: usize| Query::new(&format!("n{number}.example"), 1);
        let mut asked = Vec::new();
        for number in 0..4 {
            asked.push(result(flights.join(&name(number), busy, pending())));
        }
        assert!(matches!(
            flights.join(&name(4), busy, pending()),
            Landed::Full
        ));
        // The first question is now one of the other client, which has none besides.
        let mut merged = result(flights.join(&name(0), OWN, pending()));
        let answered = flights.join(&Query::new("other.example", 1), OWN, async {
            Resolved::Response(vec![1].into())
        });
        assert!(matches!(result(answered).await, Resolved::Response(_)));
        assert!(matches!(asked.remove(1).await, Resolved::Failed));
        tokio::select! {
            biased;
            _ = &mut merged => panic!("it was not displaced"),
            () = std::future::ready(()) => {}
        }
        // A name without an answer does not keep the client from asking others.
        flights.join(&name(5), busy, pending());
        tokio::time::advance(YIELD_AFTER).await;
        let newest = flights.join(&name(6), busy, pending());
        assert!(matches!(newest, Landed::First(_)));
        assert!(matches!(asked.remove(1).await, Resolved::Failed));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_and_leaves_nothing() {
        let flights = Flights::new(1);
        let query = Query::new("a.example", 1);
        let landed = flights.join(&query, OWN, async { panic!("expected in this test") });
        assert!(matches!(result(landed).await, Resolved::Failed));
        while !flights.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
