//! Names of schedulers in flags and files.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use sumlink_engine::scheduler::{self, OwnSchedulers};
use sumlink_transport::Class;

use super::closest;

/// Schedulers of the crate `sumlink-schedulers`, which only `sumlink-lab` links.
const OF_LABORATORY: [&str; 9] = [
    "blest",
    "ecf",
    "roundrobin",
    "musher",
    "qaware",
    "lrtt",
    "qdepl",
    "wrr",
    "fbdt-thesis",
];

/// Parses the name of a scheduler, of the engine or of `own`.
pub(super) fn parse_scheduler(name: &str, own: &OwnSchedulers) -> Result<String, String> {
    let known: Vec<&str> = own.known().collect();
    if known.contains(&name) {
        return Ok(name.to_owned());
    }
    if OF_LABORATORY.contains(&name) {
        let known = known.join(", ");
        return Err(format!(
            "the scheduler `{name}` is part of sumlink-lab: choose one of {known}"
        ));
    }
    Err(match closest(name, known.iter().copied()) {
        Some(near) => format!("no scheduler `{name}`: did you mean `{near}`?"),
        None => format!("no scheduler `{name}`: choose one of {}", known.join(", ")),
    })
}

/// Parses a class and the name of its scheduler, which is checked later: `streaming=redundant`.
pub(crate) fn parse_class_scheduler(text: &str) -> Result<(Class, String), String> {
    let classes = Class::ALL.map(Class::name);
    let Some((class, scheduler)) = text.split_once('=') else {
        return Err(format!(
            "write CLASS=NAME: a class ({}) and a scheduler's name",
            classes.join(", ")
        ));
    };
    let class =
        Class::from_name(class).ok_or_else(|| match closest(class, classes.into_iter()) {
            Some(near) => format!("no class `{class}`: did you mean `{near}`?"),
            None => format!("no class `{class}`: choose one of {}", classes.join(", ")),
        })?;
    Ok((class, scheduler.to_owned()))
}

/// The value of `--scheduler`. Help and completions list the engine's schedulers. The name is
/// checked later, since a program may have more.
#[derive(Clone, Debug)]
pub(crate) struct SchedulerName;

impl TypedValueParser for SchedulerName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(scheduler::NAMES.iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_scheduler_gets_a_suggestion() {
        let parse = |name: &str| parse_scheduler(name, &OwnSchedulers::default());
        assert_eq!(parse("fbdt"), Ok("fbdt".to_owned()));
        let refusal = parse("fbtd").unwrap_err();
        assert!(refusal.contains("did you mean `fbdt`?"), "{refusal}");
        let refusal = parse("magic").unwrap_err();
        assert!(
            refusal.contains("choose one of fbdt, minrtt, "),
            "{refusal}"
        );
    }

    #[test]
    fn schedulers_of_the_laboratory_are_known_there_and_named_as_such_here() {
        assert_eq!(OF_LABORATORY, sumlink_schedulers::RESEARCH);
        for name in OF_LABORATORY {
            let refusal = parse_scheduler(name, &OwnSchedulers::default()).unwrap_err();
            let expected = format!("the scheduler `{name}` is part of sumlink-lab: choose one of ");
            assert!(refusal.starts_with(&expected), "{refusal}");
            let there = parse_scheduler(name, &sumlink_schedulers::all());
            assert_eq!(there, Ok(name.to_owned()));
        }
    }

    #[test]
    fn a_class_and_its_scheduler_are_separated() {
        let parsed = parse_class_scheduler("conversational=redundant");
        assert_eq!(parsed, Ok((Class::Conversational, "redundant".to_owned())));
        for (text, complaint) in [
            ("redundant", "write CLASS=NAME"),
            ("conversationl=redundant", "did you mean `conversational`?"),
            (
                "x=redundant",
                "no class `x`: choose one of conversational, ",
            ),
        ] {
            let error = parse_class_scheduler(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
