//! Programs that use UDP, through forwards: iperf3, dig, ffmpeg and QUIC.

use serde_json::Value;
use sumlink_lab::Side;

use super::{Echo, FORWARD, LINKS, until_over, with_forward};
use crate::bond::Plan;
use crate::quic;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, finish};

#[test]
fn iperf3_sends_datagrams_through_forwards() {
    let forwards =
        "links = \"auto\"\nforward = [\"5201=10.99.0.1:5201\", \"udp:5201=10.99.0.1:5201\"]\n";
    let Some(mut bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    let server = ["iperf3", "-s", "-B", "10.99.0.1"];
    let server = bond.bench.spawn(Side::Server, &server);
    bond.keep(server);
    bond.bench.until_listening(Side::Server, 5201);
    until_over(&bond, "udp");
    for direction in [&[][..], &["-R"]] {
        let words = [
            "iperf3",
            "-u",
            "-c",
            "127.0.0.1",
            "-b",
            "10M",
            "-l",
            "1200",
            "-t",
            "2",
        ];
        let words = [&words[..], direction, &["--json"]].concat();
        let report: Value = serde_json::from_str(&bond.bench.run(Side::Client, &words)).unwrap();
        let sum = &report["end"]["sum"];
        let lost = sum["lost_percent"].as_f64().unwrap();
        assert!(lost < 5.0, "{direction:?}: {lost} % lost");
        let rate = sum["bits_per_second"].as_f64().unwrap();
        assert!(rate > 8e6, "{direction:?}: {rate} bit/s");
    }
    bond.stop();
}

/// A name server that knows one name, as in RFC 1035: it repeats the question and adds one answer.
fn name_server(bench: &Bench, address: &str) -> Echo {
    Echo::with(bench, address, |socket, query, from| {
        let question = &query[12..];
        let end = question.iter().position(|&byte| byte == 0).unwrap() + 5;
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend(&question[..end]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]);
        let _ = socket.send_to(&answer, from);
    })
}

#[test]
fn dig_asks_a_name_server_through_a_forward() {
    let forwards = "links = \"auto\"\nforward = [\"udp:5353=10.99.0.1:53\"]\n";
    let Some(bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    let _server = name_server(&bond.bench, "10.99.0.1:53");
    let dig = [
        "dig",
        "+short",
        "+noedns",
        "-p",
        "5353",
        "@127.0.0.1",
        "bond.example",
        "A",
    ];
    let answer = bond.bench.run(Side::Client, &dig);
    // dig prints a line for a lost datagram, and asks again.
    assert_eq!(answer.lines().last(), Some("192.0.2.77"));
    bond.stop();
}

/// Live video over SRT, which repairs losses itself, to a receiver that listens at the server.
#[test]
fn ffmpeg_pushes_live_video_over_srt() {
    let forwards = "links = \"auto\"\nforward = [\"udp:9000=10.99.0.1:9000\"]\n";
    let Some(bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    until_over(&bond, "udp");
    let quiet = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y"];
    let listen = [
        "-i",
        "srt://10.99.0.1:9000?mode=listener",
        "-c",
        "copy",
        "received.ts",
    ];
    let receiver = [&quiet[..], &listen].concat();
    let receiving = bond.bench.spawn(Side::Server, &receiver);
    // A caller tries again until the listener is there (3 s by default).
    let camera = "testsrc=size=320x240:rate=25";
    let source = [
        "-re",
        "-f",
        "lavfi",
        "-i",
        camera,
        "-t",
        "4",
        "-c:v",
        "mpeg2video",
    ];
    let target = ["-f", "mpegts", "srt://127.0.0.1:9000?mode=caller"];
    let sender = [&quiet[..], &source, &target].concat();
    bond.bench.run(Side::Client, &sender);
    finish(&receiver, receiving);
    let count = [
        "ffprobe",
        "-v",
        "error",
        "-count_frames",
        "-select_streams",
        "v:0",
        "-show_entries",
        "stream=nb_read_frames",
        "-of",
        "csv=p=0",
        "received.ts",
    ];
    let frames = bond.bench.run(Side::Server, &count);
    // ffprobe lists a stream once more for its program.
    let frames = frames.lines().next().unwrap().trim_end_matches(',');
    let frames: u32 = frames.parse().unwrap();
    assert!(frames >= 95, "{frames} of 100 frames arrived");
    bond.stop();
}

/// A QUIC download: the protocol of HTTP/3, with its own loss recovery and congestion control.
///
/// A few losses are the signals that end its slow start. A bond that reordered datagrams, or whose
/// queue overflowed, would cause many more.
#[test]
fn a_quic_download_passes_without_damage() {
    let Some((bond, server, client)) = with_forward() else {
        return;
    };
    let expected = Pattern::bytes(11, 4_000_000);
    let download = quic::download(server, client, FORWARD, expected.clone());
    assert!(download.bytes == expected, "the download is damaged");
    println!(
        "{} congestion events, {} of {} lost",
        download.congestion_events, download.lost_packets, download.sent_packets
    );
    assert!(
        // 0.1 %, with 2 to 4 reductions of the window, also on a busy machine. A program that runs
        // very late loses up to 32 datagrams at once at its own socket: 1 %.
        download.lost_packets * 50 < download.sent_packets,
        "{} of {} packets of the server were lost",
        download.lost_packets,
        download.sent_packets
    );
    assert!(download.congestion_events <= 10);
    bond.stop();
}
