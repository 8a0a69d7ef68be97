//! The table of a scenario as HTML and CSV.

use std::fmt::Write;

use super::{View, figures, words};
use crate::results::{ALONE, Missing, Quantiles, SIMULTANEOUS, Spread, SystemSummary};
use sumlink_plot::{COLORS, Palette, escape};

/// Columns that are omitted if no system has a value.
struct Columns {
    completion: bool,
    limit: bool,
    delay: bool,
    lag: bool,
    fairness: bool,
}

/// The table as HTML.
pub(super) fn html(view: &View<'_>) -> String {
    let systems = &view.summary.systems;
    let columns = Columns {
        completion: systems.iter().any(|system| system.completion_s.is_some()),
        limit: systems.iter().any(|system| system.over_limit.is_some()),
        delay: systems
            .iter()
            .any(|system| system.message_delay_ms.is_some()),
        lag: systems.iter().any(|system| system.lag_ms.is_some()),
        fairness: systems.iter().any(|system| system.fairness.is_some()),
    };
    let mut heads = vec![
        "System",
        "Goodput<small>median (least–most)</small>",
        "Of the sum<small>ratio, eq. 3.1</small>",
        "Benefit<small>eq. 3.2</small>",
    ];
    if columns.completion {
        heads.push("Completion<small>50 %, 95 %, 99 %</small>");
    }
    let limit = limit_head(view.summary.limit_s);
    if columns.limit {
        heads.push(&limit);
    }
    if columns.delay {
        heads.push("Delay<small>50 %, 95 %, 99 %</small>");
    }
    if columns.lag {
        heads.push("Greatest lag<small>time above the limit</small>");
    }
    heads.extend([
        "Sent again<small>segments</small>",
        "Duplicates<small>on purpose</small>",
        "CPU<small>cores</small>",
        "Memory<small>peak</small>",
    ]);
    if columns.fairness {
        heads.push("Fairness<small>Jain, of flows</small>");
    }
    heads.push("Runs");
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_owned();
    for head in &heads {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for system in systems {
        row(&mut html, view, system, &columns);
        let parts = match system.system.as_str() {
            ALONE => &view.summary.alone,
            SIMULTANEOUS => &view.summary.simultaneous,
            _ => &Vec::new(),
        };
        for (link, goodput) in parts {
            let best = system.system == ALONE && view.summary.best_link() == Some(link);
            let badge = if best {
                " <em class=\"badge\">best</em>"
            } else {
                ""
            };
            let _ = writeln!(
                html,
                "<tr class=\"part\"><th scope=\"row\">{}{badge}</th><td>{}</td><td \
                 colspan=\"{}\"></td></tr>",
                escape(link),
                spread(Some(goodput), &words::rate),
                heads.len() - 2
            );
        }
        for flow in &system.datagrams {
            let _ = writeln!(
                html,
                "<tr class=\"part\"><th scope=\"row\">{}</th><td colspan=\"{}\">{}</td></tr>",
                escape(&words::flow(flow)),
                heads.len() - 1,
                escape(&words::datagrams(flow))
            );
        }
        for missing in &system.missing {
            let _ = writeln!(
                html,
                "<tr class=\"missing\"><th scope=\"row\"></th><td colspan=\"{}\"><em class=\"badge \
                 {}\">{}</em> {}{}</td></tr>",
                heads.len() - 1,
                class(&missing.kind),
                escape(&missing.kind),
                words::count(missing.runs, "run"),
                why(missing)
            );
        }
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// The text behind the number of missing runs.
fn why(missing: &Missing) -> String {
    // "Not run" needs no reason.
    if missing.reason.starts_with(&missing.kind) {
        return String::new();
    }
    format!(": {}", escape(&missing.reason))
}

/// The heading of the column that counts objects over the limit.
fn limit_head(limit_s: Option<f64>) -> String {
    let limit = limit_s.map_or_else(|| "the limit".to_owned(), words::time);
    format!("Too late<small>objects over {limit}</small>")
}

fn row(html: &mut String, view: &View<'_>, system: &SystemSummary, columns: &Columns) {
    let mut cells = vec![spread(system.goodput_bps.as_ref(), &words::rate)];
    let below = match (system.below_best, &system.aggregation_ratio) {
        (0, _) | (_, None) => String::new(),
        (below, Some(ratio)) => format!(
            "<small class=\"bad\">▼ below the best link in {below} of {}</small>",
            ratio.count
        ),
    };
    let ratio = spread(system.aggregation_ratio.as_ref(), &words::percent);
    cells.push(format!("{ratio}{below}"));
    cells.push(spread(system.aggregation_benefit.as_ref(), &|benefit| {
        format!("{benefit:+.2}")
    }));
    if columns.completion {
        cells.push(tail(system.completion_s.as_ref(), 1.0));
    }
    if columns.limit {
        cells.push(over_limit(system.over_limit.as_ref()));
    }
    if columns.delay {
        cells.push(tail(system.message_delay_ms.as_ref(), 1e-3));
    }
    if columns.lag {
        let above = system.lag_above_s.as_ref();
        let above = above.map_or_else(String::new, |above| {
            format!("<small>{}</small>", words::time(above.median))
        });
        let greatest = spread(system.lag_ms.as_ref(), &|lag| words::time(lag / 1e3));
        cells.push(format!("{greatest}{above}"));
    }
    cells.push(spread(system.retransmissions.as_ref(), &|n| {
        format!("{n:.0}")
    }));
    cells.push(spread(system.duplicates_bytes.as_ref(), &words::bytes));
    cells.push(spread(system.cpu_share.as_ref(), &|share| {
        format!("{share:.2}")
    }));
    cells.push(spread(system.peak_memory_bytes.as_ref(), &words::bytes));
    if columns.fairness {
        cells.push(spread(system.fairness.as_ref(), &|index| {
            format!("{index:.2}")
        }));
    }
    let asked = view.results.header.seeds.max(system.runs);
    cells.push(format!("{} of {asked}", system.runs));
    let _ = write!(
        html,
        "<tr><th scope=\"row\">{}{}</th>",
        swatch(view.palette, &system.system),
        escape(&system.system)
    );
    for cell in cells {
        let _ = write!(html, "<td>{cell}</td>");
    }
    html.push_str("</tr>\n");
}

/// The color of a system.
pub(super) fn swatch(palette: &Palette, system: &str) -> String {
    let color = palette.style(system).color % COLORS.len();
    format!("<i class=\"swatch b-c{color}\"></i>")
}

/// CSS class of a badge. The kinds are read from a file, so only known ones are used.
fn class(kind: &str) -> &'static str {
    match kind {
        "refused" | "failed" => "bad",
        _ => "",
    }
}

fn spread(values: Option<&Spread>, word: &dyn Fn(f64) -> String) -> String {
    let Some(values) = values else {
        return "<span class=\"none\">–</span>".to_owned();
    };
    let (least, median, most) = (word(values.min), word(values.median), word(values.max));
    if least == most {
        median
    } else {
        format!("{median}<small>{}</small>", words::range(&least, &most))
    }
}

/// Number of objects over the limit.
fn over_limit(values: Option<&Spread>) -> String {
    match values {
        Some(values) if values.max == 0.0 => "none".to_owned(),
        _ => {
            let count = spread(values, &|objects| words::number(objects));
            let class = if values.is_some() {
                " class=\"bad\""
            } else {
                ""
            };
            format!("<span{class}>{count}</span>")
        }
    }
}

fn tail(values: Option<&Quantiles>, seconds: f64) -> String {
    values.map_or_else(
        || "<span class=\"none\">–</span>".to_owned(),
        |values| {
            format!(
                "{}<small>{}, {}</small>",
                words::time(values.p50 * seconds),
                words::time(values.p95 * seconds),
                words::time(values.p99 * seconds)
            )
        },
    )
}

/// The table as CSV: a line for each system and figure.
pub(super) fn csv(view: &View<'_>) -> String {
    let environment = &view.summary.environment;
    let mut csv = "scenario,system,quantity,unit,median,min,max,p95,p99,values,missing,congestion,\
                   socket_buffer_max_bytes,kernel,sumlink\n"
        .to_owned();
    let field = figures::field;
    let mut line =
        |system: &SystemSummary, quantity: &str, unit: &str, values: [Option<f64>; 5], count| {
            let missing: Vec<String> = system
                .missing
                .iter()
                .map(|m| format!("{} {}: {}", m.runs, m.kind, m.reason))
                .collect();
            let values =
                values.map(|value| value.map_or_else(String::new, |value| value.to_string()));
            let _ = writeln!(
                csv,
                "{},{},{quantity},{unit},{},{count},{},{},{},{},{}",
                field(&view.summary.scenario),
                field(&system.system),
                values.join(","),
                field(&missing.join("; ")),
                field(&environment.congestion),
                environment.socket_buffer_max_bytes,
                field(&environment.kernel),
                field(&environment.sumlink)
            );
        };
    for system in &view.summary.systems {
        let spreads = [
            ("goodput", "bit/s", &system.goodput_bps),
            ("over the limit", "objects", &system.over_limit),
            ("aggregation ratio", "", &system.aggregation_ratio),
            ("aggregation benefit", "", &system.aggregation_benefit),
            ("greatest lag", "ms", &system.lag_ms),
            ("time with a lag above the limit", "s", &system.lag_above_s),
            (
                "in-order wait of 99 % of the bytes",
                "ms",
                &system.in_order_wait_p99_ms,
            ),
            ("fairness", "", &system.fairness),
            ("retransmissions", "segments", &system.retransmissions),
            ("duplicates", "bytes", &system.duplicates_bytes),
            ("cpu", "cores", &system.cpu_share),
            ("peak memory", "bytes", &system.peak_memory_bytes),
        ];
        for (quantity, unit, values) in spreads {
            // The goodput is always listed, since its line gives the reason for missing figures.
            match values {
                Some(v) => {
                    let values = [Some(v.median), Some(v.min), Some(v.max), None, None];
                    line(system, quantity, unit, values, v.count);
                }
                None if quantity == "goodput" => line(system, quantity, unit, [None; 5], 0),
                None => {}
            }
        }
        let tails = [
            ("completion", "s", &system.completion_s),
            ("message delay", "ms", &system.message_delay_ms),
        ];
        for (quantity, unit, values) in tails {
            if let Some(v) = values {
                let values = [v.p50, v.min, v.max, v.p95, v.p99].map(Some);
                line(system, quantity, unit, values, v.count);
            }
        }
        for flow in &system.datagrams {
            let name = words::flow(flow);
            let spreads = [
                ("loss", "", &flow.loss),
                ("surplus copies", "datagrams", &flow.duplicates),
                ("out of order", "datagrams", &flow.reordered),
                ("delay p50", "ms", &flow.delay_p50_ms),
                ("delay p95", "ms", &flow.delay_p95_ms),
                ("delay p99", "ms", &flow.delay_p99_ms),
                ("jitter", "ms", &flow.jitter_ms),
                ("longest gap", "ms", &flow.gap_ms),
                ("mean opinion score", "", &flow.mos),
            ];
            for (quantity, unit, values) in spreads {
                if let Some(v) = values {
                    let values = [Some(v.median), Some(v.min), Some(v.max), None, None];
                    let quantity = field(&format!("{name}: {quantity}"));
                    line(system, &quantity, unit, values, v.count);
                }
            }
        }
    }
    csv
}
