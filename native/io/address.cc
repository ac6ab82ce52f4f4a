// Addresses, and what the kernel's routes and interfaces say about them. Nothing here sends a packet.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "io/file_descriptor.h"
#include "io/udp.h"

namespace holdfast::io {
namespace {

const sockaddr* generic(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }
const sockaddr_in& as_ipv4(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in*>(address); }
const sockaddr_in6& as_ipv6(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in6*>(address); }

// The number of the interface in "fe80::1%eth0" or "fe80::1%2"; 0 when there is none.
unsigned scope_of(const std::string& zone) {
  if (const unsigned index = if_nametoindex(zone.c_str()); index != 0) return index;
  char name[IF_NAMESIZE];
  if (zone.empty() || zone.size() > 9 || zone.find_first_not_of("0123456789") != std::string::npos) return 0;
  const auto index = static_cast<unsigned>(std::stoul(zone));
  return if_indextoname(index, name) != nullptr ? index : 0;
}

bool parse_ipv4(const std::string& host, std::uint16_t port, Address& address) {
  sockaddr_in parsed{};
  if (inet_pton(AF_INET, host.c_str(), &parsed.sin_addr) != 1) return false;
  parsed.sin_family = AF_INET;
  parsed.sin_port = htons(port);
  std::memcpy(&address.storage, &parsed, sizeof(parsed));
  address.length = sizeof(parsed);
  return true;
}

bool parse_ipv6(const std::string& host, std::uint16_t port, Address& address) {
  sockaddr_in6 parsed{};
  const std::size_t percent = host.find('%');
  if (inet_pton(AF_INET6, host.substr(0, percent).c_str(), &parsed.sin6_addr) != 1) return false;
  if (percent != std::string::npos) {
    parsed.sin6_scope_id = scope_of(host.substr(percent + 1));
    if (parsed.sin6_scope_id == 0) return false;
  }
  parsed.sin6_family = AF_INET6;
  parsed.sin6_port = htons(port);
  std::memcpy(&address.storage, &parsed, sizeof(parsed));
  address.length = sizeof(parsed);
  return true;
}

// The same host, whatever the port; a scope is compared only where `wanted` states one.
bool is_same_host(const sockaddr* held, const Address& wanted) {
  if (held == nullptr || held->sa_family != wanted.storage.ss_family) return false;
  if (!wanted.is_ipv6()) return as_ipv4(held).sin_addr.s_addr == as_ipv4(generic(wanted)).sin_addr.s_addr;
  const sockaddr_in6& left = as_ipv6(held);
  const sockaddr_in6& right = as_ipv6(generic(wanted));
  return std::memcmp(&left.sin6_addr, &right.sin6_addr, sizeof(in6_addr)) == 0 &&
         (right.sin6_scope_id == 0 || left.sin6_scope_id == right.sin6_scope_id);
}

// Connecting a UDP socket asks the kernel for a route and sends nothing.
FileDescriptor connected_probe(const Address& peer) {
  FileDescriptor probe(socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) throw_errno("open a UDP socket to ask for the route to " + peer.host());
  if (connect(probe.get(), generic(peer), peer.length) != 0) throw_errno("find a route to " + peer.host());
  return probe;
}

}  // namespace

Address Address::parse(const std::string& host, std::uint16_t port) {
  Address address;
  const bool has_nul = host.find('\0') != std::string::npos;
  if (!has_nul && (parse_ipv4(host, port, address) || parse_ipv6(host, port, address))) return address;
  throw std::invalid_argument('"' + host +
                              "\" is not a numeric IPv4 or IPv6 address; resolve names before the job starts, and name "
                              "an existing interface after % in a link-local address");
}

std::string Address::host() const {
  char text[NI_MAXHOST];
  const int error = getnameinfo(generic(*this), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "";
}

std::uint16_t Address::port() const {
  return ntohs(is_ipv6() ? as_ipv6(generic(*this)).sin6_port : as_ipv4(generic(*this)).sin_port);
}

bool Address::is_loopback() const {
  const auto is_127 = [](std::uint8_t first_byte) { return first_byte == 127; };
  if (!is_ipv6()) return is_127(static_cast<std::uint8_t>(ntohl(as_ipv4(generic(*this)).sin_addr.s_addr) >> 24));
  const in6_addr& address = as_ipv6(generic(*this)).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && is_127(address.s6_addr[12]));
}

std::size_t path_mtu(const Address& peer) {
  const FileDescriptor probe = connected_probe(peer);
  int mtu = 0;
  socklen_t length = sizeof(mtu);
  const int level = peer.is_ipv6() ? IPPROTO_IPV6 : IPPROTO_IP;
  const int option = peer.is_ipv6() ? IPV6_MTU : IP_MTU;
  if (getsockopt(probe.get(), level, option, &mtu, &length) != 0) throw_errno("read the path MTU to " + peer.host());
  return static_cast<std::size_t>(mtu);
}

std::string source_address_towards(const Address& peer) {
  const FileDescriptor probe = connected_probe(peer);
  Address source;
  source.length = sizeof(source.storage);
  if (getsockname(probe.get(), reinterpret_cast<sockaddr*>(&source.storage), &source.length) != 0) {
    throw_errno("read the source address towards " + peer.host());
  }
  return source.host();
}

std::string interface_holding(const std::string& address) {
  const Address wanted = Address::parse(address, 0);
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw_errno("list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (is_same_host(entry->ifa_addr, wanted)) return entry->ifa_name;
  }
  return "";
}

}  // namespace holdfast::io
