//! The exit side of a server: which targets streams and datagrams may reach, how they are dialed,
//! and the copy loop between a stream and a TCP connection.
//!
//! | Module | Contents |
//! |---|---|
//! | [`target`] | the host and port of a stream, and why a server did not connect it |
//! | [`egress`] | the policy: which targets a server connects streams to |
//! | [`dial`](mod@dial) | name lookup, check of every address, the order of connections |
//! | [`happy_eyeballs`] | the race of connections to the addresses of one name |
//! | [`relay`] | copies both directions of a connection and passes its end on |
//! | [`resolver`] | the server's own resolvers, for lookups of its clients |
//! | [`outgoing`] | the interface and the mark of the exit's packets |
//! | [`local_hop`] | connections that stay on this machine, without pacing |
//! | [`datagram`] | the interface between a session's datagrams and their sockets |
//! | [`udp`] | a client's sources of datagrams as UDP sockets, with limits |
//! | [`udp_io`] | many datagrams with one system call, and ICMP errors |
//! | [`sock_diag`] | the kernel's report about a program's socket |
//! | [`recent`] | a map in order of use |
//!
//! This crate lies below `sumlink-transport` and does not depend on it: it sees a stream only
//! through [`relay::Relayed`], and datagrams through [`datagram::DatagramSocket`]. The other
//! direction, a server that hands each stream to an exit above it, was not chosen for two reasons.
//! The result of the dial is the server's answer to an OPEN frame, so the exit would need a second
//! interface of the server to give it. And the client uses several of these modules as well: its
//! proxies the relay, the targets and the UDP sockets, its link manager the race of connections.

#![deny(unsafe_code)]

pub mod bucket;
pub mod datagram;
pub mod dial;
pub mod egress;
#[cfg(test)]
mod fixture;
pub mod happy_eyeballs;
pub mod local_hop;
pub mod outgoing;
pub mod pace;
pub mod processors;
pub mod recent;
pub mod relay;
pub mod resolver;
#[expect(
    unsafe_code,
    reason = "sock_diag(7) has no wrapper among the dependencies"
)]
pub mod sock_diag;
pub mod speed;
pub mod target;
pub mod udp;
pub mod udp_io;
mod unread;
