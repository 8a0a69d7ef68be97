//! An invitation as a QR code on the terminal.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use crate::error::CliError;

/// Black on white, whatever the terminal's colors are. Each line of text has two rows of the code.
pub(super) fn of(text: &str) -> Result<String, CliError> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)
        .map_err(|error| CliError::Usage(format!("the invitation fits no QR code: {error}")))?;
    let drawn = code.render::<Dense1x2>().build();
    let line = |line: &str| format!("{BLACK_ON_WHITE}{line}{RESET}\n");
    Ok(drawn.lines().map(line).collect())
}

/// Control sequences of ECMA-48 (SGR).
const BLACK_ON_WHITE: &str = "\x1b[30;107m";
const RESET: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_square_and_has_a_quiet_zone() {
        let text = of("sumlink://join?a=192.0.2.7:7443&k=AAAA&s=BBBB").unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let bare = |line: &str| {
            let line = line.strip_prefix(BLACK_ON_WHITE).unwrap();
            line.strip_suffix(RESET).unwrap().to_owned()
        };
        let width = bare(lines[0]).chars().count();
        assert!(lines.iter().all(|line| bare(line).chars().count() == width));
        assert_eq!(width.div_ceil(2), lines.len());
        // Four modules of white around the code.
        assert!(lines[..2].iter().all(|line| bare(line).trim().is_empty()));
        assert!(lines.iter().all(|line| bare(line).starts_with("    ")));
        // The corner of the first pattern.
        assert!(
            bare(lines[2]).starts_with("    █▀▀▀▀▀█ "),
            "{}",
            bare(lines[2])
        );
        assert!(of(&"x".repeat(4000)).is_err());
    }
}
