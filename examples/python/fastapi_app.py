"""A service of FastAPI: the client lives as long as the service, and a dependency gives the lease.

    LEASEHOLD_STORE=redis://db1/ uvicorn fastapi_app:app

A request that waits, and whose task is cancelled, leaves the queue. One that has lost its lease is
cancelled at once, and gets 409.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request

import leasehold_lock as lh

STORE = os.environ.get("LEASEHOLD_STORE", "memory:")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with lh.aio.connect(STORE, label="shop") as client:
        app.state.locks = client
        yield


app = FastAPI(lifespan=lifespan)


async def order_lease(request: Request, order: int) -> AsyncIterator[lh.aio.Lease]:
    """The lease of this request on its order. It is released before the answer is sent."""
    locks: lh.aio.Client = request.app.state.locks
    try:
        lease = await locks.mutex(f"orders/{order}").lease(timeout=5)
    except lh.Timeout:
        raise HTTPException(503, "the order is busy", {"Retry-After": "5"}) from None
    except lh.Unavailable as error:
        raise HTTPException(503, str(error)) from error
    try:
        async with lease:
            yield lease
    except lh.Lost as error:
        raise HTTPException(409, str(error)) from error


@app.post("/orders/{order}/pay")
async def pay(
    order: int, lease: Annotated[lh.aio.Lease, Depends(order_lease, scope="function")]
) -> dict[str, str]:
    await lease.run(charge(order, lease.token))
    return {"order": f"{order} is paid"}


async def charge(order: int, token: int | None) -> None:
    """The long part. Send the token along if the other side compares it."""
    print(f"order {order}, with token {token}", flush=True)
