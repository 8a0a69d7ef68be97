//! The client's side of a flow of datagrams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use socket2::SockRef;
use sumlink_scenario::scenario::{Schedule, probe_schedule};

use crate::results::DatagramsRecord;

use super::super::pattern::Pattern;
use super::super::record::Recorder;
use super::super::{Job, Request, Route, Window, now_ns};
use super::{
    HEADER, Header, Kind, LARGEST, POLL_INTERVAL, again, is_right, prepare, send_on_schedule,
};

/// Carries out a request for datagrams until the run is over. The record stays unconnected if
/// nothing came back.
pub(in crate::traffic) fn run(
    route: &Route,
    request: &Request,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let window = Window {
        epoch_ns: request.epoch_ns,
        duration_ms: request.duration_ms,
    };
    let sending = match &request.job {
        Job::Datagrams {
            sizes,
            cycle_ns,
            up,
            ..
        } => up.then(|| (Kind::Data, Schedule::new(sizes.clone(), *cycle_ns))),
        Job::Echo => Some((Kind::Echo, probe_schedule())),
        _ => return Err("this is no request for datagrams".to_owned()),
    };
    let echo = request.job == Job::Echo;
    recorder.record.datagrams = Some(DatagramsRecord {
        echo,
        ..DatagramsRecord::default()
    });
    let server = route.datagrams.ok_or("the route carries no datagrams")?;
    let failed = |error: io::Error| format!("datagrams: {error}");
    let Some(socket) = connect(server, route.device(), window).map_err(failed)? else {
        return Ok(());
    };
    let text = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let ready = Arc::<AtomicBool>::default();
    let sender = Sender {
        socket: socket.try_clone().map_err(failed)?,
        flow: request.flow,
        request: text,
        ready: Arc::clone(&ready),
        window,
    };
    let sender = sender.start(sending);
    let received = receive(&socket, &ready, window, recorder);
    if sender.join().is_err() {
        return Err("the sender of datagrams failed".to_owned());
    }
    recorder.record.connected = ready.load(Ordering::Relaxed);
    received
}

/// A connected socket, bound to the link; `None` if the link had no address during the run.
fn connect(
    server: SocketAddr,
    link: Option<&str>,
    window: Window,
) -> io::Result<Option<UdpSocket>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    prepare(&socket)?;
    if let Some(link) = link {
        SockRef::from(&socket).bind_device(Some(link.as_bytes()))?;
    }
    while let Some(left) = window.left() {
        match socket.connect(server) {
            Ok(()) => return Ok(Some(socket)),
            Err(error) if again(&error) => thread::sleep(POLL_INTERVAL.min(left)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The half that sends.
struct Sender {
    socket: UdpSocket,
    flow: u32,
    request: Vec<u8>,
    /// Set by the other half when anything has come back.
    ready: Arc<AtomicBool>,
    window: Window,
}

impl Sender {
    fn start(self, sending: Option<(Kind, Schedule)>) -> JoinHandle<()> {
        thread::spawn(move || {
            self.ask();
            if let Some((kind, schedule)) = sending {
                let send = |datagram: &[u8]| self.socket.send(datagram);
                send_on_schedule((kind, self.flow), &schedule, self.window, send);
            }
        })
    }

    /// Repeats the request until the server has it.
    fn ask(&self) {
        let mut start = [0; HEADER];
        while let Some(left) = self.window.left() {
            if self.ready.load(Ordering::Relaxed) {
                return;
            }
            let kind = Kind::Request;
            Header {
                kind,
                flow: self.flow,
                number: 0,
                sent_ns: now_ns(),
            }
            .write(&mut start);
            let _ = self
                .socket
                .send(&[&start, self.request.as_slice()].concat());
            thread::park_timeout(POLL_INTERVAL.min(left));
        }
    }
}

fn receive(
    socket: &UdpSocket,
    ready: &AtomicBool,
    window: Window,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; LARGEST];
    while window.left().is_some() {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if again(&error) => continue,
            Err(error) => return Err(format!("receiving datagrams: {error}")),
        };
        let Some((header, content)) = Header::read(&buffer[..length]) else {
            return Err("a datagram of another program arrived".to_owned());
        };
        if header.flow != recorder.record.flow {
            return Err(format!("a datagram of flow {} arrived", header.flow));
        }
        ready.store(true, Ordering::Relaxed);
        if matches!(header.kind, Kind::Data | Kind::Echo) {
            recorder.datagram(header.number, header.sent_ns, length);
            if !is_right(&pattern, header.number, content) {
                return Err(format!(
                    "datagram {} differs from the sent one",
                    header.number
                ));
            }
        }
    }
    Ok(())
}
