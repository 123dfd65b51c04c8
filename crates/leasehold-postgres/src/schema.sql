-- The schema of leasehold's locks, version 3. "leasehold init" makes it; nothing else is needed.
--
-- A key is a row: the queue of its claims as somebody wrote it down last (base), and what was asked
-- of it since, in order (tail). The server understands neither. Whoever may read the rows can
-- release every claim.
--
-- No function finds another where somebody has made one that fits better: a body of one expression has
-- its names from here, the others have a path of their own, and the procedure uses none that could.

-- A role that owns a schema need not be allowed to make one.
do $$ begin
    if to_regnamespace('{schema}') is null then
        create schema {schema};
    end if;
end $$;

create table {schema}.about (
    version int not null,
    made timestamptz not null default now()
);

create sequence {schema}.records;

create table {schema}.keys (
    key text collate "C" primary key,
    -- Of the bytes in base and tail.
    format int not null,
    -- Another one after the row was removed and made again, so that no position means two things.
    record bigint not null default nextval('{schema}.records'),
    -- When something was last asked: microseconds since 1970.
    touched bigint not null,
    -- The base stands for what was asked up to here, in bytes.
    base_at bigint not null default 0,
    -- Where the tail begins: it may keep a part from before the base.
    tail_at bigint not null default 0,
    tail bytea not null,
    base bytea not null default ''
) with (
    -- Rows are updated all the time, in place where there is room.
    fillfactor = 50,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0.05
);

-- Out of line, so that an update does not copy it.
alter table {schema}.keys alter column base set storage external;
alter table {schema}.keys alter column tail set storage main;
-- Beside a long base a tail grows long, too, and each step compresses it.
do $$ begin
    alter table {schema}.keys alter column tail set compression lz4;
exception when feature_not_supported then
    null;
end $$;

-- Microseconds since 1970.
create function {schema}.clock() returns bigint
    language sql volatile parallel safe
    return (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- The number of a record for clients that know it up to a place in its tail, null if that is not there.
-- It is another one where the last entry before has another time, or the server has started anew: with
-- commits that did not wait for the disk a crash takes back what clients know, and others append
-- something else.
create function {schema}.record_at(record bigint, tail_at bigint, tail bytea, place bigint)
    returns bigint
    language sql stable parallel safe
    return case when place between tail_at + 8 and tail_at + octet_length(tail) then
        hashint8extended(record, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint)
            # ('x' || encode(substring(tail from (place - tail_at)::int - 7 for 8), 'hex'))::bit(64)::bigint
        end;

-- The advisory lock that a client holds as long as it listens.
create function {schema}.inbox_lock(inbox text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(inbox, 1818585203);

-- Which of these clients are dead: bit 0 stands for the first.
create function {schema}.dead(inboxes text[]) returns bigint
    language plpgsql set search_path = pg_catalog, pg_temp
    as $$
declare
    mask bigint := 0;
begin
    for place in 1 .. cardinality(inboxes) loop
        if pg_try_advisory_xact_lock_shared({schema}.inbox_lock(inboxes[place])) then
            mask := mask | (1::bigint << (place - 1));
        end if;
    end loop;
    return mask;
end
$$;

-- When the commit of this step counts: when so many standbys have it on their disks; -1 for at once,
-- before it is on this one; 0 as the server is set.
create function {schema}.commit_when(standbys int) returns void
    language plpgsql set search_path = pg_catalog, pg_temp
    as $$
declare
    names text := current_setting('synchronous_standby_names');
    waits int := case when names = '' then 0
        else coalesce(substring(names from
            '(?i)^[[:space:]]*(?:first|any)?[[:space:]]*([0-9]+)[[:space:]]*[(]')::int, 1) end;
begin
    if standbys < 0 then
        perform set_config('synchronous_commit', 'off', true);
    elsif standbys > waits then
        raise exception using errcode = 'LH004', message = waits::text, detail = standbys::text;
    elsif standbys > 0 then
        -- Who has not waited until the end is only warned.
        perform set_config('client_min_messages', 'warning', true);
        if current_setting('synchronous_commit') <> 'remote_apply' then
            perform set_config('synchronous_commit', 'on', true);
        end if;
    end if;
end
$$;

-- Rings the others.
create function {schema}.notify(wanted text, inboxes text[], mask bigint) returns void
    language plpgsql set search_path = pg_catalog, pg_temp
    as $$
begin
    -- A doorbell that is lost in a crash is no loss, and this commit must not wait for the disk:
    -- the server commits one notification at a time.
    perform set_config('synchronous_commit', 'off', true);
    for place in 1 .. cardinality(inboxes) loop
        if mask & (1::bigint << (place - 1)) = 0 then
            perform pg_notify('leasehold_' || inboxes[place], wanted);
        end if;
    end loop;
end
$$;

-- Whether a new base is taken, for all up to where a client knew the record: if the last base still ends
-- where it did then ("replaced", null if there is no new one), and nothing was forgotten since.
create function {schema}.takes(
    record bigint, base_at bigint, tail_at bigint, tail bytea,
    known_record bigint, known_end bigint, replaced bigint
) returns boolean
    language sql stable parallel safe
    return replaced is not null and base_at = replaced
        and {schema}.record_at(record, tail_at, tail, known_end) = known_record;

-- Where the tail begins after a new base: it keeps what came since the last one, for clients that are a
-- little behind, unless that is long: the tail is written anew at each step. It also keeps the time of the
-- entry before that: record_at needs it.
create function {schema}.kept_from(base_at bigint, new_base_at bigint, new_base bytea)
    returns bigint
    language sql immutable parallel safe
    return greatest(0, case when new_base_at - base_at <= greatest(65536, octet_length(new_base) / 16)
        then base_at else new_base_at end - 8);

-- Appends an entry, and answers with what was appended since the client knew the key: frames of
-- dead (8 bytes), length (4), entry, time (8). With "since" only if nothing has changed. A new base
-- goes before the entry.
-- It waits for others for less than a client waits for it, as all of these do: what the client has given
-- up would wait on, each try with a connection of its own.
create function {schema}.append(
    wanted text, wanted_format int, known_record bigint, known_end bigint,
    entry bytea, mask bigint, since bigint, moment bigint, new_base bytea, replaced bigint,
    out appended boolean, out at bigint, out record bigint, out ends bigint,
    out base bytea, out entries bytea, out since_base bigint, out base_length bigint
)
    language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '4s'
    as $$
declare
    found_format int;
begin
    loop
        update {schema}.keys k
            set tail = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                        known_record, known_end, replaced)
                    then substring(k.tail from 1
                        + ({schema}.kept_from(k.base_at, known_end, new_base) - k.tail_at)::int)
                    else k.tail end
                    || int8send(mask) || int4send(octet_length(entry)) || entry
                    || int8send(coalesce(moment, {schema}.clock())),
                tail_at = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                        known_record, known_end, replaced)
                    then {schema}.kept_from(k.base_at, known_end, new_base) else k.tail_at end,
                base = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                        known_record, known_end, replaced)
                    then new_base else k.base end,
                base_at = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                        known_record, known_end, replaced)
                    then known_end else k.base_at end,
                touched = {schema}.clock()
            where k.key = wanted and k.format = wanted_format
                and (since is null or {schema}.record_at(k.record, k.tail_at, k.tail, known_end) = known_record
                    and k.tail_at + octet_length(k.tail) = known_end and {schema}.clock() >= since)
            returning true, k.touched, {schema}.record_at(k.record, k.tail_at, k.tail,
                k.tail_at + octet_length(k.tail)), k.tail_at + octet_length(k.tail),
                case when {schema}.record_at(k.record, k.tail_at, k.tail, known_end) = known_record then null
                    else k.base end,
                substring(k.tail from 1 + (case
                    when {schema}.record_at(k.record, k.tail_at, k.tail, known_end) = known_record then known_end
                    else k.base_at end - k.tail_at)::int),
                k.tail_at + octet_length(k.tail) - k.base_at, octet_length(k.base)
            into appended, at, record, ends, base, entries, since_base, base_length;
        if found then
            return;
        end if;
        select k.format from {schema}.keys k where k.key = wanted into found_format;
        if found and found_format <> wanted_format then
            raise exception using errcode = 'LH002', message = found_format::text,
                detail = wanted;
        end if;
        if since is not null and (found or known_record is not null) then
            select false, n.at, n.record, n.ends, n.base, n.entries, n.since_base, n.base_length
                from {schema}.news(array[wanted], array[known_record], array[known_end]) n
                into appended, at, record, ends, base, entries, since_base, base_length;
            return;
        end if;
        if not found then
            insert into {schema}.keys as k (key, format, touched, tail)
                values (wanted, wanted_format, {schema}.clock(),
                    int8send(mask) || int4send(octet_length(entry)) || entry
                        || int8send(coalesce(moment, {schema}.clock())))
                on conflict do nothing
                returning true, k.touched, {schema}.record_at(k.record, k.tail_at, k.tail,
                k.tail_at + octet_length(k.tail)), octet_length(k.tail), k.base, k.tail,
                    octet_length(k.tail), 0
                into appended, at, record, ends, base, entries, since_base, base_length;
            if found then
                return;
            end if;
        end if;
    end loop;
end
$$;

-- What was appended to these keys since the client knew them, in their order. All as of one moment,
-- since it is stable; and key by key, since the server keeps the plan of that.
create function {schema}.news(wanted text[], known_record bigint[], known_end bigint[])
    returns table (
        at bigint, format int, record bigint, ends bigint, base bytea, entries bytea,
        since_base bigint, base_length bigint
    )
    language plpgsql stable set search_path = pg_catalog, pg_temp set lock_timeout = '4s'
    as $$
#variable_conflict use_column
begin
    for place in 1 .. cardinality(wanted) loop
        return query
            select {schema}.clock(), k.format, {schema}.record_at(k.record, k.tail_at, k.tail,
                k.tail_at + octet_length(k.tail)), k.tail_at + octet_length(k.tail),
                case when {schema}.record_at(k.record, k.tail_at, k.tail, known_end[place])
                    = known_record[place] then null else k.base end,
                substring(k.tail from 1 + (case
                    when {schema}.record_at(k.record, k.tail_at, k.tail, known_end[place])
                        = known_record[place] then known_end[place]
                    else k.base_at end - k.tail_at)::int),
                k.tail_at + octet_length(k.tail) - k.base_at, octet_length(k.base)::bigint
                from (select) one left join {schema}.keys k on k.key = wanted[place];
    end loop;
end
$$;

-- Appends an entry to each of several keys at one time, or to none. They are locked in one order, so
-- that two of these do not wait for each other.
create function {schema}.append_all(
    wanted text[], wanted_format int, known_record bigint[], known_end bigint[],
    entry bytea[], since bigint, standbys int
)
    returns table (
        appended boolean, at bigint, record bigint, ends bigint, base bytea, entries bytea,
        since_base bigint, base_length bigint
    )
    language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '4s'
    as $$
declare
    moment bigint;
begin
    if standbys <> 0 then
        perform {schema}.commit_when(standbys);
    end if;
    perform 1 from {schema}.keys k where k.key = any(wanted) order by k.key for update;
    moment := {schema}.clock();
    for place in 1 .. cardinality(wanted) loop
        return query select * from {schema}.append(wanted[place], wanted_format,
            known_record[place], known_end[place], entry[place], 0, since, moment, null, null) a
            where a.appended;
        if not found then
            raise exception using errcode = 'LH003';
        end if;
    end loop;
end
$$;

-- Appends an entry to each of several keys, each for itself, and answers for those where it did. Not
-- where somebody else is just now: nobody waits here for what others do with another key.
create function {schema}.append_each(
    wanted text[], wanted_format int, known_record bigint[], known_end bigint[],
    entry bytea[], since bigint[], standbys int, new_base bytea[], replaced bigint[]
)
    returns table (
        key text, appended boolean, at bigint, record bigint, ends bigint, base bytea, entries bytea,
        since_base bigint, base_length bigint
    )
    language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '4s'
    as $$
#variable_conflict use_column
begin
    if standbys <> 0 then
        perform {schema}.commit_when(standbys);
    end if;
    return query
        -- First those of which there is no row. Whoever makes the same key is waited for, and this holds
        -- no row then for which others wait.
        with made as (
            insert into {schema}.keys as k (key, format, touched, tail)
                select w.key, wanted_format, {schema}.clock(),
                    int8send(0) || int4send(octet_length(w.entry)) || w.entry
                        || int8send({schema}.clock())
                    from unnest(wanted, known_record, entry, since) as w (key, record, entry, since)
                    where (w.since is null or w.record is null)
                        and not exists (select 1 from {schema}.keys o where o.key = w.key)
                on conflict do nothing
                returning k.key, true, k.touched, {schema}.record_at(k.record, k.tail_at, k.tail,
                    k.tail_at + octet_length(k.tail)),
                    octet_length(k.tail)::bigint, k.base, k.tail, octet_length(k.tail)::bigint, 0::bigint
        ), free as (
            select k.key from {schema}.keys k where k.key = any(wanted) for update skip locked
        ), changed as (
            update {schema}.keys k
                set tail = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                            w.record, w.ends, w.replaced)
                        then substring(k.tail from 1
                            + ({schema}.kept_from(k.base_at, w.ends, w.new_base) - k.tail_at)::int)
                        else k.tail end
                        || int8send(0) || int4send(octet_length(w.entry)) || w.entry
                        || int8send({schema}.clock()),
                    tail_at = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                            w.record, w.ends, w.replaced)
                        then {schema}.kept_from(k.base_at, w.ends, w.new_base) else k.tail_at end,
                    base = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                            w.record, w.ends, w.replaced)
                        then w.new_base else k.base end,
                    base_at = case when {schema}.takes(k.record, k.base_at, k.tail_at, k.tail,
                            w.record, w.ends, w.replaced)
                        then w.ends else k.base_at end,
                    touched = {schema}.clock()
                from free, unnest(wanted, known_record, known_end, entry, since, new_base, replaced)
                    as w (key, record, ends, entry, since, new_base, replaced)
                where free.key = k.key and w.key = k.key and k.format = wanted_format
                    and (w.since is null or {schema}.record_at(k.record, k.tail_at, k.tail, w.ends) = w.record
                        and k.tail_at + octet_length(k.tail) = w.ends
                        and {schema}.clock() >= w.since)
                returning k.key, true, k.touched, {schema}.record_at(k.record, k.tail_at, k.tail,
                    k.tail_at + octet_length(k.tail)),
                    k.tail_at + octet_length(k.tail),
                    case when {schema}.record_at(k.record, k.tail_at, k.tail, w.ends) = w.record then null
                        else k.base end,
                    substring(k.tail from 1 + (case
                        when {schema}.record_at(k.record, k.tail_at, k.tail, w.ends) = w.record then w.ends
                        else k.base_at end - k.tail_at)::int),
                    k.tail_at + octet_length(k.tail) - k.base_at, octet_length(k.base)::bigint
        )
        select * from made union all select * from changed;
end
$$;

-- Appends an entry and rings: in a transaction of its own, behind that of the entry.
create procedure {schema}.append_and_ring(
    wanted text, wanted_format int, known_record bigint, known_end bigint, entry bytea,
    inboxes text[], since bigint, standbys int, new_base bytea, replaced bigint,
    inout appended boolean, inout at bigint, inout record bigint, inout ends bigint,
    inout base bytea, inout entries bytea, inout since_base bigint, inout base_length bigint
)
    language plpgsql
    as $$
declare
    mask bigint;
begin
    -- Who is dead listens again only after this is committed: its lock is shared until then.
    mask := {schema}.dead(inboxes);
    if standbys <> 0 then
        perform {schema}.commit_when(standbys);
    end if;
    select * from {schema}.append(wanted, wanted_format, known_record, known_end, entry, mask,
        since, null, new_base, replaced)
        into appended, at, record, ends, base, entries, since_base, base_length;
    commit;
    if appended then
        perform {schema}.notify(wanted, inboxes, mask);
    end if;
end
$$;

-- Fencing inside of a transaction: fails, and the transaction with it, if a higher token of this key
-- was seen. It has a table of its own: a long transaction does not hold up the renewals of its lease.
create table {schema}.guards (
    key text collate "C" primary key,
    token bigint not null,
    seen timestamptz not null default now()
);

create function {schema}.guard(guarded text, with_token bigint) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    as $$
begin
    if coalesce(with_token, 0) <= 0 then
        raise exception using errcode = 'LH001',
            message = format('%L is not guarded: %s is no fencing token', guarded, with_token),
            hint = 'the lease is of a store without tokens, which fences nothing: use another';
    end if;
    insert into {schema}.guards as g (key, token) values (guarded, with_token)
        on conflict (key) do update set token = with_token, seen = now()
            where g.token <= with_token;
    if not found then
        raise exception using errcode = 'LH001',
            message = format('a later holder of %L has been here: token %s is stale', guarded,
                with_token),
            hint = 'the lease was lost: stop this work, and do it again with a new lease';
    end if;
end
$$;

-- The right to the schema decides, also where the database gives new functions to nobody: of those that
-- this transaction has made, since the schema may have others.
do $$
declare
    made regprocedure;
begin
    for made in select oid from pg_proc
        where pronamespace = '{schema}'::regnamespace and xmin = pg_current_xact_id()::xid
    loop
        execute format('grant execute on routine %s to public', made);
    end loop;
end
$$;

insert into {schema}.about (version) values (3);
