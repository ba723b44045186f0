"""The command line, option files, and what every command has in common."""

import json
import os
import pty
import signal
import subprocess
import time
import unittest

from support import BINARY, MODELS, CliTest

MODEL = MODELS / "llama_gqa_tied"


class Commands(CliTest):
    def test_without_arguments_prints_help_on_stderr(self):
        result = self.run_curvq(status=2)
        self.assertEqual(result.stdout, "")
        self.assertIn("usage: curvq COMMAND", result.stderr)

    def test_help_lists_every_command(self):
        text = self.run_curvq("--help").stdout
        for command in ["inspect", "quantize", "eval", "generate", "compare", "verify"]:
            self.assertIn(f"\n  {command} ", text)

    def test_help_of_a_command(self):
        for arguments in [["help", "compare"], ["compare", "--help", "nonsense", "--nonsense"]]:
            text = self.run_curvq(*arguments).stdout
            for part in ["usage: curvq compare A B [options]", "--sort name|relative|max|cosine", "(default: name)",
                         "common options:", "-q, --quiet", "example:\n  curvq compare "]:
                self.assertIn(part, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
            self.assertFalse([line for line in text.splitlines() if line.endswith(" ")])

    def test_version(self):
        self.assertRegex(self.run_curvq("--version").stdout, r"^curvq \d+\.\d+\.\d+\n$")

    def test_unknown_command_suggests_the_nearest(self):
        self.fails("inspct", MODEL, status=2, says=["unknown command 'inspct'", "did you mean inspect?"])
        self.fails("zzzzzzzz", status=2, says=["unknown command 'zzzzzzzz'", "curvq --help"])
        self.fails("", status=2, says="unknown command ''")

    def test_option_before_the_command(self):
        self.fails("--json", "inspect", MODEL, status=2, says=["--json", "behind the command"])


class CommandLine(CliTest):
    def test_unknown_option_suggests_the_nearest(self):
        self.fails("compare", MODEL, MODEL, "--sorted=max", status=2, says=["--sorted", "did you mean --sort?"])
        self.fails("compare", MODEL, MODEL, "--zzzzzz", status=2, says=["--zzzzzz", "curvq compare --help"])
        self.fails("compare", MODEL, MODEL, "-x", status=2, says="unknown option -x")

    def test_abbreviations_are_not_guessed(self):
        self.fails("compare", MODEL, MODEL, "--sor", "max", status=2, says=["--sor", "did you mean --sort?"])
        self.fails("compare", MODEL, MODEL, "--thr=1", status=2, says=["--thr", "did you mean --threads?"])

    def test_values(self):
        self.fails("compare", MODEL, MODEL, "--sort", status=2, says="--sort needs a value")
        self.fails("compare", MODEL, MODEL, "--sort=", status=2, says="--sort needs a value")
        self.fails("compare", MODEL, MODEL, "--sort", "", status=2, says="--sort")
        self.fails("compare", MODEL, MODEL, "--sort", "size", status=2,
                   says=["--sort size", "name, relative, max, cosine"])
        self.fails("compare", MODEL, MODEL, "--json=yes", status=2, says="--json takes no value")
        self.fails("compare", MODEL, MODEL, "--limit", "1", "--limit", "2", status=2,
                   says=["--limit", "given twice (1 and 2)"])

    def test_numbers(self):
        for bad in ["x", "1.5", "-1", " 1", "99999999999999999999"]:
            self.fails("compare", MODEL, MODEL, "--limit", bad, status=2,
                       says=[f"--limit {bad}", "a whole number of at least 0"])
        self.fails("compare", MODEL, MODEL, "--threads", "5000", status=2, says=["5000", "from 0 to 4096"])

    def test_positionals(self):
        self.fails("compare", MODEL, status=2, says="compare needs B")
        self.fails("compare", status=2, says="compare needs A")
        self.fails("inspect", MODEL, "more", status=2, says="unexpected argument 'more'")
        self.fails("inspect", "", status=2, says="MODEL is empty")

    def test_two_dashes_end_the_options(self):
        (self.dir / "--json").symlink_to(MODEL)
        result = self.run_curvq("inspect", "--", "--json", cwd=self.dir)
        self.assertIn("llama, 2 layers", result.stdout)

    def test_quiet_and_verbose(self):
        self.fails("inspect", MODEL, "-q", "-v", status=2, says="contradict")
        self.assertEqual(self.run_curvq("inspect", MODEL, "-q", "--progress", "plain").stderr, "")


class OptionFiles(CliTest):
    def resolved(self, *arguments):
        return self.run_json("compare", MODEL, MODEL, *arguments)["options"]

    def file_fails(self, text, *says):
        path = self.write("bad.ini", text)
        self.fails("compare", MODEL, MODEL, "--config", path, status=2, says=["bad.ini", *says])

    def test_command_line_wins_over_later_file_over_earlier_file(self):
        one = self.write("one.ini", "sort = max\nlimit = 1\nthreads = 1\n")
        two = self.write("two.ini", "limit = 2\nthreads = 2\n")
        options = self.resolved("--config", one, "--threads", "3", "--config", two)
        self.assertEqual((options["sort"], options["limit"], options["threads"]), ("max", 2, 3))
        self.assertEqual(options["config"], [str(one), str(two)])

    def test_comments_white_space_line_ends_and_byte_order_mark(self):
        path = self.write("a.ini", b"\xef\xbb\xbfsort=max\r\n\r\n# limit = 7\r\n  limit =  5   # five\r\n")
        options = self.resolved("--config", path)
        self.assertEqual((options["sort"], options["limit"]), ("max", 5))

    def test_flags(self):
        self.assertIs(self.resolved("--config", self.write("a.ini", "verbose = true"))["verbose"], True)
        self.assertIs(self.resolved("--config", self.write("a.ini", "verbose = no"))["verbose"], False)
        self.file_fails("verbose = maybe", "verbose = maybe", "true or false")

    def test_file_that_is_not_there(self):
        self.fails("compare", MODEL, MODEL, "--config", self.dir / "no.ini", status=2, says="no.ini: no such option file")
        self.fails("compare", MODEL, MODEL, "--config", self.dir, status=2, says="is a directory")

    def test_unknown_key_names_file_and_key(self):
        self.file_fails("sorted = max", "sorted", "did you mean sort?")
        self.file_fails("[quantize]\nsort = max", "quantize.sort")
        self.file_fails("config = other.ini", "config", "cannot name others")

    def test_values_are_checked_and_name_the_file(self):
        self.file_fails("limit = many", "limit many", "a whole number")
        self.file_fails("sort = size", "name, relative, max, cosine")
        self.file_fails("limit = 1\nlimit = 2", "limit", "given twice")
        self.file_fails("limit =", "limit", "has no value")
        self.file_fails("limit 3", "limit 3", "key = value")

    def test_a_hash_inside_a_value_is_refused_not_cut(self):
        self.file_fails("sort = max\nlog-file = run#1.log", "line 2", "'#'")


class Results(CliTest):
    def test_json_is_all_that_stdout_holds(self):
        value = self.run_json("inspect", MODEL, "--progress", "plain", "-v")
        self.assertEqual(list(value), ["schema_version", "version", "command", "options", "inputs", "results"])
        self.assertEqual(value["command"], "inspect")
        self.assertEqual(value["options"]["model"], str(MODEL))
        self.assertRegex(value["inputs"]["model"]["hash"], "^[0-9a-f]{16}$")

    def test_json_file_holds_the_same_beside_the_text(self):
        path = self.dir / "out.json"
        text = self.run_curvq("inspect", MODEL, "--json-file", path).stdout
        self.assertIn("llama, 2 layers", text)
        written = json.loads(path.read_text())
        self.assertEqual(written["results"], self.run_json("inspect", MODEL)["results"])
        self.assertEqual(os.listdir(self.dir), ["out.json"])

    def test_json_file_that_cannot_be_written(self):
        self.fails("inspect", MODEL, "--json-file", self.dir, status=2, says="is a directory")

    def test_log_file(self):
        path = self.dir / "log"
        self.run_curvq("compare", MODEL, self.dir / "none", "--log-file", path, status=2)
        self.assertIn("error: ", path.read_text())
        self.fails("inspect", MODEL, "--log-file", self.dir, status=5, says="log file cannot be opened")

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            result = self.run_curvq("inspect", MODEL, stdout=full, status=5)
        self.assertIn("error: standard output cannot be written", result.stderr)

    def on_a_terminal(self, env):
        main, other = pty.openpty()
        self.addCleanup(os.close, main)
        self.run_curvq("inspect", MODEL, stdout=other, env={"TERM": "xterm", **env})
        os.close(other)
        return os.read(main, 1 << 16).decode()

    def test_colour_on_a_terminal_only_and_not_with_no_color(self):
        self.assertIn("\033[1m", self.on_a_terminal({"NO_COLOR": ""}))
        self.assertNotIn("\033", self.on_a_terminal({"NO_COLOR": "1"}))
        self.assertNotIn("\033", self.run_curvq("inspect", MODEL, env={"TERM": "xterm"}).stdout)


class Interrupt(CliTest):
    def reader_of(self, fifo):
        """Opens a FIFO for writing once somebody reads it."""
        for _ in range(1200):
            try:
                return open(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError:
                time.sleep(0.05)
        self.fail("nobody reads the FIFO")

    def test_signals_remove_temporaries_and_set_the_exit_status(self):
        model = self.copy_model("stories260K")
        (model / "tokenizer.json").unlink()
        os.mkfifo(model / "tokenizer.json")  # opening it for reading waits for a writer
        for number, status in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
            process = subprocess.Popen(
                [BINARY, "verify", str(model), "--json-file", str(self.dir / "out.json")],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            temporary = self.dir / f".out.json.curvq-{process.pid}"
            temporary.write_text("unfinished")
            with self.reader_of(model / "tokenizer.json"):
                process.send_signal(number)
                _, errors = process.communicate(timeout=600)
            self.assertEqual(process.returncode, status)
            self.assertEqual(errors, b"error: interrupted\n")
            self.assertFalse(temporary.exists())


if __name__ == "__main__":
    unittest.main()
