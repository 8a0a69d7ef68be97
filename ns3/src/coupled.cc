// SPDX-License-Identifier: GPL-2.0-only
#include "coupled.h"

#include <cstdio>
#include <iostream>
#include <queue>

#include "mptcp.h"
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/csma-module.h"
#include "ns3/mobility-module.h"
#include "ns3/traffic-control-module.h"
#include "ns3/wifi-module.h"

using namespace ns3;

namespace coupled {

namespace {

constexpr double START = 1.0;
constexpr uint32_t SET = 18;
// In the report each channel has 5 Mbit/s; TCP gets about as much over one hop of 802.11a at its
// lowest rate.
constexpr const char *WIFI_RATE = "OfdmRate6Mbps";
constexpr const char *LAN_RATE = "5Mbps";
// Range of that rate in meters (20 dBm with Friis loss at 5 GHz would reach further; ns-3 stops at
// -82 dBm).
constexpr double RANGE = 40;
constexpr double SIDE = 100;
constexpr uint16_t PORT = 5000;
constexpr uint16_t ECHO = 9;
constexpr uint64_t WINDOW = 4 << 20;

/// One logical network: devices and addresses of its nodes, in order.
struct Network {
    NodeContainer nodes;
    NetDeviceContainer devices;
    Ipv4InterfaceContainer addresses;
    Ipv4Address Of(uint32_t n) const { return addresses.GetAddress(n); }
    uint32_t Interface(uint32_t n) const { return nodes.Get(n)->GetObject<Ipv4>()->GetInterfaceForDevice(devices.Get(n)); }
};

Ptr<Ipv4StaticRouting> Routes(Ptr<Node> node) {
    return Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>());
}

struct World {
    uint32_t subflows = 5;
    double load = 10;
    uint32_t seed = 1;
    std::vector<Network> networks;
    std::vector<std::unique_ptr<Sender>> senders;
    std::vector<std::unique_ptr<Receiver>> receivers;

    void Address(Network &net) {
        Ipv4AddressHelper helper;
        helper.SetBase(("10." + std::to_string(networks.size() + 1) + ".0.0").c_str(), "255.255.255.0");
        net.addresses = helper.Assign(net.devices);
        // The devices have the only queues.
        TrafficControlHelper().Uninstall(net.devices);
        networks.push_back(net);
    }
    Network Lan(NodeContainer nodes) {
        CsmaHelper csma;
        csma.SetChannelAttribute("DataRate", StringValue(LAN_RATE));
        csma.SetChannelAttribute("Delay", StringValue("6560ns"));
        csma.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100p"));
        Network net{nodes, csma.Install(nodes), {}};
        Address(net);
        return networks.back();
    }
    Network Air(NodeContainer nodes) {
        YansWifiPhyHelper phy;
        phy.SetChannel(YansWifiChannelHelper::Default().Create());
        WifiHelper wifi;
        wifi.SetStandard(WIFI_STANDARD_80211a);
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode", StringValue(WIFI_RATE), "ControlMode",
                                     StringValue(WIFI_RATE));
        WifiMacHelper mac;
        mac.SetType("ns3::AdhocWifiMac", "QosSupported", BooleanValue(false));
        Network net{nodes, wifi.Install(phy, mac, nodes), {}};
        Address(net);
        return networks.back();
    }
    /// A connection with subflows from these addresses of `from` to these of `to`.
    void Connect(const std::string &name, Ptr<Node> from, Ptr<Node> to, const std::vector<std::pair<Ipv4Address, Ipv4Address>> &ways,
                 uint32_t segment) {
        std::string why;
        auto bond = Bond(name, static_cast<uint8_t>(ways.size()), why);
        std::vector<Way> subflow_ways;
        std::vector<uint16_t> ports;
        for (auto &[own, other] : ways) {
            ports.push_back(static_cast<uint16_t>(PORT + 100 * senders.size() + ports.size()));
            subflow_ways.push_back({own, InetSocketAddress(other, ports.back())});
        }
        receivers.push_back(std::make_unique<Receiver>(to, ports));
        senders.push_back(std::make_unique<Sender>(from, bond, subflow_ways, segment, WINDOW));
        Simulator::Schedule(Seconds(START), &Sender::Start, senders.back().get());
    }
    /// Echo packets of one node to the UDP server, `load` per second, with its own start time.
    void Echo(Ptr<Node> node, Ipv4Address server, Ptr<UniformRandomVariable> random) {
        if (load == 0) {
            return;
        }
        UdpEchoClientHelper client(server, ECHO);
        client.SetAttribute("MaxPackets", UintegerValue(UINT32_MAX));
        client.SetAttribute("Interval", TimeValue(Seconds(1 / load)));
        client.SetAttribute("PacketSize", UintegerValue(1024));
        client.Install(node).Start(Seconds(random->GetValue(0.1, 0.1 + 1 / load)));
    }
};

/// Each node's neighbors in a wireless network.
bool Near(Ptr<Node> one, Ptr<Node> other) {
    return one->GetObject<MobilityModel>()->GetDistanceFrom(other->GetObject<MobilityModel>()) <= RANGE;
}

/// Next hops of all nodes towards one, by breadth-first search; -1 without a route.
std::vector<int> Towards(const NodeContainer &nodes, uint32_t goal) {
    std::vector<int> next(nodes.GetN(), -1);
    next[goal] = static_cast<int>(goal);
    std::queue<uint32_t> open({goal});
    while (!open.empty()) {
        auto at = open.front();
        open.pop();
        for (uint32_t n = 0; n < nodes.GetN(); ++n) {
            if (next[n] < 0 && Near(nodes.Get(n), nodes.Get(at))) {
                next[n] = static_cast<int>(at);
                open.push(n);
            }
        }
    }
    return next;
}

/// Shortest routes by the nodes' current positions, per network: ns-3's ad hoc routing protocols
/// route all addresses of a node over
/// one interface. Updated every 100 ms.
void Route(World *world) {
    const auto &nodes = world->networks[0].nodes;
    for (uint32_t n = 0; n < nodes.GetN(); ++n) {
        auto routes = Routes(nodes.Get(n));
        for (uint32_t route = routes->GetNRoutes(); route-- > 0;) {
            if (routes->GetRoute(route).IsHost()) {
                routes->RemoveRoute(route);
            }
        }
    }
    for (uint32_t goal = 0; goal < nodes.GetN(); ++goal) {
        auto next = Towards(nodes, goal);
        for (const auto &net : world->networks) {
            for (uint32_t n = 0; n < nodes.GetN(); ++n) {
                if (n != goal && next[n] >= 0) {
                    Routes(nodes.Get(n))->AddHostRouteTo(net.Of(goal), net.Of(next[n]), net.Interface(n));
                }
            }
        }
    }
    Simulator::Schedule(MilliSeconds(100), &Route, world);
}

void Place(const NodeContainer &nodes, double side, bool mobile) {
    MobilityHelper mobility;
    auto axis = "ns3::UniformRandomVariable[Min=0|Max=" + std::to_string(side) + "]";
    ObjectFactory factory("ns3::RandomRectanglePositionAllocator", "X", StringValue(axis), "Y", StringValue(axis));
    auto places = factory.Create<PositionAllocator>();
    mobility.SetPositionAllocator(places);
    if (mobile) {
        mobility.SetMobilityModel("ns3::RandomWaypointMobilityModel", "Speed",
                                  StringValue("ns3::UniformRandomVariable[Min=1|Max=5]"), "Pause",
                                  StringValue("ns3::ConstantRandomVariable[Constant=1]"), "PositionAllocator",
                                  PointerValue(places));
    }
    mobility.Install(nodes);
    // In the report all nodes can reach each other, at least initially.
    for (int tries = 0; tries < 1000; ++tries) {
        auto next = Towards(nodes, 0);
        if (std::count(next.begin(), next.end(), -1) == 0) {
            return;
        }
        for (uint32_t n = 0; n < nodes.GetN(); ++n) {
            nodes.Get(n)->GetObject<MobilityModel>()->SetPosition(places->GetNext());
        }
    }
    NS_FATAL_ERROR("no placement connects all nodes");
}

} // namespace

int Main(int argc, char **argv) {
    std::string scenario = "csma", system = "lia";
    double seconds = 10;
    uint32_t segment = 1400;
    World world;
    CommandLine cmd;
    cmd.AddValue("scenario", "manet-static, manet-mobile, csma, wifi-csma or full-mesh", scenario);
    cmd.AddValue("system", "a congestion control of sumlink", system);
    cmd.AddValue("seed", "seed", world.seed);
    cmd.AddValue("seconds", "measured seconds since the connection started", seconds);
    cmd.AddValue("subflows", "subflows, each over its own channel (manet and csma)", world.subflows);
    cmd.AddValue("load", "UDP packets of each echo client per second, 1024 bytes each", world.load);
    cmd.Parse(argc, argv);
    auto bad = [](const std::string &why) {
        std::cerr << "sumlink-ns3: " << why << "\n";
        return 2;
    };
    std::string why;
    if (!Bond(system, 1, why)) {
        return bad(why);
    }
    if (world.seed == 0 || !(seconds > 0) || world.subflows == 0 || world.subflows > 16 || !(world.load >= 0)) {
        return bad("seed and seconds must be above 0, subflows 1 to 16, load at least 0");
    }
    RngSeedManager::SetRun(world.seed);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", StringValue("100p"));
    auto random = CreateObject<UniformRandomVariable>();
    InternetStackHelper internet;
    UdpEchoServerHelper echo(ECHO);
    bool manet = scenario == "manet-static" || scenario == "manet-mobile";
    bool mesh = scenario == "full-mesh";
    if (manet || scenario == "csma") {
        // Node 0 is the UDP server, 1 the other server, 17 its client.
        NodeContainer nodes(SET);
        if (manet) {
            Place(nodes, SIDE, scenario == "manet-mobile");
        }
        internet.Install(nodes);
        std::vector<std::pair<Ipv4Address, Ipv4Address>> ways;
        for (uint32_t n = 0; n < world.subflows; ++n) {
            auto net = manet ? world.Air(nodes) : world.Lan(nodes);
            ways.emplace_back(net.Of(SET - 1), net.Of(1));
        }
        if (manet) {
            Route(&world);
        }
        echo.Install(nodes.Get(0)).Start(Seconds(0));
        for (uint32_t n = 2; n < SET - 1; ++n) {
            world.Echo(nodes.Get(n), world.networks[n % world.subflows].Of(0), random);
        }
        world.Connect(system, nodes.Get(SET - 1), nodes.Get(1), ways, segment);
    } else if (scenario == "wifi-csma" || mesh) {
        // Two routes from Wi-Fi to the wires: over one access point with two channels, or over one
        // access point each.
        NodeContainer all(mesh ? 3 * SET : 2 * SET), wire;
        Place(all, 15, false);
        internet.Install(all);
        for (uint32_t n = SET; n < 2 * SET; ++n) {
            wire.Add(all.Get(n));
        }
        Ptr<Node> points[2] = {all.Get(0), all.Get(mesh ? 36 : 0)};
        Ptr<Node> server = all.Get(21), udp = all.Get(18), wired = all.Get(35);
        std::vector<Ptr<Node>> clients{all.Get(17)};
        if (mesh) {
            clients.push_back(all.Get(53));
        }
        std::vector<std::vector<std::pair<Ipv4Address, Ipv4Address>>> ways(clients.size() + 1);
        echo.Install(udp).Start(Seconds(0));
        for (uint32_t way = 0; way < 2; ++way) {
            // The access point is last in both.
            auto lan = world.Lan(NodeContainer(wire, NodeContainer(points[way])));
            NodeContainer heard;
            for (auto &client : clients) {
                heard.Add(client);
            }
            for (uint32_t n = 1; n < 17; ++n) {
                if (mesh || n % 2 == way) {
                    heard.Add(all.Get(mesh && way == 1 ? 36 + n : n));
                }
            }
            heard.Add(points[way]);
            auto air = world.Air(heard);
            auto ap_air = air.Of(heard.GetN() - 1), ap_lan = lan.Of(SET);
            for (uint32_t n = 0; n + 1 < heard.GetN(); ++n) {
                Routes(heard.Get(n))->AddHostRouteTo(lan.Of(3), ap_air, air.Interface(n));
                Routes(heard.Get(n))->AddHostRouteTo(lan.Of(0), ap_air, air.Interface(n));
                Routes(server)->AddHostRouteTo(air.Of(n), ap_lan, lan.Interface(3));
                Routes(udp)->AddHostRouteTo(air.Of(n), ap_lan, lan.Interface(0));
                if (n >= clients.size()) {
                    world.Echo(heard.Get(n), lan.Of(0), random);
                } else {
                    ways[n].emplace_back(air.Of(n), lan.Of(3));
                }
            }
            ways.back().emplace_back(lan.Of(17), lan.Of(3));
            for (uint32_t n = 1; n < 17; ++n) {
                if (n != 3 && n % 2 == way) {
                    world.Echo(wire.Get(n), lan.Of(0), random);
                }
            }
        }
        clients.push_back(wired);
        for (size_t n = 0; n < clients.size(); ++n) {
            world.Connect(system, clients[n], server, ways[n], segment);
        }
    } else {
        return bad("unknown scenario `" + scenario + "`; choose manet-static, manet-mobile, csma, wifi-csma and full-mesh");
    }
    NeighborCacheHelper().PopulateNeighborCache();
    Simulator::Stop(Seconds(START + seconds));
    Simulator::Run();

    auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    uint64_t delivered = 0, wrong = 0;
    std::string connections;
    for (size_t c = 0; c < world.senders.size(); ++c) {
        auto &sender = *world.senders[c];
        auto &receiver = *world.receivers[c];
        delivered += receiver.Delivered();
        wrong += receiver.Wrong();
        std::string flows;
        for (size_t f = 0; f < sender.Subflows().size(); ++f) {
            auto &flow = sender.Subflows()[f];
            auto tcb = flow.control->State();
            char line[256];
            std::snprintf(line, sizeof line,
                          "%s{\"bytes\":%llu,\"cwnd\":%.1f,\"rtt_ms\":%.2f,\"losses\":%u,\"timeouts\":%u,\"connected\":%s}",
                          f ? "," : "", n(receiver.Came()[f]), double(tcb->m_cWnd) / tcb->m_segmentSize,
                          flow.control->Srtt().GetSeconds() * 1e3, flow.control->Losses(), flow.control->Timeouts(),
                          flow.connected ? "true" : "false");
            flows += line;
        }
        char line[256];
        std::snprintf(line, sizeof line, "%s{\"goodput_bps\":%.0f,\"twice\":%llu,\"reinjected\":%llu,\"subflows\":[", c ? "," : "",
                      8.0 * receiver.Delivered() / seconds, n(receiver.Twice()), n(sender.Reinjected()));
        connections += line + flows + "]}";
    }
    std::printf("{\"scenario\":\"%s\",\"seed\":%u,\"system\":\"mptcp:%s\",\"outcome\":\"%s\",\"reason\":%s,\"goodput_bps\":%.0f,"
                "\"seconds\":%g,\"load\":%g,\"connections\":[%s]}\n",
                scenario.c_str(), world.seed, system.c_str(), wrong ? "failed" : "measured",
                wrong ? "\"misplaced bytes\"" : "null", 8.0 * delivered / seconds, seconds, world.load, connections.c_str());
    Simulator::Destroy();
    return wrong ? 1 : 0;
}

} // namespace coupled
