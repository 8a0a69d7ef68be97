//! TUN devices: the ends of an emulated link.

mod open;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::error::LabError;
use open::OpenError;

// linux/if_tun.h.
nix::ioctl_write_ptr!(tun_set_carrier, b'T', 226, libc::c_int);
nix::ioctl_write_int!(tun_set_offload, b'T', 208);

/// Checksums are left to the reader (TUN_F_CSUM), and passed on to the receiver of the packet:
/// nothing between the two ends can damage it, and real interfaces offload that work as well.
const OFFLOAD_CHECKSUMS: nix::sys::ioctl::ioctl_param_type = 0x01;
/// TCP data arrives in super-packets (TUN_F_TSO4, _TSO6, _TSO_ECN).
const OFFLOAD_TCP: nix::sys::ioctl::ioctl_param_type = 0x02 | 0x04 | 0x08;
/// UDP as well, if a program requests it (TUN_F_USO4, _USO6; Linux 6.2).
const OFFLOAD_UDP: nix::sys::ioctl::ioctl_param_type = 0x20 | 0x40;

/// One end of a link: reads return packets that the kernel sends to the interface, and the kernel
/// receives written packets. The interface exists as long as this value.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
}

impl Tun {
    /// Creates the interface in the network namespace of the calling thread; it is initially down.
    ///
    /// Each packet starts with a struct virtio_net_hdr. With `offload` it may be a super-packet.
    pub(crate) fn open(name: &str, offload: bool) -> Result<Self, LabError> {
        let file = open::open(name).map_err(|error| match error {
            OpenError::NotPermitted => LabError::TunDenied,
            OpenError::NoTun => LabError::NoTun,
            OpenError::File(error) => LabError::system("opening /dev/net/tun", error),
            OpenError::Interface(error) => {
                LabError::system(format!("creating the interface {name}"), error)
            }
        })?;
        let set = |flags| {
            // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes flags by value.
            unsafe { tun_set_offload(file.as_raw_fd(), flags) }
        };
        let done = if offload {
            set(OFFLOAD_CHECKSUMS | OFFLOAD_TCP | OFFLOAD_UDP)
                .or_else(|_| set(OFFLOAD_CHECKSUMS | OFFLOAD_TCP))
        } else {
            set(OFFLOAD_CHECKSUMS)
        };
        done.map_err(|error| LabError::system(format!("setting the offloads of {name}"), error))?;
        Ok(Self { file })
    }

    /// Switches the carrier on or off.
    pub(crate) fn set_carrier(&self, carrier: bool) -> Result<(), LabError> {
        let value = libc::c_int::from(carrier);
        // SAFETY: the descriptor is open and TUNSETCARRIER reads one int.
        unsafe { tun_set_carrier(self.file.as_raw_fd(), &value) }
            .map_err(|error| LabError::system("setting the carrier of an interface", error))?;
        Ok(())
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.file.try_clone().map(|file| Self { file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}
