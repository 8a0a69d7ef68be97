// SPDX-License-Identifier: GPL-2.0-only
// sumlink's bond: the engine's session at each end, with one ordinary TCP socket of ns-3 per link
// as its carrier.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../ffi/sumlink_session.h"
#include "congestion.h"
#include "mptcp.h"

namespace bond {

/// Creates a session with the named scheduler; returns null if it is unknown, with the reason in
/// `why`. The sender opens the stream.
std::shared_ptr<sumlink_session> Session(const std::string &scheduler, bool sends, std::string &why);

/// One end. The sender always has data; the receiver compares each byte with the expected one.
class End {
  public:
    /// `control`: the congestion control of each carrier, coupled with the others.
    End(ns3::Ptr<ns3::Node> node, std::shared_ptr<sumlink_session> session, std::shared_ptr<sumlink_bond> control, bool sends,
        uint32_t segment);
    /// Opens a carrier over each route.
    void Connect(const std::vector<coupled::Way> &ways);
    /// Accepts a carrier at each port.
    void Listen(const std::vector<uint16_t> &ports);
    /// Bytes of the stream received in order.
    uint64_t Delivered() const { return m_read; }
    /// Wrong bytes and unreadable sessions; above 0 only after a fault.
    uint64_t Wrong() const { return m_wrong; }
    sumlink_session_counters_t Counters() const;
    /// Bytes received over all carriers; at the sender these are the session's control frames,
    /// mostly acknowledgments.
    uint64_t Came() const;

  private:
    struct Carrier {
        ns3::Ptr<ns3::Socket> socket;
        ns3::Ptr<coupled::Congestion> control;
        bool up = false;
        // Bytes written to the socket, bytes received, and the sequence number of the first written
        // byte.
        uint64_t given = 0;
        uint64_t came = 0;
        ns3::SequenceNumber32 first;
        // Data segments sent, those sent again, and the start of the next new one.
        uint64_t segments = 0;
        uint64_t again = 0;
        ns3::SequenceNumber32 next;
        uint64_t Acknowledged() const;
        uint64_t InFlight() const;
        uint64_t Unsent() const;
        bool Young() const;
        uint64_t Lowat() const;
        bool Full() const;
        size_t Budget() const;
    };
    void Watch(size_t n);
    void Up(size_t n);
    void Down(size_t n);
    void Receive(size_t n);
    void Sample(size_t n);
    bool Transmit(size_t n);
    void Write();
    void Read();
    void Work();
    void Arm();

    ns3::Ptr<ns3::Node> m_node;
    std::shared_ptr<sumlink_session> m_session;
    std::shared_ptr<sumlink_bond> m_control;
    bool m_sends;
    uint32_t m_segment;
    std::vector<Carrier> m_carriers;
    std::vector<ns3::Ptr<ns3::Socket>> m_listening;
    ns3::EventId m_timer;
    size_t m_turn = 0;
    uint64_t m_written = 0;
    uint64_t m_read = 0;
    uint64_t m_wrong = 0;
    bool m_working = false;
    bool m_again = false;
};

} // namespace bond
