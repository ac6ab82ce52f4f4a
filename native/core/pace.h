// How far each path has come with what it has to carry of one operation, and which of them have fallen behind.
//
// Paths of a rank begin together and share its card, so one that lags has met something that the others have not: a
// port that neighbours fill, as a rule. A rank that called late, or whose own card is slow, is behind with all of them:
// that shows in what it has been sent by then. How late that will make the operation nobody knows; how far a path is
// behind can be counted.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/wire.h"

namespace holdfast {

class Pace {
 public:
  // A path is behind when it lacks more than this share of all it has to carry, compared with the furthest, until it
  // lacks at most so many elements: paths take turns, so the next one is always a burst behind.
  Pace(std::uint16_t num_ranks, double behind_ratio, std::uint32_t least_elements)
      : behind_ratio_(behind_ratio), least_elements_(least_elements), peers_(num_ranks) {}

  // Only with peers that are expected anything is compared: those that the same card leads to. The elements are those
  // of the peer's shard and of the own one: a contribution to each is sent one way, and its result the other way.
  void expect(std::uint16_t peer, std::uint32_t peers_shard, std::uint32_t own_shard) {
    peers_[peer].expected = true;
    peers_[peer].to = Way{{peers_shard, own_shard}, {}};
    peers_[peer].from = Way{{own_shard, peers_shard}, {}};
  }

  // It tells when it sends: a path whose peer stands still is not behind, it is waiting.
  void on_sent(std::uint16_t peer, Stage stage, std::uint32_t elements) {
    Peer& path = peers_[peer];
    if (!path.expected) return;
    path.to.add(stage, elements);
    furthest_ = std::max(furthest_, path.to.progress());
    const double lag = std::max(furthest_, most_have_sent_) - path.to.progress();
    const bool lags = lag * path.to.all() > least_elements_;
    path.behind = lags && (path.behind || lag > behind_ratio_);
  }
  // The rest of it is not to be carried any more.
  void on_given_up(std::uint16_t peer, Stage stage) { peers_[peer].to.give_up(stage); }

  void on_received(std::uint16_t peer, Stage stage, std::uint32_t elements) {
    if (!peers_[peer].expected) return;
    peers_[peer].from.add(stage, elements);
    most_have_sent_ = middle_of_received();
  }

  bool is_behind(std::uint16_t peer) const { return peers_[peer].behind; }
  bool anybody_is_behind() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.behind; });
  }

 private:
  // Elements by stage. Shards differ in size, so each stage counts half.
  struct Way {
    std::array<std::uint32_t, 2> carries{};
    std::array<std::uint32_t, 2> carried{};

    static std::size_t index(Stage stage) { return stage == Stage::contribution ? 0 : 1; }
    void add(Stage stage, std::uint32_t elements) {
      std::uint32_t& so_far = carried[index(stage)];
      so_far = std::min(so_far + elements, carries[index(stage)]);
    }
    void give_up(Stage stage) { carries[index(stage)] = carried[index(stage)]; }
    double all() const { return double{1} * carries[0] + carries[1]; }
    double progress() const {
      double share = 0;
      for (std::size_t i = 0; i < 2; ++i) share += carries[i] == 0 ? 1 : double{1} * carried[i] / carries[i];
      return share / 2;
    }
  };
  struct Peer {
    Way to;
    Way from;
    bool expected = false;
    bool behind = false;
  };

  // Half of the others have come at least so far. One that called early sets no pace for all.
  double middle_of_received() const {
    std::vector<double> progress;
    for (const Peer& peer : peers_) {
      if (peer.expected) progress.push_back(peer.from.progress());
    }
    const auto middle = progress.begin() + static_cast<std::ptrdiff_t>((progress.size() - 1) / 2);
    std::nth_element(progress.begin(), middle, progress.end());
    return *middle;
  }

  double behind_ratio_;
  std::uint32_t least_elements_;
  double furthest_ = 0;        // of the own paths
  double most_have_sent_ = 0;  // to this rank
  std::vector<Peer> peers_;    // by rank
};

}  // namespace holdfast
