"""What threads see of the calls of ``_base``. ``test_page.py`` compares the two."""

from collections.abc import Generator
from typing import Any

from typing_extensions import Self, Unpack

from ._base import BaseClient, BaseElection, BaseLease, BaseLock
from ._base import LossEvent as BaseLossEvent
from ._types import ConnectOptions, Holder, Inspection, Recovered, Seconds

def connect(url: str, **options: Unpack[ConnectOptions]) -> Client: ...

class LossEvent(BaseLossEvent):
    def wait(self, timeout: Seconds | None = None) -> bool: ...  # type: ignore[override]

class Lease(BaseLease):
    @property
    def lost(self) -> LossEvent: ...
    def renew(self, ttl: Seconds | None = None) -> None: ...  # type: ignore[override]
    def set_note(self, note: str) -> None: ...  # type: ignore[override]
    def rotate(self) -> None: ...  # type: ignore[override]
    def hand_over(self) -> str: ...  # type: ignore[override]
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
    def holders(self) -> list[Holder]: ...  # type: ignore[override]
    def adopt(  # type: ignore[override]
        self, parts: str, *, force: bool = False
    ) -> Lease: ...
    def recover(  # type: ignore[override]
        self, parts: str, timeout: Seconds | None = -1
    ) -> Recovered[Lease]: ...
    def extend(  # type: ignore[override]
        self, additional_time: Seconds, replace_ttl: bool = False
    ) -> bool: ...
    def reacquire(self) -> bool: ...  # type: ignore[override]
    def __enter__(self) -> Lease: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None: ...

class Election(BaseElection[Lease], Lock):
    def leader(self) -> Holder | None: ...  # type: ignore[override]
    def leaders(self) -> Generator[Holder | None, None, None]: ...  # type: ignore[override]
    def __iter__(self) -> Generator[Lease, None, None]: ...

class Client(BaseClient[Lock, Election]):
    def audit_log(  # type: ignore[override]
        self, key: str | None = None, since: Seconds | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]: ...
    def inspect(self, key: str) -> Inspection: ...  # type: ignore[override]
    def break_key(self, key: str) -> int: ...  # type: ignore[override]
    def close(self, timeout: Seconds = 5) -> bool: ...  # type: ignore[override]
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None: ...
