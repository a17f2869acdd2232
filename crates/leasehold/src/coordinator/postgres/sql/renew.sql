-- Renewals.

-- One renewal, looked at without a lock, and with one where it would extend.
CREATE FUNCTION %schema%.renew_one_1(
    p_n integer, sp %schema%.space, p_wait boolean, p_resource text, p_lease_id uuid, p_token bigint, p_ttl_ms bigint,
    p_delay_ms bigint, p_seen_token bigint, p_seen_seq integer
) RETURNS %schema%.answer LANGUAGE plpgsql AS $$
DECLARE
    s slot;
    a answer;
    v_now bigint;
    v_ends bigint;
BEGIN
    a.n := p_n;
    FOR v_pass IN 1 .. 2 LOOP
        IF v_pass = 1 THEN
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = p_resource;
        ELSIF p_wait THEN
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = p_resource FOR NO KEY UPDATE;
        ELSE
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = p_resource FOR NO KEY UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                a.word := 'skipped';
                RETURN a;
            END IF;
        END IF;
        v_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
        IF s.lease_id = p_lease_id AND s.token = p_token AND p_ttl_ms > greatest(sp.max_ttl_ms, s.ttl_ms) THEN
            a.word := 'ttl'; a.ttl_ms := greatest(sp.max_ttl_ms, s.ttl_ms);
            RETURN a;
        END IF;
        IF s.lease_id IS DISTINCT FROM p_lease_id OR s.token IS DISTINCT FROM p_token OR s.revoked_by IS NOT NULL
            OR lapsed_1(s, sp.mode = 'observed', v_now, p_seen_token, p_seen_seq)
        THEN
            RETURN gone_1(s, p_n, p_lease_id, p_token, v_now);
        END IF;
    END LOOP;
    v_ends := v_now + (p_ttl_ms + p_delay_ms) * 1000;
    UPDATE slot SET seq = slot.seq + 1, at_us = greatest(slot.at_us, v_ends),
        -- An observer knows no clock but its own: while a grant lasts, what it must wait for never gets less.
        ttl_ms = CASE WHEN sp.mode = 'observed' THEN greatest(slot.ttl_ms, p_ttl_ms)
            WHEN v_ends >= slot.at_us THEN p_ttl_ms ELSE slot.ttl_ms END,
        span_ms = CASE WHEN sp.mode = 'observed' THEN greatest(slot.span_ms, p_ttl_ms + p_delay_ms)
            WHEN v_ends >= slot.at_us THEN p_ttl_ms + p_delay_ms ELSE slot.span_ms END
        WHERE namespace = sp.namespace AND resource = p_resource;
    a.word := 'extended';
    RETURN a;
END $$;

-- Many renewals, one answer each; at most one of a resource.
CREATE FUNCTION %schema%.renew_1(
    p_ns text, p_mode text, p_told_ms bigint, p_wait_ms integer, p_resource text[], p_lease_id uuid[], p_token bigint[],
    p_ttl_ms bigint[], p_delay_ms bigint[], p_seen_token bigint[], p_seen_seq integer[]
) RETURNS SETOF %schema%.answer LANGUAGE plpgsql
    SET search_path = %schema%, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    sp space;
    a answer;
    v_now bigint;
    v_got integer[] := '{}';
    i integer;
    v_count integer := cardinality(p_resource);
BEGIN
    IF begin_1(coalesce(p_wait_ms, 100)) THEN
        v_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    END IF;
    IF v_count = 1 AND p_mode <> 'observed' THEN
        -- The commonest case in one statement: it ends later than before. Where it waits for the row it extends from before the
        -- wait, which is after it was sent.
        UPDATE slot s SET seq = s.seq + 1, at_us = v_now + (p_ttl_ms[1] + p_delay_ms[1]) * 1000, ttl_ms = p_ttl_ms[1],
            span_ms = p_ttl_ms[1] + p_delay_ms[1]
            FROM space m
            WHERE m.namespace = p_ns AND m.mode = p_mode AND m.incarnation = incarnation_1()
                AND s.namespace = p_ns AND s.resource = p_resource[1] AND s.lease_id = p_lease_id[1] AND s.token = p_token[1]
                AND s.revoked_by IS NULL AND s.at_us <= v_now + (p_ttl_ms[1] + p_delay_ms[1]) * 1000
                AND s.at_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                AND s.at_us - v_now <= s.span_ms * 1000::bigint AND p_ttl_ms[1] <= greatest(m.max_ttl_ms, s.ttl_ms);
        IF FOUND THEN
            a.n := 1; a.word := 'extended';
            RETURN NEXT a;
            RETURN;
        END IF;
    END IF;
    sp := space_1(p_ns, p_mode, p_told_ms);
    IF v_count > 2 AND sp.mode <> 'observed' THEN
        -- A lock that lets a fence pass which is held on the row's key.
        WITH held AS MATERIALIZED (
            SELECT r.n::integer AS n, s.resource, r.ttl_ms, r.ttl_ms + r.delay_ms AS span_ms
                FROM unnest(p_resource, p_lease_id, p_token, p_ttl_ms, p_delay_ms) WITH ORDINALITY
                    AS r (resource, lease_id, token, ttl_ms, delay_ms, n)
                JOIN slot s ON s.namespace = p_ns AND s.resource = r.resource
                WHERE s.lease_id = r.lease_id AND s.token = r.token AND s.revoked_by IS NULL
                    AND r.ttl_ms <= greatest(sp.max_ttl_ms, s.ttl_ms)
                ORDER BY s.resource FOR NO KEY UPDATE OF s SKIP LOCKED
        ), extended AS (
            UPDATE slot s SET seq = s.seq + 1, at_us = greatest(s.at_us, v_now + h.span_ms * 1000),
                ttl_ms = CASE WHEN v_now + h.span_ms * 1000 >= s.at_us THEN h.ttl_ms ELSE s.ttl_ms END,
                span_ms = CASE WHEN v_now + h.span_ms * 1000 >= s.at_us THEN h.span_ms ELSE s.span_ms END
                FROM held h WHERE s.namespace = p_ns AND s.resource = h.resource
                    -- Judged when the row is locked: what another has seen expired is not revived.
                    AND s.at_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                    AND s.at_us - v_now <= s.span_ms * 1000::bigint
                RETURNING h.n
        ) SELECT array_agg(e.n) INTO v_got FROM extended e;
        v_got := coalesce(v_got, '{}');
        RETURN QUERY SELECT t.n, 'extended', NULL::text, NULL::bigint, NULL::uuid, NULL::uuid, NULL::text, NULL::bigint,
            NULL::bigint, NULL::integer, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::integer, NULL::integer
            FROM unnest(v_got) AS t (n);
    END IF;
    IF cardinality(v_got) < v_count THEN
        FOR i IN SELECT g FROM generate_series(1, v_count) g EXCEPT SELECT unnest(v_got) ORDER BY 1 LOOP
            RETURN NEXT renew_one_1(i, sp, p_wait_ms IS NOT NULL, p_resource[i], p_lease_id[i], p_token[i], p_ttl_ms[i],
                p_delay_ms[i], p_seen_token[i], p_seen_seq[i]);
        END LOOP;
    END IF;
END $$;
