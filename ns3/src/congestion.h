// SPDX-License-Identifier: GPL-2.0-only
// A congestion control of sumlink on a TCP socket of ns-3: for each flow of a connection one, which see each other.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../ffi/sumlink_congestion.h"
#include "ns3/internet-module.h"

namespace coupled {

/// The flows of one connection; null if there is no such control, and then `why` says so.
std::shared_ptr<sumlink_bond> Bond(const std::string &name, uint8_t flows, std::string &why);

/// Decides alone: ns-3 reduces and restores no window where HasCongControl() is true.
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

    /// What the socket knows; null before it has begun.
    ns3::Ptr<ns3::TcpSocketState> State() const { return m_tcb; }
    /// Zero before the first sample.
    ns3::Time Srtt() const { return ns3::NanoSeconds(sumlink_bond_srtt(m_bond.get(), m_flow)); }
    ns3::Time RttVariation() const { return ns3::NanoSeconds(sumlink_bond_rttvar(m_bond.get(), m_flow)); }
    /// Bytes per second, as measured last; 0 before that.
    uint64_t DeliveryRate() const { return m_delivery_rate; }
    /// Bytes that the peer has, also behind a hole.
    uint64_t Delivered() const { return m_delivered; }
    uint32_t Losses() const { return m_losses; }
    uint32_t Timeouts() const { return m_timeouts; }
    /// Called when the retransmission timer has fired.
    std::function<void()> timedOut = [] {};

  private:
    void Apply(ns3::Ptr<ns3::TcpSocketState> tcb);
    /// The rate of delivery, once in each round trip; `limited`: the window is used up.
    void Measure(bool limited);

    std::shared_ptr<sumlink_bond> m_bond;
    uint8_t m_flow = 0;
    ns3::Ptr<ns3::TcpSocketState> m_tcb;
    ns3::TcpSocketState::TcpCongState_t m_state = ns3::TcpSocketState::CA_OPEN;
    // Positions in the stream, which sequence numbers that wrap are not.
    ns3::SequenceNumber32 m_last_acked;
    uint64_t m_acknowledged = 0;
    bool m_begun = false;
    // Bytes that are less than a packet.
    uint32_t m_rest = 0;
    // When something was last acknowledged, for the length of an idle time.
    ns3::Time m_last_ack;
    bool m_acked_since_timeout = true;
    // Of each round trip: bytes delivered before it, when it began, and whether the window was made use of.
    uint64_t m_delivery_rate = 0;
    uint64_t m_delivered = 0;
    uint64_t m_delivered_before = 0;
    ns3::Time m_measured;
    bool m_limited = false;
    uint32_t m_losses = 0;
    uint32_t m_timeouts = 0;
};

} // namespace coupled
