// SPDX-License-Identifier: GPL-2.0-only
#include "link.h"

#include "ns3/lte-module.h"

using namespace ns3;

namespace edge {

namespace {
// Two transport blocks of 10 MHz at the best modulation (4587 bytes), so that the scheduler can
// always fill one.
constexpr uint32_t LTE_BACKLOG = 9000;
constexpr uint32_t WIFI_BACKLOG = 2;
} // namespace

WifiLink::WifiLink(Ptr<WifiNetDevice> device)
    : m_queue(device->GetMac()->GetTxop()->GetWifiMacQueue()) {
    m_queue->TraceConnectWithoutContext("Dequeue", MakeCallback(&WifiLink::Gone, this));
    m_queue->TraceConnectWithoutContext("Drop", MakeCallback(&WifiLink::Gone, this));
}

bool WifiLink::Ready() const {
    return m_queue->GetNPackets() < WIFI_BACKLOG;
}

void WifiLink::Gone(Ptr<const WifiMpdu>) {
    // Deferred, because the queue is in the middle of an operation.
    Simulator::ScheduleNow([this] { ready(); });
}

bool LteLink::Ready() const {
    uint32_t waiting = 0;
    for (auto &bearer : m_bearers) {
        waiting += bearer->waiting;
    }
    return !m_underway && waiting < LTE_BACKLOG;
}

void LteLink::Sent() {
    m_underway = true;
}

void LteLink::Listen(Ptr<LteRlc> rlc, LteMacSapProvider *mac) {
    auto bearer = std::make_unique<Bearer>();
    bearer->link = this;
    bearer->mac = mac;
    rlc->SetLteMacSapProvider(bearer.get());
    m_bearers.push_back(std::move(bearer));
}

void LteLink::Bearer::TransmitPdu(TransmitPduParameters params) {
    waiting -= std::min(waiting, params.pdu->GetSize());
    mac->TransmitPdu(params);
    link->Changed();
}

void LteLink::Bearer::ReportBufferStatus(ReportBufferStatusParameters params) {
    waiting = params.txQueueSize;
    link->m_underway = false;
    mac->ReportBufferStatus(params);
    link->Changed();
}

void LteLink::Changed() {
    Simulator::ScheduleNow([this] { ready(); });
}

} // namespace edge
