// SPDX-License-Identifier: GPL-2.0-only
// A multipath connection over ordinary TCP sockets, with data sequence numbers in headers inside
// the stream of each subflow.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "congestion.h"

namespace coupled {

/// Header bytes before each piece of data: data sequence number (8) and length (4).
constexpr uint32_t HEADER = 12;

/// Addresses of one subflow. If `from` is any, the routes decide.
struct Way {
    ns3::Ipv4Address from;
    ns3::InetSocketAddress to;
};

/// The sender. It always has data. A piece goes to the subflow with the lowest smoothed round-trip
/// time whose window has room;
/// when a subflow's timer fires, its unacknowledged pieces are sent once more over the others.
class Sender {
  public:
    /// `window`: most bytes in flight, in place of the receiver's buffer.
    Sender(ns3::Ptr<ns3::Node> node, std::shared_ptr<sumlink_bond> bond, const std::vector<Way> &ways, uint32_t segment,
           uint64_t window);
    /// Opens the subflows.
    void Start();

    struct Subflow {
        ns3::Ptr<ns3::Socket> socket;
        ns3::Ptr<Congestion> control;
        Way way{ns3::Ipv4Address::GetAny(), ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), 0)};
        bool connected = false;
        bool failed = false;
        /// Bytes written to the socket, including headers.
        uint64_t given = 0;
        /// Sequence number of the first byte.
        ns3::SequenceNumber32 first;
        /// Unacknowledged pieces: their end in this stream, and their start in the data.
        std::deque<std::pair<uint64_t, uint64_t>> pieces;
    };
    const std::vector<Subflow> &Subflows() const { return m_subflows; }
    /// Bytes sent again over another subflow.
    uint64_t Reinjected() const { return m_reinjected; }

  private:
    void Open(size_t n);
    bool Room(const Subflow &subflow) const;
    void Acknowledged(Subflow &subflow);
    void TimedOut(size_t n);
    void Push();
    void Give(Subflow &subflow, uint64_t at);

    ns3::Ptr<ns3::Node> m_node;
    std::shared_ptr<sumlink_bond> m_bond;
    std::vector<Subflow> m_subflows;
    uint32_t m_segment;
    uint32_t m_piece;
    uint64_t m_window;
    uint64_t m_next = 0;
    // Pieces not known to be delivered, and whether they were sent over two subflows.
    std::map<uint64_t, bool> m_outstanding;
    // Pieces to be sent over a different subflow.
    std::deque<std::pair<uint64_t, size_t>> m_again;
    uint64_t m_reinjected = 0;
    bool m_pushing = false;
};

/// The receiver: puts the pieces in order and counts in-order bytes.
class Receiver {
  public:
    /// Listens at the ports.
    Receiver(ns3::Ptr<ns3::Node> node, const std::vector<uint16_t> &ports);
    /// Bytes in order.
    uint64_t Delivered() const { return m_next; }
    /// Bytes received twice.
    uint64_t Twice() const { return m_twice; }
    /// Wrong bytes and invalid headers; above 0 only after a fault.
    uint64_t Wrong() const { return m_wrong; }
    /// Bytes received at each port.
    const std::vector<uint64_t> &Came() const { return m_came; }

  private:
    void Accepted(size_t n, ns3::Ptr<ns3::Socket> socket, const ns3::Address &);
    void Read(size_t n, ns3::Ptr<ns3::Socket> socket);
    void Piece(uint64_t at, const uint8_t *data, uint32_t len);

    std::vector<ns3::Ptr<ns3::Socket>> m_sockets;
    std::vector<std::vector<uint8_t>> m_streams;
    std::vector<uint64_t> m_came;
    // Pieces beyond a gap: start and end.
    std::map<uint64_t, uint64_t> m_ahead;
    uint64_t m_next = 0;
    uint64_t m_twice = 0;
    uint64_t m_wrong = 0;
};

} // namespace coupled
