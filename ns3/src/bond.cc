// SPDX-License-Identifier: GPL-2.0-only
#include "bond.h"

#include <algorithm>
#include <cstring>

using namespace ns3;

namespace bond {

namespace {

// The byte at each position of the stream; its period is a prime, so that a misplaced piece is
// detected.
constexpr uint32_t PERIOD = 251;
// Bytes offered to the session at once.
constexpr size_t PIECE = 64 << 10;
// Unsent bytes permitted in a socket, and the budget per write, as in the daemon (crates/transport,
// carrier.rs).
constexpr uint64_t YOUTH = 256 << 10;
constexpr double LOWAT_SECONDS = 0.003;
constexpr uint64_t LOWAT_LEAST = 12 << 10, LOWAT_MOST = 512 << 10;
constexpr uint64_t MAX_AT_ONCE = 64 << 10;
constexpr int PIECES = 4;
// Retry interval for frames that are due but cannot be sent.
constexpr int64_t OVERDUE_PAUSE = 5'000'000;
// The controls report an unset threshold as a number above this one.
constexpr uint64_t NO_THRESHOLD = 1'000'000'000;

uint64_t Now() {
    return static_cast<uint64_t>(Simulator::Now().GetNanoSeconds());
}

const uint8_t *Pattern(uint64_t at) {
    static const std::vector<uint8_t> bytes = [] {
        std::vector<uint8_t> all(PERIOD + PIECE);
        for (size_t n = 0; n < all.size(); ++n) {
            all[n] = static_cast<uint8_t>(n % PERIOD);
        }
        return all;
    }();
    return bytes.data() + at % PERIOD;
}

uint64_t Nanos(Time time) {
    return static_cast<uint64_t>(std::max<int64_t>(0, time.GetNanoSeconds()));
}

} // namespace

std::shared_ptr<sumlink_session> Session(const std::string &scheduler, bool sends, std::string &why) {
    char error[256];
    auto *session = sumlink_session_new(scheduler.c_str(), sends, Now(), error, sizeof error);
    if (!session) {
        why = error;
        return nullptr;
    }
    return {session, sumlink_session_free};
}

End::End(Ptr<Node> node, std::shared_ptr<sumlink_session> session, std::shared_ptr<sumlink_bond> control, bool sends,
         uint32_t segment)
    : m_node(node), m_session(session), m_control(control), m_sends(sends), m_segment(segment) {}

void End::Connect(const std::vector<coupled::Way> &ways) {
    m_carriers.resize(ways.size());
    for (size_t n = 0; n < ways.size(); ++n) {
        auto &carrier = m_carriers[n];
        carrier.control = CreateObject<coupled::Congestion>(m_control, static_cast<uint8_t>(n));
        carrier.socket = Socket::CreateSocket(m_node, TcpSocketFactory::GetTypeId());
        carrier.socket->SetAttribute("SegmentSize", UintegerValue(m_segment));
        carrier.socket->SetAttribute("InitialCwnd", UintegerValue(10));
        DynamicCast<TcpSocketBase>(carrier.socket)->SetCongestionControlAlgorithm(carrier.control);
        NS_ABORT_MSG_IF(carrier.socket->Bind(InetSocketAddress(ways[n].from, 0)), "cannot bind a port");
        carrier.socket->SetConnectCallback(Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) { Up(n); }),
                                           Callback<void, Ptr<Socket>>([](Ptr<Socket>) {}));
        Watch(n);
        carrier.socket->Connect(ways[n].to);
    }
}

void End::Listen(const std::vector<uint16_t> &ports) {
    m_carriers.resize(ports.size());
    for (size_t n = 0; n < ports.size(); ++n) {
        auto socket = Socket::CreateSocket(m_node, TcpSocketFactory::GetTypeId());
        socket->SetAttribute("SegmentSize", UintegerValue(m_segment));
        NS_ABORT_MSG_IF(socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), ports[n])), "cannot bind a port");
        socket->Listen();
        socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                  Callback<void, Ptr<Socket>, const Address &>([this, n](Ptr<Socket> socket, const Address &) {
                                      auto &carrier = m_carriers[n];
                                      carrier.socket = socket;
                                      carrier.control = CreateObject<coupled::Congestion>(m_control, static_cast<uint8_t>(n));
                                      DynamicCast<TcpSocketBase>(socket)->SetCongestionControlAlgorithm(carrier.control);
                                      Watch(n);
                                      Up(n);
                                  }));
        m_listening.push_back(socket);
    }
}

void End::Watch(size_t n) {
    auto socket = m_carriers[n].socket;
    auto base = DynamicCast<TcpSocketBase>(socket);
    auto ended = Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) { Down(n); });
    socket->SetCloseCallbacks(ended, ended);
    socket->SetRecvCallback(Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) { Receive(n); }));
    socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this](Ptr<Socket>, uint32_t) { Work(); }));
    base->TraceConnectWithoutContext("BytesInFlight", Callback<void, uint32_t, uint32_t>([this](uint32_t before, uint32_t now) {
                                         if (now < before) {
                                             Simulator::ScheduleNow([this] { Work(); });
                                         }
                                     }));
    base->TraceConnectWithoutContext(
        "Tx", Callback<void, Ptr<const Packet>, const TcpHeader &, Ptr<const TcpSocketBase>>(
                  [this, n](Ptr<const Packet> packet, const TcpHeader &header, Ptr<const TcpSocketBase>) {
                      auto &carrier = m_carriers[n];
                      if (!carrier.up || packet->GetSize() == 0) {
                          return;
                      }
                      auto end = header.GetSequenceNumber() + packet->GetSize();
                      ++carrier.segments;
                      carrier.again += end <= carrier.next;
                      carrier.next = std::max(carrier.next, end);
                  }));
}

void End::Up(size_t n) {
    auto &carrier = m_carriers[n];
    carrier.up = true;
    carrier.first = carrier.next = carrier.control->State()->m_highTxMark;
    sumlink_session_path_up(m_session.get(), n, Now());
    Work();
}

// ns-3 gives up a connection after six timeouts or a reset.
void End::Down(size_t n) {
    if (std::exchange(m_carriers[n].up, false)) {
        sumlink_session_path_down(m_session.get(), n, Now());
        Work();
    }
}

void End::Receive(size_t n) {
    auto &carrier = m_carriers[n];
    std::vector<uint8_t> bytes;
    while (auto packet = carrier.socket->Recv()) {
        if (packet->GetSize() == 0) {
            break;
        }
        bytes.resize(packet->GetSize());
        packet->CopyData(bytes.data(), bytes.size());
        carrier.came += bytes.size();
        m_wrong += !sumlink_session_handle_frames(m_session.get(), n, bytes.data(), bytes.size(), Now());
    }
    Work();
}

uint64_t End::Carrier::Acknowledged() const {
    return std::max(0, control->State()->m_lastAckedSeq - first);
}

// Unacknowledged bytes, including lost ones, as in Linux's tcpi_unacked; ns-3's own number excludes
// lost ones.
uint64_t End::Carrier::InFlight() const {
    auto tcb = control->State();
    return std::max(0, tcb->m_highTxMark.Get() - tcb->m_lastAckedSeq);
}

uint64_t End::Carrier::Unsent() const {
    uint64_t sent = std::max(0, control->State()->m_highTxMark.Get() - first);
    return given > sent ? given - sent : 0;
}

bool End::Carrier::Young() const {
    return Acknowledged() < YOUTH;
}

uint64_t End::Carrier::Lowat() const {
    auto tcb = control->State();
    double rate = control->DeliveryRate();
    if (tcb->m_ssThresh.Get() >= NO_THRESHOLD) {
        // In slow start the measurement is the rate of the previous window.
        rate = std::max(rate, tcb->m_cWnd.Get() / std::max(1e-6, control->Srtt().GetSeconds()));
    }
    return std::clamp(static_cast<uint64_t>(rate * LOWAT_SECONDS), LOWAT_LEAST, LOWAT_MOST);
}

bool End::Carrier::Full() const {
    // In a long recovery without SACK the whole buffer is in flight. The budget may be exceeded
    // once, but not twice.
    if (socket->GetTxAvailable() < 2 * MAX_AT_ONCE) {
        return true;
    }
    return Young() ? Unsent() > 0 : Unsent() * 2 >= Lowat();
}

size_t End::Carrier::Budget() const {
    if (!Young()) {
        return std::clamp<uint64_t>(Lowat() / 2, 8 << 10, MAX_AT_ONCE);
    }
    auto tcb = control->State();
    uint64_t taken = InFlight() + Unsent(), window = tcb->m_cWnd.Get();
    uint64_t room = (window > taken ? window - taken : 0) + tcb->m_segmentSize;
    return std::clamp<uint64_t>(room, 512, MAX_AT_ONCE);
}

void End::Sample(size_t n) {
    auto &carrier = m_carriers[n];
    auto tcb = carrier.control->State();
    sumlink_session_sample_t sample{};
    sample.srtt = Nanos(carrier.control->Srtt());
    sample.rttvar = Nanos(carrier.control->RttVariation());
    sample.min_rtt = tcb->m_minRtt == Time::Max() ? 0 : Nanos(tcb->m_minRtt);
    sample.cwnd = tcb->m_cWnd;
    sample.ssthresh = tcb->m_ssThresh.Get() >= NO_THRESHOLD ? 0 : tcb->m_ssThresh.Get();
    sample.in_flight = carrier.InFlight();
    sample.unsent = carrier.Unsent();
    sample.delivery_rate = carrier.control->DeliveryRate();
    sample.segments = carrier.segments;
    sample.retransmitted = carrier.again;
    sample.delivered = carrier.control->Delivered() / tcb->m_segmentSize;
    sample.received = carrier.came;
    sample.mss = tcb->m_segmentSize;
    auto state = tcb->m_congState.Get();
    sample.loss = state == TcpSocketState::CA_OPEN ? 0 : state == TcpSocketState::CA_LOSS ? 2 : 1;
    sample.full = carrier.Full();
    sumlink_session_path_sample(m_session.get(), n, &sample, Now());
}

bool End::Transmit(size_t n) {
    bool moved = false;
    auto &carrier = m_carriers[n];
    for (int piece = 0; piece < PIECES && carrier.up && !carrier.Full(); ++piece) {
        if (piece > 0) {
            Sample(n);
        }
        size_t len = 0;
        auto *frames = sumlink_session_poll_transmit(m_session.get(), n, carrier.Budget(), Now(), &len);
        if (!frames) {
            break;
        }
        auto packet = Create<Packet>(frames, len);
        carrier.given += len;
        int sent = carrier.socket->Send(packet);
        NS_ABORT_MSG_UNLESS(sent == static_cast<int>(len), "a socket accepted less than its free space");
        moved = true;
    }
    return moved;
}

void End::Write() {
    size_t taken = PIECE;
    while (m_sends && taken == PIECE) {
        taken = sumlink_session_write(m_session.get(), Pattern(m_written), PIECE, Now());
        m_written += taken;
    }
}

void End::Read() {
    size_t len = 0;
    while (auto *bytes = sumlink_session_read(m_session.get(), Now(), &len)) {
        for (size_t at = 0; at < len; at += PIECE) {
            auto part = std::min(PIECE, len - at);
            m_wrong += std::memcmp(bytes + at, Pattern(m_read), part) == 0 ? 0 : part;
            m_read += part;
        }
    }
}

void End::Work() {
    // Writing to a socket may call back.
    m_again = true;
    if (std::exchange(m_working, true)) {
        return;
    }
    while (std::exchange(m_again, false)) {
        // Before the engine checks for late acknowledgments.
        for (size_t n = 0; n < m_carriers.size(); ++n) {
            if (m_carriers[n].up) {
                Sample(n);
            }
        }
        sumlink_session_handle_timeout(m_session.get(), Now());
        Write();
        Read();
        ++m_turn;
        for (size_t step = 0; step < m_carriers.size(); ++step) {
            auto n = (m_turn + step) % m_carriers.size();
            m_again |= m_carriers[n].up && Transmit(n);
        }
    }
    m_working = false;
    Arm();
}

void End::Arm() {
    m_timer.Cancel();
    auto due = sumlink_session_poll_timeout(m_session.get());
    if (due == UINT64_MAX) {
        return;
    }
    auto now = Now();
    auto wait = due > now ? static_cast<int64_t>(due - now) : OVERDUE_PAUSE;
    m_timer = Simulator::Schedule(NanoSeconds(wait), &End::Work, this);
}

uint64_t End::Came() const {
    uint64_t came = 0;
    for (auto &carrier : m_carriers) {
        came += carrier.came;
    }
    return came;
}

sumlink_session_counters_t End::Counters() const {
    sumlink_session_counters_t counters{};
    sumlink_session_counters(m_session.get(), &counters);
    return counters;
}

} // namespace bond
