// SPDX-License-Identifier: GPL-2.0-only
#include "link.h"

#include "ns3/lte-module.h"

using namespace ns3;

namespace edge {

namespace {
// Two transport blocks of 10 MHz at the best modulation (4587 bytes): the scheduler always finds a full one.
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
    // Not at once: the queue is in the middle of something.
    Simulator::ScheduleNow([this] { ready(); });
}

bool LteLink::Ready() const {
    return !m_underway && m_waiting < LTE_BACKLOG;
}

void LteLink::Sent() {
    m_underway = true;
}

bool LteLink::Listen(LteMacSapProvider *mac) {
    m_mac = mac;
    auto bearers = Config::LookupMatches(
        "/NodeList/*/DeviceList/*/$ns3::LteEnbNetDevice/LteEnbRrc/UeMap/*/DataRadioBearerMap/*/LteRlc");
    for (auto bearer = bearers.Begin(); bearer != bearers.End(); ++bearer) {
        DynamicCast<LteRlc>(*bearer)->SetLteMacSapProvider(this);
    }
    return bearers.GetN() == 1;
}

void LteLink::TransmitPdu(TransmitPduParameters params) {
    m_waiting -= std::min(m_waiting, params.pdu->GetSize());
    m_mac->TransmitPdu(params);
    Changed();
}

void LteLink::ReportBufferStatus(ReportBufferStatusParameters params) {
    m_waiting = params.txQueueSize;
    m_underway = false;
    m_mac->ReportBufferStatus(params);
    Changed();
}

void LteLink::Changed() {
    Simulator::ScheduleNow([this] { ready(); });
}

} // namespace edge
