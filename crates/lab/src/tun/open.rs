//! Opens a TUN device with a struct virtio_net_hdr before each packet, which describes
//! super-packets and incomplete checksums.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use libc::{IFF_NO_PI, IFF_TUN, IFF_VNET_HDR, IFNAMSIZ};

mod ioctl {
    // linux/if_tun.h. The request is declared with an int but takes a struct ifreq.
    nix::ioctl_write_ptr_bad!(
        tun_set_iff,
        nix::request_code_write!(b'T', 202, 4),
        libc::ifreq
    );
}

/// Why the device is not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Needs CAP_NET_ADMIN.
    #[error("not permitted")]
    NotPermitted,
    /// The kernel has no TUN driver, or the file is missing (as in many containers).
    #[error("/dev/net/tun does not exist")]
    NoTun,
    /// /dev/net/tun cannot be opened.
    #[error("opening /dev/net/tun: {0}")]
    File(io::Error),
    /// The kernel cannot create the interface.
    #[error("creating the interface: {0}")]
    Interface(io::Error),
}

/// Creates the interface in the network namespace of the calling thread: down, with non-blocking
/// reads. It is removed when the file is closed. A name that is too long is truncated.
///
/// # Errors
///
/// See [`OpenError`].
pub(super) fn open(name: &str) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let file = options
        .open("/dev/net/tun")
        .map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => OpenError::NotPermitted,
            io::ErrorKind::NotFound => OpenError::NoTun,
            // The file exists but the driver does not.
            _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                OpenError::NoTun
            }
            _ => OpenError::File(error),
        })?;
    let request = request(name);
    // SAFETY: the descriptor is open, and `request` is a whole ifreq whose name and flags are set:
    // all that TUNSETIFF reads.
    unsafe { ioctl::tun_set_iff(file.as_raw_fd(), &request) }.map_err(|error| match error {
        nix::Error::EPERM => OpenError::NotPermitted,
        error => OpenError::Interface(error.into()),
    })?;
    Ok(file)
}

fn request(name: &str) -> libc::ifreq {
    // The remaining bits fit into a short, which the kernel reads.
    let flags = (IFF_TUN | IFF_NO_PI | IFF_VNET_HDR) as libc::c_short;
    let mut ifr_name = [0; IFNAMSIZ];
    let letters = name.bytes().take(IFNAMSIZ - 1);
    for (to, from) in ifr_name.iter_mut().zip(letters) {
        *to = from as libc::c_char;
    }
    libc::ifreq {
        ifr_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_a_zero_also_where_they_are_too_long() {
        for (name, end) in [("tun0", 4), ("abcdefghijklmnopqrstuvwxyz", IFNAMSIZ - 1)] {
            let request = request(name);
            assert_eq!(request.ifr_name[end], 0);
            assert_ne!(request.ifr_name[end - 1], 0);
        }
    }
}
