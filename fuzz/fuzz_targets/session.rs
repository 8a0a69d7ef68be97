//! Input from a peer into a session: the session continues or closes, and stays within its memory
//! bound.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_engine::{Class, Config, Event, Instant, PathId, Role, Session};
use sumlink_schedulers::NAMES;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let role = if first & 1 == 0 {
        Role::Client
    } else {
        Role::Server
    };
    let mut config = Config::new(role);
    // The length selects the scheduler, so that a known input keeps its meaning.
    config.scheduler = NAMES[bytes.len() % NAMES.len()].to_owned();
    config.own_schedulers = sumlink_schedulers::all();
    config.max_streams = 8;
    config.memory = Config::min_memory(8);
    config.stream_memory = 1 << 18;
    let memory = config.memory;
    let mut now = Instant::from_secs(1);
    let mut session = Session::new(config, now).expect("the configuration is valid");
    session.path_up(PathId(0), now);
    session.path_up(PathId(1), now);
    let mut text = Vec::new();
    // The first byte also selects how the rest is split; pieces alternate between the paths.
    for (index, piece) in bytes.chunks(usize::from(first >> 1) + 1).enumerate() {
        now += Duration::from_millis(7);
        let path = PathId(index as u32 % 2);
        let error = session.handle_frames(path, piece, now).err();
        assert!(error.is_none() || session.is_closed());
        session.handle_timeout(now);
        // Either the peer's stream or this side's first one, whichever the peer allows.
        let _ = session.open_stream(b"t", Class::Interactive, now);
        for stream in 0..4 {
            let _ = session.write(stream, b"some bytes", now);
        }
        while let Some(event) = session.poll_event() {
            match event {
                Event::Readable { stream } => {
                    text.clear();
                    let _ = session.read(stream, 1 << 12, &mut text, now);
                }
                Event::Opened { stream, .. } if index % 3 == 0 => session.reset(stream, 1, now),
                Event::Opened { stream, .. } if index % 3 == 1 => session.abandon(stream, now),
                _ => {}
            }
        }
        for path in [PathId(0), PathId(1)] {
            text.clear();
            session.poll_transmit(path, 1 << 14, now, &mut text);
        }
        let stats = session.stats();
        assert!(stats.receive_memory <= memory && stats.send_buffered <= memory);
    }
});
