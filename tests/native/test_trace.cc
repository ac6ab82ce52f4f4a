// A recorded trace, replayed, does the same again; one that was changed says where it differs.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/trace.h"
#include "sim/replay.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::sim;

namespace {

// Two endpoints back to back on a perfect wire that loses every seventh datagram; the first one is recorded.
struct Recorded {
  std::vector<std::uint8_t> trace;
  OperationReport report;
};

Recorded record(const TimeLimit& limit = {}, Duration contributions_within = 0) {
  EndpointSettings settings;
  settings.num_ranks = 2;
  settings.peers.resize(2);
  settings.peers[1].process[0] = 9;
  settings.epoch = 3;
  EndpointSettings other = settings;
  other.rank = 1;
  Recorded recorded;
  TraceWriter writer(settings, 0, [&](std::span<const std::uint8_t> bytes) {
    recorded.trace.insert(recorded.trace.end(), bytes.begin(), bytes.end());
  });
  Endpoint ends[2] = {Endpoint(settings, 0), Endpoint(other, 0)};
  Parameters parameters;
  parameters.t_b = 20 * millisecond;
  writer.on_publish(parameters);
  ends[0].publish(parameters);
  ends[1].publish(parameters);
  std::vector<float> gradients[2] = {std::vector<float>(5000, 1.5f), std::vector<float>(5000, 2.5f)};
  TransmitBatch batch;
  std::uint64_t number = 0;
  for (Time now = 0; now < 200 * millisecond; now += 50 * microsecond) {
    for (int rank = 0; rank < 2; ++rank) {
      if (now == 10 * millisecond) {
        Call call;
        call.data = reinterpret_cast<std::uint8_t*>(gradients[rank].data());
        call.count = 5000;
        call.limit = limit;
        call.contributions_within = contributions_within;
        if (rank == 0) writer.on_call(now, call);
        ends[rank].call(now, call);
        if (rank == 0) {
          writer.on_note(now, 1, 4, std::vector<std::uint8_t>(3000, 1), second);
          ends[0].send_note(now, 1, 4, std::vector<std::uint8_t>(3000, 1), second);
        }
      }
      if (ends[rank].next_timer() <= now) {
        if (rank == 0) writer.on_timer(now);
        ends[rank].on_timer(now);
      }
      for (bool filled = true; filled;) {
        filled = ends[rank].fill(now, batch);
        if (rank == 0) writer.on_fill(now, 0, filled, batch);
        if (!filled) break;
        std::size_t part = 0;
        for (const std::uint32_t parts : batch.parts_per_datagram) {
          std::vector<std::uint8_t> datagram;
          for (std::uint32_t i = 0; i < parts; ++i, ++part) {
            const auto* from = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
            datagram.insert(datagram.end(), from, from + batch.parts[part].iov_len);
          }
          if (++number % 7 == 0) continue;
          if (rank == 1) writer.on_datagram(now, 0, datagram);
          ends[1 - rank].receive(now, datagram);
        }
      }
      for (const OperationReport& report : ends[rank].take_reports()) {
        if (rank != 0) continue;
        writer.on_report(report, {reinterpret_cast<const std::uint8_t*>(gradients[0].data()), 20'000});
        recorded.report = report;
      }
    }
  }
  return recorded;
}

}  // namespace

HF_CASE(a_replayed_trace_does_the_same_again) {
  const Recorded recorded = record();
  const ReplayResult replayed = replay(recorded.trace);
  HF_EQUAL(replayed.divergence, "");
  HF_EQUAL(replayed.reports.size(), 1u);
  HF_EQUAL(replayed.num_reports_recorded, 1u);
  HF_CHECK(replayed.num_batches_out > 10);
  HF_CHECK(recorded.report.delivered < recorded.report.expected);  // some of it was lost
  HF_EQUAL(replayed.reports.front().delivered, recorded.report.delivered);
  HF_CHECK(replayed.reports.front().missing == recorded.report.missing);
  HF_EQUAL(replay(recorded.trace).digest, replayed.digest);
}

HF_CASE(what_a_call_says_about_its_times_is_replayed) {
  const Recorded limited = record({8 * millisecond, 12 * millisecond, 3 * millisecond});
  HF_CHECK(limited.report.contributions.end == StageEnd::limit && limited.report.results.end == StageEnd::limit);
  HF_EQUAL(replay(limited.trace).divergence, "");
  const Recorded generous = record({}, 30 * millisecond);
  HF_CHECK(generous.report.contributions.elapsed >= 30 * millisecond);
  HF_EQUAL(replay(generous.trace).divergence, "");
}

HF_CASE(when_a_call_sends_sixteen_bits_is_recorded) {
  EndpointSettings settings;
  settings.peers.resize(settings.num_ranks);
  std::vector<std::uint8_t> written;
  const auto sink = [&](std::span<const std::uint8_t> bytes) {
    written.insert(written.end(), bytes.begin(), bytes.end());
  };
  TraceWriter writer(settings, 0, sink);
  std::vector<float> gradient(16, 1.5f);
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(gradient.data());
  call.count = 16;
  call.narrow_behind_ratio = 0.2;
  writer.on_call(1, call);
  TraceReader reader(written);
  HF_EQUAL(std::get<trace::Called>(reader.next().value()).call.narrow_behind_ratio, 0.2);
}

HF_CASE(a_replay_that_differs_says_where) {
  Recorded recorded = record();
  // One byte of the recorded gradient: everything sent from there on differs.
  const std::vector<std::uint8_t> needle{0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0xc0, 0x3f};
  const auto at = std::search(recorded.trace.begin(), recorded.trace.end(), needle.begin(), needle.end());
  HF_CHECK(at != recorded.trace.end());
  *(at + 12'000) ^= 1;
  HF_CHECK(replay(recorded.trace).divergence.find("sent something else") != std::string::npos);
}

HF_CASE(a_trace_cut_short_ends_and_a_broken_one_is_refused) {
  Recorded recorded = record();
  recorded.trace.erase(recorded.trace.end() - 3, recorded.trace.end());
  HF_EQUAL(replay(recorded.trace).divergence, "");
  recorded.trace[0] ^= 1;
  HF_THROWS(replay(recorded.trace), std::runtime_error);
}

HF_TEST_MAIN
