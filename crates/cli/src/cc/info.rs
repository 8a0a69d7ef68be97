//! `sumlink cc info NAME`.

use serde_json::json;
use sumlink_congestion::{Parameter, Value, entry};

use super::{Found, InfoArgs, State, find};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::status::terminal_width;
use crate::table::Table;

/// Runs the verb.
pub(super) fn run(args: &InfoArgs) -> Result<(), CliError> {
    let found = find(&args.name)?;
    let parameters = parameters(&found);
    if !args.json {
        return print(&render(&found, &parameters, terminal_width()));
    }
    let rows: Vec<_> = parameters.iter().map(row).collect();
    print_json(&json!({
        "name": found.name,
        "system_name": found.system_name,
        "state": found.state,
        "about": found.about(),
        "source": found.info.map(|info| info.source),
        "coupled": found.info.map(|info| info.coupled),
        "parameters": rows,
    }))
}

/// A parameter, and whether the kernel program has it too.
struct Known {
    parameter: Parameter,
    in_kernel: bool,
}

fn parameters(found: &Found) -> Vec<Known> {
    let Some(entry) = found.info.and_then(|info| entry(info.name)) else {
        return Vec::new();
    };
    let settable = found.twin.map(|twin| twin.parameters()).unwrap_or_default();
    let all = entry.parameters().into_iter();
    all.map(|parameter| Known {
        in_kernel: settable.iter().any(|one| one.key == parameter.key),
        parameter,
    })
    .collect()
}

/// The unit of a value. Other values than times and flags are numbers, of packets unless their text
/// says otherwise.
fn kind(value: Value) -> &'static str {
    match value {
        Value::Number(_) => "number",
        Value::Time(_) => "time",
        Value::Flag(_) => "flag",
    }
}

fn row(known: &Known) -> serde_json::Value {
    let Known {
        parameter,
        in_kernel,
    } = known;
    json!({
        "key": parameter.key,
        "kind": kind(parameter.default),
        "default": parameter.default.to_string(),
        "least": parameter.least.to_string(),
        "most": parameter.most.to_string(),
        "kernel": in_kernel,
        "about": parameter.about,
    })
}

fn render(found: &Found, parameters: &[Known], width: usize) -> String {
    let mut text = format!("{}: {}\n\n", found.name, found.about());
    if let Some(info) = found.info {
        text.push_str(&format!("source    {}\n", info.source));
        let siblings = match info.coupled {
            true => "coupled with the other connections of its session",
            false => "each connection is independent",
        };
        text.push_str(&format!("siblings  {siblings}\n"));
    }
    let state = match (&found.system_name, found.state) {
        (Some(name), State::Available) => {
            format!("{name}, not loaded: sumlink cc load {}", found.name)
        }
        (Some(name), state) => format!("{name}, {}", state.words()),
        (None, state) => state.words().to_owned(),
    };
    text.push_str(&format!("kernel    {state}\n"));
    if parameters.is_empty() {
        return text;
    }
    text.push('\n');
    let mut table = Table::new(&["PARAMETER", ">DEFAULT", "RANGE", "KERNEL", "MEANING"]);
    for known in parameters {
        let Parameter {
            key,
            about,
            default,
            least,
            most,
        } = &known.parameter;
        table.row([
            (*key).to_owned(),
            default.to_string(),
            format!("{least} to {most}"),
            if known.in_kernel { "yes" } else { "-" }.to_owned(),
            about.clone(),
        ]);
    }
    table.wrap_last(width);
    text.push_str(&table.render());
    if parameters.iter().any(|known| !known.in_kernel) {
        text.push_str(
            "\nParameters without `yes` under KERNEL work in the simulator and the library only.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_origin_and_parameters() {
        let all = crate::cc::found(&["reno", "cubic", "bbr"], &[]);
        let rendered = |name: &str| {
            let found = all.iter().find(|found| found.name == name).unwrap();
            render(found, &parameters(found), 120)
        };
        insta::assert_snapshot!(["cs218", "bbr"].map(rendered).join("\n---\n"));
    }
}
