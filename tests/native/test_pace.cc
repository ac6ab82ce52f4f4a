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

HF_CASE(who_has_less_to_carry_is_not_further_for_being_done) {
  Pace pace(4, 0.2, 2 * burst);
  for (const std::uint16_t peer : {1, 2}) pace.expect(peer, shard, shard);
  pace.expect(3, 10, shard);
  send(pace, 3, 10);  // all of its contribution
  for (std::uint32_t sent = 0; sent < shard; sent += burst) {
    send(pace, 1, burst);
    send(pace, 2, burst);
    HF_CHECK(!pace.anybody_is_behind());
  }
  pace.on_sent(1, Stage::result, shard / 2);
  pace.on_sent(3, Stage::result, burst);
  HF_CHECK(pace.is_behind(3));  // of results it has as many as the others
}

HF_CASE(who_calls_after_half_of_the_others_is_behind_with_all_its_paths) {
  Pace pace = three_paths();
  pace.on_received(1, Stage::contribution, shard);  // one that was early sets no pace
  send(pace, 1, burst);
  HF_CHECK(!pace.anybody_is_behind());
  pace.on_received(2, Stage::contribution, shard);
  for (const std::uint16_t peer : {1, 2, 3}) {
    send(pace, peer, burst);
    HF_CHECK(pace.is_behind(peer));
  }
  for (const std::uint16_t peer : {1, 2, 3}) send(pace, peer, shard - 2 * burst);
  HF_CHECK(!pace.anybody_is_behind());
}

HF_CASE(a_rank_with_a_small_shard_is_not_late_for_having_all_of_it) {
  Pace pace(4, 0.2, 2 * burst);
  for (const std::uint16_t peer : {1, 2, 3}) {
    pace.expect(peer, shard, 10);
    pace.on_received(peer, Stage::contribution, 10);
  }
  send(pace, 1, burst);
  HF_CHECK(!pace.anybody_is_behind());
}

HF_CASE(who_is_gone_sets_no_pace_and_is_not_behind) {
  Pace pace = three_paths();
  send(pace, 1, shard);
  send(pace, 3, burst);
  HF_CHECK(pace.is_behind(3));
  pace.on_gone(3);
  HF_CHECK(!pace.anybody_is_behind());
  send(pace, 3, burst);
  HF_CHECK(!pace.anybody_is_behind());
}

HF_CASE(what_is_given_up_is_not_lacked) {
  Pace pace = three_paths();
  send(pace, 1, shard);
  send(pace, 3, burst);
  HF_CHECK(pace.is_behind(3));
  pace.on_given_up(3, Stage::contribution);
  HF_CHECK(!pace.anybody_is_behind());
  pace.on_sent(3, Stage::result, burst);
  HF_CHECK(!pace.anybody_is_behind());
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
