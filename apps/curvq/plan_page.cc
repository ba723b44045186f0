#include <map>

#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "curvq/report/page.h"
#include "plan_report.h"

namespace curvq::cli {
namespace {

std::string number(const OrderedJson& value) { return number_text(value.get<double>()); }

void add_facts(const OrderedJson& document, HtmlPage& page) {
  const OrderedJson& results = document["results"];
  const OrderedJson& plan = results["plan"];
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", document["inputs"]["model"]["path"].get<std::string>()},
      {"model hash", document["inputs"]["model"]["hash"].get<std::string>()},
      {"bits a weight", number(plan["bits"])},
      {"bytes of the layers", with_separators(plan["bytes"].get<int64_t>())},
      {"bytes of the checkpoint", with_separators(plan["checkpoint_bytes"].get<int64_t>())},
      {"predicted KL", number(plan["predicted_kl"])}};
  if (plan.contains("measured_kl")) {
    facts.emplace_back("measured KL", number(plan["measured_kl"]) + " \u00b1 " +
                                          number(plan["measured_kl_stderr"]));
    facts.emplace_back("measured on",
                       std::to_string(results["measured_windows"].get<int64_t>()) + " windows");
    facts.emplace_back("verdict", results["verdict"].get<std::string>());
  }
  facts.emplace_back("curvq", document["version"].get<std::string>());
  page.add_facts(facts);
}

void add_layers(const OrderedJson& results, HtmlPage& page) {
  BarChart bits{"The plan", "bits a weight", {}};
  BarChart losses{"Predicted loss by layer", "KL, nats a token", {}};
  BarChart errors{"Rounding error by layer", "tr(D H D^T) / tr(W H W^T)", {}};
  for (const OrderedJson& layer : results["layers"]) {
    const std::string label =
        layer["name"].get<std::string>() + ": " + layer["scheme"].get<std::string>();
    bits.bars.push_back({label, layer["bits"].get<double>(), 0});
    losses.bars.push_back({label, layer["predicted_kl"].get<double>(), 0});
    errors.bars.push_back({label, layer["relative_error"].get<double>(), 0});
  }
  page.add_heading("Layers");
  for (const BarChart* chart : {&bits, &losses, &errors}) page.add_chart(chart->svg());
}

// Of plans with `key`, by bytes of their layers.
Line line_of(const char* label, const OrderedJson& plans, const char* key) {
  std::map<double, double> points;
  for (const OrderedJson& plan : plans) {
    if (plan.contains(key)) points[plan["bytes"].get<double>()] = plan[key].get<double>();
  }
  Line line{label, {}, {}, {}};
  for (const auto& [bytes, value] : points) {
    line.x.push_back(bytes);
    line.y.push_back(value);
  }
  return line;
}

void add_trade(const OrderedJson& results, HtmlPage& page) {
  LineChart chart{"KL against bytes",
                  "bytes of the planned layers",
                  "KL, nats a token",
                  /*log_y=*/true,
                  {line_of("best plans, predicted", results["frontier"], "predicted_kl"),
                   line_of("uniform, predicted", results["uniform"], "predicted_kl")}};
  Line measured = line_of("measured", results["compared"], "measured_kl");
  if (!measured.x.empty()) chart.lines.push_back(std::move(measured));
  page.add_heading("Other plans");
  page.add_chart(chart.svg());
  BarChart compared{"Plans that were measured", "KL on held-out windows, nats a token", {}};
  for (const OrderedJson& plan : results["compared"]) {
    if (!plan.contains("measured_kl")) continue;
    compared.bars.push_back(
        {plan["name"].get<std::string>() + ", " + number(plan["bits"]) + " bits",
         plan["measured_kl"].get<double>(), plan["measured_kl_stderr"].get<double>()});
  }
  if (!compared.bars.empty()) page.add_chart(compared.svg());
}

}  // namespace

std::string plan_page(const OrderedJson& document) {
  HtmlPage page("Bit plan of " + document["inputs"]["model"]["path"].get<std::string>());
  add_facts(document, page);
  add_layers(document["results"], page);
  add_trade(document["results"], page);
  return page.str();
}

}  // namespace curvq::cli
