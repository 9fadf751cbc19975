"""The arithmetic and the choices of compare.py, on values whose answers are known."""

import json
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from contest.contestants import Contestant, parse_peer
from contest.errors import ContestError
from contest.figures import Ratio, geometric_mean, median_interval, paired_ratio, rotated, spread
from contest.report import best_peer, exported, format_ns, format_ratio, means, rows_of, text_table, verdict
from contest.runs import KEYS, Outcome, Plan, Test, parse_result, run_all, run_once


def runs(*times: float, rss: int = 1000) -> list[dict[str, object]]:
    """One run for each time, everything else alike."""
    return [
        {
            "ns_per_op_median": ns,
            "ns_per_op_min": ns / 2,
            "peak_rss_kib": rss,
            "minor_faults": 3,
            "wall_us": 100,
            "user_us": 150,
            "system_us": 50,
        }
        for ns in times
    ]


class Figures(unittest.TestCase):
    """figures.py"""

    def test_median_interval_is_the_extremes_for_few_values(self) -> None:
        self.assertEqual(median_interval([3.0, 1.0, 2.0]), (1.0, 3.0))
        self.assertEqual(median_interval([7.0]), (7.0, 7.0))

    def test_median_interval_drops_one_at_each_end_from_eight_values(self) -> None:
        # P(Binomial(8, 1/2) < 2) = 9/256: 93% for the second, 71% for the third.
        self.assertEqual(median_interval([float(i) for i in range(8)]), (1.0, 6.0))
        # P(Binomial(7, 1/2) < 2) = 8/128: only 87.5% for the second.
        self.assertEqual(median_interval([float(i) for i in range(7)]), (0.0, 6.0))

    def test_median_interval_narrows_with_the_values(self) -> None:
        low, high = median_interval([float(i) for i in range(101)])
        self.assertTrue(40 <= low <= 43 and 57 <= high <= 60, (low, high))

    def test_ratio_is_taken_within_rounds(self) -> None:
        ratio = paired_ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
        self.assertEqual((ratio.value, ratio.low, ratio.high), (2.0, 2.0, 2.0))
        self.assertFalse(ratio.tie)

    def test_tie_when_the_interval_holds_one(self) -> None:
        self.assertTrue(paired_ratio([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]).tie)

    def test_spread_is_relative_to_the_median(self) -> None:
        self.assertAlmostEqual(spread([9.0, 10.0, 12.0]), 0.3)

    def test_geometric_mean(self) -> None:
        self.assertAlmostEqual(geometric_mean([0.5, 2.0, 8.0]), 2.0)

    def test_rotation_keeps_everybody(self) -> None:
        self.assertEqual([rotated("abc", by) for by in range(4)], [list("abc"), list("bca"), list("cab"), list("abc")])


class Reports(unittest.TestCase):
    """report.py"""

    def setUp(self) -> None:
        self.contestants = [Contestant("glibc"), Contestant("mimalloc"), Contestant("sheaf-a"), Contestant("sheaf")]
        self.outcome = Outcome("t", {"glibc": runs(8, 8), "mimalloc": runs(4, 4, rss=2000), "sheaf": runs(3, 5, rss=500)})
        self.outcome.runs["sheaf-a"] = runs(1, 1)

    def test_a_variant_of_sheaf_is_not_its_own_peer(self) -> None:
        self.assertEqual([row.best_peer for row in rows_of(self.outcome, self.contestants)], ["mimalloc"] * 4)

    def test_best_peer_is_empty_without_peers(self) -> None:
        self.assertEqual(best_peer(self.outcome, []), "")

    def test_row_of_sheaf(self) -> None:
        row = rows_of(self.outcome, self.contestants)[3]
        assert row.to_glibc and row.to_best
        self.assertEqual((row.ns_per_op, row.ns_per_op_least, row.cpus, row.peak_rss_kib), (4.0, 1.5, 2.0, 500.0))
        self.assertEqual(row.to_glibc.value, 0.5)
        self.assertTrue(row.to_best.tie)

    def test_who_failed_has_no_row_and_counts_in_no_mean(self) -> None:
        lame = Outcome("u", {"glibc": runs(1), "mimalloc": runs(1)}, {"sheaf": "killed by signal 11"})
        self.assertEqual(len(rows_of(lame, self.contestants)), 2)
        self.assertEqual({mean["tests"] for mean in means([self.outcome, lame], self.contestants)}, {1})

    def test_the_blind_line_counts_in_no_mean(self) -> None:
        self.outcome.test = "producer-consumer-blind"
        self.assertEqual(len(rows_of(self.outcome, self.contestants)), 4)
        self.assertEqual(means([self.outcome], self.contestants), [])

    def test_verdict_names_the_fastest_and_the_leanest(self) -> None:
        said = verdict(means([self.outcome], self.contestants), self.contestants)
        self.assertEqual(said, "sheaf over 1 tests: 1.000 of the time of mimalloc, 0.500 of the peak memory of glibc")

    def test_export_is_json(self) -> None:
        found = json.loads(json.dumps(exported([self.outcome], self.contestants, {}, ["compare.py"])))
        self.assertEqual(found["tests"][0]["rows"][0]["to_mimalloc"]["value"], 2.0)

    def test_formats(self) -> None:
        self.assertEqual([format_ns(ns) for ns in (5.44, 15400.0, 1.96e6, 3e9)], ["5.4 ns", "15.4 us", "2.0 ms", "3.00 s"])
        self.assertEqual(format_ratio(Ratio(0.98, 0.9, 1.1)), "~0.98")
        self.assertEqual(format_ratio(Ratio(1.0, 1.0, 1.0)), "1.00")
        self.assertEqual(format_ratio(None), "-")
        self.assertEqual(text_table(["a", "n"], [["x", "1"], ["x", "10"]], 1), "a   n\nx   1\n   10")


class Runs(unittest.TestCase):
    """runs.py, with programs that are lines of Python."""

    def test_result_without_a_key_is_refused(self) -> None:
        whole = {key: 1 for key in KEYS}
        self.assertEqual(parse_result(json.dumps(whole), "t"), whole)
        with self.assertRaisesRegex(ContestError, "no wall_us"):
            parse_result(json.dumps({key: 1 for key in KEYS if key != "wall_us"}), "t")
        with self.assertRaisesRegex(ContestError, "no JSON"):
            parse_result("hello", "t")

    def test_death_of_a_program_is_told(self) -> None:
        def program(text: str) -> Test:
            return Test("t", (sys.executable, "-c", text))

        for text, timeout_s, said in (
            ("import os; os.kill(os.getpid(), 9)", 60, "killed by signal 9"),
            ("import sys; sys.exit('no room')", 60, "no room"),
            ("import time; time.sleep(60)", 0.3, "took more than"),
        ):
            with self.assertRaisesRegex(ContestError, said):
                run_once(program(text), Contestant("glibc"), timeout_s)

    def test_rounds_rotate_and_the_failed_drop_out(self) -> None:
        with TemporaryDirectory() as directory:
            log = Path(directory) / "log"
            line = json.dumps({key: 1 for key in KEYS})
            text = f"import os; me = os.environ['ME']; open({str(log)!r}, 'a').write(me); assert me != 'b'; print({line!r})"
            contestants = [Contestant(name, variables={"ME": name}) for name in "abc"]
            plan = Plan(rounds=3, retries=0, load_limit=0, wait_s=0, timeout_s=60)
            (outcome,) = run_all([Test("t", (sys.executable, "-c", text))], contestants, plan, lambda *_: None)
            self.assertEqual(log.read_text(), "abc" + "ca" + "ca")
        self.assertEqual({name: len(found) for name, found in outcome.runs.items()}, {"a": 3, "c": 3})
        self.assertEqual(list(outcome.failures), ["b"])


class Peers(unittest.TestCase):
    """contestants.py"""

    def test_peer_with_variables(self) -> None:
        peer = parse_peer(f"mine={__file__},A=1,B=x=y")
        self.assertEqual((peer.name, peer.path, peer.variables), ("mine", Path(__file__).resolve(), {"A": "1", "B": "x=y"}))
        self.assertEqual(peer.environment()["LD_PRELOAD"], str(peer.path))

    def test_peer_without_path_is_the_libc_with_other_variables(self) -> None:
        self.assertEqual(parse_peer("tuned=,A=1").environment(), {"A": "1"})

    def test_mistakes_are_named(self) -> None:
        for text, said in (("mine", "NAME=PATH"), ("a b=", "NAME of letters"), ("m=/nowhere", "no file"), ("m=,A", "VAR=VALUE")):
            with self.assertRaisesRegex(ContestError, said):
                parse_peer(text)


if __name__ == "__main__":
    unittest.main()
