//! Questions on the terminal. The setup writes nothing before the last answer.

use std::fmt::Display;
use std::io::{self, BufRead, Read, Write};

use sumlink_util::plain;

use crate::error::CliError;

/// Longest answer, in bytes: several public keys.
const MAX_ANSWER: u64 = 4096;

/// A person at a terminal.
pub(super) struct Questions {
    input: Box<dyn BufRead>,
    output: Box<dyn Write>,
}

impl Questions {
    /// The terminal of this process. Questions go to standard error: standard output has only
    /// results.
    pub(super) fn of_terminal() -> Self {
        Self::new(io::stdin().lock(), io::stderr())
    }

    fn new(input: impl BufRead + 'static, output: impl Write + 'static) -> Self {
        Self {
            input: Box::new(input),
            output: Box::new(output),
        }
    }

    /// Asks until the answer is valid. An empty answer means the default, if there is one.
    ///
    /// # Errors
    ///
    /// The input ended.
    pub(super) fn ask<T, E: Display>(
        &mut self,
        question: &str,
        default: Option<&str>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, CliError> {
        loop {
            let shown = default.map_or_else(String::new, |default| format!(" [{default}]"));
            write!(self.output, "{question}{shown}: ")?;
            self.output.flush()?;
            let line = self.line()?;
            let answer = match (line.trim(), default) {
                ("", Some(default)) => default,
                (answer, _) => answer,
            };
            match parse(answer) {
                Ok(value) => return Ok(value),
                Err(error) => writeln!(self.output, "{}", plain(error))?,
            }
        }
    }

    /// Asks for a list of words and shows `default`; an empty answer is an empty list.
    pub(super) fn ask_all<T, E: Display>(
        &mut self,
        question: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, CliError> {
        self.ask(&format!("{question} [{default}]"), None, |answer| {
            let words = answer.split([' ', ',', '\t']);
            words.filter(|word| !word.is_empty()).map(&parse).collect()
        })
    }

    /// Asks for yes or no; the default is no.
    pub(super) fn agrees(&mut self, question: &str) -> Result<bool, CliError> {
        self.ask(question, Some("no"), |answer| {
            match answer.to_ascii_lowercase().as_str() {
                "y" | "yes" => Ok(true),
                "n" | "no" => Ok(false),
                _ => Err("answer yes or no"),
            }
        })
    }

    /// One line; a longer one is cut.
    fn line(&mut self) -> Result<String, CliError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.input).take(MAX_ANSWER);
        if limited.read_until(b'\n', &mut line)? == 0 {
            let reason = "the input ended before the last answer; nothing was written";
            return Err(CliError::Usage(reason.to_owned()));
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(text: &'static str) -> Questions {
        Questions::new(text.as_bytes(), io::sink())
    }

    fn number(text: &str) -> Result<u8, std::num::ParseIntError> {
        text.parse()
    }

    #[test]
    fn a_question_is_repeated_until_it_has_a_valid_answer() {
        let mut asked = answers("x\n\n 7 \n");
        assert_eq!(asked.ask("number", None, number).unwrap(), 7);
        let error = asked.ask("number", None, number).unwrap_err().to_string();
        assert!(error.contains("nothing was written"), "{error}");
    }

    #[test]
    fn an_empty_answer_is_the_default() {
        let mut asked = answers("\n\nmaybe\nYES\n");
        assert_eq!(asked.ask("number", Some("9"), number).unwrap(), 9);
        assert!(!asked.agrees("start").unwrap());
        assert!(asked.agrees("start").unwrap());
    }

    #[test]
    fn a_list_has_words_and_commas() {
        let mut asked = answers("1, 2 3\n\n1 x\n4\n");
        let mut all = || asked.ask_all("numbers", "none", number).unwrap();
        assert_eq!(all(), [1_u8, 2, 3]);
        assert!(all().is_empty());
        assert_eq!(all(), [4_u8]);
    }
}
