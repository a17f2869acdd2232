-- Releases and revocations.

CREATE FUNCTION %schema%.release_one_1(
    p_n integer, sp %schema%.space, p_wait boolean, p_resource text, p_lease_id uuid, p_token bigint, p_succeeded boolean,
    p_seen_token bigint, p_seen_seq integer
) RETURNS %schema%.answer LANGUAGE plpgsql AS $$
DECLARE
    s slot;
    a answer;
    v_now bigint;
    v_lapsed boolean;
    v_mine boolean;
    v_left boolean;
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
        v_lapsed := lapsed_1(s, sp.mode = 'observed', v_now, p_seen_token, p_seen_seq);
        v_mine := coalesce(s.lease_id = p_lease_id AND (p_token IS NULL OR p_token = s.token), false) AND NOT v_lapsed;
        -- Nothing to end and no place to give up: nothing to lock either.
        IF v_pass = 1 AND NOT v_mine AND (p_token IS NOT NULL OR coalesce(s.waiting, 0) = 0) THEN
            RETURN gone_1(s, p_n, p_lease_id, p_token, v_now);
        END IF;
    END LOOP;
    v_left := p_token IS NULL AND s.waiting > 0 AND leave_1(sp.namespace, p_resource, p_lease_id);
    IF v_mine THEN
        IF p_succeeded THEN
            s.success_us := s.granted_us;
        END IF;
        PERFORM save_1(ended_1(s, 'released', v_now, v_now));
        IF s.waiting > 0 THEN
            PERFORM wake_head_1(sp.namespace, p_resource, v_now);
        END IF;
        a.word := 'ended';
        RETURN a;
    END IF;
    IF NOT v_left THEN
        RETURN gone_1(s, p_n, p_lease_id, p_token, v_now);
    END IF;
    -- The first in line may have gone: the next one must not wait for its re-check.
    IF s.lease_id IS NULL OR v_lapsed THEN
        PERFORM wake_head_1(sp.namespace, p_resource, v_now);
    END IF;
    a.word := 'left';
    RETURN a;
END $$;

-- Many releases, one answer each; at most one of a resource.
CREATE FUNCTION %schema%.release_1(
    p_ns text, p_mode text, p_told_ms bigint, p_wait_ms integer, p_resource text[], p_lease_id uuid[], p_token bigint[],
    p_succeeded boolean[], p_seen_token bigint[], p_seen_seq integer[]
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
        -- The commonest case in one statement: held, not revoked, nobody waits.
        UPDATE slot s SET end_lease_id = s.lease_id, end_token = s.token, end_us = v_now, end_how = 'released',
            end_by = s.label, end_note = NULL, success_us = CASE WHEN p_succeeded[1] THEN s.granted_us ELSE s.success_us END,
            at_us = v_now, lease_id = NULL, holder_id = NULL, label = NULL, wake = NULL, granted_us = NULL,
            ttl_ms = NULL, span_ms = NULL
            FROM space m
            WHERE m.namespace = p_ns AND m.mode = p_mode AND m.incarnation = incarnation_1()
                AND s.namespace = p_ns AND s.resource = p_resource[1] AND s.lease_id = p_lease_id[1] AND s.token = p_token[1]
                AND s.revoked_by IS NULL AND s.waiting = 0 AND s.at_us > v_now
                AND s.at_us - v_now <= s.span_ms * 1000::bigint;
        IF FOUND THEN
            a.n := 1; a.word := 'ended';
            RETURN NEXT a;
            RETURN;
        END IF;
    END IF;
    sp := space_1(p_ns, p_mode, p_told_ms);
    IF v_count > 2 AND sp.mode <> 'observed' THEN
        WITH held AS MATERIALIZED (
            SELECT r.n::integer AS n, s.resource, r.succeeded
                FROM unnest(p_resource, p_lease_id, p_token, p_succeeded) WITH ORDINALITY
                    AS r (resource, lease_id, token, succeeded, n)
                JOIN slot s ON s.namespace = p_ns AND s.resource = r.resource
                WHERE s.lease_id = r.lease_id AND s.token = r.token AND s.revoked_by IS NULL AND s.waiting = 0
                ORDER BY s.resource FOR NO KEY UPDATE OF s SKIP LOCKED
        ), ended AS (
            UPDATE slot s SET end_lease_id = s.lease_id, end_token = s.token, end_us = v_now, end_how = 'released',
                end_by = s.label, end_note = NULL, success_us = CASE WHEN h.succeeded THEN s.granted_us ELSE s.success_us END,
                at_us = v_now, lease_id = NULL, holder_id = NULL, label = NULL, wake = NULL, granted_us = NULL,
                ttl_ms = NULL, span_ms = NULL
                FROM held h WHERE s.namespace = p_ns AND s.resource = h.resource AND s.at_us > v_now
                    AND s.at_us - v_now <= s.span_ms * 1000::bigint
                RETURNING h.n
        ) SELECT array_agg(e.n) INTO v_got FROM ended e;
        v_got := coalesce(v_got, '{}');
        RETURN QUERY SELECT t.n, 'ended', NULL::text, NULL::bigint, NULL::uuid, NULL::uuid, NULL::text, NULL::bigint,
            NULL::bigint, NULL::integer, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::integer, NULL::integer
            FROM unnest(v_got) AS t (n);
    END IF;
    IF cardinality(v_got) < v_count THEN
        FOR i IN SELECT g FROM generate_series(1, v_count) g EXCEPT SELECT unnest(v_got) ORDER BY 1 LOOP
            RETURN NEXT release_one_1(i, sp, p_wait_ms IS NOT NULL, p_resource[i], p_lease_id[i], p_token[i], p_succeeded[i],
                p_seen_token[i], p_seen_seq[i]);
        END LOOP;
    END IF;
END $$;

-- An operator ends another's grant.
CREATE FUNCTION %schema%.revoke_1(
    p_ns text, p_mode text, p_told_ms bigint, p_wait_ms integer, p_resource text, p_token bigint, p_by text, p_note text,
    p_now boolean, p_seen_token bigint, p_seen_seq integer
) RETURNS SETOF %schema%.answer LANGUAGE plpgsql SET search_path = %schema%, pg_temp AS $$
DECLARE
    sp space;
    s slot;
    a answer;
    v_now bigint;
BEGIN
    IF begin_1(p_wait_ms) THEN
        sp := space_1(p_ns, p_mode, p_told_ms);
    END IF;
    SELECT * INTO s FROM slot WHERE namespace = p_ns AND resource = p_resource FOR NO KEY UPDATE;
    v_now := us_1();
    IF lapsed_1(s, sp.mode = 'observed', v_now, p_seen_token, p_seen_seq) THEN
        s := ended_1(s, 'expired', v_now, free_since_1(s, sp.mode = 'observed', v_now));
        PERFORM save_1(s);
    END IF;
    IF s.lease_id IS NULL THEN
        RETURN NEXT end_1(s, 1, 'nobody');
        RETURN;
    ELSIF s.token <> p_token THEN
        RETURN NEXT record_1(s, 1, 'other', v_now);
        RETURN;
    END IF;
    s.revoked_by := p_by;
    s.revoked_note := p_note;
    a := record_1(s, 1, 'revoked', v_now);
    -- The holder is woken in both cases: it should stop now, not at its next renewal.
    PERFORM wake_1(s.wake, s.lease_id);
    IF p_now THEN
        s := ended_1(s, 'revoked', v_now, v_now);
    END IF;
    PERFORM save_1(s);
    IF p_now AND s.waiting > 0 THEN
        PERFORM wake_head_1(p_ns, p_resource, v_now);
    END IF;
    RETURN NEXT a;
END $$;

-- Ends a grant whose session has ended, where sessions are what makes a holder (mode advisory). The holder's session keeps a lock
-- on a number that belongs to this grant alone; whoever can have it here, in another session, has the proof.
CREATE FUNCTION %schema%.bury_1(
    p_ns text, p_mode text, p_told_ms bigint, p_resource text, p_lease_id uuid, p_token bigint, p_key bigint
) RETURNS boolean LANGUAGE plpgsql SET search_path = %schema%, pg_temp AS $$
DECLARE
    sp space;
    s slot;
    v_now bigint;
BEGIN
    IF NOT begin_1(1000) OR p_mode <> 'advisory' THEN
        RETURN false;
    END IF;
    sp := space_1(p_ns, p_mode, p_told_ms);
    SELECT * INTO s FROM slot WHERE namespace = p_ns AND resource = p_resource FOR UPDATE;
    IF s.lease_id IS DISTINCT FROM p_lease_id OR s.token IS DISTINCT FROM p_token OR NOT pg_try_advisory_xact_lock(p_key) THEN
        RETURN false;
    END IF;
    v_now := us_1();
    PERFORM save_1(ended_1(s, 'expired', v_now, v_now));
    IF s.waiting > 0 THEN
        PERFORM wake_head_1(p_ns, p_resource, v_now);
    END IF;
    RETURN true;
END $$;
