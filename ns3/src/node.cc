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

EventId At(uint64_t at, std::function<void()> what) {
    return Simulator::Schedule(NanoSeconds(at > Now() ? at - Now() : 0), what);
}

} // namespace

Node::Node(sumlink_edge *core, Ptr<VirtualNetDevice> device, Ptr<Socket> socket, std::vector<Link *> links)
    : m_core(core), m_device(device), m_socket(socket), m_links(links), m_room(SUMLINK_EDGE_PACKET_MAX) {
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
        sumlink_edge_handle_user(m_core, bytes.data(), bytes.size(), Now());
        Poll();
    }
}

void Node::Timeout() {
    m_armed = SUMLINK_EDGE_NEVER;
    sumlink_edge_handle_timeout(m_core, Now());
    Poll();
}

void Node::Poll() {
    while (size_t len = sumlink_edge_poll_far(m_core, m_room.data(), m_room.size())) {
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
            m_socket->SendTo(Create<Packet>(m_room.data(), len), 0, link->user);
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
