//! The HTML page. It is also well-formed XML, so that a strict parser can check it.

use std::fmt::Write;

use super::figures::Figure;
use super::words::Simulated;
use super::{View, table, words};
use crate::results::{ALONE, SIMULTANEOUS};
use sumlink_plot::{COLORS, Palette, escape, shortened};

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(super) fn page(sections: &[(View<'_>, Vec<Figure>)], palette: &Palette) -> String {
    let title = title(sections);
    let mut html = format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n\
         <meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>sumlink {}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n\
         <header><h1>{}</h1>\n<p>{}</p></header>\n<main>\n",
        title.to_lowercase(),
        colors(),
        title,
        lead(sections)
    );
    overview(&mut html, sections, palette);
    for (view, figures) in sections {
        section(&mut html, view, figures);
    }
    html.push_str(METHOD);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

/// Description of the method.
const METHOD: &str = "<section id=\"method\"><h2>How to read this</h2>\n<dl>\n\
    <dt>Sum of the links</dt><dd>The goodputs of one TCP connection over each link, measured one \
    at a time in the same run and with the same seed, and added up.</dd>\n\
    <dt>Ratio</dt><dd>Goodput divided by the sum of the links: 100 % is perfect.</dd>\n\
    <dt>Benefit</dt><dd>0 is the best link alone, +1 the sum of all, −1 no goodput at all; below 0 \
    a system does harm. Ratio and benefit are computed for each seed; the table shows \
    medians.</dd>\n\
    <dt>Simultaneous</dt><dd>Independent TCP connections on all links at once: less than the sum \
    where links disturb each other.</dd>\n\
    <dt>Bounds</dt><dd>No system exceeds the sum of the links. Kernel MPTCP is also bounded by its \
    goodput on the same links without interference (WhiteHaul dissertation, eq. 5.1 and \
    5.2).</dd>\n\
    <dt>Refused</dt><dd>The emulator was the bottleneck in that run, or a link did not carry the \
    traffic that a figure attributes to it. The figures would not reflect the links and are \
    omitted.</dd>\n\
    <dt>CPU</dt><dd>CPU seconds of the system's programs per second, client and server together; \
    unknown where the system is the kernel itself.</dd>\n</dl></section>\n";

/// The page's title.
fn title(sections: &[(View<'_>, Vec<Figure>)]) -> &'static str {
    let runs = sections.iter().flat_map(|(view, _)| &view.results.runs);
    match words::simulated(runs.map(|run| &run.environment)) {
        Simulated::None => "Laboratory report",
        Simulated::Some => "Laboratory report, partly simulated",
        Simulated::All => "Report of simulated runs",
    }
}

fn lead(sections: &[(View<'_>, Vec<Figure>)]) -> String {
    let runs = || sections.iter().flat_map(|(view, _)| &view.results.runs);
    let mut parts = vec![
        words::count(sections.len(), "scenario"),
        words::count(runs().count(), "run"),
        words::made(runs()),
    ];
    parts.retain(|part| !part.is_empty());
    format!("{}.", parts.join(", "))
}

/// The overview: every scenario against every system.
fn overview(html: &mut String, sections: &[(View<'_>, Vec<Figure>)], palette: &Palette) {
    let mut systems: Vec<&str> = Vec::new();
    for (view, _) in sections {
        for system in &view.summary.systems {
            if system.system != ALONE && !systems.contains(&system.system.as_str()) {
                systems.push(&system.system);
            }
        }
    }
    // The reference comes first.
    systems.sort_by_key(|system| *system != SIMULTANEOUS);
    html.push_str(
        "<section id=\"overview\"><h2>Overview</h2>\n\
         <p>Medians. Bulk transfers: goodput as a share of the sum of the links alone; files and \
         messages: median time. <span class=\"bad\">▼</span> slower than the best link alone in at \
         least one seed; for files, in the median.</p>\n\
         <div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">Scenario</th><th \
         scope=\"col\">Sum of the links</th>",
    );
    for system in &systems {
        let _ = write!(
            html,
            "<th scope=\"col\">{}{}</th>",
            table::swatch(palette, system),
            escape(&shortened(system, 60))
        );
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (view, _) in sections {
        let sum = view.summary.bounds.sum_alone_bps;
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th><td>{}</td>",
            view.slug,
            escape(&view.summary.scenario),
            sum.map_or_else(|| "–".to_owned(), words::rate)
        );
        for name in &systems {
            let _ = write!(html, "<td>{}</td>", overview_cell(view, name));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div></section>\n");
}

/// Mark of values below the best link.
const BELOW: &str = "<span class=\"bad\" title=\"slower than the best link alone\">▼</span> ";

fn overview_cell(view: &View<'_>, name: &str) -> String {
    let Some(system) = view.summary.system(name) else {
        return "<span class=\"none\">–</span>".to_owned();
    };
    let times = match view.summary.workload.as_str() {
        "files" => system
            .completion_s
            .as_ref()
            .map(|tail| (tail.p50, tail.p99)),
        "cbr" | "requests" => system
            .message_delay_ms
            .as_ref()
            .map(|tail| (tail.p50 / 1e3, tail.p99 / 1e3)),
        _ => None,
    };
    if let Some((half, most)) = times {
        let best = view.summary.best_alone_completion_s.as_ref();
        let slower = best.is_some_and(|(_, best)| half > best.p50);
        return format!(
            "{}{}<small>99 %: {}</small>",
            if slower { BELOW } else { "" },
            words::time(half),
            words::time(most)
        );
    }
    if let Some(ratio) = &system.aggregation_ratio {
        let below = if system.below_best > 0 && name != SIMULTANEOUS {
            BELOW
        } else {
            ""
        };
        return format!(
            "{below}<span class=\"bar\" style=\"--part:{:.0}%\">{}</span>",
            (ratio.median * 100.0).clamp(0.0, 100.0),
            words::percent(ratio.median)
        );
    }
    match (&system.goodput_bps, system.missing.first()) {
        (Some(goodput), _) => words::rate(goodput.median),
        (None, Some(missing)) => format!(
            "<em class=\"badge\" title=\"{}\">{}</em>",
            escape(&shortened(&missing.reason, 300)),
            escape(&missing.kind)
        ),
        (None, None) => "<span class=\"none\">–</span>".to_owned(),
    }
}

fn section(html: &mut String, view: &View<'_>, figures: &[Figure]) {
    let summary = &view.summary;
    let _ = writeln!(
        html,
        "<section id=\"{}\"><h2>{}{}</h2>",
        view.slug,
        escape(&summary.scenario),
        match summary.environment.is_simulated() {
            true => ", simulated",
            false => "",
        }
    );
    if !summary.about.is_empty() {
        let _ = writeln!(html, "<p class=\"about\">{}</p>", escape(&summary.about));
    }
    let mut lines = words::headline(summary).into_iter();
    if let Some(first) = lines.next() {
        let _ = writeln!(html, "<p class=\"headline\">{}</p>", escape(&first));
    }
    let rest: Vec<String> = lines.collect();
    if !rest.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&rest.join(" ")));
    }
    warnings(html, view);
    html.push_str(&table::html(view));
    let _ = writeln!(
        html,
        "<p class=\"files\">{}</p>\n<p class=\"environment\">{}{}</p>",
        bounds(view),
        escape(&words::environment(&summary.environment)),
        peers(view)
    );
    for figure in figures {
        draw(html, view, figure);
    }
    let _ = writeln!(
        html,
        "<p class=\"files\">The table as <a href=\"figures/{}-table.csv\">CSV</a>.</p>\n</section>",
        view.slug
    );
}

fn warnings(html: &mut String, view: &View<'_>) {
    let all: Vec<&String> = view
        .results
        .warnings
        .iter()
        .chain(&view.summary.warnings)
        .collect();
    if all.is_empty() {
        return;
    }
    html.push_str("<ul class=\"warnings\">\n");
    for warning in all {
        let _ = writeln!(html, "<li>{}</li>", escape(warning));
    }
    html.push_str("</ul>\n");
}

fn bounds(view: &View<'_>) -> String {
    let bounds = &view.summary.bounds;
    let Some(sum) = bounds.sum_alone_bps else {
        return "Bounds are unknown: the links alone were not measured.".to_owned();
    };
    let mut text = format!(
        "Every system is bounded by the sum of the links alone, {}.",
        words::rate(sum)
    );
    let soft = bounds.soft_bps.map_or_else(
        || "unknown (the links at once were not measured)".to_owned(),
        words::rate,
    );
    let hard = words::rate(bounds.hard_bps.unwrap_or(sum));
    let _ = write!(text, " Kernel MPTCP: hard bound {hard}, soft bound {soft}");
    match bounds.clean_mptcp_bps {
        Some(clean) => {
            let _ = write!(text, ", with {} on clean links.", words::rate(clean));
        }
        None => {
            text.push_str(", without a measurement of MPTCP on clean links, which may be lower.")
        }
    }
    text
}

fn peers(view: &View<'_>) -> String {
    // Each run records only the programs that took part in it.
    let runs = view.results.runs.iter();
    let peers: std::collections::BTreeMap<&String, &String> =
        runs.flat_map(|run| &run.environment.peers).collect();
    peers
        .iter()
        .map(|(name, version)| format!(", {} {}", escape(name), escape(version)))
        .collect()
}

fn draw(html: &mut String, view: &View<'_>, figure: &Figure) {
    let file = format!("figures/{}-{}", view.slug, figure.id);
    let _ = writeln!(
        html,
        "<figure>\n<h3>{}</h3>\n<div class=\"scroll\">{}</div>\n<figcaption>{} \
         <a href=\"{file}.svg\">SVG</a>, <a href=\"{file}.csv\">CSV</a></figcaption>\n</figure>",
        escape(&figure.title),
        figure.svg,
        escape(&figure.caption)
    );
}

/// The colors of the systems for light and dark mode.
fn colors() -> String {
    let mut css = String::new();
    for (index, (light, _)) in COLORS.iter().enumerate() {
        let _ = writeln!(
            css,
            ".f-c{index}{{fill:var(--c{index},{light})}}.s-c{index}{{stroke:var(--c{index},{light})}}\
             .b-c{index}{{background:var(--c{index},{light})}}"
        );
    }
    css.push_str("@media screen and (prefers-color-scheme:dark){:root{");
    for (index, (_, dark)) in COLORS.iter().enumerate() {
        let _ = write!(css, "--c{index}:{dark};");
    }
    css.push_str("}}\n");
    css
}
