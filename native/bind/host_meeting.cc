// The ranks of one host in shared memory, as Python sees them. Durations cross the border in seconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "bind/waiting.h"
#include "io/clock.h"
#include "io/meeting_thread.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace holdfast::bind {
namespace {

using io::MeetingThread;

double to_seconds(Duration duration) { return static_cast<double>(duration) / 1e9; }

class HostMeeting {
 public:
  HostMeeting(int descriptor, std::uint16_t member, std::uint16_t num_members) : num_members_(num_members) {
    const nb::gil_scoped_release released;
    auto memory = std::make_shared<io::SharedMemory>(descriptor, io::meeting_bytes(num_members));
    thread_ = std::make_shared<MeetingThread>(std::move(memory), member, num_members);
  }

  // Shared, so that one thread may close it while another one still waits in it.
  std::shared_ptr<MeetingThread> thread() const {
    if (getpid() != process_) throw std::runtime_error("the meeting's thread stayed behind in the process that forked");
    if (!thread_) throw std::runtime_error("this rank has left the meeting");
    return thread_;
  }

  void close() {
    std::shared_ptr<MeetingThread> thread = std::exchange(thread_, nullptr);
    if (!thread) return;
    if (getpid() != process_) {
      // A forked child has no such thread to join; the parent closes what is the parent's.
      new std::shared_ptr<MeetingThread>(std::move(thread));
      return;
    }
    const nb::gil_scoped_release released;
    thread->stop();
    thread.reset();
  }

  bool closed() const { return !thread_; }
  std::uint16_t num_members() const { return num_members_; }

 private:
  std::shared_ptr<MeetingThread> thread_;
  std::uint16_t num_members_;
  pid_t process_ = getpid();
};

std::uint64_t meet(HostMeeting& meeting, io::MeetingKind kind, std::uintptr_t data, std::size_t count, Format format,
                   std::uint32_t layout, double scale, double deadline_s, std::uint64_t subject,
                   const io::MeetingWords& words) {
  if (format == Format::bytes) throw nb::value_error("a meeting needs a floating-point format");
  if (!std::isfinite(deadline_s)) throw nb::value_error("a deadline is a finite number of seconds");
  const Time now = io::monotonic_now();
  const Time deadline = now + static_cast<Duration>(std::clamp(deadline_s, 0.0, 1e8) * 1e9);
  return meeting.thread()->call(
      {reinterpret_cast<std::uint8_t*>(data), count, format, layout, subject, words, kind, scale, now, deadline});
}

}  // namespace
}  // namespace holdfast::bind

void bind_host_meeting(nb::module_& module) {
  using namespace holdfast;
  using namespace holdfast::bind;
  using io::MeetingKind;
  using io::MeetingReport;
  using io::MemberTimes;

  module.attr("MAX_MEETING_MEMBERS") = io::max_meeting_members;
  module.attr("NUM_MEETING_WORDS") = std::tuple_size_v<io::MeetingWords>;
  module.def(
      "create_meeting_memory",
      [](std::uint16_t num_members) { return io::create_shared_memory(io::meeting_bytes(num_members)).release(); },
      "num_members"_a, "A descriptor of memory in which so many ranks can meet. It has no name; the caller closes it.");
  module.def(
      "meeting_shard",
      [](std::size_t count, std::uint16_t member, std::uint16_t num_members) {
        if (member >= num_members) throw nb::value_error("members count from 0");
        const io::MeetingShard shard = io::meeting_shard(count, member, num_members);
        return std::pair(shard.begin, shard.end);
      },
      "count"_a, "member"_a, "num_members"_a, "(begin, end) of the elements that a member sums.");

  nb::enum_<MeetingKind>(module, "MeetingKind", "What the ranks of a host do together.")
      .value("all_reduce", MeetingKind::all_reduce, "Everybody has the whole sum.")
      .value("reduce_scatter", MeetingKind::reduce_scatter, "Everybody has its shard of the sum.")
      .value("all_gather", MeetingKind::all_gather, "Everybody has everybody's shard.");
  nb::class_<MemberTimes>(module, "MemberTimes", "When a member did its part, in seconds of the monotonic clock.")
      .def_prop_ro("called_s", [](const MemberTimes& times) { return to_seconds(times.called); })
      .def_prop_ro("began_reducing_s", [](const MemberTimes& times) { return to_seconds(times.began_reducing); })
      .def_prop_ro("contributed_s", [](const MemberTimes& times) { return to_seconds(times.contributed); })
      .def_prop_ro("reduced_s", [](const MemberTimes& times) { return to_seconds(times.reduced); })
      .def_ro("words", &MemberTimes::words, "What it told the others.");
  nb::class_<MeetingReport>(module, "MeetingReport", "How an operation in shared memory ended.")
      .def_ro("number", &MeetingReport::number)
      .def_ro("status", &MeetingReport::status)
      .def_ro("concerned", &MeetingReport::concerned,
              "False: an earlier operation failed, this one was not begun, and its data are as they were.")
      .def_ro("culprits", &MeetingReport::culprits)
      .def_ro("members", &MeetingReport::members)
      .def_prop_ro("ended_s", [](const MeetingReport& report) { return to_seconds(report.ended); });

  nb::class_<HostMeeting>(module, "HostMeeting", "This rank among those of its host that share memory with it.")
      .def(nb::init<int, std::uint16_t, std::uint16_t>(), nb::kw_only(), "descriptor"_a, "member"_a, "num_members"_a,
           "Maps what `create_meeting_memory` made; the descriptor is not needed afterwards.")
      .def_prop_ro("closed", &HostMeeting::closed)
      .def_prop_ro("num_members", &HostMeeting::num_members)
      .def_prop_ro(
          "next_number", [](HostMeeting& meeting) { return meeting.thread()->next_number(); },
          "The number that the next operation will get.")
      .def("meet", &meet, nb::kw_only(), "kind"_a, "data"_a, "count"_a, "format"_a, "layout"_a, "scale"_a,
           "deadline_s"_a, "subject"_a = 0, "words"_a = io::MeetingWords{},
           "Takes part in the next operation, in place. The memory must stay until the operation is reported.")
      .def(
          "wait",
          [](HostMeeting& meeting, std::uint64_t number, double timeout_s) {
            const auto thread = meeting.thread();
            return wait_interruptibly(timeout_s, [&](Duration patience) { return thread->wait(number, patience); });
          },
          "number"_a, "timeout_s"_a)
      .def(
          "give_up",
          [](HostMeeting& meeting, Status status, const std::vector<std::uint16_t>& culprits) {
            meeting.thread()->give_up(status, culprits);
          },
          "status"_a, "culprits"_a,
          "The operation under way, or the next one, fails for all members, unless it is done already.")
      .def("close", &HostMeeting::close);
}
