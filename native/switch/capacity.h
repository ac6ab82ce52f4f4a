// What the network was like while an operation ran: the capacity bound, which no way of doing it can beat, and who was
// cut off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/time.h"
#include "switch/fabric.h"

namespace holdfast::lab {

// The least seconds from `start` in which every port i could have sent bytes_out[i] and received bytes_in[i], on links
// that were its own but for cross traffic, slow-downs, freezes and times without a link. Bytes are bytes of IP packets.
// Cross traffic is served in the order of arrival, so as much of it as the port's queue holds may have been overtaken
// by the operation: it does not count until there is more of it than that.
// What lies in the future is what the present conditions hold. Infinite when ten minutes do not suffice. Throws
// std::invalid_argument when a list is not one number per port, or when `start` is before what is remembered.
double capacity_bound_s(Fabric& fabric, Time now, Time start, std::span<const std::uint64_t> bytes_out,
                        std::span<const std::uint64_t> bytes_in);

// For how many seconds of [start, end] each port was frozen. Throws as above.
std::vector<double> frozen_s(Fabric& fabric, Time now, Time start, Time end);

}  // namespace holdfast::lab
