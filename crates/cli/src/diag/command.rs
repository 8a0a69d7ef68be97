//! Output of other programs and of files, within limits of time and size.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sumlink_util::plain;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::setup::machine;

/// Time for a program.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of one output or file.
const CAP: usize = 256 << 10;

/// Runs a program and returns its command line and its output, or the reason for none in one line.
pub(super) async fn output(line: &str) -> String {
    let result = match timeout(PATIENCE, run(line)).await {
        Ok(Ok(text)) => text,
        Ok(Err(reason)) => format!("({reason})\n"),
        Err(_) => format!("(no end within {} s)\n", PATIENCE.as_secs()),
    };
    format!("$ {line}\n{result}")
}

/// Runs the program of a line; its words have no spaces.
async fn run(line: &str) -> Result<String, String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let spawned = Command::new(program)
        .args(words)
        .env("PATH", machine::path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => plain(error).line(),
    })?;
    let (out, complaint) = tokio::join!(read(child.stdout.take()), read(child.stderr.take()));
    if out.len() >= CAP {
        // It cannot write the rest; it is killed when it is dropped.
        return Ok(capped(out));
    }
    let status = child.wait().await.map_err(|error| plain(error).line())?;
    let complaint = String::from_utf8_lossy(&complaint);
    let complaint = complaint.trim().lines().next().unwrap_or_default();
    match (status.success(), out.is_empty()) {
        (true, _) => Ok(capped(out)),
        // Some programs print a result and fail.
        (false, false) => Ok(format!("{}({status})\n", capped(out))),
        (false, true) if complaint.is_empty() => Err(format!("{program}: {status}")),
        (false, true) => Err(format!("{program}: {complaint}")),
    }
}

/// Reads up to the cap.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // Output before an error is kept.
        let _ = pipe.take(CAP as u64).read_to_end(&mut bytes).await;
    }
    bytes
}

/// The text of a file, or the reason for none in one line.
pub(super) fn file(path: &Path) -> String {
    read_file(path).unwrap_or_else(|reason| format!("({}: {reason})\n", path.display()))
}

/// The text of a regular file, up to the cap.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let read = || {
        let file = open(path, 0)?;
        regular(&file)?;
        text_of(file)
    };
    read().map_err(|error| plain(error).line())
}

/// The text of a regular file of one of these users, up to the cap. Links are refused: another user
/// may have made one to a file that only root may read.
pub(super) fn read_file_of(owners: &[u32], path: &Path) -> Result<String, String> {
    let read = || {
        let file = open(path, libc::O_NOFOLLOW)?;
        let metadata = regular(&file)?;
        if !owners.contains(&metadata.uid()) {
            return Err(io::Error::other("it belongs to another user"));
        }
        if metadata.nlink() != 1 {
            return Err(io::Error::other("it has several hard links"));
        }
        text_of(file)
    };
    read().map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => "it is a link".to_owned(),
        _ => plain(error).line(),
    })
}

/// Opens a file to read it. Opening a pipe does not block.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | flags);
    options.open(path)
}

/// The metadata of an open file, which must be a regular one.
fn regular(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok(metadata),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

fn text_of(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(CAP as u64).read_to_end(&mut bytes)?;
    Ok(capped(bytes))
}

/// A text of at most the cap. It ends with a whole line: the redaction would not recognize a part
/// of a secret.
pub(super) fn capped(bytes: Vec<u8>) -> String {
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if bytes.len() >= CAP {
        let mut end = text.len().min(CAP);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(text[..end].rfind('\n').map_or(0, |line| line + 1));
        text.push_str("(cut at 256 KiB)\n");
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_output_follows_its_command() {
        assert_eq!(output("echo a b").await, "$ echo a b\na b\n");
        let missing = output("sumlink-no-such-program -x").await;
        assert!(
            missing.ends_with("\n(sumlink-no-such-program is not installed)\n"),
            "{missing}"
        );
        let failed = output("ls /nowhere/at/all").await;
        assert_eq!(failed.lines().count(), 2, "{failed}");
        assert!(failed.contains("\n(ls: "), "{failed}");
    }

    #[tokio::test]
    async fn a_program_without_an_end_is_cut() {
        let endless = output("yes").await;
        assert!(endless.len() < CAP + 100, "{}", endless.len());
        assert!(endless.ends_with("y\n(cut at 256 KiB)\n"));
    }

    #[test]
    fn files_are_read_up_to_the_cap() {
        let folder = tempfile::tempdir().unwrap();
        assert!(file(folder.path()).contains("it is not a regular file"));
        let path = folder.path().join("x");
        assert!(file(&path).starts_with('('));
        std::fs::write(&path, "a\n").unwrap();
        assert_eq!(file(&path), "a\n");
        std::fs::write(&path, "abc\n".repeat(CAP)).unwrap();
        let text = file(&path);
        assert!(text.len() < CAP + 100 && text.ends_with("abc\n(cut at 256 KiB)\n"));
    }

    #[test]
    fn links_and_files_of_others_can_be_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "a\n").unwrap();
        let owner = path.metadata().unwrap().uid();
        assert_eq!(read_file_of(&[7, owner], &path).unwrap(), "a\n");
        let refused = |owner: u32, path: &Path| read_file_of(&[owner], path).unwrap_err();
        assert_eq!(refused(owner + 1, &path), "it belongs to another user");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(refused(owner, &link), "it is a link");
        assert_eq!(file(&link), "a\n");
        assert_eq!(refused(owner, folder.path()), "it is not a regular file");
        std::fs::hard_link(&path, folder.path().join("other")).unwrap();
        assert_eq!(refused(owner, &path), "it has several hard links");
    }

    #[test]
    fn a_line_that_was_cut_is_left_out() {
        let mut bytes = b"one\n".to_vec();
        bytes.resize(CAP, b'x');
        assert_eq!(capped(bytes), "one\n(cut at 256 KiB)\n");
        assert_eq!(capped(b"one".to_vec()), "one\n");
        assert_eq!(capped(Vec::new()), "");
    }
}
