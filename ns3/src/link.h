// SPDX-License-Identifier: GPL-2.0-only
// The two links to the user, as the edge node sees them: whether a link can take a packet, and when
// it can again.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ns3/lte-mac-sap.h"
#include "ns3/lte-rlc.h"
#include "ns3/network-module.h"
#include "ns3/wifi-module.h"

namespace edge {

class Link {
  public:
    virtual ~Link() = default;
    /// The link can take a packet: the queues below the node's own are almost empty.
    virtual bool Ready() const = 0;
    /// The link has been given a packet.
    virtual void Sent() = 0;
    /// Called when the link may have become ready.
    std::function<void()> ready;
    /// Address of each user's end of the link.
    std::vector<ns3::InetSocketAddress> users;
};

/// Wi-Fi: at most two packets in the queue of its MAC, including the one in the air.
class WifiLink : public Link {
  public:
    explicit WifiLink(ns3::Ptr<ns3::WifiNetDevice> device);
    bool Ready() const override;
    void Sent() override {}

  private:
    void Gone(ns3::Ptr<const ns3::WifiMpdu> frame);
    ns3::Ptr<ns3::WifiMacQueue> m_queue;
};

/// LTE: ns-3 does not expose the RLC queue, but RLC reports it to the MAC with each packet. This
/// class listens between the two.
class LteLink : public Link {
  public:
    bool Ready() const override;
    void Sent() override;
    /// Starts listening between the RLC of another user's bearer and the MAC.
    void Listen(ns3::Ptr<ns3::LteRlc> bearer, ns3::LteMacSapProvider *mac);

  private:
    struct Bearer : ns3::LteMacSapProvider {
        void TransmitPdu(TransmitPduParameters params) override;
        void ReportBufferStatus(ReportBufferStatusParameters params) override;
        LteLink *link = nullptr;
        ns3::LteMacSapProvider *mac = nullptr;
        uint32_t waiting = 0;
    };
    void Changed();
    std::vector<std::unique_ptr<Bearer>> m_bearers;
    // Between the node and RLC is the core network; one packet at a time enters it, so that the
    // queue length is always known.
    bool m_underway = false;
};

} // namespace edge
