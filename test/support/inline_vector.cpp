// A vector of limited room against std::vector.
#include "support/inline_vector.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <random>

using tkc::InlineVector;

TEST_CASE("InlineVector holds what std::vector holds after any changes") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; round++) {
    std::vector<int> model;
    InlineVector<int, 12> v;
    for (int step = 0; step < 40; step++) {
      int value = int(random() % 5);
      size_t at = model.empty() ? 0 : random() % (model.size() + 1);
      switch (random() % 6) {
      case 0:
        if (model.size() < 12) model.push_back(value), v.push_back(value);
        break;
      case 1:
        if (model.size() < 12) model.insert(model.begin() + ptrdiff_t(at), value), v.insert(v.begin() + at, value);
        break;
      case 2:
        if (at < model.size()) model.erase(model.begin() + ptrdiff_t(at)), v.erase(v.begin() + at);
        break;
      case 3:
        model.resize(std::min<size_t>(at + size_t(value), 12), value);
        v.resize(model.size(), value);
        break;
      case 4:
        model.erase(std::remove(model.begin(), model.end(), value), model.end());
        v.erase(std::remove(v.begin(), v.end(), value), v.end());
        break;
      default:
        if (!model.empty()) model.pop_back(), v.pop_back();
      }
      REQUIRE(v == model);
      REQUIRE(v.size() == model.size());
      InlineVector<int, 12> copy = v;
      REQUIRE(copy == v);
      copy.assign(3, 9);
      REQUIRE(copy.to_vector() == std::vector<int>{9, 9, 9});
    }
  }
  CHECK(InlineVector<int, 3>{1, 2} != InlineVector<int, 3>{1, 2, 0});
}
