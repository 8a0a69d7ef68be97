//! Datagram packets of a peer: each decoded packet survives a round trip through its encoding, and
//! sessions at both ends stay within their memory bounds whatever arrives.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_engine::datagram::wire::Packet;
use sumlink_engine::{
    Config, DatagramCarrier, DatagramPolicy, DatagramStats, FlowConfig, Instant, PathId, Role,
    Session,
};

/// Memory of each kind, in bytes.
const MEMORY: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let role = match first & 1 {
        0 => Role::Client,
        _ => Role::Server,
    };
    let mut config = Config::new(role);
    config.datagrams.max_flows = 8;
    config.datagrams.queue_memory = MEMORY;
    config.datagrams.reorder_memory = MEMORY;
    config.datagrams.fragment_memory = MEMORY;
    config.datagrams.receive_memory = MEMORY;
    let mut now = Instant::from_secs(1);
    let mut session = Session::new(config, now).expect("the configuration is valid");
    for path in 0..2 {
        let link = u64::from(path);
        session.datagram_path_up(PathId(path), DatagramCarrier::Quic, link, false, now);
    }
    let policy = DatagramPolicy::ALL[usize::from(first >> 1) % 4];
    let mut out = Vec::new();
    // Each piece has its length in front.
    let (mut rest, mut index) = (bytes, 0);
    while let Some((&len, after)) = rest.split_first() {
        let (packet, after) = after.split_at(after.len().min(usize::from(len)));
        (rest, index) = (after, index + 1);
        round_trip(packet);
        now += Duration::from_millis(u64::from(len % 16));
        let path = PathId(index % 2);
        let result = session.handle_datagram(path, packet.to_vec().into(), now);
        assert!(result.is_ok() || session.is_closed());
        if session.poll_timeout().is_some_and(|at| at <= now) {
            session.handle_timeout(now);
            assert!(session.poll_timeout().is_none_or(|at| at > now));
        }
        let config = FlowConfig {
            policy,
            ..FlowConfig::default()
        };
        let _ = session.open_flow(config, now);
        for flow in 0..4 {
            let _ = session.send_datagram(flow, vec![0; 700].into(), now);
        }
        while session.poll_event().is_some() {}
        if index % 3 == 0 {
            while session.poll_received().is_some() {}
        }
        out.clear();
        session.poll_datagram(path, 1200, now, &mut out);
        assert!(out.len() <= 1200);
        if !out.is_empty() {
            Packet::decode(&out).expect("this side's packets are well-formed");
        }
        check(&session.datagram_stats());
    }
});

fn round_trip(bytes: &[u8]) {
    if let Ok(packet) = Packet::decode(bytes) {
        let mut encoded = Vec::new();
        packet.encode(&mut encoded);
        assert_eq!(Packet::decode(&encoded).as_ref(), Ok(&packet));
    }
}

fn check(stats: &DatagramStats) {
    let most = MEMORY as u64;
    assert!(stats.flows <= 8);
    assert!(stats.queued_bytes <= most);
    assert!(stats.reorder_bytes <= most);
    assert!(stats.fragment_bytes <= most);
}
