//! This machine: where sumlink's files and other programs are, and its name. `diag` uses it, too.

/// Folder of the services' configurations and keys; the packages create it.
pub(crate) const HOME: &str = "/etc/sumlink";

/// Folders of programs that are often missing in the PATH of an ordinary user.
const MORE_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The folders in which programs are searched.
pub(crate) fn path() -> String {
    with_more(&std::env::var("PATH").unwrap_or_default())
}

/// An empty PATH adds nothing: an empty entry means the current folder.
fn with_more(path: &str) -> String {
    match path {
        "" => MORE_PATH.to_owned(),
        path => format!("{path}:{MORE_PATH}"),
    }
}

/// The name of this machine; empty if it is unknown.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_path_does_not_add_the_current_folder() {
        assert_eq!(with_more(""), MORE_PATH);
        assert_eq!(with_more("/bin"), format!("/bin:{MORE_PATH}"));
        assert!(path().ends_with(MORE_PATH));
    }

    #[test]
    fn the_name_of_this_machine_is_one_word() {
        let name = host_name();
        assert!(!name.contains(char::is_whitespace), "{name}");
    }
}
