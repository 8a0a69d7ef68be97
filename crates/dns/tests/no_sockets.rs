//! The forwarder has no way to the network beside its openers: only the server has sockets, and it
//! connects none.

use std::path::Path;

const SOCKETS: [&str; 6] = [
    "tokio::net",
    "TcpStream",
    "UdpSocket",
    "TcpSocket",
    "lookup_host",
    "ToSocketAddrs",
];

fn check(directory: &Path, checked: &mut usize) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("src/tests") {
                check(&path, checked);
            }
            continue;
        }
        let code = std::fs::read_to_string(&path).unwrap();
        if path.ends_with("src/server.rs") {
            assert!(!code.contains("connect("), "{}", path.display());
        } else {
            for word in SOCKETS {
                assert!(!code.contains(word), "{} has {word}", path.display());
            }
        }
        *checked += 1;
    }
}

#[test]
fn only_the_server_has_sockets_and_it_connects_none() {
    let mut checked = 0;
    check(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut checked,
    );
    assert!(checked > 20, "{checked} files");
}
