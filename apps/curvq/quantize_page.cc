#include <algorithm>

#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "curvq/report/page.h"
#include "quantize_report.h"

namespace curvq::cli {
namespace {

std::string number(const OrderedJson& value) { return number_text(value.get<double>()); }

void add_facts(const OrderedJson& document, HtmlPage& page) {
  const OrderedJson &inputs = document["inputs"], &results = document["results"];
  std::vector<std::pair<std::string, std::string>> facts;
  for (const char* role : {"model", "plan", "calibration", "stats"}) {
    if (!inputs.contains(role)) continue;
    facts.emplace_back(role, inputs[role]["path"].get<std::string>());
    facts.emplace_back(std::string(role) + " hash", inputs[role]["hash"].get<std::string>());
  }
  for (const auto& [key, value] : results["rounding"].items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  facts.emplace_back("bits a weight", number_text(8.0 * results["quantized_bytes"].get<double>() /
                                                  results["quantized_weights"].get<double>()));
  facts.emplace_back("checkpoint bytes", with_separators(results["stored_bytes"].get<int64_t>()));
  facts.emplace_back("curvq", document["version"].get<std::string>());
  page.add_facts(facts);
}

// The objective by layer (x is its number), a line for each step that some layer has.
void add_steps(const OrderedJson& layers, const char* key, const char* title, HtmlPage& page) {
  LineChart chart{title,
                  "layer, in the order of the list above",
                  "tr(G D H D^T) / tr(G W H W^T)",
                  /*log_y=*/true,
                  {}};
  double number = 0;
  for (const OrderedJson& layer : layers) {
    ++number;
    for (const OrderedJson& step : layer["steps"]) {
      if (!step.contains(key)) continue;
      const std::string name = step["step"].get<std::string>();
      auto line = std::find_if(chart.lines.begin(), chart.lines.end(),
                               [&](const Line& one) { return one.label == name; });
      if (line == chart.lines.end()) {
        chart.lines.push_back({name, {}, {}, {}});
        line = std::prev(chart.lines.end());
      }
      line->x.push_back(number);
      line->y.push_back(step[key].get<double>());
    }
  }
  if (!chart.lines.empty()) page.add_chart(chart.svg());
}

void add_layers(const OrderedJson& results, HtmlPage& page) {
  BarChart errors{"Error by layer", "tr(D H D^T) / tr(W H W^T)", {}};
  BarChart bits{"Bits by layer", "stored bits a weight", {}};
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OrderedJson& layer : results["layers"]) {
    const std::string name = layer["name"].get<std::string>();
    const std::string label = name + ": " + layer["scheme"].get<std::string>();
    errors.bars.push_back({label, layer["relative_error"].get<double>(), 0});
    bits.bars.push_back({label, layer["bits_per_weight"].get<double>(), 0});
    std::string facts = "damping " + number(layer["damping"]);
    if (layer.contains("shrinkage"))
      facts += ", output factor drawn to the identity by " + number(layer["shrinkage"]);
    if (layer.contains("note")) facts += "; " + layer["note"].get<std::string>();
    rows.emplace_back(name, facts);
  }
  page.add_heading("Layers");
  page.add_chart(errors.svg());
  page.add_chart(bits.svg());
  page.add_heading("Steps");
  page.add_text(
      "What each step of rounding left of the objective, G the identity where no output factor was "
      "asked for. A step that held-out tokens did not like is undone.");
  add_steps(results["layers"], "calibration", "By calibration tokens", page);
  add_steps(results["layers"], "held_out", "By held-out tokens", page);
  page.add_heading("Damping, shrinkage, fallbacks");
  for (const OrderedJson& layer : results["kept"]) {
    rows.emplace_back(layer["name"].get<std::string>(),
                      "kept: " + layer["reason"].get<std::string>());
  }
  page.add_facts(rows);
}

void add_guard(const OrderedJson& results, HtmlPage& page) {
  if (!results.contains("guard")) return;
  BarChart chart{"KL on held-out windows", "nats a token", {}};
  for (const OrderedJson& candidate : results["guard"]["candidates"]) {
    if (!candidate.contains("kl_mean")) continue;
    chart.bars.push_back({candidate["name"].get<std::string>(), candidate["kl_mean"].get<double>(),
                          candidate["kl_stderr"].get<double>()});
  }
  page.add_heading("Guard");
  page.add_chart(chart.svg());
  page.add_text("kept: " + results["guard"]["kept"].get<std::string>());
}

}  // namespace

std::string quantize_page(const OrderedJson& document) {
  HtmlPage page("Quantizing " + document["inputs"]["model"]["path"].get<std::string>());
  add_facts(document, page);
  add_layers(document["results"], page);
  add_guard(document["results"], page);
  return page.str();
}

}  // namespace curvq::cli
