#include "io/udp.h"

#include <linux/sockios.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstring>

#include "io/clock.h"
#include "io/file_descriptor.h"

namespace holdfast::io {
namespace {

// UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128, which 64 KiB of useful datagrams never needs.
constexpr std::size_t max_segments = 64;
// 65,535 less the IPv6 and UDP headers: what one segmented send may carry whatever the family.
constexpr std::size_t max_segmented_bytes = 65'535 - 40 - 8;
constexpr std::size_t max_messages_per_send = 64;

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// The FORCE variant goes beyond net.core.[rw]mem_max where the process has CAP_NET_ADMIN. Returns what was granted.
std::size_t set_buffer(int fd, int forced, int plain, std::size_t wanted_bytes) {
  const int wanted = static_cast<int>(std::min<std::size_t>(wanted_bytes, INT_MAX / 2));
  if (!set_option(fd, SOL_SOCKET, forced, wanted)) set_option(fd, SOL_SOCKET, plain, wanted);
  int granted = 0;
  socklen_t length = sizeof(granted);
  getsockopt(fd, SOL_SOCKET, plain, &granted, &length);
  return static_cast<std::size_t>(granted) / 2;
}

// The datagram size is chosen from the path MTU, so a fragment would only hide a wrong choice and lose the whole
// datagram with any of its pieces: set "don't fragment" and let the kernel refuse with EMSGSIZE.
bool forbid_fragmentation(int fd, bool ipv6) {
  return ipv6 ? set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO)
              : set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
}

std::string endpoint(const Address& address) { return address.host() + " port " + std::to_string(address.port()); }

SendResult result_for(int error) {
  switch (error) {
    case EAGAIN:
    case ENOBUFS: return SendResult::would_block;
    case EMSGSIZE: return SendResult::too_big;
    default: return SendResult::failed;
  }
}

// Walks one batch through the kernel, remembering how far it got.
class BatchSender {
 public:
  BatchSender(int fd, OutgoingBatch& batch, bool& gso) : fd_(fd), batch_(batch), gso_(gso) {
    assert(batch.parts_per_datagram.size() == batch.num_datagrams);
  }

  SendResult send() {
    SendResult result = SendResult::sent;
    while (result == SendResult::sent && num_left() != 0) {
      result = gso_ && num_left() > 1 ? send_segmented() : send_each();
    }
    if (result != SendResult::sent) remove_done();
    return result;
  }

 private:
  struct Extent {
    std::size_t num_datagrams = 0;
    std::size_t num_parts = 0;
  };

  std::size_t num_left() const { return batch_.num_datagrams - done_.num_datagrams; }
  std::size_t bytes_left() const { return batch_.total_bytes - done_.num_datagrams * batch_.datagram_bytes; }
  std::size_t parts_left() const { return batch_.parts.size() - done_.num_parts; }

  // The leading datagrams that one segmented send can carry: nearly always all of them.
  Extent next_segmented() const {
    if (num_left() <= max_segments && bytes_left() <= max_segmented_bytes && parts_left() <= IOV_MAX) {
      return {num_left(), parts_left()};
    }
    Extent extent;
    const std::size_t fitting = max_segmented_bytes / std::max<std::size_t>(batch_.datagram_bytes, 1);
    const std::size_t limit = std::min({num_left(), max_segments, std::max<std::size_t>(fitting, 1)});
    while (extent.num_datagrams < limit) {
      const std::size_t parts = batch_.parts_per_datagram[done_.num_datagrams + extent.num_datagrams];
      if (extent.num_datagrams > 0 && extent.num_parts + parts > IOV_MAX) break;
      extent.num_parts += parts;
      ++extent.num_datagrams;
    }
    return extent;
  }

  msghdr message(std::size_t first_part, std::size_t num_parts) const {
    msghdr header{};
    header.msg_name = const_cast<sockaddr_storage*>(&batch_.to->storage);
    header.msg_namelen = batch_.to->length;
    header.msg_iov = batch_.parts.data() + first_part;
    header.msg_iovlen = num_parts;
    return header;
  }

  SendResult send_segmented() {
    const Extent extent = next_segmented();
    msghdr header = message(done_.num_parts, extent.num_parts);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t))] = {};
    if (extent.num_datagrams > 1) {
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
      cmsghdr* segment = CMSG_FIRSTHDR(&header);
      segment->cmsg_level = SOL_UDP;
      segment->cmsg_type = UDP_SEGMENT;
      segment->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
      const auto segment_bytes = static_cast<std::uint16_t>(batch_.datagram_bytes);
      std::memcpy(CMSG_DATA(segment), &segment_bytes, sizeof(segment_bytes));
    }
    if (sendmsg(fd_, &header, 0) >= 0) {
      advance(extent);
      return SendResult::sent;
    }
    const int error = errno;
    if ((error == EIO || error == EINVAL) && extent.num_datagrams > 1) return send_without_segmentation();
    return after_error(error, extent);
  }

  // Kernels before 6.14 answer EINVAL also where the datagrams exceed the path MTU. Segmentation is to blame only if
  // the same datagrams pass one by one.
  SendResult send_without_segmentation() {
    const std::size_t before = done_.num_datagrams;
    const SendResult result = send_each();
    if (done_.num_datagrams > before) gso_ = false;
    return result;
  }

  SendResult send_each() {
    mmsghdr messages[max_messages_per_send];
    const std::size_t num_messages = std::min(num_left(), max_messages_per_send);
    std::size_t part = done_.num_parts;
    for (std::size_t i = 0; i < num_messages; ++i) {
      const std::size_t num_parts = batch_.parts_per_datagram[done_.num_datagrams + i];
      messages[i] = {message(part, num_parts), 0};
      part += num_parts;
    }
    // A count below num_messages hides why it stopped; the next round asks again and is told.
    const int num_sent = sendmmsg(fd_, messages, static_cast<unsigned>(num_messages), 0);
    if (num_sent < 0) return after_error(errno, {1, messages[0].msg_hdr.msg_iovlen});
    for (int i = 0; i < num_sent; ++i) advance({1, messages[i].msg_hdr.msg_iovlen});
    return SendResult::sent;
  }

  // `sent` here means "go on". A refusal is the ICMP answer to an earlier datagram whose port had no listener: ask
  // once more, then count the datagrams as lost on the way, for a restarting peer is no fault of this socket.
  SendResult after_error(int error, Extent refused) {
    if (error == EINTR) return SendResult::sent;
    if (error != ECONNREFUSED) return result_for(error);
    if (retried_) advance(refused);
    retried_ = true;
    return SendResult::sent;
  }

  void advance(Extent extent) {
    done_.num_datagrams += extent.num_datagrams;
    done_.num_parts += extent.num_parts;
  }

  void remove_done() {
    batch_.total_bytes = bytes_left();
    batch_.num_datagrams -= static_cast<std::uint32_t>(done_.num_datagrams);
    const auto first = batch_.parts_per_datagram.begin();
    batch_.parts_per_datagram.erase(first, first + static_cast<std::ptrdiff_t>(done_.num_datagrams));
    batch_.parts.erase(batch_.parts.begin(), batch_.parts.begin() + static_cast<std::ptrdiff_t>(done_.num_parts));
    done_ = {};
  }

  int fd_;
  OutgoingBatch& batch_;
  bool& gso_;
  Extent done_;
  bool retried_ = false;
};

constexpr Duration longest_age = second;

// What the kernel says beside the bytes of one read.
struct Ancillary {
  std::size_t segment_bytes = 0;  // 0: the read is one datagram
  std::uint32_t num_drops = 0;    // since opening, modulo 2^32; 0 also when there is nothing to tell
  Time stamped_at = 0;            // by the wall clock, when the network handed it over; 0: not known
};

Ancillary ancillary_of(msghdr& header) {
  Ancillary result;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level == SOL_UDP && item->cmsg_type == UDP_GRO) {
      int segment_bytes = 0;
      std::memcpy(&segment_bytes, CMSG_DATA(item), sizeof(segment_bytes));
      result.segment_bytes = static_cast<std::size_t>(std::max(segment_bytes, 0));
    } else if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_RXQ_OVFL) {
      std::memcpy(&result.num_drops, CMSG_DATA(item), sizeof(result.num_drops));
    } else if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
      timespec stamp{};
      std::memcpy(&stamp, CMSG_DATA(item), sizeof(stamp));
      result.stamped_at = stamp.tv_sec * second + stamp.tv_nsec;
    }
  }
  return result;
}

std::size_t cut(std::span<std::uint8_t> read, std::size_t segment_bytes, Duration age, const UdpSocket::Sink& sink) {
  if (segment_bytes == 0 || read.size() <= segment_bytes) {
    sink(read, age);
    return 1;
  }
  std::size_t num_datagrams = 0;
  for (std::size_t offset = 0; offset < read.size(); offset += segment_bytes, ++num_datagrams) {
    sink(read.subspan(offset, std::min(segment_bytes, read.size() - offset)), age);
  }
  return num_datagrams;
}

}  // namespace

// Buffers that hold the largest read there is, so that nothing is ever truncated.
struct UdpSocket::ReceiveRing {
  static constexpr std::size_t buffer_bytes = 65'536;
  // Buffers a power of two apart would start in the same cache sets and evict one another.
  static constexpr std::size_t stride = buffer_bytes + 5 * 64;
  // With GRO a read may fill its buffer, and eight full ones stay in a 1 MiB L2. Without it a read is one datagram,
  // which touches only the front of its buffer, so more of them fit and save system calls.
  static constexpr std::size_t num_buffers_gro = 8;
  static constexpr std::size_t num_buffers_plain = 32;

  struct Control {
    alignas(
        cmsghdr) char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint32_t)) + CMSG_SPACE(sizeof(timespec))];
  };

  explicit ReceiveRing(std::size_t num_buffers)
      : storage(std::make_unique_for_overwrite<std::uint8_t[]>(num_buffers * stride)),
        parts(num_buffers),
        controls(num_buffers),
        messages(num_buffers) {
    for (std::size_t i = 0; i < num_buffers; ++i) parts[i] = {storage.get() + i * stride, buffer_bytes};
  }

  // The kernel overwrites the lengths, so every read starts from fresh headers.
  int read(int fd) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      msghdr& header = messages[i].msg_hdr;
      header.msg_iov = &parts[i];
      header.msg_iovlen = 1;
      header.msg_control = controls[i].bytes;
      header.msg_controllen = sizeof(controls[i].bytes);
    }
    return recvmmsg(fd, messages.data(), static_cast<unsigned>(messages.size()), MSG_DONTWAIT, nullptr);
  }

  std::unique_ptr<std::uint8_t[]> storage;
  std::vector<iovec> parts;
  std::vector<Control> controls;
  std::vector<mmsghdr> messages;
};

UdpSocket::UdpSocket(const Address& local, const UdpOptions& options) {
  const bool ipv6 = local.is_ipv6();
  FileDescriptor opened(socket(local.storage.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (opened.get() < 0) throw_errno("open a UDP socket for " + endpoint(local));
  const int fd = opened.get();

  if (!forbid_fragmentation(fd, ipv6)) throw_errno("forbid fragmentation on the UDP socket for " + endpoint(local));
  // A dual-stack socket would report IPv4 peers under mapped addresses and claim the port of both families.
  if (ipv6 && !set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) throw_errno("restrict " + endpoint(local) + " to IPv6");
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
  receive_buffer_bytes_ = set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, options.receive_buffer_bytes);
  send_buffer_bytes_ = set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, options.send_buffer_bytes);
  if (options.use_segmentation) {
    gso_ = set_option(fd, SOL_UDP, UDP_SEGMENT, 0);  // 0 is the default and changes nothing: it asks whether it exists
    gro_ = set_option(fd, SOL_UDP, UDP_GRO, 1);
  }

  if (bind(fd, reinterpret_cast<const sockaddr*>(&local.storage), local.length) != 0) {
    throw_errno("bind a UDP socket to " + endpoint(local));
  }
  local_.length = sizeof(local_.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local_.storage), &local_.length) != 0) {
    throw_errno("read the port of the UDP socket bound to " + endpoint(local));
  }
  ring_ = std::make_unique<ReceiveRing>(gro_ ? ReceiveRing::num_buffers_gro : ReceiveRing::num_buffers_plain);
  fd_ = opened.release();
}

UdpSocket::~UdpSocket() { ::close(fd_); }

std::size_t UdpSocket::unsent_bytes() const {
  int bytes = 0;
  return ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(std::max(bytes, 0)) : 0;
}

SendResult UdpSocket::send(OutgoingBatch& batch) { return BatchSender(fd_, batch, gso_).send(); }

std::size_t UdpSocket::receive(std::size_t max_reads, const Sink& sink) {
  std::size_t num_datagrams = 0;
  bool retried = false;
  drained_ = false;
  for (std::size_t reads = 0; !drained_ && reads < max_reads; ++reads) {
    const int num_messages = ring_->read(fd_);
    if (num_messages < 0) {
      // An ICMP error for something sent earlier, or a signal; neither says anything about the datagrams waiting.
      drained_ = retried || (errno != ECONNREFUSED && errno != EINTR);
      retried = true;
      continue;
    }
    const Time read_at = wall_clock_now();
    for (std::size_t i = 0; i < static_cast<std::size_t>(num_messages); ++i) {
      const Ancillary ancillary = ancillary_of(ring_->messages[i].msg_hdr);
      // The kernel's counter is 32 bits wide, and reads may overtake one another by a little: only forward counts.
      const auto ahead = static_cast<std::int32_t>(ancillary.num_drops - static_cast<std::uint32_t>(kernel_drops_));
      if (ancillary.num_drops != 0 && ahead > 0) kernel_drops_ += static_cast<std::uint32_t>(ahead);
      // A clock that was set in between must not make a datagram older than the network could.
      const Duration age =
          ancillary.stamped_at == 0 ? 0 : std::clamp<Duration>(read_at - ancillary.stamped_at, 0, longest_age);
      auto* bytes = static_cast<std::uint8_t*>(ring_->parts[i].iov_base);
      num_datagrams += cut({bytes, ring_->messages[i].msg_len}, ancillary.segment_bytes, age, sink);
    }
    drained_ = static_cast<std::size_t>(num_messages) < ring_->messages.size();
  }
  return num_datagrams;
}

}  // namespace holdfast::io
