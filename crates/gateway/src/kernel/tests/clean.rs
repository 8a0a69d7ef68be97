//! Nothing is left behind, whatever ends the gateway.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

#[test]
fn everything_is_as_before_after_a_stop() {
    let Some(world) = World::new() else { return };
    neighbors::install(&world);
    let before = world.snapshot();
    for capture in [CaptureSetting::Nftables, CaptureSetting::Tun] {
        world.gateway.run(async || {
            let settings = Settings {
                capture,
                ..settings()
            };
            let (tun, applied) = start(world.state(), &settings).await;
            assert!(world.state().exists());
            let cleaned = applied.remove().await.unwrap();
            assert!(
                cleaned.table && cleaned.rules > 0 && cleaned.routes > 0,
                "{cleaned:?}"
            );
            vanish(tun).await;
            assert!(clean(&world.state()).await.unwrap().is_empty());
        });
        assert_same(&world.snapshot(), &before, capture);
        assert_eq!(
            std::fs::read_dir(world.directory.path()).unwrap().count(),
            0
        );
    }
}

#[test]
fn a_start_that_fails_at_any_step_leaves_nothing() {
    let Some(world) = World::new() else { return };
    neighbors::install(&world);
    let before = world.snapshot();
    let mut failing = 0;
    loop {
        let has_failed = world.gateway.run(async || {
            let prepared = Prepared::new(&world.state(), &settings()).await.unwrap();
            let tun = tun().await;
            let plan = prepared.plan(&settings()).unwrap();
            let steps = apply::Steps {
                failing: Some(failing),
                ..apply::Steps::default()
            };
            let has_failed = match prepared.apply_with(plan, steps).await {
                Ok(applied) => {
                    applied.remove().await.unwrap();
                    false
                }
                Err(error) => {
                    assert!(matches!(error, KernelError::Step { .. }), "{error}");
                    true
                }
            };
            vanish(tun).await;
            has_failed
        });
        assert_same(&world.snapshot(), &before, failing);
        if !has_failed {
            break;
        }
        failing += 1;
    }
    assert!(failing > 15, "{failing} steps");
}

#[test]
fn a_killed_gateway_is_cleaned_by_the_next_process() {
    let Some(world) = World::new() else { return };
    neighbors::install(&world);
    let before = world.snapshot();
    for has_state in [true, false] {
        let mut child = world.gateway.enter(|| {
            Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "kernel::tests::clean::child",
                    "--ignored",
                    "--nocapture",
                ])
                .env(STATE, world.state())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("applied")));
        world.gateway.run(async || {
            // While it runs, it is not cleaned, and a second one is refused.
            let error = clean(&world.state()).await.unwrap_err().to_string();
            assert!(
                error.contains(&format!("(process {})", child.id())),
                "{error}"
            );
            let elsewhere = world.directory.path().join("other/gateway.json");
            for error in [
                Prepared::new(&elsewhere, &settings()).await.unwrap_err(),
                clean(&elsewhere).await.unwrap_err(),
            ] {
                let is_refused = matches!(error, KernelError::AlreadyRunning { pid: None });
                assert!(is_refused, "{error}");
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        world
            .gateway
            .run(async || until("the end of the device", is_without_device).await);
        // Parameters are only in the state file. The rest is found without it.
        if !has_state {
            std::fs::remove_file(world.state()).unwrap();
            world.gateway.enter(|| {
                netns::command("sysctl -w net.ipv4.conf.lan0.forwarding=0");
                netns::command("sysctl -w net.ipv6.conf.lan0.forwarding=0");
                netns::command("sysctl -w net.ipv6.conf.wan0.accept_ra=1");
            });
        }
        let cleaned = world
            .gateway
            .run(async || clean(&world.state()).await.unwrap());
        assert!(
            cleaned.table && cleaned.rules > 0 && cleaned.routes > 0,
            "{cleaned:?}"
        );
        assert_eq!(cleaned.sysctls > 0, has_state);
        assert_same(&world.snapshot(), &before, has_state);
    }
}

/// The gateway that is killed: not an independent test.
#[test]
#[ignore = "runs only as a child of another test"]
fn child() {
    let state = std::env::var_os(STATE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let _running = start(state.into(), &settings()).await;
        println!("applied");
        std::future::pending::<()>().await;
    });
}

/// Environment variable with the state file of the child.
const STATE: &str = "SUMLINK_TEST_STATE";

/// Values that others have changed in the meantime stay.
#[test]
fn a_parameter_that_another_program_has_changed_is_left() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let settings = Settings {
            ipv6: false,
            ..settings()
        };
        netns::command("sysctl -w net.ipv4.conf.wan0.rp_filter=1");
        let (_tun, applied) = start(world.state(), &settings).await;
        let mark = "net/ipv4/conf/all/src_valid_mark";
        assert_eq!(sysctl::Sysctl::read(mark).unwrap().as_deref(), Some("1"));
        netns::command("sysctl -w net.ipv4.conf.all.src_valid_mark=0");
        assert!(applied.remove().await.unwrap().sysctls > 0);
        assert_eq!(sysctl::Sysctl::read(mark).unwrap().as_deref(), Some("0"));
    });
}
