//! A browser without a screen, for tests of pages.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;

/// The program, if it is installed; says so if it is not.
pub fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("skipped: chromium is not installed");
    }
    found
}

/// Options for a run without a screen, as root, that asks nothing of other machines.
pub const OPTIONS: &[&str] = &[
    "--headless",
    // It runs as root.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
];

/// A running browser with one page, driven over the DevTools protocol. It is killed when dropped.
#[derive(Debug)]
pub struct Page {
    child: Child,
    requests: File,
    answers: BufReader<File>,
    session: Value,
    number: u64,
}

impl Page {
    /// Starts the browser, with its profile in an existing directory.
    pub fn open(browser: &str, directory: &Path) -> Self {
        let pipes = ["requests", "answers"].map(|name| directory.join(name));
        for pipe in &pipes {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        // The browser reads requests at descriptor 3 and writes answers at 4, each ended by a NUL.
        let script = "exec \"$0\" \"$@\" 3<requests 4>answers";
        let child = Command::new("sh")
            .args(["-c", script, browser])
            .args(OPTIONS)
            .args(["--remote-debugging-pipe", "--user-data-dir=profile"])
            .arg("about:blank")
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let requests = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let answers = BufReader::new(File::open(&pipes[1]).unwrap());
        let mut page = Self {
            child,
            requests,
            answers,
            session: Value::Null,
            number: 0,
        };
        let targets = page.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let target = targets.iter().find(|one| one["type"] == "page").unwrap();
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        page.session = page.call("Target.attachToTarget", attach)["sessionId"].clone();
        page
    }

    /// Calls a method of the protocol; returns its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_null() {
            request["sessionId"] = self.session.clone();
        }
        write!(self.requests, "{request}\0").unwrap();
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Loads an address.
    pub fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Sets width and height in pixels, and the color scheme: `light` or `dark`.
    pub fn show_as(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
    }

    /// Presses and releases a key, by its name in the DOM.
    pub fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = if key == "Tab" { 9 } else { 13 };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", evaluate)["result"]["value"].take()
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            if Instant::now() > end {
                let page = self.value("document.documentElement.outerHTML");
                panic!("not in time: {expression}: {page}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
