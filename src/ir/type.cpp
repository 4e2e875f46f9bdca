#include "ir/type.h"
#include <fmt/format.h>

namespace tkc::ir {

int64_t Type::elements() const {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  return n;
}

std::string shape_str(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); i++)
    out += (i ? ", " : "") + (shape[i] == kDynamic ? std::string("?") : std::to_string(shape[i]));
  return out + "]";
}

std::string Type::str() const {
  switch (kind) {
  case TypeKind::None: return "none";
  case TypeKind::Token: return "token";
  case TypeKind::Tile:
    return shape.empty() ? std::string(dtype_name(dtype))
                         : fmt::format("tile<{}>{}", dtype_name(dtype), shape_str(shape));
  case TypeKind::Tensor: return fmt::format("tensor<{}>{}", dtype_name(dtype), shape_str(shape));
  }
  return "";
}

} // namespace tkc::ir
