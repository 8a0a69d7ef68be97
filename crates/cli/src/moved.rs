//! Verbs that are now in `sumlink-lab` and `sumlink-edge`.

/// The command that replaces a command line with such a verb.
pub(super) fn advice(args: &[String]) -> Option<String> {
    let mut words = args.iter().enumerate().skip(1);
    let (at, verb) = words.find(|(_, word)| !word.starts_with('-'))?;
    let next = args.get(at + 1).map(String::as_str);
    let rest = &args[at + 1..];
    let (program, kept): (_, &[String]) = match verb.as_str() {
        "lab" => ("sumlink-lab", rest),
        "sim" | "mmwave" | "bench" | "demo" => ("sumlink-lab", &args[at..]),
        "cc" if next == Some("trace") => ("sumlink-lab", &args[at..]),
        "edge" if matches!(next, Some("-h" | "--help")) => ("sumlink-edge", rest),
        "edge" => ("sumlink-edge run", rest),
        "link"
            if rest
                .iter()
                .any(|word| word.split('=').next() == Some("--rate")) =>
        {
            ("sumlink-edge", &args[at..])
        }
        _ => return None,
    };
    let old = match verb.as_str() {
        "cc" => "cc trace",
        "link" => "link --rate",
        verb => verb,
    };
    let words = args[1..at].iter().chain(kept).map(|word| quoted(word));
    let command = [program.to_owned()].into_iter().chain(words);
    let command = command.collect::<Vec<_>>().join(" ");
    Some(format!("`sumlink {old}` is another program now: {command}"))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!(
            "'{}'",
            word.replace('\'', "'\\''").replace(char::is_control, "?")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_verb_names_the_new_command() {
        let advice = |line: &str| {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            advice(&args).map(|text| text.split_once(" now: ").unwrap().1.to_owned())
        };
        for (old, new) in [
            ("sumlink lab", "sumlink-lab"),
            (
                "sumlink -v lab run a.toml --json",
                "sumlink-lab -v run a.toml --json",
            ),
            (
                "sumlink lab bench --rows loss-*",
                "sumlink-lab bench --rows 'loss-*'",
            ),
            ("sumlink sim run a.toml", "sumlink-lab sim run a.toml"),
            ("sumlink mmwave abft", "sumlink-lab mmwave abft"),
            ("sumlink bench", "sumlink-lab bench"),
            ("sumlink demo", "sumlink-lab demo"),
            ("sumlink cc trace --pid 1", "sumlink-lab cc trace --pid 1"),
            (
                "sumlink edge --config e.toml",
                "sumlink-edge run --config e.toml",
            ),
            ("sumlink edge --help", "sumlink-edge --help"),
            (
                "sumlink link lte --rate 5mbit",
                "sumlink-edge link lte --rate 5mbit",
            ),
        ] {
            assert_eq!(advice(old).as_deref(), Some(new), "{old}");
        }
        for line in [
            "sumlink",
            "sumlink cc list",
            "sumlink link lte",
            "sumlink --help",
        ] {
            assert_eq!(advice(line), None, "{line}");
        }
    }
}
