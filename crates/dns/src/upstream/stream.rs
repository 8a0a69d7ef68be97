//! Questions over a TCP or TLS connection that stays open (RFC 7766, RFC 7858).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{Boxed, Connect, Exchange, ExchangeError, Io, Response, random_id};
use crate::wire::{Form, Query, is_without_edns};

/// Time without questions after which a connection is closed: seconds for TCP (RFC 7766, section
/// 6.2.3), longer for TLS, which costs more to set up.
pub(super) const IDLE: Duration = Duration::from_secs(10);
pub(super) const TLS_IDLE: Duration = Duration::from_secs(60);

/// Time without any answer after which a connection with open questions counts as dead.
const STALL: Duration = Duration::from_secs(4);

/// Questions that wait for the connection.
const QUEUE: usize = 64;

/// Unanswered questions of a connection. Beyond that, the abandoned ones are forgotten.
const PENDING: usize = 1024;

/// Asks over one connection, which is made for the first question and again after it has ended.
/// Questions do not wait for the answers of others, and answers may come in any order.
pub(super) struct StreamExchange {
    connect: Connect,
    idle: Duration,
    form: Form,
    current: Mutex<Option<mpsc::Sender<Request>>>,
}

struct Request {
    query: Query,
    form: Form,
    reply: oneshot::Sender<Result<Answer, ExchangeError>>,
}

enum Answer {
    Message(Bytes),
    /// The resolver does not know EDNS.
    WithoutEdns,
}

type Pending = HashMap<u16, Request>;

impl StreamExchange {
    /// `is_encrypted` pads the questions.
    pub(super) fn new(connect: Connect, idle: Duration, is_encrypted: bool) -> Self {
        Self {
            connect,
            idle,
            form: if is_encrypted {
                Form::Padded
            } else {
                Form::Edns
            },
            current: Mutex::new(None),
        }
    }

    pub(super) async fn ask(&self, query: &Query) -> Result<Response, ExchangeError> {
        match self.ask_in(query, self.form).await? {
            Answer::Message(message) => Ok(Response { message, age: 0 }),
            Answer::WithoutEdns => match self.ask_in(query, Form::Plain).await? {
                Answer::Message(message) => Ok(Response { message, age: 0 }),
                Answer::WithoutEdns => Err(ExchangeError::Unusable),
            },
        }
    }

    /// Asks once more if an old connection ends: the resolver may close it at any time.
    async fn ask_in(&self, query: &Query, form: Form) -> Result<Answer, ExchangeError> {
        loop {
            let (requests, is_new) = self.connection();
            let (reply, answer) = oneshot::channel();
            let request = Request {
                query: query.clone(),
                form,
                reply,
            };
            let is_sent = requests.send(request).await.is_ok();
            match answer.await {
                Ok(answer) if is_sent => return answer,
                _ if is_new => return Err(ExchangeError::Closed),
                _ => self.forget(&requests),
            }
        }
    }

    /// The current connection, or a new one.
    fn connection(&self) -> (mpsc::Sender<Request>, bool) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = current.as_ref().filter(|requests| !requests.is_closed()) {
            return (requests.clone(), false);
        }
        let (sender, requests) = mpsc::channel(QUEUE);
        *current = Some(sender.clone());
        tokio::spawn(run(Arc::clone(&self.connect), self.idle, requests));
        (sender, true)
    }

    fn forget(&self, ended: &mpsc::Sender<Request>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|requests| requests.same_channel(ended))
        {
            *current = None;
        }
    }
}

impl Exchange for StreamExchange {
    fn exchange<'a>(&'a self, query: &'a Query) -> Boxed<'a, Result<Response, ExchangeError>> {
        Box::pin(self.ask(query))
    }
}

/// Serves one connection. When it ends, unanswered questions lose their reply channel.
async fn run(connect: Connect, idle: Duration, mut requests: mpsc::Receiver<Request>) {
    let stream = match timeout(STALL, connect()).await {
        Ok(Ok(stream)) => stream,
        failed => {
            let error = match failed {
                Ok(Err(error)) => error,
                _ => ExchangeError::TimedOut,
            };
            requests.close();
            while let Some(request) = requests.recv().await {
                // The question may have been given up.
                let _ = request.reply.send(Err(error.clone()));
            }
            return;
        }
    };
    let pending = Mutex::new(Pending::new());
    let (reader, writer) = tokio::io::split(stream);
    let ended = tokio::select! {
        ended = write(writer, &mut requests, &pending, idle) => ended,
        ended = read(reader, &pending) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to a resolver ended");
    }
}

async fn write(
    mut writer: WriteHalf<Box<dyn Io>>,
    requests: &mut mpsc::Receiver<Request>,
    pending: &Mutex<Pending>,
    idle: Duration,
) -> Result<(), ExchangeError> {
    loop {
        let request = match timeout(idle, requests.recv()).await {
            Ok(Some(request)) => request,
            Ok(None) => break,
            Err(_) if lock(pending).is_empty() => break,
            Err(_) => continue,
        };
        let frame = {
            let mut pending = lock(pending);
            if pending.len() >= PENDING {
                pending.retain(|_, request| !request.reply.is_closed());
            }
            if pending.len() >= PENDING {
                return Err(ExchangeError::TimedOut);
            }
            let mut id = random_id()?;
            while pending.contains_key(&id) {
                id = id.wrapping_add(1);
            }
            let message = request.query.encode(id, request.form);
            pending.insert(id, request);
            // One write, so that length and message are in one segment (RFC 7766, section 8).
            // A question has at most some hundred bytes.
            let mut frame = (message.len() as u16).to_be_bytes().to_vec();
            frame.extend(message);
            frame
        };
        writer.write_all(&frame).await?;
        writer.flush().await?;
    }
    // No further question may enter, and those that did are asked over another connection.
    requests.close();
    writer.shutdown().await?;
    Ok(())
}

async fn read(
    mut reader: ReadHalf<Box<dyn Io>>,
    pending: &Mutex<Pending>,
) -> Result<(), ExchangeError> {
    let mut was_waiting = false;
    let mut length = [0; 2];
    let mut filled = 0;
    loop {
        let read = match timeout(STALL, reader.read(&mut length[filled..])).await {
            Ok(read) => read?,
            Err(_) if was_waiting && !lock(pending).is_empty() => {
                return Err(ExchangeError::TimedOut);
            }
            Err(_) => {
                was_waiting = !lock(pending).is_empty();
                continue;
            }
        };
        if read == 0 {
            return Ok(());
        }
        filled += read;
        if filled < length.len() {
            continue;
        }
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        let whole = timeout(STALL, reader.read_exact(&mut message)).await;
        whole.map_err(|_| ExchangeError::TimedOut)??;
        (filled, was_waiting) = (0, false);
        answered(message, pending);
    }
}

/// Gives an answer to its question. Others than answers are ignored.
fn answered(message: Vec<u8>, pending: &Mutex<Pending>) {
    let Some(&id) = message.first_chunk::<2>() else {
        return;
    };
    let id = u16::from_be_bytes(id);
    let mut pending = lock(pending);
    let Some(request) = pending.get(&id) else {
        return;
    };
    let answer = if request.form != Form::Plain && is_without_edns(id, &message) {
        Answer::WithoutEdns
    } else if request.query.is_answered_by(id, &message) {
        Answer::Message(message.into())
    } else {
        return;
    };
    if let Some(request) = pending.remove(&id) {
        // The question may have been given up.
        let _ = request.reply.send(Ok(answer));
    }
}

fn lock(pending: &Mutex<Pending>) -> std::sync::MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
