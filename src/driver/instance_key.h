// What tells instances of one kernel or program apart: the values of its compile-time parameters, and the tensors that
// it does not have. Settings of a case that are sizes of a run make no other instance.
#pragma once
#include "sema/instance.h"

namespace tkc::driver {

using InstanceKey = std::pair<std::map<std::string, std::string>, std::set<std::string>>;

inline InstanceKey instance_key(const ast::Function &f, const sema::InstanceSpec &spec) {
  InstanceKey key{{}, spec.absent};
  for (const ast::GenericParam &g : f.generics)
    if (auto it = spec.params.find(g.name.text); it != spec.params.end()) key.first.insert(*it);
  return key;
}

} // namespace tkc::driver
