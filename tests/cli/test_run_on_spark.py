"""``surepipe check`` and ``run`` with the engine spark, as far as they get without Spark (spark SP-2, SP-3)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.cli.engines import told_of_query
from surepipe.cli.output import Exit
from surepipe.pipelines import load
from surepipe.spark.running.layout import lay_out
from surepipe.spark.running.run import NOTE, prepare
from tests.cli.kit import Command
from tests.pipelines.files import pipe, pipeline

SINK = "sinks: {out: {from: price, kind: stream, store: main, stream: prices}}"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file shop.yaml in a folder that is the current one, through a stream in SQLite."""
    monkeypatch.chdir(tmp_path)
    path = Path("shop.yaml")
    route = pipe("route: {kind: sqlite, store: main}, boundary: committed")
    path.write_text(pipeline(pipes=route, sinks=SINK))
    return path


def test_check_never_calls_it_exactly_once_on_spark(surepipe: Command, shop: Path) -> None:
    """spark SP-1, SP-3: effectively once, by index, and what Spark costs; on actors the word is the algebra's."""
    on_spark = surepipe("check", shop, "--engine", "spark")
    assert on_spark.code == Exit.HELD
    assert "delivers     effectively once, by index, absolute order" in on_spark.out
    assert "exactly-once" not in on_spark.out
    assert "Spark is for volume: about 6 s to the first job" in on_spark.out
    assert "delivers     exactly-once, absolute order" in surepipe("check", shop).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "flink"], "engine is 'flink': write actors or spark"),
        (["--master", "local[2]"], "--master and --checkpoint are for the engine spark"),
        (["--engine", "spark", "--node", "main"], "Spark's driver runs all nodes"),
        (["--engine", "spark", "--trace", "t.jsonl"], "a run on Spark records no trace"),
        (["--engine", "spark", "--otel", "10"], "a run on Spark sends no spans"),
    ],
)
def test_options_that_do_not_fit_the_engine_are_refused(
    surepipe: Command, shop: Path, options: list[str], said: str
) -> None:
    """spark SP-2: one line, and nothing is made."""
    answer = surepipe("run", shop, *options)
    assert answer.code == Exit.UNUSABLE
    assert said in answer.err
    assert [one.name for one in Path.cwd().iterdir()] == ["shop.yaml"]


def refused(surepipe: Command, shop: Path, *options: object) -> str:
    """The one line with which a run is refused; what there is of files stays as it was."""
    before = files_here()
    answer = surepipe("run", shop, "--engine", "spark", *options)
    assert (answer.code, answer.err.count("\n")) == (Exit.UNUSABLE, 1), answer.err
    assert files_here() == before
    return answer.err


def files_here() -> dict[str, bytes]:
    """All but what Python keeps for itself."""
    there = (one for one in Path.cwd().rglob("*") if one.is_file() and one.suffix != ".pyc")
    return {str(one): one.read_bytes() for one in there}


@pytest.fixture
def functions(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The function of the pipeline's stage, in a module that nothing else has."""
    Path("priced_here.py").write_text("def price(order):\n    return order\n")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    monkeypatch.delitem(sys.modules, "priced_here", raising=False)
    shop.write_text(shop.read_text().replace("shop:price", "priced_here:price"))
    return shop


JAVA_11 = "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n"


def test_a_java_that_is_missing_or_unfit_is_refused(
    surepipe: Command, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark SP-2, SP-22: what JAVA_HOME names is a wish; the line says what to install."""
    monkeypatch.setenv("JAVA_HOME", "nowhere")
    assert "JAVA_HOME is nowhere, where no bin/java runs" in refused(surepipe, functions)
    java = Path("eleven/bin/java")
    java.parent.mkdir(parents=True)
    java.write_text(JAVA_11)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(Path("eleven").absolute()))
    assert "a Java 11, and Spark needs 17 or 21" in refused(surepipe, functions)


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from surepipe.cli.app import run
sys.exit(run(["run", "shop.yaml", "--engine", "spark"]))
"""


@pytest.mark.parametrize("module", ["pyspark", "pyarrow", "pandas"])
def test_a_missing_extra_is_named(functions: Path, module: str) -> None:
    """spark SP-4: in a process where this part of it can't be imported; what to install is in the line."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, module], capture_output=True, text=True, check=False
    )
    assert done.stderr == (
        f"surepipe: the engine spark needs {module}: pip install 'surepipe[spark]'\n"
    )
    assert done.returncode == Exit.UNUSABLE
    assert not Path(".surepipe").exists()
    assert functions.exists()


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("spark://127.0.0.1:1", "no master of Spark answers at spark://127.0.0.1:1"),
        ("mesos://127.0.0.1:1", "the master mesos://127.0.0.1:1 is none that Spark knows"),
        ("local[two]", "the master local[two] is none that Spark knows"),
        ("k8s://https://127.0.0.1:1", "no master of Spark answers at k8s://https://127.0.0.1:1"),
        ("yarn", "set HADOOP_CONF_DIR to the folder"),
    ],
)
def test_a_master_that_is_none_or_does_not_answer_is_refused(
    surepipe: Command, functions: Path, monkeypatch: pytest.MonkeyPatch, master: str, said: str
) -> None:
    """spark SP-2: at once, not after the minute that Spark would ask for."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert said in refused(surepipe, functions, "--master", master)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("9000t", "and this machine has"),
        ("100m", "does not start with less than 512m"),
        ("plenty", "write it as 2g"),
    ],
)
def test_a_heap_that_can_not_be_is_refused(
    surepipe: Command, functions: Path, memory: str, said: str
) -> None:
    """spark SP-2: more than the machine has would end in the middle of the work."""
    functions.write_text(f"{functions.read_text()}\nengine: {{kind: spark, memory: {memory}}}\n")
    assert said in refused(surepipe, functions)


def test_a_checkpoint_that_is_damaged_or_not_ours_is_refused(
    surepipe: Command, functions: Path
) -> None:
    """spark SP-2: of another pipeline, unreadable, or a folder of something else; each is left as it is."""
    layout = lay_out(load(functions))
    prepare(Path("points"), layout)
    text = functions.read_text()
    functions.write_text(text.replace("name: shop", "name: other"))
    said = refused(surepipe, functions, "--checkpoint", "points")
    assert "is the checkpoint of pipeline shop, and this one is other" in said
    functions.write_text(text)
    (Path("points") / NOTE).write_bytes(b"{")
    assert "the checkpoint can't be read" in refused(surepipe, functions, "--checkpoint", "points")
    (Path("points") / NOTE).unlink()
    Path("points/photo").write_bytes(b"x")
    assert "is no checkpoint of surepipe" in refused(surepipe, functions, "--checkpoint", "points")


def test_a_run_on_spark_is_refused_with_the_reasons_of_check(surepipe: Command, shop: Path) -> None:
    """spark SP-2: a local route, before anything starts."""
    sink = "sinks: {out: {from: price, kind: stdout}}"
    shop.write_text(pipeline(stores="", pipes=pipe("layers: reliable"), sinks=sink))
    answer = surepipe("run", shop, "--engine", "spark")
    assert answer.code == Exit.UNUSABLE
    assert "engine spark: pipe intake: a local route is within one process" in answer.err


def test_the_query_is_told_in_a_line() -> None:
    """spark SP-17: batches, rate, the lag of all inputs, and state where there is some."""
    assert told_of_query({"spark": {"batches": 1}}) == "1 batch"
    counters = {
        "all": {"settled": 5, "lag": 3},
        "north": {"lag": 4},
        "spark": {"batches": 2, "rows_per_s": 9, "state_rows": 0, "state_bytes": 0},
    }
    assert told_of_query(counters) == "2 batches, 9 rows/s in the last, lag 7"
    counters["spark"] |= {"state_rows": 7, "state_bytes": 800}
    assert told_of_query(counters).endswith("lag 7, 7 rows of state in 800 bytes")
