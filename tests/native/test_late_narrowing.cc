// What leaves in sixteen bits when a path has fallen behind, and that results stay the same for everybody.
#include <cstring>
#include <random>
#include <vector>

#include "core/narrowing.h"
#include "kernels/kernels.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr ElementRange own_shard{4096, 4096 + 2048};
constexpr std::uint32_t seven = 7;  // the operation
constexpr std::uint16_t leader = 1, laggard = 2;

struct Fixture {
  Fixture() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& value : results) value = normal(random);
    right = results;
    narrowing.set_results(reinterpret_cast<std::uint8_t*>(results.data()));
  }

  static Pace pace() {
    Pace pace(3, 0.2, 16);
    pace.expect(leader, own_shard.size(), own_shard.size());
    pace.expect(laggard, own_shard.size(), own_shard.size());
    return pace;
  }
  void let_fall_behind() {
    narrowing.on_sent(Stage::contribution, leader, {0, own_shard.size()}, false);
    narrowing.on_sent(Stage::contribution, laggard, {0, 16}, false);
  }
  void let_catch_up() {
    narrowing.on_sent(Stage::contribution, laggard, {16, own_shard.size()}, true);
    send_result(laggard, 0, 512, true);
  }

  static ElementRange part(std::uint32_t begin, std::uint32_t end) {
    return {own_shard.begin + begin, own_shard.begin + end};
  }
  Narrowing::Choice choose(std::uint32_t begin, std::uint32_t end) const {
    return narrowing.choose(Stage::result, leader, part(begin, end));
  }
  void send_result(std::uint16_t peer, std::uint32_t begin, std::uint32_t end, bool narrow) {
    narrowing.on_sent(Stage::result, peer, part(begin, end), narrow);
  }
  // All of the shard's right results in sixteen bits.
  std::vector<float> rounded() const {
    std::vector<std::uint16_t> narrow(right.size());
    kernels::narrow_stochastic(Format::bf16, narrow.data(), right.data(), right.size(),
                               Narrowing::seed(seven, 0, own_shard.begin));
    std::vector<float> wide(right.size());
    kernels::cast(Format::f32, wide.data(), Format::bf16, narrow.data(), narrow.size());
    return wide;
  }

  Narrowing narrowing{{seven, 0, own_shard}, pace()};
  std::vector<float> results = std::vector<float>(own_shard.size());
  std::vector<float> right;
};

bool operator==(const Narrowing::Choice& left, const Narrowing::Choice& right) {
  return left.count == right.count && left.narrow == right.narrow;
}

bool same(const std::vector<float>& left, const std::vector<float>& right, std::uint32_t begin, std::uint32_t end) {
  return std::memcmp(left.data() + begin, right.data() + begin, (end - begin) * sizeof(float)) == 0;
}

}  // namespace

HF_CASE(while_all_paths_are_level_everything_keeps_its_bits) {
  Fixture rank;
  HF_CHECK((rank.choose(0, 2048) == Narrowing::Choice{2048, false}));
  rank.send_result(leader, 0, 2048, false);
  HF_CHECK(same(rank.results, rank.right, 0, 2048));
}

HF_CASE(a_contribution_is_narrow_on_the_path_that_is_behind_and_on_no_other) {
  Fixture rank;
  rank.let_fall_behind();
  HF_CHECK((rank.narrowing.choose(Stage::contribution, laggard, {16, 400}) == Narrowing::Choice{384, true}));
  HF_CHECK((rank.narrowing.choose(Stage::contribution, leader, {16, 400}) == Narrowing::Choice{384, false}));
}

HF_CASE(what_somebody_has_keeps_its_bits_and_what_nobody_has_is_rounded_for_all) {
  Fixture rank;
  rank.send_result(leader, 0, 512, false);
  rank.let_fall_behind();
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{1536, true}));  // on every path
  rank.send_result(leader, 512, 1024, true);
  // The other path comes to both.
  HF_CHECK((rank.choose(0, 2048) == Narrowing::Choice{512, false}));
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{512, true}));
  HF_CHECK((rank.choose(1024, 2048) == Narrowing::Choice{1024, true}));
  HF_CHECK(same(rank.results, rank.right, 0, 512) && same(rank.results, rank.rounded(), 512, 1024));
  HF_CHECK(same(rank.results, rank.right, 1024, 2048));
  HF_CHECK(!same(rank.right, rank.rounded(), 512, 1024));
}

HF_CASE(who_has_caught_up_sends_all_bits_again_but_of_what_is_rounded) {
  Fixture rank;
  rank.let_fall_behind();
  rank.send_result(leader, 0, 512, true);
  rank.let_catch_up();
  HF_CHECK((rank.choose(0, 2048) == Narrowing::Choice{512, true}));
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{1536, false}));
}

HF_CASE(parts_are_rounded_as_the_whole_would_be) {
  Fixture rank;
  rank.let_fall_behind();
  for (std::uint32_t begin = 0; begin < 2048; begin += 272) {
    rank.send_result(leader, begin, std::min(begin + 272, 2048u), true);
    rank.send_result(laggard, begin, std::min(begin + 272, 2048u), true);  // it is rounded once
  }
  HF_CHECK(same(rank.results, rank.rounded(), 0, 2048));
}

HF_CASE(the_callers_copy_is_rounded_too_and_left_alone_once_it_is_the_callers) {
  Fixture rank;
  std::vector<float> callers = rank.right;
  rank.narrowing.set_callers_results(reinterpret_cast<std::uint8_t*>(callers.data()));
  rank.let_fall_behind();
  rank.send_result(leader, 0, 512, true);
  HF_CHECK(same(callers, rank.rounded(), 0, 512) && same(callers, rank.right, 512, 2048));
  rank.narrowing.set_callers_results(nullptr);
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{1536, false}));
  HF_CHECK((rank.choose(0, 2048) == Narrowing::Choice{512, true}));
}

HF_CASE(what_was_summed_of_narrow_contributions_is_sent_so) {
  Fixture rank;
  rank.narrowing.on_narrow_contribution({512, 1024});
  HF_CHECK((rank.choose(0, 2048) == Narrowing::Choice{512, false}));
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{512, true}));
  HF_CHECK((rank.choose(1024, 2048) == Narrowing::Choice{1024, false}));
  rank.send_result(leader, 512, 768, false);  // before that was known
  HF_CHECK((rank.choose(512, 2048) == Narrowing::Choice{256, false}));
  HF_CHECK((rank.choose(768, 2048) == Narrowing::Choice{256, true}));
}

HF_TEST_MAIN
