"""curvq plan, and curvq quantize by a plan."""

import json
import unittest

from support import MODELS, CliTest, edit_json, read_safetensors, write_safetensors

STORIES = MODELS / "stories260K"
IDS = STORIES / "wt2_ids_32x256.safetensors"
DATA = ("--calibration", f"{IDS}:calib_ids", "--num-samples", "10")
COMMON = ("plan", STORIES, "--on-indivisible", "keep", "--threads", "1")
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


class Plan(CliTest):
    def plan(self, *arguments, out="plan.json"):
        return self.run_json(*COMMON, *DATA, *arguments, "--out", self.dir / out)["results"]

    def quantize(self, plan, *arguments, out="mixed"):
        words = ("quantize", STORIES, "--plan", plan, "--out", self.dir / out, "--threads", "1", *arguments)
        return self.run_json(*words)["results"]

    def test_plan_is_what_quantize_does(self):
        results = self.plan("--bits", "4.75", "--method", "rtn")
        plan = json.loads((self.dir / "plan.json").read_text())
        layers = {row["name"]: row for row in results["layers"]}
        self.assertEqual(len(layers), 30)
        self.assertEqual(len(results["kept"]), 5)  # down_proj has 172 inputs
        weights = sum(row["shape"][0] * row["shape"][1] for row in layers.values())
        self.assertEqual(results["budget_bytes"], int(weights * 4.75 / 8) + 4 * 30)
        self.assertLessEqual(results["plan"]["bytes"], results["budget_bytes"])
        self.assertEqual(sum(row["bytes"] for row in layers.values()), results["plan"]["bytes"])
        self.assertAlmostEqual(results["plan"]["bits"], 8 * results["plan"]["bytes"] / weights)
        self.assertAlmostEqual(sum(row["predicted_kl"] for row in layers.values()), results["plan"]["predicted_kl"])
        self.assertLessEqual(results["relaxation_kl"], results["plan"]["predicted_kl"])
        self.assertEqual({name: entry["scheme"] for name, entry in plan["layers"].items()},
                         {**{name: row["scheme"] for name, row in layers.items()}, **{row["name"]: "keep" for row in results["kept"]}})
        for block in range(5):
            self.assertEqual(len({layers[f"model.layers.{block}.{name}"]["scheme"] for name in ATTENTION}), 1)
        self.assertGreater(len({row["scheme"] for row in layers.values()}), 1)

        report = self.quantize(self.dir / "plan.json", "--method", "rtn")
        self.assertEqual(report["quantized_bytes"], results["plan"]["bytes"])
        self.assertEqual(report["stored_bytes"], results["plan"]["checkpoint_bytes"])
        for row in report["layers"]:
            self.assertAlmostEqual(row["bits_per_weight"], layers[row["name"]]["bits"])
        config = json.loads((self.dir / "mixed" / "config.json").read_text())["quantization_config"]
        self.assertEqual(config["format"], "mixed-precision")
        self.assertGreater(len(config["config_groups"]), 1)
        self.run_curvq("verify", self.dir / "mixed")
        inspected = self.run_curvq("inspect", self.dir / "mixed").stdout
        for scheme in {row["scheme"].split()[0] for row in layers.values()}:
            self.assertIn(scheme, inspected)
        self.assertTrue(self.run_curvq("generate", self.dir / "mixed", "--prompt", "Once", "--max-new-tokens", "4", "--threads", "1").stdout)

        # What was measured on the windows kept out is what eval measures on them.
        dtype, shape, data = read_safetensors(IDS)["calib_ids"]
        size = len(data) // shape[0]
        judges = self.dir / "judges.safetensors"
        write_safetensors(judges, {"input_ids": [dtype, [2, shape[1]], data[8 * size : 10 * size]]})
        words = ("eval", self.dir / "mixed", "--reference", STORIES, "--data", judges, "--threads", "1")
        kl = self.run_json(*words)["results"]["kl_mean"]
        self.assertEqual(results["measured_windows"], 2)
        self.assertEqual(results["compared"][0]["name"], "plan")
        self.assertAlmostEqual(kl / results["compared"][0]["measured_kl"], 1, delta=1e-6)

    def test_same_input_same_bytes(self):
        arguments = ("--bits", "5", "--guard", "none")
        self.plan(*arguments)
        self.plan(*arguments, out="again.json")
        self.assertEqual((self.dir / "plan.json").read_bytes(), (self.dir / "again.json").read_bytes())
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["again.json", "plan.json"])

    def test_predicts_what_is_measured(self):
        results = self.plan("--bits", "5", "--preset", "fast", "--held-out", "0.4")
        for row in results["compared"]:
            self.assertLess(abs(row["measured_kl"] / row["predicted_kl"] - 1), 0.4, row)
        names = [row["name"] for row in results["compared"]]
        self.assertEqual(names[0], "plan")
        within = [row for row in results["uniform"] if row["bytes"] <= results["budget_bytes"]]
        self.assertIn(min(within, key=lambda row: row["predicted_kl"])["name"], names)
        above = [row for row in results["uniform"] if row["bytes"] >= results["plan"]["bytes"]]
        self.assertIn(min(above, key=lambda row: (row["bytes"], row["predicted_kl"]))["name"], names)
        for row in within:
            self.assertGreaterEqual(row["predicted_kl"], results["compared"][0]["predicted_kl"])
        self.assertTrue(results["verdict"])
        predictions = [row["predicted_kl"] for row in results["frontier"]]
        self.assertEqual(predictions, sorted(predictions, reverse=True))
        for row in results["layers"]:
            self.assertEqual([choice["predicted_kl"] for choice in row["choices"] if choice["scheme"] == "keep"], [0])

    def test_size_is_that_of_the_checkpoint(self):
        results = self.plan("--size", "450K", "--guard", "none", "--method", "rtn")
        self.assertLessEqual(results["plan"]["checkpoint_bytes"], 450 * 1024)
        report = self.quantize(self.dir / "plan.json", "--method", "rtn", "--dry-run")
        self.assertEqual(report["stored_bytes"], results["plan"]["checkpoint_bytes"])

    def test_a_uniform_plan_that_is_better_is_written(self):
        """A plan by a rule that ignores what matters to the outputs."""
        arguments = ("--bits", "4.5", "--by", "hawq", "--method", "rtn", "--format", "nvfp4", "--format", "mxfp4", "--format", "int8")
        results = self.plan(*arguments)
        measured = {row["name"]: row["measured_kl"] for row in results["compared"] if row["bytes"] <= results["budget_bytes"]}
        self.assertGreater(len(measured), 1)
        self.assertEqual(results["plan"]["measured_kl"], min(measured.values()))
        if measured["plan"] > min(measured.values()):
            self.assertIn("is better than the plan", results["verdict"])
            plan = json.loads((self.dir / "plan.json").read_text())
            self.assertEqual({entry["scheme"] for name, entry in plan["layers"].items() if "down_proj" not in name}, {"nvfp4"})

    def test_statistics_instead_of_calibration(self):
        stats = self.dir / "S.safetensors"
        self.run_curvq("hessian", STORIES, "--data", f"{IDS}:calib_ids", "--num-samples", "4", "--what", "kfac", "--stats", stats,
                       "--threads", "1")
        words = (*COMMON, "--stats", stats, "--bits", "4.75", "--json")
        results = json.loads(self.run_curvq(*words).stdout)["results"]
        self.assertEqual(results["measured_windows"], 0)
        self.assertEqual(results["factor_tokens"], 4 * 255)
        self.assertNotIn("measured_kl", results["plan"])
        words += ("--data", f"{IDS}:eval_ids", "--num-samples", "2", "--out", self.dir / "plan.json")
        results = json.loads(self.run_curvq(*words).stdout)["results"]
        self.assertEqual(results["measured_windows"], 2)
        self.quantize(self.dir / "plan.json", "--stats", stats)
        self.fails(*words, "--held-out", "0.1", status=2, says="--held-out")

    def test_bad_requests(self):
        self.fails(*COMMON, *DATA, status=2, says="--bits or --size")
        self.fails(*COMMON, *DATA, "--bits", "4", "--size", "1M", status=2, says="--bits or --size")
        self.fails(*COMMON, "--bits", "4.75", status=2, says="--calibration")
        self.fails(*COMMON, *DATA, "--bits", "4", status=2, says=["smallest formats", "4.250 bits"])
        self.fails(*COMMON, *DATA, "--size", "1K", status=2, says="--size")
        self.fails(*COMMON, *DATA, "--bits", "5", "--format", "int5", status=2, says="int5")
        self.fails(*COMMON, *DATA, "--bits", "5", "--format", "int8", "--format", "int8", status=2, says="twice")
        self.fails(*COMMON, *DATA, "--bits", "5", "--ignore", "nothing", status=2, says="--ignore 'nothing'")
        self.fails("plan", STORIES, *DATA, "--bits", "5", "--format", "nvfp4", status=2, says="down_proj")
        self.fails(*COMMON, *DATA, "--bits", "5", "--held-out", "0", "--guard", "held-out", status=2, says="--guard")
        (self.dir / "there").write_text("")
        self.fails(*COMMON, *DATA, "--bits", "5", "--out", self.dir / "there", status=2, says="there")

    def test_edited_plans(self):
        self.plan("--bits", "4.75", "--guard", "none", "--method", "rtn")
        path = self.dir / "plan.json"
        original = path.read_text()

        def change(fn):
            path.write_text(original)
            edit_json(path, fn)

        def fails(says, *arguments, status=3):
            self.fails("quantize", STORIES, "--plan", path, "--out", self.dir / "out", "--method", "rtn", *arguments, status=status,
                       says=says)

        o_proj = "model.layers.0.self_attn.o_proj"
        change(lambda plan: plan["layers"].pop(o_proj))
        fails(["plan.json", f"no entry for {o_proj}"])
        change(lambda plan: plan["layers"].update(extra={"scheme": "nvfp4"}))
        fails("the entry extra")
        change(lambda plan: plan["layers"][o_proj].update(scheme="nvfp5"))
        fails([o_proj, "nvfp5"])
        change(lambda plan: plan["layers"]["model.layers.0.self_attn.q_proj"].update(scheme="int8 group-size=32"))
        fails("loaders fuse")
        change(lambda plan: plan["layers"]["model.layers.0.mlp.down_proj"].update(scheme="nvfp4"))
        fails("model.layers.0.mlp.down_proj", status=2)
        change(lambda plan: plan.update(model_hash="0"))
        fails("model with hash 0")
        change(lambda plan: None)
        fails("--scheme", "--scheme", "int8", status=2)
        path.write_text("{}")
        fails("no plan")

        change(lambda plan: (plan.pop("model_hash"), plan["layers"][o_proj].update(scheme="keep")))
        report = self.quantize(path, "--method", "rtn")
        self.assertIn(o_proj, [row["name"] for row in report["kept"]])
        config = json.loads((self.dir / "mixed" / "config.json").read_text())["quantization_config"]
        self.assertIn(o_proj, config["ignore"])


if __name__ == "__main__":
    unittest.main()
