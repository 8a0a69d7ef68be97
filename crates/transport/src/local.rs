//! What programs on this machine and the process itself need: listening sockets and their
//! addresses, the header that load balancers put before a connection, slots for connections, file
//! descriptors, the heap, the order in which tasks start.

pub mod accept;
pub mod address;
pub mod descriptors;
#[cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "malloc_trim has no safe wrapper")
)]
pub(crate) mod heap;
pub(crate) mod proxy_header;
#[expect(unsafe_code, reason = "getsockopt(TCP_SAVED_SYN) has no safe wrapper")]
pub mod saved_syn;
pub mod slots;
pub mod tasks;
