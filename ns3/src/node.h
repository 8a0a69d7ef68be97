// SPDX-License-Identifier: GPL-2.0-only
// The two ends of the tunnels: the edge node, which runs sumlink's core, and the user's end.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "../ffi/sumlink_edge.h"
#include "link.h"
#include "ns3/virtual-net-device-module.h"

namespace edge {

constexpr uint16_t TUNNEL_PORT = 7400;

/// The node's treatment of a user's acknowledgment.
struct Answer {
    /// Its number, and the number passed on; empty if it was not passed on.
    uint32_t number = 0;
    std::optional<uint32_t> passed;
    /// `boost`, `hold`, `repair`, `duplicate` (passed on unchanged), `unneeded` (a recent repeat)
    /// or `advance`.
    const char *what = "advance";
};

/// Connects a virtual device, which carries the hosts' packets, with a UDP socket that carries one
/// packet per datagram.
class Node {
  public:
    /// Follows the core's calling rules: after every event it drains the core and sets the timer.
    /// `users` are
    /// the addresses that each link leads to, in the order of `Link::users`; `header`: bytes before
    /// each packet.
    Node(sumlink_edge *core, ns3::Ptr<ns3::VirtualNetDevice> device, ns3::Ptr<ns3::Socket> socket,
         std::vector<Link *> links, std::vector<ns3::Ipv4Address> users, size_t header);
    ~Node();
    sumlink_edge *Core() const { return m_core; }
    /// Called for each acknowledgment from a user, if set.
    std::function<void(const Answer &)> answered;

  private:
    bool FromFar(ns3::Ptr<ns3::Packet> packet, const ns3::Address &, const ns3::Address &, uint16_t protocol);
    void FromUser(ns3::Ptr<ns3::Socket> socket);
    void Timeout();
    void Poll();
    size_t UserOf(size_t len) const;

    sumlink_edge *m_core;
    ns3::Ptr<ns3::VirtualNetDevice> m_device;
    ns3::Ptr<ns3::Socket> m_socket;
    std::vector<Link *> m_links;
    std::vector<ns3::Ipv4Address> m_users;
    size_t m_header;
    // Number of the last acknowledgment passed to the far side.
    std::optional<uint32_t> m_passed;
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
    // Null unless the mode is LWA.
    sumlink_reorder *m_reorder;
    std::vector<uint8_t> m_room;
    ns3::EventId m_timer;
};

} // namespace edge
