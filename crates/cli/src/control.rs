//! The control socket, over which `sumlink status` queries a running client or server.
//!
//! A Unix socket with mode 0600. Each connection carries one request and one answer, each a JSON
//! object on one line:
//!
//! - `{"cmd":"status"}` is answered with a [`Report`].
//! - `{"cmd":"events"}` is answered with the program's events, one object on each line, until
//!   either side ends the connection.
//! - `{"cmd":"link","name":"wwan0"}`, with or without a `change`, is answered by a client with a
//!   [`LinkReport`].
//! - `{"cmd":"rate","name":"lte","rate_bps":12000000}` is answered by an edge node with a
//!   [`LinkRate`].
//! - `{"cmd":"route","op":"list"}` and its kin ([`RouteRequest`]) are answered by a gateway.
//! - `{"cmd":"clients","op":"list"}` and its kin ([`ClientsRequest`]) are answered by a server.
//! - `{"cmd":"stop"}` ends a gateway; the answer is a [`Stopping`].
//! - Everything else is answered with `{"error":"..."}`.
//!
//! Connections without a request block no others: each has 5 s, and a connection beyond the limit
//! ends the oldest one.

mod ask;
mod clients_request;
mod error;
mod events;
mod request;
mod serve;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use sumlink_monitor::Report;
use sumlink_transport::LinkReport;
use tokio::sync::broadcast;

pub use ask::{ask, set_rate};
pub(crate) use ask::{clients, drain, follow, link, route, stop};
pub use clients_request::{ClientsRequest, InviteRequest};
pub use error::{ControlError, Refusal, RefusalKind};
pub use request::{LinkChange, LinkRate, RouteRequest};
pub(crate) use serve::report;
pub use socket::ControlSocket;

/// Longest path of a Unix socket, in bytes (unix(7): `sun_path`, less its NUL).
pub(crate) const LONGEST_PATH: usize = 107;

/// Time for which either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that answers at its control socket. It refuses the requests that are not for it.
pub trait Controlled: Clone + Send + Sync + 'static {
    /// The report of `sumlink status`.
    fn report(&self) -> impl Future<Output = Report> + Send;

    /// The program's events from now on, each as one JSON object.
    fn events(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        None
    }

    /// Shows the policy of a link, or changes it first.
    fn link(
        &self,
        _name: String,
        _change: Option<LinkChange>,
    ) -> impl Future<Output = Result<LinkReport, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here(
            "only a client has policies of links",
        )))
    }

    /// Sets the rate of a link.
    fn rate(&self, _asked: &LinkRate) -> Result<(), Refusal> {
        Err(Refusal::not_here(
            "only an edge node accepts rates; use --send-limit and --receive-limit at a client",
        ))
    }

    /// Shows, changes or tests the routing rules.
    fn route(
        &self,
        _asked: RouteRequest,
    ) -> impl Future<Output = Result<serde_json::Value, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here(
            "only a gateway has routing rules; start it with sumlink up",
        )))
    }

    /// Shows or changes the clients of a server, or makes an invitation.
    fn clients(
        &self,
        _asked: ClientsRequest,
    ) -> impl Future<Output = Result<serde_json::Value, Refusal>> + Send {
        std::future::ready(Err(Refusal::not_here("only a server has clients")))
    }

    /// Refuses new sessions from now on, or admits them again.
    fn drain(&self, _on: bool) -> Result<(), Refusal> {
        Err(Refusal::not_here("only a server has sessions to drain"))
    }

    /// Begins to end the program.
    fn stop(&self) -> Result<Stopping, Refusal> {
        Err(Refusal::not_here(
            "only a gateway ends on request; end others with SIGTERM",
        ))
    }
}

/// The answer to a request to stop.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stopping {
    /// Process id of the program that is about to end.
    pub stopping: u32,
}
