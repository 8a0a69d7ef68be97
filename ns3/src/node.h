// SPDX-License-Identifier: GPL-2.0-only
// The two ends of the tunnels: the edge node, which is sumlink's core, and the user's end.
#pragma once

#include <vector>

#include "../ffi/sumlink_edge.h"
#include "link.h"
#include "ns3/virtual-net-device-module.h"

namespace edge {

constexpr uint16_t TUNNEL_PORT = 7400;

/// Between a virtual device, which the hosts' packets go through, and a UDP socket with a packet in each datagram.
class Node {
  public:
    /// Keeps the law of the core's use: whatever happens, all that can be taken is taken, and the timer is set.
    Node(sumlink_edge *core, ns3::Ptr<ns3::VirtualNetDevice> device, ns3::Ptr<ns3::Socket> socket,
         std::vector<Link *> links);
    ~Node();
    sumlink_edge *Core() const { return m_core; }

  private:
    bool FromFar(ns3::Ptr<ns3::Packet> packet, const ns3::Address &, const ns3::Address &, uint16_t protocol);
    void FromUser(ns3::Ptr<ns3::Socket> socket);
    void Timeout();
    void Poll();

    sumlink_edge *m_core;
    ns3::Ptr<ns3::VirtualNetDevice> m_device;
    ns3::Ptr<ns3::Socket> m_socket;
    std::vector<Link *> m_links;
    std::vector<uint8_t> m_room;
    ns3::EventId m_timer;
    uint64_t m_armed = SUMLINK_EDGE_NEVER;
};

/// The user's end. Upward packets go over LTE, as in the paper.
class User {
  public:
    User(ns3::Ptr<ns3::VirtualNetDevice> device, ns3::Ptr<ns3::Socket> socket, ns3::InetSocketAddress node,
         sumlink_reorder *reorder);
    ~User();

  private:
    bool Up(ns3::Ptr<ns3::Packet> packet, const ns3::Address &, const ns3::Address &, uint16_t protocol);
    void Down(ns3::Ptr<ns3::Socket> socket);
    void Timeout();
    void Poll();

    ns3::Ptr<ns3::VirtualNetDevice> m_device;
    ns3::Ptr<ns3::Socket> m_socket;
    ns3::InetSocketAddress m_node;
    // Of LWA, else null.
    sumlink_reorder *m_reorder;
    std::vector<uint8_t> m_room;
    ns3::EventId m_timer;
};

} // namespace edge
