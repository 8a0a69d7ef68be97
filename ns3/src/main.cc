// SPDX-License-Identifier: GPL-2.0-only
// One run: one system, one seed, over LTE and one kind of Wi-Fi, with the parameters of table II of the VISIBLE paper.
#include <cstdio>
#include <iostream>
#include <memory>

#include "bond.h"
#include "coupled.h"
#include "mptcp.h"
#include "node.h"
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/lte-module.h"
#include "topology.h"

using namespace ns3;

namespace {

// Flows start when the user has attached to both links; the measurement starts two seconds later.
constexpr double START = 1.0;
constexpr double WARM = 2.0;
// Interval of the goodput samples.
constexpr double INTERVAL = 0.1;
constexpr uint16_t PORT = 5000;
// Length of LWA's header with 18-bit sequence numbers.
constexpr size_t PDCP_HEADER = 3;

struct Options {
    std::string system = "lwip+visible";
    std::string wifi = "g";
    uint32_t seed = 1;
    uint32_t flows = 1;
    double seconds = 10;
    bool sack = false;
    // The largest segment that a tunnel carries in one packet.
    uint32_t segment = 1340;
    uint32_t users = 1;
    std::string trace = "none";
};

/// VISIBLE's parameters, named as in the laboratory: `boost=off:sack=strip`.
struct Visible {
    std::string sack = "rewrite";
    uint8_t boost = 1;

    /// Parses the parameters; returns whether all are known.
    bool Read(std::string text) {
        for (;;) {
            std::string one = text.substr(0, text.find(':'));
            if (one == "boost=on" || one == "boost=off" || one == "boost=many") {
                boost = one == "boost=off" ? 0 : one == "boost=many" ? 2 : 1;
            } else if (one == "sack=rewrite" || one == "sack=strip") {
                sack = one.substr(5);
            } else {
                return false;
            }
            if (one.size() == text.size()) {
                return true;
            }
            text.erase(0, one.size() + 1);
        }
    }
};

int Bad(const std::string &why) {
    std::cerr << "sumlink-ns3: " << why << "\n";
    return 2;
}

/// State of the first flow over time.
struct Series {
    edge::Node *node;
    std::string scenario, system;
    uint32_t seed;
    bool each_ack = false;
    uint32_t cwnd = 0;
    double rtt = 0;

    /// Start of every line.
    void Head() const {
        std::printf("{\"scenario\":\"%s\",\"seed\":%u,\"system\":\"%s\",\"t\":%.6f,\"queue_0\":%zu,\"queue_1\":%zu,", scenario.c_str(),
                    seed, system.c_str(), Simulator::Now().GetSeconds() - START, sumlink_edge_link_queue(node->Core(), 0),
                    sumlink_edge_link_queue(node->Core(), 1));
    }
    sumlink_edge_flow_t Flow() const {
        sumlink_edge_flow_t flow{};
        sumlink_edge_flow(node->Core(), PORT, &flow);
        return flow;
    }
    void Line() {
        sumlink_edge_counters_t count{};
        auto flow = Flow();
        sumlink_edge_counters(node->Core(), &count);
        Head();
        std::printf("\"cwnd\":%u,\"rtt_ms\":%.3f,\"duplicates\":%llu,\"boosted\":%llu,\"held\":%llu,\"held_average\":%.4f,"
                    "\"held_ms\":%.4f}\n",
                    cwnd, rtt * 1e3, static_cast<unsigned long long>(count.duplicates),
                    static_cast<unsigned long long>(count.boosted), static_cast<unsigned long long>(count.held), flow.held_average,
                    flow.held_for / 1e6);
        Simulator::Schedule(MilliSeconds(10), &Series::Line, this);
    }
    void Ack(const edge::Answer &answer) const {
        auto flow = Flow();
        auto passed = answer.passed ? std::to_string(*answer.passed) : "null";
        Head();
        std::printf("\"what\":\"%s\",\"ack\":%u,\"passed\":%s,\"duplicates\":%u,\"retransmissions\":%u,\"held_average\":%.4f,"
                    "\"held_ms\":%.4f}\n",
                    answer.what, answer.number, passed.c_str(), flow.duplicates, flow.retransmissions, flow.held_average,
                    flow.held_for / 1e6);
    }
    void Cwnd(uint32_t, uint32_t now) { cwnd = now; }
    void Rtt(Time, Time now) { rtt = now.GetSeconds(); }
    void Connect(Ptr<BulkSendApplication> app) {
        app->GetSocket()->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Series::Cwnd, this));
        app->GetSocket()->TraceConnectWithoutContext("RTT", MakeCallback(&Series::Rtt, this));
        if (!each_ack) {
            Line();
        }
    }
};

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && std::string(argv[1]) == "coupled") {
        return coupled::Main(argc - 1, argv + 1);
    }
    Options o;
    CommandLine cmd;
    cmd.AddValue("system", "lte, wifi, lwip, lwa or lwip+visible; the last three with :STEERING, the last with @boost=off:sack=strip; mptcp:CONTROL; sumlink:SCHEDULER", o.system);
    cmd.AddValue("wifi", "b, g or a", o.wifi);
    cmd.AddValue("seed", "seed", o.seed);
    cmd.AddValue("flows", "TCP flows", o.flows);
    cmd.AddValue("seconds", "measured seconds after the first two", o.seconds);
    cmd.AddValue("sack", "TCP uses SACK", o.sack);
    cmd.AddValue("segment", "bytes of data in a segment, at most 1340", o.segment);
    cmd.AddValue("users", "users, each with --flows flows, at most 4", o.users);
    cmd.AddValue("trace", "none; or instead of the result `series`, a JSON line every 10 ms, or `acks`, one per acknowledgment", o.trace);
    cmd.Parse(argc, argv);

    Visible visible;
    std::string head = o.system.substr(0, o.system.find('@'));
    std::string mode = head.substr(0, head.find(':'));
    if (head.size() < o.system.size() && !(mode == "lwip+visible" && visible.Read(o.system.substr(head.size() + 1)))) {
        return Bad("only lwip+visible has parameters: boost=on|off|many and sack=rewrite|strip: " + o.system);
    }
    bool lte = mode != "wifi";
    bool wifi = mode != "lte";
    bool alone = !(lte && wifi);
    std::string steering = "qdepl";
    if (head.size() > mode.size()) {
        steering = head.substr(mode.size() + 1);
    }
    bool mptcp = mode == "mptcp", sumlink = mode == "sumlink";
    // These systems bypass the core: both links end at the remote host.
    bool past = mptcp || sumlink;
    if (past) {
        std::string why;
        if (!(mptcp ? coupled::Bond(steering, 2, why) != nullptr : bond::Session(steering, true, why) != nullptr)) {
            return Bad(why);
        }
        if (o.trace != "none") {
            return Bad("no series available for " + mode);
        }
    }
    if (alone && o.system != mode) {
        return Bad("a single link has no steering: " + o.system);
    }
    std::string core_mode = alone || past ? "lwip" : mode;
    WifiStandard standard;
    if (o.wifi == "b") {
        standard = WIFI_STANDARD_80211b;
    } else if (o.wifi == "g") {
        standard = WIFI_STANDARD_80211g;
    } else if (o.wifi == "a") {
        standard = WIFI_STANDARD_80211a;
    } else {
        return Bad("unknown Wi-Fi `" + o.wifi + "`; choose b, g or a");
    }
    if (o.segment < 64 || o.segment > 1340) {
        return Bad("segment must be 64 to 1340 bytes");
    }
    if (o.users == 0 || o.users > edge::MAX_USERS) {
        return Bad("users must be 1 to 4");
    }
    if (o.trace != "none" && o.trace != "series" && o.trace != "acks") {
        return Bad("unknown trace `" + o.trace + "`; choose none, series or acks");
    }
    if (o.seed == 0 || o.flows == 0 || !(o.seconds > 0)) {
        return Bad("seed, flows and seconds must be above 0");
    }
    char error[256];
    sumlink_edge_config config{core_mode.c_str(), past ? nullptr : steering.c_str(), visible.sack.c_str(), visible.boost,
                             static_cast<uint8_t>(alone ? 1 : 2), 40, nullptr};
    sumlink_edge *core = sumlink_edge_new(&config, error, sizeof error);
    if (!core) {
        return Bad(error);
    }

    RngSeedManager::SetRun(o.seed);
    // The core verifies checksums, as on Linux.
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(true));
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(o.sack));
    // Small enough to avoid fragmentation in a tunnel, which would hide reordering.
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(o.segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::LteEnbPhy::TxPower", DoubleValue(20));
    Config::SetDefault("ns3::LteEnbRrc::SrsPeriodicity", UintegerValue(80));
    // The node never fills it: packets wait in the node's own queue of 40 packets.
    Config::SetDefault("ns3::LteRlcUm::MaxTxBufferSize", UintegerValue(40 * 1500));
    if (past) {
        // Without a node, the same 40 packets wait in Wi-Fi's MAC.
        Config::SetDefault("ns3::WifiMacQueue::MaxSize", StringValue("40p"));
    }
    edge::Topology net(standard, o.users, !past);

    auto socket = [](Ptr<Node> node) {
        auto made = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
        made->SetAttribute("RcvBufSize", UintegerValue(1 << 20));
        NS_ABORT_MSG_IF(made->Bind(InetSocketAddress(Ipv4Address::GetAny(), edge::TUNNEL_PORT)), "cannot bind a port");
        return made;
    };
    edge::LteLink lte_link;
    edge::WifiLink wifi_link(net.ap);
    lte_link.ready = wifi_link.ready = [] {};
    std::vector<edge::Link *> links;
    if (lte) {
        links.push_back(&lte_link);
    }
    if (wifi) {
        links.push_back(&wifi_link);
    }
    std::vector<Ipv4Address> inner;
    for (auto &host : net.users) {
        inner.push_back(host.address);
        lte_link.users.emplace_back(host.lte, edge::TUNNEL_PORT);
        wifi_link.users.emplace_back(host.wifi, edge::TUNNEL_PORT);
    }
    bool lwa = mode == "lwa";
    edge::Node node(core, net.device, socket(net.middle), links, inner, lwa ? PDCP_HEADER : 0);
    std::vector<std::unique_ptr<edge::User>> ends;
    for (auto &host : net.users) {
        ends.push_back(std::make_unique<edge::User>(host.device, socket(host.node), InetSocketAddress(net.up, edge::TUNNEL_PORT),
                                                    lwa ? sumlink_reorder_new(100'000'000) : nullptr));
    }
    // Bearers exist once the users have attached.
    Simulator::Schedule(Seconds(START - 0.1), [&] {
        auto mac = DynamicCast<LteEnbNetDevice>(net.enb)->GetComponentCarrierManager()->GetLteMacSapProvider();
        auto listen = [&](Ptr<Object> bearer) { lte_link.Listen(DynamicCast<LteRlc>(bearer), mac); };
        NS_ABORT_MSG_UNLESS(net.ForEachBearer(listen), "a user has not attached to LTE");
    });

    std::vector<Ptr<PacketSink>> sinks;
    Series series{&node, "lte-11" + o.wifi, o.system, o.seed};
    std::vector<std::unique_ptr<coupled::Sender>> senders;
    std::vector<std::unique_ptr<coupled::Receiver>> receivers;
    std::vector<std::unique_ptr<bond::End>> bonds, bond_users;
    for (uint32_t flow = 0; flow < o.users * o.flows; ++flow) {
        auto &host = net.users[flow / o.flows];
        if (past) {
            uint16_t first = PORT + 2 * flow, second = first + 1;
            std::vector<coupled::Way> ways{{net.far, {host.lte, first}}, {net.far_wifi, {host.wifi, second}}};
            std::string why;
            if (sumlink) {
                auto end = [&](Ptr<Node> node, bool sends) {
                    auto control = coupled::Bond("uncoupled", 2, why);
                    return std::make_unique<bond::End>(node, bond::Session(steering, sends, why), control, sends, o.segment);
                };
                bond_users.push_back(end(host.node, false));
                bond_users.back()->Listen({first, second});
                bonds.push_back(end(net.remote, true));
                Simulator::Schedule(Seconds(START), &bond::End::Connect, bonds.back().get(), ways);
                continue;
            }
            receivers.push_back(std::make_unique<coupled::Receiver>(host.node, std::vector<uint16_t>{first, second}));
            senders.push_back(std::make_unique<coupled::Sender>(net.remote, coupled::Bond(steering, 2, why), ways, o.segment, 4 << 20));
            Simulator::Schedule(Seconds(START), &coupled::Sender::Start, senders.back().get());
            continue;
        }
        BulkSendHelper send("ns3::TcpSocketFactory", InetSocketAddress(host.address, PORT + flow));
        auto app = send.Install(net.remote);
        app.Start(Seconds(START));
        PacketSinkHelper receive("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT + flow));
        sinks.push_back(DynamicCast<PacketSink>(receive.Install(host.node).Get(0)));
        if (o.trace != "none" && flow == 0) {
            auto bulk = DynamicCast<BulkSendApplication>(app.Get(0));
            Simulator::Schedule(Seconds(START + 0.001), &Series::Connect, &series, bulk);
        }
    }
    series.each_ack = o.trace == "acks";
    if (series.each_ack) {
        node.answered = [&](const edge::Answer &answer) { series.Ack(answer); };
    }
    auto received = [&] {
        uint64_t bytes = 0;
        for (auto &sink : sinks) {
            bytes += sink->GetTotalRx();
        }
        for (auto &receiver : receivers) {
            NS_ABORT_MSG_IF(receiver->Wrong(), "misplaced bytes");
            bytes += receiver->Delivered();
        }
        for (auto &user : bond_users) {
            NS_ABORT_MSG_IF(user->Wrong(), "misplaced bytes");
            bytes += user->Delivered();
        }
        return bytes;
    };
    uint64_t before = 0;
    Simulator::Schedule(Seconds(START + WARM), [&] { before = received(); });
    // Goodput over time since the start of the flows.
    std::vector<uint64_t> came{0};
    for (double at = INTERVAL; at <= WARM + o.seconds + 1e-9; at += INTERVAL) {
        Simulator::Schedule(Seconds(START + at), [&] { came.push_back(received()); });
    }
    Simulator::Stop(Seconds(START + WARM + o.seconds));
    Simulator::Run();

    if (o.trace == "none") {
        sumlink_edge_counters_t count{};
        sumlink_edge_counters(core, &count);
        auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
        std::printf("{\"scenario\":\"lte-11%s\",\"seed\":%u,\"system\":\"%s\",\"outcome\":\"measured\",\"reason\":null,"
                    "\"goodput_bps\":%.0f,\"users\":%u,\"flows\":%u,\"seconds\":%g,\"node\":{\"down_packets\":%llu,\"dropped\":%llu,"
                    "\"malformed\":%llu,\"up_packets\":%llu,\"duplicates\":%llu,\"boosted\":%llu,\"held\":%llu,\"unneeded\":%llu,"
                    "\"repaired\":%llu,\"repaired_behind\":%llu,\"repaired_late\":%llu,\"resets\":%llu}",
                    o.wifi.c_str(), o.seed, o.system.c_str(), 8.0 * (received() - before) / o.seconds, o.users, o.flows,
                    o.seconds, n(count.down_packets), n(count.dropped), n(count.malformed), n(count.up_packets),
                    n(count.duplicates), n(count.boosted), n(count.held), n(count.unneeded), n(count.repaired), n(count.repaired_behind),
                    n(count.repaired_late), n(count.resets));
        if (sumlink) {
            uint64_t twice = 0, waited = 0, back = 0;
            for (size_t one = 0; one < bonds.size(); ++one) {
                twice += bonds[one]->Counters().duplicates_sent;
                back += bonds[one]->Came();
                waited = std::max<uint64_t>(waited, bond_users[one]->Counters().reorder_peak);
            }
            std::printf(",\"session\":{\"duplicates_sent_bytes\":%llu,\"reorder_peak_bytes\":%llu,\"returned_bytes\":%llu}",
                        n(twice), n(waited), n(back));
        }
        std::printf(",\"goodput\":{\"start_s\":0,\"interval_s\":%g,\"bps\":[", INTERVAL);
        for (size_t i = 1; i < came.size(); ++i) {
            std::printf("%s%.0f", i > 1 ? "," : "", 8.0 * (came[i] - came[i - 1]) / INTERVAL);
        }
        std::printf("]}}\n");
    }
    Simulator::Destroy();
    return 0;
}
