// SPDX-License-Identifier: GPL-2.0-only
#include "congestion.h"

#include <cmath>

using namespace ns3;

namespace coupled {

NS_OBJECT_ENSURE_REGISTERED(Congestion);

namespace {

uint64_t Now() {
    return static_cast<uint64_t>(Simulator::Now().GetNanoSeconds());
}

uint32_t Bytes(double packets, uint32_t segment) {
    double bytes = std::floor(packets) * segment;
    return bytes < 1e9 ? static_cast<uint32_t>(bytes) : 1'000'000'000;
}

} // namespace

std::shared_ptr<sumlink_bond> Bond(const std::string &name, uint8_t flows, std::string &why) {
    char error[256];
    auto *bond = sumlink_bond_new(name.c_str(), flows, error, sizeof error);
    if (!bond) {
        why = error;
        return nullptr;
    }
    return {bond, sumlink_bond_free};
}

TypeId Congestion::GetTypeId() {
    static TypeId id = TypeId("sumlink::Congestion").SetParent<TcpCongestionOps>().AddConstructor<Congestion>();
    return id;
}

Congestion::Congestion(std::shared_ptr<sumlink_bond> bond, uint8_t flow) : m_bond(bond), m_flow(flow) {}

void Congestion::Init(Ptr<TcpSocketState> tcb) {
    m_tcb = tcb;
}

uint32_t Congestion::GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t) {
    // Called before the timeout is reported; Apply() sets the correct value then.
    return Bytes(sumlink_bond_ssthresh(m_bond.get(), m_flow), tcb->m_segmentSize);
}

void Congestion::CongestionStateSet(Ptr<TcpSocketState> tcb, const TcpSocketState::TcpCongState_t state) {
    bool repaired = state == TcpSocketState::CA_OPEN;
    if (state == TcpSocketState::CA_RECOVERY && m_state != TcpSocketState::CA_RECOVERY) {
        ++m_losses;
        sumlink_bond_on_loss(m_bond.get(), m_flow, Now());
    } else if (state == TcpSocketState::CA_LOSS) {
        ++m_timeouts;
        bool repeated = m_state == TcpSocketState::CA_LOSS && !m_acked_since_timeout;
        sumlink_bond_on_rto(m_bond.get(), m_flow, Now(), repeated);
        m_acked_since_timeout = false;
        // Deferred, because the socket is in the middle of an operation.
        Simulator::ScheduleNow([this, self = Ptr<Congestion>(this)] { timedOut(); });
    } else if (repaired && (m_state == TcpSocketState::CA_RECOVERY || m_state == TcpSocketState::CA_LOSS)) {
        sumlink_bond_on_recovery_exit(m_bond.get(), m_flow, Now());
    }
    // Neither duplicates below the loss threshold nor announced congestion end a recovery.
    if (repaired || state == TcpSocketState::CA_RECOVERY || state == TcpSocketState::CA_LOSS) {
        m_state = state;
    }
    Apply(tcb);
}

void Congestion::CwndEvent(Ptr<TcpSocketState> tcb, const TcpSocketState::TcpCAEvent_t event) {
    if (event == TcpSocketState::CA_EVENT_TX_START && m_begun) {
        auto idle = Simulator::Now() - m_last_ack;
        sumlink_bond_on_idle_end(m_bond.get(), m_flow, Now(), static_cast<uint64_t>(idle.GetNanoSeconds()));
        Apply(tcb);
    }
}

void Congestion::CongControl(Ptr<TcpSocketState> tcb, const TcpRateOps::TcpRateConnection &connection,
                             const TcpRateOps::TcpRateSample &sample) {
    m_delivered = connection.m_delivered;
    Measure(sample.m_priorInFlight + tcb->m_segmentSize >= tcb->m_cWnd);
    if (!m_begun) {
        m_last_acked = tcb->m_lastAckedSeq;
        m_begun = true;
    }
    bool cumulative = tcb->m_lastAckedSeq > m_last_acked;
    if (cumulative) {
        m_acknowledged += tcb->m_lastAckedSeq - m_last_acked;
        m_last_acked = tcb->m_lastAckedSeq;
        m_acked_since_timeout = true;
        m_last_ack = Simulator::Now();
    }
    m_rest += sample.m_ackedSacked;
    uint32_t segment = tcb->m_segmentSize;
    if (sample.m_ackedSacked == 0) {
        return Apply(tcb);
    }
    sumlink_bond_ack_t ack{};
    ack.now = Now();
    ack.rtt = cumulative ? static_cast<uint64_t>(tcb->m_lastRtt.Get().GetNanoSeconds()) : 0;
    ack.acknowledged = m_acknowledged;
    ack.sent = m_acknowledged + std::max(0, tcb->m_highTxMark.Get() - tcb->m_lastAckedSeq);
    ack.acked = m_rest / segment;
    ack.in_flight = sample.m_priorInFlight / segment;
    m_rest %= segment;
    sumlink_bond_on_ack(m_bond.get(), m_flow, &ack);
    Apply(tcb);
}

// ns-3's own samples cover single acknowledgments, and are inaccurate with few bytes in flight.
void Congestion::Measure(bool limited) {
    m_limited |= limited;
    auto now = Simulator::Now(), time = now - m_measured;
    if (Srtt().IsZero() || time < Srtt()) {
        return;
    }
    auto rate = static_cast<uint64_t>((m_delivered - m_delivered_before) / time.GetSeconds());
    // As in Linux: if the window was not used, a measurement counts only if it exceeds the last
    // one.
    if (m_limited || rate > m_delivery_rate) {
        m_delivery_rate = rate;
    }
    m_measured = now;
    m_delivered_before = m_delivered;
    m_limited = false;
}

void Congestion::Apply(Ptr<TcpSocketState> tcb) {
    uint32_t window = Bytes(sumlink_bond_cwnd(m_bond.get(), m_flow), tcb->m_segmentSize);
    tcb->m_cWnd = window;
    tcb->m_cWndInfl = window;
    tcb->m_ssThresh = Bytes(sumlink_bond_ssthresh(m_bond.get(), m_flow), tcb->m_segmentSize);
}

Ptr<TcpCongestionOps> Congestion::Fork() {
    return CopyObject<Congestion>(this);
}

} // namespace coupled
