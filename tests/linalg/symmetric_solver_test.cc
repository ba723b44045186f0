#include "curvq/linalg/symmetric_solver.h"

#include "linalg/symmetric_solver_checks.h"

namespace curvq {
namespace {

class Solver : public testing::TestWithParam<SymmetricLibrary> {};

TEST_P(Solver, FactorisesInvertsAndDiagonalises) {
  const auto solver = make_symmetric_solver(GetParam());
  check_solver<float>(*solver);
  check_solver<double>(*solver);
}

TEST_P(Solver, EntriesThatAreNotFiniteAreAnError) {
  const auto solver = make_symmetric_solver(GetParam());
  std::vector<double> a(9, std::numeric_limits<double>::quiet_NaN()), values(3);
  EXPECT_THROW(solver->eigen(3, a.data(), values.data()), NumericalError);
  std::vector<double> b(9, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(solver->cholesky(3, b.data()));
}

INSTANTIATE_TEST_SUITE_P(Libraries, Solver,
                         testing::Values(SymmetricLibrary::kEigen, SymmetricLibrary::kLapack),
                         [](const auto& info) {
                           return make_symmetric_solver(info.param)->name();
                         });

}  // namespace
}  // namespace curvq
