//! The parameters of QUIC for carriers, and the reasons for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt,
};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;
use sumlink_bond::datagram::quic::{
    ACK_DELAY, ACK_EVERY, ACK_REORDERING, IDLE_TIMEOUT, INITIAL_RTT, KEEP_ALIVE, MIN_PAYLOAD,
    RECEIVE_BUFFER, SEND_BUFFER,
};

use super::controller::ControllerConfig;
use crate::carrier::keys::SecretKey;

/// Flow control window of the stream of the handshake; its frames have at most 2 KiB.
const STREAM_WINDOW: u32 = 4 * 1024;

/// Pause before larger packets are tried again after they disappeared. quinn then sends the
/// smallest packets meanwhile, so the search for the new limit should not wait long.
const BLACK_HOLE_PAUSE: Duration = Duration::from_secs(5);

/// Precision in bytes of the search for the largest packet; costs two probes more than quinn's 20.
const MTU_PRECISION: u16 = 8;

/// Largest IP packet in bytes that a server accepts: jumbo frames. A client accepts those of its
/// link, so that the search for the path's limit ends there.
pub(super) const LARGEST_PACKET: u32 = 9000;

/// Assumed largest IP packet in bytes of a link that is not known.
pub(super) const USUAL_PACKET: u32 = 1500;

/// Error code of every close (RFC 9000, section 20.2). The reason is a text.
pub(super) const CLOSE: VarInt = VarInt::from_u32(0);

/// The headers of IP and UDP in bytes, for packets to this address.
pub(super) fn headers(remote: SocketAddr) -> u32 {
    if remote.ip().to_canonical().is_ipv6() {
        48
    } else {
        28
    }
}

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// The parameters of connections whose UDP payloads have at most `largest` bytes.
pub(super) fn transport(side: Side, largest: u16) -> Arc<TransportConfig> {
    let mut search = MtuDiscoveryConfig::default();
    search
        .upper_bound(largest)
        .minimum_change(MTU_PRECISION)
        .black_hole_cooldown(BLACK_HOLE_PAUSE);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_EVERY - 1))
        .max_ack_delay(Some(ACK_DELAY))
        .reordering_threshold(VarInt::from_u32(ACK_REORDERING));
    let streams = match side {
        Side::Client => 0,
        Side::Server => 1,
    };
    let idle = IdleTimeout::try_from(IDLE_TIMEOUT).expect("30 s are in the range of a varint");
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(STREAM_WINDOW))
        .send_window(u64::from(STREAM_WINDOW))
        .send_fairness(false)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval((side == Side::Client).then_some(KEEP_ALIVE))
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(Some(search))
        .ack_frequency_config(Some(acks))
        .allow_spin(false)
        .datagram_send_buffer_size(SEND_BUFFER)
        .datagram_receive_buffer_size(Some(RECEIVE_BUFFER))
        .congestion_controller_factory(Arc::new(ControllerConfig));
    Arc::new(config)
}

/// The parameters of a UDP socket that receives payloads of at most `largest` bytes.
///
/// The keys of connection identifiers and of stateless resets depend only on the secret key. A
/// restarted server can therefore end its former connections at once (RFC 9000, section 10.3).
pub(super) fn endpoint(key: &SecretKey, largest: u16) -> EndpointConfig {
    let derive = |purpose: &[u8]| {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.pkcs8().secret_pkcs8_der());
        hmac::sign(&secret, purpose)
    };
    let resets = derive(b"sumlink datagrams: stateless resets");
    let mut config =
        EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, resets.as_ref())));
    let identifiers = derive(b"sumlink datagrams: connection identifiers");
    let (first, _) = identifiers.as_ref().split_at(8);
    let identifiers = u64::from_le_bytes(first.try_into().expect("eight bytes"));
    config
        .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(identifiers)))
        .max_udp_payload_size(largest.max(MIN_PAYLOAD))
        .expect("at least 1200 bytes");
    config
}
