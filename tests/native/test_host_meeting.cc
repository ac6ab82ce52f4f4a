// Members as threads on one mapping, which is what the thread sanitizer looks at; other processes and their deaths are
// tested from Python. Results are checked against sums in double; every wait has a limit. The harness counts failures
// without a lock, so a test that fails may count some of them once too few, never none.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "float_formats.h"
#include "io/clock.h"
#include "io/host_meeting.h"
#include "io/meeting_thread.h"
#include "testing/check.h"

namespace {

using namespace holdfast;
using io::HostMeeting;
using io::MeetingCall;
using io::MeetingKind;
using io::MeetingReport;
using io::SharedMemory;

// Far beyond what anything here takes, also under a sanitizer on a busy machine.
constexpr Duration patience = 40 * second;

std::shared_ptr<SharedMemory> memory_for(std::uint16_t num_members) {
  const std::size_t num_bytes = io::meeting_bytes(num_members);
  const io::FileDescriptor memory = io::create_shared_memory(num_bytes);
  return std::make_shared<SharedMemory>(memory.get(), num_bytes);
}

class Host {
 public:
  explicit Host(std::uint16_t num_members) {
    const auto memory = memory_for(num_members);
    for (std::uint16_t member = 0; member < num_members; ++member) {
      members_.push_back(std::make_unique<HostMeeting>(memory, member, num_members));
    }
  }

  HostMeeting& operator[](std::size_t member) { return *members_[member]; }
  std::uint16_t size() const { return static_cast<std::uint16_t>(members_.size()); }

  void each(const std::function<void(std::uint16_t member, HostMeeting& meeting)>& body) {
    std::vector<std::thread> threads;
    for (std::uint16_t member = 0; member < size(); ++member) {
      threads.emplace_back([&, member] { body(member, *members_[member]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<HostMeeting>> members_;
};

MeetingCall call_on(void* data, std::size_t count, Duration limit = patience) {
  MeetingCall call;
  call.data = static_cast<std::uint8_t*>(data);
  call.count = count;
  call.called = io::monotonic_now();
  call.deadline = call.called + limit;
  return call;
}

float value(std::uint16_t member, std::size_t index, std::size_t round) {
  return static_cast<float>(std::sin(static_cast<double>(index + 1) * (member + 1) + static_cast<double>(round)));
}

std::vector<std::uint8_t> values(Format format, std::uint16_t member, std::size_t count, std::size_t round) {
  std::vector<float> plain(count);
  for (std::size_t i = 0; i < count; ++i) plain[i] = value(member, i, round);
  std::vector<std::uint8_t> cast(count * element_bytes(format));
  kernels::cast(format, cast.data(), Format::f32, plain.data(), count);
  return cast;
}

std::vector<double> widened(Format format, const std::vector<std::uint8_t>& data, std::size_t count) {
  std::vector<double> wide(count);
  kernels::cast(Format::f64, wide.data(), format, data.data(), count);
  return wide;
}

// Every member's average, after as many operations as were asked for, is the same and the true one.
void average_and_check(Host& host, Format format, std::size_t count, std::size_t round) {
  const std::uint16_t num_members = host.size();
  std::vector<std::vector<std::uint8_t>> data;
  std::vector<double> truth(count, 0.0);
  for (std::uint16_t member = 0; member < num_members; ++member) {
    data.push_back(values(format, member, count, round));
    const std::vector<double> wide = widened(format, data.back(), count);
    for (std::size_t i = 0; i < count; ++i) truth[i] += wide[i] / num_members;
  }
  std::vector<MeetingReport> reports(num_members);
  host.each([&](std::uint16_t member, HostMeeting& meeting) {
    MeetingCall call = call_on(data[member].data(), count);
    call.format = format;
    call.scale = 1.0 / num_members;
    reports[member] = meeting.meet(call);
  });
  const double rounding = std::ldexp(1.0, -testing::shape(format).mantissa_bits);
  for (std::uint16_t member = 0; member < num_members; ++member) {
    HF_CHECK(reports[member].status == Status::done);
    HF_CHECK(data[member] == data[0]);
  }
  const std::vector<double> found = widened(format, data[0], count);
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, std::abs(found[i] - truth[i]));
  HF_CHECK(worst <= rounding + (format == Format::f64 ? 0 : 1e-6));
}

HF_CASE(averages_are_true_and_alike_for_every_format_and_odd_sizes) {
  for (const std::uint16_t num_members : {1, 2, 3, 5}) {
    Host host(num_members);
    std::size_t round = 0;
    for (const Format format : {Format::f32, Format::f64, Format::bf16, Format::f16}) {
      for (const std::size_t count : {0, 1, 2, 7, 1000, 65'537}) average_and_check(host, format, count, ++round);
    }
  }
}

HF_CASE(the_ring_goes_round_many_times) {
  Host host(3);
  average_and_check(host, Format::f32, 1'000'003, 1);
  average_and_check(host, Format::bf16, 700'001, 2);
}

HF_CASE(the_halves_make_a_whole) {
  constexpr std::size_t count = 200'003;
  Host host(3);
  std::vector<std::vector<std::uint8_t>> whole, halves;
  for (std::uint16_t member = 0; member < 3; ++member) {
    whole.push_back(values(Format::f32, member, count, 5));
    halves.push_back(whole.back());
  }
  host.each([&](std::uint16_t member, HostMeeting& meeting) {
    HF_CHECK(meeting.meet(call_on(whole[member].data(), count)).status == Status::done);
    MeetingCall first = call_on(halves[member].data(), count);
    first.kind = MeetingKind::reduce_scatter;
    HF_CHECK(meeting.meet(first).status == Status::done);
  });
  for (std::uint16_t member = 0; member < 3; ++member) {
    // The own shard is summed; what is around it has not been touched.
    const auto [begin, end] = io::meeting_shard(count, member, 3);
    const std::vector<std::uint8_t> before = values(Format::f32, member, count, 5);
    HF_CHECK(std::equal(halves[member].begin(), halves[member].begin() + 4 * begin, before.begin()));
    HF_CHECK(std::memcmp(&halves[member][4 * begin], &whole[0][4 * begin], 4 * (end - begin)) == 0);
    HF_CHECK(std::equal(halves[member].begin() + 4 * end, halves[member].end(), before.begin() + 4 * end));
  }
  host.each([&](std::uint16_t member, HostMeeting& meeting) {
    MeetingCall second = call_on(halves[member].data(), count);
    second.kind = MeetingKind::all_gather;
    HF_CHECK(meeting.meet(second).status == Status::done);
  });
  for (std::uint16_t member = 0; member < 3; ++member) HF_CHECK(halves[member] == whole[0]);
}

HF_CASE(shards_are_contiguous_and_cover_everything) {
  for (const std::size_t count : {0, 1, 5, 1000}) {
    std::size_t end = 0;
    for (std::uint16_t member = 0; member < 7; ++member) {
      const io::MeetingShard shard = io::meeting_shard(count, member, 7);
      HF_EQUAL(shard.begin, end);
      end = shard.end;
    }
    HF_EQUAL(end, count);
  }
}

HF_CASE(members_may_be_an_operation_apart) {
  Host host(4);
  host.each([&](std::uint16_t member, HostMeeting& meeting) {
    std::vector<float> data(2'000);
    for (int round = 0; round < 300; ++round) {
      std::fill(data.begin(), data.end(), static_cast<float>(member + round));
      const MeetingReport report = meeting.meet(call_on(data.data(), data.size()));
      HF_CHECK(report.status == Status::done && report.number == static_cast<std::uint64_t>(round));
      HF_CHECK(std::all_of(data.begin(), data.end(), [&](float sum) { return sum == 6.0f + 4.0f * round; }));
    }
  });
}

HF_CASE(whoever_does_not_come_is_named_at_the_deadline_and_told_when_it_does) {
  Host host(3);
  std::vector<float> data(10'000, 1.0f);
  const Time began = io::monotonic_now();
  std::vector<std::thread> others;
  for (const std::uint16_t member : {0, 2}) {
    others.emplace_back([&, member] {
      std::vector<float> own = data;
      const MeetingReport report = host[member].meet(call_on(own.data(), own.size(), 100 * millisecond));
      HF_CHECK(report.status == Status::deadline_exceeded && report.concerned);
      HF_CHECK(report.culprits == std::vector<std::uint16_t>{1});
    });
  }
  for (std::thread& other : others) other.join();
  HF_CHECK(io::monotonic_now() - began >= 100 * millisecond);
  // The late one learns of the same operation that it failed, and no operation after it is begun.
  std::vector<float> late(10'000, 3.0f);
  const MeetingReport same = host[1].meet(call_on(late.data(), late.size()));
  HF_CHECK(same.status == Status::deadline_exceeded && same.concerned && same.number == 0);
  const MeetingReport next = host[1].meet(call_on(late.data(), late.size()));
  HF_CHECK(next.status == Status::deadline_exceeded && !next.concerned && next.number == 1);
  HF_CHECK(std::all_of(late.begin(), late.end(), [](float element) { return element == 3.0f; }));
}

HF_CASE(whoever_calls_something_else_is_named) {
  const std::vector<std::function<void(MeetingCall&)>> changes = {
      [](MeetingCall& call) { call.count -= 1; },
      [](MeetingCall& call) { call.layout = 7; },
      [](MeetingCall& call) { call.scale = 0.5; },
      [](MeetingCall& call) { call.format = Format::bf16; },
      [](MeetingCall& call) { call.kind = MeetingKind::all_gather; },
  };
  for (const auto& change : changes) {
    Host host(3);
    host.each([&](std::uint16_t member, HostMeeting& meeting) {
      std::vector<float> data(5'000);
      MeetingCall call = call_on(data.data(), data.size());
      if (member == 2) change(call);
      const MeetingReport report = meeting.meet(call);
      HF_CHECK(report.status == Status::mismatch && !report.culprits.empty());
    });
  }
}

HF_CASE(giving_up_ends_it_for_everybody_unless_it_is_done) {
  Host host(3);
  std::vector<float> first(100, 1.0f);
  host.each([&](std::uint16_t member, HostMeeting& meeting) {
    std::vector<float> data = first;
    HF_CHECK(meeting.meet(call_on(data.data(), data.size())).status == Status::done);
    if (member != 0) {
      const MeetingReport report = meeting.meet(call_on(data.data(), data.size()));
      HF_CHECK(report.status == Status::peer_dead && report.number == 1);
      HF_CHECK(report.culprits == std::vector<std::uint16_t>{0});
    } else {
      meeting.give_up(Status::peer_dead, {0});
    }
  });
}

HF_CASE(an_operation_is_done_for_all_or_for_none) {
  // Members with deadlines about as long as the operation takes: whatever happens, they agree on it.
  std::size_t num_done = 0, num_failed = 0;
  for (int round = 0; round < 60; ++round) {
    Host host(3);
    std::vector<Status> ends(3);
    host.each([&](std::uint16_t member, HostMeeting& meeting) {
      std::vector<float> data(30'000, static_cast<float>(member));
      const Duration limit = round % 3 == 0 ? patience : (1 + round) * 20'000;
      const MeetingReport report = meeting.meet(call_on(data.data(), data.size(), limit));
      ends[member] = report.status;
      const auto right = [](float element) { return element == 3.0f; };
      if (report.status == Status::done) HF_CHECK(std::all_of(data.begin(), data.end(), right));
    });
    HF_CHECK(ends[0] == ends[1] && ends[1] == ends[2]);
    ++(ends[0] == Status::done ? num_done : num_failed);
  }
  HF_CHECK(num_done >= 20);
}

HF_CASE(whenever_somebody_gives_up_all_fail_in_the_same_operation) {
  for (int round = 0; round < 60; ++round) {
    Host host(3);
    std::atomic<bool> over = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 + 37 * round));
      while (!over) host[0].give_up(Status::peer_dead, {1});  // in vain where the operation is done already
    });
    std::vector<std::uint64_t> failed_in(3);
    host.each([&](std::uint16_t member, HostMeeting& meeting) {
      std::vector<float> data(20'000);
      MeetingReport report;
      do {
        std::fill(data.begin(), data.end(), static_cast<float>(member));
        report = meeting.meet(call_on(data.data(), data.size()));
      } while (report.status == Status::done && data[0] == 3.0f && data.back() == 3.0f);
      HF_CHECK(report.status == Status::peer_dead && report.concerned);
      failed_in[member] = report.number;
    });
    over = true;
    other.join();
    HF_EQUAL(failed_in[1], failed_in[0]);
    HF_EQUAL(failed_in[2], failed_in[0]);
  }
}

HF_CASE(a_thread_meets_in_the_order_of_calls_and_leaves_at_once) {
  const auto memory = memory_for(2);
  io::MeetingThread one(memory, 0, 2), other(memory, 1, 2);
  std::vector<std::vector<float>> data(8, std::vector<float>(3'000, 1.0f));
  for (std::size_t i = 0; i < 4; ++i) {
    HF_EQUAL(one.call(call_on(data[i].data(), 3'000)), i);
    HF_EQUAL(other.call(call_on(data[4 + i].data(), 3'000)), i);
  }
  for (std::uint64_t number = 4; number-- > 0;) {  // in any order
    HF_CHECK(one.wait(number, patience)->status == Status::done);
    HF_CHECK(other.wait(number, patience)->status == Status::done);
  }
  for (const auto& each : data) HF_CHECK(each[0] == 2.0f && each[2'999] == 2.0f);
  // The one that waits for somebody who leaves hears of it.
  const std::uint64_t number = one.call(call_on(data[0].data(), 3'000));
  HF_CHECK(!one.wait(number, 20 * millisecond));
  other.call(call_on(data[4].data(), 2'000));
  HF_CHECK(one.wait(number, patience)->status == Status::mismatch);
  other.stop();
  one.call(call_on(data[0].data(), 3'000));
  one.stop();
  HF_THROWS(one.call(call_on(data[0].data(), 3'000)), std::runtime_error);
}

HF_CASE(memory_of_another_size_or_kind_is_refused) {
  const io::FileDescriptor memory = io::create_shared_memory(4096);
  HF_THROWS(SharedMemory(memory.get(), 8192), std::invalid_argument);
  HF_THROWS(SharedMemory(0, 4096), std::invalid_argument);
  HF_CHECK(::ftruncate(memory.get(), 0) != 0);
  HF_THROWS(io::meeting_bytes(0), std::invalid_argument);
  HF_THROWS(io::meeting_bytes(io::max_meeting_members + 1), std::invalid_argument);
  HF_THROWS(HostMeeting(memory_for(2), 2, 2), std::invalid_argument);
}

}  // namespace

HF_TEST_MAIN
