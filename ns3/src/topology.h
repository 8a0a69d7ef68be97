// SPDX-License-Identifier: GPL-2.0-only
// Hosts, node, LTE and 802.11 of the VISIBLE paper's figure 5.
//
//   remote host --10 ms-- edge node == LTE (core network, eNB) == 1 to 4 users
//                                   == 802.11 (the node is the AP) ==
#pragma once

#include <functional>
#include <vector>

#include "ns3/internet-module.h"
#include "ns3/virtual-net-device-module.h"
#include "ns3/wifi-module.h"

namespace edge {

/// The most users that the paper has.
constexpr uint32_t MOST_USERS = 4;

/// A user: its host, and where it is reached.
struct Host {
    ns3::Ptr<ns3::Node> node;
    /// What packets for `address` come out of, at the end of the tunnels.
    ns3::Ptr<ns3::VirtualNetDevice> device;
    ns3::Ipv4Address address;
    ns3::Ipv4Address lte;
    ns3::Ipv4Address wifi;
};

struct Topology {
    /// `through_node`: the users' packets go through the node's virtual device; else both links end at the remote host.
    Topology(ns3::WifiStandard standard, uint32_t users, bool through_node);

    /// Calls `listen` for the data bearer of each user, in their order; whether each had one. Users have attached by then.
    bool ForEachBearer(const std::function<void(ns3::Ptr<ns3::Object>)> &listen) const;

    ns3::Ptr<ns3::Node> remote;
    ns3::Ptr<ns3::Node> middle;
    std::vector<Host> users;
    /// The node's virtual device: the remote host's packets for users go into it.
    ns3::Ptr<ns3::VirtualNetDevice> device;
    /// The access point, which the node is.
    ns3::Ptr<ns3::WifiNetDevice> ap;
    ns3::Ptr<ns3::NetDevice> enb;
    /// The node's address towards the core network of LTE, where users send their packets to.
    ns3::Ipv4Address up;
    /// The remote host's addresses, of each wire to the node; acknowledgements for the second return over Wi-Fi.
    ns3::Ipv4Address far;
    ns3::Ipv4Address far_wifi;

  private:
    std::vector<ns3::Ptr<ns3::NetDevice>> m_lte;
    // The helpers of LTE, which their core network and radio do not outlive.
    std::vector<ns3::Ptr<ns3::Object>> m_kept;
};

} // namespace edge
