//! The workloads between a LAN host and the internet host.

use std::time::Duration;

use sumlink_settings::units::{parse_duration, parse_size};

use crate::scenario::document::Document;
use crate::scenario::section::Section;

use super::{MESSAGE, Workload};

/// Largest number of connections of a workload: a client has one address, and fewer ports.
const CONNECTIONS: u64 = 50_000;

pub(super) fn read_connections(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Workload {
    let parallel = section.integer(document, "parallel", 1..CONNECTIONS + 1);
    let answer = section.parsed(document, "answer", parse_size);
    if let Some(at) = answer.as_ref().filter(|at| !MESSAGE.contains(&at.value)) {
        document.problem(&at.span, "answer: from 16B to 1MB");
    }
    Workload::Connections {
        parallel: parallel.map_or(32, |at| at.value),
        answer: answer.map_or(1000, |at| at.value),
    }
}

pub(super) fn read_open(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Option<Workload> {
    let count = section.integer(document, "count", 1..CONNECTIONS + 1);
    if !section.has("count") {
        section.missing(document, "count", "count = 20000");
    }
    Some(Workload::Open {
        count: count?.value,
    })
}

pub(super) fn read_dns(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Workload {
    let cached = section.boolean(document, "cached").unwrap_or(false);
    let gap = section.parsed(document, "gap", parse_duration);
    Workload::Dns {
        cached,
        gap: gap.map_or(Duration::from_millis(10), |at| at.value),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn workloads_between_hosts_behind_a_gateway_have_defaults() {
        let read = |keys: &str| {
            let text = format!(
                "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"wifi\"\nrate = \"1mbit\"\n\
                 [workload]\n{keys}"
            );
            let parse = |text: &str| Scenario::parse(Path::new("s.toml"), text);
            let alone = parse(&text).unwrap_err();
            assert!(alone[0].reason.contains("needs topology"), "{alone:?}");
            let scenario = parse(&format!("topology = \"lan\"\n{text}"));
            scenario.map(|scenario| scenario.workload)
        };
        let connections = Workload::Connections {
            parallel: 32,
            answer: 1000,
        };
        assert_eq!(read("kind = \"connections\"\n"), Ok(connections));
        let open = Workload::Open { count: 20_000 };
        assert_eq!(read("kind = \"open\"\ncount = 20_000\n"), Ok(open));
        let dns = Workload::Dns {
            cached: false,
            gap: Duration::from_millis(10),
        };
        assert_eq!(read("kind = \"dns\"\n"), Ok(dns.clone()));
        assert!(dns.needs_udp() && dns.needs_lan());
        let wrong = read("kind = \"connections\"\nanswer = \"2MB\"\n").unwrap_err();
        assert!(wrong[0].reason.contains("from 16B to 1MB"), "{wrong:?}");
    }
}
