//! Configuration of the device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Least MTU of the device: that of IPv6 (RFC 8200, section 5).
pub const MIN_MTU: u16 = 1280;

/// Length of the prefix of the device's own range, which its address is in.
const RANGE4: u8 = 28;
const RANGE6: u8 = 124;

/// The device and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// Largest packet in bytes, at least [`MIN_MTU`].
    ///
    /// The default, 1500, is that of Ethernet: a LAN's packets need no fragments to be forwarded
    /// into the device, and programs learn a path MTU that they know. A larger one would not be
    /// faster. TCP does not depend on it, because the kernel passes super-packets of up to 64 KiB;
    /// and longer datagrams would only be split into more packets on the links.
    pub mtu: u16,
    /// Address of the device. The other addresses of its /28 stand for the remote ends of
    /// connections and must not be used otherwise.
    pub ipv4: Ipv4Addr,
    /// IPv6 address; the same applies to its /124. If the system has IPv6 disabled, the device
    /// works without it.
    pub ipv6: Ipv6Addr,
    /// Lets the kernel pass super-packets if it can.
    pub offload: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            name: "sumlink0".to_owned(),
            mtu: 1500,
            // Of the benchmarking network (RFC 2544), which no host on the internet has.
            ipv4: Ipv4Addr::new(198, 18, 74, 1),
            ipv6: Ipv6Addr::new(0xfd73, 0x756d, 0x6c69, 0, 0, 0, 0, 1),
            offload: true,
        }
    }
}

/// A device's address and its own range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) own: IpAddr,
    pub(crate) net: IpNet,
}

impl Range {
    pub(crate) fn v4(own: Ipv4Addr) -> Self {
        let net = Ipv4Net::new_assert(own, RANGE4).trunc();
        Self {
            own: own.into(),
            net: net.into(),
        }
    }

    pub(crate) fn v6(own: Ipv6Addr) -> Self {
        let net = Ipv6Net::new_assert(own, RANGE6).trunc();
        Self {
            own: own.into(),
            net: net.into(),
        }
    }

    /// The device's address as a network with only this address.
    pub(crate) fn address(&self) -> IpNet {
        IpNet::from(self.own)
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address)
    }

    /// The addresses that stand for remote ends: all but the device's, the first and the last one,
    /// which IPv4 reserves.
    pub(crate) fn peers(&self) -> Vec<IpAddr> {
        let (first, last) = (self.net.network(), self.net.broadcast());
        let all: Vec<IpAddr> = match self.net {
            IpNet::V4(net) => net.hosts().map(IpAddr::from).collect(),
            IpNet::V6(net) => net.hosts().map(IpAddr::from).collect(),
        };
        let is_peer = |ip: &IpAddr| ![first, last, self.own].contains(ip);
        all.into_iter().filter(is_peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_has_peers_beside_the_device() {
        let DeviceConfig { ipv4, ipv6, .. } = DeviceConfig::default();
        for range in [Range::v4(ipv4), Range::v6(ipv6)] {
            let peers = range.peers();
            assert_eq!(peers.len(), 13);
            assert!(peers.iter().all(|peer| range.contains(*peer)));
            assert!(!peers.contains(&range.own));
        }
        assert_eq!(Range::v4(ipv4).net.to_string(), "198.18.74.0/28");
        // An address at the end of its range.
        assert_eq!(Range::v4(Ipv4Addr::new(10, 0, 0, 15)).peers().len(), 14);
    }
}
