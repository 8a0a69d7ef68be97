//! Counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A counter that any task may increase.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines the counters and their snapshot with the same fields.
macro_rules! counters {
    (
        $(#[$of_counters:meta])* $counters:ident;
        $(#[$of_snapshot:meta])* $snapshot:ident;
        $($(#[$of_field:meta])* $field:ident,)*
    ) => {
        $(#[$of_counters])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(pub(crate) $field: Counter,)*
        }

        $(#[$of_snapshot])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct $snapshot {
            $($(#[$of_field])* pub $field: u64,)*
        }

        impl $counters {
            pub(crate) fn snapshot(&self) -> $snapshot {
                $snapshot {
                    $($field: self.$field.value(),)*
                }
            }
        }
    };
}

counters! {
    /// Traffic of an entry.
    Traffic;
    /// Traffic of an entry, without drops.
    Flows;
    /// Packets from programs; a super-packet counts once.
    packets_in,
    /// Bytes in them, with IP headers.
    bytes_in,
    /// Packets to programs; a super-packet counts once.
    packets_out,
    /// Bytes in them, with IP headers.
    bytes_out,
    /// Connections that are relayed or being opened.
    connections,
    /// Connections that were opened so far.
    connections_opened,
    /// Connections that were refused, here or at their target.
    connections_refused,
    /// Sources of UDP datagrams that programs have now.
    sources,
    /// Sources of echo requests that programs have now.
    echo_sources,
    /// ICMP errors that were sent to programs.
    errors_sent,
    /// Datagrams from several fragments.
    reassembled,
}

counters! {
    /// Packets that were dropped.
    Dropped;
    /// Packets that were dropped, by reason.
    Drops;
    /// Not an IP packet, a truncated one, or impossible lengths.
    malformed,
    /// A wrong checksum.
    checksum,
    /// To or from an address that is not that of one host, such as multicast.
    not_unicast,
    /// To the device's own addresses.
    own_address,
    /// The hop limit was reached.
    hop_limit,
    /// Another protocol than TCP, UDP and ICMP echo.
    protocol,
    /// ICMP messages other than echo requests.
    icmp,
    /// Fragments of datagrams that were not completed in time, were invalid, or had no room.
    fragments,
    /// Segments of unknown connections; programs get a reset.
    no_connection,
    /// A limit on connections or sources was reached.
    limit,
    /// Datagrams that waited too long for their source, or were too many.
    queue,
    /// Datagrams that are longer than the session carries.
    too_big,
    /// Datagrams that the session refused for another reason.
    unsent,
    /// Packets that the kernel did not take.
    refused_by_kernel,
}

/// Counters of a device or of an echo capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Traffic and flows.
    #[serde(flatten)]
    pub flows: Flows,
    /// Dropped packets, by reason.
    pub drops: Drops,
}

/// Reads the counters of a device or of an echo capture, also while it is served.
#[derive(Clone, Debug, Default)]
pub struct StatsHandle {
    counters: Arc<Counters>,
}

impl StatsHandle {
    /// The counters now.
    pub fn stats(&self) -> Stats {
        Stats {
            flows: self.counters.traffic.snapshot(),
            drops: self.counters.dropped.snapshot(),
        }
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) traffic: Traffic,
    pub(crate) dropped: Dropped,
}

impl Counters {
    pub(crate) fn received(&self, bytes: usize) {
        self.traffic.packets_in.increment();
        self.traffic.bytes_in.add(bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.traffic.packets_out.increment();
        self.traffic.bytes_out.add(bytes as u64);
    }
}
