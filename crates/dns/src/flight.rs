//! Questions in flight to upstreams. Equal ones are asked once.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::forwarder::Resolved;
use crate::wire::Query;

/// The open questions. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    most: usize,
    open: Arc<Mutex<HashMap<Query, Flight>>>,
}

type Flight = watch::Receiver<Option<Resolved>>;

/// Gives the result of a question.
pub(crate) type Landing = Pin<Box<dyn Future<Output = Resolved> + Send>>;

/// How a question joins the open ones.
pub(crate) enum Landed {
    /// It is the first of its kind.
    First(Landing),
    /// It waits for an equal one.
    Merged(Landing),
    /// Too many are open.
    Full,
}

/// Removes a flight from the open ones, also when its task panics or is aborted.
struct Open {
    flights: Flights,
    query: Query,
    result: watch::Sender<Option<Resolved>>,
}

impl Flights {
    /// At most `most` different questions.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
        }
    }

    /// Joins an equal question, or resolves this one with `resolve`, in a separate task: if a
    /// client gives up, others and the cache still get the answer.
    pub(crate) fn join(
        &self,
        query: &Query,
        resolve: impl Future<Output = Resolved> + Send + 'static,
    ) -> Landed {
        let mut open = self.lock();
        if let Some(flight) = open.get(query) {
            return Landed::Merged(Box::pin(land(flight.clone())));
        }
        if open.len() >= self.most {
            return Landed::Full;
        }
        let (result, flight) = watch::channel(None);
        open.insert(query.clone(), flight.clone());
        let guard = Open {
            flights: self.clone(),
            query: query.clone(),
            result,
        };
        tokio::spawn(async move {
            let resolved = resolve.await;
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
            .is_some_and(|flight| flight.same_channel(&own))
        {
            open.remove(&self.query);
        }
    }
}

async fn land(mut flight: Flight) -> Resolved {
    match flight.wait_for(Option::is_some).await {
        Ok(resolved) => resolved.clone().unwrap_or(Resolved::Failed),
        Err(_) => Resolved::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

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
            let first = flights.join(&query, async move {
                released.await.unwrap();
                Resolved::Response(vec![round].into())
            });
            assert!(matches!(first, Landed::First(_)));
            let second = flights.join(&query, pending());
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
        let _first = flights.join(&Query::new("a.example", 1), pending());
        let second = flights.join(&Query::new("b.example", 1), pending());
        assert!(matches!(second, Landed::Full));
        assert!(matches!(
            flights.join(&Query::new("a.example", 1), pending()),
            Landed::Merged(_)
        ));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_and_leaves_nothing() {
        let flights = Flights::new(1);
        let query = Query::new("a.example", 1);
        let landed = flights.join(&query, async { panic!("expected in this test") });
        assert!(matches!(result(landed).await, Resolved::Failed));
        while !flights.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
