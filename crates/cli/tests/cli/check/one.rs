//! Each mistake, alone in a file, has its line and reason.

/// Checks a file of these lines after a valid minimum, which ends before line 4.
fn problems(role: &str, lines: &str) -> (i32, String) {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let minimum = match role {
        "client" => format!("server = \"h:7443\"\nserver_key = \"{key}\"\nkey = \"a.key\"\n"),
        _ => format!("listen = \"[::]:7443\"\nkey = \"a.key\"\nclient = [{{ key = \"{key}\" }}]\n"),
    };
    bench.write(
        "x.toml",
        &format!("{minimum}{}", lines.replace("KEY", &key)),
    );
    let ran = bench.run(&["check", "x.toml"]);
    assert_eq!(ran.out, "", "{lines}");
    (ran.code, ran.err)
}

/// Checks that `check` reports only the expected problem with these lines.
#[track_caller]
pub(super) fn assert_problem(role: &str, lines: &str, expected: &str) {
    let (code, error) = problems(role, lines);
    assert_eq!(code, 3, "{lines}: {error}");
    assert!(
        error.contains(expected),
        "{lines}\n  expected {expected}\n  but got {error}"
    );
    assert_eq!(error.lines().count(), 1, "{lines}: {error}");
}

#[test]
fn every_mistake_has_its_line_and_reason() {
    for (role, lines, expected) in [
        (
            "client",
            "scoks = \"127.0.0.1:1080\"",
            "x.toml:4: unknown key `scoks`: did you mean `socks`?",
        ),
        (
            "client",
            "[session]\nscheduler = \"blest\"",
            "x.toml:5: `scheduler`: the scheduler `blest` is part of sumlink-lab: choose one of fbdt, minrtt, \
             linux, redundant",
        ),
        (
            "server",
            "[session.schedulers]\nstreaming = \"wrr\"",
            "x.toml:5: `streaming`: the scheduler `wrr` is part of sumlink-lab: choose one of fbdt, minrtt, ",
        ),
        (
            "client",
            "\nbandwidth = 5",
            "x.toml:5: unknown key `bandwidth`: known keys are server,",
        ),
        (
            "client",
            "socks = \"108000\"",
            "x.toml:4: `socks`: `108000` is not an address and port",
        ),
        (
            "client",
            "http = \"localhost:8080\"",
            "x.toml:4: `http`: `localhost:8080` is not an address and port",
        ),
        (
            "client",
            "forward = [\n\"8080=a:80\",\n\"8081\"]",
            "x.toml:6: `forward`: `8081` is not a forward",
        ),
        (
            "client",
            "forward = \"8080=a:80\"",
            "x.toml:4: `forward`: write a list in brackets, not the text \"8080=a:80\"",
        ),
        (
            "client",
            "early = true",
            "x.toml:4: `early`: write a text in quotes, not true",
        ),
        (
            "client",
            "early = \"now\"",
            "x.toml:4: `early`: `now` is not one of never, known, always",
        ),
        (
            "server",
            "early = \"known\"",
            "x.toml:1: `early` is a client's key and `listen` a server's",
        ),
        (
            "client",
            "links = \"wlan0\"",
            "x.toml:4: the only value here is \"auto\"",
        ),
        (
            "client",
            "links = \"auto\"\n[[link]]\nname = \"a\"",
            "x.toml:4: `links = \"auto\"` and [[link]]",
        ),
        (
            "client",
            "[[link]]\nname = \"a/b\"",
            "x.toml:5: `name`: `a/b` is not the name of an interface",
        ),
        (
            "client",
            "[[link]]\ncongestion = \"bbr\"",
            "x.toml:4: this block has no `name`: add it",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\n[[link]]\nname = \"a\"",
            "x.toml:7: link `a` occurs twice",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\ncongestion = \"b b\"",
            "x.toml:6: `congestion`: `b b` is not a congestion",
        ),
        (
            "client",
            "[[link]]\nnmae = \"a\"",
            "x.toml:5: unknown key `nmae`: did you mean `name`?",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\nrate = \"5mbit\"",
            "x.toml:6: unknown key `rate`: known keys are name, congestion",
        ),
        (
            "client",
            "[[class]]\nport = \"22,0\"\nclass = \"interactive\"",
            "x.toml:5: `port`: `0` is not a port list",
        ),
        (
            "client",
            "[[class]]\nclass = \"interactive\"\ndscp = \"af50\"",
            "x.toml:6: `dscp`: `af50` is not a DSCP",
        ),
        (
            "client",
            "[[class]]\nuser = \"a\"\nclass = \"bulk\"",
            "x.toml:6: `class`: `bulk` is not a class; the classes are conversational,",
        ),
        (
            "client",
            "[[class]]\nuser = \"\"\nclass = \"background\"",
            "x.toml:5: `user`: a user name has 1 to 255 bytes",
        ),
        (
            "client",
            "[[class]]\nclass = \"background\"",
            "x.toml:5: this class has no condition",
        ),
        (
            "client",
            "[[class]]\nport = \"1\"\nclass = \"streaming\"\n[[class]]\nclass = \"background\"\nport = \"1\"",
            "x.toml:8: a [[class]] block above has the same",
        ),
        (
            "client",
            "[session]\nscheduler = \"fbtd\"",
            "x.toml:5: `scheduler`: no scheduler `fbtd`: did you mean `fbdt`?",
        ),
        (
            "client",
            "[session.schedulers]\nconversational = \"redundnat\"",
            "x.toml:5: `conversational`: no scheduler `redundnat`: did you mean `redundant`?",
        ),
        (
            "client",
            "[session.schedulers]\nconversation = \"redundant\"",
            "x.toml:5: unknown key `conversation`: did you mean `conversational`?",
        ),
        (
            "client",
            "[session]\nmemory = \"64\"",
            "x.toml:5: `memory`: '64' has no unit",
        ),
        (
            "client",
            "[session]\nmemory = 64",
            "x.toml:5: `memory`: write a text in quotes, not the number 64",
        ),
        (
            "client",
            "[session]\nmemory = \"1B\"",
            "x.toml:5: memory must be from",
        ),
        (
            "client",
            "[session]\n\nstream_memory = \"2GiB\"",
            "x.toml:6: stream_memory must be from",
        ),
        (
            "client",
            "[session]\ntimeout = \"0s\"",
            "x.toml:5: `timeout`: `0s` is out of range",
        ),
        (
            "client",
            "[session]\nmax_streams = 0",
            "x.toml:5: max_streams must be from 1 to 65536, not 0",
        ),
        (
            "client",
            "[session]\nmax_streams = 65537",
            "x.toml:5: max_streams must be from 1 to 65536, not 65537",
        ),
        (
            "client",
            "[session]\nmax_streams = -1",
            "x.toml:5: `max_streams`: write a positive number",
        ),
        (
            "client",
            "[session.redundancy]\nshare = \"200%\"",
            "x.toml:5: `share`: '200%' is out of range for a percentage: write at most 100%",
        ),
        (
            "client",
            "[session.redundancy]\nfloor = \"2GiB\"",
            "x.toml:5: `floor`: `2GiB` is out of range: write at most 1GiB",
        ),
        (
            "server",
            "[session.redundancy]\nrefil = \"1kB\"",
            "x.toml:5: unknown key `refil`: did you mean `refill`?",
        ),
        (
            "client",
            "[session.windows.background]\nproducts = 2\nleast = \"1B\"",
            "x.toml:6: `least`: a window is from 1 KiB to 1 TiB",
        ),
        (
            "client",
            "[session.windows.conversational]\nleast = \"1MiB\"",
            "x.toml:5: `least`: a window is from 1 KiB to 1 TiB, its least size no larger than its most",
        ),
        (
            "server",
            "[session.windows]\nbackground = { products = -1.0 }",
            "x.toml:5: `products`: a window is from 1 KiB to 1 TiB",
        ),
        (
            "client",
            "[session.windows.backgroud]\nproducts = 1",
            "unknown key `backgroud`: did you mean `background`?",
        ),
        (
            "client",
            "[session.race]\ninteractive = 16",
            "x.toml:5: `interactive`: write a text in quotes, not the number 16",
        ),
        (
            "client",
            "[session]\ncoupling = \"far\"",
            "x.toml:5: `coupling`: `far` is not a coupling: write \"none\", \"fair\"",
        ),
        (
            "client",
            "[session]\nalpha = 0.5\nbeta = 1.5",
            "x.toml:6: `beta`: alpha and beta must be above 0 and no larger than 1",
        ),
        (
            "server",
            "[session]\ncoupling = \"fair\"\nbeta = 0.5",
            "x.toml:6: `beta`: `coupling` and the factors",
        ),
        (
            "client",
            "control =",
            "x.toml:4: `control`: the value is missing",
        ),
        (
            "client",
            "listen = \"[::]:1\"",
            "x.toml:1: `server` is a client's key and `listen` a server's",
        ),
        (
            "client",
            "server = \"h:1\"",
            "x.toml:4: `server` occurs twice: remove one",
        ),
        (
            "server",
            "[egress]\nrules = [\n\"allow 10.0.0.0/8\",\n\"alow *\"]",
            "x.toml:7: `rules`: ",
        ),
        (
            "server",
            "[egress]\nrule = []",
            "x.toml:5: unknown key `rule`: did you mean `rules`?",
        ),
        (
            "server",
            "[limits]\npaths = 0",
            "x.toml:5: `paths`: write a number from 1",
        ),
        (
            "server",
            "[limits]\npaths = -1",
            "x.toml:5: `paths`: write a number from 1",
        ),
        (
            "server",
            "[limits]\npaths = \"3\"",
            "x.toml:5: `paths`: write a whole number, not the text \"3\"",
        ),
        (
            "server",
            "congestion = \"\"",
            "x.toml:4: `congestion`: `` is not a congestion control",
        ),
        ("server", "[[client]]\nkey = \"KEY\"", "x.toml:4: "),
    ] {
        assert_problem(role, lines, expected);
    }
}
