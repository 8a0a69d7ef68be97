//! A network namespace with one TUN device, for the thread that creates it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Duration;

nix::ioctl_write_ptr_bad!(
    tun_set_iff,
    nix::request_code_write!(b'T', 202, 4),
    libc::ifreq
);

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The far end of a flow.
pub(crate) fn far_end(flow: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + flow as u8)
}

/// Turns off kernel behavior besides congestion control that every script would have to include.
const SYSCTLS: [(&str, &str); 4] = [
    ("tcp_early_retrans", "0"), // tail loss probes
    ("tcp_frto", "0"),          // detection of timeouts that were wrong
    ("tcp_timestamps", "0"),    // every packet has the same size
    ("tcp_no_metrics_save", "1"),
];

pub(crate) struct Tun(File);

impl Tun {
    pub(crate) fn new() -> Self {
        for (name, value) in SYSCTLS {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value).expect("a sysctl");
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").expect("/dev/net/tun");
        let mut ifr_name = [0; libc::IFNAMSIZ];
        for (to, from) in ifr_name.iter_mut().zip(b"peer") {
            *to = *from as libc::c_char;
        }
        let request = libc::ifreq {
            ifr_name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
            },
        };
        // SAFETY: the descriptor is open and the request is complete, as TUNSETIFF requires.
        unsafe { tun_set_iff(file.as_raw_fd(), &request) }.expect("a TUN device");
        ip(&["addr", "add", &format!("{HERE}/24"), "dev", "peer"]);
        // One packet at a time, so that the kernel does not wait for more.
        ip(&[
            "link",
            "set",
            "peer",
            "up",
            "gso_max_segs",
            "1",
            "txqueuelen",
            "10000",
        ]);
        Self(file)
    }

    /// Sets the minimum retransmission timeout to a far end from now on.
    pub(crate) fn set_rto_min(&self, far: Ipv4Addr, least: Duration) {
        let least = format!("{}ms", least.as_millis());
        ip(&[
            "route",
            "add",
            &format!("{far}/32"),
            "dev",
            "peer",
            "rto_min",
            &least,
        ]);
    }

    /// The next packet sent by the kernel, if any.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 2000];
        match self.0.read(&mut packet) {
            Ok(length) => {
                packet.truncate(length);
                Some(packet)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("reading from the TUN device: {error}"),
        }
    }

    pub(crate) fn send(&mut self, packet: &[u8]) {
        self.0.write_all(packet).expect("the TUN device takes it");
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("ip starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "ip {}: {message}",
        arguments.join(" ")
    );
}
