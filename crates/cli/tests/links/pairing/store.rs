//! Faults of the store of clients, and its use without a server.

use std::fs;
use std::thread;
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, text, until};

use super::{SOURCE, Scene};

#[test]
fn a_killed_server_loses_at_most_a_second_of_usage() {
    let Some(mut scene) = Scene::new("") else {
        return;
    };
    let client = scene.client("laptop");
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(4_000_000);
    let used = scene.used("laptop");
    let at = std::time::Instant::now();
    // The usage counted by now is written within a second.
    thread::sleep(Duration::from_millis(1500));
    let after = transfer.received();
    let rate = transfer.received() as f64 / at.elapsed().as_secs_f64();
    scene.kill();
    scene.start("server-2");
    let kept = scene.used("laptop");
    assert!(kept >= used, "{kept} of {used}");
    // Two links of 16 Mbit/s bring 4 MB in a second.
    assert!(
        kept + 5_000_000 >= after,
        "{kept} of {after}, {rate} bytes/s"
    );
    // The client is still known.
    until("the client is back", || {
        (scene.sessions() == 1).then_some(())
    });
    drop((transfer, client));
    scene.stop();
}

#[test]
fn a_damaged_store_is_refused_with_its_name_and_kept() {
    let Some(mut scene) = Scene::new("") else {
        return;
    };
    drop(scene.client("laptop"));
    let mut server = scene.server.take().unwrap();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let path = scene.bench.path("clients.db");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[4096..].fill(0x5a);
    fs::write(&path, &damaged).unwrap();
    let args = ["server", "--config", "server.toml"];
    let refused = scene.bench.run_sumlink(Side::Server, &args);
    Scene::fails(
        &refused,
        3,
        "clients.db: not a store of clients, or damaged",
    );
    assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().count(), 1);
    assert_eq!(fs::read(&path).unwrap(), damaged);
    fs::write(&path, &whole).unwrap();
    scene.start("server-2");
    assert_eq!(scene.asked(&["clients", "show", "laptop"])["state"], "good");
    scene.stop();
}

#[test]
fn the_store_is_used_without_its_server_and_locked_by_it() {
    let Some(mut scene) = Scene::new("") else {
        return;
    };
    drop(scene.client("laptop"));
    let asked = |scene: &Scene, args: &[&str]| {
        let args = [args, &["--config", "server.toml", "--json"]].concat();
        scene.bench.program(&args).output().unwrap()
    };
    // The file leads to the running server, too.
    let listed = text(asked(&scene, &["clients", "list"]));
    assert!(listed.contains("laptop"), "{listed}");
    let without_socket = fs::read_to_string(scene.bench.path("server.toml")).unwrap();
    let without_socket = without_socket.replace("control = \"server.sock\"\n", "");
    scene.bench.write("other.toml", &without_socket);
    let args = ["clients", "list", "--config", "other.toml"];
    let locked = scene.bench.program(&args).output().unwrap();
    Scene::fails(&locked, 3, "another process uses this store");
    let second = without_socket.replace(":7000", ":7001");
    scene.bench.write("second.toml", second);
    let args = ["server", "--config", "second.toml"];
    let second = scene.bench.run_sumlink(Side::Server, &args);
    Scene::fails(&second, 3, "another process uses this store");

    let mut server = scene.server.take().unwrap();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let shown = text(asked(&scene, &["clients", "disable", "laptop"]));
    assert!(shown.contains("\"disabled\""), "{shown}");
    let invited = text(asked(&scene, &["invite", "--name", "second"]));
    let invited: serde_json::Value = serde_json::from_str(&invited).unwrap();
    scene.start("server-2");
    assert_eq!(
        scene.asked(&["clients", "show", "laptop"])["state"],
        "disabled"
    );
    let invitation = invited["invitation"].as_str().unwrap();
    text(scene.join(invitation, &["--out", "second.toml", "--force"]));
    scene.stop();
}

#[test]
fn a_full_disk_stops_no_session_and_loses_no_usage() {
    let Some(mut scene) = on_small_disk() else {
        return;
    };
    scene.start("server-2");
    let client = scene.client("laptop");
    fill(&scene.bench);
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    let warned = || {
        scene
            .server()
            .lines_with("cannot write the store of clients")
    };
    until("the full disk is reported", || (warned() > 0).then_some(()));
    transfer.goes_on(6_000_000);
    assert_eq!(warned(), 1, "{}", scene.server().log());
    let refused = scene.ask(&["clients", "disable", "laptop"]);
    Scene::fails(&refused, 1, "nothing changed");
    let refused = scene.ask(&["invite"]);
    Scene::fails(&refused, 1, "nothing changed");
    let received = transfer.received();
    scene.bench.run(Side::Server, &["rm", "disk/filler"]);
    until("the store is written again", || {
        (scene.server().lines_with("is written again") > 0).then_some(())
    });
    scene.kill();
    scene.start("server-3");
    assert!(scene.used("laptop") >= received);
    drop((transfer, client));
    scene.stop();
}

/// SQLite needs room for its journal as well, so that the store's own pages may fit.
#[test]
fn a_first_start_on_a_small_disk_leaves_nothing_behind() {
    let Some(mut scene) = on_small_disk() else {
        return;
    };
    for size in ["48k", "64k", "68k"] {
        let option = format!("remount,size={size}");
        let resized = ["mount", "-o", &option, "disk"];
        scene.bench.run(Side::Server, &resized);
        let args = ["server", "--config", "server.toml"];
        let output = scene.bench.run_sumlink(Side::Server, &args);
        Scene::fails(&output, 1, "cannot use the store of clients");
        let left = scene.bench.run(Side::Server, &["ls", "-A", "disk"]);
        assert_eq!(left, "", "{size}");
    }
    scene
        .bench
        .run(Side::Server, &["mount", "-o", "remount,size=1m", "disk"]);
    scene.start("server-2");
    scene.stop();
}

#[test]
fn a_store_is_copied_while_the_server_runs_and_the_copy_can_be_used() {
    let Some(mut scene) = Scene::new("") else {
        return;
    };
    let client = scene.client("laptop");
    let copied = scene.asked(&["clients", "backup", "copy.db"]);
    assert_eq!(
        copied["file"],
        scene.bench.path("copy.db").to_str().unwrap()
    );
    let mode = fs::metadata(scene.bench.path("copy.db")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
    Scene::fails(
        &scene.ask(&["clients", "backup", "copy.db"]),
        1,
        "File exists",
    );
    Scene::fails(
        &scene.ask(&["clients", "backup", "none/copy.db"]),
        1,
        "copy.db",
    );

    // The copy knows the client, and not its later removal.
    scene.asked(&["clients", "remove", "laptop"]);
    scene.kill();
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(scene.bench.path(&format!("clients.db{ending}")));
    }
    fs::rename(scene.bench.path("copy.db"), scene.bench.path("clients.db")).unwrap();
    scene.start("server-2");
    assert_eq!(scene.asked(&["clients", "show", "laptop"])["state"], "good");
    drop(client);
    scene.stop();
}

#[test]
fn a_removed_store_is_reported_while_the_server_runs() {
    let Some(scene) = Scene::new("") else { return };
    let store = scene.bench.path("clients.db");
    let aside = scene.bench.path("aside.db");
    fs::rename(&store, &aside).unwrap();
    until("the loss is reported", || {
        (scene.server().lines_with("was removed or replaced") > 0).then_some(())
    });
    Scene::fails(&scene.ask(&["invite"]), 1, "nothing changed");
    fs::rename(&aside, &store).unwrap();
    until("the store is written again", || {
        (scene.server().lines_with("is written again") > 0).then_some(())
    });
    scene.invite(&["--name", "laptop"]);
    scene.stop();
}

/// A scene without a server, whose next one has its store on a file system of 512 KiB.
fn on_small_disk() -> Option<Scene> {
    let mut scene = Scene::new("")?;
    if !sumlink_test_support::emulated::has_users() {
        return None;
    }
    let mut server = scene.server.take().unwrap();
    server.signal("TERM");
    server.wait();
    let file = fs::read_to_string(scene.bench.path("server.toml")).unwrap();
    let file = file.replace("\"clients.db\"", "\"disk/clients.db\"");
    scene.bench.write("server.toml", file);
    mount(&scene.bench);
    Some(scene)
}

/// Mounts a small file system in the test's directory, in the server's namespace.
fn mount(bench: &Bench) {
    let script = "mkdir disk && mount -t tmpfs -o size=512k tmpfs disk";
    bench.run(Side::Server, &["sh", "-c", script]);
}

/// Leaves no byte of it.
fn fill(bench: &Bench) {
    let script = "! dd if=/dev/zero of=disk/filler bs=1k 2> /dev/null";
    bench.run(Side::Server, &["sh", "-c", script]);
}
