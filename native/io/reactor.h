// Runs an Endpoint on real UDP: one thread that receives, keeps time, sends, and sleeps when there is nothing to do.
//
// Everything the endpoint does happens on that thread. Other threads leave commands and wait for answers, no longer
// than they are told to, or a few seconds where they are not told.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/endpoint.h"
#include "core/trace.h"
#include "io/file_descriptor.h"
#include "io/udp.h"

namespace holdfast::io {

struct PeerSnapshot {
  std::uint16_t rank = 0;
  PeerState state = PeerState::joining;
  Duration silence = 0;
  Duration smoothed_rtt = 0;
  Duration min_rtt = 0;
  double bandwidth_bytes_per_second = 0;
  double pacing_bytes_per_second = 0;
  double card_share_bytes_per_second = 0;  // 0: the card was not seen to be the bottleneck, or no operation was open
  std::uint64_t window_bytes = 0;
  std::uint64_t failed_authentications = 0;
  std::uint32_t sealing_phase = 0;
  std::uint32_t opening_phase = 0;
  PathCounters counters;
};

struct Snapshot {
  std::vector<PeerSnapshot> peers;  // without the own rank
  DropCounts drops{};
  std::uint64_t kernel_drops = 0;
  double card_bytes_per_second = 0;  // 0: not known
  std::uint64_t wakeups = 0;
  std::size_t open_operations = 0;
  std::size_t early_bytes = 0;
};

class Reactor {
 public:
  Reactor(std::unique_ptr<UdpSocket> socket, const EndpointSettings& settings, std::vector<Address> peers,
          bool record = false);
  ~Reactor();  // says goodbye and joins the thread
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Ranks not heard from when all are, or when `patience` is over.
  std::vector<std::uint16_t> wait_joined(Duration patience);

  std::uint32_t call(const Call& call);
  // See Endpoint. What was reserved is not in a recording.
  std::uint32_t reserve();
  void release_number(std::uint32_t number);
  std::uint32_t next_operation() const;  // the number that the next call will get
  // The next call takes part in this operation, if it is later than the next. Returns which that is.
  std::uint32_t skip_to(std::uint32_t operation);
  // Its report is there for whoever waits for it.
  bool has_ended(std::uint32_t operation) const;
  std::optional<OperationReport> wait(std::uint32_t operation, Duration patience);

  std::uint32_t send_note(std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes,
                          Duration deadline);
  std::optional<NoteFate> wait_note(std::uint32_t ticket, Duration patience);
  std::optional<Note> receive_note(std::uint32_t channel, Duration patience);
  // Throws away what has arrived on a channel: nobody will ask for it any more.
  void discard_notes(std::uint32_t channel);

  void publish(const Parameters& parameters);
  std::deque<PeerChange> take_peer_changes();
  // By rank, as of the last changes: without a question to the thread, which may be busy sending.
  std::vector<PeerState> peer_states() const;
  Snapshot snapshot();
  // Afterwards no thread, no socket and none of the callers' memory is in use.
  void stop();
  // Why the thread ended by itself; empty while all is well.
  std::string failure() const;

  // What the endpoint was fed so far, for replay in the simulator. Empty unless `record` was asked for at the start.
  std::vector<std::uint8_t> recording();

 private:
  Reactor(std::unique_ptr<UdpSocket> socket, const EndpointSettings& settings, std::vector<Address> peers, bool record,
          Time now);

  struct SendNote {
    std::uint16_t peer;
    std::uint32_t channel;
    std::vector<std::uint8_t> bytes;
    Duration deadline;
  };
  struct ReleaseNote {
    std::uint16_t sender;
    std::size_t bytes;
  };
  struct SkipTo {
    std::uint32_t operation;
  };
  using OnThread = std::function<void()>;  // anything else that must see the endpoint at rest
  using Command = std::variant<Call, SendNote, ReleaseNote, SkipTo, Parameters, OnThread>;

  void run();
  void loop();
  std::uint32_t submit(Command command, std::uint32_t& counter);
  void wake();
  template <class Question>
  auto ask_thread(Question question);
  Snapshot take_snapshot() const;
  void execute_commands(Time now);
  void execute(Time now, Command& command);
  std::size_t receive();
  void keep_time(Time now);
  bool transmit(Time now);
  bool send_pending();
  void keep_pending_bytes();
  void deliver();
  bool rest(Duration pause);
  void sleep_until(Time deadline);
  int wait_for_events(std::span<epoll_event> events, Duration patience);
  void drain_wake();
  template <class Ready>
  bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Duration patience, Ready ready);

  std::unique_ptr<UdpSocket> socket_;
  std::vector<Address> peers_;
  Endpoint endpoint_;
  std::unique_ptr<TraceWriter> trace_;  // null unless recording
  std::vector<std::uint8_t> recording_;
  std::map<std::uint32_t, std::span<const std::uint8_t>> recorded_calls_;
  TransmitBatch batch_;
  OutgoingBatch outgoing_;
  bool card_has_room_ = true;  // for more than what is small and urgent
  bool has_pending_ = false;   // a batch the kernel would not take yet
  std::vector<std::uint8_t> pending_bytes_;
  FileDescriptor epoll_;
  FileDescriptor wake_;
  bool has_precise_wait_ = true;
  std::uint64_t wakeups_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // reports, fates of notes, peers
  std::condition_variable notes_came_;
  std::vector<Command> commands_;
  std::uint32_t next_operation_ = 0;
  std::uint32_t next_ticket_ = 1;
  std::uint32_t num_tasks_ = 0;
  std::deque<OperationReport> reports_;
  std::map<std::uint32_t, NoteFate> note_fates_;     // by ticket
  std::map<std::uint32_t, std::deque<Note>> notes_;  // by channel
  std::deque<PeerChange> peer_changes_;
  std::vector<PeerState> peer_states_;  // by rank; the own is of no account
  bool joined_ = false;
  bool stopped_ = false;
  std::string failure_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asleep_{false};
  std::thread thread_;
};

}  // namespace holdfast::io
