//! Which requests are answered.
//!
//! A page of another origin cannot read an answer, because no answer permits that (CORS). It could
//! if its own name resolved to this machine (DNS rebinding); then the request has that name in
//! `Host`. Without a token, only addresses and `localhost` are therefore accepted there.
//!
//! A browser sends a stored password with requests that other pages cause (CSRF). Changes therefore
//! need an `Origin` that names this port, which only a page of this port has, and JSON, which other
//! pages cannot send without asking first (CORS).

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, ORIGIN};
use hyper::{Method, Request, StatusCode, Version};

use crate::Settings;

/// Why a request is refused: the status of the answer, and one line.
pub(crate) type Refusal = (StatusCode, &'static str);

/// Checks method, `Host` and token of a request.
pub(crate) fn check<B>(request: &Request<B>, settings: &Settings) -> Result<(), Refusal> {
    let headers = request.headers();
    match (&settings.token, host(headers)) {
        // Only the token counts: a proxy in front may have any name.
        (Some(token), _) => {
            let mut given = headers.get_all(AUTHORIZATION).iter();
            if !given.any(|given| token.admits(given.as_bytes())) {
                let reason = "the token is missing or wrong; any user name will do";
                return Err((StatusCode::UNAUTHORIZED, reason));
            }
        }
        (None, Some(host)) if is_this_machine(host) => {}
        // No browser speaks HTTP/1.0.
        (None, None) if request.version() == Version::HTTP_10 && !headers.contains_key(HOST) => {}
        (None, _) => {
            let reason = "ask for an address such as 127.0.0.1, or for localhost";
            return Err((StatusCode::FORBIDDEN, reason));
        }
    }
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        Method::POST if request.uri().path() == CHANGE => change(headers, settings),
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "this only reads")),
    }
}

/// The path of changes.
pub(crate) const CHANGE: &str = "/link";

/// Whether a change comes from the page of this port. A token is checked already.
fn change(headers: &HeaderMap, settings: &Settings) -> Result<(), Refusal> {
    if settings.token.is_none() {
        let reason = "changes need a `token` in [monitor]; use sumlink link";
        return Err((StatusCode::FORBIDDEN, reason));
    }
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let from = origin.and_then(|origin| origin.split_once("://"));
    let is_own = from.is_some_and(|(_, from)| host(headers) == Some(from));
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if !is_own || kind != Some("application/json") {
        let reason = "changes need JSON from a page of this port; use sumlink link";
        return Err((StatusCode::FORBIDDEN, reason));
    }
    Ok(())
}

/// The only `Host` header.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(HOST).iter();
    match (all.next(), all.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    }
}

/// Whether a `Host` is an address or `localhost`, which no foreign name server can answer for.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri("/metrics");
        let mut request = request.version(Version::HTTP_11);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn settings(token: Option<&str>) -> Settings {
        Settings {
            listen: "127.0.0.1:9571".parse().unwrap(),
            token: token.and_then(Token::new),
            per_client: true,
        }
    }

    fn status(request: &Request<()>, settings: &Settings) -> Option<u16> {
        let refusal = check(request, settings).err()?;
        Some(refusal.0.as_u16())
    }

    #[test]
    fn a_foreign_name_is_refused() {
        let open = settings(None);
        for host in [
            "127.0.0.1",
            "127.0.0.1:9571",
            "[::1]:9571",
            "localhost:9571",
            "LOCALHOST",
        ] {
            assert_eq!(
                status(&request("GET", &[("host", host)]), &open),
                None,
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "evil.example:9571",
            "localhost.evil.example",
            "",
            "[::1",
        ] {
            let refused = status(&request("GET", &[("host", host)]), &open);
            assert_eq!(refused, Some(403), "{host}");
        }
        let two = request("GET", &[("host", "localhost"), ("host", "evil.example")]);
        assert_eq!(status(&two, &open), Some(403));
        assert_eq!(status(&request("GET", &[]), &open), Some(403));
        let mut old = request("GET", &[]);
        *old.version_mut() = Version::HTTP_10;
        assert_eq!(status(&old, &open), None);
    }

    #[test]
    fn with_a_token_nothing_else_counts() {
        let closed = settings(Some("0123456789abcdef"));
        let host = ("host", "status.example");
        assert_eq!(status(&request("GET", &[host]), &closed), Some(401));
        let wrong = ("authorization", "Bearer 0123456789abcdeg");
        assert_eq!(status(&request("GET", &[host, wrong]), &closed), Some(401));
        let right = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(status(&request("GET", &[host, right]), &closed), None);
        assert_eq!(status(&request("GET", &[right]), &closed), None);
    }

    #[test]
    fn only_its_own_page_can_change_a_link() {
        let closed = settings(Some("0123456789abcdef"));
        let token = ("authorization", "Bearer 0123456789abcdef");
        let (host, json) = (
            ("host", "a.example:1"),
            ("content-type", "application/json"),
        );
        let own = ("origin", "https://a.example:1");
        let post = |headers: &[(&str, &str)], path: &str, settings: &Settings| {
            let mut request = request("POST", headers);
            *request.uri_mut() = path.parse().unwrap();
            status(&request, settings)
        };
        assert_eq!(post(&[host, own, json, token], CHANGE, &closed), None);
        assert_eq!(post(&[host, own, json], CHANGE, &closed), Some(401));
        assert_eq!(
            post(&[host, own, json, token], "/metrics", &closed),
            Some(405)
        );
        for bad in [
            &[host, json, token][..],
            &[host, ("origin", "null"), json, token],
            &[host, ("origin", "https://evil.example"), json, token],
            &[host, ("origin", "https://a.example"), json, token],
            &[host, own, token],
            &[host, own, ("content-type", "text/plain"), token],
            &[own, json, token],
        ] {
            assert_eq!(post(bad, CHANGE, &closed), Some(403), "{bad:?}");
        }
        let local = ("host", "localhost");
        let open = post(
            &[local, ("origin", "http://localhost"), json],
            CHANGE,
            &settings(None),
        );
        assert_eq!(open, Some(403));
    }

    #[test]
    fn the_port_only_reads() {
        let host = ("host", "localhost");
        assert_eq!(status(&request("HEAD", &[host]), &settings(None)), None);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let refused = status(&request(method, &[host]), &settings(None));
            assert_eq!(refused, Some(405), "{method}");
        }
    }
}
