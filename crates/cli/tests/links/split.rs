//! `sumlink link split` and `join`, on a veth pair in a namespace.

use serde_json::Value;
use sumlink_lab::Side;

use sumlink_test_support::emulated::Bench;

fn bench() -> Option<Bench> {
    let bench = crate::bench(&["a:rate=20mbit".to_owned()])?;
    let veth = "link add name card address 00:11:22:33:44:55 type veth peer name far\nlink set card up\nlink set far up\n";
    let file = bench.write("ip-batch", veth);
    bench.run(Side::Client, &["ip", "-batch", file.to_str().unwrap()]);
    Some(bench)
}

/// Exit code, standard output and standard error.
fn link(bench: &Bench, args: &[&str]) -> (i32, String, String) {
    let args = [&["link"], args].concat();
    let output = bench.run_sumlink(Side::Client, &args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The client's interfaces whose names begin with `start`, and their addresses.
fn interfaces(bench: &Bench, start: &str) -> Vec<(String, String)> {
    let output = bench.lab.run(Side::Client, || {
        std::process::Command::new("ip")
            .args(["-json", "link", "show"])
            .output()
    });
    let list: Value = serde_json::from_slice(&output.unwrap().unwrap().stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(&one["ifname"]), text(&one["address"])));
    let mut all: Vec<_> = all.filter(|(name, _)| name.starts_with(start)).collect();
    all.sort();
    all
}

#[test]
fn an_ethernet_interface_is_split_and_joined_again() {
    let Some(bench) = bench() else { return };
    let (code, out, err) = link(
        &bench,
        &["split", "card", "--kind", "macvlan", "--into", "3"],
    );
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "card is 3 links now: card, cardv2, cardv3\n");
    let expected = [
        ("card", "00:11:22:33:44:55"),
        ("cardv2", "06:11:22:33:44:55"),
        ("cardv3", "0a:11:22:33:44:55"),
    ];
    let expected = expected.map(|(name, mac)| (name.to_owned(), mac.to_owned()));
    assert_eq!(interfaces(&bench, "card"), expected);

    // A second split is an error and changes nothing.
    let (code, out, err) = link(&bench, &["split", "card", "--kind", "macvlan"]);
    assert_eq!((code, out.as_str(), err.lines().count()), (5, "", 1));
    assert!(err.contains("split already (cardv2)"), "{err}");
    assert_eq!(interfaces(&bench, "card").len(), 3);

    let (code, out, _) = link(&bench, &["join", "card", "--json"]);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &answer["removed"]),
        (0, &serde_json::json!(["cardv2", "cardv3"]))
    );
    assert_eq!(interfaces(&bench, "card"), expected[..1]);
    assert_eq!(
        link(&bench, &["join", "card"]),
        (0, "card was not split\n".to_owned(), String::new())
    );
}

#[test]
fn impossible_splits_are_refused_with_a_reason_and_change_nothing() {
    let Some(bench) = bench() else { return };
    // An existing interface is in the way: interfaces made before it are removed again.
    let file = bench.write("ip-batch", "link add cardv3 type veth peer name other\n");
    bench.run(Side::Client, &["ip", "-batch", file.to_str().unwrap()]);
    let before = interfaces(&bench, "");
    for (args, code, reason) in [
        (
            &["split", "card", "--kind", "macvlan", "--into", "3"][..],
            5,
            "an interface cardv3 exists already",
        ),
        (&["split", "card"], 5, ""),
        (
            &["split", "a", "--kind", "macvlan"],
            5,
            "a has no hardware address of 6 bytes",
        ),
        (&["split", "nothing"], 5, "no interface nothing"),
        (&["join", "nothing"], 5, "no interface nothing"),
        (&["split", "card", "--into", "1"], 2, "1"),
    ] {
        let (got, out, err) = link(&bench, args);
        assert_eq!((got, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(err.contains(reason), "{args:?}: {err}");
    }
    // Without iw, advice on its installation; with it, that the interface is not Wi-Fi.
    let (_, _, err) = link(&bench, &["split", "card"]);
    assert!(
        err.contains("card is not a Wi-Fi interface") || err.contains("apt-get install iw"),
        "{err}"
    );
    assert_eq!(interfaces(&bench, ""), before);
}

#[test]
fn a_split_that_fails_halfway_is_undone() {
    let Some(bench) = bench() else { return };
    // The card already has the address of the third interface, which the kernel detects when it
    // makes the interface.
    let file = bench.write(
        "ip-batch",
        "link add link card name other address 0a:11:22:33:44:55 type macvlan mode bridge\nlink set other up\n",
    );
    bench.run(Side::Client, &["ip", "-batch", file.to_str().unwrap()]);
    let before = interfaces(&bench, "");
    let (code, out, err) = link(
        &bench,
        &["split", "card", "--kind", "macvlan", "--into", "3"],
    );
    assert_eq!(
        (code, out.as_str(), err.lines().count()),
        (5, "", 1),
        "{err}"
    );
    assert_eq!(interfaces(&bench, ""), before);
}
