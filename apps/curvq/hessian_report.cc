#include "hessian_report.h"

#include <cmath>
#include <vector>

#include "curvq/core/log.h"
#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "curvq/report/page.h"

namespace curvq::cli {
namespace {

std::vector<double> numbers(const OrderedJson& list) { return list.get<std::vector<double>>(); }

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::string text_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return with_separators(value.get<int64_t>());
  return value.is_number() ? number_text(value.get<double>()) : value.dump();
}

void add_facts(const OrderedJson& document, HtmlPage& page) {
  std::vector<std::pair<std::string, std::string>> facts;
  const OrderedJson& inputs = document["inputs"];
  for (const char* role : {"model", "data"}) {
    facts.emplace_back(role, text_of(inputs[role]["path"]));
    facts.emplace_back(std::string(role) + " hash", text_of(inputs[role]["hash"]));
  }
  const OrderedJson& results = document["results"];
  for (const char* key : {"operator", "loss", "loss_value", "gradient_norm", "reduction", "samples",
                          "loss_terms", "parameters", "dtype"}) {
    std::string name = key;
    for (char& c : name) c = c == '_' ? ' ' : c;
    if (results.contains(key)) facts.emplace_back(name, text_of(results[key]));
  }
  if (results.contains("trace")) {
    const OrderedJson& trace = results["trace"];
    facts.emplace_back("trace", text_of(trace["value"]) + " \u00b1 " + text_of(trace["stderr"]));
  }
  if (results.contains("kfac")) {
    const OrderedJson& kfac = results["kfac"];
    facts.emplace_back("K-FAC", "of the " + text_of(kfac["matrix"]) + " matrix, labels " +
                                    text_of(kfac["labels"]) + ", weight sharing " +
                                    text_of(kfac["weight_sharing"]));
  }
  facts.emplace_back("curvq", text_of(document["version"]));
  page.add_facts(facts);
}

void add_layers(const OrderedJson& layers, HtmlPage& page) {
  BarChart traces{"Trace by layer", "trace of the layer's diagonal block", {}};
  BarChart eigenvalues{"Top eigenvalue by layer", "of the layer's diagonal block", {}};
  BarChart kfac_traces{"K-FAC trace by layer", "tr A tr G", {}};
  BarChart kfac_eigenvalues{"Top K-FAC eigenvalue by layer", "largest of A times largest of G", {}};
  for (const OrderedJson& layer : layers) {
    const std::string name = layer["name"].get<std::string>();
    const auto add = [&](const char* key, BarChart& chart) {
      if (layer.contains(key)) chart.bars.push_back({name, layer[key].get<double>(), 0});
    };
    if (layer.contains("trace"))
      traces.bars.push_back(
          {name, layer["trace"]["value"].get<double>(), layer["trace"]["stderr"].get<double>()});
    if (layer.contains("top_eigenvalues")) {
      const OrderedJson& top = layer["top_eigenvalues"][0];
      eigenvalues.bars.push_back(
          {name, top["value"].get<double>(), top["error_bound"].get<double>()});
    }
    add("kfac_trace", kfac_traces);
    add("kfac_top_eigenvalue", kfac_eigenvalues);
  }
  page.add_heading("Layers");
  for (const BarChart* chart : {&traces, &eigenvalues, &kfac_traces, &kfac_eigenvalues}) {
    if (!chart->bars.empty()) page.add_chart(chart->svg());
  }
  if (!traces.bars.empty())
    page.add_text("Whiskers: one standard error of a trace, the error bound of an eigenvalue.");
}

void add_spectrum(const OrderedJson& results, HtmlPage& page) {
  if (!results.contains("density")) return;
  const OrderedJson& density = results["density"];
  page.add_heading("Spectrum");
  page.add_chart(LineChart{"Spectral density",
                           "eigenvalue",
                           "density",
                           /*log_y=*/true,
                           {{"density", numbers(density["at"]), numbers(density["density"]),
                             scaled(numbers(density["stderr"]), 2)}}}
                     .svg());
  page.add_text(
      format("Each node of the quadrature is smeared to a width of %s; the band is two "
             "standard errors. Within %s of zero: %s of the eigenvalues.",
             text_of(density["width"]).c_str(), text_of(density["near_zero"]).c_str(),
             text_of(density["near_zero_mass"]["value"]).c_str()));
}

void add_blocks(const OrderedJson& results, HtmlPage& page) {
  if (!results.contains("blocks")) return;
  const OrderedJson& blocks = results["blocks"];
  page.add_heading("Blocks");
  page.add_chart(HeatMap{"Frobenius norms of the blocks between layers", "norm",
                         blocks["names"].get<std::vector<std::string>>(),
                         blocks["frobenius"].get<std::vector<std::vector<double>>>()}
                     .svg());
  page.add_text("Outside of the diagonal blocks over within: " +
                text_of(blocks["off_diagonal_ratio"]["value"]));
}

void add_convergence(const OrderedJson& results, HtmlPage& page) {
  if (!results.contains("convergence")) return;
  page.add_heading("Convergence");
  page.add_text(
      "Each estimate as it stood behind so many probes or products; the band is the 95 % interval, "
      "or the error bound of an eigenvalue.");
  for (const auto& [estimator, course] : results["convergence"].items()) {
    page.add_chart(LineChart{"Convergence: " + text_of(course["of"]),
                             text_of(course["by"]),
                             text_of(course["of"]),
                             /*log_y=*/false,
                             {{estimator, numbers(course["at"]), numbers(course["value"]),
                               numbers(course["half_width"])}}}
                       .svg());
  }
}

}  // namespace

std::string hessian_page(const OrderedJson& document) {
  const OrderedJson& results = document["results"];
  HtmlPage page("Curvature of " + text_of(document["inputs"]["model"]["path"]));
  add_facts(document, page);
  if (results.contains("layers")) add_layers(results["layers"], page);
  add_spectrum(results, page);
  add_blocks(results, page);
  add_convergence(results, page);
  return page.str();
}

}  // namespace curvq::cli
