"""Which driver it is, as the library tells once for each load of it."""

from dataclasses import dataclass
from typing import Any

from device_agent.nvml.library import Library, NvmlCallError


@dataclass(slots=True)
class Versions:
    """Of the driver, and of CUDA as far as it goes; '' where not told."""

    driver: str = ""
    cuda: str = ""

    def read(self, library: Library, errors: list[str]) -> None:
        """Asks for what is not known yet.

        CUDA's version comes from the older call. Its successor needs libcuda.so.1, which is missing in a container with
        the driver capability `utility` alone, and where the library comes from another root (nvml.h).
        """
        self.driver = self.driver or _told(library, "nvmlSystemGetDriverVersion", errors) or ""
        if not self.cuda and (number := _told(library, "nvmlSystemGetCudaDriverVersion", errors)):
            self.cuda = f"{number // 1000}.{number % 1000 // 10}"


def _told(library: Library, function: str, errors: list[str]) -> Any:
    """What the library says of the whole node, None where it says nothing."""
    try:
        return library.ask(function)
    except NvmlCallError as error:
        if not error.says_nothing_there:
            errors.append(str(error))
        return None
