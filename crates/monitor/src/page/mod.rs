//! The status page: its files, its history and the stream of events.

mod history;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sumlink_transport::slots::Slot;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

pub(crate) use history::History;

/// The content type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// Events that wait for one reader; further ones are dropped and counted.
const QUEUE: usize = 64;

/// Interval of comments that show both sides that the connection lives.
const ALIVE: Duration = Duration::from_secs(15);

/// The page itself; `may_change` shows what changes the policies of links.
pub(crate) fn index(may_change: bool) -> String {
    let page = include_str!("index.html");
    match may_change {
        true => page.replace("data-changes=\"no\"", "data-changes=\"yes\""),
        false => page.to_owned(),
    }
}

/// A file of the page: its content type and its text.
pub(crate) fn asset(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/page.css" => ("text/css; charset=utf-8", include_str!("page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", include_str!("page.js")),
        _ => return None,
    })
}

/// Turns events into the text of server-sent events, until the reader leaves or loses its slot.
pub(crate) fn follow(
    mut events: broadcast::Receiver<Arc<str>>,
    mut slot: Slot,
) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        // At once, so that the browser knows that it is connected.
        if sender
            .send(Bytes::from_static(b"retry: 2000\n\n"))
            .await
            .is_err()
        {
            return;
        }
        loop {
            let text = tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => format!("data: {event}\n\n"),
                    Err(RecvError::Lagged(missed)) => {
                        format!("data: {{\"event\":\"missed\",\"events\":{missed}}}\n\n")
                    }
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep(ALIVE) => ":\n\n".to_owned(),
                () = sender.closed() => return,
                Ok(()) = &mut slot => return,
            };
            // A reader that is too slow holds up only this task: the events it misses are counted.
            if sender.send(text.into()).await.is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use sumlink_transport::slots::Slots;

    use super::*;

    #[tokio::test]
    async fn a_slow_reader_learns_how_many_events_it_missed() {
        let (sender, events) = broadcast::channel::<Arc<str>>(4);
        let mut slots = Slots::new(1);
        let mut reader = follow(events, slots.enter());
        let mut next = async || {
            let bytes = reader.recv().await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        assert_eq!(next().await, "retry: 2000\n\n");
        sender.send("{\"event\":\"up\"}".into()).unwrap();
        assert_eq!(next().await, "data: {\"event\":\"up\"}\n\n");
        for _ in 0..1000 {
            sender.send("{}".into()).unwrap();
        }
        let missed = next().await;
        assert_eq!(missed, "data: {\"event\":\"missed\",\"events\":996}\n\n");
        assert_eq!(next().await, "data: {}\n\n");
        // Another reader takes the only slot.
        let _other = slots.enter();
        while reader.recv().await.is_some() {}
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        let page = index(true);
        assert!(page.contains("data-changes=\"yes\"") && index(false).contains("=\"no\""));
        let [style, script] = ["/page.css", "/page.js"].map(|path| asset(path).unwrap().1);
        for text in [&page, style, script] {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("http:") && !text.contains("https:"),
                "{text}"
            );
            assert!(!text.contains("=\"//"), "{text}");
        }
        assert!(
            !page.contains("<style") && !page.contains(" style="),
            "CSP forbids it"
        );
        assert!(
            !page.contains("<script>") && !page.contains(" onclick="),
            "CSP forbids it"
        );
    }
}
