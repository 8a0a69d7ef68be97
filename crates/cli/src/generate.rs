//! Shell completions and manual pages, made from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::ManArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::print;
use crate::program::{self, Program};

/// Prints the completion script of a shell.
///
/// # Errors
///
/// It cannot be printed.
pub fn completions<P: Program>(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program::command::<P>(), P::NAME, &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the manual pages to a directory, or one to standard output.
///
/// # Errors
///
/// They cannot be written, or there is no such verb.
pub fn man<P: Program>(args: &ManArgs) -> Result<(), CliError> {
    let mut command = P::command();
    command.build();
    let pages = pages(&command, P::EXITS);
    let Some(dir) = &args.out else {
        let name = match args.page.as_deref() {
            None => P::NAME.to_owned(),
            Some(verb) => format!("{}-{verb}", P::NAME),
        };
        let Some((_, text)) = pages.iter().find(|(page, _)| *page == name) else {
            return Err(CliError::Usage(format!(
                "no verb `{}`: {} --help lists them",
                args.page.as_deref().unwrap_or_default(),
                P::NAME
            )));
        };
        return print(text);
    };
    let write = |path: &Path, reason| CliError::Write {
        path: path.to_owned(),
        reason,
    };
    fs::create_dir_all(dir).map_err(|reason| write(dir, reason))?;
    for (name, text) in pages {
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, text).map_err(|reason| write(&path, reason))?;
    }
    Ok(())
}

/// Name and text of every page: the program's, and one for each verb and each verb of a verb.
fn pages(root: &Command, exits: &[Exit]) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut pending = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = pending.pop() {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            pending.push((format!("{name}-{}", verb.get_name()), verb));
        }
        pages.push((name.clone(), page(&name, command, exits)));
    }
    pages
}

fn page(name: &str, command: &Command, codes: &[Exit]) -> String {
    let command = command
        .clone()
        .name(name.to_owned())
        .version(env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(format!("sumlink {}", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    let render = |out: &mut Vec<u8>| -> io::Result<()> {
        man.render_title(out)?;
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)?;
        man.render_options_section(out)?;
        if command.has_subcommands() {
            man.render_subcommands_section(out)?;
        }
        notes(&command).to_writer(out)?;
        let mut exits = Roff::new();
        exits.control("SH", ["EXIT STATUS"]);
        for exit in codes {
            exits.control("TP", []);
            exits.text([bold(exit.code().to_string())]);
            exits.text([roman(exit.meaning())]);
        }
        exits.control("SH", ["ENVIRONMENT"]);
        exits.control("TP", []);
        exits.text([bold("SUMLINK_LOG")]);
        exits.text([roman(
            "Filter of the log on standard error, such as debug or sumlink_transport=trace,info.",
        )]);
        exits.control("TP", []);
        exits.text([bold("SUMLINK_LOG_FORMAT")]);
        exits.text([roman(
            "Form of its lines: text, json, or journal, the default where standard error is \
             systemd's journal.",
        )]);
        exits.to_writer(out)
    };
    // Writing to memory cannot fail.
    render(&mut out).unwrap_or_default();
    String::from_utf8_lossy(&out).into_owned()
}

/// The notes below the options of `--help`, with their line breaks.
fn notes(command: &Command) -> Roff {
    let mut notes = Roff::new();
    if let Some(text) = command.get_after_help() {
        notes.control("SH", ["NOTES"]);
        notes.control("nf", []);
        for line in text.to_string().lines() {
            notes.text([roman(line)]);
        }
        notes.control("fi", []);
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::verbs::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        program::command::<Cli>().debug_assert();
    }

    #[test]
    fn every_verb_shows_the_exit_codes_in_its_help() {
        fn check(command: &Command) {
            for verb in command.get_subcommands() {
                let help = verb.clone().render_long_help().to_string();
                assert!(help.contains("Exit codes:"), "{}: {help}", verb.get_name());
                check(verb);
            }
        }
        check(&program::command::<Cli>());
    }

    #[test]
    fn every_verb_has_a_page_with_the_exit_codes() {
        let mut command = Cli::command();
        command.build();
        let pages = pages(&command, Cli::EXITS);
        for verb in ["", "-keygen", "-server", "-client", "-status", "-check"] {
            let (_, text) = pages
                .iter()
                .find(|(n, _)| *n == format!("sumlink{verb}"))
                .unwrap();
            assert!(text.contains("EXIT STATUS") && text.contains("SUMLINK_LOG"));
        }
    }
}
