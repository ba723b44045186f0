"""curvq verify on sound models and on copies with one thing broken each."""

import json
import shutil
import struct
import unittest

from quantized import LAYOUTS, quantized_copy
from support import MODELS, CliTest, edit_json, edit_tensors, read_safetensors, write_safetensors

UP = "model.layers.1.mlp.up_proj"
Q = "model.layers.0.self_attn.q_proj"


class VerifyTest(CliTest):
    def assert_problems(self, model, *expected, status=6):
        """Exactly these problems at error level, each a tuple of what its line holds."""
        path = self.dir / "results.json"
        text = self.run_curvq("verify", model, "--json-file", path, status=status).stdout
        results = json.loads(path.read_text())["results"]
        found = [f"{p['file']}: {p['tensor']}: {p['text']}" for p in results["problems"] if p["severity"] != "warning"]
        self.assertEqual(len(found), len(expected), found)
        for line, parts in zip(found, expected):
            for part in [parts] if isinstance(parts, str) else parts:
                self.assertIn(part, line)
        self.assertEqual((results["ok"], results["errors"]), (not expected, len(expected)))
        self.assertEqual(len([l for l in text.splitlines() if l.startswith(("error: ", "unreadable: "))]), len(found))

    def quantized(self, layout, **options):
        return quantized_copy(self.dir / "model", layout, **options)[0]

    def with_tensor(self, model, name, change):
        """change(tensor) on [dtype, shape, data]."""
        edit_tensors(model, lambda tensors: change(tensors[name]))
        return model


class Sound(VerifyTest):
    def test_every_test_model(self):
        for name in ["stories260K", "llama_gqa_tied", "llama_mha_untied", "llama_biases_sharded", "llama_wide_heads",
                     "llama_rope_llama3"]:
            with self.subTest(name):
                model = self.copy_model(name, name)
                self.assertIn(": ok; ", self.run_curvq("verify", model).stdout)

    def test_every_layout(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                model, values = quantized_copy(self.dir / layout, layout)
                results = self.run_json("verify", model)["results"]
                self.assertEqual((results["ok"], results["quantized_layers"]), (True, len(values)))

    def test_ignored_layers(self):
        down = ["model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"]
        self.assert_problems(self.quantized("nvfp4", ignore=down), status=0)

    def test_bare_file(self):
        model = self.quantized("nvfp4")
        results = self.run_json("verify", model / "model.safetensors")["results"]
        self.assertEqual((results["ok"], results["quantized_layers"], results["warnings"]), (True, 14, 0))

    def test_unknown_family_is_a_warning(self):
        model = self.quantized("int4")
        edit_json(model / "config.json", lambda config: config.update(model_type="zebra"))
        result = self.run_curvq("verify", model)
        self.assertIn("warning: config.json: ", result.stdout)
        self.assertIn("zebra", result.stdout)
        self.assertIn("14 quantized layers", result.stdout)


class Unreadable(VerifyTest):
    def test_no_such_path(self):
        self.fails("verify", self.dir / "none", status=3, says="none: does not exist")

    def test_directory_without_weights(self):
        (self.dir / "empty").mkdir()
        self.assert_problems(self.dir / "empty", "no .safetensors", ("config.json", "missing"), status=3)

    def test_truncated_file(self):
        model = self.copy_model("llama_gqa_tied")
        path = model / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        self.assert_problems(model, "model.safetensors", status=3)

    def test_a_damaged_shard_does_not_hide_what_is_wrong_in_others(self):
        model = self.copy_model("llama_biases_sharded")
        first, second = sorted(model.glob("model-*.safetensors"))
        second.write_bytes(b"x")

        def change(tensors):
            name = min(n for n in tensors if n.endswith("norm.weight"))
            tensors[name][2][0:2] = struct.pack("<H", 0x7FC0)

        edit_tensors(first, change)
        self.assert_problems(model, second.name, (first.name, "norm.weight", "NaN"), status=3)

    def test_config_that_is_not_json(self):
        model = self.copy_model("llama_gqa_tied")
        (model / "config.json").write_text('{"model_type": "llama"')
        self.assert_problems(model, "config.json", status=3)

    def test_quantization_that_is_not_supported(self):
        model = self.quantized("int4")
        edit_json(model / "config.json", lambda config: config["quantization_config"].update(quant_method="gptq"))
        self.assert_problems(model, ("config.json", "gptq"), status=3)


class Files(VerifyTest):
    def sharded(self):
        model = self.copy_model("llama_biases_sharded")
        return model, *sorted(model.glob("model-*.safetensors")), model / "model.safetensors.index.json"

    def test_missing_shard(self):
        model, _, second, _ = self.sharded()
        count = len(read_safetensors(second))
        second.unlink()
        self.assert_problems(model, (second.name, "missing", f"{count} tensors"))

    def test_missing_shard_without_an_index(self):
        model, first, second, index = self.sharded()
        index.unlink()
        first.unlink()
        self.assert_problems(model, (first.name, "missing", "2 shards"))

    def test_index_that_lists_what_is_not_there(self):
        model, first, _, index = self.sharded()
        edit_json(index, lambda value: value["weight_map"].update({"ghost.weight": first.name}))
        self.assert_problems(model, ("index.json", "ghost.weight", first.name))

    def test_index_that_lists_another_shard(self):
        model, first, second, index = self.sharded()
        edit_json(index, lambda value: value["weight_map"].update({"model.norm.weight": first.name}))
        self.assert_problems(model, ("index.json", "model.norm.weight", first.name, second.name))

    def test_tensor_that_the_index_leaves_out_is_a_warning(self):
        model, _, _, index = self.sharded()
        edit_json(index, lambda value: value["weight_map"].pop("model.norm.weight"))
        self.assertIn("model.norm.weight: not in", self.run_curvq("verify", model).stdout)

    def test_index_without_weight_map(self):
        model, _, _, index = self.sharded()
        index.write_text("{}")
        self.assert_problems(model, ("index.json", "weight_map"), status=3)

    def test_index_that_leaves_the_directory(self):
        model, _, _, index = self.sharded()
        edit_json(index, lambda value: value["weight_map"].update({"model.norm.weight": "../x.safetensors"}))
        self.assert_problems(model, ("index.json", "../x.safetensors"), status=3)

    def test_tensor_in_two_shards(self):
        model, first, second, _ = self.sharded()
        tensors = read_safetensors(first)
        tensors["model.norm.weight"] = read_safetensors(second)["model.norm.weight"]
        write_safetensors(first, tensors)
        result = self.run_curvq("verify", model, status=6).stdout
        self.assertIn(f"error: {second.name}: model.norm.weight: also in {first.name}\n", result)

    def test_other_safetensors_is_a_warning(self):
        model = self.copy_model("llama_gqa_tied")
        shutil.copy(MODELS / "llama_gqa_tied" / "logits.safetensors", model)
        self.assertIn("warning: logits.safetensors: not part", self.run_curvq("verify", model).stdout)


class Config(VerifyTest):
    def test_missing_config(self):
        model = self.copy_model("llama_gqa_tied")
        (model / "config.json").unlink()
        self.assert_problems(model, ("config.json", "missing"))

    def test_missing_key(self):
        model = self.copy_model("llama_gqa_tied")
        edit_json(model / "config.json", lambda config: config.pop("num_hidden_layers"))
        self.assert_problems(model, ("config.json", "num_hidden_layers"))

    def test_shape(self):
        model = self.copy_model("llama_gqa_tied")
        self.with_tensor(model, UP + ".weight", lambda tensor: tensor[1].reverse())
        self.assert_problems(model, ("model.safetensors", UP, "[64, 128]", "[128, 64]"))

    def test_missing_and_unexpected_tensor_are_both_listed(self):
        model = self.copy_model("llama_gqa_tied")
        edit_tensors(model, lambda tensors: tensors.update({"odd.weight": tensors.pop("model.norm.weight")}))
        self.assert_problems(model, ("config.json", "model.norm.weight", "missing", "[64]"),
                             ("model.safetensors", "odd.weight", "not part"))

    def test_dtype_of_a_plain_weight(self):
        model = self.copy_model("llama_gqa_tied")
        self.with_tensor(model, "model.norm.weight", lambda tensor: tensor.__setitem__(0, "I16"))
        self.assert_problems(model, ("model.norm.weight", "I16"))

    def test_tied_embeddings_and_a_head_of_its_own(self):
        model = self.copy_model("llama_gqa_tied")
        edit_tensors(model, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"]}))
        self.assertIn("lm_head.weight: a copy of", self.run_curvq("verify", model).stdout)
        self.with_tensor(model, "lm_head.weight", lambda tensor: tensor[2].__setitem__(0, tensor[2][0] ^ 1))
        self.assert_problems(model, ("lm_head.weight", "tie_word_embeddings"))

    def test_head_missing_where_embeddings_are_not_tied(self):
        model = self.copy_model("llama_gqa_tied")
        edit_json(model / "config.json", lambda config: config.update(tie_word_embeddings=False))
        self.assert_problems(model, ("config.json", "lm_head.weight", "missing", "[160, 64]"))

    def test_tied_head_that_is_not_ignored(self):
        model = self.quantized("int4")
        edit_json(model / "config.json", lambda config: config["quantization_config"].update(ignore=[]))
        self.assert_problems(model, ("config.json", "lm_head", "ignore"))


class Layers(VerifyTest):
    def test_plain_layer_that_is_not_ignored(self):
        model = self.quantized("int4", ignore=[UP])
        edit_json(model / "config.json", lambda config: config["quantization_config"]["ignore"].remove(UP))
        self.assert_problems(model, (UP + ".weight", "stored plain as BF16", "ignore"),
                             ("fuse", "gate_proj int4", "up_proj plain"))

    def test_quantized_layer_that_is_ignored(self):
        model = self.quantized("int4")
        names = [f"model.layers.0.mlp.{name}_proj" for name in ["gate", "up", "down"]]
        edit_json(model / "config.json", lambda config: config["quantization_config"]["ignore"].extend(names))
        self.assert_problems(model, *[(n, "leaves this layer plain") for n in sorted(names, key=names.index)])

    def test_quantized_without_quantization_config(self):
        model = self.quantized("fp8")
        edit_json(model / "config.json", lambda config: config.pop("quantization_config"))
        self.assert_problems(model, *["has no quantization_config"] * 14)

    def test_missing_part(self):
        for layout, part in [("nvfp4", "weight_global_scale"), ("mxfp4", "weight_scale"), ("int4", "weight_shape"),
                             ("int4-asymmetric", "weight_zero_point"), ("int8", "weight_packed")]:
            with self.subTest(f"{layout} {part}"):
                model, _ = quantized_copy(self.dir / f"{layout}-{part}", layout)
                edit_tensors(model, lambda tensors: tensors.pop(f"{UP}.{part}"))
                self.assert_problems(model, (f"{UP}.{part}", "missing"))

    def test_dtype_of_a_part(self):
        model = self.quantized("mxfp4")
        self.with_tensor(model, UP + ".weight_scale", lambda tensor: tensor.__setitem__(0, "F8_E8M0"))
        self.assert_problems(model, (UP + ".weight_scale", "F8_E8M0 [128, 2]", "wants U8 [128, 2]"))

    def test_shape_of_a_part(self):
        model = self.quantized("nvfp4")
        self.with_tensor(model, UP + ".weight_scale", lambda tensor: tensor.__setitem__(1, [64, 8]))
        self.assert_problems(model, (UP + ".weight_scale", "[64, 8]", "[128, 4]"))

    def test_weight_shape_that_says_something_else(self):
        model = self.quantized("int4")
        self.with_tensor(model, UP + ".weight_shape", lambda t: t.__setitem__(2, struct.pack("<2q", 64, 128)))
        self.assert_problems(model, (UP + ".weight_shape", "[64, 128]", "[128, 64]"))

    def test_part_that_the_scheme_does_not_have(self):
        model = self.quantized("int4-asymmetric")
        weights = lambda config: config["quantization_config"]["config_groups"]["group_0"]["weights"]
        edit_json(model / "config.json", lambda config: weights(config).update(symmetric=True))
        self.assert_problems(model, *[("weight_zero_point", "has no zero points")] * 14)

    def test_group_size_that_does_not_divide(self):
        model = self.quantized("int4")
        weights = lambda config: config["quantization_config"]["config_groups"]["group_0"]["weights"]
        edit_json(model / "config.json", lambda config: weights(config).update(group_size=48))
        self.assert_problems(model, *[("config.json", "group_size 48", "does not divide in_features")] * 14)

    def test_quantization_config_that_contradicts_itself(self):
        model = self.quantized("int4")
        edit_json(model / "config.json", lambda config: config["quantization_config"].pop("config_groups"))
        self.assert_problems(model, ("config.json", "config_groups"))

    def test_fused_layers_with_unequal_tensor_scales(self):
        model = self.quantized("nvfp4")
        name = "model.layers.0.self_attn.k_proj.weight_global_scale"
        self.with_tensor(model, name, lambda tensor: tensor.__setitem__(2, struct.pack("<f", 100)))
        self.with_tensor(model, UP + ".weight_global_scale", lambda t: t.__setitem__(2, struct.pack("<f", 200)))
        self.assert_problems(model, ("layers.0.self_attn", "q_proj 320, k_proj 100, v_proj 320"),
                             ("layers.1.mlp", "gate_proj 320, up_proj 200"))

    def test_fused_layers_of_which_one_is_plain(self):
        self.assert_problems(self.quantized("nvfp4", ignore=[Q]), ("layers.0.self_attn", "fuse", "q_proj plain"))

    def test_unknown_family_with_a_damaged_layer(self):
        model = self.quantized("nvfp4")
        edit_json(model / "config.json", lambda config: config.update(model_type="zebra"))
        edit_tensors(model, lambda tensors: tensors.pop(UP + ".weight_global_scale"))
        self.assert_problems(model, (UP + ".weight_global_scale", "missing"))


class Values(VerifyTest):
    def assert_scale(self, layout, data, says, part="weight_scale", at=4):
        with self.subTest(f"{layout} {says}"):
            shutil.rmtree(self.dir / "model", ignore_errors=True)
            model = self.quantized(layout)
            name = f"model.layers.1.self_attn.o_proj.{part}"
            self.with_tensor(model, name, lambda tensor: tensor[2].__setitem__(slice(at, at + len(data)), data))
            self.assert_problems(model, ("model.safetensors", name, says))

    def test_e4m3_scales(self):
        # o_proj is [64, 64]: four scales a row, so byte 4 is at [1, 0].
        self.assert_scale("nvfp4", b"\x7f", "1 of 256 scales is NaN, the first at [1, 0]")
        self.assert_scale("nvfp4", b"\xff\x7f", "2 of 256 scales are NaN, the first at [1, 0]")
        self.assert_scale("nvfp4", b"\x00", "zero")
        self.assert_scale("nvfp4", b"\x80", "zero")
        self.assert_scale("nvfp4", b"\xb8", "negative")

    def test_e8m0_scales(self):
        self.assert_scale("mxfp4", b"\xff", "1 of 128 scales is NaN (E8M0 code 255), the first at [2, 0]")

    def test_float_scales(self):
        for value, says in [(float("nan"), "NaN"), (float("inf"), "infinite"), (0, "zero"), (-1, "negative")]:
            self.assert_scale("int4", struct.pack("<f", value), f"1 of 128 scales is {says}, the first at [0, 1]")
        for value, says in [(float("nan"), "NaN"), (0, "zero")]:
            self.assert_scale("nvfp4", struct.pack("<f", value), says, part="weight_global_scale", at=0)

    def test_fp8_weights(self):
        self.assert_scale("fp8", b"\xff", "1 of 4096 values is NaN, the first at [0, 4]", part="weight")

    def test_plain_weights(self):
        model = self.copy_model("stories260K")
        for name, at, value in [("model.embed_tokens.weight", 4 * 65, float("nan")), (Q + ".weight", 0, float("inf"))]:
            self.with_tensor(model, name, lambda t: t[2].__setitem__(slice(at, at + 4), struct.pack("<f", value)))
        self.assert_problems(model, ("model.embed_tokens.weight", "1 of 32768 values is NaN, the first at [1, 1]"),
                             (Q, "1 of 4096 values is infinite, the first at [0, 0]"))

    def test_bare_file(self):
        model = self.quantized("nvfp4")
        self.with_tensor(model, UP + ".weight_scale", lambda tensor: tensor[2].__setitem__(0, 0x7F))
        self.assert_problems(model / "model.safetensors", (UP, "NaN"))


class Tokens(VerifyTest):
    def test_tokenizer_with_more_tokens_than_the_model(self):
        model = self.copy_model("stories260K")

        def change(tokenizer):
            token = dict(tokenizer["added_tokens"][0], id=600, content="<extra>")
            tokenizer["added_tokens"].append(token)

        edit_json(model / "tokenizer.json", change)
        self.assert_problems(model, ("tokenizer.json", "600", "512"))

    def test_damaged_tokenizer(self):
        model = self.copy_model("stories260K")
        (model / "tokenizer.json").write_text("{")
        self.assert_problems(model, "tokenizer.json")

    def test_missing_tokenizer_is_a_warning(self):
        model = self.copy_model("stories260K")
        (model / "tokenizer.json").unlink()
        self.assertIn("warning: tokenizer.json: missing", self.run_curvq("verify", model).stdout)

    def test_ids_of_generation_config(self):
        model = self.copy_model("stories260K")
        (model / "generation_config.json").write_text(
            json.dumps({"bos_token_id": 1, "eos_token_id": [2, 512], "pad_token_id": -1}))
        self.assert_problems(model, ("generation_config.json", "eos_token_id 512", "vocab_size 512"))
        (model / "generation_config.json").write_text('{"bos_token_id": -1, "eos_token_id": "x"}')
        self.assert_problems(model, ("bos_token_id -1"), ("eos_token_id", '"x"'))


if __name__ == "__main__":
    unittest.main()
