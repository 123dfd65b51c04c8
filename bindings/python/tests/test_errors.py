"""What stores refuse: each error has its class, key and advice, and shows no password."""

from __future__ import annotations

import logging
import pathlib
import pickle
import re
import socket
import traceback

import leasehold_lock as lh
import pytest

SECRET = "s3cret-of-nobody"
WRONG = "wr0ng-of-nobody"
RIGHTS = """resetchannels ~leasehold:* &leasehold:* -@all +eval +evalsha +time +mget +exists +type
    +set +setrange +del +hset +hget +hmget +hgetall +hdel +pexpire +publish +subscribe
    +unsubscribe +scan +info +ping""".split()


def tell(server, *words: str) -> None:
    """Sends the server a command, which has to succeed."""
    text = [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words]
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"*%d\r\n%s" % (len(words), b"".join(text)))
        answer = connection.recv(1000)
    assert answer[:1] in b"+:", answer


def user(server, *rights: str) -> str:
    """The URL of a user with these rights."""
    tell(server, "ACL", "SETUSER", "app", "reset", "on", ">" + SECRET, *rights)
    return server.url.replace("//", f"//app:{SECRET}@")


async def fails(kind, call, operation, key=None, match=None) -> lh.LeaseholdError:
    with pytest.raises(kind, match=match) as caught:
        await call()
    error = caught.value
    assert type(error) is kind
    assert (error.key, error.operation) == (key, operation)
    assert error.hint and str(error).endswith(f"({error.hint})")
    shown = [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
    for secret in (SECRET, WRONG):
        assert not any(secret in text for text in shown), shown
    return error


def of_login(tmp_path: pathlib.Path) -> dict[str, tuple[str, dict[str, str]]]:
    """A wrong password, in each place for one: the user of the URL, and options."""
    file = tmp_path / "password"
    file.write_text(WRONG)
    return {
        "url": (f"app:{WRONG}@", {}),
        "nobody": (f"nobody:{WRONG}@", {}),
        "option": ("", {"user": "app", "password": WRONG}),
        "file": ("", {"user": "app", "password_file": str(file)}),
    }


@pytest.mark.parametrize("place", ["url", "nobody", "option", "file"])
def test_a_wrong_password_is_refused_and_not_shown(face, own_server, tmp_path, caplog, place):
    user(own_server, *RIGHTS)
    login, options = of_login(tmp_path)[place]
    url = own_server.url.replace("//", "//" + login)

    async def scenario():
        with caplog.at_level(logging.DEBUG):
            refused = "refuses the user name or password"
            await fails(lh.Refused, lambda: face.connect(url, **options), "connect", match=refused)

    face.run(scenario())
    assert WRONG not in caplog.text


def test_a_user_without_rights_is_told_which_it_needs(face, own_server):
    async def scenario():
        for missing in (["-@all"], [*RIGHTS, "-eval"], [*RIGHTS, "resetkeys"]):
            url = user(own_server, *missing)
            error = await fails(lh.Refused, lambda: face.connect(url), "connect")
            assert "+evalsha" in error.hint
        # An audit log needs two more.
        url = user(own_server, *RIGHTS) + "?audit=100"
        error = await fails(lh.Refused, lambda: face.connect(url), "connect", match="XADD")
        assert "+xadd +xrange" in error.hint

    face.run(scenario())


def test_rights_that_are_taken_away_end_each_call_with_its_name(face, own_server):
    async def scenario():
        client = await face.connect(user(own_server, *RIGHTS))
        assert "//app@" in repr(getattr(client, "of", client))
        lease = await client.mutex("k").lease()
        tell(own_server, "ACL", "SETUSER", "app", "-eval", "-evalsha")
        calls = {
            "acquire": client.mutex("k").acquire,
            "renew": lease.renew,
            "inspect": lambda: client.inspect("k"),
            "break": lambda: client.break_key("k"),
            "rotate": lease.rotate,
            "release": lease.release,
        }
        for operation, call in calls.items():
            error = await fails(lh.Refused, call, operation, "k", "may not do this")
            assert "+evalsha" in error.hint and error.retry_after is None
        tell(own_server, "ACL", "SETUSER", "app", "+eval", "+evalsha")
        async with client.mutex("other") as again:
            assert again.is_valid()
        await client.close()

    face.run(scenario())


def test_a_quarantine_says_how_long_it_takes(face, own_server):
    async def scenario():
        url = own_server.url + "?restart=quarantine&max_ttl=300ms"
        client = await face.connect(url, ttl=0.3)
        busy = client.mutex("k")
        error = await fails(
            lh.Refused, lambda: busy.acquire(blocking=False), "acquire", "k", "quarantine"
        )
        assert 0 < error.retry_after <= 0.6
        too_long = client.mutex("k", ttl=5)
        await fails(lh.Invalid, too_long.acquire, "acquire", "k", "longer than max_ttl")
        # Who waits is granted when it is over.
        assert await busy.acquire(timeout=30)
        await busy.release()
        await client.close()

    face.run(scenario())


def test_what_a_layout_cannot_do_is_unsupported(face, server, request):
    async def scenario():
        client = await face.connect(server.url + f"?layout=classic&prefix={request.node.name}:")
        cannot = {
            "permits": client.semaphore("k", 2),
            "re-entrant": client.reentrant("k"),
            "readers": client.rwlock("k").read,
            "minimum hold": client.mutex("k", min_hold=1),
            "note": client.election("k", note="here"),
        }
        for what, lock in cannot.items():
            for call in (lock.acquire, lock.lease):
                await fails(lh.Unsupported, call, "acquire", "k", what)
        lease = await client.mutex("k").lease()
        await fails(lh.Unsupported, lease.hand_over, "hand_over", "k", "cannot give")
        await fails(lh.Unsupported, lease.rotate, "rotate", "k", "classic")
        # What has failed leaves the lease as it was.
        lease.check()
        assert lease.token is None and await lease.release()
        with pytest.raises(lh.Unsupported, match="audit log"):
            await client.audit_log()
        await client.close()

    face.run(scenario())


def test_a_lock_of_another_library_may_never_expire(face, server, request):
    async def scenario():
        client = await face.connect(server.url + f"?layout=classic&prefix={request.node.name}:")
        tell(server, "SET", f"{request.node.name}:k", "another")
        (holder,) = (await client.inspect("k")).holders
        assert holder.expires_in == float("inf")
        await client.close()

    face.run(scenario())


@pytest.mark.parametrize("garbage", [("SET", "garbage"), ("HSET", "a", "b"), ("RPUSH", "a")])
def test_a_record_that_is_not_leaseholds_is_not_overwritten(face, server, request, garbage):
    how, *values = garbage

    async def scenario():
        prefix = re.sub(r"\W", "_", request.node.name)
        client = await face.connect(server.url + f"?prefix={prefix}:")
        tell(server, how, f"{prefix}:lock:k", *values)
        await corrupt(client)
        tell(server, "DEL", f"{prefix}:lock:k")
        async with client.mutex("k") as lease:
            assert lease.is_valid()
        await client.close()

    face.run(scenario())


def test_a_damaged_file_is_not_overwritten(face, tmp_path):
    async def scenario():
        client = await face.connect(f"local:{tmp_path}/l")
        record = tmp_path / "l/records/k.rec"
        async with client.mutex("k"):
            sound = record.read_bytes()
        garbage = b"garbage".ljust(len(sound))
        record.write_bytes(garbage)
        await corrupt(client)
        assert record.read_bytes() == garbage
        await client.close()

    face.run(scenario())


async def corrupt(client) -> None:
    """Each call on the key fails, and others work."""
    lock = client.mutex("k")
    for call in (lock.acquire, lock.lease, lambda: lock.acquire(blocking=False)):
        await fails(lh.Corrupt, call, "acquire", "k")
    await fails(lh.Corrupt, lambda: client.inspect("k"), "inspect", "k")
    await fails(lh.Corrupt, lambda: client.break_key("k"), "break", "k")
    async with client.mutex("sound") as lease:
        assert lease.is_valid()


def test_an_error_is_the_same_after_pickling(face):
    async def scenario():
        client = await face.connect("memory:")
        async with client.mutex("k"):
            with pytest.raises(lh.Timeout) as caught:
                await client.mutex("k").lease(timeout=0)
        await client.close()
        return caught.value

    error = face.run(scenario())
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is lh.Timeout and str(again) == str(error)
    assert (again.key, again.operation, again.hint) == ("k", "acquire", error.hint)
