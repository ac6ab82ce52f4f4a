// Sealing and opening over many key changes: nothing forged ever opens or moves the opener, and what an honest sender
// sealed opens while its key is the current one or a neighbour of it.
#include <algorithm>
#include <vector>

#include "core/keys.h"
#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int max_steps = 120;

struct Sealed {
  Bytes datagram;  // header | payload | tag
  Bytes payload;   // in the clear
  std::uint32_t phase = 0;
};

Direction direction() {
  Direction made{7, 1, 2, {}, {}};
  made.sending_process.fill(0x11);
  made.receiving_process.fill(0x22);
  return made;
}

class Exchange {
 public:
  explicit Exchange(fuzz::Input& input)
      : protection_(input.flag() ? Protection::encrypted : Protection::authenticated),
        sealer_(key(), direction(), protection_, input.between(1, 3)),
        opener_(key(), direction(), protection_),
        stranger_(key(), reversed(direction()), protection_) {}

  void step(fuzz::Input& input) {
    const std::uint32_t choice = input.below(8);
    if (choice <= 3 || sealed_.empty()) seal(input.below(40));
    if (choice <= 1) deliver(sealed_.back());  // in order
    const Sealed& picked = sealed_[sealed_.size() - 1 - input.below(static_cast<std::uint32_t>(sealed_.size()))];
    switch (choice) {
      case 4: deliver(picked); break;
      case 5: deliver_forged(picked, input); break;
      case 6: deliver_with_phase(picked, input.take<std::uint8_t>()); break;
      case 7: refuse(stranger_, picked.datagram); break;
      default: break;
    }
  }

 private:
  static JobKey key() {
    JobKey made;
    made.fill(0x42);
    return made;
  }

  void seal(std::uint32_t payload_bytes) {
    Sealed sealed;
    sealed.payload.resize(payload_bytes);
    for (std::size_t i = 0; i < payload_bytes; ++i) sealed.payload[i] = static_cast<std::uint8_t>(next_ + i);
    Header header;
    header.type = PacketType::data;
    header.stage = Stage::note;
    header.total = payload_bytes;
    header.key_phase = sealer_.next_phase();
    header.transmission = next_++;
    sealed.phase = sealer_.phase();
    FUZZ_CHECK(header.key_phase == static_cast<std::uint8_t>(sealed.phase));
    Bytes& datagram = sealed.datagram;
    datagram.resize(header_bytes + payload_bytes + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(datagram.data(), header_bytes));
    sealer_.seal(header.transmission, {datagram.data(), header_bytes}, sealed.payload, datagram.data() + header_bytes,
                 std::span<std::uint8_t, tag_bytes>(datagram.data() + datagram.size() - tag_bytes, tag_bytes));
    if (protection_ == Protection::authenticated) std::ranges::copy(sealed.payload, datagram.begin() + header_bytes);
    sealed_.push_back(std::move(sealed));
  }

  static std::optional<Drop> open(Opener& opener, Bytes& datagram) {
    Header header;
    const std::size_t payload_bytes = datagram.size() - header_bytes - tag_bytes;
    if (const auto drop = decode(datagram, payload_bytes, header)) return drop;
    return opener.open(
        header, std::span(datagram).first(header_bytes), std::span(datagram).subspan(header_bytes, payload_bytes),
        std::span<const std::uint8_t, tag_bytes>(datagram.data() + datagram.size() - tag_bytes, tag_bytes));
  }

  void deliver(const Sealed& sealed) {
    const std::uint32_t before = opener_.phase();
    const bool reachable = sealed.phase + 1 >= before && sealed.phase <= before + 1;
    Bytes datagram = sealed.datagram;
    const auto drop = open(opener_, datagram);
    if (!reachable) {
      FUZZ_CHECK(drop == Drop::key_phase || drop == Drop::authentication);
      FUZZ_CHECK(opener_.phase() == before);
      return;
    }
    FUZZ_CHECK(!drop);
    FUZZ_CHECK(std::equal(sealed.payload.begin(), sealed.payload.end(), datagram.begin() + header_bytes));
    FUZZ_CHECK(opener_.phase() == std::max(before, sealed.phase));
  }

  void deliver_forged(const Sealed& sealed, fuzz::Input& input) {
    Bytes datagram = sealed.datagram;
    const std::uint32_t at = input.below(static_cast<std::uint32_t>(datagram.size()));
    datagram[at] ^= static_cast<std::uint8_t>(1u << input.below(8));
    if (input.rarely()) datagram[3] = static_cast<std::uint8_t>(opener_.phase() + 1);
    if (datagram != sealed.datagram) refuse(opener_, std::move(datagram));
  }
  void deliver_with_phase(const Sealed& sealed, std::uint8_t phase) {
    Bytes datagram = sealed.datagram;
    datagram[3] = phase;
    if (datagram != sealed.datagram) refuse(opener_, std::move(datagram));
  }
  static void refuse(Opener& opener, Bytes datagram) {
    const std::uint32_t before = opener.phase();
    FUZZ_CHECK(open(opener, datagram));
    FUZZ_CHECK(opener.phase() == before);
  }

  Protection protection_;
  Sealer sealer_;
  Opener opener_;
  Opener stranger_;  // of the way back
  std::vector<Sealed> sealed_;
  std::uint64_t next_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Exchange exchange(input);
  for (int step = 0; step < max_steps && !input.empty(); ++step) exchange.step(input);
  return 0;
}
