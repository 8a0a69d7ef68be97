//! Errors that pass without a change of the configuration.

use std::io;

/// EIO, ENFILE and EMFILE (errno(3), Linux).
const ERRNO: [i32; 3] = [5, 23, 24];

/// Whether the system lacks something for now, so that the same attempt may succeed later: disk
/// space, memory, descriptors, or a working or writable disk.
pub fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = [StorageFull, QuotaExceeded, ReadOnlyFilesystem, OutOfMemory];
    let is_errno = error.raw_os_error().is_some_and(|n| ERRNO.contains(&n));
    kinds.contains(&error.kind()) || is_errno
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_no_shortage_and_a_full_disk_is() {
        let of = |errno| is_shortage(&io::Error::from_raw_os_error(errno));
        // ENOENT, EACCES, EISDIR
        assert!(![2, 13, 21].into_iter().any(of));
        // EIO, ENOMEM, ENFILE, EMFILE, ENOSPC, EROFS, EDQUOT
        assert!([5, 12, 23, 24, 28, 30, 122].into_iter().all(of));
    }
}
