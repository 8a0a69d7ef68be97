// SPDX-License-Identifier: GPL-2.0-only
// One run: one system, one seed, over LTE and one kind of Wi-Fi, with the parameters of table II of the VISIBLE paper.
//
//   remote host --10 ms-- edge node == LTE (core network, eNB) == user
//                                   == 802.11 (the node is the AP) ==
#include <cstdio>
#include <iostream>
#include <memory>

#include "coupled.h"
#include "mptcp.h"
#include "node.h"
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/lte-module.h"
#include "ns3/mobility-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

// Flows begin when the user has attached to both; what is measured begins two seconds later.
constexpr double START = 1.0;
constexpr double WARM = 2.0;
constexpr uint16_t PORT = 5000;

struct Options {
    std::string system = "lwip+visible";
    std::string wifi = "g";
    uint32_t seed = 1;
    uint32_t flows = 1;
    double seconds = 10;
    bool sack = false;
    // What a SYN without the MSS option allows (RFC 9293, 3.7.1), and those of ns-3 have none.
    uint32_t segment = 536;
    bool trace = false;
};

int Bad(const std::string &why) {
    std::cerr << "sumlink-ns3: " << why << "\n";
    return 2;
}

struct Series {
    edge::Node *node;
    std::string scenario, system;
    uint32_t seed;
    uint32_t cwnd = 0;
    double rtt = 0;

    void Line() {
        sumlink_edge_flow_t flow{};
        sumlink_edge_counters_t count{};
        sumlink_edge_flow(node->Core(), PORT, &flow);
        sumlink_edge_counters(node->Core(), &count);
        std::printf("{\"scenario\":\"%s\",\"seed\":%u,\"system\":\"%s\",\"t\":%.2f,\"cwnd\":%u,\"rtt_ms\":%.3f,\"queue_0\":%zu,"
                    "\"queue_1\":%zu,\"duplicates\":%llu,\"boosted\":%llu,\"held\":%llu,\"held_average\":%.4f,\"held_ms\":%.4f}\n",
                    scenario.c_str(), seed, system.c_str(), Simulator::Now().GetSeconds() - START, cwnd, rtt * 1e3,
                    sumlink_edge_link_queue(node->Core(), 0), sumlink_edge_link_queue(node->Core(), 1),
                    static_cast<unsigned long long>(count.duplicates), static_cast<unsigned long long>(count.boosted),
                    static_cast<unsigned long long>(count.held), flow.held_average, flow.held_for / 1e6);
        Simulator::Schedule(MilliSeconds(10), &Series::Line, this);
    }
    void Cwnd(uint32_t, uint32_t now) { cwnd = now; }
    void Rtt(Time, Time now) { rtt = now.GetSeconds(); }
    void Connect(Ptr<BulkSendApplication> app) {
        app->GetSocket()->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Series::Cwnd, this));
        app->GetSocket()->TraceConnectWithoutContext("RTT", MakeCallback(&Series::Rtt, this));
        Line();
    }
};

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && std::string(argv[1]) == "coupled") {
        return coupled::Main(argc - 1, argv + 1);
    }
    Options o;
    CommandLine cmd;
    cmd.AddValue("system", "lte, wifi, lwip, lwa or lwip+visible; the last three with :STEERING; mptcp:CONTROL", o.system);
    cmd.AddValue("wifi", "b, g or a", o.wifi);
    cmd.AddValue("seed", "seed", o.seed);
    cmd.AddValue("flows", "TCP flows", o.flows);
    cmd.AddValue("seconds", "seconds that are measured, behind the first two", o.seconds);
    cmd.AddValue("sack", "TCP uses SACK", o.sack);
    cmd.AddValue("segment", "bytes of data in a segment, at most 1340", o.segment);
    cmd.AddValue("trace", "a JSON line each 10 ms in place of the result", o.trace);
    cmd.Parse(argc, argv);

    std::string mode = o.system.substr(0, o.system.find(':'));
    bool lte = mode != "wifi";
    bool wifi = mode != "lte";
    bool alone = !(lte && wifi);
    std::string steering = "qdepl";
    if (o.system.size() > mode.size()) {
        steering = o.system.substr(mode.size() + 1);
    }
    bool mptcp = mode == "mptcp";
    if (mptcp) {
        std::string why;
        if (!coupled::Bond(steering, 2, why)) {
            return Bad(why);
        }
        if (o.trace) {
            return Bad("there is no series of mptcp");
        }
    }
    if (alone && o.system != mode) {
        return Bad("one link has no steering: " + o.system);
    }
    // With mptcp nothing goes through the core.
    std::string core_mode = alone || mptcp ? "lwip" : mode;
    WifiStandard standard;
    if (o.wifi == "b") {
        standard = WIFI_STANDARD_80211b;
    } else if (o.wifi == "g") {
        standard = WIFI_STANDARD_80211g;
    } else if (o.wifi == "a") {
        standard = WIFI_STANDARD_80211a;
    } else {
        return Bad("no Wi-Fi is called `" + o.wifi + "`: there are b, g and a");
    }
    if (o.segment < 64 || o.segment > 1340) {
        return Bad("a segment has 64 to 1340 bytes");
    }
    if (o.seed == 0 || o.flows == 0 || !(o.seconds > 0)) {
        return Bad("seed, flows and seconds are above 0");
    }
    char error[256];
    sumlink_edge_config told{core_mode.c_str(), mptcp ? nullptr : steering.c_str(), "rewrite", 1,
                             static_cast<uint8_t>(alone ? 1 : 2), 40, nullptr};
    sumlink_edge *core = sumlink_edge_new(&told, error, sizeof error);
    if (!core) {
        return Bad(error);
    }

    RngSeedManager::SetRun(o.seed);
    // The core verifies checksums, as it does on Linux.
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(true));
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(o.sack));
    // Small enough that a segment is never fragmented in a tunnel, which would hide reordering.
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(o.segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::LteEnbPhy::TxPower", DoubleValue(20));
    Config::SetDefault("ns3::LteEnbRrc::SrsPeriodicity", UintegerValue(80));
    // The node never fills it: what waits does so in the node's own queue of 40 packets.
    Config::SetDefault("ns3::LteRlcUm::MaxTxBufferSize", UintegerValue(40 * 1500));
    if (mptcp) {
        // Where there is no node, the same 40 packets wait in Wi-Fi's MAC.
        Config::SetDefault("ns3::WifiMacQueue::MaxSize", StringValue("40p"));
    }

    Ptr<Node> remote = CreateObject<Node>(), middle = CreateObject<Node>(), enb = CreateObject<Node>(),
              ue = CreateObject<Node>();
    MobilityHelper mobility;
    auto places = CreateObject<ListPositionAllocator>();
    places->Add(Vector(0, 0, 0));
    places->Add(Vector(0, 0, 0));
    places->Add(Vector(10, 0, 0));
    mobility.SetPositionAllocator(places);
    mobility.Install(NodeContainer(middle, enb, ue));

    auto lteHelper = CreateObject<LteHelper>();
    auto epc = CreateObject<PointToPointEpcHelper>();
    lteHelper->SetEpcHelper(epc);
    lteHelper->SetSchedulerType("ns3::PfFfMacScheduler");
    lteHelper->SetAttribute("PathlossModel", StringValue("ns3::FriisPropagationLossModel"));
    lteHelper->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(50));
    lteHelper->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(50));
    InternetStackHelper internet;
    internet.Install(NodeContainer(remote, middle, ue));

    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    wire.SetChannelAttribute("Delay", StringValue("10ms"));
    // What is too much waits, and is dropped, at the node and nowhere else.
    wire.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("10000p"));
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.0");
    auto far = addresses.Assign(wire.Install(remote, middle));
    // Of the second subflow, so that its acknowledgements return over Wi-Fi.
    addresses.SetBase("10.4.0.0", "255.255.255.0");
    auto far_wifi = addresses.Assign(wire.Install(remote, middle));
    PointToPointHelper backhaul;
    backhaul.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    addresses.SetBase("10.2.0.0", "255.255.255.0");
    auto backhaul_devices = backhaul.Install(middle, epc->GetPgwNode());
    auto backhaul_gateway = backhaul_devices.Get(1);
    auto core_net = addresses.Assign(backhaul_devices);

    auto enb_device = lteHelper->InstallEnbDevice(NodeContainer(enb));
    auto ue_device = lteHelper->InstallUeDevice(NodeContainer(ue));
    auto ue_lte = epc->AssignUeIpv4Address(ue_device);
    lteHelper->Attach(ue_device.Get(0), enb_device.Get(0));

    auto channel = YansWifiChannelHelper::Default();
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    phy.Set("TxPowerStart", DoubleValue(16));
    phy.Set("TxPowerEnd", DoubleValue(16));
    WifiHelper wifiHelper;
    wifiHelper.SetStandard(standard);
    wifiHelper.SetRemoteStationManager("ns3::AarfWifiManager");
    WifiMacHelper mac;
    mac.SetType("ns3::ApWifiMac", "QosSupported", BooleanValue(false));
    auto ap = wifiHelper.Install(phy, mac, middle);
    mac.SetType("ns3::StaWifiMac", "QosSupported", BooleanValue(false));
    auto sta = wifiHelper.Install(phy, mac, ue);
    addresses.SetBase("10.3.0.0", "255.255.255.0");
    auto air = addresses.Assign(NetDeviceContainer(ap, sta));
    if (mptcp) {
        TrafficControlHelper().Uninstall(NetDeviceContainer(ap, sta));
    }
    NeighborCacheHelper().PopulateNeighborCache();

    auto device = [&](Ptr<Node> node, const char *address) {
        auto made = CreateObject<VirtualNetDevice>();
        made->SetAddress(Mac48Address::Allocate());
        made->SetMtu(1400);
        node->AddDevice(made);
        auto ipv4 = node->GetObject<Ipv4>();
        auto number = ipv4->AddInterface(made);
        ipv4->AddAddress(number, Ipv4InterfaceAddress(address, "255.255.255.0"));
        ipv4->SetUp(number);
        return made;
    };
    auto node_device = device(middle, "10.99.0.1");
    auto user_device = device(ue, "10.99.0.2");

    Ipv4StaticRoutingHelper routing;
    auto routes = [&](Ptr<Node> node) { return routing.GetStaticRouting(node->GetObject<Ipv4>()); };
    auto interface = [](Ptr<Node> node, Ptr<NetDevice> device) {
        return node->GetObject<Ipv4>()->GetInterfaceForDevice(device);
    };
    routes(remote)->AddNetworkRouteTo("10.99.0.0", "255.255.255.0", far.GetAddress(1), 1);
    routes(middle)->AddNetworkRouteTo("7.0.0.0", "255.0.0.0", core_net.GetAddress(1), interface(middle, backhaul_devices.Get(0)));
    routes(ue)->SetDefaultRoute(epc->GetUeDefaultGatewayAddress(), interface(ue, ue_device.Get(0)));
    if (mptcp) {
        routes(remote)->AddHostRouteTo(ue_lte.GetAddress(0), far.GetAddress(1), 1);
        routes(remote)->AddHostRouteTo(air.GetAddress(1), far_wifi.GetAddress(1), 2);
        routes(ue)->AddHostRouteTo(far_wifi.GetAddress(0), air.GetAddress(0), interface(ue, sta.Get(0)));
        // Through the core network, whose gateway answers for all that the user does not reach over Wi-Fi.
        routes(epc->GetPgwNode())->AddHostRouteTo(far.GetAddress(0), core_net.GetAddress(0), interface(epc->GetPgwNode(), backhaul_gateway));
    } else {
        routes(ue)->AddHostRouteTo(far.GetAddress(0), interface(ue, user_device));
    }

    auto socket = [](Ptr<Node> node) {
        auto made = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
        made->SetAttribute("RcvBufSize", UintegerValue(1 << 20));
        NS_ABORT_MSG_IF(made->Bind(InetSocketAddress(Ipv4Address::GetAny(), edge::TUNNEL_PORT)), "no port");
        return made;
    };
    edge::LteLink lte_link;
    edge::WifiLink wifi_link(DynamicCast<WifiNetDevice>(ap.Get(0)));
    lte_link.ready = wifi_link.ready = [] {};
    lte_link.user = InetSocketAddress(ue_lte.GetAddress(0), edge::TUNNEL_PORT);
    wifi_link.user = InetSocketAddress(air.GetAddress(1), edge::TUNNEL_PORT);
    std::vector<edge::Link *> links;
    if (lte) {
        links.push_back(&lte_link);
    }
    if (wifi) {
        links.push_back(&wifi_link);
    }
    edge::Node node(core, node_device, socket(middle), links);
    edge::User user(user_device, socket(ue), InetSocketAddress(core_net.GetAddress(0), edge::TUNNEL_PORT),
                    mode == "lwa" ? sumlink_reorder_new(100'000'000) : nullptr);
    // Bearers are there once the user has attached.
    Simulator::Schedule(Seconds(START - 0.1), [&] {
        auto enb_lte = DynamicCast<LteEnbNetDevice>(enb_device.Get(0));
        NS_ABORT_MSG_UNLESS(lte_link.Listen(enb_lte->GetComponentCarrierManager()->GetLteMacSapProvider()),
                            "the user has not attached to LTE");
    });

    std::vector<Ptr<PacketSink>> sinks;
    Series series{&node, "lte-11" + o.wifi, o.system, o.seed};
    std::vector<std::unique_ptr<coupled::Sender>> senders;
    std::vector<std::unique_ptr<coupled::Receiver>> receivers;
    for (uint32_t flow = 0; flow < o.flows; ++flow) {
        if (mptcp) {
            uint16_t first = PORT + 2 * flow;
            std::vector<coupled::Way> ways{{far.GetAddress(0), {ue_lte.GetAddress(0), first}},
                                           {far_wifi.GetAddress(0), {air.GetAddress(1), static_cast<uint16_t>(first + 1)}}};
            std::string why;
            receivers.push_back(std::make_unique<coupled::Receiver>(ue, std::vector<uint16_t>{first, static_cast<uint16_t>(first + 1)}));
            senders.push_back(std::make_unique<coupled::Sender>(remote, coupled::Bond(steering, 2, why), ways, o.segment, 4 << 20));
            Simulator::Schedule(Seconds(START), &coupled::Sender::Start, senders.back().get());
            continue;
        }
        InetSocketAddress there("10.99.0.2", PORT + flow);
        BulkSendHelper send("ns3::TcpSocketFactory", there);
        auto app = send.Install(remote);
        app.Start(Seconds(START));
        PacketSinkHelper receive("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT + flow));
        sinks.push_back(DynamicCast<PacketSink>(receive.Install(ue).Get(0)));
        if (o.trace && flow == 0) {
            auto bulk = DynamicCast<BulkSendApplication>(app.Get(0));
            Simulator::Schedule(Seconds(START + 0.001), &Series::Connect, &series, bulk);
        }
    }
    auto received = [&] {
        uint64_t bytes = 0;
        for (auto &sink : sinks) {
            bytes += sink->GetTotalRx();
        }
        for (auto &receiver : receivers) {
            NS_ABORT_MSG_IF(receiver->Wrong(), "bytes at a wrong place");
            bytes += receiver->Delivered();
        }
        return bytes;
    };
    uint64_t before = 0;
    Simulator::Schedule(Seconds(START + WARM), [&] { before = received(); });
    Simulator::Stop(Seconds(START + WARM + o.seconds));
    Simulator::Run();

    if (!o.trace) {
        sumlink_edge_counters_t count{};
        sumlink_edge_counters(core, &count);
        auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
        std::printf("{\"scenario\":\"lte-11%s\",\"seed\":%u,\"system\":\"%s\",\"outcome\":\"measured\",\"reason\":null,"
                    "\"goodput_bps\":%.0f,\"flows\":%u,\"seconds\":%g,\"node\":{\"down_packets\":%llu,\"dropped\":%llu,"
                    "\"malformed\":%llu,\"up_packets\":%llu,\"duplicates\":%llu,\"boosted\":%llu,\"held\":%llu,"
                    "\"repaired\":%llu,\"repaired_late\":%llu,\"resets\":%llu}}\n",
                    o.wifi.c_str(), o.seed, o.system.c_str(), 8.0 * (received() - before) / o.seconds, o.flows,
                    o.seconds, n(count.down_packets), n(count.dropped), n(count.malformed), n(count.up_packets),
                    n(count.duplicates), n(count.boosted), n(count.held), n(count.repaired), n(count.repaired_late),
                    n(count.resets));
    }
    Simulator::Destroy();
    return 0;
}
