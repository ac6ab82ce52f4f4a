// Losing exactly what the end of a stage goes by, and what a report then says of it.
#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "endpoint_network.h"
#include "endpoint_rogue.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

bool is_end(const Bytes& datagram) { return datagram[1] == static_cast<std::uint8_t>(PacketType::end); }
bool is_data(const Bytes& datagram) { return datagram[1] == static_cast<std::uint8_t>(PacketType::data); }
bool is_marked_data(const Bytes& datagram) { return is_data(datagram) && (datagram[2] & flag::last_percentile) != 0; }

// One bounded operation on three ranks, with an early wait of 20 ms, and two packets lost beside what `filter` takes.
Duration longest_with(const std::function<bool(const Bytes&)>& takes, std::size_t elements = 60'000,
                      std::vector<OperationReport>* reports = nullptr) {
  Network network(3);
  network.join();
  int to_lose = 2;
  network.filter = [&](auto, auto, Bytes& datagram) {
    if (is_data(datagram) && !is_marked_data(datagram) && to_lose-- > 0) return false;
    return !takes(datagram);
  };
  auto data = gradients(3, elements);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    Call call = call_on(data[rank], Delivery::bounded, 400 * millisecond);
    call.contributions = {20 * millisecond, 100u + rank};
    call.results = {20 * millisecond, 200u + rank};
    network[rank].call(network.now, call);
  }
  network.run_for(second);
  Duration longest = 0;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    const OperationReport& report = network.reports[rank].at(0);
    HF_CHECK(report.status == Status::done && report.elapsed <= 400 * millisecond);
    longest = std::max(longest, report.elapsed);
    if (reports != nullptr) reports->push_back(report);
  }
  return longest;
}

Header header_of(Network& network, std::uint16_t from, const Bytes& datagram) {
  Header header;
  const std::size_t tag_size = tag_bytes_of(network[from].settings().protection);
  HF_CHECK(!decode(datagram, datagram.size() - header_bytes - tag_size, header));
  return header;
}

}  // namespace

HF_CASE(losing_ends_or_marks_costs_an_early_wait_and_losing_both_the_bound) {
  const Duration with_all = longest_with([](const Bytes&) { return false; });
  const Duration without_marks = longest_with(is_marked_data);
  const Duration without_ends = longest_with(is_end);
  const Duration without_both =
      longest_with([](const Bytes& datagram) { return is_end(datagram) || is_marked_data(datagram); });
  HF_CHECK(with_all < 20 * millisecond);       // a quarter of the wait after the ends
  HF_CHECK(without_marks < 20 * millisecond);  // the ends say as much
  HF_CHECK(without_ends >= 20 * millisecond && without_ends < 100 * millisecond);
  HF_CHECK(without_both >= 200 * millisecond);
}

HF_CASE(samples_arrive_even_when_all_data_that_carries_them_is_lost) {
  std::vector<OperationReport> reports;
  longest_with(is_data, 3000, &reports);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    for (std::uint16_t peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      HF_EQUAL(reports[rank].peers[peer].contributions_sample_us, 100u + peer);
    }
  }
}

HF_CASE(losing_a_fifth_of_all_pings_and_acks_makes_no_stage_wait_for_its_bound) {
  // Windows and credits travel in these, too: what was said before, or is said next, holds.
  std::mt19937 random(1);
  const Duration elapsed = longest_with([&](const Bytes& datagram) {
    const auto type = static_cast<PacketType>(datagram[1]);
    return (type == PacketType::ack || type == PacketType::ping) && random() % 5 == 0;
  });
  HF_CHECK(elapsed < 200 * millisecond);
}

// One datagram of a contribution comes so long after all others; what the reports of this and later operations say of
// it.
std::vector<std::uint64_t> late_elements_when_one_datagram_comes_after(Duration delay) {
  Network network(3);
  network.join();
  Bytes held;
  network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& datagram) {
    if (!held.empty() || from != 1 || to != 0 || !is_data(datagram) || is_marked_data(datagram)) return true;
    held = datagram;
    return false;
  };
  auto data = gradients(3, 60'000);
  const auto call_all = [&] {
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      Call call = call_on(data[rank], Delivery::bounded, 400 * millisecond);
      call.contributions = call.results = {20 * millisecond, 0};
      network[rank].call(network.now, call);
    }
  };
  call_all();
  network.run_for(delay);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(network.reports[0].at(0).contributions.end == StageEnd::early);
  network.in_flight.push({network.now, network.num_sent++, 1, 0, held});
  for (int i = 0; i < 2; ++i) {
    call_all();
    network.run_for(100 * millisecond);
  }
  std::vector<std::uint64_t> late;
  for (const OperationReport& report : network.reports[0]) late.push_back(report.late_elements);
  return late;
}

HF_CASE(who_has_ended_an_operation_is_not_sent_the_rest_of_its_results) {
  // Rank 1's results never reach rank 0, and are sent again and again.
  Network network(3);
  network.join();
  std::size_t to_rank_0 = 0;
  network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& datagram) {
    const Header header = header_of(network, from, datagram);
    const bool of_the_first = header.stage == Stage::result && header.operation == 0;
    const bool result = of_the_first && carries_elements(header.type) && from == 1 && to == 0;
    to_rank_0 += result;
    return !result;
  };
  auto data = gradients(3, 60'000);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    Parameters parameters;
    parameters.t_b = 200 * millisecond;
    parameters.repair_grace = 150 * millisecond;
    network[rank].publish(parameters);
    Call call = call_on(data[rank], Delivery::bounded, 400 * millisecond);
    if (rank == 0) call.limit = {30 * millisecond, 40 * millisecond, 20 * millisecond};
    network[rank].call(network.now, call);
  }
  network.run_for(45 * millisecond);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(network.reports[0].at(0).results.end == StageEnd::limit);
  // It says so with the next acknowledgement that it has a reason to send.
  auto next = gradients(3, 600);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    network[rank].call(network.now, call_on(next[rank], Delivery::bounded, 400 * millisecond));
  }
  network.run_for(10 * millisecond);
  const std::size_t by_then = to_rank_0;
  HF_CHECK(by_then > 0);
  HF_CHECK(network[1].operation(0) == nullptr);  // nothing of it is owed to anybody
  network.run_for(300 * millisecond);
  HF_EQUAL(to_rank_0, by_then);
}

HF_CASE(an_operation_that_ends_before_an_older_one_does_not_give_that_one_up) {
  Network network(3);
  network.join();
  // Results of the first are slow: each is lost once, and only then let through.
  std::set<std::pair<std::uint16_t, std::uint32_t>> lost;
  network.filter = [&](std::uint16_t from, std::uint16_t, Bytes& datagram) {
    const Header header = header_of(network, from, datagram);
    const bool slow = carries_elements(header.type) && header.stage == Stage::result && header.operation == 0;
    return !slow || !lost.emplace(from, header.offset).second;
  };
  Parameters parameters;
  parameters.t_b = 200 * millisecond;
  parameters.repair_grace = 150 * millisecond;
  auto large = gradients(3, 60'000);
  auto small = gradients(3, 96);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    network[rank].publish(parameters);
    network[rank].call(network.now, call_on(large[rank], Delivery::bounded, 400 * millisecond));
    network[rank].call(network.now, call_on(small[rank], Delivery::bounded, 400 * millisecond));
  }
  network.run_for(second);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_EQUAL(network.reports[rank].size(), 2u);
    HF_EQUAL(network.reports[rank].at(0).operation, 1u);
    HF_CHECK(network.reports[rank].at(1).missing.empty());
  }
}

HF_CASE(whoever_wants_no_results_any_more_deprives_only_itself) {
  Network network(3);
  network.join();
  std::size_t to_rank_2 = 0;
  network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& datagram) {
    const Header header = header_of(network, from, datagram);
    to_rank_2 += from == 0 && to == 2 && carries_elements(header.type) && header.stage == Stage::result;
    return true;
  };
  auto values = gradients(3, 60'000);
  Call given_up = call_on(values[2], Delivery::bounded, 400 * millisecond);
  given_up.limit = {20 * millisecond, 20 * millisecond, millisecond};
  network[0].call(network.now, call_on(values[0], Delivery::bounded, 400 * millisecond));
  network[2].call(network.now, given_up);
  network.run_for(30 * millisecond);
  HF_EQUAL(network.reports[2].size(), 1u);
  network[0].send_note(network.now, 2, 1, {1}, second);  // whose acknowledgement says so
  network.run_for(10 * millisecond);
  // Only now rank 0 has results to send.
  network[1].call(network.now, call_on(values[1], Delivery::bounded, 400 * millisecond));
  network.run_for(second);
  HF_CHECK(network.reports[1].at(0).missing.empty());
  HF_EQUAL(to_rank_2, 0u);
}

HF_CASE(whoever_wants_no_results_is_sent_none_whatever_it_says_later) {
  Rogue rogue([](EndpointSettings&) {}, 2);
  rogue.become_alive();
  std::vector<float> gradient(3000, 1.0f);
  rogue.victim.call(rogue.now, call_on(gradient, Delivery::bounded, 40 * millisecond));
  HF_EQUAL(rogue.acknowledge({{0, 0}}, 1 << 20, UINT32_MAX), "accepted");
  HF_EQUAL(rogue.acknowledge({{0, 0}}, 1 << 20, 0), "accepted");  // later or overtaken: what was given up stays so
  rogue.now += 20 * millisecond;
  rogue.victim.on_timer(rogue.now);
  const auto sent = rogue.replies();
  HF_CHECK(std::none_of(sent.begin(), sent.end(), [](const Header& header) { return header.stage == Stage::result; }));
  rogue.now += 20 * millisecond;
  rogue.victim.on_timer(rogue.now);
  HF_EQUAL(rogue.victim.take_reports().size(), 1u);
  HF_EQUAL(rogue.victim.open_operations(), 0u);
}

HF_CASE(elements_that_come_after_an_early_end_are_counted_once) {
  const auto late = late_elements_when_one_datagram_comes_after(100 * millisecond);
  HF_EQUAL(late.size(), 3u);
  HF_EQUAL(late[0], 0u);
  HF_CHECK(late[1] > 0);
  HF_EQUAL(late[2], 0u);
}

HF_CASE(what_comes_after_the_bound_no_longer_silence_would_have_saved) {
  // By then the operation is retired, and what is known of it says that its stage could not have lasted that long.
  for (const std::uint64_t late : late_elements_when_one_datagram_comes_after(300 * millisecond)) HF_EQUAL(late, 0u);
}

HF_CASE(a_report_tells_what_the_network_dropped_of_what_was_sent_here) {
  Network network(2);
  network.join();
  auto data = gradients(2, 100'000);
  const auto reduce = [&] {
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, second));
    }
    network.run_for(second);
  };
  reduce();
  const OperationReport& clean = network.reports[0].at(0);
  HF_CHECK(clean.datagrams_expected > 100);
  HF_EQUAL(clean.datagrams_received, clean.datagrams_expected);
  int seen = 0;
  network.filter = [&](std::uint16_t, std::uint16_t to, Bytes&) { return to != 0 || ++seen % 10 != 0; };
  reduce();
  const OperationReport& lossy = network.reports[0].at(1);
  const double received_ratio =
      static_cast<double>(lossy.datagrams_received) / static_cast<double>(lossy.datagrams_expected);
  HF_CHECK(received_ratio > 0.87 && received_ratio < 0.93);
}

HF_TEST_MAIN
