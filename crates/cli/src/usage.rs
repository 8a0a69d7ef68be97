//! Advice in addition to clap's messages about a wrong command line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that accept a glob, each with an example.
const GLOBS: [(&str, &str); 4] = [
    ("--link", "wwan*"),
    ("--client", "laptop-*"),
    ("--rows", "loss-*"),
    ("--only", "unplug-*"),
];

/// One line of advice for a mistake with a probable cause.
pub(crate) fn advice(error: &clap::Error, args: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if unknown.starts_with('-') {
        return None;
    }
    // The words before it are the first value of an option and perhaps others that the shell
    // expanded.
    let at = args.iter().position(|arg| arg == unknown)?;
    let option = args[..at].iter().rposition(|arg| arg.starts_with('-'))?;
    let name = args[option].split('=').next().unwrap_or_default();
    let (name, example) = GLOBS.iter().find(|(glob, _)| *glob == name)?;
    let is_value = option + 1 < at || args[option].contains('=');
    is_value.then(|| {
        format!("if the shell expanded a pattern to file names, quote it: {name} '{example}'")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pattern_that_the_shell_expanded_gets_advice() {
        let advice = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let error = crate::program::command::<crate::verbs::Cli>().try_get_matches_from(&args);
            super::advice(&error.unwrap_err(), &args)
        };
        for (line, quoted) in [
            (
                "sumlink client --link wwanx wwany --key k",
                "--link 'wwan*'",
            ),
            ("sumlink client --link=wwanx wwany", "--link 'wwan*'"),
            ("sumlink client -v --link a b c", "--link 'wwan*'"),
            ("sumlink status --client a b", "--client 'laptop-*'"),
        ] {
            let advice = advice(line).unwrap_or_else(|| panic!("{line}"));
            assert!(advice.ends_with(quoted), "{line}: {advice}");
        }
        for line in [
            "sumlink client wwany",
            "sumlink client --key k wwany",
            "sumlink client --link a --nonsense",
        ] {
            assert_eq!(advice(line), None, "{line}");
        }
    }
}
