//! `[[link]]`: what a link is like before anything happens to it.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;

use sumlink_link::{Jitter, Profile, Trace};
use toml::Spanned;
use toml::de::DeValue;

use crate::config::{
    Direction, LinkSpec, MAX_TRACE, Setting, Shape, check_name, check_rate, parse_jitter,
    parse_loss, parse_queue,
};
use crate::units::{parse_duration, parse_rate};

use super::table::{At, Document, Problem, Section, number_of, text_of};

/// A link as a scenario describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) spec: LinkSpec,
    /// What it does over time by itself.
    pub(crate) profile: Option<ProfileUse>,
    /// Texts of the traces that it names, for the scenario's digest.
    pub(crate) traces: Vec<String>,
}

/// A generator of what a link does over time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProfileUse {
    pub(crate) profile: Profile,
    /// Factor on its rates: client to server, then server to client.
    pub(crate) scale: [f64; 2],
    /// Whether the file says the delay and the jitter itself.
    pub(crate) keeps_delay: bool,
    pub(crate) keeps_jitter: bool,
}

/// The names of the links of a file, also of those that are wrong otherwise.
pub(crate) struct Names(Vec<String>);

impl Names {
    pub(crate) fn new(document: &Document<'_>, root: &mut Section<'_, '_>) -> Self {
        // Whatever is wrong with the blocks is told when they are read.
        let mut names = Vec::new();
        let mut ignored = document.silent();
        for mut block in root.blocks(&mut ignored, "link") {
            names.extend(block.text(&mut ignored, "name").map(|name| name.value));
        }
        Self(names)
    }

    /// The name, if there is such a link.
    pub(crate) fn find(&self, document: &mut Document<'_>, name: &At<String>) -> Option<String> {
        if self.0.contains(&name.value) {
            return Some(name.value.clone());
        }
        let known = self.0.join(", ");
        document.problem(
            &name.span,
            format!("there is no link '{}' (links: {known})", name.value),
        );
        None
    }

    /// The names in `links`, at least so many, each once.
    pub(crate) fn find_all(
        &self,
        document: &mut Document<'_>,
        section: &mut Section<'_, '_>,
        least: usize,
    ) -> Option<Vec<String>> {
        if !section.has("links") {
            section.missing(document, "links", "links = [\"NAME\", \"NAME\"]");
            return None;
        }
        let listed = section.texts(document, "links")?;
        let count = listed.len();
        let names: Vec<_> = listed
            .iter()
            .filter_map(|name| self.find(document, name))
            .collect();
        let distinct = names.iter().collect::<HashSet<_>>().len();
        if count < least {
            document.problem(&section.span(), format!("links: name at least {least}"));
        } else if distinct < names.len() {
            document.problem(&section.span(), "links: one is there twice");
        }
        (distinct == count && count >= least).then_some(names)
    }
}

/// Reads a block `[[link]]`.
pub(crate) fn read(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    gso: bool,
) -> Option<Link> {
    let name = section.parsed(document, "name", |text| {
        check_name(text).map(|()| text.to_owned())
    });
    if !section.has("name") {
        section.missing(document, "name", "name = \"wifi\"");
    }
    let label = name.as_ref().map_or("", |name| &name.value).to_owned();
    let mut traces = Vec::new();
    let rates = read_rates(document, &mut section, &label, gso, &mut traces);
    let settings = read_settings(document, &mut section);
    let profile = read_profile(document, &mut section);
    let has_rate = RATE_KEYS.into_iter().any(|key| section.has(key));
    if has_rate == section.has("profile") {
        let reason = "[[link]]: give either rate, or down and up, or trace, or profile";
        document.problem(&section.span(), reason);
    }
    section.finish(document);
    let rates = match (rates, &profile) {
        (Some(rates), _) => rates,
        // Until the profile says something, which it does at once.
        (None, Some(_)) => [Setting::Rate(0), Setting::Rate(0)],
        (None, None) => return None,
    };
    let mut shapes = [Shape::of_rate(0), Shape::of_rate(0)];
    for (way, shape) in shapes.iter_mut().enumerate() {
        shape.jitter = Jitter::NONE;
        shape.set(&rates[way]);
        for setting in settings.iter().filter_map(|both| both[way].as_ref()) {
            shape.set(setting);
        }
    }
    Some(Link {
        spec: LinkSpec {
            name: name?.value,
            shapes,
        },
        profile,
        traces,
    })
}

/// `profile` and `scale`.
fn read_profile(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<ProfileUse> {
    let profile = section.parsed(document, "profile", str::parse::<Profile>);
    let scale = each_way(document, section, "scale", |document, value| {
        let number = number_of(value).filter(|number| *number > 0.0 && *number <= 1000.0);
        if number.is_none() {
            document.problem(
                &value.span(),
                "scale is a number above 0: a factor on the profile's rates",
            );
        }
        number
    });
    if section.has("scale") && !section.has("profile") {
        section.missing(
            document,
            "profile",
            "profile = \"lte\", which scale belongs to",
        );
    }
    Some(ProfileUse {
        profile: profile?.value,
        scale: scale.map(|factor| factor.unwrap_or(1.0)),
        keeps_delay: section.has("delay"),
        keeps_jitter: section.has("jitter"),
    })
}

const RATE_KEYS: [&str; 4] = ["rate", "down", "up", "trace"];

/// `rate`, or `down` and `up`, or `trace`; client to server first.
fn read_rates(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    link: &str,
    gso: bool,
    traces: &mut Vec<String>,
) -> Option<[Setting; 2]> {
    let constant = |text: &str| rate_setting(link, text, gso);
    let both = section.parsed(document, "rate", constant);
    let down = section.parsed(document, "down", constant);
    let up = section.parsed(document, "up", constant);
    let trace = each_way(document, section, "trace", |document, value| {
        let path = text_of(document, value, "trace")?;
        let (trace, text) = load_trace(document, &path)?;
        traces.push(text);
        let setting = Setting::Trace(trace);
        match check_rate(link, &setting, gso) {
            Ok(()) => Some(setting),
            Err(error) => {
                document.problem(&path.span, error);
                None
            }
        }
    });
    match RATE_KEYS.map(|key| section.has(key)) {
        [true, false, false, false] => both.map(|at| [at.value.clone(), at.value]),
        [false, true, true, false] => Some([up?.value, down?.value]),
        [false, false, false, true] => match trace {
            [Some(up), Some(down)] => Some([up, down]),
            _ => None,
        },
        [false, false, false, false] => None,
        _ => {
            let reason = "[[link]]: give either rate, or down and up, or trace";
            document.problem(&section.span(), reason);
            None
        }
    }
}

/// A rate that the emulator carries.
pub(crate) fn rate_setting(link: &str, text: &str, gso: bool) -> Result<Setting, String> {
    let rate = parse_rate(text).map_err(|error| error.to_string())?;
    let setting = Setting::Rate(rate);
    check_rate(link, &setting, gso).map_err(|error| error.to_string())?;
    Ok(setting)
}

/// What a link has besides its rate, and an event may change: `delay`, `jitter`, `loss`, `queue`.
pub(crate) fn read_settings(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> [[Option<Setting>; 2]; 4] {
    [
        each_way(document, section, "delay", |document, value| {
            parse(document, value, |text| {
                parse_duration(text).map(Setting::Delay)
            })
        }),
        each_way(document, section, "jitter", |document, value| {
            parse(document, value, |text| {
                parse_jitter(text).map(Setting::Jitter)
            })
        }),
        each_way(document, section, "loss", |document, value| {
            parse(document, value, |text| parse_loss(text).map(Setting::Loss))
        }),
        each_way(document, section, "queue", |document, value| {
            parse(document, value, |text| {
                parse_queue(text).map(Setting::Queue)
            })
        }),
    ]
}

/// A value that holds for both directions, or a table with `down` and `up`; client to server first.
pub(crate) fn each_way<T: Clone>(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    key: &'static str,
    mut parse: impl FnMut(&mut Document<'_>, &Spanned<DeValue<'_>>) -> Option<T>,
) -> [Option<T>; 2] {
    let Some(value) = section.value(key) else {
        return [None, None];
    };
    if !value.get_ref().is_table() {
        let both = parse(document, value);
        return [both.clone(), both];
    }
    let mut values = [None, None];
    if let Some(mut ways) = Section::of(document, value, key) {
        for (way, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            values[direction.index()] = ways.value(way).and_then(|value| parse(document, value));
        }
        if !ways.has("up") && !ways.has("down") {
            ways.missing(document, "direction", "down = …, up = …, or both");
        }
        ways.finish(document);
    }
    values
}

/// A text that stands for something.
pub(crate) fn parse<T, E: std::fmt::Display>(
    document: &mut Document<'_>,
    value: &Spanned<DeValue<'_>>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = text_of(document, value, "the value")?;
    parse(&text.value)
        .map_err(|error| document.problem(&text.span, error))
        .ok()
}

/// Reads the trace that the scenario names; a problem is told with the trace's own line.
pub(crate) fn load_trace(
    document: &mut Document<'_>,
    path: &At<String>,
) -> Option<(Trace, String)> {
    let file = document.path(&path.value);
    let mut text = String::new();
    let read = File::open(&file).and_then(|opened| {
        let limited = &mut opened.take(MAX_TRACE + 1);
        limited.read_to_string(&mut text)
    });
    match read {
        Err(error) => {
            document.problem(&path.span, format!("trace: {}: {error}", file.display()));
            return None;
        }
        Ok(len) if len as u64 > MAX_TRACE => {
            let reason = format!("trace: {} is larger than 256 MiB", file.display());
            document.problem(&path.span, reason);
            return None;
        }
        Ok(_) => {}
    }
    match text.parse::<Trace>() {
        Ok(trace) => Some((trace, text)),
        Err(error) => {
            let (line, reason) = split_line(&error.to_string());
            document.problem_elsewhere(Problem { file, line, reason });
            None
        }
    }
}

/// A trace's error begins with `line 7: ` where it has a line.
fn split_line(message: &str) -> (usize, String) {
    message
        .strip_prefix("line ")
        .and_then(|rest| rest.split_once(": "))
        .and_then(|(line, reason)| Some((line.parse().ok()?, reason.to_owned())))
        .unwrap_or((1, message.to_owned()))
}

/// Where something stands, for the emulator's complaints.
pub(crate) type Place = Range<usize>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_trace_is_found() {
        let error = "1\n2\n3\n4\n5\n6\nx\n".parse::<Trace>().unwrap_err();
        let (line, reason) = split_line(&error.to_string());
        assert_eq!(line, 7);
        assert!(reason.starts_with("\"x\" is not"), "{reason}");
        assert_eq!(split_line("no stamps"), (1, "no stamps".to_owned()));
    }
}
