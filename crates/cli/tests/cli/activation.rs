//! A server with sockets of a service manager.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use sumlink_test_support::emulated::until;
use sumlink_transport::config::{ClientConfig, LinkConfig};
use sumlink_transport::{Client, PublicKey, SecretKey};
use tokio::runtime::Runtime;

use crate::common::{Bench, Daemon};

/// A socket of the service manager, which its services inherit.
fn inherited(socket: &impl AsFd) -> i32 {
    fcntl(socket.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    socket.as_fd().as_raw_fd()
}

/// The server with these descriptors, as sd_listen_fds(3) describes.
fn server(bench: &Bench, descriptors: &[i32], pid: &str) -> Command {
    let mut script = format!("export LISTEN_PID={pid} LISTEN_FDS={}; ", descriptors.len());
    script += "exec \"$0\" \"$@\"";
    // The numbers are in ascending order, so no copy replaces one that follows.
    for (place, descriptor) in descriptors.iter().enumerate() {
        script += &format!(" {}<&{descriptor}", place + 3);
    }
    let own = bench.command(["server", "--json", "--config", "server.toml"]);
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .arg(own.get_program())
        .args(own.get_args());
    if let Some(directory) = own.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

fn write_server(bench: &Bench, listen: &str) -> (PublicKey, SecretKey) {
    if !bench.path("server.key").exists() {
        bench.key("server.key");
        bench.key("client.key");
    }
    let load = |name: &str| SecretKey::load(std::path::Path::new(&bench.path(name))).unwrap();
    let client = load("client.key");
    let text = format!(
        "listen = \"{listen}\"\nkey = \"server.key\"\ncontrol = \"server.sock\"\n\
         [[client]]\nkey = \"{}\"\n",
        client.public()
    );
    bench.write("server.toml", &text);
    (load("server.key").public(), client)
}

#[test]
fn clients_wait_while_a_server_with_inherited_sockets_restarts() {
    let bench = crate::common::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(address).unwrap();
    let descriptors = [inherited(&tcp), inherited(&udp)];
    let (server_key, key) = write_server(&bench, &address.to_string());
    let mut first = Daemon::start(server(&bench, &descriptors, "$$"));
    let event = first.event("listening");
    assert_eq!(event["address"], address.to_string());
    let config = ClientConfig::new(address.to_string(), server_key, key)
        .links(vec![LinkConfig::named("lo")]);
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(Client::connect(config.clone())).unwrap();
    let status = || runtime.block_on(client.status());
    until("datagrams take the inherited UDP socket", || {
        let status = status();
        (status.datagram_paths.first()?.carrier == "udp").then_some(())
    });
    let before = status().session;
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));

    // No server runs: this connection waits in the backlog.
    let early = runtime.spawn(Client::connect(config));
    let mut second = Daemon::start(server(&bench, &descriptors, "$$"));
    second.event("listening");
    runtime.block_on(early).unwrap().unwrap();
    until("the first client is back", || {
        let status = status();
        let is_active = status.paths.iter().any(|path| path.state == "active");
        (is_active && status.session != before).then_some(())
    });
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0));
}

#[test]
fn unfit_sockets_are_refused_in_one_line() {
    let bench = crate::common::new();
    let tcp = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let numbers = [
        inherited(&tcp[0]),
        inherited(&tcp[1]),
        inherited(&udp),
        inherited(&file),
    ];
    let [one, other, udp, file] = numbers;
    let port = tcp[0].local_addr().unwrap().port();
    write_server(&bench, &format!("127.0.0.1:{port}"));
    for (descriptors, problem) in [
        (
            vec![one, other],
            "2 for TCP and 0 for UDP; the server takes one of each",
        ),
        (vec![udp], "one for UDP, and none for TCP"),
        (vec![one, file], "number 2 is neither TCP nor UDP over IP"),
        (vec![other], "give both the same port"),
        (vec![one, udp], "give both the same port"),
    ] {
        let output = server(&bench, &descriptors, "$$").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{problem}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(problem), "{problem}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn sockets_of_another_process_are_ignored() {
    let bench = crate::common::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    write_server(&bench, "127.0.0.1:0");
    let mut started = Daemon::start(server(&bench, &[inherited(&tcp)], "1"));
    let event = started.event("listening");
    assert_ne!(event["address"], tcp.local_addr().unwrap().to_string());
    started.signal("TERM");
    assert_eq!(started.wait(), Some(0));
}
