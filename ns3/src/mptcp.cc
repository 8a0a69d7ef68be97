// SPDX-License-Identifier: GPL-2.0-only
#include "mptcp.h"

#include <algorithm>
#include <cstring>

using namespace ns3;

namespace coupled {

namespace {

// The byte at each position of the data; its period is a prime, so that a misplaced piece is
// detected.
constexpr uint32_t PERIOD = 251;
// Above the size of any piece.
constexpr uint32_t PIECE_MAX = 65'000;

const uint8_t *Pattern(uint64_t at) {
    static const std::vector<uint8_t> bytes = [] {
        std::vector<uint8_t> all(PERIOD + PIECE_MAX);
        for (size_t n = 0; n < all.size(); ++n) {
            all[n] = static_cast<uint8_t>(n % PERIOD);
        }
        return all;
    }();
    return bytes.data() + at % PERIOD;
}

uint64_t Number(const uint8_t *bytes, size_t len) {
    uint64_t number = 0;
    for (size_t n = 0; n < len; ++n) {
        number = number << 8 | bytes[n];
    }
    return number;
}

void Put(uint8_t *bytes, size_t len, uint64_t number) {
    for (size_t n = len; n-- > 0; number >>= 8) {
        bytes[n] = static_cast<uint8_t>(number);
    }
}

} // namespace

Sender::Sender(Ptr<Node> node, std::shared_ptr<sumlink_bond> bond, const std::vector<Way> &ways, uint32_t segment,
               uint64_t window)
    : m_node(node), m_bond(bond), m_subflows(ways.size()), m_segment(segment), m_piece(segment - HEADER), m_window(window) {
    for (size_t n = 0; n < ways.size(); ++n) {
        m_subflows[n].way = ways[n];
    }
}

void Sender::Start() {
    for (size_t n = 0; n < m_subflows.size(); ++n) {
        Open(n);
    }
}

void Sender::Open(size_t n) {
    auto &subflow = m_subflows[n];
    subflow.control = CreateObject<Congestion>(m_bond, static_cast<uint8_t>(n));
    subflow.control->timedOut = [this, n] { TimedOut(n); };
    subflow.socket = Socket::CreateSocket(m_node, TcpSocketFactory::GetTypeId());
    subflow.socket->SetAttribute("SegmentSize", UintegerValue(m_segment));
    subflow.socket->SetAttribute("InitialCwnd", UintegerValue(10));
    auto base = DynamicCast<TcpSocketBase>(subflow.socket);
    base->SetCongestionControlAlgorithm(subflow.control);
    NS_ABORT_MSG_IF(subflow.socket->Bind(InetSocketAddress(subflow.way.from, 0)), "cannot bind a port");
    subflow.socket->SetConnectCallback(
        Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) {
            auto &subflow = m_subflows[n];
            subflow.connected = true;
            subflow.first = subflow.control->State()->m_highTxMark;
            Push();
        }),
        Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) { m_subflows[n].failed = true; }));
    auto ended = Callback<void, Ptr<Socket>>([this, n](Ptr<Socket>) {
        // ns-3 gives up a connection after six timeouts or a reset.
        m_subflows[n].connected = false;
        m_subflows[n].failed = true;
        TimedOut(n);
    });
    subflow.socket->SetCloseCallbacks(ended, ended);
    subflow.socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this, n](Ptr<Socket>, uint32_t) {
        Acknowledged(m_subflows[n]);
        Push();
    }));
    // The window may gain room without a cumulative acknowledgment; this is the only notice of
    // selective ones.
    base->TraceConnectWithoutContext("BytesInFlight", Callback<void, uint32_t, uint32_t>([this](uint32_t before, uint32_t now) {
                                         if (now < before) {
                                             Simulator::ScheduleNow([this] { Push(); });
                                         }
                                     }));
    subflow.socket->Connect(subflow.way.to);
}

bool Sender::Room(const Subflow &subflow) const {
    if (!subflow.connected || subflow.socket->GetTxAvailable() < m_segment) {
        return false;
    }
    auto tcb = subflow.control->State();
    uint64_t sent = tcb->m_highTxMark.Get() - subflow.first;
    // Unsent bytes wait for the socket's window; one piece is always waiting, so that the window is
    // used.
    uint64_t waiting = subflow.given > sent ? subflow.given - sent : 0;
    return waiting < m_segment || tcb->m_bytesInFlight + waiting + m_segment <= tcb->m_cWnd;
}

void Sender::Acknowledged(Subflow &subflow) {
    if (!subflow.connected) {
        return;
    }
    uint64_t acked = subflow.control->State()->m_lastAckedSeq - subflow.first;
    while (!subflow.pieces.empty() && subflow.pieces.front().first <= acked) {
        m_outstanding.erase(subflow.pieces.front().second);
        subflow.pieces.pop_front();
    }
}

void Sender::TimedOut(size_t n) {
    Acknowledged(m_subflows[n]);
    for (auto &[end, at] : m_subflows[n].pieces) {
        auto found = m_outstanding.find(at);
        if (found != m_outstanding.end() && !found->second) {
            found->second = true;
            m_again.emplace_back(at, n);
        }
    }
    Push();
}

void Sender::Push() {
    // Writing to a socket may call back.
    if (m_pushing) {
        return;
    }
    m_pushing = true;
    for (auto &subflow : m_subflows) {
        Acknowledged(subflow);
    }
    for (;;) {
        while (!m_again.empty() && !m_outstanding.count(m_again.front().first)) {
            m_again.pop_front();
        }
        bool again = !m_again.empty();
        auto first = m_outstanding.empty() ? m_next : m_outstanding.begin()->first;
        bool fresh = m_next + m_piece - first <= m_window;
        auto best = [&](bool may, size_t but) {
            Subflow *found = nullptr;
            for (size_t n = 0; may && n < m_subflows.size(); ++n) {
                auto &one = m_subflows[n];
                if (n != but && Room(one) && (!found || one.control->Srtt() < found->control->Srtt())) {
                    found = &one;
                }
            }
            return found;
        };
        if (auto *subflow = again ? best(true, m_again.front().second) : nullptr) {
            m_reinjected += m_piece;
            auto at = m_again.front().first;
            m_again.pop_front();
            Give(*subflow, at);
        } else if (auto *subflow = best(fresh, m_subflows.size())) {
            m_outstanding[m_next] = false;
            auto at = m_next;
            m_next += m_piece;
            Give(*subflow, at);
        } else {
            break;
        }
    }
    m_pushing = false;
}

void Sender::Give(Subflow &subflow, uint64_t at) {
    std::vector<uint8_t> bytes(HEADER + m_piece);
    Put(bytes.data(), 8, at);
    Put(bytes.data() + 8, 4, m_piece);
    std::memcpy(bytes.data() + HEADER, Pattern(at), m_piece);
    int sent = subflow.socket->Send(Create<Packet>(bytes.data(), bytes.size()));
    NS_ABORT_MSG_UNLESS(sent == static_cast<int>(bytes.size()), "a socket accepted less than its free space");
    subflow.given += bytes.size();
    subflow.pieces.emplace_back(subflow.given, at);
}

Receiver::Receiver(Ptr<Node> node, const std::vector<uint16_t> &ports) : m_streams(ports.size()), m_came(ports.size()) {
    for (size_t n = 0; n < ports.size(); ++n) {
        auto socket = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
        NS_ABORT_MSG_IF(socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), ports[n])), "cannot bind a port");
        socket->Listen();
        socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                  Callback<void, Ptr<Socket>, const Address &>(
                                      [this, n](Ptr<Socket> socket, const Address &from) { Accepted(n, socket, from); }));
        m_sockets.push_back(socket);
    }
}

void Receiver::Accepted(size_t n, Ptr<Socket> socket, const Address &) {
    socket->SetRecvCallback(Callback<void, Ptr<Socket>>([this, n](Ptr<Socket> socket) { Read(n, socket); }));
    m_sockets.push_back(socket);
}

void Receiver::Read(size_t n, Ptr<Socket> socket) {
    auto &stream = m_streams[n];
    while (auto packet = socket->Recv()) {
        if (packet->GetSize() == 0) {
            break;
        }
        m_came[n] += packet->GetSize();
        auto had = stream.size();
        stream.resize(had + packet->GetSize());
        packet->CopyData(stream.data() + had, packet->GetSize());
    }
    size_t done = 0;
    while (stream.size() - done >= HEADER) {
        auto at = Number(stream.data() + done, 8);
        auto len = static_cast<uint32_t>(Number(stream.data() + done + 8, 4));
        if (len == 0 || len > PIECE_MAX) {
            // The rest of this stream is unreadable.
            m_wrong += stream.size() - done;
            done = stream.size();
            break;
        }
        if (stream.size() - done < HEADER + len) {
            break;
        }
        Piece(at, stream.data() + done + HEADER, len);
        done += HEADER + len;
    }
    stream.erase(stream.begin(), stream.begin() + done);
}

void Receiver::Piece(uint64_t at, const uint8_t *data, uint32_t len) {
    if (std::memcmp(data, Pattern(at), len) != 0) {
        m_wrong += len;
        return;
    }
    // Pieces are repeated unchanged, so they never overlap partially.
    if (at < m_next || !m_ahead.emplace(at, at + len).second) {
        m_twice += len;
        return;
    }
    for (auto next = m_ahead.begin(); next != m_ahead.end() && next->first == m_next; next = m_ahead.erase(next)) {
        m_next = next->second;
    }
}

} // namespace coupled
