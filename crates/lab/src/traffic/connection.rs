//! One connection of the traffic: opening it, and moving bytes until a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::pattern::Pattern;
use super::record::Recorder;
use super::{Request, Route, Window, now_ns, sleep_until_ns};

/// Bytes moved by one call; large, so that calls are few at gigabits per second.
pub(super) const CHUNK: usize = 256 << 10;
/// Interval at which blocking calls check whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The largest request.
const REQUEST_LIMIT: usize = 4096;
/// Bytes of the stamp at the start of a message.
pub(crate) const STAMP: usize = 8;

/// The transport of a flow: a socket, or a layer on top of one.
pub(crate) trait Wire: Read + Write + Send {
    /// The socket, for its timeouts.
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A TCP or MPTCP socket.
pub(crate) fn socket(address: SocketAddr, mptcp: bool) -> io::Result<Socket> {
    let protocol = if mptcp {
        Protocol::MPTCP
    } else {
        Protocol::TCP
    };
    Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))
}

/// Connects, with repeated attempts until the run is over; `None` if none succeeded.
pub(crate) fn connect(route: &Route, window: Window) -> Result<Option<TcpStream>, String> {
    while let Some(left) = window.left() {
        match try_connect(route, left) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if fatal(&error) => return Err(format!("connecting: {error}")),
            // No carrier, no route, or no answer: the link may come back.
            Err(_) => std::thread::sleep(POLL_INTERVAL.min(window.left().unwrap_or_default())),
        }
    }
    Ok(None)
}

/// Whether a repeated attempt is pointless.
fn fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::InvalidInput
    )
}

pub(super) fn try_connect(route: &Route, left: Duration) -> io::Result<TcpStream> {
    let peer = route.socks.unwrap_or(route.target);
    let socket = socket(peer, route.mptcp)?;
    if let Some(link) = route.device() {
        socket.bind_device(Some(link.as_bytes()))?;
    }
    socket.connect_timeout(&SockAddr::from(peer), left)?;
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    if route.socks.is_some() {
        stream.set_read_timeout(Some(left))?;
        socks_connect(&mut stream, route.target, route.class.as_deref())?;
    }
    Ok(stream)
}

/// RFC 1928: no authentication, or a user name that carries the class (RFC 1929), and CONNECT.
fn socks_connect(stream: &mut TcpStream, target: SocketAddr, user: Option<&str>) -> io::Result<()> {
    let refused = |what: String| io::Error::new(ErrorKind::ConnectionRefused, what);
    let wanted = if user.is_some() { 2 } else { 0 };
    stream.write_all(&[5, 1, wanted])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    if method != [5, wanted] {
        let what = if user.is_some() { "no name" } else { "a name" };
        return Err(refused(format!("the proxy wants {what}")));
    }
    if let Some(user) = user {
        let mut name = vec![1, u8::try_from(user.len()).unwrap_or(u8::MAX)];
        name.extend(user.bytes().take(255));
        name.extend([1, b'-']);
        stream.write_all(&name)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        if answer[1] != 0 {
            return Err(refused(format!("the proxy refuses the name {user}")));
        }
    }
    let mut request = vec![5, 1, 0];
    match target.ip() {
        IpAddr::V4(ip) => {
            request.push(1);
            request.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            request.push(4);
            request.extend(ip.octets());
        }
    }
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply)?;
    if reply[1] != 0 {
        return Err(refused(format!("the proxy replied {}", reply[1])));
    }
    let address = match reply[3] {
        1 => 4,
        4 => 16,
        _ => return Err(refused("the proxy's answer is malformed".to_owned())),
    };
    stream.read_exact(&mut [0; 18][..address + 2])
}

/// Sends the request: its length in two bytes, then JSON.
pub(crate) fn send_request(stream: &mut dyn Wire, request: &Request) -> io::Result<()> {
    let text = serde_json::to_vec(request)?;
    let length = u16::try_from(text.len()).map_err(io::Error::other)?;
    let mut message = length.to_be_bytes().to_vec();
    message.extend(text);
    stream.write_all(&message)
}

/// Reads a request sent by [`send_request`].
pub(crate) fn read_request(stream: &mut dyn Wire) -> io::Result<Request> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > REQUEST_LIMIT {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "the request is too long",
        ));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Why a transfer ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The run is over.
    Time,
    /// Everything has been moved.
    Done,
    /// The other side closed the connection.
    Closed,
}

/// Sends the pattern from its start: `size` bytes, or until the run is over.
pub(crate) fn send(stream: &mut dyn Wire, size: Option<u64>, window: Window) -> io::Result<End> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let left = size.map_or(CHUNK as u64, |size| size.saturating_sub(offset));
        if left == 0 {
            return Ok(End::Done);
        }
        let part = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        pattern.fill(offset, &mut buffer[..part]);
        match write_all(stream, &buffer[..part], window)? {
            End::Done => offset += part as u64,
            end => return Ok(end),
        }
    }
}

/// Writes everything, unless the run ends first.
pub(crate) fn write_all(stream: &mut dyn Wire, bytes: &[u8], window: Window) -> io::Result<End> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(left) = window.left() else {
            return Ok(End::Time);
        };
        let limit = Some(left.clamp(Duration::from_millis(1), POLL_INTERVAL));
        stream.tcp().set_write_timeout(limit)?;
        match stream.write(rest) {
            Ok(0) => return Ok(End::Closed),
            Ok(written) => rest = &rest[written..],
            Err(error) if again(&error) => {}
            Err(error) if gone(&error) => return Ok(End::Closed),
            Err(error) => return Err(error),
        }
    }
    Ok(End::Done)
}

/// Receives and checks the bytes from [`send`]: `size` bytes, or until the run is over.
pub(crate) fn receive(
    stream: &mut dyn Wire,
    size: Option<u64>,
    window: Window,
    recorder: &mut Recorder,
) -> Result<End, String> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0u64;
    loop {
        let left = size.map_or(CHUNK as u64, |size| size.saturating_sub(offset));
        if left == 0 {
            return Ok(End::Done);
        }
        let part = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        match read_some(stream, &mut buffer[..part], window).map_err(|e| e.to_string())? {
            Err(end) => return Ok(end),
            Ok(len) => {
                recorder.count(len);
                if let Some(at) = pattern.difference(offset, &buffer[..len]) {
                    return Err(format!("byte {at} differs from the sent one"));
                }
                offset += len as u64;
            }
        }
    }
}

/// Reads at least one byte, or returns why there is none.
fn read_some(
    stream: &mut dyn Wire,
    buffer: &mut [u8],
    window: Window,
) -> io::Result<Result<usize, End>> {
    loop {
        let Some(left) = window.left() else {
            return Ok(Err(End::Time));
        };
        let limit = Some(left.clamp(Duration::from_millis(1), POLL_INTERVAL));
        stream.tcp().set_read_timeout(limit)?;
        match stream.read(buffer) {
            Ok(0) => return Ok(Err(End::Closed)),
            Ok(len) => return Ok(Ok(len)),
            Err(error) if again(&error) => {}
            Err(error) if gone(&error) => return Ok(Err(End::Closed)),
            Err(error) => return Err(error),
        }
    }
}

/// Fills the buffer.
pub(crate) fn read_full(
    stream: &mut dyn Wire,
    buffer: &mut [u8],
    window: Window,
) -> io::Result<End> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_some(stream, &mut buffer[filled..], window)? {
            Ok(len) => filled += len,
            Err(end) => return Ok(end),
        }
    }
    Ok(End::Done)
}

/// Sends messages at a constant rate. Each carries its due time, not the time at which the socket
/// accepted it: waiting for the socket is part of a message's delay.
pub(crate) fn send_messages(
    stream: &mut dyn Wire,
    rate: u64,
    size: usize,
    window: Window,
) -> io::Result<End> {
    let pattern = Pattern::new();
    let gap_ns = (size as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1))).max(1) as u64;
    let first = now_ns();
    let mut message = vec![0; size];
    for number in 0u64.. {
        let due = first.saturating_add(number.saturating_mul(gap_ns));
        if due >= window.end_ns() {
            break;
        }
        sleep_until_ns(due);
        message[..STAMP].copy_from_slice(&due.to_be_bytes());
        pattern.fill(number.wrapping_mul(size as u64), &mut message[STAMP..]);
        match write_all(stream, &message, window)? {
            End::Done => {}
            end => return Ok(end),
        }
    }
    Ok(End::Time)
}

/// Receives the messages from [`send_messages`].
pub(crate) fn receive_messages(
    stream: &mut dyn Wire,
    size: usize,
    window: Window,
    recorder: &mut Recorder,
) -> Result<End, String> {
    let pattern = Pattern::new();
    let mut message = vec![0; size];
    for number in 0u64.. {
        match read_full(stream, &mut message, window).map_err(|error| error.to_string())? {
            End::Done => {}
            end => return Ok(end),
        }
        recorder.count(size);
        let mut stamp = [0; STAMP];
        stamp.copy_from_slice(&message[..STAMP]);
        recorder.message(u64::from_be_bytes(stamp));
        let start = number.wrapping_mul(size as u64);
        if pattern.difference(start, &message[STAMP..]).is_some() {
            return Err(format!("message {number} differs from the sent one"));
        }
    }
    Ok(End::Done)
}

fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            // TLS without close_notify.
            | ErrorKind::UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Connects with that user to a proxy that gives these answers; returns the bytes received by
    /// the proxy and the client's result.
    fn negotiate(
        user: Option<&str>,
        answers: Vec<(usize, &'static [u8])>,
    ) -> (Vec<u8>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut proxy, _) = listener.accept().unwrap();
        let proxy = thread::spawn(move || {
            let mut all = Vec::new();
            for (len, answer) in answers {
                let mut asked = vec![0; len];
                proxy.read_exact(&mut asked).unwrap();
                all.extend(asked);
                proxy.write_all(answer).unwrap();
            }
            all
        });
        let ended = socks_connect(&mut client, ([10, 0, 0, 1], 80).into(), user);
        (proxy.join().unwrap(), ended)
    }

    const CONNECT: [u8; 10] = [5, 1, 0, 1, 10, 0, 0, 1, 0, 80];
    const CONNECTED: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    #[test]
    fn the_class_is_sent_to_a_proxy_as_user_name() {
        let (asked, ended) = negotiate(None, vec![(3, &[5, 0]), (10, CONNECTED)]);
        ended.unwrap();
        assert_eq!(asked, [&[5, 1, 0][..], &CONNECT].concat());
        let answers: Vec<(usize, &[u8])> = vec![(3, &[5, 2]), (8, &[1, 0]), (10, CONNECTED)];
        let (asked, ended) = negotiate(Some("abcd"), answers);
        ended.unwrap();
        let name = [1, 4, b'a', b'b', b'c', b'd', 1, b'-'];
        assert_eq!(asked, [&[5, 1, 2][..], &name, &CONNECT].concat());
    }

    #[test]
    fn a_proxy_without_user_names_is_an_error() {
        let (_, ended) = negotiate(Some("abcd"), vec![(3, &[5, 0xff])]);
        assert!(ended.unwrap_err().to_string().contains("wants no name"));
        let (_, ended) = negotiate(Some("abcd"), vec![(3, &[5, 2]), (8, &[1, 1])]);
        assert!(ended.unwrap_err().to_string().contains("refuses the name"));
    }
}
