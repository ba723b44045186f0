#include "compress/knapsack.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace curvq::internal {
namespace {

struct Candidate {
  size_t index;  // among the group's items
  int64_t weight;
  double cost;
};

// From one item on the lower convex hull of a group to the next: heavier and cheaper.
struct Step {
  size_t group;
  int64_t weight;
  double saved;
};

struct State {
  int64_t weight;
  double cost;
  uint32_t parent;  // in the layer before
  uint32_t item;    // among the group's candidates
};

// Heavier ones only where they are cheaper.
std::vector<Candidate> undominated(const std::vector<KnapsackItem>& items) {
  std::vector<Candidate> all, kept;
  for (size_t i = 0; i < items.size(); ++i) all.push_back({i, items[i].weight, items[i].cost});
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.cost < b.cost;
  });
  for (const Candidate& one : all) {
    if (kept.empty() || one.cost < kept.back().cost) kept.push_back(one);
  }
  return kept;
}

void add_hull(const std::vector<Candidate>& group, size_t number, std::vector<Step>& steps) {
  std::vector<Candidate> hull;
  for (const Candidate& next : group) {
    while (hull.size() > 1) {
      const Candidate &a = hull[hull.size() - 2], &b = hull.back();
      const double before = (a.cost - b.cost) * static_cast<double>(next.weight - b.weight);
      const double after = (b.cost - next.cost) * static_cast<double>(b.weight - a.weight);
      if (before > after) break;
      hull.pop_back();
    }
    hull.push_back(next);
  }
  for (size_t i = 1; i < hull.size(); ++i) {
    steps.push_back({number, hull[i].weight - hull[i - 1].weight, hull[i - 1].cost - hull[i].cost});
  }
}

// The linear relaxation over the groups first, first + 1, ...: the lightest items, then steps along
// the hulls in the order of what they save by weight, the last one in part.
class Relaxation {
 public:
  Relaxation(const std::vector<std::vector<Candidate>>& groups, size_t first) {
    for (size_t g = first; g < groups.size(); ++g) {
      lightest_ += groups[g].front().weight;
      cost_ += groups[g].front().cost;
      add_hull(groups[g], g, steps_);
    }
    std::stable_sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
      return a.saved * static_cast<double>(b.weight) > b.saved * static_cast<double>(a.weight);
    });
    weights_ = {0};
    saved_ = {0};
    for (const Step& step : steps_) {
      weights_.push_back(weights_.back() + step.weight);
      saved_.push_back(saved_.back() + step.saved);
    }
  }

  // The least cost within `capacity`; infinite where nothing fits.
  double bound(int64_t capacity) const {
    const int64_t room = capacity - lightest_;
    if (room < 0) return std::numeric_limits<double>::infinity();
    const size_t whole =
        std::upper_bound(weights_.begin(), weights_.end(), room) - weights_.begin() - 1;
    double saved = saved_[whole];
    if (whole < steps_.size()) {
      saved += steps_[whole].saved * static_cast<double>(room - weights_[whole]) /
               static_cast<double>(steps_[whole].weight);
    }
    return cost_ - saved;
  }

  // The cost of a solution: steps as long as they fit, no more of a group whose step does not.
  double greedy(int64_t capacity, std::vector<char>& closed) const {
    int64_t room = capacity - lightest_;
    if (room < 0) return std::numeric_limits<double>::infinity();
    std::fill(closed.begin(), closed.end(), 0);
    double cost = cost_;
    for (const Step& step : steps_) {
      if (closed[step.group]) continue;
      if (step.weight > room) {
        closed[step.group] = 1;
        continue;
      }
      room -= step.weight;
      cost -= step.saved;
    }
    return cost;
  }

 private:
  int64_t lightest_ = 0;
  double cost_ = 0;
  std::vector<Step> steps_;
  std::vector<int64_t> weights_;  // of so many steps
  std::vector<double> saved_;
};

}  // namespace

KnapsackSolution solve_knapsack(const std::vector<std::vector<KnapsackItem>>& groups,
                                int64_t capacity) {
  std::vector<std::vector<Candidate>> candidates;
  double scale = 0;  // what rounding errors of sums are measured by
  for (const auto& group : groups) {
    if (group.empty()) throw std::logic_error("a knapsack group has no items");
    candidates.push_back(undominated(group));
    scale += std::abs(candidates.back().front().cost);
  }
  const double slack = 1e-12 * scale;
  KnapsackSolution solution;
  std::vector<char> closed(groups.size());
  const Relaxation root(candidates, 0);
  solution.relaxation = root.bound(capacity);
  if (std::isinf(solution.relaxation)) return solution;
  double known = root.greedy(capacity, closed);

  std::vector<std::vector<State>> layers = {{{0, 0, 0, 0}}};
  for (size_t g = 0; g < groups.size(); ++g) {
    const Relaxation rest(candidates, g + 1);
    const std::vector<State>& before = layers.back();
    std::vector<State> next;
    double best = std::numeric_limits<double>::infinity();
    int64_t best_weight = 0;
    double best_cost = 0;
    for (uint32_t i = 0; i < candidates[g].size(); ++i) {
      for (uint32_t s = 0; s < before.size(); ++s) {
        const State state{before[s].weight + candidates[g][i].weight,
                          before[s].cost + candidates[g][i].cost, s, i};
        const double bound = state.cost + rest.bound(capacity - state.weight);
        ++solution.states;
        if (!(bound <= known + slack)) continue;
        next.push_back(state);
        if (bound < best) best = bound, best_weight = state.weight, best_cost = state.cost;
      }
    }
    known = std::min(known, best_cost + rest.greedy(capacity - best_weight, closed));
    std::stable_sort(next.begin(), next.end(), [](const State& a, const State& b) {
      return a.weight != b.weight ? a.weight < b.weight : a.cost < b.cost;
    });
    std::vector<State> kept;
    for (const State& state : next) {
      if (kept.empty() || state.cost < kept.back().cost) kept.push_back(state);
    }
    layers.push_back(std::move(kept));
  }

  const State* state = &layers.back().back();  // the cheapest: costs fall as weights rise
  solution.weight = state->weight;
  solution.cost = state->cost;
  solution.choice.resize(groups.size());
  for (size_t g = groups.size(); g-- > 0;) {
    solution.choice[g] = candidates[g][state->item].index;
    state = &layers[g][state->parent];
  }
  return solution;
}

}  // namespace curvq::internal
