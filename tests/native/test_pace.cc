// Which path has fallen behind the others, told by what each has sent.
#include "core/pace.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr std::uint32_t shard = 1000;  // elements
constexpr std::uint32_t burst = 50;

// Three paths that carry a contribution and a result each; behind by a fifth, and caught up within two bursts.
Pace three_paths() {
  Pace pace(4, 0.2, 2 * burst);
  for (const std::uint16_t peer : {1, 2, 3}) pace.expect(peer, shard, shard);
  return pace;
}

void send(Pace& pace, std::uint16_t peer, std::uint32_t elements) { pace.on_sent(peer, Stage::contribution, elements); }

}  // namespace

HF_CASE(paths_that_take_turns_are_level) {
  Pace pace = three_paths();
  for (std::uint32_t sent = 0; sent < shard; sent += burst) {
    for (const std::uint16_t peer : {1, 2, 3}) {
      send(pace, peer, burst);
      HF_CHECK(!pace.anybody_is_behind());
    }
  }
}

HF_CASE(who_lacks_a_fifth_is_behind_until_it_has_caught_up) {
  Pace pace = three_paths();
  send(pace, 1, 500);
  send(pace, 2, 450);
  send(pace, 3, 100);  // lacks 400 of the 2,000 elements of a path: a fifth, and no more
  HF_CHECK(!pace.anybody_is_behind());
  send(pace, 1, 50);
  send(pace, 3, 40);
  HF_CHECK(pace.is_behind(3) && !pace.is_behind(1) && !pace.is_behind(2));
  HF_CHECK(pace.anybody_is_behind());
  send(pace, 3, 300);  // lacks 110
  HF_CHECK(pace.is_behind(3));
  send(pace, 3, 15);
  HF_CHECK(!pace.anybody_is_behind());
}

HF_CASE(who_sends_nothing_waits_and_is_not_behind) {
  Pace pace = three_paths();
  send(pace, 1, shard);
  send(pace, 2, shard);
  HF_CHECK(!pace.anybody_is_behind());
  send(pace, 3, burst);  // it goes on
  HF_CHECK(pace.is_behind(3));
}

HF_CASE(a_small_lack_is_none_however_small_the_shards) {
  Pace pace(3, 0.2, 2 * burst);
  pace.expect(1, burst, burst);
  pace.expect(2, burst, burst);
  send(pace, 1, burst);
  send(pace, 2, 1);  // half of what it carries
  HF_CHECK(!pace.anybody_is_behind());
}

HF_CASE(shards_of_different_sizes_count_by_their_shares) {
  Pace pace(3, 0.2, 2 * burst);
  pace.expect(1, 4 * shard, shard);
  pace.expect(2, shard, shard);
  send(pace, 1, 4 * shard);
  send(pace, 2, shard);
  HF_CHECK(!pace.anybody_is_behind());
  pace.on_sent(1, Stage::result, shard / 2);
  pace.on_sent(2, Stage::result, burst);
  HF_CHECK(pace.is_behind(2));
}

HF_CASE(what_is_given_up_is_not_lacked) {
  Pace pace = three_paths();
  send(pace, 1, shard);
  send(pace, 3, burst);
  HF_CHECK(pace.is_behind(3));
  pace.on_given_up(3, Stage::contribution);
  pace.on_sent(3, Stage::result, burst);
  HF_CHECK(!pace.is_behind(3));
}

HF_CASE(who_is_not_expected_sets_no_pace) {
  Pace pace(4, 0.2, 2 * burst);
  pace.expect(1, shard, shard);
  pace.expect(2, shard, shard);
  send(pace, 3, shard);  // on this host
  send(pace, 1, burst);
  HF_CHECK(!pace.anybody_is_behind());
}

HF_TEST_MAIN
