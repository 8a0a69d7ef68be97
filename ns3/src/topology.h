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

/// Largest number of users in the paper.
constexpr uint32_t MAX_USERS = 4;

/// A user: its host and addresses.
struct Host {
    ns3::Ptr<ns3::Node> node;
    /// Device that delivers packets for `address` at the end of the tunnels.
    ns3::Ptr<ns3::VirtualNetDevice> device;
    ns3::Ipv4Address address;
    ns3::Ipv4Address lte;
    ns3::Ipv4Address wifi;
};

struct Topology {
    /// `through_node`: the users' packets pass the node's virtual device; otherwise both links end
    /// at the remote host.
    Topology(ns3::WifiStandard standard, uint32_t users, bool through_node);

    /// Calls `listen` for the data bearer of each user, in order; returns whether each had one.
    /// Call it after the users have attached.
    bool ForEachBearer(const std::function<void(ns3::Ptr<ns3::Object>)> &listen) const;

    ns3::Ptr<ns3::Node> remote;
    ns3::Ptr<ns3::Node> middle;
    std::vector<Host> users;
    /// The node's virtual device, which takes the remote host's packets for users.
    ns3::Ptr<ns3::VirtualNetDevice> device;
    /// The access point (the node itself).
    ns3::Ptr<ns3::WifiNetDevice> ap;
    ns3::Ptr<ns3::NetDevice> enb;
    /// The node's address in the core network of LTE; users send their packets to it.
    ns3::Ipv4Address up;
    /// The remote host's address on each wire to the node; acknowledgments for the second one
    /// return over Wi-Fi.
    ns3::Ipv4Address far;
    ns3::Ipv4Address far_wifi;

  private:
    std::vector<ns3::Ptr<ns3::NetDevice>> m_lte;
    // The LTE helpers, which must live as long as their core network and radio.
    std::vector<ns3::Ptr<ns3::Object>> m_kept;
};

} // namespace edge
