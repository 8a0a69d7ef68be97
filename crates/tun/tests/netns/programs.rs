use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{HOST4, HOST6, World};

#[test]
fn curl_downloads_over_both_families() {
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        let to: SocketAddr = world.internet.run(async move {
            let listener = TcpListener::bind((host, 0)).await.unwrap();
            let bound = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut head = [0; 4096];
                    let _ = stream.read(&mut head).await;
                    let body = vec![b'x'; 3_000_000];
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(head.as_bytes()).await;
                    let _ = stream.write_all(&body).await;
                    let _ = stream.shutdown().await;
                }
            });
            bound
        });
        for namespace in world.sides() {
            let url = format!("http://{to}/");
            let form = "%{http_code} %{size_download}";
            let words = [
                "curl",
                "-sS",
                "-g",
                "-m",
                "30",
                "-o",
                "/dev/null",
                "-w",
                form,
                &url,
            ];
            let (done, text) = namespace.program(&words);
            assert!(done && text == "200 3000000", "{text}");
        }
    }
}

#[test]
fn iperf3_measures_both_directions_of_tcp_and_udp() {
    let Some(world) = World::new() else { return };
    let server = world.internet.run(async {
        tokio::process::Command::new("iperf3")
            .args(["-s", "-B", HOST4])
            .stdout(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    });
    let mut listening = false;
    for _ in 0..1000 {
        let (_, text) = world.internet.program(&["ss", "-Hltn", "sport = :5201"]);
        listening = !text.is_empty();
        if listening {
            break;
        }
    }
    assert!(listening);
    let kinds: [&[&str]; 4] = [
        &[],
        &["-R"],
        &["-u", "-b", "20M"],
        &["-u", "-b", "20M", "-R"],
    ];
    for namespace in world.sides() {
        for kind in kinds {
            let words = [&["iperf3", "-c", HOST4, "-t", "1", "-f", "m"], kind].concat();
            let (done, text) = namespace.program(&words);
            assert!(done, "{kind:?}: {text}");
            let summary = text.lines().find(|line| line.contains("receiver"));
            println!("{kind:?}: {}", summary.unwrap_or(&text));
        }
    }
    drop(server);
}
