// Which blocks are here: the grid, its ragged end, and runs that cross words.
#include <random>
#include <string>

#include "core/division.h"
#include "core/presence.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

std::string runs(const Presence& presence, bool present, std::uint32_t begin, std::uint32_t count) {
  std::ostringstream text;
  presence.for_each_run(begin, count, present, [&](ElementRange run) { text << run.begin << "-" << run.end << " "; });
  return text.str();
}

std::uint32_t mark(Presence& presence, std::uint32_t begin, std::uint32_t count) {
  return presence.mark(begin, count, [](ElementRange) {});
}

}  // namespace

HF_CASE(nothing_of_nothing_is_complete) {
  const Presence empty(0);
  HF_CHECK(empty.complete());
  HF_EQUAL(empty.num_blocks(), 0u);
  HF_CHECK(empty.fits(0, 0));
  HF_CHECK(!empty.fits(0, 1));
  HF_CHECK(!empty.fits(16, 0));
  HF_EQUAL(runs(empty, false, 0, 0), "");
}

HF_CASE(blocks_are_sixteen_elements_and_the_last_may_be_short) {
  HF_EQUAL(Presence(1).num_blocks(), 1u);
  HF_EQUAL(Presence(16).num_blocks(), 1u);
  HF_EQUAL(Presence(17).num_blocks(), 2u);
  HF_EQUAL(Presence(UINT32_MAX).num_blocks(), 1u << 28);
}

HF_CASE(only_whole_blocks_or_the_ragged_end_fit) {
  const Presence presence(40);
  HF_CHECK(presence.fits(0, 16));
  HF_CHECK(presence.fits(0, 32));
  HF_CHECK(presence.fits(0, 40));
  HF_CHECK(presence.fits(32, 8));
  HF_CHECK(presence.fits(16, 24));
  HF_CHECK(!presence.fits(0, 8));
  HF_CHECK(!presence.fits(8, 16));
  HF_CHECK(!presence.fits(32, 7));
  HF_CHECK(!presence.fits(32, 9));
  HF_CHECK(!presence.fits(32, 16));
  HF_CHECK(!presence.fits(48, 0));
  HF_CHECK(!presence.fits(16, UINT32_MAX - 15));  // would wrap round to zero
  HF_CHECK(!presence.fits(UINT32_MAX - 15, 16));
}

HF_CASE(marking_counts_what_is_new) {
  Presence presence(100);
  HF_EQUAL(mark(presence, 16, 32), 32u);
  HF_EQUAL(presence.present_elements(), 32u);
  HF_EQUAL(mark(presence, 16, 32), 0u);
  HF_EQUAL(mark(presence, 0, 64), 32u);
  HF_EQUAL(mark(presence, 96, 4), 4u);
  HF_EQUAL(presence.missing_elements(), 32u);
  HF_CHECK(!presence.complete());
  HF_EQUAL(mark(presence, 0, 100), 32u);
  HF_CHECK(presence.complete());
}

HF_CASE(marking_visits_the_missing_runs_only) {
  Presence presence(100);
  mark(presence, 16, 16);
  mark(presence, 64, 16);
  std::ostringstream visited;
  presence.mark(0, 100, [&](ElementRange run) { visited << run.begin << "-" << run.end << " "; });
  HF_EQUAL(visited.str(), "0-16 32-64 80-100 ");
}

HF_CASE(runs_stop_at_the_range_asked_for) {
  Presence presence(200);
  mark(presence, 32, 96);
  HF_EQUAL(runs(presence, true, 0, 200), "32-128 ");
  HF_EQUAL(runs(presence, false, 0, 200), "0-32 128-200 ");
  HF_EQUAL(runs(presence, true, 48, 32), "48-80 ");
  HF_EQUAL(runs(presence, false, 16, 32), "16-32 ");
  HF_EQUAL(runs(presence, false, 32, 96), "");
  HF_EQUAL(runs(presence, true, 0, 0), "");
}

HF_CASE(runs_cross_words_of_64_blocks) {
  Presence presence(64 * 16 * 3 + 5);
  mark(presence, 60 * 16, 16 * 72);
  HF_EQUAL(runs(presence, true, 0, presence.num_elements()), "960-2112 ");
  HF_CHECK(!presence.has_block(59));
  HF_CHECK(presence.has_block(60) && presence.has_block(63) && presence.has_block(64) && presence.has_block(131));
  HF_CHECK(!presence.has_block(132));
  mark(presence, 0, presence.num_elements());
  HF_CHECK(presence.complete());
  HF_EQUAL(runs(presence, true, 0, presence.num_elements()), "0-3077 ");
}

HF_CASE(presence_agrees_with_a_vector_of_bools) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t total = 1 + random() % 5000;
    Presence presence(total);
    std::vector<bool> oracle(total);
    for (int step = 0; step < 30; ++step) {
      const std::uint32_t begin = random() % presence.num_blocks() * 16;
      const std::uint32_t count = std::min<std::uint32_t>(total - begin, 16 * (1 + random() % 100));
      HF_CHECK(presence.fits(begin, count));
      std::uint32_t fresh = 0;
      for (std::uint32_t i = begin; i < begin + count; ++i) fresh += oracle[i] ? 0 : 1;
      std::uint32_t visited = 0;
      HF_EQUAL(presence.mark(begin, count,
                             [&](ElementRange run) {
                               for (std::uint32_t i = run.begin; i < run.end; ++i) HF_CHECK(!oracle[i]);
                               visited += run.size();
                             }),
               fresh);
      HF_EQUAL(visited, fresh);
      std::fill(oracle.begin() + begin, oracle.begin() + begin + count, true);
    }
    std::uint32_t present = 0;
    for (const bool bit : oracle) present += bit ? 1 : 0;
    HF_EQUAL(presence.present_elements(), present);
  }
}

// -- division ---------------------------------------------------------------------------------------------------------

HF_CASE(shards_cover_the_bucket_in_order_and_differ_by_one_element_at_most) {
  for (const std::uint32_t total : {0u, 1u, 2u, 7u, 8u, 1000u, UINT32_MAX}) {
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
      std::uint32_t next = 0;
      for (std::uint32_t shard = 0; shard < ranks; ++shard) {
        const ElementRange range = shard_range(total, ranks, shard);
        HF_EQUAL(range.begin, next);
        HF_CHECK(range.size() == total / ranks || range.size() == total / ranks + 1);
        next = range.end;
      }
      HF_EQUAL(next, total);
    }
  }
}

HF_CASE(responsibility_rotates_so_that_every_rank_gets_every_shard) {
  for (std::uint32_t operation : {0u, 5u, UINT32_MAX - 3}) {
    std::vector<bool> taken(4);
    for (std::uint32_t rank = 0; rank < 4; ++rank) taken[responsible_shard(rank, operation, 4)] = true;
    HF_CHECK(taken == std::vector<bool>(4, true));
  }
  HF_EQUAL(responsible_shard(3, 2, 4), 1u);
  HF_EQUAL(responsible_shard(0, UINT32_MAX, 4), 3u);
}

HF_CASE(no_receiver_hears_two_senders_in_one_turn) {
  for (std::uint32_t turn = 1; turn < 5; ++turn) {
    std::vector<int> heard(5);
    for (std::uint32_t rank = 0; rank < 5; ++rank) ++heard[peer_of_turn(rank, turn, 5)];
    HF_CHECK(heard == std::vector<int>(5, 1));
    HF_CHECK(peer_of_turn(2, turn, 5) != 2);
  }
}

HF_TEST_MAIN
