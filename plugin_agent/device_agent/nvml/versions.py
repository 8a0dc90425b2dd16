"""The versions of the driver and of CUDA, read once for each load of the driver."""

from dataclasses import dataclass
from typing import Any

from device_agent.nvml.library import Library, NvmlCallError


@dataclass(slots=True)
class Versions:
    """`cuda`: the highest CUDA version that the driver supports. '' if not told."""

    driver: str = ""
    cuda: str = ""

    def read(self, library: Library, errors: list[str]) -> None:
        """Reads the versions that are not known yet.

        CUDA's version comes from the older call, because its successor needs libcuda.so.1 (nvml.h). That file
        is missing in a container with only the driver capability `utility`, and where the library is in another root.
        """
        self.driver = self.driver or _told(library, "nvmlSystemGetDriverVersion", errors) or ""
        if not self.cuda and (number := _told(library, "nvmlSystemGetCudaDriverVersion", errors)):
            self.cuda = f"{number // 1000}.{number % 1000 // 10}"


def _told(library: Library, function: str, errors: list[str]) -> Any:
    """A value of the whole node, None if the library has none."""
    try:
        return library.ask(function)
    except NvmlCallError as error:
        if not error.says_nothing_there:
            errors.append(str(error))
        return None
