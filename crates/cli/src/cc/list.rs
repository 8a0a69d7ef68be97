//! `sumlink cc list`.

use crate::kernel::{ABSENT, Missing, probe};
use serde_json::json;

use super::{Found, ListArgs, State, all};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::status::terminal_width;
use crate::table::Table;

/// Runs the verb. It needs no privilege; a note says what loading lacks.
pub(super) fn run(args: &ListArgs) -> Result<(), CliError> {
    let (all, missing) = (all()?, probe());
    if !args.json {
        return print(&render(&all, &missing, terminal_width()));
    }
    let rows: Vec<_> = all.iter().map(row).collect();
    let missing: Vec<String> = missing.iter().map(Missing::to_string).collect();
    print_json(&json!({ "congestion_controls": rows, "missing": missing }))
}

fn row(found: &Found) -> serde_json::Value {
    json!({
        "name": found.name,
        "system_name": found.system_name,
        "state": found.state,
        "coupled": found.info.map(|info| info.coupled),
        "about": found.about(),
    })
}

fn render(all: &[Found], missing: &[Missing], width: usize) -> String {
    let mut table = Table::new(&["NAME", "STATE", "ON THE SYSTEM", "FOR"]);
    for found in all {
        table.row([
            found.name.clone(),
            found.state.words().to_owned(),
            found.system_name.clone().unwrap_or_else(|| "-".to_owned()),
            found.about().to_owned(),
        ]);
    }
    table.wrap_last(width);
    let mut text = table.render();
    let can_load = ABSENT.is_some() || all.iter().any(|found| found.state == State::Available);
    if let Some(missing) = missing.first().filter(|_| can_load) {
        text.push_str(&format!(
            "\nCongestion controls cannot be loaded here: {missing}\n"
        ));
    }
    text
}

#[cfg(all(test, feature = "kernel"))]
mod tests {
    use sumlink_congestion::Info;

    use super::*;

    #[test]
    fn every_state_is_listed() {
        let info = |about| {
            Some(Info {
                name: "x",
                about,
                source: "x",
                coupled: true,
            })
        };
        let found = |name: &str, system_name: Option<&str>, state, info| Found {
            name: name.to_owned(),
            system_name: system_name.map(str::to_owned),
            state,
            info,
            twin: None,
        };
        let all = [
            found(
                "cubic",
                Some("cubic"),
                State::BuiltIn,
                info("a cubic curve in time"),
            ),
            found(
                "lia",
                Some("sl_lia"),
                State::Loaded,
                info("fair where links share a bottleneck"),
            ),
            found(
                "olia",
                Some("sl_olia"),
                State::Available,
                info("the successor of the one before"),
            ),
            found(
                "later",
                None,
                State::Simulator,
                info("a reference that has no program for the kernel, and a long text"),
            ),
            found("bbr", Some("bbr"), State::BuiltIn, None),
        ];
        insta::assert_snapshot!(render(&all, &[Missing::Privilege], 80));
    }
}
