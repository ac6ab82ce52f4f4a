#include "kernels/portable.h"

#include "kernels/table.h"

namespace holdfast::kernels {

constinit const Table portable_table = make_table<portable::Family>();

}  // namespace holdfast::kernels
