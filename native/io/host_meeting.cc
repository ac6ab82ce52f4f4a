#include "io/host_meeting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <stdexcept>

#include "io/clock.h"

namespace holdfast::io {
namespace {

// A member is at most one piece ahead in each of the three steps: it contributes one while the others come to reduce
// the one before and take the one before that. One position more, so that a member that was put aside for a moment does
// not hold the others up at once.
constexpr std::uint32_t pieces_apart = 1;
constexpr std::uint32_t ring_positions = 2 * pieces_apart + 2;
static_assert(std::has_single_bit(ring_positions), "so that positions go on where the counters begin anew");
// All slots together stay in a processor's last cache where they can. A chunk is no less than what is worth waking
// somebody up for.
constexpr std::size_t wanted_bytes = 16 << 20;
constexpr std::size_t least_chunk_bytes = 4 << 10;
constexpr std::size_t most_chunk_bytes = 64 << 10;
// Sums are made in parts whose accumulators stay in the first cache.
constexpr std::size_t accumulator_part_bytes = 16 << 10;
// Whoever sleeps looks this often whether somebody gave up.
constexpr Duration longest_sleep = 20 * millisecond;

// The word that decides: the number of the first operation that is not done; if it failed, how, and who says so.
constexpr std::uint64_t failed_bit = std::uint64_t{1} << 63;
constexpr unsigned status_shift = 60;
constexpr unsigned decider_shift = 52;
constexpr std::uint64_t number_mask = (std::uint64_t{1} << decider_shift) - 1;

std::size_t chunk_bytes_for(std::uint16_t num_members) {
  const std::size_t num_chunks = std::size_t{num_members} * num_members * ring_positions;
  const std::size_t fitting = wanted_bytes / num_chunks / least_chunk_bytes * least_chunk_bytes;
  return std::clamp(fitting, least_chunk_bytes, most_chunk_bytes);
}

// Counters run on over 2^32; two of them are never far apart.
bool reached(std::uint32_t pieces, std::uint32_t goal) { return static_cast<std::int32_t>(pieces - goal) >= 0; }

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Duration patience) {
  const timespec limit{patience / second, patience % second};
  // Whatever ends it, the word is looked at again.
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// An empty shard may have no address.
void copy(void* to, const void* from, std::size_t num_bytes) {
  if (num_bytes != 0) std::memcpy(to, from, num_bytes);
}

std::uint64_t kind_of(const MeetingCall& call) {
  return std::uint64_t{call.layout} << 32 | static_cast<std::uint64_t>(call.format) << 8 |
         static_cast<std::uint64_t>(call.kind);
}

std::vector<std::uint16_t> members_in(std::uint64_t bits) {
  std::vector<std::uint16_t> members;
  for (; bits != 0; bits &= bits - 1) members.push_back(static_cast<std::uint16_t>(std::countr_zero(bits)));
  return members;
}

}  // namespace

std::size_t meeting_bytes(std::uint16_t num_members) {
  if (num_members < 1 || num_members > max_meeting_members) throw std::invalid_argument("1 to 64 ranks meet");
  const std::size_t slots = std::size_t{num_members} * num_members * ring_positions * chunk_bytes_for(num_members);
  return HostMeeting::head_bytes(num_members) + slots;
}

MeetingShard meeting_shard(std::size_t count, std::uint16_t member, std::uint16_t num_members) {
  const std::size_t each = count / num_members;
  const std::size_t larger = count % num_members;  // the first of them have one more
  const std::size_t begin = each * member + std::min<std::size_t>(member, larger);
  return {begin, begin + each + (member < larger ? 1 : 0)};
}

HostMeeting::HostMeeting(std::shared_ptr<SharedMemory> memory, std::uint16_t member, std::uint16_t num_members)
    : memory_(std::move(memory)),
      member_(member),
      num_members_(num_members),
      chunk_bytes_(chunk_bytes_for(std::max<std::uint16_t>(num_members, 1))) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);
  if (memory_->size() != meeting_bytes(num_members) || member >= num_members) {
    throw std::invalid_argument("not this meeting's memory, or not a member of it");
  }
  // Zeros are the beginning of everything here, so nobody has to come first.
  fate_ = reinterpret_cast<Fate*>(memory_->data());
  members_ = reinterpret_cast<Member*>(memory_->data() + sizeof(Fate));
  slots_ = memory_->data() + head_bytes(num_members);
}

MeetingReport HostMeeting::meet(const MeetingCall& call) {
  deadline_ = call.deadline;
  MeetingReport report = failed() ? failure() : met(call);
  report.number = number_++;
  report.ended = monotonic_now();
  return report;
}

MeetingReport HostMeeting::met(const MeetingCall& call) {
  announce(call);
  const std::size_t chunk_elements = chunk_bytes_ / element_bytes(call.format);
  const MeetingShard longest = meeting_shard(call.count, 0, num_members_);
  const std::size_t needed = (longest.end - longest.begin + chunk_elements - 1) / chunk_elements;
  const auto num_pieces = static_cast<std::uint32_t>(std::max<std::size_t>(needed, 1));
  bool good = true;
  for (std::uint32_t step = 0; good && step < num_pieces + 2 * pieces_apart; ++step) {
    if (step < num_pieces) good = contribute(call, step);
    if (good && step >= pieces_apart && step - pieces_apart < num_pieces) good = reduce(call, step - pieces_apart);
    if (good && step >= 2 * pieces_apart) good = take(call, step - 2 * pieces_apart);
  }
  if (!good || !commit()) return failure();
  begins_ += num_pieces;
  MeetingReport report;
  for (std::uint16_t member = 0; member < num_members_; ++member) {
    const Announcement& said = announcement(member);
    report.members.push_back({said.called, said.began_reducing, said.contributed, said.reduced, {}});
    std::copy(said.words.begin(), said.words.end(), report.members.back().words.begin());
  }
  return report;
}

void HostMeeting::announce(const MeetingCall& call) {
  Announcement& own = announcement(member_);
  own.count = call.count;
  own.kind = kind_of(call);
  own.scale = std::bit_cast<std::uint64_t>(call.scale);
  own.subject = call.subject;
  std::copy(call.words.begin(), call.words.end(), own.words.begin());
  own.called = call.called;
}

bool HostMeeting::agrees(const MeetingCall& call) {
  std::uint64_t strangers = 0;
  for (std::uint16_t member = 0; member < num_members_; ++member) {
    const Announcement& said = announcement(member);
    const bool same = said.count == call.count && said.kind == kind_of(call) && said.subject == call.subject &&
                      said.scale == std::bit_cast<std::uint64_t>(call.scale);
    if (!same) strangers |= std::uint64_t{1} << member;
  }
  if (strangers != 0) fail(number_, Status::mismatch, strangers);
  return strangers == 0;
}

bool HostMeeting::contribute(const MeetingCall& call, std::uint32_t piece) {
  if (!await(&Member::taken, begins_ + piece + 1 - ring_positions)) return false;
  if (call.kind != MeetingKind::all_gather) {
    for (std::uint16_t shard = 0; shard < num_members_; ++shard) {
      if (shard == member_) continue;
      const Chunk part = chunk(call, shard, piece);
      copy(slot(member_, piece, shard), part.data, part.count * element_bytes(call.format));
    }
  }
  announcement(member_).contributed = monotonic_now();
  advance(&Member::contributed, begins_ + piece + 1);
  return true;
}

bool HostMeeting::reduce(const MeetingCall& call, std::uint32_t piece) {
  if (!await(&Member::contributed, begins_ + piece + 1)) return false;
  if (piece == 0 && !agrees(call)) return false;
  if (piece == 0) announcement(member_).began_reducing = monotonic_now();
  const Chunk own = chunk(call, member_, piece);
  std::uint8_t* shared = slot(member_, piece, member_);
  if (call.kind == MeetingKind::all_gather) {
    copy(shared, own.data, own.count * element_bytes(call.format));
  } else {
    sum(call, own, piece, call.kind == MeetingKind::all_reduce ? shared : nullptr);
  }
  announcement(member_).reduced = monotonic_now();
  advance(&Member::reduced, begins_ + piece + 1);
  return true;
}

void HostMeeting::sum(const MeetingCall& call, Chunk own, std::uint32_t piece, std::uint8_t* shared) const {
  alignas(64) std::uint8_t accumulator[accumulator_part_bytes];
  const std::size_t part_elements = accumulator_part_bytes / accumulator_bytes(call.format);
  for (std::size_t begin = 0; begin < own.count; begin += part_elements) {
    const std::size_t count = std::min(part_elements, own.count - begin);
    const std::size_t offset = begin * element_bytes(call.format);
    for (std::uint16_t member = 0; member < num_members_; ++member) {
      const std::uint8_t* source = (member == member_ ? own.data : slot(member, piece, member_)) + offset;
      if (member == 0) {
        kernels::store(call.format, accumulator, source, count);
      } else {
        kernels::add(call.format, accumulator, source, count);
      }
    }
    kernels::combine(call.format, own.data + offset, nullptr, 0, accumulator, call.scale, count);
    if (shared != nullptr) copy(shared + offset, own.data + offset, count * element_bytes(call.format));
  }
}

bool HostMeeting::take(const MeetingCall& call, std::uint32_t piece) {
  if (!await(&Member::reduced, begins_ + piece + 1)) return false;
  if (call.kind != MeetingKind::reduce_scatter) {
    for (std::uint16_t shard = 0; shard < num_members_; ++shard) {
      if (shard == member_) continue;
      const Chunk part = chunk(call, shard, piece);
      copy(part.data, slot(shard, piece, shard), part.count * element_bytes(call.format));
    }
  }
  advance(&Member::taken, begins_ + piece + 1);
  return true;
}

// ---------------------------------------------------------------------------------------------------- who decides

// Everybody has reduced everything. False: somebody gave up before anybody had found that.
bool HostMeeting::commit() {
  std::uint64_t word = number_;
  fate_->word.compare_exchange_strong(word, number_ + 1);
  return (word & failed_bit) == 0 || (word & number_mask) > number_;
}

bool HostMeeting::failed() const {
  const std::uint64_t word = fate_->word;
  return (word & failed_bit) != 0 && (word & number_mask) <= number_;
}

void HostMeeting::fail(std::uint64_t number, Status status, std::uint64_t blamed) {
  const std::lock_guard lock(deciding_);  // two threads of this member write one `blamed`
  if ((fate_->word & failed_bit) != 0) return;
  members_[member_].blamed = blamed;
  std::uint64_t undecided = number;
  const std::uint64_t verdict = failed_bit | static_cast<std::uint64_t>(status) << status_shift |
                                std::uint64_t{member_} << decider_shift | number;
  if (!fate_->word.compare_exchange_strong(undecided, verdict)) return;
  for (std::uint16_t member = 0; member < num_members_; ++member) {
    for (const Word word : {&Member::contributed, &Member::reduced, &Member::taken}) {
      futex_wake_all((members_[member].*word).pieces);
    }
  }
}

void HostMeeting::give_up(Status status, const std::vector<std::uint16_t>& culprits) {
  std::uint64_t blamed = 0;
  for (const std::uint16_t culprit : culprits) {
    if (culprit >= num_members_) throw std::invalid_argument("not a member of this meeting");
    blamed |= std::uint64_t{1} << culprit;
  }
  fail(number_, status, blamed);
}

MeetingReport HostMeeting::failure() const {
  const std::uint64_t word = fate_->word;
  MeetingReport report;
  report.concerned = (word & number_mask) == number_;
  report.status = static_cast<Status>(word >> status_shift & 7);
  report.culprits = members_in(members_[word >> decider_shift & (max_meeting_members - 1)].blamed);
  return report;
}

// Everybody goes through the same steps in the same order, and waits only for what comes earlier in it: whoever is
// furthest behind waits for nobody.
std::uint64_t HostMeeting::furthest_behind() const {
  std::int32_t least = 0;
  std::uint64_t culprits = 0;
  const auto position = [this](std::uint16_t member) {
    const Member& of = members_[member];
    return of.contributed.pieces + of.reduced.pieces + of.taken.pieces;
  };
  for (std::uint16_t member = 0; member < num_members_; ++member) {
    const auto ahead = static_cast<std::int32_t>(position(member) - position(member_));
    if (ahead > least || member == member_) continue;
    if (ahead < least) culprits = 0;
    least = ahead;
    culprits |= std::uint64_t{1} << member;
  }
  return culprits;
}

// ---------------------------------------------------------------------------------------------------- waiting

// Until everybody has come so far; false: the operation has failed.
bool HostMeeting::await(Word word, std::uint32_t goal) {
  for (std::uint16_t member = 0; member < num_members_; ++member) {
    Counter& counter = members_[member].*word;
    while (!reached(counter.pieces.load(std::memory_order_acquire), goal)) {
      if (!sleep_on(counter, goal)) return false;
    }
  }
  return true;
}

bool HostMeeting::sleep_on(Counter& counter, std::uint32_t goal) {
  if (failed()) return false;
  const Duration left = deadline_ - monotonic_now();
  if (left <= 0) {
    // Unless the others are done with it meanwhile: then what was waited for is there.
    fail(number_, Status::deadline_exceeded, furthest_behind());
    return !failed();
  }
  // In this order here, and the other way round in `advance`: one of the two sees the other.
  ++counter.sleepers;
  const std::uint32_t seen = counter.pieces;
  if (!reached(seen, goal)) futex_wait(counter.pieces, seen, std::min(left, longest_sleep));
  --counter.sleepers;
  return true;
}

void HostMeeting::advance(Word word, std::uint32_t pieces) {
  Counter& counter = members_[member_].*word;
  counter.pieces = pieces;
  if (counter.sleepers != 0) futex_wake_all(counter.pieces);
}

// ---------------------------------------------------------------------------------------------------- where things are

HostMeeting::Chunk HostMeeting::chunk(const MeetingCall& call, std::uint16_t shard, std::uint32_t piece) const {
  const std::size_t chunk_elements = chunk_bytes_ / element_bytes(call.format);
  const MeetingShard whole = meeting_shard(call.count, shard, num_members_);
  const std::size_t begin = std::min(whole.begin + piece * chunk_elements, whole.end);
  const std::size_t end = std::min(begin + chunk_elements, whole.end);
  return {call.data + begin * element_bytes(call.format), end - begin};
}

std::uint8_t* HostMeeting::slot(std::uint16_t member, std::uint32_t piece, std::uint16_t shard) const {
  const std::size_t position = (begins_ + piece) % ring_positions;
  return slots_ + ((member * ring_positions + position) * num_members_ + shard) * chunk_bytes_;
}

HostMeeting::Announcement& HostMeeting::announcement(std::uint16_t member) const {
  return members_[member].announcements[number_ % 2];
}

}  // namespace holdfast::io
