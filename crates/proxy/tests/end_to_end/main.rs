//! Every kind of port on loopback, as seen by programs.

mod classes;
mod common;
mod curl;
mod datagrams;
mod http_proxy;
mod relay;
mod socks5;
