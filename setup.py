"""Build hooks: the rule that names the packages, and the C core, which is optional: the SDK installs without it."""

import os
import warnings
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
NOT_INSTALLED = {"tests", "examples"}
LOADTEST = {"load", "measuring", "bench", "locust", "stock"}
"""Parts of loadtest/ that `ringmq bench`, locust users and the pytest plugin need. A wheel has no other part of it: the
environment of a checkout (.ci/bootstrap) asks for all by RINGMQ_ALL_PACKAGES=1."""
TOP = "packaging/ringmq"
"""The package `ringmq` itself. A folder `ringmq` in the checkout would hide an installed `ringmq` from its scripts."""
SPARK_SOURCE = "pyspark_ringmq"
"""Spark imports its data sources by this name, so this package is no part of `ringmq`."""


def package_folders() -> dict[str, str]:
    """Return the folder of each installed package: `ringmq.a.b` is the folder a/b of the checkout."""
    tops = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in NOT_INSTALLED]
    found = [path.parent.relative_to(ROOT) for top in tops for path in top.rglob("__init__.py")]
    if os.environ.get("RINGMQ_ALL_PACKAGES") != "1":
        found = [folder for folder in found if folder.parts[0] != "loadtest" or {*folder.parts[1:2]} <= LOADTEST]
    names = {folder: ".".join(("ringmq", *folder.parts)) for folder in found if folder.name != SPARK_SOURCE}
    names |= {folder: SPARK_SOURCE for folder in found if folder.name == SPARK_SOURCE}
    return {"ringmq": TOP} | {name: folder.as_posix() for folder, name in sorted(names.items())}


class OptionalBuildExt(build_ext):
    """Turn a failed compile into a warning unless RINGMQ_REQUIRE_NATIVE=1 asks for an error."""

    def build_extensions(self) -> None:
        """Link without run paths of the interpreter's own build. They name folders that another host may lack, and a
        user of that host may make. The run paths of LDFLAGS stay."""
        given = os.environ.get("LDFLAGS", "").split()
        run_paths = ("-Wl,-rpath,", "-Wl,-rpath=", "-Wl,-R")
        linker = [word for word in self.compiler.linker_so if word in given or not word.startswith(run_paths)]
        self.compiler.set_executable("linker_so", linker)
        super().build_extensions()

    def build_extension(self, ext: object) -> None:
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            if os.environ.get("RINGMQ_REQUIRE_NATIVE") == "1":
                raise
            warnings.warn(
                f"the C core was not built ({error}); the SDK works without it, `ringmq serve` needs a C compiler, "
                "python3-dev, liburing-dev and libdeflate-dev",
                stacklevel=1,
            )

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self) -> None:
        self.extensions = [e for e in self.extensions if self.inplace or Path(self.get_ext_fullpath(e.name)).exists()]
        try:
            super().copy_extensions_to_source()
        except (BaseError, CCompilerError):
            if os.environ.get("RINGMQ_REQUIRE_NATIVE") == "1":
                raise


if __name__ == "__main__":
    folders = package_folders()
    setup(
        packages=list(folders),
        package_dir=folders,
        cffi_modules=["native/build_native.py:ffibuilder"],
        cmdclass={"build_ext": OptionalBuildExt},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},  # cffi compiles the core with Py_LIMITED_API
    )
