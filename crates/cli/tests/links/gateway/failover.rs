//! Links that fall silent, vanish, return and flap while the gateway runs.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::traffic::{Pauses, Transfer};
use sumlink_test_support::emulated::{Bench, until};

use super::{Helper, V4, lan, page, until_active};

/// Time for which a link is silent.
const OUTAGE: Duration = Duration::from_secs(4);
/// Longest accepted pause of a program's data: docs/failover.md has the measured ones, about 0.1 s;
/// a busy machine adds its own.
const LONGEST: Duration = Duration::from_secs(3);
/// Interval of the datagrams of a flow.
const INTERVAL: Duration = Duration::from_millis(20);
const FLAPS: usize = 50;

/// A flow of a LAN host to a server that returns each datagram.
struct Flow {
    stop: Arc<AtomicBool>,
    returned: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start(bench: &Bench) -> Self {
        let server: SocketAddr = format!("{V4}:4000").parse().unwrap();
        let bind = move || UdpSocket::bind(server).unwrap();
        let far = bench.lab.run(Side::Internet, bind).unwrap();
        let connect = move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(server).unwrap();
            socket
        };
        let near = bench.lab.run(Side::Lan, connect).unwrap();
        for socket in [&far, &near] {
            socket.set_read_timeout(Some(INTERVAL)).unwrap();
        }
        let stop = Arc::<AtomicBool>::default();
        let returned = Arc::<AtomicU64>::default();
        let (ended, counter) = (Arc::clone(&stop), Arc::clone(&returned));
        let sender = near.try_clone().unwrap();
        let is_over = move || ended.load(Ordering::Relaxed);
        let (of_server, of_sender) = (is_over.clone(), is_over.clone());
        let threads = vec![
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !of_server() {
                    if let Ok((length, from)) = far.recv_from(&mut buffer) {
                        let _ = far.send_to(&buffer[..length], from);
                    }
                }
            }),
            thread::spawn(move || {
                while !of_sender() {
                    let _ = sender.send(&[7; 200]);
                    thread::sleep(INTERVAL);
                }
            }),
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !is_over() {
                    if near.recv(&mut buffer).is_ok() {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }),
        ];
        Self {
            stop,
            returned,
            threads,
        }
    }

    fn goes_on(&self) {
        let before = self.returned.load(Ordering::Relaxed);
        until("datagrams return", || {
            (self.returned.load(Ordering::Relaxed) > before + 10).then_some(())
        });
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_download_and_a_flow_of_a_lan_host_outlast_silent_links() {
    let pinned = "[session.datagrams]\npolicy = \"pinned\"\n";
    let Some(mut lan) = super::lan_with_server(pinned) else {
        return;
    };
    lan.up(pinned);
    until_active(&lan, &["lte", "wifi"]);
    let source = format!("{V4}:8080").parse().unwrap();
    let download = Transfer::plain_download(&lan.bench, Side::Lan, Side::Internet, source);
    let flow = Flow::start(&lan.bench);
    for link in ["wifi", "lte"] {
        download.goes_on(2_000_000);
        flow.goes_on();
        let of_download = Pauses::of(download.counter());
        let of_flow = Pauses::of(Arc::clone(&flow.returned));
        lan.bench.set(link, "state=blackhole");
        thread::sleep(OUTAGE);
        let pauses = [of_download.longest(), of_flow.longest()];
        lan.bench.set(link, "state=up");
        eprintln!("{link} silent: longest pause of [download, flow]: {pauses:?}");
        assert!(pauses.iter().all(|pause| *pause < LONGEST), "{pauses:?}");
        until_active(&lan, &["lte", "wifi"]);
    }
    // It compares every byte.
    download.finish();
    drop(flow);
    assert_eq!(lan.end_gateway(), Some(0));
}

/// Deletes the interface of a link.
fn remove(lan: &Lan, link: &str) {
    lan.bench.set(link, "state=removed");
    for side in [Side::Client, Side::Server] {
        until("the interface is gone", || {
            let shown = lan.try_on(side, &["ip", "link", "show", "dev", link]);
            (!shown.status.success()).then_some(())
        });
    }
}

/// Deletes the interface of a link and makes it again.
fn renew(lan: &Lan, link: &str) {
    remove(lan, link);
    lan.bench.set(link, "state=up");
}

/// [`Lan::traces`] without order, and without the link-local addresses, which the kernel chooses
/// anew for an interface that is made again.
fn traces(lan: &Lan) -> Vec<String> {
    let link_local = |word: &str| word.starts_with("fe80::");
    let traces = lan.traces();
    let lines = traces.lines().map(|line| {
        let words = line.split_whitespace();
        let words = words.map(|word| if link_local(word) { "fe80::" } else { word });
        words.collect::<Vec<_>>().join(" ")
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn links_vanish_return_and_flap_and_nothing_is_left_behind() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let links = ["lte", "wifi"];
    // What the laboratory itself makes anew need not be in the order of its start.
    for link in links {
        renew(&lan, link);
    }
    let before = traces(&lan);
    let url = format!("http://{V4}/");
    lan.up("");
    until_active(&lan, &links);
    for (gone, left) in [("lte", "wifi"), ("wifi", "lte")] {
        remove(&lan, gone);
        until_active(&lan, &[left]);
        assert_ne!(page(&lan, Side::Lan, &url), "000", "without {gone}");
        assert_ne!(page(&lan, Side::Client, &url), "000", "without {gone}");
        lan.bench.set(gone, "state=up");
        until_active(&lan, &links);
    }
    for flap in 0..FLAPS {
        let link = links[flap % links.len()];
        lan.bench.set(link, "state=down");
        lan.bench.set(link, "state=up");
    }
    until_active(&lan, &links);
    assert_ne!(page(&lan, Side::Lan, &url), "000");
    assert_eq!(lan.end_gateway(), Some(0));
    for link in links {
        renew(&lan, link);
    }
    assert_eq!(traces(&lan), before);
}
