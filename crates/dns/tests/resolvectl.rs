//! systemd-resolved is configured through `resolvectl`; a fake one records its calls.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use sumlink_dns::system::resolved::{self, ResolvedError};

/// Set in the process that has the fake program in its PATH.
const INSIDE: &str = "SUMLINK_TEST_RESOLVECTL";

/// Fails for the command in FAIL, with the text in WHY.
const FAKE: &str = "#!/bin/sh
echo \"$*\" >> \"$CALLS\"
if [ \"$1\" = \"$FAIL\" ]; then echo \"$WHY\" >&2; exit 1; fi
";

/// Runs the test `name` again in a process with the fake program, and returns the calls of it.
fn calls(name: &str, fail: &str, why: &str, is_installed: bool) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let calls = directory.path().join("calls");
    if is_installed {
        let program = directory.path().join("resolvectl");
        std::fs::write(&program, FAKE).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("PATH", directory.path())
        .env("CALLS", &calls)
        .env("FAIL", fail)
        .env("WHY", why)
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let calls = std::fs::read_to_string(calls).unwrap_or_default();
    calls.lines().map(str::to_owned).collect()
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

const APPLY: [&str; 5] = [
    "dns sumlink0 198.18.74.1",
    "domain sumlink0 ~.",
    "default-route sumlink0 true",
    "dnsovertls sumlink0 no",
    "flush-caches",
];

fn apply() -> Result<(), ResolvedError> {
    block_on(resolved::apply("sumlink0", [198, 18, 74, 1].into()))
}

#[test]
fn the_device_gets_the_resolver_and_all_names() {
    if is_inside() {
        apply().unwrap();
        block_on(resolved::revert("sumlink0")).unwrap();
        return;
    }
    let calls = calls("the_device_gets_the_resolver_and_all_names", "", "", true);
    assert_eq!(calls[..5], APPLY);
    assert_eq!(calls[5..], ["revert sumlink0"]);
}

#[test]
fn a_failure_reverts_what_was_done() {
    if is_inside() {
        let error = apply().unwrap_err().to_string();
        assert_eq!(
            error,
            "`resolvectl domain sumlink0 ~.` failed: Access denied"
        );
        return;
    }
    let calls = calls(
        "a_failure_reverts_what_was_done",
        "domain",
        "Access denied",
        true,
    );
    assert_eq!(calls[..2], APPLY[..2]);
    assert_eq!(calls[2..], ["revert sumlink0"]);
}

#[test]
fn an_older_version_without_a_setting_will_do() {
    if is_inside() {
        apply().unwrap();
        return;
    }
    let why = "Unknown command verb dnsovertls.";
    let calls = calls(
        "an_older_version_without_a_setting_will_do",
        "dnsovertls",
        why,
        true,
    );
    assert_eq!(calls, APPLY);
}

#[test]
fn a_device_that_has_vanished_needs_no_revert() {
    if is_inside() {
        block_on(resolved::revert("sumlink0")).unwrap();
        return;
    }
    let why = "Failed to resolve interface \"sumlink0\": No such device";
    let calls = calls(
        "a_device_that_has_vanished_needs_no_revert",
        "revert",
        why,
        true,
    );
    assert_eq!(calls, ["revert sumlink0"]);
}

#[test]
fn a_machine_without_it_gets_an_error_that_says_so() {
    if is_inside() {
        let error = apply().unwrap_err();
        assert!(matches!(error, ResolvedError::Missing), "{error}");
        assert!(!block_on(resolved::is_used(Path::new("/etc/resolv.conf"))));
        return;
    }
    let calls = calls(
        "a_machine_without_it_gets_an_error_that_says_so",
        "",
        "",
        false,
    );
    assert!(calls.is_empty());
}

#[test]
fn it_is_used_if_it_runs_and_programs_ask_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("resolv.conf");
    std::fs::write(&file, "nameserver 127.0.0.53\n").unwrap();
    if is_inside() {
        let is_running = std::env::var("FAIL").unwrap().is_empty();
        assert_eq!(block_on(resolved::is_used(&file)), is_running);
        std::fs::write(&file, "nameserver 192.0.2.53\n").unwrap();
        assert!(!block_on(resolved::is_used(&file)));
        return;
    }
    let name = "it_is_used_if_it_runs_and_programs_ask_it";
    assert_eq!(calls(name, "", "", true), ["status"]);
    assert_eq!(calls(name, "status", "Failed to connect", true), ["status"]);
}
