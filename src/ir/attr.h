// Attributes of ops: decisions live here, in the IR, never in side tables.
#pragma once
#include "layout/reg_layout.h"
#include "layout/smem_layout.h"
#include "support/check.h"
#include "support/dtype.h"
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tkc::ir {

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>, DType,
                          RegLayout, SmemLayout>;

// A small map in order of insertion (which is the order of printing).
class Attrs {
public:
  static Attrs one(std::string_view key, Attr value) {
    Attrs a;
    a.set(key, std::move(value));
    return a;
  }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  template <typename T> const T &get(std::string_view key) const {
    const Attr *a = find(key);
    TKC_CHECK(a && std::holds_alternative<T>(*a), "attribute `{}` is missing or of another type", key);
    return std::get<T>(*a);
  }
  int64_t i(std::string_view key) const { return get<int64_t>(key); }
  int64_t i_or(std::string_view key, int64_t fallback) const { return has(key) ? i(key) : fallback; }
  const std::string &s(std::string_view key) const { return get<std::string>(key); }
  const std::vector<int64_t> &ints(std::string_view key) const { return get<std::vector<int64_t>>(key); }
  DType dtype(std::string_view key) const { return get<DType>(key); }
  void set(std::string_view key, Attr value) {
    for (auto &[k, v] : list_)
      if (k == key) {
        v = std::move(value);
        return;
      }
    list_.emplace_back(std::string(key), std::move(value));
  }
  void erase(std::string_view key) {
    std::erase_if(list_, [&](const auto &kv) { return kv.first == key; });
  }
  const std::vector<std::pair<std::string, Attr>> &list() const { return list_; }

private:
  const Attr *find(std::string_view key) const {
    for (const auto &[k, v] : list_)
      if (k == key) return &v;
    return nullptr;
  }
  std::vector<std::pair<std::string, Attr>> list_;
};

} // namespace tkc::ir
