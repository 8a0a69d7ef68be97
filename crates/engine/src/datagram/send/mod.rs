//! The sending side: from a program's datagram to the packets of a path.

mod enqueue;
mod rescue;
mod serve;
mod split;
mod transmit;
