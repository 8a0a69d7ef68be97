//! Opening a TUN device, with a struct virtio_net_hdr before each packet, so that super-packets and unfinished checksums can be
//! told.

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

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Needs CAP_NET_ADMIN.
    #[error("not permitted")]
    NotPermitted,
    /// The kernel has no TUN driver, or the file is not there (as in many containers).
    #[error("there is no /dev/net/tun")]
    NoTun,
    /// /dev/net/tun cannot be opened.
    #[error("opening /dev/net/tun: {0}")]
    File(io::Error),
    /// The kernel does not make the interface.
    #[error("making the interface: {0}")]
    Interface(io::Error),
}

/// Makes the interface in the network namespace of the calling thread, not yet up, to be read without blocking. It goes with
/// the file. A name that is too long is cut off.
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
            // The file is there and the driver is not.
            _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                OpenError::NoTun
            }
            _ => OpenError::File(error),
        })?;
    let request = request(name);
    // SAFETY: the descriptor is open, and `request` is a whole ifreq whose name and flags are set: all that TUNSETIFF reads.
    unsafe { ioctl::tun_set_iff(file.as_raw_fd(), &request) }.map_err(|error| match error {
        nix::Error::EPERM => OpenError::NotPermitted,
        error => OpenError::Interface(error.into()),
    })?;
    Ok(file)
}

fn request(name: &str) -> libc::ifreq {
    // What is left of a c_int fits into a short: the kernel reads the bits.
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
