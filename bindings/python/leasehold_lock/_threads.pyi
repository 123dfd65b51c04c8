"""What threads see of the calls of ``_base``. ``test_page.py`` compares the two."""

from typing import Any

from typing_extensions import Self, Unpack

from ._base import BaseClient, BaseLease, BaseLock
from ._base import LossEvent as BaseLossEvent
from ._types import ConnectOptions, Inspection, Seconds

def connect(url: str, **options: Unpack[ConnectOptions]) -> Client: ...

class LossEvent(BaseLossEvent):
    def wait(self, timeout: Seconds | None = None) -> bool: ...  # type: ignore[override]

class Lease(BaseLease):
    @property
    def lost(self) -> LossEvent: ...
    def renew(self, ttl: Seconds | None = None) -> None: ...  # type: ignore[override]
    def release(self) -> bool: ...  # type: ignore[override]
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None: ...

class Lock(BaseLock[Lease]):
    def acquire(  # type: ignore[override]
        self, blocking: bool | None = True, timeout: Seconds | None = -1, *,
        blocking_timeout: Seconds | None = None, sleep: float | None = None,
    ) -> bool: ...
    def lease(self, timeout: Seconds | None = -1) -> Lease: ...  # type: ignore[override]
    def release(self) -> None: ...  # type: ignore[override]
    def locked(self) -> bool: ...  # type: ignore[override]
    def extend(  # type: ignore[override]
        self, additional_time: Seconds, replace_ttl: bool = False
    ) -> bool: ...
    def reacquire(self) -> bool: ...  # type: ignore[override]
    def __enter__(self) -> Lease: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None: ...

class Client(BaseClient[Lock]):
    def inspect(self, key: str) -> Inspection: ...  # type: ignore[override]
    def break_key(self, key: str) -> int: ...  # type: ignore[override]
    def close(self, timeout: Seconds = 5) -> bool: ...  # type: ignore[override]
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None: ...
