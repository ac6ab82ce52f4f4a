// How far each path has come with what it has to carry of one operation, and which of them have fallen behind.
//
// All paths of a rank begin together and share its card, so one that lags has met something that the others have not: a
// port that neighbours fill, as a rule. How late that will make the operation nobody knows; how far the path is behind
// can be counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/wire.h"

namespace holdfast {

class Pace {
 public:
  // A path is behind when it lacks more than this share of all it has to carry, compared with the furthest, until it
  // lacks at most so many elements: paths take turns, so the next one is always a burst behind.
  Pace(std::uint16_t num_ranks, double behind_ratio, std::uint32_t least_elements)
      : behind_ratio_(behind_ratio), least_elements_(least_elements), paths_(num_ranks) {}

  // Only paths that are expected are compared: those that the same card carries.
  void expect(std::uint16_t peer, std::uint32_t contribution_elements, std::uint32_t result_elements) {
    paths_[peer] = {{contribution_elements, result_elements}, {0, 0}, true, false};
  }

  // It tells when it sends: a path whose peer stands still is not behind, it is waiting.
  void on_sent(std::uint16_t peer, Stage stage, std::uint32_t elements) {
    Path& path = paths_[peer];
    if (!path.expected) return;
    std::uint32_t& sent = path.sent[index(stage)];
    sent = std::min(sent + elements, path.carries[index(stage)]);
    furthest_ = std::max(furthest_, progress(path));
    const double lag = furthest_ - progress(path);
    const bool lags = lag * (path.carries[0] + path.carries[1]) > least_elements_;
    path.behind = lags && (path.behind || lag > behind_ratio_);
  }
  // The rest of it is not to be carried any more.
  void on_given_up(std::uint16_t peer, Stage stage) {
    Path& path = paths_[peer];
    path.carries[index(stage)] = path.sent[index(stage)];
  }

  bool is_behind(std::uint16_t peer) const { return paths_[peer].behind; }
  bool anybody_is_behind() const {
    return std::any_of(paths_.begin(), paths_.end(), [](const Path& path) { return path.behind; });
  }

 private:
  struct Path {
    std::uint32_t carries[2] = {0, 0};  // contributions, results
    std::uint32_t sent[2] = {0, 0};
    bool expected = false;
    bool behind = false;
  };

  static std::size_t index(Stage stage) { return stage == Stage::contribution ? 0 : 1; }
  // Shards differ in size, so each stage counts half.
  static double progress(const Path& path) {
    double share = 0;
    for (std::size_t i = 0; i < 2; ++i) share += path.carries[i] == 0 ? 1 : double{1} * path.sent[i] / path.carries[i];
    return share / 2;
  }

  double behind_ratio_;
  std::uint32_t least_elements_;
  double furthest_ = 0;
  std::vector<Path> paths_;  // by rank
};

}  // namespace holdfast
