"""Owners, several keys, elections, hand-over, recovery and the audit log, with both faces."""

from __future__ import annotations

import json
import uuid

import faces
import leasehold_lock as lh
import pytest
from test_scenarios import scenario


@scenario
async def test_an_owner_enters_again_and_others_wait(face, client, url):
    lock, again = client.reentrant("k"), client.reentrant("k", timeout=0.02)

    async def other():
        assert not await again.acquire()

    async with lock as outer, again as inner:
        assert outer.token and inner.token
        await face.start(other())
    await faces.free(face, client, "k")


@scenario
async def test_a_named_owner_is_shared(face, client, url):
    owner = uuid.uuid4().hex
    other = await face.connect(url)

    async def enters():
        lease = await other.reentrant("k", owner, timeout=5).lease()
        return await lease.release()

    async with client.reentrant("k", owner):
        assert await face.start(enters())
        assert not await other.reentrant("k", uuid.uuid4().hex).acquire(blocking=False)
        with pytest.raises(lh.Invalid, match="32 hexadecimal digits") as caught:
            await other.reentrant("k", "me").acquire()
        assert "me" not in str(caught.value).split()
        for no_text in (1, b"me", uuid.uuid4()):
            with pytest.raises(lh.Invalid, match="a text of 32 hexadecimal digits"):
                other.reentrant("k", no_text)
    await other.close()


@scenario
async def test_what_an_owner_has_besides_is_lost_with_a_hand_over(face, client, url):
    lock = client.reentrant("k", uuid.uuid4().hex)
    one, two = await lock.lease(), await lock.lease()
    async with await lock.adopt(await two.hand_over()) as three:
        assert three.token > two.token
        with pytest.raises(lh.Lost):
            await one.renew()
        assert one.lost.is_set() and one.token == two.token


@scenario
async def test_several_keys_are_one_lock(face, client, url):
    accounts = client.multi(["bob", "alice"], timeout=5)
    assert (accounts.key, accounts.keys) == ("bob", ["bob", "alice"])
    async with accounts as lease:
        assert list(lease.tokens) == ["bob", "alice"] and all(lease.tokens.values())
        assert lease.token == lease.tokens["bob"] and await accounts.locked()
        assert len(await accounts.holders()) == 2
        assert not await client.mutex("alice").acquire(blocking=False)
        await lease.renew()
        for refused in (lease.hand_over(), accounts.adopt("{}"), accounts.recover("{}")):
            with pytest.raises(lh.Invalid, match="several keys"):
                await refused
        with pytest.raises(lh.Invalid, match="several keys"):
            lease.parts()
        await client.break_key("alice")
        assert await lease.lost.wait(20)
        with pytest.raises(lh.Lost) as caught:
            lease.check()
        assert caught.value.key == "alice"
        assert not await lease.release()
    for key in ("bob", "alice"):
        await faces.free(face, client, key)
    async with client.mutex("alice"):
        with pytest.raises(lh.Timeout, match='"bob", "alice".* together: one of them is busy'):
            await accounts.lease(timeout=0)
    for bad, why in (([], "no key"), (["a", "a"], "names the key twice"), (["a", ""], "key")):
        with pytest.raises(lh.Invalid, match=why):
            client.multi(bad)
    with pytest.raises(TypeError, match=r"a list of keys: write \['alice'\]"):
        client.multi("alice")
    assert client.multi(key for key in ("c", "d")).keys == ["c", "d"]


@scenario
async def test_readers_of_several_keys_share_them(face, client, url):
    readers = client.multi(["a", "b"], shared=True, timeout=5)
    async with readers as one, readers as two:
        assert one.tokens == two.tokens == {"a": None, "b": None}


@scenario
async def test_a_leader_shows_its_note(face, client, url):
    election = client.election("scheduler", note="10.0.0.7:80")
    assert await election.leader() is None
    async with election as lease:
        leader = await election.leader()
        assert (leader.note, leader.token) == ("10.0.0.7:80", lease.token)
        await lease.set_note("10.0.0.8:80")
        assert (await election.holders())[0].note == "10.0.0.8:80"
    assert await election.leader() is None


@scenario
async def test_who_takes_over_a_leadership_shows_its_own_note(face, client, url):
    there, here = (client.election("k", note=note) for note in ("there", "here"))
    before = await there.lease()
    recovered = await here.recover(before.parts())
    assert not recovered.is_new and (await here.leader()).note == "here"
    adopted = await there.adopt(await recovered.lease.hand_over())
    assert (await there.leader()).note == "there"
    silent = client.election("k")
    adopted = await silent.adopt(await adopted.hand_over())
    assert (await silent.leader()).note is None
    assert await adopted.release() and not await before.release()


@scenario
async def test_leaders_are_observed(face, client, url):
    other = await face.connect(url)
    notes = []

    async def observe():
        async for leader in other.election("k").leaders():
            notes.append(leader and leader.note)
            if notes[-1] == "second":
                break

    observing = face.start(observe())
    while not notes:
        await face.pause()
    for note in ("first", "second"):
        async with client.election("k", note=note):
            while notes[-1] != note:
                await face.pause()
    await observing
    assert notes in (
        [None, "first", None, "second"], [None, "first", "second"],
    ), "each leader once, and between them perhaps nobody"
    await other.close()


@scenario
async def test_who_observes_learns_that_the_client_is_closed(face, client, url):
    other = await face.connect(url)
    with pytest.raises(lh.Closed) as caught:
        async for leader in other.election("k").leaders():
            assert leader is None
            await other.close()
    assert (caught.value.key, caught.value.operation) == ("k", "observe")


@scenario
async def test_terms_follow_each_other(face, client, url):
    terms, rival = [], client.election("k", timeout=5)
    async for term in client.election("k", timeout=5):
        terms.append(term.token)
        assert (await rival.leader()).token == term.token
        if len(terms) == 2:
            await client.break_key("k")
            assert await term.lost.wait(20)
        if len(terms) == 3:
            break
    del term
    assert terms == sorted(set(terms))
    await faces.free(face, client, "k")
    async with rival as lease:
        assert lease.token > terms[-1]


@scenario
async def test_an_error_in_a_term_resigns_it(face, client, url):
    with pytest.raises(KeyError):
        async for _term in client.election("k"):
            raise KeyError
    await faces.free(face, client, "k")


@scenario
async def test_a_lease_is_handed_over(face, client, url):
    other = await face.connect(url)
    lease = await client.mutex("k").lease()
    with pytest.raises(lh.Invalid, match="was not handed over"):
        await other.mutex("k").adopt(lease.parts())
    parts = await lease.hand_over()
    assert not lease.is_valid()
    with pytest.raises(lh.Lost, match="was released"):
        await lease.hand_over()
    with pytest.raises(lh.Invalid, match="on 'k'|on \"k\""):
        await other.mutex("another").adopt(parts)
    adopted = await other.mutex("k").adopt(parts)
    assert adopted.is_valid() and adopted.token > lease.token
    with pytest.raises(lh.Lost):
        await client.mutex("k").adopt(parts)
    assert await adopted.release()
    for bad in ("", "{}", json.dumps({"key": "k"})):
        with pytest.raises(lh.Invalid, match="not the parts of a lease"):
            await other.mutex("k").adopt(bad)
    await other.close()


@scenario
async def test_a_place_lives_as_long_as_the_ttl_of_its_lock_lets_it(face, client, url):
    other = await face.connect(url, ttl=1)

    async def wait():
        lease = await other.mutex("k", ttl=60).lease(timeout=20)
        assert await lease.release()

    async with client.mutex("k"):
        waits = face.start(wait())
        await faces.waiting(face, client, "k", 1)
        assert (await client.inspect("k")).waiters[0].expires_in > 1
    await waits
    await other.close()


@scenario
async def test_a_lease_is_recovered_after_a_crash(face, client, url):
    lease = await client.mutex("k", ttl=30).lease()
    parts = lease.parts()
    after = await face.connect(url)
    recovered = await after.mutex("k").recover(parts)
    assert not recovered.is_new and recovered.lease.token > lease.token
    assert await lease.lost.wait(20), "whoever is taken for dead learns of it"
    assert await recovered.lease.release()
    recovered = await after.mutex("k").recover(parts, timeout=5)
    assert recovered.is_new and recovered.lease.is_valid()
    with pytest.raises(lh.Timeout, match="busy"):
        await client.mutex("k").recover(parts, timeout=0)
    forced = await client.mutex("k").adopt(recovered.lease.parts(), force=True)
    assert await forced.release()
    await recovered.lease.release()
    await after.close()


@scenario
async def test_an_id_is_replaced(face, client, url):
    async with client.mutex("k") as lease:
        before = lease.parts()
        await lease.rotate()
        assert lease.is_valid() and lease.parts() != before
        with pytest.raises(lh.Lost):
            await client.mutex("k").adopt(before, force=True)


def test_the_audit_log_says_who_held_it(face):
    async def whole():
        client = await face.connect("memory:?audit=1000", label="jobs")
        async with client.mutex("k") as lease:
            pass
        granted, released = await client.audit_log("k", since=60)
        assert (granted["event"], released["event"]) == ("granted", "released")
        assert granted["token"] == lease.token and granted["owner"]["label"] == "jobs"
        assert granted["asked"] <= granted["at"] <= released["at"]
        assert await client.audit_log("k", limit=1) == [granted]
        assert await client.audit_log("another") == await client.audit_log(limit=0) == []
        for bad in (-1, 2**64):
            with pytest.raises(lh.Invalid, match=f"limit={bad} is not a number"):
                await client.audit_log(limit=bad)
        await client.close()

    face.run(whole())
