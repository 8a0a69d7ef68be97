//! Examples of redaction, and random texts.

use super::*;

/// A public key as `sumlink pubkey` prints it.
const KEY: &str = "VLstTzRuXEd0DqKtdMIOUkw8nlFycrHMzDDRy0Yw9vo=";

fn redacted(text: &str) -> String {
    Redactor::default().redact(text)
}

#[test]
fn public_addresses_are_numbered_and_others_stay() {
    let mut redactor = Redactor::default();
    for (text, expected) in [
        (
            "inet 85.1.2.3/24 brd 85.1.2.255 scope global eth0",
            "inet addr-1/24 brd addr-2 scope global eth0",
        ),
        ("85.1.2.3:443, 85.1.2.3.", "addr-1:443, addr-1."),
        (
            "to 2a02:1234::5 via fe80::1%eth0",
            "to addr-3 via fe80::1%eth0",
        ),
        (
            "[2a02:1234::5]:443, ::ffff:85.1.2.3:80",
            "[addr-3]:443, ::ffff:addr-1:80",
        ),
        ("dst:2a02:1234::5: refused", "dst:addr-3: refused"),
        ("4.3.2.85.1.2.3.4", "addr-4.addr-5"),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
    for same in [
        "10.0.0.1 172.16.0.1 192.168.1.5/24 127.0.0.1:1080 169.254.1.1 0.0.0.0/0 128.0.0.0/1",
        "192.0.2.1 198.51.100.1 203.0.113.1 100.64.0.1 198.18.74.1 224.0.0.1 255.255.255.255",
        "::1 :: fe80::1 fd00::1 ff02::1 2001:db8::7 3fff::1 2000::/3 64:ff9b::/96",
        "1.2.3 6.18.2-1 eth0.100 12:34:56 2026-11-30T12:00:00.123Z 0000:03:00.0",
        "sumlink_transport::links core::fmt std::panicking::begin_panic",
    ] {
        assert_eq!(redacted(same), same);
    }
}

#[test]
fn cards_keep_their_vendor_and_are_the_same_in_all_forms() {
    let text = "link/ether aa:bb:cc:dd:ee:ff brd ff:ff:ff:ff:ff:ff enxaabbccddeeff \
                fe80::a8bb:ccff:fedd:eeff aa-bb-cc-dd-ee-ff aa:bb:cc:dd:ee:00";
    let expected = "link/ether aa:bb:cc:xx:00:01 brd ff:ff:ff:ff:ff:ff enxaabbccxx0001 \
                    fe80::a8bb:ccff:fexx:0001 aa-bb-cc-xx-00-01 aa:bb:cc:xx:00:02";
    // The link-local address is seen first.
    assert_eq!(redacted(text), expected);
    assert_eq!(redacted("00:00:00:00:00:00"), "00:00:00:00:00:00");
}

#[test]
fn cards_behind_a_name_need_no_separators() {
    let mut redactor = Redactor::default();
    for (text, expected) in [
        ("mac=aabbccddeeff&x=1", "mac=aabbccxx0001&x=1"),
        ("MAC=AABBCCDDEEFF", "MAC=AABBCCxx0001"),
        ("client_mac: aabb.ccdd.eeff", "client_mac: aabbccxx0001"),
        (
            "ap-mac=aa%3ABB%3acc%3Add%3aee%3A00&x",
            "ap-mac=aaBBccxx0002&x",
        ),
        (
            "%26umac%3Daa%2Dbb%2dcc%2ddd%2dee%2dff%26",
            "%26umac%3Daabbccxx0001%26",
        ),
        (
            r#"{"mac":"aabbccddee00","macaddr": "AA:BB:CC:DD:EE:FF"}"#,
            r#"{"mac":"aabbccxx0002","macaddr": "AA:BB:CC:xx:00:01"}"#,
        ),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
    for same in [
        "commit=aabbccddeeff mac=aabbccddeeff0 mac=aabbccdde mac aabbccddeeff",
        "machine=x mac=",
    ] {
        assert_eq!(redactor.redact(same), same);
    }
}

#[test]
fn public_keys_are_numbered_and_other_base64_is_secret() {
    let url = KEY
        .trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_");
    let other = KEY.replace("VLst", "abcd");
    let text = format!("peer={KEY}, \"{other}\" {url} PublicKey({KEY})");
    assert_eq!(
        redacted(&text),
        "peer=key-1, \"key-2\" key-1 PublicKey(key-1)"
    );
    let secret = "MC4CAQAwBQYDK2VwBCIEINv2HScAchgHx1QPswZoQSnmBJkrY+bdJba5QV1RD50G";
    assert_eq!(redacted(&format!("a {secret}\nb")), "a <redacted>\nb");
    let block = format!("x\n-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\ny\n");
    assert_eq!(redacted(&block), "x\n<redacted>\ny\n");
    let cut = &block[..60];
    assert_eq!(redacted(cut), "x\n<redacted>\n");
    let path = "/usr/lib/systemd/system/multi-user.target.wants/sumlink-client.service";
    assert_eq!(redacted(path), path);
}

#[test]
fn invitations_and_named_secrets_are_replaced() {
    for (text, expected) in [
        (
            "\"sumlink://join?a=192.0.2.1:1&k=BwcH&s=AAAA-_\" next",
            "\"<redacted>\" next",
        ),
        ("SUMLINK://x", "<redacted>"),
        ("token = \"abc def\" # x", "token = \"<redacted>\" # x"),
        ("monitor_token = 'abc'", "monitor_token = '<redacted>'"),
        (
            r#"{"password":"x\"y","n":1}"#,
            r#"{"password":"<redacted>","n":1}"#,
        ),
        (
            r#""{\"password\":\"abc\"}""#,
            r#""{\"password\":\"<redacted>\"}""#,
        ),
        ("psk=abc link=eth0", "psk=<redacted> link=eth0"),
        ("tokens = [\"a\", \"b\"]\nc", "tokens = <redacted>\nc"),
        (
            "secret = \"\"\"\na\nb\"\"\"\nc",
            "secret = \"\"\"<redacted>\"\"\"\nc",
        ),
        (
            "Authorization: Bearer abc.def\nnext",
            "Authorization: <redacted>\nnext",
        ),
        (
            "http://bob:pw@proxy.example:3128/",
            "http://<redacted>@proxy.example:3128/",
        ),
    ] {
        assert_eq!(redacted(text), expected);
    }
    let same = "secret key written to client.key; public key: none, https://example.org/@x";
    assert_eq!(redacted(same), same);
}

#[test]
fn known_names_are_replaced_where_they_are_words() {
    let mut redactor = Redactor::default();
    redactor.machine("thinkpad.corp.example");
    redactor.user("alice");
    redactor.user("al");
    redactor.user("sumlink");
    redactor.host("vpn.example.org");
    redactor.host("example.org");
    redactor.host("192.0.2.1");
    for (text, expected) in [
        (
            "alice@thinkpad:/home/alice$ ping VPN.example.org.",
            "user-1@machine:/home/user-1$ ping host-1.",
        ),
        (
            r#""x\nthinkpad" malice al sumlink"#,
            r#""x\nmachine" malice al sumlink"#,
        ),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
    assert_eq!(redactor.redact("www.example.org"), "www.host-2");
    assert_eq!(redactor.redact("thinkpad.corp.example"), "machine");
    let summary = redactor.summary();
    assert!(summary.contains("     2 names of hosts"), "{summary}");
    assert!(summary.contains("     1 names of users"), "{summary}");
    assert!(summary.contains("     0 public keys"), "{summary}");
}

/// A source of random numbers: Marsaglia, "Xorshift RNGs", 2003.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 8) as usize % limit
    }

    fn text(&mut self, len: usize, letters: &str) -> String {
        let letters = letters.as_bytes();
        let letter = |_| char::from(letters[self.below(letters.len())]);
        (0..len).map(letter).collect()
    }

    /// A piece of a text, and the parts of it that must not be in a report.
    fn piece(&mut self) -> (String, Vec<String>) {
        const LOWER: &str = "abcdefghijkmnopqrstuvwxyz23456789";
        const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let whole = |text: String| (text.clone(), vec![text]);
        match self.below(9) {
            0 => whole(format!("{}=", self.text(43, BASE64))),
            1 => {
                let url = BASE64.replace('+', "-").replace('/', "_");
                let (key, secret) = (self.text(43, &url), self.text(22, &url));
                let text = format!("sumlink://join?a=vpn.example.org:7443&k={key}&s={secret}");
                (text, vec![key, secret])
            }
            2 => {
                // None of the first numbers is that of a private network.
                let mut number = || (20 + self.below(70)).to_string();
                whole([number(), number(), number(), number()].join("."))
            }
            3 => {
                let mut segments = [0_u16; 8];
                for segment in &mut segments {
                    *segment = self.next() as u16 >> self.below(3);
                }
                segments[0] = 0x2a02;
                segments[self.below(7) + 1] = 0;
                whole(std::net::Ipv6Addr::from(segments).to_string())
            }
            4 => {
                let bytes = [self.next(), self.next(), self.next()];
                let half = bytes.map(|byte| format!("{:02x}", byte as u8)).join(":");
                (format!("02:1c:b3:{half}"), vec![format!(":{half}")])
            }
            5 => {
                let secret = self.text(14, LOWER);
                let forms = [
                    format!("password={secret}"),
                    format!("\"token\": \"{secret}\""),
                    format!("http://{secret}:{secret}@192.0.2.1/"),
                ];
                (forms[self.below(3)].clone(), vec![secret])
            }
            6 => whole("Alice".to_owned()),
            7 => whole("vpn.example.org".to_owned()),
            _ => whole("thinkpad".to_owned()),
        }
    }
}

#[test]
fn no_secret_and_no_identity_is_left_in_random_texts() {
    const BETWEEN: [&str; 12] = [
        " ", "\n", ", ", "\"", "=", "(", ")", "]: ", "; ", "<", "> ", " | ",
    ];
    for seed in 1..3000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut redactor = Redactor::default();
        redactor.machine("thinkpad");
        redactor.user("alice");
        redactor.host("vpn.example.org");
        let (mut text, mut hidden) = (String::new(), Vec::new());
        for _ in 0..1 + random.below(10) {
            let (piece, parts) = random.piece();
            text.push_str(&piece);
            text.push_str(BETWEEN[random.below(BETWEEN.len())]);
            hidden.extend(parts);
        }
        let out = redactor.redact(&text).to_lowercase();
        for part in hidden {
            let part = part.to_lowercase();
            assert!(
                !out.contains(&part),
                "{seed}: `{part}` of {text:?} is in {out:?}"
            );
        }
    }
}
