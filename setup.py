"""Build hook: the C extension is optional, so that the SDK installs where no compiler or liburing is."""

import os
import warnings
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError


class OptionalBuildExt(build_ext):
    """Turn a failed compile into a warning unless RINGMQ_REQUIRE_NATIVE=1 asks for an error."""

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


setup(cffi_modules=["native/build_native.py:ffibuilder"], cmdclass={"build_ext": OptionalBuildExt})
