-- Define what workers may do. Each worker logs in with its own role. `placet team init --worker`
-- lists the role in team_workers; it is a member of placet_worker. A worker reads its own work and
-- writes only through these functions. They run with the rights of the schema's owner. A worker can
-- make tables in pg_temp, so pg_temp is last in each search_path.

CREATE TABLE IF NOT EXISTS team_workers (
  name text COLLATE "C" PRIMARY KEY, -- also the name of its role
  labels text NOT NULL,
  slots bigint NOT NULL DEFAULT 2); -- pieces of work that it may have at once
DO $$ BEGIN -- a table from before the first release
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'team_workers'::regclass
      AND attname = 'slots') THEN
    ALTER TABLE team_workers ADD COLUMN slots bigint NOT NULL DEFAULT 2;
  END IF;
END $$;

-- Return whether the caller has a case's work with this token, and holds the lease.
CREATE OR REPLACE FUNCTION worker_holds(trace text, tok bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
  SELECT EXISTS (SELECT FROM leases l JOIN team_work w ON w.trace_id = l.trace_id
    AND w.token = l.token WHERE l.trace_id = trace AND l.token = tok AND l.held
    AND w.worker = session_user)
$$;

-- Return whether a worker's row has what its readers rely on: the facts of each action with their
-- types, and numbers that every reader can hold. Only the daemon says why a plan returned to review.
CREATE OR REPLACE FUNCTION worker_row_is_whole(action text, facts jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = placet, pg_catalog, pg_temp AS $$
  SELECT coalesce(jsonb_typeof(facts) = 'object'
    AND NOT jsonb_path_exists(facts, 'strict $.**{20}')
    AND NOT jsonb_path_exists(facts,
      '$.** ? (@.type() == "number" && (@ > 1000000000000000 || @ < -1000000000000000))')
    AND NOT (action = 'plan.drifted' AND facts ? 'reason')
    AND (NOT starts_with(action, 'model.') OR facts ? 'cost_usd')
    AND coalesce(facts ->> 'iteration', '0') ~ '^[0-9]{1,6}$'
    AND coalesce(jsonb_typeof(facts -> 'hosts'), 'array') = 'array'
    AND NOT EXISTS (SELECT FROM (VALUES
      ('failure.detected', 'string', 'pattern description suggested_action affected_tool'),
      ('git.branch_created', 'string', 'branch base'),
      ('git.committed', 'string', 'branch commit'),
      ('model.called', 'string', 'purpose model'),
      ('model.failed', 'number', 'attempt'),
      ('model.failed', 'string', 'purpose kind reason'),
      ('step.completed', 'number', 'step of'),
      ('tool.called', 'boolean', 'ok'),
      ('tool.called', 'string', 'tool target error_type'),
      ('tool.refused', 'string', 'tool target error_type')) AS need (of_action, kind, names),
      string_to_table(names, ' ') AS name
      WHERE of_action = action AND (jsonb_typeof(facts -> name) IS DISTINCT FROM kind
        OR kind = 'number' AND facts ->> name !~ '^[0-9]{1,6}$'))
    AND NOT EXISTS (
      SELECT FROM jsonb_path_query(facts, '$.hosts[*]') AS host, (VALUES
        ('host', 'string'), ('port', 'number'), ('verdict', 'string'), ('connections', 'number'),
        ('sent_bytes', 'number'), ('received_bytes', 'number')) AS need (name, kind)
      WHERE action = 'tool.called' AND jsonb_typeof(host -> name) IS DISTINCT FROM kind), FALSE)
$$;

-- Append to a mission's record and to the journal, and return the work (`kind_` and `result_`).
-- `turn_` counts the calls for a piece of work. A call whose answer was lost may be repeated; the
-- second one does nothing. A gap in the turns is refused: the database was restored meanwhile.
-- The record's entries come column by column, `events` as rows of eight texts.
-- Errors: PL001 the lease is lost, PL002 the record is longer, PL003 no worker may write this.
-- The daemon and the next worker load a record whole, so all that a case's generation may bring is
-- 64 MB, with 200 bytes a row for what the database adds. A call holds the chain's row, so it may
-- bring 16 MB and 5,000 rows of each kind: the longest reply has no more calls.
CREATE OR REPLACE FUNCTION worker_append(trace text, tok bigint, turn_ bigint, attempts bigint[],
  seqs bigint[], kinds text[], keys text[], bodies bytea[], events text[], refs_ text, kind_ text,
  result_ text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
DECLARE
  before bigint;
  generation_ bigint;
  last bigint;
  hash_ text;
  event text[];
  facts jsonb;
  used numeric;
  usd_ double precision;
  is_settled boolean := FALSE;
  all_used numeric := 0;
  all_usd numeric := 0;
  of_result bigint := octet_length(concat(kind_, result_));
  rows_ bigint := coalesce(cardinality(seqs), 0) + coalesce(array_length(events, 1), 0);
  size_ bigint := coalesce((SELECT sum(length(one)) FROM unnest(bodies) AS one), 0)
    + octet_length(concat(array_to_string(keys, ''), array_to_string(kinds, ''), refs_))
    + octet_length(array_to_string(events, '')) + 200 * rows_ + of_result;
  sum_ bigint;
BEGIN
  IF size_ > 16000000 OR octet_length(concat(refs_, result_)) > 2000000
    OR cardinality(seqs) > 5000 OR array_length(events, 1) > 5000
    OR EXISTS (SELECT FROM unnest(keys) AS one WHERE length(one) > 200)
    OR kind_ NOT IN (
      '', 'left', 'mistake', 'drafted', 'not planned', 'asked', 'wait', 'ended') -- as work_item.py
    OR array_ndims(events) <> 2
    OR EXISTS (SELECT FROM unnest(events) AS one WHERE one IS NULL)
  THEN
    RAISE EXCEPTION 'no worker may write so much, or rows of another shape' USING ERRCODE = 'PL003';
  END IF;
  -- the chain's row orders all writers
  SELECT coalesce((SELECT max(id) FROM activity WHERE id > last_id), last_id), last_hash
    INTO last, hash_ FROM chain FOR UPDATE;
  IF NOT worker_holds(trace, tok) THEN
    RAISE EXCEPTION 'token % does not hold the lease of %', tok, trace USING ERRCODE = 'PL001';
  END IF;
  SELECT turn, generation INTO before, generation_ FROM team_work WHERE trace_id = trace;
  IF before = turn_ THEN RETURN; END IF;
  IF before <> turn_ - 1 THEN
    RAISE EXCEPTION 'the database lacks what this worker wrote: it was restored'
      USING ERRCODE = 'PL001';
  END IF;

  FOR n IN 1 .. cardinality(seqs) LOOP
    IF seqs[n] <= (SELECT coalesce(max(seq), 0) FROM records
                   WHERE trace_id = trace AND attempt = attempts[n]) THEN
      RAISE EXCEPTION 'record % attempt % seq % is taken', trace, attempts[n], seqs[n]
        USING ERRCODE = 'PL002';
    END IF;
    -- only the daemon records where a mission begins, its place and its author; an outcome is final
    IF seqs[n] > 1000000 OR attempts[n] IS DISTINCT FROM generation_
      OR kinds[n] NOT IN ('intent', 'outcome') OR keys[n] IN ('place', 'author', 'base')
      OR kinds[n] = 'outcome' AND EXISTS (SELECT FROM records r WHERE r.trace_id = trace
        AND r.attempt = attempts[n] AND r.kind = 'outcome' AND r.key = keys[n]) THEN
      RAISE EXCEPTION 'no worker may record % % of attempt %', kinds[n], keys[n], attempts[n]
        USING ERRCODE = 'PL003';
    END IF;
    INSERT INTO records VALUES (trace, attempts[n], seqs[n], kinds[n], keys[n],
      encode(sha256(bodies[n]), 'hex'), length(bodies[n]), bodies[n]);
    IF kinds[n] = 'intent' AND starts_with(keys[n], 'attempt:') THEN
      INSERT INTO asked VALUES (trace, attempts[n]) ON CONFLICT DO NOTHING;
    ELSIF kinds[n] = 'outcome' AND keys[n] ~ '^(attempt|reply):' THEN
      DELETE FROM asked WHERE trace_id = trace AND attempt = attempts[n];
      is_settled := TRUE;
    END IF;
  END LOOP;

  FOR n IN 1 .. coalesce(array_length(events, 1), 0) LOOP
    event := ARRAY(SELECT unnest(events[n:n]));
    IF octet_length(array_to_string(event, '')) > 65536 THEN
      RAISE EXCEPTION 'a row of the journal may have 64 KB, and % has more', event[5]
        USING ERRCODE = 'PL003';
    END IF;
    IF cardinality(event) <> 8 OR event[2] <> trace OR event[3] NOT IN ('agent', 'system') OR event[5] NOT IN (
      'conversation.compacted', 'failure.detected', 'git.branch_created', 'git.committed',
      'git.initialized', 'git.ran', 'git.rolled_back', 'git.snapshotted', 'git.tidied',
      'model.called', 'model.failed', 'plan.drifted',
      'step.completed', 'tool.called', 'tool.refused') THEN
      RAISE EXCEPTION 'no worker may write % of % for %', event[5], event[3], event[2]
        USING ERRCODE = 'PL003';
    END IF;
    facts := event[8]::jsonb;
    IF NOT worker_row_is_whole(event[5], facts)
      OR event[6] NOT IN ('request', 'plan', 'mission', 'repository')
      OR event[4] ~ '[[:cntrl:]]'
      OR event[7] <> (SELECT request_id FROM cases c WHERE c.trace_id = trace)
      OR event[1] !~ '^[2-9]\d{3}-\d\d-\d\dT([01]\d|2[0-3])(:[0-5]\d){2}(\.\d{1,6})?Z$'
      OR event[1]::timestamptz > clock_timestamp() + interval '1 hour' THEN
      RAISE EXCEPTION 'this is no row of the journal: %', left(event[8], 80)
        USING ERRCODE = 'PL003';
    END IF;
    last := last + 1;
    -- as journal/chain.py has it
    hash_ := encode(sha256(convert_to(hash_ || E'\n' || last || E'\n' ||
      (SELECT string_agg(char_length(one)::text, ' ' ORDER BY at)
       FROM unnest(event) WITH ORDINALITY AS u (one, at))
      || E'\n' || array_to_string(event, ''), 'UTF8')), 'hex');
    INSERT INTO activity VALUES (last, event[1], event[2], event[3], event[4], event[5], event[6],
      event[7], event[8], hash_);
    IF event[5] IN ('model.called', 'model.failed') THEN -- as journal/costs.py has it
      SELECT coalesce(sum((facts ->> one)::numeric), 0) INTO used FROM unnest(ARRAY['tokens',
        'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens']) AS one;
      usd_ := (facts ->> 'cost_usd')::double precision;
      IF used NOT BETWEEN 0 AND 1e9 OR used % 1 <> 0 OR usd_ NOT BETWEEN 0 AND 1e5
        OR EXISTS (SELECT FROM jsonb_each(facts) WHERE key ~ '^(tokens|.*_tokens|cost_usd)$'
          AND jsonb_typeof(value) NOT IN ('number', 'null')) THEN
        RAISE EXCEPTION 'no call uses so much' USING ERRCODE = 'PL003';
      END IF;
      all_used := all_used + used;
      all_usd := all_usd + CASE WHEN used = 0 THEN coalesce(usd_, 0) ELSE usd_ END;
      INSERT INTO spent VALUES (
        left(event[1], 14) || lpad((substr(event[1], 15, 2)::int / 15 * 15)::text, 2, '0'),
        used, coalesce(usd_, 0), CASE WHEN usd_ IS NULL AND used > 0 THEN 1 ELSE 0 END)
      ON CONFLICT (quarter) DO UPDATE SET tokens = spent.tokens + excluded.tokens,
        usd = spent.usd + excluded.usd, unknown = spent.unknown + excluded.unknown;
    END IF;
  END LOOP;
  IF is_settled OR all_usd IS NULL OR all_used + all_usd <> 0 THEN
    DELETE FROM team_held WHERE key = trace || ':' || generation_ || ':' || tok -- as agent/limits.py
      AND tokens >= all_used AND (usd IS NULL OR usd::numeric + 0.000001 >= all_usd);
    IF NOT FOUND AND (all_usd IS NULL OR all_used + all_usd <> 0) THEN
      RAISE EXCEPTION 'a call may not use more than what was reserved for it'
        USING ERRCODE = 'PL003';
    END IF;
  END IF;
  INSERT INTO team_used AS u VALUES (trace, generation_, size_, all_used, coalesce(all_usd, 0))
  ON CONFLICT (trace_id, generation) DO UPDATE SET bytes = u.bytes + excluded.bytes,
    tokens = u.tokens + excluded.tokens, usd = u.usd + excluded.usd
  RETURNING bytes INTO sum_;
  IF sum_ > 64000000 AND size_ > of_result THEN -- a result alone is written once
    RAISE EXCEPTION 'the record of this work may have 64 MB, and this would be more'
      USING ERRCODE = 'PL003';
  END IF;
  IF cardinality(events) > 0 THEN
    UPDATE chain SET last_id = last, last_hash = hash_;
    PERFORM pg_notify('placet_rows', '');
  END IF;

  IF refs_ <> '' THEN
    IF jsonb_typeof(refs_::jsonb) <> 'object'
      OR EXISTS (SELECT FROM jsonb_each(refs_::jsonb) WHERE jsonb_typeof(value) <> 'string') THEN
      RAISE EXCEPTION 'these are no references' USING ERRCODE = 'PL003';
    END IF;
    INSERT INTO team_refs SELECT trace, generation, refs_ FROM team_work WHERE trace_id = trace
    ON CONFLICT (trace_id, generation) DO UPDATE SET refs = excluded.refs;
  END IF;
  IF kind_ <> '' THEN
    IF kind_ NOT IN ('left', 'mistake') THEN PERFORM result_::json; END IF;
    UPDATE team_work SET kind = kind_, result = result_ WHERE trace_id = trace AND kind = '';
    PERFORM pg_notify('placet_host', '');
  END IF;
  UPDATE team_work SET turn = turn_ WHERE trace_id = trace;
END $$;

-- Return whether a text can be the owner of a process, as `case/lease.py` writes it.
CREATE OR REPLACE FUNCTION worker_is_owner(owner_ text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = placet, pg_catalog, pg_temp AS $$
  SELECT coalesce(length(owner_) < 2000 AND jsonb_typeof(owner_::jsonb) = 'object', FALSE)
$$;

-- Take the most urgent work that nobody has and the caller's process `owner_` may take; return its
-- trace_id, NULL for none. It returns work again whose answer was lost: `taken` is what the process
-- knows of. A worker with as much unfinished work as it has slots gets none, whatever its process
-- says of itself. The settings make it walk an index, also where the table has no statistics yet.
CREATE OR REPLACE FUNCTION worker_claim(owner_ text, taken text[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  me team_members;
  most bigint;
  found_ text;
BEGIN
  -- the row orders a worker's claims
  SELECT slots INTO most FROM team_workers WHERE name = session_user FOR UPDATE;
  SELECT m.* INTO me FROM team_members m JOIN team_workers r USING (name)
  WHERE name = session_user AND owner = owner_ AND NOT draining;
  SELECT trace_id INTO found_ FROM team_work WHERE worker = me.name AND owner = owner_
    AND token IS NULL AND trace_id <> ALL (taken) LIMIT 1;
  IF found_ IS NOT NULL THEN RETURN found_; END IF;
  IF (SELECT count(*) FROM team_work WHERE worker = me.name AND kind = '') >= most THEN
    RETURN NULL;
  END IF;
  SELECT trace_id INTO found_ FROM team_work WHERE worker IS NULL AND trace_id <> ALL (taken)
    AND starts_with(me.version, split_part(queue, '/', 1) || '.')
    AND split_part(queue, '/', 2) = ANY (string_to_array(me.labels, ','))
    AND split_part(queue, '/', 3)::bigint <= me.level
  ORDER BY priority DESC, put_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF found_ IS NOT NULL THEN
    UPDATE team_work SET worker = me.name, owner = owner_, level = me.level
    WHERE trace_id = found_;
    PERFORM pg_notify('placet_host', '');
  END IF;
  RETURN found_;
END $$;

-- Give a sign of life and renew the leases of the work `under_way`. Return the worker's state and
-- for how many seconds the sign is good. States: 'ok' (may take work), 'draining', 'unknown' (nobody
-- let it in), 'taken' (another live process has its name). `gone` is the owner of a process that
-- has ended.
CREATE OR REPLACE FUNCTION worker_beat(owner_ text, level_ bigint, version_ text, slots_ bigint,
  gone text, under_way text[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
DECLARE
  now_s double precision := extract(epoch FROM clock_timestamp());
  lease_s double precision := coalesce(
    (SELECT expires_s - heartbeat_s FROM leases WHERE trace_id = 'vault'), 30);
  drains boolean;
BEGIN
  IF NOT EXISTS (SELECT FROM team_members WHERE name = session_user AND owner = owner_) THEN
    PERFORM pg_notify('placet_host', ''); -- work may wait for this process
  END IF;
  INSERT INTO team_members AS m (name, labels, level, version, slots, owner, beat_s)
  SELECT name, labels, level_, left(version_, 80), least(slots_, slots), owner_, now_s
  FROM team_workers
  WHERE name = session_user AND worker_is_owner(owner_)
  ON CONFLICT (name) DO UPDATE SET
    labels = CASE WHEN m.owner = excluded.owner THEN m.labels ELSE excluded.labels END,
    level = excluded.level, version = excluded.version, slots = excluded.slots, owner = excluded.owner,
    draining = m.draining AND m.owner = excluded.owner, beat_s = excluded.beat_s
  WHERE m.beat_s < excluded.beat_s - lease_s OR m.owner IN (excluded.owner, gone)
  RETURNING draining INTO drains;
  IF NOT FOUND AND EXISTS (SELECT FROM team_workers WHERE name = session_user) THEN
    RETURN ARRAY['taken', lease_s::text];
  ELSIF NOT FOUND THEN
    RETURN ARRAY['unknown', lease_s::text];
  END IF;
  UPDATE leases l SET heartbeat_s = now_s, expires_s = now_s + lease_s FROM team_work w
  WHERE w.trace_id = l.trace_id AND w.token = l.token AND l.held AND w.worker = session_user
    AND w.owner = owner_ AND w.trace_id = ANY (under_way);
  DELETE FROM team_members WHERE beat_s < now_s - 86400;
  RETURN ARRAY[CASE WHEN drains THEN 'draining' ELSE 'ok' END, lease_s::text];
END $$;

-- Say that the caller's process ends.
CREATE OR REPLACE FUNCTION worker_leave(owner_ text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
  DELETE FROM team_members WHERE name = session_user AND owner = owner_
$$;

-- Reserve a model call. `key_` names the caller: trace_id, number of the conversation, token of the
-- lease, and nothing else, so a lease has one reservation. Return FALSE if the day that began in the quarter of an hour `since` has no room; a limit
-- that is NULL is none. With `sure` also if a cost of the day is unknown. Errors: PL001 the lease is
-- lost, PL003 the work's own limits have no room.
CREATE OR REPLACE FUNCTION worker_hold(key_ text, tokens_ bigint, usd_ text, day_tokens bigint,
  day_usd text, since text, sure boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
DECLARE
  trace text := split_part(key_, ':', 1);
  work team_work;
  used team_used;
  day record;
BEGIN
  IF NOT worker_holds(trace, nullif(split_part(key_, ':', 3), '')::bigint) THEN
    RAISE EXCEPTION '% does not hold the lease', key_ USING ERRCODE = 'PL001';
  END IF;
  PERFORM FROM team_day FOR UPDATE; -- one after the other
  SELECT * INTO work FROM team_work WHERE trace_id = trace;
  SELECT * INTO used FROM team_used u
  WHERE u.trace_id = trace AND u.generation = work.generation;
  IF key_ IS DISTINCT FROM trace || ':' || work.generation || ':' || work.token
    OR length(usd_) > 40 OR tokens_ NOT BETWEEN 0 AND 1e9
    OR usd_::numeric NOT BETWEEN 0 AND 1e5
    OR tokens_ + coalesce(used.tokens, 0) > work.most_tokens
    OR (usd_ IS NULL AND work.most_usd IS NOT NULL)
    OR usd_::numeric + coalesce(used.usd, 0) > work.most_usd + 0.000001
  THEN
    RAISE EXCEPTION 'the limits of this work have no room for a call of % tokens', tokens_
      USING ERRCODE = 'PL003';
  END IF;
  PERFORM worker_drop('');
  SELECT sum(tokens) + tokens_ AS tokens, sum(usd) + coalesce(usd_::numeric, 0) AS usd,
    sum(unknown) AS unknown INTO day FROM (
    SELECT tokens, usd::numeric, unknown FROM spent WHERE quarter >= since
    UNION ALL SELECT tokens, usd::numeric, (usd IS NULL)::int FROM team_held h
      WHERE key <> key_ AND EXISTS (SELECT FROM leases l WHERE l.trace_id = split_part(key, ':', 1)
        AND split_part(key, ':', 3) IN ('', l.token::text) AND held
        AND expires_s > extract(epoch FROM clock_timestamp()))
    UNION ALL SELECT 0, 0, (usd_ IS NULL)::int) AS u;
  IF day.tokens > day_tokens OR day.usd > day_usd::numeric + 0.000001
    OR (sure AND day_usd IS NOT NULL AND day.unknown > 0) THEN
    RETURN FALSE;
  END IF;
  INSERT INTO team_held VALUES (key_, tokens_, usd_)
  ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens, usd = excluded.usd;
  RETURN TRUE;
END $$;

-- Release a reservation of the caller, and those of leases that are over.
CREATE OR REPLACE FUNCTION worker_drop(key_ text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = placet, pg_catalog, pg_temp AS $$
  DELETE FROM team_held WHERE key = key_
    AND worker_holds(split_part(key_, ':', 1), nullif(split_part(key_, ':', 3), '')::bigint);
  DELETE FROM team_held WHERE NOT EXISTS (SELECT FROM leases WHERE held
    AND trace_id = split_part(key, ':', 1) AND token::text = split_part(key, ':', 3))
$$;

-- Workers see their own work. Readers see everything.
DO $$
DECLARE
  of_worker text;
  part text;
BEGIN
  FOR part, of_worker IN VALUES
    ('team_work', 'worker = session_user'),
    ('team_refs', 'EXISTS (SELECT FROM team_work w WHERE w.trace_id = team_refs.trace_id)'),
    ('records', 'EXISTS (SELECT FROM team_work w WHERE w.trace_id = records.trace_id)'),
    ('activity', 'EXISTS (SELECT FROM team_work w WHERE w.trace_id = activity.trace_id)'),
    ('cases', 'EXISTS (SELECT FROM team_work w WHERE w.trace_id = cases.trace_id)'),
    ('texts', 'EXISTS (SELECT FROM team_work w WHERE strpos(w.item, texts.digest) > 0)')
  LOOP
    -- an existing policy stays: creating one waits for everybody who reads the table
    IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = part::regclass) THEN
      EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'placet_worker') AND NOT EXISTS (SELECT
      FROM pg_policies WHERE schemaname = 'placet' AND tablename = part AND policyname = 'workers')
    THEN
      EXECUTE format('CREATE POLICY workers ON %I FOR SELECT TO placet_worker USING (%s)',
        part, of_worker);
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'placet_reader') AND NOT EXISTS (SELECT
      FROM pg_policies WHERE schemaname = 'placet' AND tablename = part AND policyname = 'readers')
    THEN
      EXECUTE format('CREATE POLICY readers ON %I FOR SELECT TO placet_reader USING (TRUE)', part);
    END IF;
  END LOOP;
END $$;

DO $$
DECLARE
  one text;
BEGIN
  FOR one IN SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = 'placet'::regnamespace AND starts_with(proname, 'worker_')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'placet_worker') THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO placet_worker', one);
    END IF;
  END LOOP;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'placet_worker') THEN
    GRANT USAGE ON SCHEMA placet TO placet_worker;
    IF has_database_privilege('placet_worker', current_database(), 'TEMPORARY') THEN
      BEGIN -- temporary tables could fill the disk
        EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
      EXCEPTION WHEN insufficient_privilege THEN NULL; -- `placet doctor` says so
      END;
    END IF;
    GRANT SELECT ON activity, cases, leases, paid, records, schema_number, spent, team_bodies,
      team_day, team_held, team_members, team_refs, team_work, team_workers, texts
      TO placet_worker;
  END IF;
END $$;
