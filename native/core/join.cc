#include "core/join.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "core/byte_order.h"

namespace holdfast {
namespace {

enum class Kind : std::uint8_t { introduction = 1, whereabouts = 2, datagram_limit = 3 };

bool is_text(std::string_view text, std::size_t most) {
  const auto printable = [](char letter) { return letter > ' ' && letter <= '~'; };
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), printable);
}

class Writer {
 public:
  explicit Writer(Kind kind) { put(join_version).put(static_cast<std::uint8_t>(kind)); }

  template <std::unsigned_integral Integer>
  Writer& put(Integer value) {
    bytes_.resize(bytes_.size() + sizeof value);
    store_big_endian(bytes_.data() + bytes_.size() - sizeof value, value);
    return *this;
  }
  Writer& put(std::span<const std::uint8_t> octets) {
    bytes_.insert(bytes_.end(), octets.begin(), octets.end());
    return *this;
  }
  Writer& put_text(std::string_view text, std::size_t most) {
    if (!is_text(text, most))
      throw std::invalid_argument("not a name that can be announced: '" + std::string(text) + "'");
    put(static_cast<std::uint8_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

// After the first read that goes wrong every further one gives zero, and `whole` says that it did.
class Reader {
 public:
  Reader(std::span<const std::uint8_t> message, Kind kind) : rest_(message) {
    const bool version = get<std::uint8_t>() == join_version;
    const bool as_expected = get<std::uint8_t>() == static_cast<std::uint8_t>(kind);
    expect(version && as_expected && message.size() <= max_join_bytes);
  }

  template <std::unsigned_integral Integer>
  Integer get() {
    const auto octets = take(sizeof(Integer));
    return octets.empty() ? Integer{0} : load_big_endian<Integer>(octets.data());
  }
  template <std::size_t size>
  void get(std::array<std::uint8_t, size>& out) {
    const auto octets = take(size);
    std::copy(octets.begin(), octets.end(), out.begin());
  }
  std::string get_text(std::size_t most) {
    const auto octets = take(get<std::uint8_t>());
    std::string text(octets.begin(), octets.end());
    expect(is_text(text, most));
    return text;
  }
  void expect(bool condition) { good_ = good_ && condition; }
  // Everything was as expected, and nothing follows.
  bool whole() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::uint8_t> take(std::size_t size) {
    expect(size <= rest_.size());
    if (!good_) return {};
    const auto octets = rest_.first(size);
    rest_ = rest_.subspan(size);
    return octets;
  }

  std::span<const std::uint8_t> rest_;
  bool good_ = true;
};

bool is_possible(const DatagramLimit& limit) {
  return limit.size >= min_datagram_bytes && limit.size <= max_datagram_bytes;
}

}  // namespace

std::vector<std::uint8_t> encode(const Introduction& introduction) {
  const auto flag = [](bool set) { return static_cast<std::uint8_t>(set); };
  return Writer(Kind::introduction)
      .put(static_cast<std::uint8_t>(introduction.protection))
      .put(flag(introduction.deterministic))
      .put(flag(introduction.measures_deadline))
      .put(flag(introduction.uneven_shards))
      .put(static_cast<std::uint8_t>(introduction.hadamard))
      .put(introduction.hierarchy)
      .put(introduction.warmup_operations)
      .put(introduction.key_fingerprint)
      .put_text(introduction.host_identity, max_host_identity_bytes)
      .take();
}

std::optional<Introduction> decode_introduction(std::span<const std::uint8_t> message) {
  Reader reader(message, Kind::introduction);
  Introduction introduction;
  const auto protection = reader.get<std::uint8_t>();
  const auto deterministic = reader.get<std::uint8_t>();
  const auto measures_deadline = reader.get<std::uint8_t>();
  const auto uneven_shards = reader.get<std::uint8_t>();
  const auto hadamard = reader.get<std::uint8_t>();
  reader.expect(protection <= static_cast<std::uint8_t>(Protection::insecure));
  reader.expect(deterministic <= 1 && measures_deadline <= 1 && uneven_shards <= 1);
  reader.expect(hadamard <= static_cast<std::uint8_t>(HadamardChoice::automatic));
  introduction.protection = static_cast<Protection>(protection);
  introduction.deterministic = deterministic == 1;
  introduction.measures_deadline = measures_deadline == 1;
  introduction.uneven_shards = uneven_shards == 1;
  introduction.hadamard = static_cast<HadamardChoice>(hadamard);
  introduction.hierarchy = reader.get<std::uint16_t>();
  reader.expect(introduction.hierarchy <= max_ranks);
  introduction.warmup_operations = reader.get<std::uint32_t>();
  reader.get(introduction.key_fingerprint);
  introduction.host_identity = reader.get_text(max_host_identity_bytes);
  if (!reader.whole()) return std::nullopt;
  return introduction;
}

std::vector<std::uint8_t> encode(const Whereabouts& whereabouts) {
  if (whereabouts.port == 0) throw std::invalid_argument("a rank listens on a port other than 0");
  return Writer(Kind::whereabouts)
      .put_text(whereabouts.address, max_address_bytes)
      .put(whereabouts.port)
      .put(whereabouts.process)
      .take();
}

std::optional<Whereabouts> decode_whereabouts(std::span<const std::uint8_t> message) {
  Reader reader(message, Kind::whereabouts);
  Whereabouts whereabouts;
  whereabouts.address = reader.get_text(max_address_bytes);
  whereabouts.port = reader.get<std::uint16_t>();
  reader.expect(whereabouts.port != 0);
  reader.get(whereabouts.process);
  if (!reader.whole()) return std::nullopt;
  return whereabouts;
}

std::vector<std::uint8_t> encode(const DatagramLimit& limit) {
  if (!is_possible(limit)) throw std::invalid_argument("datagrams have 256 to 65280 bytes");
  return Writer(Kind::datagram_limit).put(limit.size).take();
}

std::optional<DatagramLimit> decode_datagram_limit(std::span<const std::uint8_t> message) {
  Reader reader(message, Kind::datagram_limit);
  const DatagramLimit limit{reader.get<std::uint32_t>()};
  reader.expect(is_possible(limit));
  if (!reader.whole()) return std::nullopt;
  return limit;
}

}  // namespace holdfast
