// How far each path has come with what it has to carry of one operation, and which of them have fallen behind.
//
// Paths of a rank begin together and share its card, so one that lags has met something that the others have not: a
// port that neighbours fill, as a rule. A rank that called late, or whose own card is slow, is behind with all of them:
// that shows in what it has been sent by then. How late that will make the operation nobody knows; how far a path is
// behind can be counted, in elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/wire.h"

namespace holdfast {

class Pace {
 public:
  // A path is behind when it lacks more than this share of all it has to carry, compared with the furthest of them or
  // with what half of the peers have sent here, until it lacks at most so many elements: paths take turns, so the next
  // one is always a burst behind.
  Pace(std::uint16_t num_ranks, double behind_ratio, std::uint32_t least_elements)
      : behind_ratio_(behind_ratio), least_elements_(least_elements), peers_(num_ranks) {}

  // Only with peers that are expected anything is compared: those that the same card leads to. To each goes a
  // contribution to its shard, and the result of the own one.
  void expect(std::uint16_t peer, std::uint32_t peers_shard, std::uint32_t own_shard) {
    peers_[peer] = {};
    peers_[peer].expected = true;
    peers_[peer].carries = {peers_shard, own_shard};
  }
  // It is not compared any more, and sets no pace.
  void on_gone(std::uint16_t peer) { peers_[peer] = {}; }

  // It tells when it sends: a path whose peer stands still does not fall behind, it waits.
  void on_sent(std::uint16_t peer, Stage stage, std::uint32_t elements) {
    Peer& path = peers_[peer];
    if (!path.expected) return;
    const std::size_t of = index(stage);
    path.sent[of] = std::min(path.sent[of] + elements, path.carries[of]);
    furthest_[of] = std::max(furthest_[of], path.sent[of]);
    judge(path);
  }
  // The rest of it is not to be carried any more.
  void on_given_up(std::uint16_t peer, Stage stage) {
    Peer& path = peers_[peer];
    path.carries[index(stage)] = path.sent[index(stage)];
    if (path.behind) judge(path);
  }

  void on_received(std::uint16_t peer, Stage stage, std::uint32_t elements) {
    if (!peers_[peer].expected) return;
    peers_[peer].received[index(stage)] += elements;
    middle_is_known_ = false;
  }

  bool is_behind(std::uint16_t peer) const { return peers_[peer].behind; }
  bool anybody_is_behind() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.behind; });
  }

 private:
  using ByStage = std::array<std::uint32_t, 2>;  // elements of contributions, of results
  struct Peer {
    ByStage carries{};
    ByStage sent{};
    ByStage received{};
    bool expected = false;
    bool behind = false;
  };

  static std::size_t index(Stage stage) { return stage == Stage::contribution ? 0 : 1; }

  // Shards differ in size: who has less to carry has not come further for being done with it, nor lacks what it has not
  // to carry.
  void judge(Peer& path) {
    find_middle();
    std::uint32_t lacks = 0;
    for (std::size_t of = 0; of < 2; ++of) {
      const std::uint32_t pace = std::min(std::max(furthest_[of], most_have_sent_[of]), path.carries[of]);
      lacks += pace - std::min(pace, path.sent[of]);
    }
    const double all = double{1} * path.carries[0] + path.carries[1];
    path.behind = lacks > least_elements_ && (path.behind || lacks > behind_ratio_ * all);
  }

  // Half of the others have come at least so far; of three and more, one that called early sets no pace for all.
  void find_middle() {
    if (middle_is_known_) return;
    middle_is_known_ = true;
    for (std::size_t of = 0; of < 2; ++of) {
      scratch_.clear();
      for (const Peer& peer : peers_) {
        if (peer.expected) scratch_.push_back(peer.received[of]);
      }
      const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>((scratch_.size() - 1) / 2);
      std::nth_element(scratch_.begin(), middle, scratch_.end());
      most_have_sent_[of] = *middle;
    }
  }

  double behind_ratio_;
  std::uint32_t least_elements_;
  ByStage furthest_{};        // of the own paths
  ByStage most_have_sent_{};  // to this rank
  bool middle_is_known_ = false;
  std::vector<Peer> peers_;  // by rank
  std::vector<std::uint32_t> scratch_;
};

}  // namespace holdfast
