// The running switch, on socket pairs that stand where TUN devices would: one frame per read, one per write.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/byte_order.h"
#include "io/clock.h"
#include "io/file_descriptor.h"
#include "switch/pump.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::lab;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t first_address = 0x0a4d0001;
constexpr int patience_ms = 20'000;  // only a broken switch takes that long

// A switch with `num_hosts` hosts, running in a thread until the end of the test.
class Running {
 public:
  explicit Running(std::size_t num_hosts, bool start = true) {
    std::vector<int> descriptors;
    std::vector<std::uint32_t> addresses;
    for (std::size_t i = 0; i < num_hosts; ++i) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("no socket pair");
      hosts_.emplace_back(pair[0]);
      devices_.emplace_back(pair[1]);
      descriptors.push_back(pair[1]);
      addresses.push_back(first_address + static_cast<std::uint32_t>(i));
    }
    pump_ = std::make_unique<Pump>(descriptors, addresses, 1);
    if (start) thread_ = std::thread([this] { pump_->run(); });
  }
  ~Running() {
    pump_->stop();
    if (thread_.joinable()) thread_.join();
  }

  Pump& pump() { return *pump_; }
  void send(std::size_t host, const Bytes& frame) {
    HF_EQUAL(write(hosts_[host].get(), frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
  }
  // Empty when nothing comes in time.
  Bytes receive(std::size_t host, int timeout_ms = patience_ms) {
    pollfd wanted{hosts_[host].get(), POLLIN, 0};
    if (poll(&wanted, 1, timeout_ms) != 1) return {};
    Bytes frame(70'000);
    const ssize_t got = read(hosts_[host].get(), frame.data(), frame.size());
    frame.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return frame;
  }
  void hang_up(std::size_t host) { shutdown(hosts_[host].get(), SHUT_RDWR); }
  // Waits until the switch has lost so many packets by this cause.
  std::uint64_t wait_for_loss(Loss cause, std::uint64_t count) {
    std::uint64_t lost = 0;
    for (int i = 0; i < 2000 && lost < count; ++i) {
      lost = pump_->report().losses[static_cast<std::size_t>(cause)];
      if (lost < count) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return lost;
  }

 private:
  std::vector<io::FileDescriptor> hosts_, devices_;
  std::unique_ptr<Pump> pump_;
  std::thread thread_;
};

// A UDP super-packet from host `from` to host `to`, its checksum left to the device.
Bytes udp_frame(std::size_t from, std::size_t to, std::size_t payload_bytes, std::size_t gso_size) {
  VnetHeader vnet;
  vnet.flags = VnetHeader::needs_checksum;
  vnet.gso_type = gso_size > 0 ? VnetHeader::gso_udp_l4 : VnetHeader::gso_none;
  vnet.gso_size = static_cast<std::uint16_t>(gso_size);
  vnet.header_bytes = gso_size > 0 ? 28 : 0;
  vnet.checksum_start = 20;
  vnet.checksum_offset = 6;
  Bytes frame(sizeof vnet + 28 + payload_bytes, 0x5a);
  std::memcpy(frame.data(), &vnet, sizeof vnet);
  std::uint8_t* ip = frame.data() + sizeof vnet;
  std::memset(ip, 0, 28);
  ip[0] = 0x45;
  store_big_endian(ip + 2, static_cast<std::uint16_t>(28 + payload_bytes));
  store_big_endian(ip + 6, std::uint16_t{0x4000});
  ip[8] = 64;
  ip[9] = 17;
  store_big_endian(ip + 12, static_cast<std::uint32_t>(first_address + from));
  store_big_endian(ip + 16, static_cast<std::uint32_t>(first_address + to));
  store_big_endian(ip + 24, static_cast<std::uint16_t>(8 + payload_bytes));
  for (std::size_t i = 0; i < payload_bytes; ++i) ip[28 + i] = static_cast<std::uint8_t>(i * 7);
  return frame;
}

// The payload of one or several packets.
std::size_t payload_in(const Bytes& frame) { return frame.size() - sizeof(VnetHeader) - 28; }

}  // namespace

HF_CASE(a_super_packet_arrives_with_all_its_bytes) {
  Running lab(2);
  const Bytes sent = udp_frame(0, 1, 14'321, 1400);
  lab.send(0, sent);
  Bytes payload;
  while (payload.size() < 14'321) {
    const Bytes frame = lab.receive(1);
    HF_CHECK(!frame.empty());
    if (frame.empty()) return;
    payload.insert(payload.end(), frame.begin() + sizeof(VnetHeader) + 28, frame.end());
  }
  HF_CHECK(std::equal(payload.begin(), payload.end(), sent.begin() + sizeof(VnetHeader) + 28, sent.end()));
  const SwitchReport report = lab.pump().report();
  HF_EQUAL(report.ports[0].packets_from_host, 11u);
  HF_EQUAL(report.ports[0].bytes_from_host, 14'321u + 11 * 28);
  HF_EQUAL(report.ports[1].packets_to_host, 11u);
  HF_EQUAL(report.num_reads, 1u);
  HF_CHECK(report.lateness_max_us > 0 && report.lateness_p50_us <= report.lateness_max_us);
  std::uint64_t counted = 0;
  for (const auto& [at_most_us, count] : report.lateness_counts) counted += count;
  HF_EQUAL(counted, 11u);
  HF_CHECK(report.lateness_counts.back().first >= report.lateness_max_us);
}

HF_CASE(a_network_that_is_drawn_anew_is_that_of_the_seed_at_once) {
  Conditions conditions(2);
  conditions.ports[1].frozen = true;
  conditions.ports[1].freezes = {3.6e6, 3.6e6, Lengths::uniform, 0};  // an hour each: as good as for ever
  const auto seed_that_begins = [&](bool frozen) {
    Fabric fabric(2, 0, 0);
    fabric.configure(0, conditions);
    for (std::uint64_t seed = 0;; ++seed) {
      fabric.draw_anew(0, seed);
      if (fabric.rates(1).at(0).frozen == frozen && fabric.rates(1).at(0).until > 60 * second) return seed;
    }
  };
  Running lab(2);
  lab.pump().configure(conditions);
  for (int i = 0; i < 3; ++i) {
    lab.pump().reset();
    lab.pump().draw_anew(seed_that_begins(true));
    lab.send(0, udp_frame(0, 1, 1400, 0));
    while (lab.pump().report().ports[1].queue_peak_bytes < 1428) std::this_thread::yield();
    HF_CHECK(lab.receive(1, 20).empty());
    lab.pump().draw_anew(seed_that_begins(false));
    HF_EQUAL(payload_in(lab.receive(1)), 1400u);
  }
}

HF_CASE(packets_due_together_are_written_together) {
  Running lab(2);
  Conditions conditions(2);
  conditions.ports[1].frozen = true;  // so that all of them wait, however slow this machine is
  conditions.ports[0].uplink_bits_per_s = conditions.ports[1].downlink_bits_per_s = 1e12;
  lab.pump().configure(conditions);
  lab.send(0, udp_frame(0, 1, 14'000, 1400));
  while (lab.pump().report().ports[1].queue_peak_bytes < 14'280) std::this_thread::yield();
  conditions.ports[1].frozen = false;
  lab.pump().configure(conditions);
  const Bytes frame = lab.receive(1);
  HF_EQUAL(payload_in(frame), 14'000u);
  HF_EQUAL(lab.pump().report().num_writes, 1u);
}

HF_CASE(each_host_gets_what_is_addressed_to_it_in_order) {
  Running lab(3);
  for (int i = 0; i < 50; ++i) {
    lab.send(0, udp_frame(0, 1, 100 + i, 0));
    lab.send(0, udp_frame(0, 2, 300 + i, 0));
    lab.send(2, udp_frame(2, 0, 500 + i, 0));
  }
  for (std::size_t i = 0; i < 50; ++i) {
    HF_EQUAL(payload_in(lab.receive(1)), 100 + i);
    HF_EQUAL(payload_in(lab.receive(2)), 300 + i);
    HF_EQUAL(payload_in(lab.receive(0)), 500 + i);
  }
}

HF_CASE(a_delay_delays_and_changes_take_effect_at_once) {
  Running lab(2);
  Conditions conditions(2);
  conditions.path(0, 1).delay_ms = 300;
  lab.pump().configure(conditions);
  const Time sent = io::monotonic_now();
  lab.send(0, udp_frame(0, 1, 100, 0));
  HF_EQUAL(payload_in(lab.receive(1)), 100u);
  HF_CHECK(io::monotonic_now() - sent >= 300 * millisecond);
  conditions.ports[1].down = true;
  lab.pump().configure(conditions);
  lab.send(0, udp_frame(0, 1, 100, 0));
  HF_EQUAL(lab.wait_for_loss(Loss::down, 1), 1u);
}

HF_CASE(what_cannot_be_carried_is_counted_by_cause) {
  Running lab(2);
  lab.send(0, udp_frame(0, 9, 100, 0));              // nobody has this address
  lab.send(0, udp_frame(0, 0, 100, 0));              // its own
  lab.send(0, Bytes(sizeof(VnetHeader) + 5, 0x45));  // no whole header
  Bytes ipv6(sizeof(VnetHeader) + 60, 0);
  ipv6[sizeof(VnetHeader)] = 0x60;
  lab.send(0, ipv6);  // ignored: hosts send it by themselves
  lab.send(0, udp_frame(0, 1, 77, 0));
  HF_EQUAL(payload_in(lab.receive(1)), 77u);
  const SwitchReport report = lab.pump().report();
  HF_EQUAL(report.losses[static_cast<std::size_t>(Loss::unroutable)], 2u);
  HF_EQUAL(report.losses[static_cast<std::size_t>(Loss::malformed)], 1u);
  HF_EQUAL(report.ports[1].packets_to_host, 1u);
  lab.pump().reset();
  const SwitchReport after = lab.pump().report();
  HF_EQUAL(after.losses[static_cast<std::size_t>(Loss::unroutable)], 0u);
  HF_EQUAL(after.lateness_max_us, 0.0);
  HF_EQUAL(after.num_reads, 0u);
}

HF_CASE(a_host_that_leaves_does_not_stop_the_others) {
  Running lab(3);
  lab.hang_up(2);
  lab.send(0, udp_frame(0, 2, 50, 0));
  HF_EQUAL(lab.wait_for_loss(Loss::refused, 1), 1u);
  lab.send(0, udp_frame(0, 1, 60, 0));
  HF_EQUAL(payload_in(lab.receive(1)), 60u);
}

HF_CASE(an_idle_switch_sleeps) {
  Running lab(2);
  lab.send(0, udp_frame(0, 1, 100, 0));
  lab.receive(1);
  lab.pump().reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  HF_CHECK(lab.pump().report().num_wakeups <= 30);  // the questions themselves; one that polls has thousands
}

HF_CASE(questions_are_answered_whether_it_runs_or_not_and_from_many_threads) {
  Running idle(2, false);
  Conditions conditions(2);
  idle.pump().configure(conditions);
  const Time start = io::monotonic_now();
  HF_CHECK(idle.pump().capacity_bound_s(start, {31'250'000, 0}, {0, 0}) == 1.0);  // 250 Mbit/s
  HF_THROWS(idle.pump().capacity_bound_s(start, {1}, {1}), std::invalid_argument);

  Running lab(2);
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&lab, i] {
      Conditions changed(2);
      for (int round = 0; round < 50; ++round) {
        changed.path(0, 1).loss_ratio = 0.01 * i;
        lab.pump().configure(changed);
        lab.pump().report();
        lab.pump().reset();
        lab.pump().capacity_bound_s(io::monotonic_now(), {1, 1}, {1, 1});
      }
    });
  }
  for (int i = 0; i < 200; ++i) lab.send(0, udp_frame(0, 1, 3000, 1000));
  for (std::thread& asker : askers) asker.join();
  conditions.path(0, 1).loss_ratio = 2;
  HF_THROWS(lab.pump().configure(conditions), std::invalid_argument);
  HF_THROWS(lab.pump().run(), std::logic_error);
}

HF_CASE(stop_may_come_before_run_and_addresses_must_differ) {
  Running lab(2, false);
  lab.pump().stop();
  lab.pump().run();
  HF_THROWS(Pump({0, 1}, {7, 7}, 1), std::invalid_argument);
  HF_THROWS(Pump({0}, {7, 8}, 1), std::invalid_argument);
  HF_THROWS(Pump({-1}, {7}, 1), std::system_error);
}

HF_TEST_MAIN
