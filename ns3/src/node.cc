// SPDX-License-Identifier: GPL-2.0-only
#include "node.h"

#include "ns3/internet-module.h"

using namespace ns3;

namespace edge {

namespace {

uint64_t Now() {
    return static_cast<uint64_t>(Simulator::Now().GetNanoSeconds());
}

std::vector<uint8_t> Bytes(Ptr<const Packet> packet) {
    std::vector<uint8_t> bytes(packet->GetSize());
    packet->CopyData(bytes.data(), bytes.size());
    return bytes;
}

void Deliver(Ptr<VirtualNetDevice> device, Ptr<Packet> packet) {
    device->Receive(packet, Ipv4L3Protocol::PROT_NUMBER, device->GetAddress(), device->GetAddress(),
                    NetDevice::PACKET_HOST);
}

/// The acknowledgment number of a TCP packet over IPv4, if present.
std::optional<uint32_t> Acknowledged(const uint8_t *bytes, size_t len) {
    if (len < 20 || bytes[0] >> 4 != 4 || bytes[9] != 6) {
        return {};
    }
    const uint8_t *tcp = bytes + 4 * (bytes[0] & 15);
    if (tcp + 20 > bytes + len || !(tcp[13] & 0x10)) {
        return {};
    }
    return uint32_t(tcp[8]) << 24 | uint32_t(tcp[9]) << 16 | uint32_t(tcp[10]) << 8 | tcp[11];
}

EventId At(uint64_t at, std::function<void()> what) {
    return Simulator::Schedule(NanoSeconds(at > Now() ? at - Now() : 0), what);
}

} // namespace

Node::Node(sumlink_edge *core, Ptr<VirtualNetDevice> device, Ptr<Socket> socket, std::vector<Link *> links,
           std::vector<Ipv4Address> users, size_t header)
    : m_core(core), m_device(device), m_socket(socket), m_links(links), m_users(users), m_header(header),
      m_room(SUMLINK_EDGE_PACKET_MAX) {
    m_device->SetSendCallback(MakeCallback(&Node::FromFar, this));
    m_socket->SetRecvCallback(MakeCallback(&Node::FromUser, this));
    for (auto *link : m_links) {
        link->ready = [this] { Poll(); };
    }
}

Node::~Node() {
    sumlink_edge_free(m_core);
}

bool Node::FromFar(Ptr<Packet> packet, const Address &, const Address &, uint16_t) {
    auto bytes = Bytes(packet);
    sumlink_edge_handle_far(m_core, bytes.data(), bytes.size(), Now());
    Poll();
    return true;
}

void Node::FromUser(Ptr<Socket> socket) {
    while (auto packet = socket->Recv()) {
        auto bytes = Bytes(packet);
        auto number = Acknowledged(bytes.data(), bytes.size());
        sumlink_edge_counters_t before{}, after{};
        sumlink_edge_counters(m_core, &before);
        m_passed.reset();
        sumlink_edge_handle_user(m_core, bytes.data(), bytes.size(), Now());
        sumlink_edge_counters(m_core, &after);
        Poll();
        if (!answered || !number) {
            continue;
        }
        Answer answer;
        answer.number = *number;
        answer.passed = m_passed;
        if (after.repaired > before.repaired) {
            answer.what = "repair";
        } else if (after.boosted > before.boosted) {
            answer.what = "boost";
        } else if (after.held > before.held) {
            answer.what = "hold";
        } else if (after.duplicates > before.duplicates) {
            answer.what = "duplicate";
        } else if (after.unneeded > before.unneeded) {
            answer.what = "unneeded";
        }
        answered(answer);
    }
}

size_t Node::UserOf(size_t len) const {
    if (m_users.size() > 1 && len >= m_header + 20) {
        const uint8_t *ip = m_room.data() + m_header;
        Ipv4Address to(uint32_t(ip[16]) << 24 | uint32_t(ip[17]) << 16 | uint32_t(ip[18]) << 8 | ip[19]);
        for (size_t n = 0; n < m_users.size(); ++n) {
            if (m_users[n] == to) {
                return n;
            }
        }
    }
    return 0;
}

void Node::Timeout() {
    m_armed = SUMLINK_EDGE_NEVER;
    sumlink_edge_handle_timeout(m_core, Now());
    Poll();
}

void Node::Poll() {
    while (size_t len = sumlink_edge_poll_far(m_core, m_room.data(), m_room.size())) {
        m_passed = Acknowledged(m_room.data(), len);
        Deliver(m_device, Create<Packet>(m_room.data(), len));
    }
    for (size_t n = 0; n < m_links.size(); ++n) {
        auto *link = m_links[n];
        while (link->Ready()) {
            size_t len = sumlink_edge_poll_link(m_core, n, Now(), m_room.data(), m_room.size());
            if (len == 0) {
                break;
            }
            link->Sent();
            m_socket->SendTo(Create<Packet>(m_room.data(), len), 0, link->users[UserOf(len)]);
        }
    }
    uint64_t at = sumlink_edge_poll_timeout(m_core);
    if (at != m_armed) {
        m_timer.Cancel();
        m_armed = at;
        if (at != SUMLINK_EDGE_NEVER) {
            m_timer = At(at, [this] { Timeout(); });
        }
    }
}

User::User(Ptr<VirtualNetDevice> device, Ptr<Socket> socket, InetSocketAddress node, sumlink_reorder *reorder)
    : m_device(device), m_socket(socket), m_node(node), m_reorder(reorder), m_room(SUMLINK_EDGE_PACKET_MAX) {
    m_device->SetSendCallback(MakeCallback(&User::Up, this));
    m_socket->SetRecvCallback(MakeCallback(&User::Down, this));
}

User::~User() {
    sumlink_reorder_free(m_reorder);
}

bool User::Up(Ptr<Packet> packet, const Address &, const Address &, uint16_t) {
    return m_socket->SendTo(packet, 0, m_node) >= 0;
}

void User::Down(Ptr<Socket> socket) {
    while (auto packet = socket->Recv()) {
        if (!m_reorder) {
            Deliver(m_device, packet);
            continue;
        }
        auto bytes = Bytes(packet);
        sumlink_reorder_handle(m_reorder, bytes.data(), bytes.size(), Now());
        Poll();
    }
}

void User::Timeout() {
    sumlink_reorder_handle_timeout(m_reorder, Now());
    Poll();
}

void User::Poll() {
    while (size_t len = sumlink_reorder_poll(m_reorder, m_room.data(), m_room.size())) {
        Deliver(m_device, Create<Packet>(m_room.data(), len));
    }
    m_timer.Cancel();
    uint64_t at = sumlink_reorder_poll_timeout(m_reorder);
    if (at != SUMLINK_EDGE_NEVER) {
        m_timer = At(at, [this] { Timeout(); });
    }
}

} // namespace edge
