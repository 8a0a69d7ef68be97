//! The status page in a browser.

use serde_json::json;
use sumlink_test_support::browser::{Page, browser};

use crate::monitor::{client, client_with, host, move_bytes};

/// The text of an element.
fn text(page: &mut Page, selector: &str) -> String {
    let text = page.value(&format!("document.querySelector({selector:?}).textContent"));
    text.as_str().unwrap_or_default().to_owned()
}

/// Nothing is wider than the window, colors follow the scheme, and every element that needs a name
/// for a screen reader has one.
fn assert_readable(page: &mut Page) {
    for (width, scheme) in [
        (1200, "light"),
        (1200, "dark"),
        (390, "light"),
        (390, "dark"),
    ] {
        page.show_as(width, 844, scheme);
        let widest = page.value("document.documentElement.scrollWidth");
        assert!(widest.as_u64() <= Some(width.into()), "{widest} of {width}");
        let back = page.value("getComputedStyle(document.body).backgroundColor");
        let color = if scheme == "dark" {
            "rgb(18, 22, 27)"
        } else {
            "rgb(246, 247, 249)"
        };
        assert_eq!(back, color);
    }
    let nameless = page.value(
        "[...document.querySelectorAll('svg, section, [role=region]')].filter(one => \
         !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby')).length",
    );
    assert_eq!(nameless, 0);
    assert_eq!(page.value("document.documentElement.lang"), "en");
    assert_eq!(page.value("document.querySelectorAll('h1').length"), 1);
}

#[test]
fn the_page_shows_links_clients_and_events_and_names_are_no_markup() {
    let Some(browser) = browser() else { return };
    let (mut host, at_server) = host();
    // A name that would run a script if the page took it for markup.
    let name = "<img src=x onerror=document.title='broken'>";
    let config = std::fs::read_to_string(host.bench.path("server.toml")).unwrap();
    let block = format!("[[client]]\nname = \"{name}\"");
    let config = config.replace("[[client]]", &block);
    host.bench.write("server.toml", &config);
    host.server.signal("HUP");
    host.server.event("reloaded");
    let (mut running, at_client, socks) = client(&host);
    move_bytes(&socks, 100_000);
    let mut page = Page::open(browser, host.bench.dir());

    page.go(&format!("http://{at_client}/"));
    page.until("document.querySelector('#badge')?.textContent === 'healthy'");
    page.until("document.querySelectorAll('#links > li').length === 1");
    assert_eq!(text(&mut page, "#role"), "client");
    assert_eq!(text(&mut page, "#links h3"), "lo");
    assert_eq!(text(&mut page, "#links .badge"), "active");
    assert!(text(&mut page, "#links .why").starts_with("connected for"));
    assert!(text(&mut page, "#about").starts_with("version "));
    assert_eq!(
        page.value("document.querySelector('#part-clients').hidden"),
        true
    );
    assert_eq!(
        page.value("document.querySelectorAll('#classes tr').length"),
        4
    );
    assert_readable(&mut page);
    // The first key leads to a link that skips the heading.
    page.press("Tab");
    let focus = "document.activeElement.className";
    assert_eq!(page.value(focus), "skip");

    page.go(&format!("http://{at_server}/"));
    page.until("document.querySelectorAll('#clients tr').length === 1");
    assert_eq!(text(&mut page, "#clients th"), name);
    assert_eq!(text(&mut page, "#clients td"), "1 of 1");
    assert_eq!(
        page.value("document.querySelectorAll('#clients img').length"),
        0
    );
    assert_eq!(page.value("document.title"), "sumlink server");
    assert_readable(&mut page);
    // More events than the page keeps.
    page.until("performance.getEntriesByName(location.origin + '/status.json').length > 1");
    for _ in 0..60 {
        host.server.signal("HUP");
        host.server.event("reloaded");
    }
    page.until("document.querySelectorAll('#events li').length === 50");
    assert_eq!(text(&mut page, "#events strong"), "reloaded");
    running.signal("TERM");
    running.wait();
    page.until("document.querySelectorAll('#clients tr').length === 0");
    assert_eq!(
        page.value("document.querySelector('#more-clients').hidden"),
        false
    );

    host.server.signal("TERM");
    host.server.wait();
    page.until("!document.querySelector('#lost').hidden");
    let said = text(&mut page, "#lost");
    assert!(said.contains("trying again"), "{said}");
}

#[test]
fn the_page_changes_the_priority_of_a_link_if_the_port_has_a_token() {
    let Some(browser) = browser() else { return };
    let (host, at_server) = host();
    let token = host.bench.write("token", "0123456789abcdef0123\n");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(token, private).unwrap();
    let monitor = "[monitor]\nlisten = \"127.0.0.1:0\"\ntoken = \"token\"\n";
    let (_client, at_client, _) = client_with(&host, monitor);
    let mut page = Page::open(browser, host.bench.dir());
    page.go(&format!("http://{at_server}/"));
    page.until("document.body?.dataset.changes === 'no'");
    page.call("Network.enable", json!({}));
    let headers = json!({ "Authorization": "Bearer 0123456789abcdef0123" });
    page.call("Network.setExtraHTTPHeaders", json!({ "headers": headers }));
    page.go(&format!("http://{at_client}/"));
    page.until("document.querySelector('#links select')?.value === 'primary'");
    let named = "document.querySelector('#links select').labels.length";
    assert_eq!(page.value(named), 1);
    page.value(
        "(() => { const one = document.querySelector('#links select'); one.value = 'backup'; \
         one.dispatchEvent(new Event('change')); })()",
    );
    page.until("document.querySelector('#links .said').textContent.startsWith('Changed')");
    let policy = || {
        let ran = host
            .bench
            .run(&["link", "lo", "--json", "--control", "client.sock"]);
        serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()
    };
    assert_eq!(policy()["priority"], "backup");
    page.until("!document.querySelector('#links button').hidden");
    page.value("document.querySelector('#links button').click()");
    page.until("document.querySelector('#links select').value === 'primary'");
    assert_eq!(policy()["source"], "configuration");
    assert_readable(&mut page);
}
