-- Claims.

CREATE TYPE %schema%.claim_1 AS (
    resource text, lease_id uuid, holder_id uuid, label text, ttl_ms bigint, delay_ms bigint, floor bigint, queue boolean,
    once_us bigint, seen_token bigint, seen_seq integer
);

-- One claim: looks without a lock first, because who finds the resource held has nothing to write and must not stand in the
-- way of the holder's renewals; then the same again with the row locked.
CREATE FUNCTION %schema%.acquire_one_1(
    p_n integer, sp %schema%.space, p_quarantine_us bigint, p_wake bigint, p_wait boolean, c %schema%.claim_1
) RETURNS %schema%.answer LANGUAGE plpgsql AS $$
DECLARE
    s slot;
    a answer;
    q queue;
    v_now bigint;
    v_locked boolean := false;
    v_exists boolean := false;
    v_mine boolean;
    v_left bigint;
    v_free bigint;
    v_last bigint;
    v_limit bigint;
    v_tries integer := 0;
BEGIN
    a.n := p_n;
    LOOP
        v_tries := v_tries + 1;
        IF v_tries > 8 THEN
            RAISE EXCEPTION 'the row of a resource keeps coming and going' USING ERRCODE = '40001';
        END IF;
        IF NOT v_locked THEN
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = c.resource;
        ELSIF p_wait THEN
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = c.resource FOR UPDATE;
        ELSE
            SELECT * INTO s FROM slot WHERE namespace = sp.namespace AND resource = c.resource FOR UPDATE SKIP LOCKED;
        END IF;
        IF v_locked AND v_exists AND NOT FOUND AND NOT p_wait THEN
            -- It was there a moment ago.
            a.word := 'skipped';
            RETURN a;
        END IF;
        v_exists := FOUND;
        IF NOT v_exists THEN
            s.namespace := sp.namespace; s.resource := c.resource; s.at_us := 0; s.waiting := 0; s.seq := 0;
        END IF;
        -- Read after the lock was had: a wait before it must not shorten the grant.
        v_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

        IF lapsed_1(s, sp.mode = 'observed', v_now, c.seen_token, c.seen_seq) THEN
            -- Written down by whoever finds it, also where the answer is not a grant: others may not have seen what this client
            -- has, and the history says when it was found.
            IF NOT v_locked THEN
                v_locked := true;
                CONTINUE;
            END IF;
            s := ended_1(s, 'expired', v_now, free_since_1(s, sp.mode = 'observed', v_now));
            PERFORM save_1(s);
        ELSIF s.lease_id = c.lease_id AND s.revoked_by IS NULL THEN
            IF p_quarantine_us > 0 THEN
                -- What was forgotten may be that this grant ended and another followed: its holder renews, whoever only asks waits.
                a.word := 'quarantined'; a.left_us := p_quarantine_us; a.seq := sp.epoch; a.span_ms := longest_1(sp, v_now);
                RETURN a;
            END IF;
            -- A repeated claim: the same grant, its TTL running anew.
            IF NOT v_locked THEN
                v_locked := true;
                CONTINUE;
            END IF;
            UPDATE slot SET ttl_ms = greatest(slot.ttl_ms, c.ttl_ms),
                span_ms = greatest(slot.span_ms, c.ttl_ms + c.delay_ms),
                at_us = greatest(slot.at_us, v_now + (c.ttl_ms + c.delay_ms) * 1000), seq = slot.seq + 1, wake = p_wake
                WHERE namespace = sp.namespace AND resource = c.resource;
            a.word := 'adopted'; a.token := s.token; a.at_us := s.granted_us;
            RETURN a;
        END IF;

        IF s.end_lease_id = c.lease_id THEN
            RETURN end_1(s, p_n, 'spent');
        END IF;

        IF c.once_us - abs(v_now - s.success_us) > 0 THEN
            IF s.waiting > 0 THEN
                IF NOT v_locked THEN
                    v_locked := true;
                    CONTINUE;
                END IF;
                PERFORM leave_1(sp.namespace, c.resource, c.lease_id);
                IF s.lease_id IS NULL THEN
                    PERFORM wake_head_1(sp.namespace, c.resource, v_now);
                END IF;
            END IF;
            a.word := 'done'; a.at_us := s.success_us; a.left_us := c.once_us - abs(v_now - s.success_us);
            RETURN a;
        END IF;

        IF s.lease_id IS NOT NULL THEN
            a := record_1(s, p_n, 'busy', v_now);
            -- A claim whose own grant was revoked waits for nothing.
            IF c.queue AND s.lease_id <> c.lease_id THEN
                a.place := enter_1(sp.namespace, c.resource, c.lease_id, c.label, p_wake, v_now, v_locked);
                IF a.place IS NULL THEN
                    v_locked := true;
                    CONTINUE;
                END IF;
            END IF;
            RETURN a;
        END IF;

        IF p_quarantine_us > 0 THEN
            IF c.queue THEN
                IF v_locked AND NOT v_exists THEN
                    -- A row for the queue to hang on. Whoever made one meanwhile is looked at first.
                    INSERT INTO slot (namespace, resource, at_us) VALUES (sp.namespace, c.resource, 0) ON CONFLICT DO NOTHING;
                    CONTINUE;
                END IF;
                a.place := CASE WHEN v_exists
                    THEN enter_1(sp.namespace, c.resource, c.lease_id, c.label, p_wake, v_now, v_locked) END;
                IF a.place IS NULL THEN
                    v_locked := true;
                    CONTINUE;
                END IF;
            END IF;
            a.word := 'quarantined'; a.left_us := p_quarantine_us; a.seq := sp.epoch; a.span_ms := longest_1(sp, v_now);
            RETURN a;
        END IF;

        IF s.waiting > 0 THEN
            IF v_locked THEN
                q := head_1(sp.namespace, c.resource, v_now);
            ELSE
                SELECT * INTO q FROM queue WHERE namespace = sp.namespace AND resource = c.resource
                    AND abs(v_now - refreshed_us) < 45000000 ORDER BY seq LIMIT 1;
            END IF;
            IF q.lease_id <> c.lease_id THEN
                -- A quarantine that has ended freed it then; a clock that was set back must not reserve it for ever.
                v_free := abs(v_now - greatest(s.at_us, least(abs(sp.quarantine_until_us), v_now)));
                v_left := greatest(500000 - v_free, 0);
                v_mine := place_1(sp.namespace, c.resource, c.lease_id) IS NOT NULL;
                IF NOT ((v_mine AND v_left = 0) OR v_free >= 3000000) THEN
                    IF c.queue THEN
                        a.place := enter_1(sp.namespace, c.resource, c.lease_id, c.label, p_wake, v_now, v_locked);
                        IF a.place IS NULL THEN
                            v_locked := true;
                            CONTINUE;
                        END IF;
                        a.ahead := a.place;
                    ELSE
                        a.ahead := (SELECT count(*) FROM queue WHERE namespace = sp.namespace AND resource = c.resource);
                    END IF;
                    a.word := 'queued'; a.left_us := v_left;
                    RETURN a;
                END IF;
            END IF;
        END IF;

        -- The grant. A resource that was forgotten goes on above the highest token of those that were.
        v_last := coalesce(s.token, (SELECT token_floor FROM space WHERE namespace = sp.namespace), 0);
        v_limit := greatest(v_last, v_now) + 600000000;
        IF c.floor > v_limit THEN
            a.word := 'wild'; a.token := v_limit;
            RETURN a;
        END IF;
        v_last := greatest(v_last + 1, coalesce(c.floor, 0) + 1, least(v_now, 9007199254740991));
        IF v_last > 9007199254740991 THEN
            a.word := 'exhausted';
            RETURN a;
        END IF;
        IF NOT v_locked THEN
            v_locked := true;
            CONTINUE;
        END IF;
        IF s.waiting > 0 THEN
            PERFORM leave_1(sp.namespace, c.resource, c.lease_id);
        END IF;
        IF NOT v_exists THEN
            -- Whole at once: rows that grow later would not find room on their page.
            INSERT INTO slot (namespace, resource, token, at_us, granted_us, wake, ttl_ms, span_ms, lease_id, holder_id, label)
                VALUES (sp.namespace, c.resource, v_last, v_now + (c.ttl_ms + c.delay_ms) * 1000, v_now, p_wake, c.ttl_ms,
                    c.ttl_ms + c.delay_ms, c.lease_id, c.holder_id, c.label)
                ON CONFLICT DO NOTHING;
            IF FOUND THEN
                a.word := 'granted'; a.token := v_last; a.at_us := v_now;
                RETURN a;
            END IF;
            -- Another was first: look at what it made.
            v_locked := false;
            CONTINUE;
        END IF;
        UPDATE slot SET token = v_last, at_us = v_now + (c.ttl_ms + c.delay_ms) * 1000, granted_us = v_now, wake = p_wake,
            seq = 0, ttl_ms = c.ttl_ms, span_ms = c.ttl_ms + c.delay_ms, lease_id = c.lease_id, holder_id = c.holder_id,
            label = c.label, revoked_by = NULL, revoked_note = NULL
            WHERE namespace = sp.namespace AND resource = c.resource;
        -- How the grant before ended is read from the row: whoever found that it had lapsed may have been told to wait.
        a.word := CASE WHEN s.end_how = 'expired' THEN 'lapsed' ELSE 'granted' END; a.token := v_last; a.at_us := v_now;
        RETURN a;
    END LOOP;
END $$;

-- Many claims, one answer each; at most one of a resource, sorted by it. p_wait_ms NULL: a row that another transaction has
-- locked is answered 'skipped'. p_sole: nothing else happens in this transaction.
CREATE FUNCTION %schema%.acquire_1(
    p_ns text, p_mode text, p_told_ms bigint, p_default_ms bigint, p_wake bigint, p_wait_ms integer, p_sole boolean,
    p_seen_epoch integer, p_resource text[], p_lease_id uuid[], p_holder_id uuid[], p_label text[], p_ttl_ms bigint[],
    p_delay_ms bigint[], p_floor bigint[], p_queue boolean[], p_once_us bigint[], p_seen_token bigint[],
    p_seen_seq integer[]
) RETURNS SETOF %schema%.answer LANGUAGE plpgsql
    SET search_path = %schema%, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    sp space;
    a answer;
    v_now bigint;
    v_left bigint;
    v_got integer[] := '{}';
    v_tokens bigint[];
    v_words text[];
    i integer;
    v_count integer := cardinality(p_resource);
    v_durable boolean := false;
    c claim_1;
BEGIN
    IF begin_1(coalesce(p_wait_ms, 100)) THEN
        v_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    END IF;
    IF v_count = 1 AND p_mode <> 'observed' AND p_once_us[1] IS NULL THEN
        -- The commonest case in one statement: released, nobody waits, nothing to compare with.
        UPDATE slot s SET token = greatest(s.token + 1, v_now), at_us = v_now + (p_ttl_ms[1] + p_delay_ms[1]) * 1000,
            granted_us = v_now, wake = p_wake, seq = 0, ttl_ms = p_ttl_ms[1], span_ms = p_ttl_ms[1] + p_delay_ms[1],
            lease_id = p_lease_id[1], holder_id = p_holder_id[1], label = p_label[1]
            FROM space m
            WHERE m.namespace = p_ns AND m.mode = p_mode AND m.incarnation = incarnation_1() AND m.settled
                AND m.quarantine_until_us <= v_now AND p_ttl_ms[1] <= m.max_ttl_ms
                AND coalesce(p_told_ms, least(m.max_ttl_ms, p_default_ms)) = m.max_ttl_ms
                AND s.namespace = p_ns AND s.resource = p_resource[1] AND s.lease_id IS NULL AND s.waiting = 0
                AND s.token < 9007199254740990 AND coalesce(p_floor[1], 0) <= s.token
                AND s.end_lease_id IS DISTINCT FROM p_lease_id[1]
            RETURNING s.token, CASE WHEN s.end_how = 'expired' THEN 'lapsed' ELSE 'granted' END INTO a.token, a.word;
        IF FOUND THEN
            a.n := 1; a.at_us := v_now;
            v_left := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - v_now;
            IF v_left > 5000 THEN
                -- It waited for the row: the TTL runs from when it had it.
                UPDATE slot SET at_us = at_us + v_left WHERE namespace = p_ns AND resource = p_resource[1];
            END IF;
            RETURN NEXT a;
            RETURN;
        END IF;
    END IF;
    sp := space_1(p_ns, p_mode, coalesce(p_told_ms, p_default_ms));
    IF sp.quarantine_until_us > 0 AND sp.mode = 'observed' AND sp.epoch = p_seen_epoch THEN
        -- The asker has itself seen this quarantine for longer than any grant lasts.
        sp.quarantine_until_us := -v_now;
        UPDATE space SET quarantine_until_us = -v_now WHERE namespace = p_ns AND epoch = p_seen_epoch;
    END IF;
    v_left := greatest(CASE WHEN sp.mode = 'observed' THEN sp.quarantine_until_us ELSE sp.quarantine_until_us - v_now END, 0);
    v_left := least(v_left, longest_1(sp, v_now) * 1000);
    IF coalesce(p_told_ms, least(sp.max_ttl_ms, p_default_ms)) <> sp.max_ttl_ms THEN
        FOR i IN 1 .. v_count LOOP
            a.n := i; a.word := 'disagree'; a.ttl_ms := sp.max_ttl_ms;
            RETURN NEXT a;
        END LOOP;
        RETURN;
    END IF;

    -- The common case, all at once: released, nobody waits, nothing to compare with.
    IF v_count > 2 AND v_left = 0 AND sp.mode <> 'observed' AND sp.settled THEN
        WITH free AS MATERIALIZED (
            SELECT r.n::integer AS n, s.resource, r.lease_id, r.holder_id, r.label, r.ttl_ms, r.ttl_ms + r.delay_ms AS span_ms
                FROM unnest(p_resource, p_lease_id, p_holder_id, p_label, p_ttl_ms, p_delay_ms, p_floor, p_once_us)
                    WITH ORDINALITY AS r (resource, lease_id, holder_id, label, ttl_ms, delay_ms, floor, once_us, n)
                JOIN slot s ON s.namespace = p_ns AND s.resource = r.resource
                WHERE s.lease_id IS NULL AND s.waiting = 0 AND r.once_us IS NULL
                    AND s.end_lease_id IS DISTINCT FROM r.lease_id AND r.ttl_ms <= sp.max_ttl_ms
                    AND coalesce(r.floor, 0) <= s.token AND s.token < 9007199254740990
                ORDER BY s.resource FOR UPDATE OF s SKIP LOCKED
        ), taken AS (
            UPDATE slot s SET token = greatest(s.token + 1, v_now), at_us = v_now + f.span_ms * 1000,
                granted_us = v_now, wake = p_wake, seq = 0, ttl_ms = f.ttl_ms, span_ms = f.span_ms,
                lease_id = f.lease_id, holder_id = f.holder_id, label = f.label
                FROM free f WHERE s.namespace = p_ns AND s.resource = f.resource
                RETURNING f.n, s.token, CASE WHEN s.end_how = 'expired' THEN 'lapsed' ELSE 'granted' END AS word
        ) SELECT array_agg(t.n), array_agg(t.token), array_agg(t.word) INTO v_got, v_tokens, v_words FROM taken t;
        v_got := coalesce(v_got, '{}');
        v_durable := v_got <> '{}';
        RETURN QUERY SELECT t.n, t.word, NULL::text, t.token, NULL::uuid, NULL::uuid, NULL::text, NULL::bigint, NULL::bigint,
            NULL::integer, v_now, NULL::bigint, NULL::text, NULL::text, NULL::integer, NULL::integer
            FROM unnest(v_got, v_tokens, v_words) AS t (n, token, word);
    END IF;

    IF cardinality(v_got) < v_count THEN
        FOR i IN SELECT g FROM generate_series(1, v_count) g EXCEPT SELECT unnest(v_got) ORDER BY 1 LOOP
            IF p_ttl_ms[i] > sp.max_ttl_ms THEN
                a := NULL; a.n := i; a.word := 'ttl'; a.ttl_ms := sp.max_ttl_ms;
                RETURN NEXT a;
                CONTINUE;
            END IF;
            c := (p_resource[i], p_lease_id[i], p_holder_id[i], p_label[i], p_ttl_ms[i], p_delay_ms[i], p_floor[i], p_queue[i],
                p_once_us[i], p_seen_token[i], p_seen_seq[i]);
            a := acquire_one_1(i, sp, v_left, p_wake, p_wait_ms IS NOT NULL, c);
            v_durable := v_durable OR a.word IN ('granted', 'lapsed', 'adopted');
            RETURN NEXT a;
        END LOOP;
    END IF;
    IF v_durable AND NOT sp.settled THEN
        UPDATE space SET settled = true WHERE namespace = p_ns AND NOT settled;
    ELSIF p_sole AND NOT v_durable AND sp.settled AND v_left = 0 THEN
        -- A place in the queue is a hint; losing it in a crash loses an order, not a promise.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$;
