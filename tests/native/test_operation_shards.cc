// Shards of uneven size: each is as large as the published division says, and only what is in its place is taken.
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(shards_follow_the_published_division) {
  Setting setting;
  setting.parameters.division = Division({64, 64, 16});
  setting.total = 144;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 1).range == ElementRange{64, 128}));
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{128, 144}));
  HF_EQUAL(bench.contribution(1, 1, {0, 64}), "accepted");
  HF_EQUAL(bench.contribution(1, 2, {0, 64}), "accepted");
  HF_CHECK((bench.outbox.content_of(Stage::result, 1).range == ElementRange{0, 64}));
}

HF_CASE(an_exact_operation_is_divided_evenly) {
  Setting setting = exact_setting();
  setting.parameters.division = Division({64, 64, 16});
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{64, 96}));
}

HF_CASE(of_a_peer_that_divides_otherwise_only_what_is_in_its_place_is_taken) {
  Setting setting;
  setting.parameters.division = Division({64, 16, 64});
  setting.total = 144;  // here 0-64, 64-80, 80-144; the peers say 0-48, 48-96, 96-144
  Bench bench(setting);
  bench.call(0);
  const auto give_at = [&](Stage stage, std::uint16_t sender, ElementRange range, float value) {
    Header packet = bench.header(PacketType::data, stage, sender);
    packet.offset = range.begin;
    return bench.give(1, packet, std::vector<float>(range.size(), value));
  };
  HF_EQUAL(give_at(Stage::contribution, 1, {0, 48}, 2.0f), "accepted");
  HF_EQUAL(give_at(Stage::contribution, 2, {0, 48}, 3.0f), "accepted");
  HF_EQUAL(give_at(Stage::result, 1, {48, 96}, 7.0f), "misplaced");
  HF_EQUAL(give_at(Stage::result, 2, {96, 144}, 2.0f), "accepted");
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.all_equal({0, 48}, 2.0f));
  HF_CHECK(bench.all_equal({96, 144}, 2.0f));
  HF_EQUAL(text(bench.report().missing), "48-64 64-80 80-96 ");
  HF_CHECK(bench.all_equal({48, 96}, 0.0f));
}

HF_TEST_MAIN
