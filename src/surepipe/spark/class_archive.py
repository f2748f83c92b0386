"""Java's classes of Spark in one file, as Java has them in memory: a start takes two thirds of the processor time.

    python -m surepipe.spark.class_archive

makes it once, for the Java and the Spark of this environment; ``open_session`` takes it from then on. Java
compares it with itself and with Spark's files, and passes over one that no longer fits.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from surepipe.errors import ConfigurationError
from surepipe.spark.java import archive_for, find_java

_ENDS_WITHIN_S = 300.0
_TRAINING = """
version: 1
name: training
stores: {{main: {{kind: sqlite, path: "{folder}/main.db", durability: process}}}}
sources: {{lines: {{kind: jsonl, path: "{folder}/lines.jsonl"}}}}
pipes: {{all: {{from: lines, route: {{kind: sqlite, store: main}}}}}}
sinks: {{out: {{from: all, kind: stream, store: main, stream: out}}}}
"""


def make_archive() -> Path:
    """Run a small pipeline on Spark, and keep the classes that it took. An archive that is there is replaced.

    Raises ConfigurationError when Spark can't be started, and when its Java makes no archive; MisuseError when
    this process runs Spark already; OSError when the environment can't be written.
    """
    java = find_java()
    archive = archive_for(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # Java would take it, and none is made on top of another
    folder = Path(tempfile.mkdtemp(prefix="surepipe-archive-"))
    try:
        made = folder / "made.jsa"
        _train(folder, made)
        if not made.is_file():
            raise ConfigurationError(
                f"{java} made no archive of classes (perhaps it lacks that of its own classes): use another Java, "
                "or do without; only the start is slower"
            )
        # Whole or not at all: others may start meanwhile, and the folder may be of another file system.
        whole = archive.with_suffix(".new")
        shutil.move(made, whole)
        whole.replace(archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return archive


def _train(folder: Path, made: Path) -> None:
    """A pipeline from a file to a stream; the archive is written when Java ends."""
    from surepipe.pipelines import loads  # noqa: PLC0415 - a session looks for the archive, too
    from surepipe.spark.running import run  # noqa: PLC0415
    from surepipe.spark.session import SparkOptions, end_java, open_session  # noqa: PLC0415

    (folder / "lines.jsonl").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    # It ends before an optimising compiler would have earned what it costs.
    options = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={made}"
    settings = {"spark.driver.extraJavaOptions": options}
    session = open_session(SparkOptions(master="local[2]", state_dir=folder, settings=settings))
    try:
        plan = loads(_TRAINING.format(folder=folder))
        run(plan, session, checkpoint=folder / "checkpoint", once=True)
    finally:
        session.stop()
        end_java(_ENDS_WITHIN_S)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{make_archive()}\n")
    except (ConfigurationError, OSError) as error:
        sys.exit(f"surepipe: {error}")
