// Datagrams through the loopback of the real kernel, and through kernel answers that loopback never gives.
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "io/udp.h"
#include "testing/check.h"

namespace {

using holdfast::Duration;
using holdfast::io::Address;
using holdfast::io::OutgoingBatch;
using holdfast::io::SendResult;
using holdfast::io::UdpOptions;
using holdfast::io::UdpSocket;
using Bytes = std::vector<std::uint8_t>;

// What the kernel shall answer to the next calls, in order; with an empty plan calls pass through.
struct Plan {
  static constexpr int pass = 1 << 20;
  std::deque<int> sendmsg;   // pass, or -errno
  std::deque<int> sendmmsg;  // how many messages may leave, or -errno
  std::deque<int> recvmmsg;  // pass, or -errno
  int num_sendmsg = 0;
  int num_sendmmsg = 0;
};
Plan plan;

int next(std::deque<int>& answers) {
  if (answers.empty()) return Plan::pass;
  const int answer = answers.front();
  answers.pop_front();
  return answer;
}

int fail(int negative_errno) {
  errno = -negative_errno;
  return -1;
}

}  // namespace

// The executable's definitions win over the C library's, so UdpSocket calls these.
extern "C" {
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ++plan.num_sendmsg;
  const int answer = next(plan.sendmsg);
  return answer < 0 ? fail(answer) : syscall(SYS_sendmsg, fd, message, flags);
}
int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  ++plan.num_sendmmsg;
  const int answer = next(plan.sendmmsg);
  if (answer < 0) return fail(answer);
  return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, std::min(count, static_cast<unsigned>(answer)), flags));
}
int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const int answer = next(plan.recvmmsg);
  return answer < 0 ? fail(answer) : static_cast<int>(syscall(SYS_recvmmsg, fd, messages, count, flags, timeout));
}
}

namespace {

constexpr const char* loopbacks[] = {"127.0.0.1", "::1"};

UdpOptions with_segmentation(bool use) {
  UdpOptions options;
  options.use_segmentation = use;
  return options;
}

// Numbered datagrams of one size, the last one shorter if asked, each in two parts as a header and a payload are.
struct Message {
  Message(const Address& to, std::size_t num_datagrams, std::size_t datagram_bytes, std::size_t last_bytes)
      : bytes((num_datagrams - 1) * datagram_bytes + last_bytes) {
    std::uint32_t state = 12345;
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    batch.to = &to;
    batch.datagram_bytes = static_cast<std::uint32_t>(datagram_bytes);
    batch.num_datagrams = static_cast<std::uint32_t>(num_datagrams);
    batch.total_bytes = bytes.size();
    for (std::size_t i = 0; i < num_datagrams; ++i) {
      std::uint8_t* start = bytes.data() + i * datagram_bytes;
      const std::size_t size = i + 1 < num_datagrams ? datagram_bytes : last_bytes;
      const std::size_t header = std::min<std::size_t>(size - 1, 40);
      expected.emplace_back(start, start + size);
      batch.parts.push_back({start, header});
      batch.parts.push_back({start + header, size - header});
      batch.parts_per_datagram.push_back(2);
    }
  }

  Bytes bytes;
  std::vector<Bytes> expected;
  OutgoingBatch batch;
};

std::vector<Bytes> receive(UdpSocket& socket, std::size_t num_datagrams) {
  std::vector<Bytes> received;
  pollfd ready{socket.fd(), POLLIN, 0};
  while (received.size() < num_datagrams && poll(&ready, 1, 2000) > 0) {
    socket.receive(4, [&](std::span<std::uint8_t> datagram, Duration) {
      received.emplace_back(datagram.begin(), datagram.end());
    });
  }
  return received;
}

bool nothing_waits(UdpSocket& socket) {
  return socket.receive(1, [](std::span<std::uint8_t>, Duration) {}) == 0;
}

void expect_delivery(const char* host, bool sender_segments, bool receiver_segments, std::size_t num_datagrams,
                     std::size_t datagram_bytes, std::size_t last_bytes) {
  UdpSocket sender(Address::parse(host, 0), with_segmentation(sender_segments));
  UdpSocket receiver(Address::parse(host, 0), with_segmentation(receiver_segments));
  Message message(receiver.local(), num_datagrams, datagram_bytes, last_bytes);
  HF_CHECK(sender.send(message.batch) == SendResult::sent);
  HF_EQUAL(message.batch.num_datagrams, num_datagrams);
  const std::vector<Bytes> received = receive(receiver, num_datagrams);
  HF_EQUAL(received.size(), num_datagrams);
  HF_CHECK(received == message.expected);
  HF_CHECK(nothing_waits(receiver));
  HF_EQUAL(receiver.kernel_drops(), 0u);
}

template <class Exception, class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

// A sender without GSO (or with) and a receiver, both on IPv4 loopback, and an empty plan.
struct Pair {
  explicit Pair(bool sender_segments)
      : sender(Address::parse("127.0.0.1", 0), with_segmentation(sender_segments)),
        receiver(Address::parse("127.0.0.1", 0), UdpOptions{}) {
    plan = {};
  }
  ~Pair() { plan = {}; }
  UdpSocket sender;
  UdpSocket receiver;
};

// Gives this thread a network of its own, whose loopback has the given MTU. False without CAP_SYS_ADMIN.
bool enter_network_with_mtu(int mtu) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_mtu = mtu;
  const bool sized = ioctl(fd, SIOCSIFMTU, &request) == 0;
  request.ifr_flags = IFF_UP;
  const bool up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  close(fd);
  return sized && up;
}

}  // namespace

HF_CASE(batches_arrive_byte_exact_and_cut_right) {
  for (const char* host : loopbacks) {
    for (const bool sender_segments : {true, false}) {
      for (const bool receiver_segments : {true, false}) {
        expect_delivery(host, sender_segments, receiver_segments, 4, 16'320, 16'320);
        expect_delivery(host, sender_segments, receiver_segments, 4, 16'320, 77);
        expect_delivery(host, sender_segments, receiver_segments, 44, 1'472, 1'472);
        expect_delivery(host, sender_segments, receiver_segments, 44, 1'472, 1);
        expect_delivery(host, sender_segments, receiver_segments, 1, 16'320, 16'320);
        expect_delivery(host, sender_segments, receiver_segments, 1, 16'320, 1);
      }
    }
  }
}

HF_CASE(batches_beyond_one_segmented_send_are_split_and_keep_gso) {
  Pair pair(true);
  Message many(pair.receiver.local(), 150, 100, 60), wide(pair.receiver.local(), 3, 40'000, 40'000);
  HF_CHECK(pair.sender.send(many.batch) == SendResult::sent);
  HF_CHECK(receive(pair.receiver, 150) == many.expected);
  HF_CHECK(pair.sender.send(wide.batch) == SendResult::sent);
  HF_CHECK(receive(pair.receiver, 3) == wide.expected);
  HF_CHECK(pair.sender.has_gso());
}

HF_CASE(segmentation_crosses_the_stack_once) {
  Pair pair(true);
  if (!pair.sender.has_gso()) return;  // a kernel before 4.18
  Message message(pair.receiver.local(), 44, 1'472, 1'472);
  HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
  HF_EQUAL(plan.num_sendmsg, 1);
  HF_EQUAL(plan.num_sendmmsg, 0);
}

HF_CASE(an_empty_batch_is_sent) {
  Pair pair(true);
  OutgoingBatch batch;
  batch.to = &pair.receiver.local();
  HF_CHECK(pair.sender.send(batch) == SendResult::sent);
  HF_EQUAL(plan.num_sendmsg + plan.num_sendmmsg, 0);
}

HF_CASE(would_block_keeps_what_has_not_left) {
  for (const int error : {EAGAIN, ENOBUFS}) {
    Pair pair(false);
    Message message(pair.receiver.local(), 10, 1'000, 300);
    plan.sendmmsg = {3, -error, 2, -error};
    HF_CHECK(pair.sender.send(message.batch) == SendResult::would_block);
    HF_EQUAL(message.batch.num_datagrams, 7u);
    HF_EQUAL(message.batch.parts.size(), 14u);
    HF_EQUAL(message.batch.parts_per_datagram.size(), 7u);
    HF_EQUAL(message.batch.total_bytes, 6'300u);
    HF_CHECK(pair.sender.send(message.batch) == SendResult::would_block);
    HF_EQUAL(message.batch.num_datagrams, 5u);
    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    HF_CHECK(receive(pair.receiver, 10) == message.expected);
    HF_CHECK(nothing_waits(pair.receiver));
  }
}

HF_CASE(would_block_with_segmentation_keeps_the_whole_batch) {
  Pair pair(true);
  if (!pair.sender.has_gso()) return;
  Message message(pair.receiver.local(), 44, 1'472, 500);
  plan.sendmsg = {-EAGAIN};
  HF_CHECK(pair.sender.send(message.batch) == SendResult::would_block);
  HF_EQUAL(message.batch.num_datagrams, 44u);
  HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
  HF_CHECK(receive(pair.receiver, 44) == message.expected);
}

HF_CASE(refused_segmentation_falls_back_for_good) {
  for (const int error : {EIO, EINVAL}) {
    Pair pair(true);
    if (!pair.sender.has_gso()) return;
    Message message(pair.receiver.local(), 44, 1'472, 500);
    plan.sendmsg = {-error};
    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    HF_CHECK(!pair.sender.has_gso());
    HF_CHECK(receive(pair.receiver, 44) == message.expected);
    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    HF_EQUAL(plan.num_sendmsg, 1);
    HF_CHECK(receive(pair.receiver, 44) == message.expected);
  }
}

HF_CASE(old_kernels_einval_for_a_small_path_mtu_keeps_segmentation) {
  Pair pair(true);
  if (!pair.sender.has_gso()) return;
  Message message(pair.receiver.local(), 4, 9'000, 9'000);
  plan.sendmsg = {-EINVAL};
  plan.sendmmsg = {-EMSGSIZE};
  HF_CHECK(pair.sender.send(message.batch) == SendResult::too_big);
  HF_CHECK(pair.sender.has_gso());
  HF_EQUAL(message.batch.num_datagrams, 4u);
}

HF_CASE(a_dead_peers_refusal_is_retried_once_and_never_fatal) {
  for (const bool segments : {true, false}) {
    Pair pair(segments);
    Message message(pair.receiver.local(), 4, 1'000, 1'000);
    plan.sendmsg = plan.sendmmsg = {-ECONNREFUSED};
    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    HF_CHECK(receive(pair.receiver, 4) == message.expected);
    plan.sendmsg = plan.sendmmsg = {-ECONNREFUSED, -ECONNREFUSED};
    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    plan.sendmsg = plan.sendmmsg = {};
    receive(pair.receiver, segments ? 0 : 3);  // the datagrams refused twice count as lost

    HF_CHECK(pair.sender.send(message.batch) == SendResult::sent);
    plan.recvmmsg = {-ECONNREFUSED};
    HF_CHECK(receive(pair.receiver, 4) == message.expected);
  }
}

HF_CASE(sending_to_a_port_nobody_holds_goes_on) {
  for (const char* host : loopbacks) {
    UdpSocket sender(Address::parse(host, 0), UdpOptions{});
    Address gone;
    {
      const UdpSocket receiver(Address::parse(host, 0), UdpOptions{});
      gone = receiver.local();
    }
    Message message(gone, 4, 1'000, 1'000);
    for (int i = 0; i < 10; ++i) HF_CHECK(sender.send(message.batch) == SendResult::sent);
    HF_CHECK(nothing_waits(sender));
  }
}

HF_CASE(other_errors_fail_and_report_progress) {
  Pair pair(false);
  Message message(pair.receiver.local(), 10, 1'000, 1'000);
  plan.sendmmsg = {4, -ENETUNREACH};
  HF_CHECK(pair.sender.send(message.batch) == SendResult::failed);
  HF_EQUAL(message.batch.num_datagrams, 6u);
}

HF_CASE(a_datagram_no_ip_packet_can_hold_is_too_big) {
  for (const bool segments : {true, false}) {
    Pair pair(segments);
    Message message(pair.receiver.local(), 2, 66'000, 66'000);
    HF_CHECK(pair.sender.send(message.batch) == SendResult::too_big);
    HF_EQUAL(message.batch.num_datagrams, 2u);
  }
}

HF_CASE(datagrams_beyond_the_path_mtu_are_refused_not_fragmented) {
  plan = {};
  std::thread([] {
    if (!enter_network_with_mtu(1500)) return;
    for (const char* host : loopbacks) {
      const std::size_t fitting = 1500 - 8 - (host == loopbacks[0] ? 20 : 40);
      for (const bool segments : {true, false}) {
        UdpSocket sender(Address::parse(host, 0), with_segmentation(segments));
        UdpSocket receiver(Address::parse(host, 0), with_segmentation(segments));
        HF_EQUAL(holdfast::io::path_mtu(receiver.local()), 1500u);
        Message fits(receiver.local(), 40, fitting, fitting), exceeds(receiver.local(), 40, fitting + 1, 5);
        HF_CHECK(sender.send(fits.batch) == SendResult::sent);
        HF_CHECK(receive(receiver, 40) == fits.expected);
        HF_CHECK(sender.send(exceeds.batch) == SendResult::too_big);
        HF_EQUAL(sender.has_gso(), segments);
        HF_CHECK(nothing_waits(receiver));
      }
    }
  }).join();
}

HF_CASE(kernel_drops_counts_what_overflowed) {
  plan = {};
  for (const char* host : loopbacks) {
    UdpOptions small = with_segmentation(false);
    small.receive_buffer_bytes = 64 << 10;
    UdpSocket sender(Address::parse(host, 0), with_segmentation(false));
    UdpSocket receiver(Address::parse(host, 0), small);
    Message burst(receiver.local(), 200, 1'472, 1'472), last(receiver.local(), 1, 100, 100);
    HF_CHECK(sender.send(burst.batch) == SendResult::sent);
    std::size_t num_received = receiver.receive(100, [](std::span<std::uint8_t>, Duration) {});
    HF_CHECK(num_received < 200);
    HF_CHECK(sender.send(last.batch) == SendResult::sent);
    num_received += receive(receiver, 1).size();
    HF_EQUAL(receiver.kernel_drops() + num_received, 201u);
  }
}

HF_CASE(a_drop_is_seen_with_gro_too) {
  plan = {};
  UdpOptions small;
  small.receive_buffer_bytes = 64 << 10;
  UdpSocket sender(Address::parse("127.0.0.1", 0), UdpOptions{}), receiver(Address::parse("127.0.0.1", 0), small);
  Message burst(receiver.local(), 44, 1'472, 1'472), last(receiver.local(), 1, 100, 100);
  for (int i = 0; i < 20; ++i) HF_CHECK(sender.send(burst.batch) == SendResult::sent);
  receiver.receive(100, [](std::span<std::uint8_t>, Duration) {});
  HF_CHECK(sender.send(last.batch) == SendResult::sent);
  HF_EQUAL(receive(receiver, 1).size(), 1u);
  HF_CHECK(receiver.kernel_drops() > 0);
}

HF_CASE(receive_stops_after_the_asked_reads_and_lets_the_sink_write) {
  plan = {};
  UdpSocket sender(Address::parse("127.0.0.1", 0), with_segmentation(false));
  UdpSocket receiver(Address::parse("127.0.0.1", 0), with_segmentation(false));
  Message message(receiver.local(), 100, 10, 10);
  HF_CHECK(sender.send(message.batch) == SendResult::sent);
  const auto overwrite = [](std::span<std::uint8_t> datagram, Duration) {
    std::ranges::fill(datagram, std::uint8_t{0});
  };
  HF_EQUAL(receiver.receive(0, overwrite), 0u);
  const std::size_t one_read = receiver.receive(1, overwrite);
  HF_CHECK(one_read > 0 && one_read < 100);
  HF_EQUAL(receiver.receive(100, overwrite), 100 - one_read);
}

HF_CASE(a_datagram_tells_how_long_it_has_waited) {
  plan = {};
  for (const bool segments : {false, true}) {
    UdpSocket sender(Address::parse("127.0.0.1", 0), with_segmentation(segments));
    UdpSocket receiver(Address::parse("127.0.0.1", 0), with_segmentation(segments));
    Message message(receiver.local(), 3, 10, 10);
    HF_CHECK(sender.send(message.batch) == SendResult::sent);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    int num_received = 0;
    receiver.receive(4, [&](std::span<std::uint8_t>, Duration age) {
      ++num_received;
      HF_CHECK(age >= 20 * holdfast::millisecond && age <= holdfast::second);
    });
    HF_EQUAL(num_received, 3);
  }
}

HF_CASE(socket_is_non_blocking_closed_on_exec_and_tells_its_buffers) {
  UdpOptions options;
  options.receive_buffer_bytes = options.send_buffer_bytes = 128 << 10;
  const UdpSocket socket(Address::parse("127.0.0.1", 0), options);
  HF_CHECK((fcntl(socket.fd(), F_GETFL) & O_NONBLOCK) != 0);
  HF_CHECK((fcntl(socket.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  HF_CHECK(socket.local().port() != 0);
  HF_EQUAL(socket.local().host(), "127.0.0.1");
  HF_EQUAL(socket.granted_receive_buffer_bytes(), std::size_t{128} << 10);
  HF_EQUAL(socket.granted_send_buffer_bytes(), std::size_t{128} << 10);
}

HF_CASE(a_taken_port_is_named_in_the_error) {
  const UdpSocket first(Address::parse("127.0.0.1", 0), UdpOptions{});
  const std::string text = message_of<std::system_error>([&] { UdpSocket second(first.local(), UdpOptions{}); });
  HF_CHECK(text.find("127.0.0.1 port " + std::to_string(first.local().port())) != std::string::npos);
}

HF_CASE(an_ipv6_wildcard_leaves_the_port_free_for_ipv4) {
  const UdpSocket wildcard(Address::parse("::", 0), UdpOptions{});
  const UdpSocket other(Address::parse("0.0.0.0", wildcard.local().port()), UdpOptions{});
  HF_EQUAL(other.local().port(), wildcard.local().port());
}

HF_CASE(addresses_parse_and_print) {
  const Address ipv4 = Address::parse("10.1.2.3", 65535), ipv6 = Address::parse("2001:db8:0::1", 7);
  HF_EQUAL(ipv4.host(), "10.1.2.3");
  HF_EQUAL(ipv4.port(), 65535);
  HF_CHECK(!ipv4.is_ipv6() && !ipv4.is_loopback());
  HF_EQUAL(ipv6.host(), "2001:db8::1");
  HF_EQUAL(ipv6.port(), 7);
  HF_CHECK(ipv6.is_ipv6() && !ipv6.is_loopback());
  for (const char* loopback : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"}) {
    HF_CHECK(Address::parse(loopback, 0).is_loopback());
  }
  HF_EQUAL(Address::parse("fe80::1%lo", 0).host(), "fe80::1%lo");
  HF_EQUAL(Address::parse("fe80::1%1", 0).host(), "fe80::1%lo");
}

HF_CASE(names_and_malformed_addresses_are_refused) {
  for (const std::string host :
       {"", "localhost", "256.1.1.1", "1.2.3", "127.0.0.1:80", "[::1]", "::1::", "fe80::1%", "fe80::1%nosuch0"}) {
    const std::string text = message_of<std::invalid_argument>([&] { Address::parse(host, 1); });
    HF_CHECK(text.find('"' + host + "\" is not a numeric") != std::string::npos);
  }
  const std::string hidden_tail("127.0.0.1\0x", 11);
  HF_CHECK(!message_of<std::invalid_argument>([&] { Address::parse(hidden_tail, 1); }).empty());
}

HF_CASE(the_kernel_answers_for_routes_and_interfaces) {
  for (const char* host : loopbacks) {
    const Address peer = Address::parse(host, 9);
    // The device's MTU is 65,536; Linux caps an IPv4 route at what the 16-bit length field can say.
    HF_EQUAL(holdfast::io::path_mtu(peer), peer.is_ipv6() ? 65'536u : 65'535u);
    HF_EQUAL(holdfast::io::source_address_towards(peer), host);
    HF_EQUAL(holdfast::io::interface_holding(host), "lo");
  }
  HF_EQUAL(holdfast::io::interface_holding("192.0.2.1"), "");
  HF_CHECK(!message_of<std::invalid_argument>([] { holdfast::io::interface_holding("nonsense"); }).empty());
}

HF_TEST_MAIN
