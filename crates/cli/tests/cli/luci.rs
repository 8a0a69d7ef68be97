//! The page of sumlink in LuCI, OpenWrt's web interface, in a browser. LuCI itself is replaced by
//! the few functions that the page calls; status and changes are those of a running client.

use serde_json::{Value, json};
use sumlink_test_support::browser::{Page, browser};

use crate::common::Bench;
use crate::monitor::{client, host};

const SOURCE: &str = include_str!("../../../../packaging/openwrt/luci/view/sumlink/status.js");
const ACL: &str = include_str!("../../../../packaging/openwrt/luci/acl.d/sumlink.json");

/// LuCI's part: elements, translated texts, notifications, and programs, of which `answers` has
/// those that run.
const LUCI: &str = r"
window.calls = [];
window.notes = [];
window._ = text => text;
String.prototype.format = function(...values) {
    return this.replace(/%[sd]/g, () => values.shift());
};
window.E = (name, attributes, children) => {
    if (typeof attributes === 'string' || Array.isArray(attributes)) [attributes, children] = [{}, attributes];
    const isList = Array.isArray(name);
    const element = isList ? document.createDocumentFragment() : document.createElement(name);
    if (isList) element.append(...name);
    for (const [key, value] of Object.entries(attributes ?? {})) {
        if (typeof value === 'function') element.addEventListener(key, value);
        else if (value !== null) element.setAttribute(key, value);
    }
    // As in LuCI: a string in a list is a text, and any other one is markup.
    if (Array.isArray(children)) element.append(...children);
    else if (typeof children === 'string') element.innerHTML = children;
    return element;
};
window.libraries = {
    view: { extend: members => members },
    fs: { exec: (program, args) => {
        calls.push(args);
        const answer = answers[args[0] === 'status' ? args[3] : 'link'];
        return Promise.resolve(answer ?? { code: 8, stdout: '', stderr: 'no answer' });
    } },
    poll: { add: callback => { window.poll = callback; } },
    ui: { addNotification: (title, node, kind) => notes.push([kind, node.innerHTML]) },
};
window.show = source => {
    const names = [...source.matchAll(/'require (\w+)';/g)].map(match => match[1]);
    const page = new Function(...names, source)(...names.map(name => libraries[name]));
    return page.load().then(loaded => document.body.replaceChildren(page.render(loaded)));
};
";

const CLIENT: &str = "/var/run/sumlink-client/control.sock";

/// The answer of the program at the client's socket, as rpcd gives it to the page.
fn status(bench: &Bench) -> Value {
    let ran = bench.run(&["status", "--json", "--control", "client.sock"]);
    json!({ "code": 0, "stdout": ran.out, "stderr": "" })
}

fn answer(page: &mut Page, to: &str, answer: &Value) {
    page.value(&format!("answers[{to:?}] = {answer}; 0"));
}

fn text(page: &mut Page) -> String {
    let text = page.value("document.body.innerText");
    text.as_str().unwrap_or_default().to_owned()
}

/// Whether rpcd lets the page run the program with these arguments.
fn is_permitted(args: &[String]) -> bool {
    let command = format!("/usr/bin/sumlink {}", args.join(" "));
    let rules: Value = serde_json::from_str(ACL).unwrap();
    let kinds = ["read", "write"].map(|kind| rules["sumlink"][kind]["file"].clone());
    kinds.iter().any(|files| {
        let patterns = files.as_object().unwrap().keys();
        patterns
            .into_iter()
            .any(|pattern| matches(pattern, &command))
    })
}

/// Whether the text is the pattern, in which `*` is any text, as in fnmatch(3) without flags.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn the_page_in_luci_shows_links_and_changes_their_priority() {
    let Some(browser) = browser() else { return };
    let (host, _) = host();
    let (_client, _, _) = client(&host);
    let mut page = Page::open(browser, host.bench.dir());
    page.until("document.body !== null");
    page.value(LUCI);
    page.value("window.answers = {}; 0");
    page.value(&format!("show({}); 0", json!(SOURCE)));
    page.until("document.body.innerText.includes('No service of sumlink runs')");

    answer(&mut page, CLIENT, &status(&host.bench));
    page.value("poll(); 0");
    page.until("document.querySelectorAll('tr').length === 2");
    let shown = text(&mut page);
    for word in [
        "sumlink-client",
        "lo",
        "active",
        "connected for",
        "bit/s",
        &host.address,
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let select = "document.querySelector('select')";
    assert_eq!(page.value(&format!("{select}.value")), "primary");
    assert_eq!(
        page.value(&format!("{select}.getAttribute('aria-label')")),
        "Priority of lo"
    );

    answer(
        &mut page,
        "link",
        &json!({ "code": 0, "stdout": "", "stderr": "" }),
    );
    page.value(&format!(
        "{select}.value = 'backup'; {select}.dispatchEvent(new Event('change')); 0"
    ));
    page.until("notes.length === 1");
    assert_eq!(page.value("notes[0][0]"), "info");
    let calls: Vec<Vec<String>> = serde_json::from_value(page.value("calls")).unwrap();
    for args in &calls {
        assert!(is_permitted(args), "rpcd would refuse {args:?}");
    }
    // The program accepts the arguments, and the page shows the change.
    let change = calls.last().unwrap();
    let change: Vec<&str> = change
        .iter()
        .map(|word| {
            if word == CLIENT {
                "client.sock"
            } else {
                word.as_str()
            }
        })
        .collect();
    assert_eq!(host.bench.run(&change).code, 0, "{change:?}");
    answer(&mut page, CLIENT, &status(&host.bench));
    page.value("document.activeElement.blur(); poll(); 0");
    page.until(&format!("{select}.value === 'backup'"));

    // An error of the program is shown, not hidden.
    let error = json!({ "code": 1, "stdout": "", "stderr": "sumlink: <b>no</b>\n" });
    answer(&mut page, CLIENT, &error);
    page.value("poll(); 0");
    page.until("document.querySelector('.warning')?.textContent === 'sumlink: <b>no</b>'");
}
