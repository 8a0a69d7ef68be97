//! Starts tasks in the order in which they were created.
//!
//! A multi-threaded runtime starts spawned tasks in any order: the one spawned last goes into a
//! separate slot and often runs first. Connections must not overtake each other in this way. iperf3
//! `--bidir` opens two connections and relies on the order in which its server accepts them. If
//! they arrive in reverse order, both ends of one connection only write and both ends of the other
//! only read.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;

use tokio::task::{JoinSet, unconstrained};

/// Polls `task` once and then spawns it on `tasks`.
///
/// Its work up to its first wait, such as sending a request to a session or the first packet of a
/// connection, is done before this returns. A panic there ends the task and not the caller, like a
/// later one.
pub fn spawn_begun<F>(tasks: &mut JoinSet<F::Output>, task: F) -> impl Future<Output = ()>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Before the returned future, which therefore has no place for the whole task.
    let mut task = Box::pin(task);
    async move {
        let begun = poll_fn(|cx| {
            // The caller may have used up its cooperative budget; the task would then yield
            // without a reason.
            let mut first = unconstrained(task.as_mut());
            let poll = catch_unwind(AssertUnwindSafe(|| std::pin::Pin::new(&mut first).poll(cx)));
            Poll::Ready(poll)
        });
        match begun.await {
            Ok(Poll::Pending) => tasks.spawn(task),
            Ok(Poll::Ready(output)) => tasks.spawn(async { output }),
            Err(panic) => tasks.spawn(async { resume_unwind(panic) }),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_start_in_order_and_continue_in_the_background() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for number in 0..1000 {
            let begun = Arc::clone(&begun);
            let task = async move {
                // More than the runtime's cooperative budget allows.
                tokio::task::coop::consume_budget().await;
                begun.lock().unwrap().push(number);
                tokio::task::yield_now().await;
                number
            };
            spawn_begun(&mut tasks, task).await;
        }
        assert!(begun.lock().unwrap().iter().copied().eq(0..1000));
        let mut ended = tasks.join_all().await;
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..1000));
    }

    #[tokio::test]
    async fn an_immediate_end_or_panic_belongs_to_the_task() {
        let mut tasks = JoinSet::new();
        spawn_begun(&mut tasks, async { panic!("a test") }).await;
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
        spawn_begun(&mut tasks, async { 7 }).await;
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), 7);
    }
}
