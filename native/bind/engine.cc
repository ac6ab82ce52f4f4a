// The engine: one socket and one reactor, as Python sees them. Durations cross the border in seconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "bind/octets.h"
#include "bind/waiting.h"
#include "core/keys.h"
#include "io/reactor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace holdfast::bind {
namespace {

// Anything longer is as good as for ever, and keeps the clock arithmetic away from its limits.
constexpr double longest_seconds = 1e8;

Duration from_seconds(double seconds) {
  if (std::isnan(seconds)) throw nb::value_error("a duration is a number of seconds");
  return static_cast<Duration>(std::llround(std::clamp(seconds, -longest_seconds, longest_seconds) * 1e9));
}
double to_seconds(Duration duration) { return static_cast<double>(duration) / 1e9; }

// (first, last), or nothing.
std::optional<std::pair<double, double>> in_seconds(const ArrivalSpan& span) {
  if (span.first < 0) return std::nullopt;
  return std::pair(to_seconds(span.first), to_seconds(span.last));
}

struct Peer {
  std::string host;
  std::uint16_t port;
  nb::bytes process;
  bool same_host;
};

// A socket is bound first, so that its port can be published; the reactor starts when the peers are known.
class Engine {
 public:
  Engine(const std::string& host, std::uint16_t port, std::size_t receive_buffer_bytes, std::size_t send_buffer_bytes,
         bool use_segmentation)
      : socket_(std::make_unique<io::UdpSocket>(
            io::Address::parse(host, port), io::UdpOptions{receive_buffer_bytes, send_buffer_bytes, use_segmentation})),
        receive_buffer_bytes_(socket_->granted_receive_buffer_bytes()),
        send_buffer_bytes_(socket_->granted_send_buffer_bytes()),
        has_gso_(socket_->has_gso()),
        has_gro_(socket_->has_gro()),
        host_(socket_->local().host()),
        port_(socket_->local().port()) {}

  void start(const EndpointSettings& settings, const std::vector<Peer>& peers, bool record) {
    if (!socket_) throw std::runtime_error("the engine was started before");
    EndpointSettings complete = settings;
    std::vector<io::Address> addresses;
    for (const Peer& peer : peers) {
      complete.peers.push_back({array_of<16>(peer.process, "a process id has 16 bytes"), peer.same_host});
      addresses.push_back(io::Address::parse(peer.host, peer.port));
    }
    if (complete.peers.size() != complete.num_ranks || complete.rank >= complete.num_ranks) {
      throw nb::value_error("one peer entry per rank, the own included");
    }
    complete.receive_buffer_bytes = receive_buffer_bytes_;
    const nb::gil_scoped_release released;
    reactor_ = std::make_shared<io::Reactor>(std::move(socket_), complete, std::move(addresses), record);
  }

  // Shared, so that a thread may close the engine while another one still waits in it. Called with the GIL held, which
  // guards the pointer.
  std::shared_ptr<io::Reactor> reactor() const {
    if (getpid() != process_) throw std::runtime_error("the engine's thread stayed behind in the process that forked");
    if (!reactor_) throw std::runtime_error(closed_ ? "the engine is closed" : "the engine was not started");
    return reactor_;
  }

  void close() {
    closed_ = true;
    socket_.reset();
    std::shared_ptr<io::Reactor> reactor = std::exchange(reactor_, nullptr);
    if (!reactor) return;
    if (getpid() != process_) {
      // A forked child has no such thread to join; the parent closes what is the parent's.
      new std::shared_ptr<io::Reactor>(std::move(reactor));
      return;
    }
    const nb::gil_scoped_release released;
    reactor->stop();
  }

  std::size_t receive_buffer_bytes() const { return receive_buffer_bytes_; }
  std::size_t send_buffer_bytes() const { return send_buffer_bytes_; }
  bool has_gso() const { return has_gso_; }
  bool has_gro() const { return has_gro_; }
  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }
  bool closed() const { return closed_; }

 private:
  std::unique_ptr<io::UdpSocket> socket_;
  std::shared_ptr<io::Reactor> reactor_;
  std::size_t receive_buffer_bytes_;
  std::size_t send_buffer_bytes_;
  bool has_gso_;
  bool has_gro_;
  std::string host_;
  std::uint16_t port_;
  bool closed_ = false;
  pid_t process_ = getpid();
};

EndpointSettings make_settings(std::uint16_t rank, std::uint16_t num_ranks, std::uint32_t job, std::uint32_t epoch,
                               const nb::bytes& job_key, Protection protection, std::uint64_t packets_per_key,
                               std::uint32_t datagram_bytes, std::uint64_t early_bytes_cap, double heartbeat_interval_s,
                               double silence_limit_s, RateRule rate_rule, std::uint16_t num_groups, bool hosts_meet,
                               double pack_below_bytes_per_s) {
  EndpointSettings settings;
  settings.rank = rank;
  settings.num_ranks = num_ranks;
  settings.job = job;
  settings.epoch = epoch;
  settings.job_key = array_of<32>(job_key, "a job key has 32 bytes");
  settings.protection = protection;
  settings.packets_per_key = packets_per_key;
  settings.datagram_bytes = datagram_bytes;
  settings.early_bytes_cap = early_bytes_cap;
  settings.heartbeat_interval = from_seconds(heartbeat_interval_s);
  settings.silence_limit = from_seconds(silence_limit_s);
  settings.rate_rule = rate_rule;
  settings.num_groups = num_groups;
  settings.hosts_meet = hosts_meet;
  settings.pack_below_bytes_per_second = pack_below_bytes_per_s;
  return settings;
}

OperationReport lost_report(std::uint32_t operation, std::uint32_t total, std::uint16_t num_ranks, bool exact,
                            Status status, std::vector<std::uint16_t> culprits, double elapsed_s) {
  OperationReport report;
  report.operation = operation;
  report.status = status;
  report.delivery = exact ? Delivery::exact : Delivery::bounded;
  report.total = total;
  report.elapsed = from_seconds(elapsed_s);
  report.expected = std::uint64_t{total} * num_ranks;
  if (total != 0) report.missing = {{0, total}};
  report.not_received = total;
  report.peers.resize(num_ranks);
  report.contributions.end = report.results.end = total == 0 ? StageEnd::complete : StageEnd::bound;
  report.culprits = std::move(culprits);
  return report;
}

OperationReport spread_report(const OperationReport& of_shard, std::uint32_t total, std::uint64_t expected,
                              std::uint64_t delivered, std::uint64_t not_received, std::uint64_t ownerless,
                              std::uint32_t contributors,
                              const std::vector<std::pair<std::uint32_t, std::uint32_t>>& missing, double elapsed_s) {
  OperationReport report = of_shard;
  report.total = total;
  report.expected = expected;
  report.delivered = delivered;
  report.not_received = not_received;
  report.ownerless = ownerless;
  report.contributors = contributors;
  report.missing.clear();
  for (const auto& [begin, end] : missing) report.missing.push_back({begin, end});
  report.elapsed = from_seconds(elapsed_s);
  return report;
}

nb::bytes random_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  fill_random(bytes);
  return bytes_of(bytes);
}

nb::dict drops_of(const DropCounts& drops) {
  nb::dict out;
  for (std::size_t i = 0; i < num_drops; ++i) out[name(static_cast<Drop>(i))] = drops[i];
  return out;
}

}  // namespace
}  // namespace holdfast::bind

void bind_engine(nb::module_& module) {
  using namespace holdfast;
  using namespace holdfast::bind;
  using io::PeerSnapshot;
  using io::Snapshot;

  nb::enum_<Protection>(module, "Protection", "What datagrams are protected against.")
      .value("encrypted", Protection::encrypted)
      .value("authenticated", Protection::authenticated)
      .value("insecure", Protection::insecure);
  nb::enum_<RateRule>(module, "RateRule", "What the sending rate of a path follows.")
      .value("delay", RateRule::delay)
      .value("model", RateRule::model);
  nb::enum_<Status>(module, "Status", "How an operation ended.")
      .value("done", Status::done)
      .value("deadline_exceeded", Status::deadline_exceeded)
      .value("peer_dead", Status::peer_dead)
      .value("mismatch", Status::mismatch);
  nb::enum_<StageEnd>(module, "StageEnd", "What ended a stage.")
      .value("open", StageEnd::open)
      .value("complete", StageEnd::complete)
      .value("early", StageEnd::early)
      .value("limit", StageEnd::limit)
      .value("bound", StageEnd::bound);
  nb::enum_<PeerState>(module, "PeerState", "What is known about a peer.")
      .value("joining", PeerState::joining)
      .value("alive", PeerState::alive)
      .value("dead", PeerState::dead)
      .value("left", PeerState::left);
  nb::enum_<NoteFate>(module, "NoteFate", "What became of a note.")
      .value("delivered", NoteFate::delivered)
      .value("deadline_exceeded", NoteFate::deadline_exceeded)
      .value("peer_dead", NoteFate::peer_dead);

  nb::class_<PeerReport>(module, "PeerReport", "One peer's part in an operation.")
      .def_ro("contributed", &PeerReport::contributed)
      .def_ro("narrow_contributed", &PeerReport::narrow_contributed)
      .def_ro("contribution_size", &PeerReport::contribution_size)
      .def_ro("results", &PeerReport::results)
      .def_ro("result_size", &PeerReport::result_size)
      .def_ro("alive", &PeerReport::alive)
      .def_ro("contributions_sample_us", &PeerReport::contributions_sample_us)
      .def_ro("results_sample_us", &PeerReport::results_sample_us)
      .def_prop_ro("silence_s", [](const PeerReport& report) { return to_seconds(report.silence); })
      .def_prop_ro("contribution_arrived_s",
                   [](const PeerReport& report) { return in_seconds(report.contribution_arrived); })
      .def_prop_ro("result_arrived_s", [](const PeerReport& report) { return in_seconds(report.result_arrived); });
  nb::class_<OperationReport>(module, "OperationReport", "What an operation says about itself when it ends.")
      .def_static("lost", &lost_report, nb::kw_only(), "operation"_a, "total"_a, "num_ranks"_a, "exact"_a, "status"_a,
                  "culprits"_a, "elapsed_s"_a, "Of an operation that this rank has nothing of.")
      .def("spread", &spread_report, nb::kw_only(), "total"_a, "expected"_a, "delivered"_a, "not_received"_a,
           "ownerless"_a, "contributors"_a, "missing"_a, "elapsed_s"_a,
           "As this one, which was of a shard, with what a whole bucket has come to.")
      .def_ro("operation", &OperationReport::operation)
      .def_ro("status", &OperationReport::status)
      .def_ro("total", &OperationReport::total)
      .def_ro("delivered", &OperationReport::delivered)
      .def_ro("expected", &OperationReport::expected)
      .def_ro("narrow_elements", &OperationReport::narrow_elements)
      .def_ro("late_elements", &OperationReport::late_elements)
      .def_ro("datagrams_expected", &OperationReport::datagrams_expected)
      .def_ro("datagrams_received", &OperationReport::datagrams_received)
      .def_ro("peers", &OperationReport::peers)
      .def_ro("culprits", &OperationReport::culprits)
      .def_prop_ro("exact", [](const OperationReport& report) { return report.delivery == Delivery::exact; })
      .def_prop_ro("elapsed_s", [](const OperationReport& report) { return to_seconds(report.elapsed); })
      .def_prop_ro("waited_for_call_s",
                   [](const OperationReport& report) { return to_seconds(report.waited_for_call); })
      .def_prop_ro("contributions_end", [](const OperationReport& report) { return report.contributions.end; })
      .def_prop_ro("contributions_s",
                   [](const OperationReport& report) { return to_seconds(report.contributions.elapsed); })
      .def_prop_ro("results_end", [](const OperationReport& report) { return report.results.end; })
      .def_prop_ro("results_s", [](const OperationReport& report) { return to_seconds(report.results.elapsed); })
      .def_ro("not_received", &OperationReport::not_received)
      .def_ro("ownerless", &OperationReport::ownerless)
      .def_ro("contributors", &OperationReport::contributors)
      .def_prop_ro(
          "counted",
          [](const OperationReport& report) {
            std::vector<std::tuple<std::uint32_t, std::uint32_t, float>> ranges;
            for (const Counted& part : report.counted)
              ranges.emplace_back(part.range.begin, part.range.end, part.times);
            return ranges;
          },
          "(begin, end, times) of elements in which the own contribution does not count once.")
      .def_prop_ro("missing", [](const OperationReport& report) {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
        for (const ElementRange& range : report.missing) ranges.emplace_back(range.begin, range.end);
        return ranges;
      });
  nb::class_<PeerChange>(module, "PeerChange", "A peer appeared, fell silent or left.")
      .def_ro("peer", &PeerChange::peer)
      .def_ro("state", &PeerChange::state)
      .def_prop_ro("silence_s", [](const PeerChange& change) { return to_seconds(change.silence); });
  nb::class_<PeerSnapshot>(module, "PeerSnapshot", "The path to one peer, as it is now.")
      .def_ro("rank", &PeerSnapshot::rank)
      .def_ro("state", &PeerSnapshot::state)
      .def_ro("window_bytes", &PeerSnapshot::window_bytes)
      .def_ro("bandwidth_bytes_per_s", &PeerSnapshot::bandwidth_bytes_per_second)
      .def_ro("pacing_bytes_per_s", &PeerSnapshot::pacing_bytes_per_second)
      .def_ro("card_share_bytes_per_s", &PeerSnapshot::card_share_bytes_per_second)
      .def_ro("failed_authentications", &PeerSnapshot::failed_authentications)
      .def_ro("sealing_phase", &PeerSnapshot::sealing_phase)
      .def_ro("opening_phase", &PeerSnapshot::opening_phase)
      .def_prop_ro("silence_s", [](const PeerSnapshot& peer) { return to_seconds(peer.silence); })
      .def_prop_ro("smoothed_rtt_s", [](const PeerSnapshot& peer) { return to_seconds(peer.smoothed_rtt); })
      .def_prop_ro("min_rtt_s", [](const PeerSnapshot& peer) { return to_seconds(peer.min_rtt); })
      .def_prop_ro("datagrams_sent", [](const PeerSnapshot& peer) { return peer.counters.datagrams_sent; })
      .def_prop_ro("bytes_sent", [](const PeerSnapshot& peer) { return peer.counters.bytes_sent; })
      .def_prop_ro("datagrams_received", [](const PeerSnapshot& peer) { return peer.counters.datagrams_received; })
      .def_prop_ro("bytes_received", [](const PeerSnapshot& peer) { return peer.counters.bytes_received; })
      .def_prop_ro("packets_lost", [](const PeerSnapshot& peer) { return peer.counters.packets_lost; })
      .def_prop_ro("datagrams_resent", [](const PeerSnapshot& peer) { return peer.counters.resent; });
  nb::class_<Snapshot>(module, "Snapshot", "The engine, as it is now.")
      .def_ro("peers", &Snapshot::peers)
      .def_ro("kernel_drops", &Snapshot::kernel_drops)
      .def_ro("card_bytes_per_s", &Snapshot::card_bytes_per_second)
      .def_ro("wakeups", &Snapshot::wakeups)
      .def_ro("open_operations", &Snapshot::open_operations)
      .def_ro("early_bytes", &Snapshot::early_bytes)
      .def_prop_ro("drops", [](const Snapshot& snapshot) { return drops_of(snapshot.drops); });

  nb::class_<EndpointSettings>(module, "EndpointSettings", "What a job agreed on at join.")
      .def_static("make", &make_settings, nb::kw_only(), "rank"_a, "num_ranks"_a, "job"_a, "epoch"_a, "job_key"_a,
                  "protection"_a, "packets_per_key"_a, "datagram_bytes"_a, "early_bytes_cap"_a,
                  "heartbeat_interval_s"_a, "silence_limit_s"_a, "rate_rule"_a, "num_groups"_a = 1,
                  "hosts_meet"_a = false, "pack_below_bytes_per_s"_a = 0.0);
  nb::class_<Peer>(module, "Peer", "Where a rank can be reached, and which process it is.")
      .def(
          "__init__",
          [](Peer* self, std::string host, std::uint16_t port, nb::bytes process, bool same_host) {
            new (self) Peer{std::move(host), port, std::move(process), same_host};
          },
          "host"_a, "port"_a, "process"_a, "same_host"_a);

  nb::class_<Engine>(module, "Engine", "One socket and one reactor thread: the native end of a job.")
      .def(nb::init<const std::string&, std::uint16_t, std::size_t, std::size_t, bool>(), nb::kw_only(), "host"_a,
           "port"_a, "receive_buffer_bytes"_a, "send_buffer_bytes"_a, "use_segmentation"_a)
      .def_prop_ro("host", &Engine::host)
      .def_prop_ro("port", &Engine::port)
      .def_prop_ro("receive_buffer_bytes", &Engine::receive_buffer_bytes)
      .def_prop_ro("send_buffer_bytes", &Engine::send_buffer_bytes)
      .def_prop_ro("has_gso", &Engine::has_gso)
      .def_prop_ro("has_gro", &Engine::has_gro)
      .def_prop_ro("closed", &Engine::closed)
      .def_prop_ro(
          "next_operation", [](Engine& engine) { return engine.reactor()->next_operation(); },
          "The number that the next all_reduce will get.")
      .def("start", &Engine::start, "settings"_a, "peers"_a, "record"_a = false)
      .def(
          "wait_joined",
          [](Engine& engine, double timeout_s) {
            const auto reactor = engine.reactor();
            std::vector<std::uint16_t> missing;
            wait_interruptibly(timeout_s, [&](Duration patience) -> std::optional<bool> {
              missing = reactor->wait_joined(patience);
              return missing.empty() ? std::optional(true) : std::nullopt;
            });
            return missing;
          },
          "timeout_s"_a, "Ranks not heard from when all are, or when the time is over.")
      .def(
          "skip_to", [](Engine& engine, std::uint32_t operation) { return engine.reactor()->skip_to(operation); },
          "operation"_a,
          "The next call takes part in this operation, if it is later than the next; returns which it is.")
      .def(
          "all_reduce",
          [](Engine& engine, std::uintptr_t data, std::uint32_t count, Format format, std::uint32_t layout, bool exact,
             double deadline_s, bool average, std::pair<double, double> early_wait_s,
             std::pair<std::uint32_t, std::uint32_t> samples_us, double repair_grace_s, double contributions_within_s,
             std::tuple<double, double, double> limit_s, std::optional<std::uint32_t> number, bool between_groups,
             double narrow_behind_ratio) {
            if (format == Format::bytes) throw nb::value_error("an all-reduce needs a floating-point format");
            Call call;
            call.data = reinterpret_cast<std::uint8_t*>(data);
            call.count = count;
            call.format = format;
            call.layout = layout;
            call.delivery = exact ? Delivery::exact : Delivery::bounded;
            call.deadline = from_seconds(deadline_s);
            call.average = average;
            call.contributions = {from_seconds(early_wait_s.first), samples_us.first};
            call.results = {from_seconds(early_wait_s.second), samples_us.second};
            call.repair_grace = from_seconds(repair_grace_s);
            call.contributions_within = std::min(from_seconds(contributions_within_s), call.deadline);
            const auto [contributions, whole, results] = limit_s;
            call.limit = {from_seconds(contributions), from_seconds(whole), from_seconds(results)};
            call.number = number;
            call.between_groups = between_groups;
            call.narrow_behind_ratio = narrow_behind_ratio;
            const auto reactor = engine.reactor();
            const nb::gil_scoped_release released;
            return reactor->call(call);
          },
          nb::kw_only(), "data"_a, "count"_a, "format"_a, "layout"_a, "exact"_a, "deadline_s"_a, "average"_a,
          "early_wait_s"_a = std::pair(-1.0, -1.0), "samples_us"_a = std::pair(0u, 0u), "repair_grace_s"_a = -1.0,
          "contributions_within_s"_a = 0.0, "limit_s"_a = std::tuple(0.0, 0.0, 0.0), "number"_a = nb::none(),
          "between_groups"_a = false, "narrow_behind_ratio"_a = 0.0,
          "Takes part in the next operation, in place, or in one that was reserved. The memory must stay until the "
          "operation is reported.")
      .def(
          "reserve", [](Engine& engine) { return engine.reactor()->reserve(); },
          "The number of an operation to be called later; its place in the order is here.")
      .def(
          "release_number", [](Engine& engine, std::uint32_t number) { engine.reactor()->release_number(number); },
          "number"_a, "What was reserved will not be called.")
      .def(
          "has_ended", [](Engine& engine, std::uint32_t operation) { return engine.reactor()->has_ended(operation); },
          "operation"_a, "Would `wait` have its report at once?")
      .def(
          "wait",
          [](Engine& engine, std::uint32_t operation, double timeout_s) {
            const auto reactor = engine.reactor();
            return wait_interruptibly(timeout_s, [&](Duration patience) { return reactor->wait(operation, patience); });
          },
          "operation"_a, "timeout_s"_a)
      .def(
          "send_note",
          [](Engine& engine, std::uint16_t peer, std::uint32_t channel, const nb::bytes& bytes, double deadline_s) {
            const auto octets = octets_of(bytes);
            std::vector<std::uint8_t> copy(octets.begin(), octets.end());
            const auto reactor = engine.reactor();
            const nb::gil_scoped_release released;
            return reactor->send_note(peer, channel, std::move(copy), from_seconds(deadline_s));
          },
          "peer"_a, "channel"_a, "bytes"_a, "deadline_s"_a)
      .def(
          "wait_note",
          [](Engine& engine, std::uint32_t ticket, double timeout_s) {
            const auto reactor = engine.reactor();
            return wait_interruptibly(timeout_s,
                                      [&](Duration patience) { return reactor->wait_note(ticket, patience); });
          },
          "ticket"_a, "timeout_s"_a)
      .def(
          "receive_note",
          [](Engine& engine, std::uint32_t channel, double timeout_s) -> std::optional<std::pair<int, nb::bytes>> {
            const auto reactor = engine.reactor();
            auto note = wait_interruptibly(timeout_s,
                                           [&](Duration patience) { return reactor->receive_note(channel, patience); });
            if (!note) return std::nullopt;
            return std::pair<int, nb::bytes>(note->sender, bytes_of(note->bytes));
          },
          "channel"_a, "timeout_s"_a, "(sender, bytes) of the next note on a channel.")
      .def(
          "discard_notes", [](Engine& engine, std::uint32_t channel) { engine.reactor()->discard_notes(channel); },
          "channel"_a, "Throws away what has arrived on a channel.")
      .def(
          "publish",
          [](Engine& engine, std::uint32_t from_operation, double t_b_s, double t_c_s, double early_wait_ratio,
             std::uint8_t credit, bool deterministic, double duty_limit_s, std::vector<std::uint8_t> shard_weights,
             std::uint8_t division, bool needs_majority, bool encoded, double repair_grace_s, bool zero_fill,
             bool tells_by_element) {
            Parameters parameters;
            parameters.from_operation = from_operation;
            parameters.t_b = from_seconds(t_b_s);
            parameters.t_c = from_seconds(t_c_s);
            parameters.early_wait_ratio = early_wait_ratio;
            parameters.credit = credit;
            parameters.deterministic = deterministic;
            parameters.duty_limit = from_seconds(duty_limit_s);
            parameters.division = Division(std::move(shard_weights), division);
            parameters.needs_majority = needs_majority;
            parameters.repair_grace = from_seconds(repair_grace_s);
            parameters.zero_fill = zero_fill;
            parameters.tells_by_element = tells_by_element;
            parameters.encoded = encoded;
            const auto reactor = engine.reactor();
            const nb::gil_scoped_release released;
            reactor->publish(parameters);
          },
          nb::kw_only(), "from_operation"_a, "t_b_s"_a, "t_c_s"_a, "early_wait_ratio"_a, "credit"_a, "deterministic"_a,
          "duty_limit_s"_a, "shard_weights"_a = std::vector<std::uint8_t>{}, "division"_a = 1,
          "needs_majority"_a = false, "encoded"_a = false, "repair_grace_s"_a = 0.0, "zero_fill"_a = false,
          "tells_by_element"_a = false, "Parameters that hold from a named operation on.")
      .def("take_peer_changes",
           [](Engine& engine) {
             const auto changes = engine.reactor()->take_peer_changes();
             return std::vector<PeerChange>(changes.begin(), changes.end());
           })
      .def(
          "peer_states", [](Engine& engine) { return engine.reactor()->peer_states(); },
          "By rank, as of the last changes; the own is of no account. Answered at once.")
      .def("snapshot",
           [](Engine& engine) {
             const auto reactor = engine.reactor();
             const nb::gil_scoped_release released;
             return reactor->snapshot();
           })
      .def(
          "failure", [](Engine& engine) { return engine.reactor()->failure(); },
          "Why the reactor ended by itself; empty while all is well.")
      .def("recording",
           [](Engine& engine) {
             const auto reactor = engine.reactor();
             const std::vector<std::uint8_t> bytes = [&] {
               const nb::gil_scoped_release released;
               return reactor->recording();
             }();
             return bytes_of(bytes);
           })
      .def("close", &Engine::close);

  module.def("random_bytes", &random_bytes, "count"_a, "Unpredictable bytes.");
  module.def(
      "key_fingerprint",
      [](const nb::bytes& job_key) {
        return bytes_of(key_fingerprint(array_of<32>(job_key, "a job key has 32 bytes")));
      },
      "job_key"_a, "Equal on two ranks exactly when their keys are; reveals nothing about the key.");
  module.def(
      "path_mtu", [](const std::string& host) { return io::path_mtu(io::Address::parse(host, 9)); }, "host"_a,
      "The MTU of the kernel's route to a host.");
  module.def(
      "source_address_towards",
      [](const std::string& host) { return io::source_address_towards(io::Address::parse(host, 9)); }, "host"_a,
      "The own address the kernel would use towards a host.");
  module.def("interface_holding", &io::interface_holding, "address"_a, "The interface that has an address, or ''.");
}
