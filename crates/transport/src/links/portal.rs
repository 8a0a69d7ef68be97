//! Captive portals: networks that answer for every web server until the user signs in.
//!
//! A link behind one fails every dial, with a timeout or a wrong key. A request over plain HTTP to
//! the server's own address finds the cause without involving a third party: a portal answers it
//! with a redirection to its own page (or status 511, RFC 6585, section 6), or with that page. The
//! latter may also be the page of a web server beside sumlink's. So an address for documentation,
//! which no network routes, is asked as well: only a portal answers in its place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::carrier::socket::{Way, connect_with_packets};

/// Port of plain HTTP, the one that portals intercept.
const HTTP: u16 = 80;

/// Time for the connection, and for the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most bytes read of an answer: status line and headers.
const HEAD: usize = 8 << 10;

/// Most headers of an answer.
const HEADERS: usize = 64;

/// Longest address of a portal that is shown, in bytes.
const LONGEST: usize = 200;

/// Addresses that no host has (RFC 5737, section 3, and RFC 3849).
const UNUSED_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const UNUSED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The sign-in page of the portal that intercepts `way`, or `None` if there is none. `server` is
/// the address that could not be reached, `host` its name.
pub(super) async fn find(way: Way<'_>, server: SocketAddr, host: &str) -> Option<String> {
    let unused = match server.ip() {
        IpAddr::V4(_) => UNUSED_V4.into(),
        IpAddr::V6(_) => UNUSED_V6.into(),
    };
    match answer(&head(way, server.ip(), host).await?, host) {
        // A transparent proxy answers for the unused address too, but with an error.
        Answer::Page => match answer(&head(way, unused, host).await?, host) {
            Answer::Page => Some(format!("http://{host}/")),
            Answer::SignIn(page) => Some(page),
            Answer::Other => None,
        },
        Answer::SignIn(page) => Some(page),
        Answer::Other => None,
    }
}

/// The beginning of the answer of `server` to a request for the front page of `host`.
async fn head(way: Way<'_>, server: IpAddr, host: &str) -> Option<Vec<u8>> {
    let server = SocketAddr::new(server, HTTP);
    timeout(2 * PATIENCE, request(way, server, host))
        .await
        .ok()?
}

async fn request(way: Way<'_>, server: SocketAddr, host: &str) -> Option<Vec<u8>> {
    let connected = connect_with_packets(way, server, None, None, PATIENCE).await;
    let mut stream = connected.ok()?.stream;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut head = Vec::new();
    while head.len() < HEAD && !has_end(&head) {
        let read = stream.read_buf(&mut head).await;
        if !matches!(read, Ok(1..)) {
            break;
        }
    }
    Some(head)
}

fn has_end(head: &[u8]) -> bool {
    head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

/// An answer to a request for a page.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// A portal's: the page to which it sends its reader.
    SignIn(String),
    /// A page, of the server or of a portal.
    Page,
    /// Anything else.
    Other,
}

/// Reads the beginning of an answer to a request for a page of `host`.
fn answer(head: &[u8], host: &str) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let (Ok(_), Some(code)) = (answer.parse(head), answer.code) else {
        return Answer::Other;
    };
    let location = answer
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("location"))
        .and_then(|header| std::str::from_utf8(header.value).ok())
        .map(printable)
        .filter(|location| !location.is_empty());
    match (code, location) {
        // The server's own web server redirects within its own name.
        (300..400, Some(location)) if !is_at(&location, host) => Answer::SignIn(location),
        (511, location) => Answer::SignIn(location.unwrap_or_else(|| format!("http://{host}/"))),
        (200..300, _) => Answer::Page,
        _ => Answer::Other,
    }
}

/// Whether a location is relative, or at this host.
fn is_at(location: &str, host: &str) -> bool {
    let Some((_, rest)) = location.split_once("://") else {
        return !location.starts_with("//");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let without_port = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    };
    without_port.eq_ignore_ascii_case(host)
}

/// The text of an untrusted header for a log line.
fn printable(text: &str) -> String {
    let visible = text.chars().filter(|c| c.is_ascii_graphic());
    visible.take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: &str, headers: &str) -> Answer {
        let head = format!("HTTP/1.1 {status}\r\n{headers}\r\n");
        answer(head.as_bytes(), "bond.example.org")
    }

    fn sign_in(status: &str, headers: &str) -> Option<String> {
        match of(status, headers) {
            Answer::SignIn(page) => Some(page),
            Answer::Page | Answer::Other => None,
        }
    }

    #[test]
    fn a_redirection_to_another_host_is_a_portal() {
        for (location, expected) in [
            (
                "http://login.hotel.example/?mac=1",
                Some("http://login.hotel.example/?mac=1"),
            ),
            ("//portal.example/", Some("//portal.example/")),
            (
                "http://bond.example.org@portal.example/",
                Some("http://bond.example.org@portal.example/"),
            ),
            ("https://bond.example.org/", None),
            ("https://BOND.example.org:443/a", None),
            ("/index.html", None),
            ("", None),
        ] {
            let found = sign_in("302 Found", &format!("Location: {location}\r\n"));
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn status_511_is_a_portal_and_other_answers_are_not() {
        assert_eq!(
            sign_in("511 Network Authentication Required", "").as_deref(),
            Some("http://bond.example.org/")
        );
        for (status, expected) in [
            ("200 OK", Answer::Page),
            ("204 No Content", Answer::Page),
            ("301 Moved", Answer::Other),
            ("404 Not Found", Answer::Other),
            ("502 Bad Gateway", Answer::Other),
            ("999 ?", Answer::Other),
        ] {
            assert_eq!(of(status, ""), expected, "{status}");
        }
        for head in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b""] {
            assert_eq!(answer(head, "h"), Answer::Other);
        }
    }

    #[test]
    fn a_portal_cannot_write_control_characters_into_the_log() {
        let found = sign_in("302 Found", "Location: http://x/\x1b[2J\u{7f}\r\n");
        assert!(found.is_none_or(|page| page.chars().all(|c| c.is_ascii_graphic())));
        let long = format!("Location: http://x/{}\r\n", "a".repeat(1000));
        assert_eq!(
            sign_in("302 Found", &long).map(|page| page.len()),
            Some(LONGEST)
        );
    }
}
