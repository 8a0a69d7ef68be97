//! The server's side of flows of datagrams, all on one socket.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sumlink_scenario::scenario::Schedule;

use crate::error::LabError;
use crate::prose::note;

use super::super::pattern::Pattern;
use super::super::record::Recorder;
use super::super::server::report;
use super::super::{Job, Request, Window};
use super::{HEADER, Header, Kind, LARGEST, again, is_right, prepare, send_on_schedule};

/// The most flows; further requests are not answered.
const FLOWS: usize = 1024;

/// Serves flows in the background until the process ends; returns the address.
pub(crate) fn serve(address: SocketAddr) -> Result<SocketAddr, LabError> {
    let failed = |error: io::Error| LabError::system(format!("UDP on {address}"), error);
    let socket = UdpSocket::bind(address).map_err(failed)?;
    prepare(&socket).map_err(failed)?;
    let local = socket.local_addr().map_err(failed)?;
    let server = Server {
        socket: Arc::new(socket),
        flows: HashMap::new(),
        pattern: Pattern::new(),
    };
    thread::spawn(move || {
        if let Err(error) = server.run() {
            note!("receiving datagrams: {error}");
        }
    });
    Ok(local)
}

struct Server {
    socket: Arc<UdpSocket>,
    flows: HashMap<u32, Arc<Flow>>,
    pattern: Pattern,
}

/// A flow that a client has requested.
struct Flow {
    request: Request,
    /// Where its datagrams come from now: a translator may change the address.
    peer: Mutex<SocketAddr>,
    recorder: Mutex<Recorder>,
}

impl Server {
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; LARGEST];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => self.take(&buffer[..length], from),
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        let Some((header, content)) = Header::read(datagram) else {
            return;
        };
        if header.kind == Kind::Request {
            self.requested(header, content, from);
            return;
        }
        let Some(flow) = self.flows.get(&header.flow) else {
            return;
        };
        *locked(&flow.peer) = from;
        match header.kind {
            Kind::Echo => {
                let _ = self.socket.send_to(datagram, from);
            }
            Kind::Data => {
                let mut recorder = locked(&flow.recorder);
                recorder.datagram(header.number, header.sent_ns, datagram.len());
                if !is_right(&self.pattern, header.number, content) {
                    let error = format!("datagram {} differs from the sent one", header.number);
                    recorder.record.error = Some(error);
                }
            }
            Kind::Request | Kind::Ready => {}
        }
    }

    /// Starts the flow, unless an earlier copy of the request has; answers in both cases.
    fn requested(&mut self, header: Header, content: &[u8], from: SocketAddr) {
        if !self.flows.contains_key(&header.flow) {
            let Ok(request) = serde_json::from_slice::<Request>(content) else {
                return;
            };
            if self.flows.len() >= FLOWS || request.flow != header.flow {
                return;
            }
            self.start(request, from);
        }
        let mut ready = [0; HEADER];
        Header {
            kind: Kind::Ready,
            ..header
        }
        .write(&mut ready);
        let _ = self.socket.send_to(&ready, from);
    }

    fn start(&mut self, request: Request, from: SocketAddr) {
        let window = Window {
            epoch_ns: request.epoch_ns,
            duration_ms: request.duration_ms,
        };
        // Uploads have odd numbers, also where both directions share a flow.
        let mut recorder = Recorder::new(request.flow | 1, window, request.interval_ms);
        recorder.record.connected = true;
        let flow = Arc::new(Flow {
            request,
            peer: Mutex::new(from),
            recorder: Mutex::new(recorder),
        });
        self.flows.insert(flow.request.flow, Arc::clone(&flow));
        let socket = Arc::clone(&self.socket);
        thread::spawn(move || flow.carry_out(&socket, window));
    }
}

impl Flow {
    /// Sends if the client wants datagrams, and reports at the end if it sends some.
    fn carry_out(&self, socket: &UdpSocket, window: Window) {
        let Job::Datagrams {
            sizes,
            cycle_ns,
            down,
            up,
        } = &self.request.job
        else {
            return;
        };
        if *down {
            let schedule = Schedule::new(sizes.clone(), *cycle_ns);
            let send = |datagram: &[u8]| {
                let peer = *locked(&self.peer);
                socket.send_to(datagram, peer)
            };
            send_on_schedule((Kind::Data, self.request.flow), &schedule, window, send);
        }
        while let Some(left) = window.left() {
            thread::sleep(left + Duration::from_millis(1));
        }
        if *up && let Err(error) = report(&locked(&self.recorder)) {
            note!("reporting datagrams: {error}");
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
