//! The server's exit side: which targets streams may reach, how they are dialed, and the copy loop
//! between a stream and a TCP connection.

pub(crate) mod dial;
pub mod egress;
pub(crate) mod happy_eyeballs;
pub mod relay;
#[expect(
    unsafe_code,
    reason = "sock_diag(7) has no wrapper among the dependencies"
)]
mod unread;
