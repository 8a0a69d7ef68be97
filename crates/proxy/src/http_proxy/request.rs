//! The head of a request to an HTTP proxy, parsed by a pure function over bytes: CONNECT (RFC 9110,
//! section 9.3.6), and absolute-form targets of all other methods (RFC 9112, section 3.2.2).

use std::str::FromStr;

use sumlink_transport::target::{Target, TargetError};

/// Longest request head, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// Most header fields of a request.
const MAX_FIELDS: usize = 128;

/// A program's request to an HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `CONNECT HOST:PORT`: a tunnel.
    Connect(Target),
    /// `GET http://HOST/PATH`, or another method: one request, to be passed on.
    Forward(Forwarded),
}

/// A request to be passed on to its origin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The origin server.
    pub target: Target,
    /// The head for the origin server: origin-form, without hop-by-hop fields, with `Connection:
    /// close`.
    pub head: Vec<u8>,
    /// Length of the body after the head in bytes; `None` if only the body reveals it (chunked).
    pub body: Option<u64>,
}

/// Why a program's bytes are not a request that this proxy serves. The program is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A SOCKS greeting.
    #[error(
        "the program speaks SOCKS, but this is an HTTP proxy port; configure it as the HTTP proxy, \
         or use the SOCKS port"
    )]
    Socks,
    /// A TLS handshake.
    #[error(
        "the program speaks TLS, but this port expects plain HTTP; configure the proxy as http://, \
         also for https:// pages"
    )]
    Tls,
    /// Not HTTP/1.
    #[error("not an HTTP/1.1 request: {0}")]
    Malformed(httparse::Error),
    /// The head is longer than [`MAX_HEAD`] or has too many fields.
    #[error(
        "the request head is longer than {MAX_HEAD} bytes or has more than {MAX_FIELDS} fields"
    )]
    TooLong,
    /// A request for a path, as sent to a web server.
    #[error(
        "this is an HTTP proxy port, not a web server; configure it as the program's HTTP proxy"
    )]
    NotAProxyRequest,
    /// Absolute-form with a scheme other than `http`.
    #[error("this proxy forwards only http:// requests; use CONNECT for other schemes")]
    Scheme,
    /// The host or the port is missing or invalid.
    #[error("invalid host or port in the request: {0}")]
    Target(#[from] TargetError),
    /// The length of the body is not a number, occurs twice, or contradicts Transfer-Encoding.
    #[error("the request's Content-Length is invalid or contradicts another field")]
    Length,
}

impl Request {
    /// Parses a request head. Returns `Ok(None)` if it is incomplete, otherwise the request and the
    /// length of its head; `bytes` after the head are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, RequestError> {
        match bytes.first() {
            Some(4 | 5) => return Err(RequestError::Socks),
            // ContentType handshake (RFC 8446, section 5.1).
            Some(0x16) => return Err(RequestError::Tls),
            _ => {}
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(&bytes[..bytes.len().min(MAX_HEAD)]) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(RequestError::TooLong);
            }
            Err(error) => return Err(RequestError::Malformed(error)),
        };
        // Always present in a complete request.
        let method = request.method.unwrap_or_default();
        let uri = request.path.unwrap_or_default();
        let minor = request.version.unwrap_or_default();
        if method == "CONNECT" {
            return Ok(Some((Self::Connect(uri.parse()?), length)));
        }
        let uri = Uri::parse(uri, method)?;
        let forwarded = Forwarded {
            body: body_length(request.headers)?,
            head: rewrite(method, &uri, minor, request.headers),
            target: uri.target,
        };
        Ok(Some((Self::Forward(forwarded), length)))
    }
}

/// The parts of an absolute-form target (RFC 9112, section 3.2.2).
struct Uri<'a> {
    target: Target,
    authority: &'a str,
    /// Path and query for the origin server.
    path: String,
}

impl<'a> Uri<'a> {
    fn parse(uri: &'a str, method: &str) -> Result<Self, RequestError> {
        let (scheme, rest) = uri
            .split_once("://")
            .ok_or(RequestError::NotAProxyRequest)?;
        if scheme.contains('/') {
            return Err(RequestError::NotAProxyRequest);
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(RequestError::Scheme);
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = path.split('#').next().unwrap_or_default();
        let path = match path {
            "" if method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        let target = match authority.strip_suffix(':').unwrap_or(authority) {
            // A name and password in a URI can deceive users (RFC 9110, section 4.2.4).
            host if host.contains('@') => return Err(TargetError::BadHost.into()),
            host if host.ends_with(']') || !host.contains(':') => {
                Target::from_str(&format!("{host}:80"))?
            }
            host => host.parse()?,
        };
        Ok(Self {
            target,
            authority,
            path,
        })
    }
}

/// The head as the origin server receives it. It keeps the program's HTTP version, because the
/// response is returned unchanged and the program must understand it. It has no Via field for the
/// same reason: both ends see a tunnel, and servers stop compressing when they see that field.
fn rewrite(method: &str, uri: &Uri<'_>, minor: u8, fields: &[httparse::Header<'_>]) -> Vec<u8> {
    let Uri {
        authority, path, ..
    } = uri;
    // The received Host field is replaced: RFC 9112, section 3.2.2.
    let mut head = format!("{method} {path} HTTP/1.{minor}\r\nHost: {authority}\r\n").into_bytes();
    for field in fields {
        if !is_hop_by_hop(field.name, fields) {
            head.extend_from_slice(field.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(field.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

/// Whether a field applies to this proxy only (RFC 9110, section 7.6.1).
fn is_hop_by_hop(name: &str, fields: &[httparse::Header<'_>]) -> bool {
    let is = |other: &&str| name.eq_ignore_ascii_case(other);
    // The body is passed on in its original framing, whatever Connection says.
    if ["content-length", "transfer-encoding"].iter().any(is) {
        return false;
    }
    let named_by_connection = || {
        fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case("connection"))
            .filter_map(|field| std::str::from_utf8(field.value).ok())
            .any(|value| value.split(',').any(|option| is(&option.trim())))
    };
    ["host", "connection", "keep-alive", "te", "upgrade"]
        .iter()
        .any(is)
        || name
            .get(..6)
            .is_some_and(|start| start.eq_ignore_ascii_case("proxy-"))
        || named_by_connection()
}

/// The length of a request's body (RFC 9112, section 6.3).
fn body_length(fields: &[httparse::Header<'_>]) -> Result<Option<u64>, RequestError> {
    let values = |name: &'static str| {
        let fields = fields.iter();
        fields
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    };
    let mut lengths = values("content-length");
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(RequestError::Length);
    }
    match (length, values("transfer-encoding").next()) {
        (None, None) => Ok(Some(0)),
        (None, Some(_)) => Ok(None),
        (Some(_), Some(_)) => Err(RequestError::Length),
        (Some(digits), None) if digits.iter().all(u8::is_ascii_digit) => {
            let number = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or(RequestError::Length)
        }
        (Some(_), None) => Err(RequestError::Length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(text: &str) -> Result<Request, RequestError> {
        let (request, length) = Request::decode(text.as_bytes())?.expect("a complete head");
        assert_eq!(length, text.find("\r\n\r\n").unwrap() + 4);
        Ok(request)
    }

    fn forwarded(text: &str) -> Forwarded {
        match decode(text).unwrap() {
            Request::Forward(forwarded) => forwarded,
            Request::Connect(target) => panic!("CONNECT {target}"),
        }
    }

    #[test]
    fn connect_takes_names_and_addresses() {
        for target in ["example.org:443", "192.0.2.7:80", "[2001:db8::1]:22"] {
            let request = decode(&format!(
                "CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\nearly"
            ));
            assert_eq!(request, Ok(Request::Connect(target.parse().unwrap())));
        }
    }

    #[test]
    fn an_absolute_form_request_is_rewritten_for_its_origin() {
        let request = forwarded(
            "POST http://Example.org:8080/a/b?c=d HTTP/1.1\r\nHost: other\r\nProxy-Connection: \
             keep-alive\r\nProxy-Authorization: Basic eA==\r\n\
             Connection: X-Mine, Content-Length\r\nX-Mine: 1\r\nContent-Length: 5\r\n\
             Keep-Alive: 3\r\nTE: trailers\r\nAccept: */*\r\n\r\n",
        );
        assert_eq!(request.target, "Example.org:8080".parse().unwrap());
        assert_eq!(request.body, Some(5));
        assert_eq!(
            std::str::from_utf8(&request.head).unwrap(),
            "POST /a/b?c=d HTTP/1.1\r\nHost: Example.org:8080\r\nContent-Length: 5\r\n\
             Accept: */*\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn the_origin_form_of_every_uri() {
        for (line, target, start) in [
            ("GET http://a", "a:80", "GET / HTTP/1.0\r\nHost: a\r\n"),
            ("GET HTTP://a:/", "a:80", "GET / HTTP/1.0\r\nHost: a:\r\n"),
            (
                "GET http://a?b#c",
                "a:80",
                "GET /?b HTTP/1.0\r\nHost: a\r\n",
            ),
            (
                "OPTIONS http://a:81",
                "a:81",
                "OPTIONS * HTTP/1.0\r\nHost: a:81\r\n",
            ),
            (
                "GET http://[::1]/",
                "[::1]:80",
                "GET / HTTP/1.0\r\nHost: [::1]\r\n",
            ),
            (
                "GET http://[::1]:8/",
                "[::1]:8",
                "GET / HTTP/1.0\r\nHost: [::1]:8\r\n",
            ),
        ] {
            let request = forwarded(&format!("{line} HTTP/1.0\r\n\r\n"));
            assert_eq!(request.target, target.parse().unwrap(), "{line}");
            assert!(request.head.starts_with(start.as_bytes()), "{line}");
            assert_eq!(request.body, Some(0));
        }
    }

    #[test]
    fn an_invalid_request_has_a_specific_error() {
        use RequestError as E;
        for (start, error) in [
            ("GET / HTTP/1.1", E::NotAProxyRequest),
            ("GET /?u=http://a HTTP/1.1", E::NotAProxyRequest),
            ("OPTIONS * HTTP/1.1", E::NotAProxyRequest),
            ("GET ftp://a/ HTTP/1.1", E::Scheme),
            ("GET https://a/ HTTP/1.1", E::Scheme),
            ("CONNECT a HTTP/1.1", E::Target(TargetError::NoPort)),
            ("CONNECT a:0 HTTP/1.1", E::Target(TargetError::BadPort)),
            (
                "CONNECT ::1:80 HTTP/1.1",
                E::Target(TargetError::NoBrackets),
            ),
            ("GET http://:80/ HTTP/1.1", E::Target(TargetError::BadHost)),
            (
                "GET http://u:p@a/ HTTP/1.1",
                E::Target(TargetError::BadHost),
            ),
            (
                "GET http://a/ HTTP/2.0",
                E::Malformed(httparse::Error::Version),
            ),
            ("GET http://a/ HTTP/1.1\r\nContent-Length: +1", E::Length),
            ("GET http://a/ HTTP/1.1\r\nContent-Length: ", E::Length),
            (
                "GET http://a/ HTTP/1.1\r\nContent-Length: 99999999999999999999",
                E::Length,
            ),
            (
                "GET http://a/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1",
                E::Length,
            ),
            (
                "GET http://a/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
                E::Length,
            ),
            ("\x05\x01\x00", E::Socks),
            ("\x16\x03\x01", E::Tls),
        ] {
            assert_eq!(decode(&format!("{start}\r\n\r\n")), Err(error), "{start}");
        }
        let endless = format!("GET http://a/ HTTP/1.1\r\nA: {}", "a".repeat(MAX_HEAD));
        assert_eq!(Request::decode(endless.as_bytes()), Err(E::TooLong));
        let many = format!(
            "GET http://a/ HTTP/1.1\r\n{}\r\n",
            "A: a\r\n".repeat(MAX_FIELDS + 1)
        );
        assert_eq!(Request::decode(many.as_bytes()), Err(E::TooLong));
    }

    proptest! {
        #[test]
        fn every_cut_is_incomplete(
            head in "(CONNECT [a-z]{1,9}:[1-9]|\
                     (GET|PUT) http://[a-z]{1,9}(:[1-9])?/[!-~&&[^#]]{0,9}) \
                     HTTP/1\\.[01]\r\n([A-Z][a-z-]{0,9}: [ -~]{0,20}\r\n){0,5}\r\n",
        ) {
            for cut in 0..head.len() {
                prop_assert_eq!(Request::decode(&head.as_bytes()[..cut]), Ok(None));
            }
            prop_assert!(Request::decode(head.as_bytes())?.is_some());
        }

        /// The bytes for the origin server are themselves a complete HTTP request.
        #[test]
        fn no_bytes_panic_nor_forge_a_head(
            start in "|(CONNECT|GET) (http://)?[ -~]{0,30}( HTTP/1\\.1\r\n)?",
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [start.as_bytes(), &rest, b"\r\n\r\n"].concat();
            if let Ok(Some((Request::Forward(forwarded), _))) = Request::decode(&bytes) {
                let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS + 2];
                let mut head = httparse::Request::new(&mut fields);
                let length = forwarded.head.len();
                let parsed = head.parse(&forwarded.head);
                prop_assert_eq!(parsed, Ok(httparse::Status::Complete(length)));
            }
        }
    }
}
