-- Looking, and forgetting.

-- A page of slots with their live waiters counted, and the time by which they are judged.
CREATE FUNCTION %schema%.list_1(p_ns text, p_from text, p_after text, p_to text, p_limit integer, p_free_too boolean)
    RETURNS TABLE (resource text, token bigint, at_us bigint, granted_us bigint, success_us bigint, seq integer,
        ttl_ms integer, span_ms integer, lease_id uuid, holder_id uuid, label text, revoked_by text, revoked_note text,
        end_token bigint, end_us bigint, end_lease_id uuid, end_how text, end_by text, end_note text, waiting bigint)
    LANGUAGE sql STABLE SET search_path = %schema%, pg_temp AS $$
    SELECT s.resource, s.token, s.at_us, s.granted_us, s.success_us, s.seq, s.ttl_ms, s.span_ms, s.lease_id, s.holder_id,
        s.label, s.revoked_by, s.revoked_note, s.end_token, s.end_us, s.end_lease_id, s.end_how, s.end_by, s.end_note,
        CASE WHEN s.waiting > 0 THEN (
            SELECT count(*) FROM queue q WHERE q.namespace = s.namespace AND q.resource = s.resource
                AND abs((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - q.refreshed_us) < 45000000
        ) ELSE 0 END
    FROM slot s
    WHERE s.namespace = p_ns AND s.resource >= p_from AND s.resource > p_after AND s.resource <= p_to
        AND (p_free_too OR s.lease_id IS NOT NULL OR s.waiting > 0)
    ORDER BY s.resource LIMIT p_limit
$$;

-- The namespace as it is, and what time it is.
CREATE FUNCTION %schema%.state_1(p_ns text)
    RETURNS TABLE (now_us bigint, incarnation text, mode text, known text, epoch integer, max_ttl_ms bigint,
        longest_ms bigint, quarantine_until_us bigint, settled boolean)
    LANGUAGE sql VOLATILE SET search_path = %schema%, pg_temp AS $$
    SELECT t.now_us, incarnation_1(),
        sp.mode, sp.incarnation, sp.epoch, sp.max_ttl_ms, longest_1(sp, t.now_us), sp.quarantine_until_us, sp.settled
    FROM (SELECT us_1() AS now_us) t LEFT JOIN space sp ON sp.namespace = p_ns
$$;

-- The first live waiters of a resource.
CREATE FUNCTION %schema%.waiters_1(p_ns text, p_resource text, p_limit integer)
    RETURNS TABLE (lease_id uuid, label text, waited_us bigint)
    LANGUAGE sql VOLATILE SET search_path = %schema%, pg_temp AS $$
    SELECT q.lease_id, q.label, greatest(t.now_us - q.joined_us, 0)
    FROM (SELECT us_1() AS now_us) t, queue q
    WHERE q.namespace = p_ns AND q.resource = p_resource AND abs(t.now_us - q.refreshed_us) < 45000000
    ORDER BY q.seq LIMIT p_limit
$$;

-- Whether it is this client's turn to forget what is idle: one turn in so long, however many clients a namespace has. A
-- transaction of its own, so that nobody waits for the row while the turn is taken.
CREATE FUNCTION %schema%.purge_due_1(p_ns text, p_every_us bigint) RETURNS boolean LANGUAGE plpgsql
    SET search_path = %schema%, pg_temp AS $$
DECLARE
    v_now bigint;
BEGIN
    IF begin_1(1000) THEN
        v_now := us_1();
    END IF;
    -- A clock that was set back must not put it off for as long.
    UPDATE space SET purged_us = v_now WHERE namespace = p_ns AND abs(v_now - purged_us) >= p_every_us;
    RETURN FOUND;
END $$;

-- Looks at some rows after p_after, or anywhere, and forgets those that nobody has used for as long as tokens are kept. Where
-- to go on; NULL at the end. Several clients may do so at once.
CREATE FUNCTION %schema%.purge_1(p_ns text, p_after text, p_retention_us bigint, p_step integer) RETURNS text LANGUAGE plpgsql
    SET search_path = %schema%, pg_temp SET enable_seqscan = off AS $$
DECLARE
    v_now bigint;
    v_after text := p_after;
    v_last text;
    v_floor bigint;
BEGIN
    IF begin_1(1000) THEN
        v_now := us_1();
    END IF;
    IF v_after IS NULL THEN
        -- Short-lived programs would else all look at the same ones.
        SELECT resource INTO v_after FROM slot TABLESAMPLE SYSTEM (0.1) WHERE namespace = p_ns LIMIT 1;
        v_after := coalesce(v_after, '');
    END IF;
    SELECT max(x.resource) INTO v_last FROM (
        SELECT resource FROM slot WHERE namespace = p_ns AND resource > v_after ORDER BY namespace, resource LIMIT p_step
    ) x;
    WITH idle AS (
        SELECT resource, token FROM slot
            WHERE namespace = p_ns AND resource > v_after AND resource <= v_last
                AND at_us < v_now - p_retention_us AND waiting = 0
                -- Where the server's clock does not say when a grant ends, it does not say that one is old either.
                AND (lease_id IS NULL OR EXISTS (SELECT FROM space WHERE namespace = p_ns AND mode <> 'observed'))
            FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM slot s USING idle i WHERE s.namespace = p_ns AND s.resource = i.resource RETURNING i.resource, i.token
    ), past_too AS (
        DELETE FROM past p USING gone g WHERE p.namespace = p_ns AND p.resource = g.resource
    ) SELECT max(token) INTO v_floor FROM gone;
    -- A token ahead of the clock is all that the time floor does not cover.
    IF v_floor > 0 THEN
        UPDATE space SET token_floor = greatest(token_floor, v_floor) WHERE namespace = p_ns AND token_floor < v_floor;
    END IF;
    RETURN v_last;
END $$;
