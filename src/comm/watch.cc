#include "comm/watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// What connections carry, one character a message but for the last.
constexpr char kHeartbeat = 'h';
constexpr char kFarewell = 'f';
constexpr char kLine = 'l';  // followed by text and a line feed
constexpr size_t kMaxLine = 4096;

constexpr auto kConnectFor = std::chrono::seconds(20);
constexpr int kPollMs = 100;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// All of it or nothing that matters: a peer that cannot take a few bytes is found by its silence.
void SendAll(const Socket& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

bool ReadExactly(const Socket& socket, std::byte* to, size_t bytes, Clock::time_point until) {
  while (bytes > 0) {
    pollfd wait{socket.fd(), POLLIN, 0};
    if (Clock::now() > until) return false;
    if (poll(&wait, 1, kPollMs) <= 0) continue;
    const ssize_t got = recv(socket.fd(), to, bytes, 0);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// What a process says first: that it belongs to this run, and who it is.
struct Hello {
  uint64_t token = 0;
  int32_t process = 0;
};

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// "TOKEN PORT HOST ADDRESS..": where the leader listens.
std::string Invitation(uint64_t token, int port) {
  std::string text = fmt::format("{} {} {}", token, port, HostName());
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return text;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    char address[INET_ADDRSTRLEN];
    const auto* in = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (inet_ntop(AF_INET, &in->sin_addr, address, sizeof(address)) != nullptr &&
        std::string_view(address) != "127.0.0.1") {
      text += fmt::format(" {}", address);
    }
  }
  freeifaddrs(list);
  return text;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

Socket ConnectTo(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    timeval patience{2, 0};
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (socket && connect(socket.fd(), at->ai_addr, at->ai_addrlen) == 0) return socket;
  }
  return {};
}

Socket Join(const std::string& invitation, int process) {
  const std::vector<std::string> words = Words(invitation);
  if (words.size() < 3)
    throw Failed("watch: expected an invitation, found '{}'", Printable(invitation));
  std::vector<std::string> hosts(words.begin() + 2, words.end());
  if (hosts[0] == HostName()) hosts.insert(hosts.begin(), "127.0.0.1");
  for (const std::string& host : hosts) {
    Socket socket = ConnectTo(host, words[1]);
    if (!socket) continue;
    const Hello hello{std::strtoull(words[0].c_str(), nullptr, 10), process};
    SendAll(socket, {reinterpret_cast<const char*>(&hello), sizeof(hello)});
    return socket;
  }
  throw Failed("watch: expected a connection to {} port {}, found none", Printable(hosts[0]),
               Printable(words[1]));
}

struct Listener {
  Socket socket;
  int port = 0;
};

Listener Listen() {
  Listener listener{Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (!listener.socket || bind(listener.socket.fd(), plain, length) != 0 ||
      listen(listener.socket.fd(), 1024) != 0 ||
      getsockname(listener.socket.fd(), plain, &length) != 0) {
    throw Failed("watch: expected a port to listen on, found none: {}", SystemErrorText(errno));
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

}  // namespace

class Watch::Impl {
 public:
  explicit Impl(WatchOptions options) : options_(std::move(options)) {
    Connect();
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    closing_ = true;
    thread_.join();
    for (const Peer& peer : peers_) {
      SendAll(peer.socket, {&kFarewell, 1});
      shutdown(peer.socket.fd(), SHUT_WR);
    }
    // Closing while bytes of the peer lie unread would take the farewell away from it.
    const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
    std::byte rest;
    for (const Peer& peer : peers_) {
      while (ReadExactly(peer.socket, &rest, 1, until)) continue;
    }
  }

  void Tell(const std::string& line) {
    for (const Peer& peer : peers_) SendLine(peer, line);
  }

 private:
  // A process that this one hears: the leader hears all others, they hear the leader.
  struct Peer {
    Socket socket;
    int process;
    Clock::time_point heard = Clock::now();
    std::optional<std::string> line;  // the part of a line that has come
    bool gone = false;
  };

  void Connect() {
    if (options_.process != 0) {
      peers_.push_back({Join(options_.from_leader(""), options_.process), 0});
      return;
    }
    const Listener listener = Listen();
    std::random_device random;
    const uint64_t token = uint64_t{random()} << 32 | random();
    options_.from_leader(Invitation(token, listener.port));
    const Clock::time_point until = Clock::now() + kConnectFor;
    while (peers_.size() + 1 < options_.names.size()) {
      pollfd wait{listener.socket.fd(), POLLIN, 0};
      if (Clock::now() > until)
        throw Failed("watch: expected {} processes to connect, found {}", options_.names.size() - 1,
                     peers_.size());
      if (poll(&wait, 1, kPollMs) <= 0) continue;
      Socket socket(accept4(listener.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello;
      if (!socket || !ReadExactly(socket, reinterpret_cast<std::byte*>(&hello), sizeof(hello),
                                  Clock::now() + std::chrono::seconds(2)))
        continue;
      const bool known = hello.process > 0 && hello.process < std::ssize(options_.names);
      if (hello.token == token && known) peers_.push_back({std::move(socket), hello.process});
    }
  }

  void SendLine(const Peer& peer, const std::string& line) {
    if (!peer.gone) SendAll(peer.socket, fmt::format("{}{}\n", kLine, Printable(line, kMaxLine)));
  }

  // Ends this process, and all others before it.
  void Lose(const Peer& peer, const std::string& line, bool first_to_know) {
    for (const Peer& other : peers_) {
      if (&other != &peer) SendLine(other, line);
    }
    options_.lost(line, first_to_know);
  }

  void LosePeer(const Peer& peer, std::string_view how) {
    const std::string& name = options_.names[static_cast<size_t>(peer.process)];
    Lose(peer, fmt::format("{}: lost, {}", name, how), options_.process <= 1);
  }

  void Take(Peer& peer, char c) {
    if (peer.line) {
      // What others tell the leader they have said themselves.
      if (c == '\n') return Lose(peer, *peer.line, false);
      if (peer.line->size() < kMaxLine) *peer.line += c;
    } else if (c == kLine) {
      peer.line.emplace();
    } else if (c == kFarewell) {
      peer.gone = true;
    }
  }

  void Hear(Peer& peer) {
    char buffer[512];
    const ssize_t got = recv(peer.socket.fd(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    peer.heard = Clock::now();
    for (ssize_t i = 0; i < got && !peer.gone; ++i) Take(peer, buffer[i]);
    if (got > 0 || peer.gone) return;
    peer.gone = true;
    LosePeer(peer, "its process ended");
  }

  void Loop() {
    const auto patience = std::chrono::duration<double>(options_.lost_after_seconds);
    Clock::time_point last = Clock::now(), next_beat = last;
    while (!closing_) {
      std::vector<pollfd> waits;
      for (const Peer& peer : peers_)
        waits.push_back({peer.gone ? -1 : peer.socket.fd(), POLLIN, 0});
      poll(waits.data(), waits.size(), kPollMs);
      const Clock::time_point now = Clock::now();
      // Who was itself stopped, or starved, cannot say that others were silent.
      const bool slept = now - last > patience / 4;
      last = now;
      for (size_t i = 0; i < peers_.size(); ++i) {
        Peer& peer = peers_[i];
        if (peer.gone) continue;
        if (waits[i].revents != 0) Hear(peer);
        if (slept) peer.heard = now;
        if (now >= next_beat) SendAll(peer.socket, {&kHeartbeat, 1});
        if (!peer.gone && now - peer.heard > patience) {
          LosePeer(peer, fmt::format("silent for {:.1f} s",
                                     std::chrono::duration<double>(now - peer.heard).count()));
        }
      }
      if (now >= next_beat)
        next_beat = now + std::chrono::duration_cast<Clock::duration>(patience / 8);
    }
  }

  WatchOptions options_;
  std::vector<Peer> peers_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

Watch::Watch(WatchOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Watch::~Watch() = default;
void Watch::Tell(const std::string& line) { impl_->Tell(line); }

}  // namespace lockstep
