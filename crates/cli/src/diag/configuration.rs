//! The configuration files of a report, without comments.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::command::{read_file, read_file_of};
use super::names;
use super::redact::Redactor;
use super::section::Section;
use crate::setup::machine::HOME;

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    path: PathBuf,
    /// The users to whom it must belong; `None` if it may also be a link, to any file.
    owners: Option<Vec<u32>>,
}

/// The file that was named, or those that exist in the usual places.
pub(super) fn files(named: Option<&Path>) -> Vec<File> {
    match named {
        Some(named) => vec![File {
            path: named.to_owned(),
            owners: None,
        }],
        None => found(&[
            (Path::new(HOME), None),
            (Path::new(""), owners_for(geteuid().as_raw())),
        ]),
    }
}

/// The users whose files the report includes from the current folder. There, another user could
/// give a name of these files to one that only root may read.
fn owners_for(user: u32) -> Option<Vec<u32>> {
    let caller = std::env::var("SUDO_UID").ok();
    let caller = caller.and_then(|id| id.parse().ok());
    (user == 0).then(|| [Some(0), caller].into_iter().flatten().collect())
}

/// The files in these folders, each one once.
fn found(folders: &[(&Path, Option<Vec<u32>>)]) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for (folder, owners) in folders {
        for name in ["client.toml", "server.toml"] {
            let path = folder.join(name);
            let is_known = |known: &File| is_same(&known.path, &path);
            if path.symlink_metadata().is_ok() && !files.iter().any(is_known) {
                let owners = owners.clone();
                files.push(File { path, owners });
            }
        }
    }
    files
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The text of a file with the numbers of its lines, and its control socket.
pub(super) fn section(file: &File, redactor: &mut Redactor) -> (Section, Option<PathBuf>) {
    let File { path, owners } = file;
    let title = format!("configuration {}, without comments", path.display());
    let text = match owners {
        None => read_file(path).map_err(|reason| format!("({reason})")),
        Some(owners) => read_file_of(owners, path).map_err(|reason| {
            format!("(not read: {reason}; root must name such a file with --config)")
        }),
    };
    let text = match text {
        // A key in place of a configuration must not even be redacted.
        Ok(text) if text.contains("PRIVATE KEY") => {
            let reason = "(this is a key and not a configuration)";
            return (Section::new(title, reason), None);
        }
        Ok(text) => text,
        Err(reason) => return (Section::new(title, reason), None),
    };
    names::of_configuration(&text, redactor);
    let socket = text.parse::<toml::Table>().ok().and_then(|table| {
        let control = table.get("control")?.as_str()?;
        Some(path.parent()?.join(control))
    });
    let mut lines = String::new();
    for (line, number) in without_comments(&text).lines().zip(1..) {
        let line = line.trim_end();
        if !line.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{number:>4}  {line}");
        }
    }
    (Section::new(title, lines), socket)
}

/// A TOML text without comments, and with the same lines.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        rest = match tail.starts_with('#') {
            true => &tail[line_len(tail)..],
            false => {
                let (string, behind) = tail.split_at(string_len(tail));
                out.push_str(string);
                behind
            }
        };
    }
    out.push_str(rest);
    out
}

/// Length of the string at the beginning of a text with its quotes. Quotes that nothing closes are
/// no string, so that they hide no comment.
fn string_len(text: &str) -> usize {
    let quote = &text[..1];
    let three = quote.repeat(3);
    if let Some(inside) = text.strip_prefix(&three) {
        let Some(end) = end_of(inside, &three) else {
            return three.len();
        };
        // Up to two quotes before the last three belong to the text.
        let behind = inside[end + three.len()..].chars();
        let more = behind.take(2).take_while(|c| quote.starts_with(*c));
        return three.len() + end + three.len() + more.count();
    }
    let line = &text[1..line_len(text)];
    end_of(line, quote).map_or(1, |end| end + 2)
}

/// The place of the closing quotes; basic strings can have escaped ones.
fn end_of(inside: &str, quotes: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &inside[at..];
        if rest.starts_with(quotes) {
            return Some(at);
        }
        let mut chars = rest.chars();
        let c = chars.next()?;
        at += c.len_utf8();
        if c == '\\' && quotes.starts_with('"') {
            at += chars.next()?.len_utf8();
        }
    }
}

/// Length of the first line without its end.
fn line_len(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &Path) -> File {
        files(Some(path)).remove(0)
    }

    #[test]
    fn a_configuration_has_its_line_numbers_and_no_comment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        let text = "# mine\nserver = \"vpn.example.org:1\" # my note\n\n  #x = 1\n\
                    control = \"x.sock\"\n";
        std::fs::write(&path, text).unwrap();
        let mut redactor = Redactor::default();
        let (section, socket) = section(&named(&path), &mut redactor);
        let text = "   2  server = \"vpn.example.org:1\"\n   5  control = \"x.sock\"\n";
        assert_eq!(section.text, text);
        assert_eq!(socket, Some(folder.path().join("x.sock")));
        assert_eq!(redactor.redact("vpn.example.org"), "host-1");
    }

    #[test]
    fn comments_are_cut_outside_of_strings() {
        for (text, expected) in [
            ("a = 1 # x\nb = 2#y\r\n# z", "a = 1 \nb = 2\n"),
            (
                "a = \"#1\" # it's\nb = '#2' # \"x\n",
                "a = \"#1\" \nb = '#2' \n",
            ),
            (r##"a = "\"#1" # x"##, r##"a = "\"#1" "##),
            (r"a = '\' # x'y", r"a = '\' "),
            ("a = \"\" # x\nb = '' # x", "a = \"\" \nb = '' "),
            (
                "a = \"\"\"\n# 1\\\"\"\"\"\" # x",
                "a = \"\"\"\n# 1\\\"\"\"\"\" ",
            ),
            ("a = '''\n# 1'''''#x\n", "a = '''\n# 1'''''\n"),
            // Not TOML: nothing closes these quotes.
            ("a = \"b # x\nc = 'd # x\n", "a = \"b \nc = 'd \n"),
            ("a = \"\"\"b # x\nc # x", "a = \"\"\"b \nc "),
            ("a = \"\\", "a = \"\\"),
        ] {
            assert_eq!(without_comments(text), expected);
        }
    }

    #[test]
    fn a_key_in_place_of_a_configuration_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.key");
        let key = sumlink_transport::SecretKey::generate().unwrap();
        key.save(&path).unwrap();
        let (section, _) = section(&named(&path), &mut Redactor::default());
        assert_eq!(section.text, "(this is a key and not a configuration)");
    }

    #[test]
    fn root_reads_only_its_own_files_and_those_of_its_caller_in_the_current_folder() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("shadow");
        std::fs::write(&secret, "root:hash\n").unwrap();
        std::os::unix::fs::symlink(&secret, folder.path().join("client.toml")).unwrap();
        std::fs::write(folder.path().join("server.toml"), "x = 1\n").unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&secret.metadata().unwrap());
        let texts = |owners: Option<Vec<u32>>| -> Vec<String> {
            let files = found(&[(folder.path(), owners)]);
            let mut redactor = Redactor::default();
            let sections = files.iter().map(|file| section(file, &mut redactor).0.text);
            sections.collect()
        };
        let refused = |reason: &str| {
            format!("(not read: {reason}; root must name such a file with --config)")
        };
        let link = refused("it is a link");
        assert_eq!(
            texts(Some(vec![owner])),
            [link.clone(), "   1  x = 1\n".to_owned()]
        );
        let other = refused("it belongs to another user");
        assert_eq!(texts(Some(vec![owner + 1])), [link, other]);
        // With the rights of a user, a link leads nowhere else.
        assert_eq!(texts(None), ["   1  root:hash\n", "   1  x = 1\n"]);
        assert_eq!(owners_for(1000), None);
        assert_eq!(owners_for(0).unwrap()[0], 0);
    }

    #[test]
    fn a_file_with_two_names_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("client.toml"), "").unwrap();
        let link = folder.path().join("server.toml");
        std::os::unix::fs::symlink("client.toml", link).unwrap();
        let twice = [(folder.path(), None), (folder.path(), Some(vec![0]))];
        assert_eq!(found(&twice).len(), 1);
    }
}
