// A 64-bit fingerprint of memory, at the speed at which it can be read: for telling whether replicas are equal.
//
// Not a cryptographic one. It travels authenticated, and what it must tell apart are losses and accidents, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::kernels {

// Of these bytes, after those that `so_far` stands for; 0 to begin with.
std::uint64_t fingerprint(const void* bytes, std::size_t count, std::uint64_t so_far);

}  // namespace holdfast::kernels
