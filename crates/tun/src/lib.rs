//! A TUN device as an entry.
