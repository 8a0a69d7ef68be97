// SPDX-License-Identifier: GPL-2.0-only
// A congestion control of sumlink on a TCP socket of ns-3: one per flow of a connection, coupled
// with each other.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../ffi/sumlink_congestion.h"
#include "ns3/internet-module.h"

namespace coupled {

/// Creates the flows of one connection; returns null for an unknown control, with the reason in
/// `why`.
std::shared_ptr<sumlink_bond> Bond(const std::string &name, uint8_t flows, std::string &why);

/// Has full control: ns-3 neither reduces nor restores the window if HasCongControl() is true.
class Congestion : public ns3::TcpCongestionOps {
  public:
    static ns3::TypeId GetTypeId();
    Congestion() = default;
    Congestion(std::shared_ptr<sumlink_bond> bond, uint8_t flow);
    std::string GetName() const override { return "sumlink"; }
    void Init(ns3::Ptr<ns3::TcpSocketState> tcb) override;
    uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> tcb, uint32_t) override;
    void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState>, uint32_t) override {}
    void PktsAcked(ns3::Ptr<ns3::TcpSocketState>, uint32_t, const ns3::Time &) override {}
    void CongestionStateSet(ns3::Ptr<ns3::TcpSocketState> tcb, const ns3::TcpSocketState::TcpCongState_t state) override;
    void CwndEvent(ns3::Ptr<ns3::TcpSocketState> tcb, const ns3::TcpSocketState::TcpCAEvent_t event) override;
    bool HasCongControl() const override { return true; }
    void CongControl(ns3::Ptr<ns3::TcpSocketState> tcb, const ns3::TcpRateOps::TcpRateConnection &,
                     const ns3::TcpRateOps::TcpRateSample &sample) override;
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

    /// State of the socket; null before it has started.
    ns3::Ptr<ns3::TcpSocketState> State() const { return m_tcb; }
    /// Zero before the first sample.
    ns3::Time Srtt() const { return ns3::NanoSeconds(sumlink_bond_srtt(m_bond.get(), m_flow)); }
    ns3::Time RttVariation() const { return ns3::NanoSeconds(sumlink_bond_rttvar(m_bond.get(), m_flow)); }
    /// Latest measurement in bytes per second; 0 before the first one.
    uint64_t DeliveryRate() const { return m_delivery_rate; }
    /// Bytes that the peer has received, including those behind a gap.
    uint64_t Delivered() const { return m_delivered; }
    uint32_t Losses() const { return m_losses; }
    uint32_t Timeouts() const { return m_timeouts; }
    /// Called when the retransmission timer fires.
    std::function<void()> timedOut = [] {};

  private:
    void Apply(ns3::Ptr<ns3::TcpSocketState> tcb);
    /// Measures the delivery rate, once per round trip; `limited`: the window is full.
    void Measure(bool limited);

    std::shared_ptr<sumlink_bond> m_bond;
    uint8_t m_flow = 0;
    ns3::Ptr<ns3::TcpSocketState> m_tcb;
    ns3::TcpSocketState::TcpCongState_t m_state = ns3::TcpSocketState::CA_OPEN;
    // Positions in the stream, which do not wrap around as sequence numbers do.
    ns3::SequenceNumber32 m_last_acked;
    uint64_t m_acknowledged = 0;
    bool m_begun = false;
    // Remaining bytes, less than a packet.
    uint32_t m_rest = 0;
    // Time of the last acknowledgment, from which an idle time is measured.
    ns3::Time m_last_ack;
    bool m_acked_since_timeout = true;
    // For the current round trip: bytes delivered before it, its start, and whether the window was
    // used.
    uint64_t m_delivery_rate = 0;
    uint64_t m_delivered = 0;
    uint64_t m_delivered_before = 0;
    ns3::Time m_measured;
    bool m_limited = false;
    uint32_t m_losses = 0;
    uint32_t m_timeouts = 0;
};

} // namespace coupled
