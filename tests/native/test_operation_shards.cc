// Shards of uneven size: each is as large as the published division says, and only those who divide alike are believed.
#include <string>
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

std::string give_at(Bench& bench, Stage stage, std::uint16_t sender, ElementRange range, float value,
                    std::uint8_t division) {
  Header packet = bench.header(PacketType::data, stage, sender);
  packet.offset = range.begin;
  packet.division = division;
  return bench.give(1, packet, std::vector<float>(range.size(), value));
}

HF_CASE(shards_follow_the_published_division) {
  Setting setting;
  setting.parameters.division = Division({64, 64, 16});
  setting.total = 288;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 1).range == ElementRange{128, 256}));
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{256, 288}));
  for (const std::uint16_t peer : {1, 2}) {
    HF_EQUAL(give_at(bench, Stage::contribution, peer, {0, 128}, 1.0f, 1), "accepted");
  }
  HF_CHECK((bench.outbox.content_of(Stage::result, 1).range == ElementRange{0, 128}));
}

HF_CASE(an_exact_operation_is_divided_evenly) {
  Setting setting = exact_setting();
  setting.parameters.division = Division({64, 64, 16});
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{64, 96}));
}

HF_CASE(a_small_bucket_is_divided_evenly) {
  Setting setting;
  setting.parameters.division = Division({64, 64, 16});
  setting.total = 3 * 64 - 1;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{128, 191}));
  HF_EQUAL(int{bench.outbox.content_of(Stage::contribution, 2).division}, 0);
}

// Three ranks that may divide differently for a while, and a bucket large enough for it.
Setting divided_setting() {
  Setting setting;
  setting.parameters.division = Division({64, 16, 64}, 5);
  setting.parameters.needs_majority = true;
  setting.total = 288;  // 0-128, 128-160, 160-288
  return setting;
}

HF_CASE(packets_carry_the_number_of_the_division) {
  Bench bench(divided_setting());
  bench.call(0);
  HF_EQUAL(int{bench.outbox.content_of(Stage::contribution, 1).division}, 5);
  HF_EQUAL(give_at(bench, Stage::contribution, 1, {0, 128}, 2.0f, 5), "accepted");
  HF_EQUAL(give_at(bench, Stage::contribution, 2, {0, 128}, 3.0f, 5), "accepted");
  HF_EQUAL(int{bench.outbox.content_of(Stage::result, 1).division}, 5);
}

HF_CASE(nothing_is_taken_of_a_peer_that_divides_otherwise) {
  Bench bench(divided_setting());
  bench.call(0);
  HF_EQUAL(give_at(bench, Stage::contribution, 1, {0, 96}, 2.0f, 0), "other_division");
  HF_EQUAL(give_at(bench, Stage::contribution, 2, {0, 128}, 3.0f, 5), "accepted");
  HF_EQUAL(give_at(bench, Stage::result, 1, {128, 160}, 7.0f, 4), "other_division");
  HF_EQUAL(give_at(bench, Stage::result, 2, {160, 288}, 2.0f, 5), "accepted");
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(bench.data[5], (1.0f + 2 * 3.0f) / 3);  // who came stands for who did not
  HF_CHECK(bench.all_equal({160, 288}, 2.0f));
  HF_EQUAL(text(bench.report().missing), "128-160 ");
}

HF_CASE(an_operation_in_which_most_divide_otherwise_is_lost) {
  Bench bench(divided_setting());
  bench.call(0);
  for (const std::uint16_t peer : {1, 2}) give_at(bench, Stage::contribution, peer, {0, 96}, 2.0f, 0);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.report().status == Status::done);
  HF_EQUAL(text(bench.report().missing), "0-288 ");
  HF_EQUAL(bench.report().delivered, 0u);
  HF_CHECK(bench.all_equal({0, 288}, 0.0f));
}

HF_TEST_MAIN
