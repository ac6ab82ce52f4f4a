// The Python face of the native side: one file per noun, gathered here.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_engine(nb::module_& module);
void bind_host_meeting(nb::module_& module);
void bind_join_messages(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_machine(nb::module_& module);
void bind_sim(nb::module_& module);
void bind_switch(nb::module_& module);

NB_MODULE(_native, module) {
  module.doc() = "Holdfast's native core: the reactor, the kernels and the simulator.";
  bind_kernels(module);
  bind_engine(module);
  bind_host_meeting(module);
  bind_join_messages(module);
  bind_machine(module);
  bind_sim(module);
  bind_switch(module);
}
