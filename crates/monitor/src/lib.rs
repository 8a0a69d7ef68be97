//! The monitoring port of a running client, server or gateway: metrics for Prometheus, a health
//! check, and a status page, over HTTP.
//!
//! Everything comes from one [`Report`], the same that `sumlink status --json` prints. Answers are
//! at most 0.1 s old: a report is kept that long, and ten times as long as it took to make, so that
//! frequent requests cost the program little. With a token, the page can change the policies of
//! links; all other requests only read.
//!
//! - [`Monitor`] binds the port and serves it.
//! - [`Token`] is the secret that other machines need.
//! - `access` decides which requests are answered, `http` limits connections, `metrics` writes the
//!   text formats, `page` has the status page and its history.

#![forbid(unsafe_code)]

mod access;
mod cache;
mod http;
mod metrics;
mod page;
mod process;
mod report;
mod token;

use std::io;
use std::net::SocketAddr;

use sumlink_transport::{LinkPolicy, LinkReport};
use sumlink_util::plain;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

pub use metrics::{Kind, Metric, metrics};
pub use process::Process;
pub use report::{LogCounts, Report};
pub use token::{Token, TokenError};

/// A program that is watched.
pub trait Watched: Send + Sync + 'static {
    /// The current report.
    fn report(&self) -> impl Future<Output = Report> + Send;

    /// Sets the policy of a link until the program ends; `None` restores the configured one. An
    /// error is one line.
    fn set_link(
        &self,
        name: String,
        policy: Option<LinkPolicy>,
    ) -> impl Future<Output = Result<LinkReport, String>> + Send;

    /// The program's events from now on, each as one JSON object.
    fn events(&self) -> broadcast::Receiver<std::sync::Arc<str>>;
}

/// Address and access of a monitoring port.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address. One that other machines can reach needs a token.
    pub listen: SocketAddr,
    /// The secret that every request needs; none: whoever reaches the address may read.
    pub token: Option<Token>,
    /// Whether the metrics of a server have the client as a label, instead of sums over all.
    pub per_client: bool,
}

/// Why settings are refused: other machines could read without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "other machines can reach {0}: add `token = \"FILE\"` with a secret, or listen on 127.0.0.1"
)]
pub struct OpenToAll(pub SocketAddr);

impl Settings {
    /// Checks that only this machine, or holders of a token, may read.
    ///
    /// # Errors
    ///
    /// There is no token, and the address is not a loopback address.
    pub fn check(&self) -> Result<(), OpenToAll> {
        let is_private = self.listen.ip().to_canonical().is_loopback();
        match self.token.is_some() || is_private {
            true => Ok(()),
            false => Err(OpenToAll(self.listen)),
        }
    }
}

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The settings permit too much.
    #[error("[monitor]: {0}")]
    Open(#[from] OpenToAll),
    /// The system refuses.
    #[error("cannot listen on {address} for [monitor]: {}", hint(reason))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
}

fn hint(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is taken; choose another one, or stop the program that has it (`ss -ltnp` \
             shows which)"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "not permitted; choose a port above 1023, or grant CAP_NET_BIND_SERVICE".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address (`ip address` lists its addresses)".to_owned()
        }
        _ => plain(reason).to_string(),
    }
}

/// A monitoring port that is bound and not yet served.
#[derive(Debug)]
pub struct Monitor {
    listener: TcpListener,
    settings: Settings,
}

impl Monitor {
    /// Binds the port.
    ///
    /// # Errors
    ///
    /// The settings permit too much, or the system refuses the address.
    pub async fn bind(settings: Settings) -> Result<Self, BindError> {
        settings.check()?;
        let bound = TcpListener::bind(settings.listen).await;
        let address = settings.listen;
        let listener = bound.map_err(|reason| BindError::Listen { address, reason })?;
        Ok(Self { listener, settings })
    }

    /// The address, with the port chosen by the system if port 0 was configured.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests without end.
    pub async fn serve(self, program: impl Watched) {
        http::serve(self.listener, self.settings, program).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_served_without_a_token() {
        for (listen, is_fine) in [
            ("127.0.0.1:9571", true),
            ("127.9.9.9:1", true),
            ("[::1]:9571", true),
            ("[::ffff:127.0.0.1]:9571", true),
            ("0.0.0.0:9571", false),
            ("[::]:9571", false),
            ("192.0.2.1:9571", false),
        ] {
            let mut settings = Settings {
                listen: listen.parse().unwrap(),
                token: None,
                per_client: true,
            };
            assert_eq!(settings.check().is_ok(), is_fine, "{listen}");
            settings.token = Some(Token::new("0123456789abcdef").unwrap());
            assert_eq!(settings.check(), Ok(()));
        }
    }
}
