// Losing exactly the packets that carry one thing: those and no others, all of them or the first few; and a run whose
// calls somebody else decides about.
#include <cstdint>
#include <vector>

#include "sim/carrier_loss.h"
#include "sim/run.h"
#include "sim/world.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::sim;

namespace {

struct Packet {
  PacketType type = PacketType::data;
  std::uint8_t flags = 0;
  std::uint8_t credit = 0;
  std::uint32_t operation = 0;
  std::uint32_t completion_us = 0;
};

// Decides about packets from rank 0 to rank 1, and lets pass what it does not lose.
struct Crossing {
  explicit Crossing(const Scenario& scenario) : loss(scenario, 2) {}

  bool loses(const Packet& packet, std::uint16_t from = 0) {
    Header header;
    header.type = packet.type;
    header.flags = packet.flags;
    header.credit = packet.credit;
    header.stage = Stage::contribution;
    header.format = Format::f32;
    header.operation = packet.operation;
    header.completion_us = packet.completion_us;
    std::vector<std::uint8_t> bytes(header_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    const std::uint16_t to = 1 - from;
    const bool lost = loss.loses(from, to, bytes, random).has_value();
    if (!lost) loss.on_passed(from, to, bytes);
    return lost;
  }

  int lost_of(int count, const Packet& packet) {
    int lost = 0;
    for (int i = 0; i < count; ++i) lost += loses(packet) ? 1 : 0;
    return lost;
  }

  CarrierLoss loss;
  Random random{1, 1};
};

const Packet plain{};
const Packet marked{.flags = flag::last_percentile};
const Packet end{.type = PacketType::end, .flags = flag::last_percentile | flag::ack_now};
const Packet ack{.type = PacketType::ack};
const Packet sampled{.completion_us = 1};

}  // namespace

HF_CASE(each_class_loses_its_own_carriers_and_no_others) {
  struct Class {
    double Scenario::* ratio;
    Packet carrier;
  };
  const Class classes[] = {{&Scenario::mark_loss_ratio, marked},
                           {&Scenario::end_loss_ratio, end},
                           {&Scenario::sample_loss_ratio, sampled},
                           {&Scenario::ack_loss_ratio, ack}};
  for (const Class& losing : classes) {
    Scenario scenario;
    scenario.*losing.ratio = 1;
    Crossing crossing(scenario);
    HF_EQUAL(crossing.lost_of(10, plain), 0);
    for (const Class& other : classes) HF_EQUAL(crossing.lost_of(10, other.carrier), &other == &losing ? 10 : 0);
  }
}

HF_CASE(a_share_of_the_carriers_is_lost_by_chance) {
  Scenario scenario;
  scenario.mark_loss_ratio = 0.5;
  Crossing crossing(scenario);
  const int lost = crossing.lost_of(10'000, marked);
  HF_CHECK(lost > 4'800 && lost < 5'200);
}

HF_CASE(only_the_first_of_each_piece_of_news_are_lost) {
  Scenario scenario;
  scenario.end_loss_ratio = scenario.ack_loss_ratio = 1;
  scenario.carriers_lost_first = 2;
  Crossing crossing(scenario);
  for (std::uint32_t operation = 0; operation < 3; ++operation) {
    Packet of_operation = end;
    of_operation.operation = operation;
    HF_EQUAL(crossing.lost_of(3, of_operation), 2);
  }
  HF_EQUAL(crossing.lost_of(10, ack), 2);  // acks belong to no operation
  HF_CHECK(crossing.loses(ack, 1));        // the way back has its own
}

HF_CASE(a_credit_is_news_until_one_packet_with_it_passes) {
  Scenario scenario;
  scenario.credit_loss_ratio = 1;
  scenario.carriers_lost_first = 3;
  Crossing crossing(scenario);
  const Packet short_credit{.credit = 1};
  HF_EQUAL(crossing.lost_of(10, plain), 0);  // no credit was the first that was known
  HF_EQUAL(crossing.lost_of(10, short_credit), 3);
  HF_EQUAL(crossing.lost_of(10, plain), 3);
  HF_EQUAL(crossing.lost_of(10, short_credit), 3);  // the same value again is another change

  scenario.carriers_lost_first = 0;
  Crossing for_good(scenario);
  HF_EQUAL(for_good.lost_of(100, short_credit), 100);
  HF_EQUAL(for_good.lost_of(1, plain), 0);
}

HF_CASE(a_job_forms_before_its_carriers_are_lost) {
  Scenario scenario;
  scenario.ack_loss_ratio = 1;
  scenario.exact_ratio = 0;
  scenario.num_notes = 0;
  const RunResult result = run(scenario, 1);
  HF_EQUAL(result.num_violations, 0u);
  HF_CHECK(result.network.lost_acks > 0);
}

namespace {

// Gives every operation a deadline of its own, and keeps what came of it.
class OwnDeadlines final : public Steering {
 public:
  CallChoice choose(std::uint16_t, const PlannedOperation& operation) override {
    CallChoice choice;
    choice.deadline = (operation.number + 1) * 10 * millisecond;
    choice.contributions.sample_us = 1000 + operation.number;
    return choice;
  }
  void learn(std::uint16_t rank, const OperationReport& report) override {
    reports.push_back(report);
    ranks.push_back(rank);
  }

  std::vector<OperationReport> reports;
  std::vector<std::uint16_t> ranks;
};

}  // namespace

HF_CASE(somebody_else_can_decide_about_calls) {
  Scenario scenario;
  scenario.min_ranks = scenario.max_ranks = 3;
  scenario.exact_ratio = 0;
  scenario.num_operations = 4;
  scenario.min_elements = 100;
  scenario.last_packets_loss_ratio = 1;  // which leaves nothing of such small messages
  OwnDeadlines steering;
  const RunResult result = run(scenario, 1, false, &steering);
  HF_EQUAL(result.num_violations, 0u);
  HF_EQUAL(steering.reports.size(), 12u);
  for (std::size_t i = 0; i < steering.reports.size(); ++i) {
    const OperationReport& report = steering.reports[i];
    const Duration t_b = (report.operation + 1) * 5 * millisecond;
    HF_CHECK(report.contributions.end == StageEnd::bound);
    HF_EQUAL(report.contributions.elapsed, t_b);
    HF_CHECK(steering.ranks[i] < 3);
  }
}

HF_CASE(what_was_sent_to_whom_is_on_record) {
  Scenario scenario;
  scenario.min_ranks = scenario.max_ranks = 3;
  scenario.num_operations = 2;
  scenario.min_elements = scenario.max_elements = 9000;
  scenario.num_notes = 0;
  const RunResult result = run(scenario, 1);
  HF_EQUAL(result.messages.size(), 2u * 2 * 3 * 2);  // operations, stages, senders, receivers
  for (const SentMessage& message : result.messages) {
    HF_CHECK(message.from != message.to);
    HF_CHECK(message.sending.first_at <= message.sending.last_at);
    HF_CHECK(message.sending.num_datagrams >= 5);
  }
}

HF_TEST_MAIN
