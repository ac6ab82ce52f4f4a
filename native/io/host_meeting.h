// Ranks of one host meet in shared memory: they average a bucket, or do either half of that, without a datagram.
//
// A bucket is divided into one contiguous shard per member. Piece after piece, a piece being as much of every shard as
// fits one position of a ring, each member
//   contributes  what it has of the other members' shards, by copying it to its own slot;
//   reduces      its own shard: the sum over all slots in the order of members, and over its own memory in its own
//   place,
//                scaled, written to its own memory and to its slot;
//   takes        the other shards from their owners' slots.
// How far each has come are counters of pieces that only it advances and that never go back; whoever needs more sleeps
// on the counter (a futex). A slot is written again when everybody has taken what was in it.
//
// Whether an operation is done is decided once for all members: by the one who first finds everything reduced, or by
// the one who gives up, in one word that both try to change (`fate`). So it is done everywhere or failed everywhere,
// and a member that was late, stopped or put aside learns which. After a failure the memory is of no use any more:
// nobody reads what a late member may still write, and every later operation fails without being begun, its data
// untouched.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/report.h"
#include "core/time.h"
#include "io/shared_memory.h"
#include "kernels/kernels.h"

namespace holdfast::io {

// One bit each in a word says who is to blame; and the memory grows with the square of their number.
constexpr std::uint16_t max_meeting_members = 64;

// Bytes of shared memory for so many members.
std::size_t meeting_bytes(std::uint16_t num_members);

enum class MeetingKind : std::uint8_t {
  all_reduce,      // everybody has the whole sum
  reduce_scatter,  // everybody has its own shard of the sum; the rest of its data is as it was
  all_gather,      // everybody has everybody's shard
};

// Something short that goes along with an operation, whatever it is about.
using MeetingWords = std::array<std::uint64_t, 8>;

struct MeetingCall {
  std::uint8_t* data = nullptr;
  std::size_t count = 0;
  Format format = Format::f32;
  std::uint32_t layout = 0;   // whatever must be the same on all members
  std::uint64_t subject = 0;  // and so must this: what the operation is a part of
  MeetingWords words{};       // told to all members with it
  MeetingKind kind = MeetingKind::all_reduce;
  double scale = 1;  // of the sum
  Time called = 0;
  Time deadline = 0;
};

struct MemberTimes {  // on the clock that all processes of a host share
  Time called = 0;
  Time began_reducing = 0;
  Time contributed = 0;  // all of it
  Time reduced = 0;
  MeetingWords words{};
};

struct MeetingReport {
  std::uint64_t number = 0;
  Status status = Status::done;
  bool concerned = true;  // else an earlier operation failed: this one was not begun, its data are as they were
  Time ended = 0;
  std::vector<std::uint16_t> culprits;
  std::vector<MemberTimes> members;  // all of them; only of an operation that is done
};

// [begin, end) of the elements that a member reduces.
struct MeetingShard {
  std::size_t begin = 0;
  std::size_t end = 0;
};
MeetingShard meeting_shard(std::size_t count, std::uint16_t member, std::uint16_t num_members);

class HostMeeting {
 public:
  // `memory` has `meeting_bytes`. One object per member; its `meet` belongs to one thread.
  HostMeeting(std::shared_ptr<SharedMemory> memory, std::uint16_t member, std::uint16_t num_members);

  // Takes part in the next operation. All members call the same ones in the same order. Returns when it is done, or
  // failed, at the latest shortly after its deadline.
  MeetingReport meet(const MeetingCall& call);

  // Any thread: the operation under way, or the next one, fails for all members unless it is done already.
  void give_up(Status status, const std::vector<std::uint16_t>& culprits);

 private:
  struct alignas(64) Counter {
    std::atomic<std::uint32_t> pieces;
    std::atomic<std::uint32_t> sleepers;
  };
  struct Announcement {
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> kind;  // with format and layout
    std::atomic<std::uint64_t> scale;
    std::atomic<std::uint64_t> subject;
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<MeetingWords>> words;
    std::atomic<Time> called;
    std::atomic<Time> began_reducing;
    std::atomic<Time> contributed;
    std::atomic<Time> reduced;
  };
  struct alignas(64) Member {
    Counter contributed;
    Counter reduced;
    Counter taken;
    // Of this operation and of the last one, which others may still be reading. Nobody is two ahead.
    std::array<Announcement, 2> announcements;
    std::atomic<std::uint64_t> blamed;  // a bit per member, set before this member decides that an operation failed
  };
  struct alignas(64) Fate {
    std::atomic<std::uint64_t> word;
  };
  static constexpr std::size_t head_bytes(std::uint16_t num_members) {
    return sizeof(Fate) + num_members * sizeof(Member);
  }
  friend std::size_t meeting_bytes(std::uint16_t num_members);

  using Word = Counter Member::*;

  struct Chunk {  // what a piece has of a shard
    std::uint8_t* data;
    std::size_t count;
  };

  MeetingReport met(const MeetingCall& call);
  void announce(const MeetingCall& call);
  bool agrees(const MeetingCall& call);
  bool contribute(const MeetingCall& call, std::uint32_t piece);
  bool reduce(const MeetingCall& call, std::uint32_t piece);
  bool take(const MeetingCall& call, std::uint32_t piece);
  void sum(const MeetingCall& call, Chunk own, std::uint32_t piece, std::uint8_t* shared) const;
  bool commit();
  MeetingReport failure() const;

  bool await(Word word, std::uint32_t goal);
  bool sleep_on(Counter& counter, std::uint32_t goal);
  void advance(Word word, std::uint32_t pieces);
  bool failed() const;
  void fail(std::uint64_t number, Status status, std::uint64_t blamed);
  std::uint64_t furthest_behind() const;

  Chunk chunk(const MeetingCall& call, std::uint16_t shard, std::uint32_t piece) const;
  std::uint8_t* slot(std::uint16_t member, std::uint32_t piece, std::uint16_t shard) const;
  Announcement& announcement(std::uint16_t member) const;

  std::shared_ptr<SharedMemory> memory_;
  const std::uint16_t member_;
  const std::uint16_t num_members_;
  const std::size_t chunk_bytes_;
  Fate* fate_;
  Member* members_;
  std::uint8_t* slots_;

  std::atomic<std::uint64_t> number_{0};
  std::uint32_t begins_ = 0;  // pieces before this operation
  Time deadline_ = 0;
  std::mutex deciding_;
};

}  // namespace holdfast::io
