// What really arrived where, written down as the network delivers it, and the results that follow from it.
//
// This is the oracle. It never looks at a report: it knows the gradients, it sees the (readable) header of every
// datagram that a host took, and it works the sums out again in its own slow way.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/wire.h"
#include "sim/workload.h"

namespace holdfast::sim {

// The result of one shard, as its owner must have computed it.
struct ShardTruth {
  ElementRange shard;
  std::vector<std::uint8_t> elements;       // in wire format
  std::vector<std::uint64_t> contributors;  // by block: bit r for each rank r whose part is in it
  std::vector<bool> holes;                  // by block: nobody but the owner, or its group, had a part in it
};

// What one rank puts into the sum of a shard.
struct Share {
  std::vector<std::uint8_t> elements;  // of the shard, in wire format
  std::vector<std::uint64_t> makeup;   // by block: bit r for each rank r whose gradient is in it; 0: it is not sent
};

// A hierarchical operation: what each rank has summed between the groups, and what it then has of its group's shard.
struct GroupsTruth {
  std::vector<ShardTruth> between;  // by rank
  std::vector<ShardTruth> within;
};

// Operations are known by their number on the wire: see core/hierarchy.h for the parts of a hierarchical one.
class Truth {
 public:
  Truth(const Workload& workload, std::uint16_t num_ranks);

  // A host took a data or hole packet of an operation. False when no host had any business taking it: it speaks of
  // elements that are not its sender's to speak of.
  bool on_taken(std::uint16_t host, const Header& header, std::uint32_t count);

  // A host sent this in sixteen bits. What it owns of that it has rounded, whoever took it.
  void on_sent_narrow(std::uint16_t host, const Header& header);

  // `gradients` are all ranks' of this operation; `own_included`: the owner's call came before it closed the sum.
  ShardTruth shard(std::uint32_t operation, std::uint16_t owner, bool own_included,
                   const std::vector<std::vector<std::uint8_t>>& gradients) const;
  // The same for a hierarchical one. `own_included`, by rank: in the sum of its group; in that between the groups.
  GroupsTruth groups(std::uint32_t call, const std::vector<std::pair<bool, bool>>& own_included,
                     const std::vector<std::vector<std::uint8_t>>& gradients) const;
  // By block of `owner`'s shard: 0 nothing taken at `host`, 1 values, 2 announced as a hole.
  std::vector<std::uint8_t> results_taken(std::uint32_t operation, std::uint16_t host, std::uint16_t owner) const;
  // Was any of these elements' results taken at `host`?
  bool has_result_within(std::uint32_t operation, std::uint16_t host, ElementRange range) const;
  // Did `owner` take all of these elements from `sender`?
  bool has_contribution(std::uint32_t operation, std::uint16_t owner, std::uint16_t sender, ElementRange range) const;
  // How many elements of `owner`'s shard arrived there from `sender`.
  std::uint32_t contributed(std::uint32_t operation, std::uint16_t owner, std::uint16_t sender) const;

  // Of a part between groups: within the group's shard.
  ElementRange shard_of(std::uint32_t operation, std::uint16_t owner) const;

 private:
  struct Taken {
    std::uint16_t sender;
    PacketType type;
    std::uint32_t begin;  // within the bucket
    std::uint32_t count;
  };
  const std::vector<Taken>& taken(const std::vector<std::vector<Taken>>& by_host, std::uint32_t operation,
                                  std::uint16_t host) const {
    return by_host[slot(operation, host)];
  }
  std::size_t slot(std::uint32_t operation, std::uint16_t host) const;
  bool take_part_together(std::uint32_t operation, std::uint16_t one, std::uint16_t other) const;
  ElementRange whole_shard_of(std::uint32_t call, std::uint16_t owner) const;
  // `shares` by rank, of those who take part; `num_sharing` of them.
  ShardTruth sum(std::uint32_t operation, std::uint16_t owner, bool own_included, std::size_t num_sharing,
                 const std::vector<Share>& shares) const;

  const Workload& workload_;
  std::uint16_t num_ranks_;
  // By operation and host, in order of arrival.
  std::vector<std::vector<Taken>> contributions_;
  std::vector<std::vector<Taken>> results_;
  std::vector<std::vector<ElementRange>> rounded_results_;  // by operation and owner; within the bucket
};

}  // namespace holdfast::sim
