-- What doctor looks at, by the names that its rules know: texts and bigints. Of the sessions of other
-- roles a role without pg_read_all_stats sees the database, and no type; of standbys the name, and no
-- state.
with there as (
    select lower(application_name) as name, sync_state from pg_stat_replication
), wanted as (
    select btrim(one, ' "') as name from regexp_split_to_table(regexp_replace(
        current_setting('synchronous_standby_names'), '^[^(]*[(]|[)] *$', '', 'g'), ',') one
)
select current_setting('server_version') as version,
    current_setting('server_encoding') as encoding,
    current_setting('fsync') as fsync,
    current_setting('synchronous_commit') as commit,
    current_setting('synchronous_standby_names') as standbys,
    (select string_agg(name, ', ') from wanted where name not in ('', '*') and not exists (
        select from there where sync_state is null
            or sync_state <> 'async' and there.name = lower(wanted.name))) as gone,
    (select case when bool_or(sync_state is null) then 0
        else coalesce(substring(current_setting('synchronous_standby_names')
            from '([0-9]+) *[(]')::bigint, 1) - count(*) filter (where sync_state <> 'async')
        end from there) as lacking,
    current_setting('wal_writer_delay') as writer_delay,
    current_setting('log_statement') as log_statement,
    current_setting('log_min_duration_statement') as log_duration,
    current_setting('log_parameter_max_length', true) as log_parameters,
    (select count(*) from pg_stat_activity where datid is not null
        and coalesce(backend_type, 'client backend') = 'client backend') as connections,
    current_setting('max_connections')::bigint as max_connections,
    pg_stat_get_dead_tuples('{schema}.keys'::regclass::oid) as old_rows,
    pg_stat_get_live_tuples('{schema}.keys'::regclass::oid) as rows
