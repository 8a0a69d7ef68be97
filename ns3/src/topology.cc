// SPDX-License-Identifier: GPL-2.0-only
#include "topology.h"

#include <string>

#include "ns3/core-module.h"
#include "ns3/lte-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace edge {

namespace {

// Users are ten meters from the node, one on each side.
const Vector PLACES[MAX_USERS] = {{10, 0, 0}, {0, 10, 0}, {-10, 0, 0}, {0, -10, 0}};

Ptr<VirtualNetDevice> Virtual(Ptr<Node> node, Ipv4Address address) {
    auto made = CreateObject<VirtualNetDevice>();
    made->SetAddress(Mac48Address::Allocate());
    made->SetMtu(1400);
    node->AddDevice(made);
    auto ipv4 = node->GetObject<Ipv4>();
    auto number = ipv4->AddInterface(made);
    ipv4->AddAddress(number, Ipv4InterfaceAddress(address, "255.255.255.0"));
    ipv4->SetUp(number);
    return made;
}

Ptr<Ipv4StaticRouting> Routes(Ptr<Node> node) {
    return Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>());
}

uint32_t Interface(Ptr<Node> node, Ptr<NetDevice> device) {
    return node->GetObject<Ipv4>()->GetInterfaceForDevice(device);
}

} // namespace

Topology::Topology(WifiStandard standard, uint32_t count, bool through_node) {
    remote = CreateObject<Node>();
    middle = CreateObject<Node>();
    auto base_station = CreateObject<Node>();
    NodeContainer hosts;
    hosts.Create(count);

    MobilityHelper mobility;
    auto places = CreateObject<ListPositionAllocator>();
    places->Add(Vector(0, 0, 0));
    places->Add(Vector(0, 0, 0));
    for (uint32_t n = 0; n < count; ++n) {
        places->Add(PLACES[n]);
    }
    mobility.SetPositionAllocator(places);
    mobility.Install(NodeContainer(NodeContainer(middle, base_station), hosts));

    auto lte = CreateObject<LteHelper>();
    auto epc = CreateObject<PointToPointEpcHelper>();
    m_kept = {lte, epc};
    lte->SetEpcHelper(epc);
    lte->SetSchedulerType("ns3::PfFfMacScheduler");
    lte->SetAttribute("PathlossModel", StringValue("ns3::FriisPropagationLossModel"));
    lte->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(50));
    lte->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(50));
    InternetStackHelper internet;
    internet.Install(NodeContainer(NodeContainer(remote, middle), hosts));

    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    wire.SetChannelAttribute("Delay", StringValue("10ms"));
    // Excess packets wait, and are dropped, only at the node.
    wire.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("10000p"));
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.0");
    auto first = addresses.Assign(wire.Install(remote, middle));
    // For the second subflow, so that its acknowledgments return over Wi-Fi.
    addresses.SetBase("10.4.0.0", "255.255.255.0");
    auto second = addresses.Assign(wire.Install(remote, middle));
    far = first.GetAddress(0);
    far_wifi = second.GetAddress(0);
    PointToPointHelper backhaul;
    backhaul.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    addresses.SetBase("10.2.0.0", "255.255.255.0");
    auto backhaul_devices = backhaul.Install(middle, epc->GetPgwNode());
    auto core = addresses.Assign(backhaul_devices);
    up = core.GetAddress(0);

    auto cell = lte->InstallEnbDevice(NodeContainer(base_station));
    enb = cell.Get(0);
    auto lte_devices = lte->InstallUeDevice(hosts);
    auto lte_addresses = epc->AssignUeIpv4Address(lte_devices);
    for (uint32_t n = 0; n < count; ++n) {
        lte->Attach(lte_devices.Get(n), enb);
        m_lte.push_back(lte_devices.Get(n));
    }

    auto channel = YansWifiChannelHelper::Default();
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    phy.Set("TxPowerStart", DoubleValue(16));
    phy.Set("TxPowerEnd", DoubleValue(16));
    WifiHelper wifi;
    wifi.SetStandard(standard);
    wifi.SetRemoteStationManager("ns3::AarfWifiManager");
    WifiMacHelper mac;
    mac.SetType("ns3::ApWifiMac", "QosSupported", BooleanValue(false));
    NetDeviceContainer air_devices = wifi.Install(phy, mac, middle);
    ap = DynamicCast<WifiNetDevice>(air_devices.Get(0));
    mac.SetType("ns3::StaWifiMac", "QosSupported", BooleanValue(false));
    auto stations = wifi.Install(phy, mac, hosts);
    air_devices.Add(stations);
    addresses.SetBase("10.3.0.0", "255.255.255.0");
    auto air = addresses.Assign(air_devices);
    if (!through_node) {
        TrafficControlHelper().Uninstall(air_devices);
    }
    NeighborCacheHelper().PopulateNeighborCache();

    device = Virtual(middle, "10.99.0.1");
    for (uint32_t n = 0; n < count; ++n) {
        Host host;
        host.node = hosts.Get(n);
        host.address = Ipv4Address(Ipv4Address("10.99.0.2").Get() + n);
        host.device = Virtual(host.node, host.address);
        host.lte = lte_addresses.GetAddress(n);
        host.wifi = air.GetAddress(1 + n);
        users.push_back(host);
    }

    Routes(remote)->AddNetworkRouteTo("10.99.0.0", "255.255.255.0", first.GetAddress(1), 1);
    Routes(middle)->AddNetworkRouteTo("7.0.0.0", "255.0.0.0", core.GetAddress(1), Interface(middle, backhaul_devices.Get(0)));
    for (uint32_t n = 0; n < count; ++n) {
        auto &host = users[n];
        Routes(host.node)->SetDefaultRoute(epc->GetUeDefaultGatewayAddress(), Interface(host.node, lte_devices.Get(n)));
        if (through_node) {
            Routes(host.node)->AddHostRouteTo(far, Interface(host.node, host.device));
            continue;
        }
        Routes(remote)->AddHostRouteTo(host.lte, first.GetAddress(1), 1);
        Routes(remote)->AddHostRouteTo(host.wifi, second.GetAddress(1), 2);
        Routes(host.node)->AddHostRouteTo(far_wifi, air.GetAddress(0), Interface(host.node, stations.Get(n)));
    }
    if (!through_node) {
        // Through the core network, whose gateway handles all destinations that users do not reach
        // over Wi-Fi.
        Routes(epc->GetPgwNode())->AddHostRouteTo(far, core.GetAddress(0), Interface(epc->GetPgwNode(), backhaul_devices.Get(1)));
    }
}

bool Topology::ForEachBearer(const std::function<void(Ptr<Object>)> &listen) const {
    for (auto &device : m_lte) {
        auto rnti = DynamicCast<LteUeNetDevice>(device)->GetRrc()->GetRnti();
        auto bearers = Config::LookupMatches("/NodeList/*/DeviceList/*/$ns3::LteEnbNetDevice/LteEnbRrc/UeMap/" + std::to_string(rnti) +
                                             "/DataRadioBearerMap/*/LteRlc");
        if (bearers.GetN() != 1) {
            return false;
        }
        listen(bearers.Get(0));
    }
    return true;
}

} // namespace edge
