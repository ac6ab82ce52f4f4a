// The messages with which a job forms, as Python sees them.
#include "core/join.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/octets.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace holdfast::bind {
namespace {

template <class Message>
nb::bytes encoded(const Message& message) {
  return bytes_of(encode(message));
}

}  // namespace
}  // namespace holdfast::bind

void bind_join_messages(nb::module_& module) {
  using namespace holdfast;
  using namespace holdfast::bind;

  module.attr("MAX_RANKS") = max_ranks;

  nb::enum_<HadamardChoice>(module, "HadamardChoice", "Whether gradients travel as their Hadamard transform.")
      .value("off", HadamardChoice::off)
      .value("on", HadamardChoice::on)
      .value("auto", HadamardChoice::automatic);

  nb::class_<Introduction>(module, "Introduction", "Which host a rank is on, and what all ranks must have in common.")
      .def(
          "__init__",
          [](Introduction* self, Protection protection, bool deterministic, bool measures_deadline, bool uneven_shards,
             HadamardChoice hadamard, std::uint16_t hierarchy, std::uint32_t warmup_operations,
             const nb::bytes& key_fingerprint, std::string host_identity) {
            new (self) Introduction{protection,
                                    deterministic,
                                    measures_deadline,
                                    uneven_shards,
                                    hadamard,
                                    hierarchy,
                                    warmup_operations,
                                    array_of<16>(key_fingerprint, "a fingerprint has 16 bytes"),
                                    std::move(host_identity)};
          },
          nb::kw_only(), "protection"_a, "deterministic"_a, "measures_deadline"_a, "uneven_shards"_a, "hadamard"_a,
          "hierarchy"_a, "warmup_operations"_a, "key_fingerprint"_a, "host_identity"_a)
      .def_ro("protection", &Introduction::protection)
      .def_ro("deterministic", &Introduction::deterministic)
      .def_ro("measures_deadline", &Introduction::measures_deadline)
      .def_ro("uneven_shards", &Introduction::uneven_shards)
      .def_ro("hadamard", &Introduction::hadamard)
      .def_ro("hierarchy", &Introduction::hierarchy, "0: off; 1: as the hosts suggest; else this many groups.")
      .def_ro("warmup_operations", &Introduction::warmup_operations)
      .def_prop_ro("key_fingerprint", [](const Introduction& self) { return bytes_of(self.key_fingerprint); })
      .def_ro("host_identity", &Introduction::host_identity)
      .def("encode", &encoded<Introduction>)
      .def_static(
          "decode", [](const nb::bytes& message) { return decode_introduction(octets_of(message)); }, "message"_a,
          "None when the bytes are not such a message.");

  nb::class_<Whereabouts>(module, "Whereabouts", "Where a rank listens, and which process it is.")
      .def(
          "__init__",
          [](Whereabouts* self, std::string address, std::uint16_t port, const nb::bytes& process) {
            new (self) Whereabouts{std::move(address), port, array_of<16>(process, "a process id has 16 bytes")};
          },
          nb::kw_only(), "address"_a, "port"_a, "process"_a)
      .def_ro("address", &Whereabouts::address)
      .def_ro("port", &Whereabouts::port)
      .def_prop_ro("process", [](const Whereabouts& self) { return bytes_of(self.process); })
      .def("encode", &encoded<Whereabouts>)
      .def_static(
          "decode", [](const nb::bytes& message) { return decode_whereabouts(octets_of(message)); }, "message"_a,
          "None when the bytes are not such a message.");

  nb::class_<DatagramLimit>(module, "DatagramLimit", "The largest datagram the paths of a rank allow.")
      .def(
          "__init__", [](DatagramLimit* self, std::uint32_t size) { new (self) DatagramLimit{size}; }, nb::kw_only(),
          "size"_a)
      .def_ro("size", &DatagramLimit::size)
      .def("encode", &encoded<DatagramLimit>)
      .def_static(
          "decode", [](const nb::bytes& message) { return decode_datagram_limit(octets_of(message)); }, "message"_a,
          "None when the bytes are not such a message.");
}
