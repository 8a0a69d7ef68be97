// SPDX-License-Identifier: GPL-2.0-only
// sumlink's bond: the engine's session at each end, with an ordinary TCP socket of ns-3 for each link as its carrier.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../ffi/sumlink_session.h"
#include "congestion.h"
#include "mptcp.h"

namespace bond {

/// A session whose scheduler has that name; null if there is none, and then `why` says so. The sender opens the stream.
std::shared_ptr<sumlink_session> Session(const std::string &scheduler, bool sends, std::string &why);

/// One end. The one that sends always has data; the other compares each byte with what belongs in its place.
class End {
  public:
    /// `control`: the congestion control of each carrier; they see each other.
    End(ns3::Ptr<ns3::Node> node, std::shared_ptr<sumlink_session> session, std::shared_ptr<sumlink_bond> control, bool sends,
        uint32_t segment);
    /// Opens a carrier over each way.
    void Connect(const std::vector<coupled::Way> &ways);
    /// Takes a carrier at each port.
    void Listen(const std::vector<uint16_t> &ports);
    /// Bytes of the stream that have come in order.
    uint64_t Delivered() const { return m_read; }
    /// Bytes that are not those of their place, and sessions that could not be read: always 0 unless something is wrong.
    uint64_t Wrong() const { return m_wrong; }
    sumlink_session_counters_t Counters() const;
    /// Bytes that have come over all carriers: of the end that sends what the session says to itself, acknowledgements most of all.
    uint64_t Came() const;

  private:
    struct Carrier {
        ns3::Ptr<ns3::Socket> socket;
        ns3::Ptr<coupled::Congestion> control;
        bool up = false;
        // Bytes given to the socket, bytes that have come, and the sequence number of the first one given.
        uint64_t given = 0;
        uint64_t came = 0;
        ns3::SequenceNumber32 first;
        // Of data: segments sent, those sent before, and where the next new one begins.
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
