"""The wheel holds all of the packages: they lie in top-level folders and install as ottla.*, and a
line such as `log/` in .gitignore would leave one out without a word."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "spark" / "source"
PACKAGES = ("wire", "broker", "group", "log", "spark")


def test_the_wheel_holds_every_file_of_every_package(tmp_path: Path) -> None:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    packed = {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name}
    expected = {"ottla/__init__.py", "ottla/__main__.py", "ottla/py.typed"} | {
        f"ottla/{file.relative_to(ROOT).as_posix()}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix != ".pyc" and not file.is_relative_to(SOURCE)
    }
    # Spark finds its data sources by the names of top-level modules.
    expected |= {
        file.relative_to(SOURCE).as_posix()
        for file in (SOURCE / "pyspark_ottla").rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert "pyspark_ottla/__init__.py" in packed
    assert packed == expected
    assert {f"ottla/{p}/__init__.py" for p in ("wire", "broker", "group", "log")} <= packed
