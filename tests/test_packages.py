"""What is built for others works without this checkout: the wheel, and a wheel out of the sdist.

The packages lie in top-level folders and install as ottla.*, so that a line such as `log/` in
.gitignore, or a link that hatchling follows, can leave one out without a word.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "spark" / "source"
PACKAGES = ("wire", "broker", "group", "log", "spark")
WHEELS = ("from the tree", "from the sdist")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with tarfile.open(built) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def wheels(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, source in zip(WHEELS, (ROOT, sdist), strict=True):
        folder = tmp_path_factory.mktemp("wheel")
        (built,) = WheelBuilder(str(source)).build(directory=str(folder), versions=["standard"])
        found[name] = Path(built)
    return found


def files(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_every_package(wheels: dict[str, Path]) -> None:
    expected = {"ottla/__init__.py", "ottla/__main__.py", "ottla/py.typed"} | {
        f"ottla/{file.relative_to(ROOT).as_posix()}"
        for folder in (*PACKAGES, "docs")
        for file in files_below(ROOT / folder)
        if not file.is_relative_to(SOURCE) and not file.is_relative_to(ROOT / "docs" / "changes")
    }
    # Spark finds its data sources by the names of top-level modules.
    expected |= {
        file.relative_to(SOURCE).as_posix() for file in files_below(SOURCE / "pyspark_ottla")
    }
    assert "pyspark_ottla/__init__.py" in expected
    assert "ottla/wire/__init__.py" in expected
    assert files(wheels["from the tree"]) == expected


def test_a_wheel_out_of_the_sdist_holds_the_same_files(wheels: dict[str, Path]) -> None:
    assert files(wheels["from the sdist"]) == files(wheels["from the tree"])


def test_the_sdist_holds_the_tests_too(sdist: Path) -> None:
    for folder in ("tests", "compat_tests", "bench", "examples", "docs"):
        here, there = ROOT / folder, sdist / folder
        lacking = {path.relative_to(here) for path in files_below(here)} - {
            path.relative_to(there) for path in files_below(there)
        }
        assert {path for path in lacking if path.name != ".gitignore"} == set(), folder


def test_what_a_package_index_shows_has_no_link_into_the_repository(
    wheels: dict[str, Path],
) -> None:
    text = metadata(wheels["from the sdist"]).get_payload()
    assert isinstance(text, str)
    assert "](" in (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    pages = set(re.findall(r"`ottla docs ([\w/]+)`", text))
    assert "configuration" in pages
    assert {f"ottla/docs/{page}.md" for page in pages} <= files(wheels["from the sdist"])


def environment(folder: Path, wheel: Path) -> Path:
    """A fresh environment with Ottla from the wheel; gives its folder of commands.

    What Ottla depends on comes from the environment of this test, behind its own packages. `.pth`
    files in there are not read, so that this checkout is out of reach."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "shared.pth").write_text("".join(f"{path}\n" for path in shared))
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"),
        *("install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", str(wheel)),
        cwd=folder,
    )
    return folder / "bin"


def run(*command: str, cwd: Path, text: str | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, input=text, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("which", WHEELS)
def test_an_installed_wheel_serves_produces_and_consumes(
    which: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    commands = environment(tmp_path / "environment", wheels[which])
    ottla, python = str(commands / "ottla"), str(commands / "python")
    places = run(
        python,
        "-c",
        "import importlib.util as u\n"
        "for name in ('ottla', 'ottla.wire', 'ottla.broker', 'pyspark_ottla'):\n"
        "    print(u.find_spec(name).origin)",
        cwd=tmp_path,
    )
    for place in places.splitlines():
        assert Path(place).is_relative_to(tmp_path / "environment")

    broker = subprocess.Popen(
        [ottla, "serve", "--port", "0", "--data-dir", "data"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        found = re.search(r"PLAINTEXT://(\S+)", ready)
        assert found, ready
        at = ("--bootstrap-server", found[1])
        run(ottla, "produce", *at, "greetings", cwd=tmp_path, text="one\ntwo\n")
        assert run(ottla, "consume", *at, "greetings", "--exit", cwd=tmp_path) == "one\ntwo\n"
        broker.terminate()
        assert broker.wait(60) == 0
    finally:
        broker.kill()
        broker.communicate()

    named = re.search(r"`ottla docs ([\w/]+)`", run(ottla, "serve", "--help", cwd=tmp_path))
    assert named
    page = run(ottla, "docs", named[1], cwd=tmp_path)
    assert page == (ROOT / "docs" / f"{named[1]}.md").read_text()


def test_the_metadata_names_the_pythons_and_a_home(wheels: dict[str, Path]) -> None:
    found = metadata(wheels["from the sdist"])
    classifiers = found.get_all("Classifier") or []
    versions = [c.rpartition(" ")[2] for c in classifiers if re.search(r":: 3\.\d+$", c)]
    assert versions[0] == (found["Requires-Python"] or "").removeprefix(">=")
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]
    assert any(url.startswith("Homepage, https://") for url in found.get_all("Project-URL") or [])
