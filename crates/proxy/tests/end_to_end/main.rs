//! Every kind of port on loopback, as programs see it.

mod classes;
mod common;
mod curl;
mod http_proxy;
mod relay;
mod socks5;
