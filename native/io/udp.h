// Non-blocking UDP with segmentation offload: the only file that makes socket calls for datagrams.
//
// A batch is up to 64 KiB of equal-sized datagrams for one destination (the last may be shorter). Where the kernel
// has UDP_SEGMENT the batch crosses the stack once; where it lacks it, the same batch goes out by sendmmsg.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/time.h"

namespace holdfast::io {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  // Numeric IPv4 or IPv6 only: names are resolved before the job starts. Throws std::invalid_argument.
  static Address parse(const std::string& host, std::uint16_t port);
  std::string host() const;
  std::uint16_t port() const;
  bool is_ipv6() const { return storage.ss_family == AF_INET6; }
  bool is_loopback() const;
};

struct UdpOptions {
  std::size_t receive_buffer_bytes = 8u << 20;  // asked for; see UdpSocket::granted_receive_buffer_bytes
  std::size_t send_buffer_bytes = 8u << 20;
  bool use_segmentation = true;  // UDP_SEGMENT (GSO) and UDP_GRO, where the kernel has them
};

// One batch for one destination. `parts` concatenated are `num_datagrams` datagrams of `datagram_bytes` each
// (the last may be shorter); no datagram's bytes straddle a part boundary except between its own parts.
struct OutgoingBatch {
  const Address* to = nullptr;
  std::vector<iovec> parts;
  std::vector<std::uint32_t> parts_per_datagram;  // so that the fallback can split without copying
  std::uint32_t datagram_bytes = 0;
  std::uint32_t num_datagrams = 0;
  std::size_t total_bytes = 0;
};

enum class SendResult : std::uint8_t { sent, would_block, too_big, failed };

class UdpSocket {
 public:
  // Binds; port 0 picks a free one. Throws std::system_error with a message that names the address.
  UdpSocket(const Address& local, const UdpOptions& options);
  ~UdpSocket();
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  int fd() const { return fd_; }
  const Address& local() const { return local_; }
  bool has_gso() const { return gso_; }
  bool has_gro() const { return gro_; }
  // What the kernel really gave (getsockopt's figure halved, as the kernel doubles it for its own overhead).
  std::size_t granted_receive_buffer_bytes() const { return receive_buffer_bytes_; }
  std::size_t granted_send_buffer_bytes() const { return send_buffer_bytes_; }

  // Sends one batch. `sent` leaves the batch as it was. On anything else some leading datagrams may have left already:
  // they are removed from the front of the batch, so that calling again with the same batch continues.
  // would_block also stands for ENOBUFS, when epoll may call the socket writable at once: pace the next try.
  // A GSO send that the kernel refuses (EIO, EINVAL on old drivers) turns GSO off for good and falls back.
  // Never throws, apart from std::bad_alloc.
  SendResult send(OutgoingBatch& batch);

  // Reads what is there, at most `max_reads` kernel reads (recvmmsg), and hands every datagram to `sink`, cut at the
  // GRO segment size, with how long it has waited in the socket. The bytes are valid only during the call and may be
  // modified (decryption in place). Returns the number of datagrams.
  using Sink = std::function<void(std::span<std::uint8_t> datagram, Duration age)>;
  std::size_t receive(std::size_t max_reads, const Sink& sink);
  // Bytes handed to the kernel that have not left this host yet.
  std::size_t unsent_bytes() const;
  // Did the last `receive` take all there was?
  bool drained() const { return drained_; }

  // What the kernel dropped because this socket's buffer was full (SO_RXQ_OVFL), since opening. It is told with the
  // first datagram queued after the drop, and counts a GRO super-packet once, so read it as a lower bound.
  std::uint64_t kernel_drops() const { return kernel_drops_; }

 private:
  int fd_ = -1;
  Address local_;
  bool gso_ = false;
  bool gro_ = false;
  bool drained_ = true;
  std::size_t receive_buffer_bytes_ = 0;
  std::size_t send_buffer_bytes_ = 0;
  std::uint64_t kernel_drops_ = 0;
  struct ReceiveRing;
  std::unique_ptr<ReceiveRing> ring_;
};

// The path MTU towards `peer`, from the kernel's route (connected probe socket, IP_MTU / IPV6_MTU). Sends nothing.
// Like source_address_towards, throws std::system_error where there is no route.
std::size_t path_mtu(const Address& peer);
// The local address the kernel would use towards `peer`, and the interface that holds it. Sends nothing.
std::string source_address_towards(const Address& peer);
// "" when no interface has it; throws as Address::parse does.
std::string interface_holding(const std::string& address);

}  // namespace holdfast::io
