//! Rules against a naive model, their text, and their changes at run time.

use proptest::prelude::*;

use super::*;

fn rule(text: &str) -> Rule {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    let error = text.parse::<Rule>().unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn rules(texts: &[&str]) -> Rules {
    Rules::new(texts.iter().map(|text| rule(text)).collect())
}

/// A connection from this machine to a name.
fn to_name<'a>(names: &'a [&'a str]) -> Query<'a> {
    Query {
        names,
        port: 443,
        protocol: Some(Protocol::Tcp),
        ..Query::default()
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_says_why() {
    let rules = rules(&[
        "domain=example.org port=443 link wwan0",
        "to=10.0.0.0/8,fd00::/8 direct",
        "domain=tracker.net block",
        "protocol=icmp direct",
        "device=02:00:00:00:00:01,192.168.9.0/24 direct",
        "user=alice,1001 cgroup=/user.slice block",
    ]);
    let decide = |query: &Query<'_>| {
        let decision = rules.decide(query);
        (
            decision.rule.map(|rule| rule.number),
            decision.action.to_string(),
            decision.reason,
        )
    };
    let expect = |query: &Query<'_>, number: Option<usize>, action: &str, reason: &str| {
        let expected = (number, action.to_owned(), reason.to_owned());
        assert_eq!(decide(query), expected);
    };
    expect(
        &to_name(&["WWW.Example.org."]),
        Some(1),
        "link wwan0",
        "rule 1: WWW.Example.org. is in the domain example.org, the port is 443",
    );
    expect(
        &to_name(&["badexample.org"]),
        None,
        "bond",
        "no rule matches",
    );
    expect(
        &to_name(&["cdn.net", "tracker.net"]),
        Some(3),
        "block",
        "rule 3: the domain is tracker.net",
    );
    let mut query = Query {
        ip: Some("::ffff:10.1.2.3".parse().unwrap()),
        ..Query::default()
    };
    expect(
        &query,
        Some(2),
        "direct",
        "rule 2: 10.1.2.3 is in 10.0.0.0/8",
    );
    query.ip = Some("192.0.2.1".parse().unwrap());
    query.device = Some("192.168.9.7".parse().unwrap());
    expect(
        &query,
        Some(5),
        "direct",
        "rule 5: the device is 192.168.9.0/24",
    );
    query.device = None;
    (query.uid, query.user) = (Some(1000), Some("alice"));
    expect(&query, None, "bond", "no rule matches");
    query.cgroup = Some("/user.slice/user-1000.slice");
    let reason = "rule 6: the user is alice, the control group /user.slice/user-1000.slice is in \
                  /user.slice";
    expect(&query, Some(6), "block", reason);
    query.cgroup = Some("/user.slices");
    expect(&query, None, "bond", "no rule matches");
    query.protocol = Some(Protocol::Icmp);
    expect(&query, Some(4), "direct", "rule 4: the protocol is icmp");
}

#[test]
fn a_rule_without_conditions_matches_everything() {
    let decision = rules(&["block"]).decide(&Query::default());
    assert_eq!(decision.action, Action::Block);
    assert_eq!(decision.reason, "rule 1 matches everything");
}

/// The list shows ids, and only ids remove a rule.
#[test]
fn the_reason_names_the_rule_by_its_id() {
    let rules = rules(&["port=443 direct"]);
    rules.add(rule("port=22 block"), Keep::No).unwrap();
    let decision = rules.decide(&to_name(&["example.org"]));
    assert_eq!(decision.reason, "rule 1: the port is 443");
    let decisive = decision.rule.unwrap();
    assert_eq!((decisive.number, decisive.id), (2, 1));
}

#[test]
fn a_condition_about_something_unknown_is_not_met() {
    for text in [
        "domain=a.org block",
        "to=::/0 block",
        "port=1-65535 block",
        "protocol=tcp block",
        "user=root block",
        "cgroup=/ block",
        "device=0.0.0.0/0 block",
    ] {
        let decision = rules(&[text]).decide(&Query::default());
        assert_eq!(decision.action, Action::Bond, "{text}");
    }
}

#[test]
fn rules_display_as_they_are_written() {
    for text in [
        "bond",
        "link wwan0",
        "domain=example.net,example.org port=22,8000-8010 protocol=tcp direct",
        "to=10.0.0.0/8,192.0.2.7/32,2001:db8::/32 block",
        "user=alice,1001 cgroup=/system.slice/x.service direct",
        "device=02:00:00:00:00:01,192.168.9.7/32 block",
    ] {
        assert_eq!(rule(text).to_string(), text);
    }
    for (text, form) in [
        ("domain=*.Example.org. direct", "domain=example.org direct"),
        ("link wwan0 domain=a.org", "domain=a.org link wwan0"),
        ("to=10.1.2.3/8 direct", "to=10.0.0.0/8 direct"),
        ("to=10.1.2.3 direct", "to=10.1.2.3/32 direct"),
        (
            "device=02-00-00-00-00-AB block",
            "device=02:00:00:00:00:ab block",
        ),
        ("cgroup=/sys/fs/cgroup/a/ block", "cgroup=/a block"),
        ("cgroup=/ block", "cgroup=/ block"),
    ] {
        assert_eq!(rule(text).to_string(), form);
    }
}

#[test]
fn an_error_is_one_line_with_the_remedy() {
    for (text, part) in [
        ("", "no action"),
        ("domain=a.org", "end it with bond"),
        ("domain=a.org drop", "`drop` is not an action"),
        ("direct domain=a.org bond", "`direct bond` is not an action"),
        ("link", "the name of a link"),
        ("link a-name-of-20-letters", "1 to 15"),
        ("host=a.org bond", "domain=, to=, port="),
        ("port=1 port=2 bond", "port=A,B"),
        ("domain= bond", "the condition `domain` has no value"),
        ("domain=a..org bond", "`a..org` is not a domain"),
        ("domain=192.0.2.1 bond", "not a domain"),
        ("domain=bücher.example bond", "xn--"),
        ("to=10.0.0.0/33 bond", "192.0.2.0/24"),
        ("port=0 bond", "not a port list"),
        ("protocol=sctp bond", "tcp, udp or icmp"),
        ("protocol=icmp port=1 bond", "icmp has no ports"),
        ("user=-1 bond", "not a user"),
        ("cgroup=user.slice bond", "/system.slice/x.service"),
        ("cgroup=/a/../b bond", "not a control group"),
        ("device=phone bond", "MAC"),
        ("device=1:2:3:4:5:6 bond", "not a device"),
        ("user=a device=10.0.0.1 bond", "use one kind"),
    ] {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn files_have_lists_numbers_and_texts() {
    #[derive(serde::Deserialize)]
    struct File {
        route: Vec<Rule>,
    }
    let json = r#"{"route": [
        {"domain": ["a.org", "b.org"], "port": 443, "action": "direct"},
        {"to": "10.0.0.0/8", "user": [1000, "bob"], "action": "link eth0"}
    ]}"#;
    let file: File = serde_json::from_str(json).unwrap();
    let expected = [
        "domain=a.org,b.org port=443 direct",
        "to=10.0.0.0/8 user=1000,bob link eth0",
    ];
    assert_eq!(file.route, expected.map(rule));
    let text = serde_json::to_string(&file.route[0]).unwrap();
    assert_eq!(serde_json::from_str::<Rule>(&text).unwrap(), file.route[0]);
    for (json, part) in [
        (r#"{"action": "drop"}"#, "`drop` is not an action"),
        (r#"{"action": "bond", "host": "a"}"#, "unknown field"),
        (r#"{"action": "bond", "port": 70000}"#, "not a port list"),
    ] {
        let error = serde_json::from_str::<Rule>(json).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn only_needed_facts_are_asked_for() {
    let needs = |text: &str| rules(&[text]).needs();
    assert_eq!(
        needs("to=::/0 port=1 protocol=tcp device=10.0.0.1 block"),
        Needs::default()
    );
    assert!(needs("domain=a.org bond").names);
    assert!(needs("user=1 bond").uid && !needs("user=1 bond").user);
    assert!(needs("user=a bond").uid && needs("user=a bond").user);
    assert!(needs("cgroup=/a bond").cgroup);
    assert!(needs("device=02:00:00:00:00:01 bond").mac);
}

#[test]
fn rules_added_at_run_time_come_first_and_can_be_removed() {
    let rules = rules(&["to=10.0.0.0/8 direct"]);
    let query = Query {
        ip: Some("10.0.0.1".parse().unwrap()),
        ..Query::default()
    };
    let configured = rules.list()[0].id;
    let before = rules.generation();
    let first = rules.add(rule("to=10.0.0.0/8 block"), Keep::No).unwrap();
    let second = rules.add(rule("to=10.0.0.0/16 bond"), Keep::No).unwrap();
    assert_ne!(rules.generation(), before);
    let order: Vec<u64> = rules.list().iter().map(|entry| entry.id).collect();
    assert_eq!(order, [second, first, configured]);
    assert_eq!(rules.decide(&query).action, Action::Bond);
    assert_eq!(rules.remove(second).unwrap(), rule("to=10.0.0.0/16 bond"));
    assert_eq!(rules.decide(&query).action, Action::Block);
    assert_eq!(rules.remove(second), Err(RuleError::NoSuchRule(second)));
    assert_eq!(
        rules.remove(configured),
        Err(RuleError::Configured(configured))
    );
    // A reloaded file changes only its own rules, and those that stay keep their ids.
    rules.set_configured(vec![rule("block"), rule("to=10.0.0.0/8 direct")]);
    let order: Vec<u64> = rules.list().iter().map(|entry| entry.id).collect();
    assert_eq!((order[0], order[2], order.len()), (first, configured, 3));
    assert_eq!(rules.add(rule("bond"), Keep::Yes), Err(RuleError::NoFile));
}

#[test]
fn kept_rules_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state/rules.json");
    let open = || Rules::with_file(vec![rule("bond")], file.clone()).unwrap();
    let rules = open();
    rules.add(rule("domain=a.org block"), Keep::Yes).unwrap();
    rules.add(rule("domain=b.org block"), Keep::No).unwrap();
    let kept = rules.add(rule("domain=c.org block"), Keep::Yes).unwrap();
    let texts = |rules: &Rules| -> Vec<String> {
        let entries = rules.list();
        entries.iter().map(|entry| entry.rule.to_string()).collect()
    };
    assert_eq!(
        texts(&open()),
        ["domain=c.org block", "domain=a.org block", "bond"]
    );
    rules.remove(kept).unwrap();
    assert_eq!(texts(&open()), ["domain=a.org block", "bond"]);
    std::fs::write(&file, "[{").unwrap();
    let error = Rules::with_file(Vec::new(), file.clone())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("rules.json") && error.lines().count() == 1,
        "{error}"
    );
}

/// A few values of each kind, so that random conditions often match.
const NAMES: [&str; 5] = ["a.org", "b.a.org", "c.b.a.org", "xa.org", "org"];
const IPS: [&str; 4] = ["10.0.0.1", "10.1.0.1", "2001:db8::1", "192.0.2.1"];
const NETWORKS: [&str; 4] = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "192.0.2.1/32"];

/// A rule in the model: for each condition the chosen values.
#[derive(Clone, Debug)]
struct Model {
    domains: Vec<usize>,
    networks: Vec<usize>,
    ports: Option<(u16, u16)>,
    uid: Option<u32>,
    action: usize,
}

const ACTIONS: [&str; 4] = ["bond", "direct", "block", "link a"];

impl Model {
    fn text(&self) -> String {
        let mut words = Vec::new();
        let list = |values: &[&str], chosen: &[usize]| -> String {
            let chosen: Vec<&str> = chosen.iter().map(|index| values[*index]).collect();
            chosen.join(",")
        };
        if !self.domains.is_empty() {
            words.push(format!("domain={}", list(&NAMES, &self.domains)));
        }
        if !self.networks.is_empty() {
            words.push(format!("to={}", list(&NETWORKS, &self.networks)));
        }
        if let Some((first, last)) = self.ports {
            words.push(format!("port={first}-{last}"));
        }
        if let Some(uid) = self.uid {
            words.push(format!("user={uid}"));
        }
        words.push(ACTIONS[self.action].to_owned());
        words.join(" ")
    }

    fn matches(&self, name: &str, ip: &str, port: u16, uid: u32) -> bool {
        let is_below = |domain: &str| name == domain || name.ends_with(&format!(".{domain}"));
        let ip: IpAddr = ip.parse().unwrap();
        let contains = |network: &str| network.parse::<IpNet>().unwrap().contains(&ip);
        (self.domains.is_empty() || self.domains.iter().any(|index| is_below(NAMES[*index])))
            && (self.networks.is_empty()
                || self.networks.iter().any(|index| contains(NETWORKS[*index])))
            && self
                .ports
                .is_none_or(|(first, last)| first <= port && port <= last)
            && self.uid.is_none_or(|own| own == uid)
    }
}

fn model() -> impl Strategy<Value = Model> {
    let some = || proptest::collection::vec(0..4usize, 0..3);
    let ports = proptest::option::of((1..5u16, 0..3u16));
    (
        some(),
        some(),
        ports,
        proptest::option::of(0..3u32),
        0..4usize,
    )
        .prop_map(|(domains, networks, ports, uid, action)| Model {
            domains,
            networks,
            ports: ports.map(|(first, more)| (first, first + more)),
            uid,
            action,
        })
}

proptest! {
    #[test]
    fn decisions_are_those_of_a_naive_model(
        models in proptest::collection::vec(model(), 0..8),
        queries in proptest::collection::vec((0..5usize, 0..4usize, 1..8u16, 0..3u32), 1..20),
    ) {
        let texts: Vec<String> = models.iter().map(Model::text).collect();
        let parsed: Vec<Rule> = texts.iter().map(|text| rule(text)).collect();
        for rule in &parsed {
            prop_assert_eq!(&rule.to_string().parse::<Rule>().unwrap(), rule);
            let json = serde_json::to_string(rule).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Rule>(&json).unwrap(), rule);
        }
        let rules = Rules::new(parsed);
        for (name, ip, port, uid) in queries {
            let (name, ip) = (NAMES[name], IPS[ip]);
            let query = Query {
                names: &[name],
                ip: Some(ip.parse().unwrap()),
                port,
                uid: Some(uid),
                ..Query::default()
            };
            let expected = models.iter().position(|model| model.matches(name, ip, port, uid));
            let decision = rules.decide(&query);
            prop_assert_eq!(decision.rule.map(|rule| rule.number - 1), expected);
            let action = expected.map_or("bond", |index| ACTIONS[models[index].action]);
            prop_assert_eq!(decision.action.to_string(), action);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9=,./: *-]{0,60}") {
        let _ = text.parse::<Rule>();
    }
}
