-- What a slot says, shared by the steps. Rows are passed by value; nothing here writes but sweep, head and enter.

-- Whether the grant has ended by itself. Where the server's clock decides, it decides; where it does not (observed expiry, or
-- more time left than the grant can have, because the clock was set back), the asker must have seen the same grant and
-- renewal for longer than it lasts.
CREATE FUNCTION %schema%.lapsed_1(s %schema%.slot, p_observed boolean, p_now bigint, p_seen_token bigint, p_seen_seq integer)
    RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF s.lease_id IS NULL THEN
        RETURN false;
    ELSIF p_observed OR s.at_us - p_now > s.span_ms * 1000::bigint THEN
        RETURN coalesce(s.token = p_seen_token AND s.seq = p_seen_seq, false);
    END IF;
    RETURN p_now >= s.at_us;
END $$;

-- Since when a slot whose grant has lapsed is free, which is when the first in line begins to be waited for. The asker's own
-- watching ends a grant when it ends it, and nobody could have come for it before; the server's clock ends it by itself.
CREATE FUNCTION %schema%.free_since_1(s %schema%.slot, p_observed boolean, p_now bigint)
    RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_observed THEN p_now ELSE least(s.at_us, p_now) END
$$;

-- The slot after its grant has ended at p_now in the way told.
CREATE FUNCTION %schema%.ended_1(s %schema%.slot, p_how text, p_now bigint, p_free_us bigint)
    RETURNS %schema%.slot LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    s.end_lease_id := s.lease_id;
    s.end_token := s.token;
    s.end_us := p_now;
    IF s.revoked_by IS NOT NULL THEN
        s.end_how := 'revoked';
        s.end_by := s.revoked_by;
        s.end_note := s.revoked_note;
    ELSE
        s.end_how := p_how;
        s.end_by := s.label;
        s.end_note := NULL;
    END IF;
    s.lease_id := NULL;
    s.holder_id := NULL;
    s.label := NULL;
    s.wake := NULL;
    s.revoked_by := NULL;
    s.revoked_note := NULL;
    s.granted_us := NULL;
    s.ttl_ms := NULL;
    s.span_ms := NULL;
    s.at_us := p_free_us;
    RETURN s;
END $$;

-- Writes everything but the waiting count.
CREATE FUNCTION %schema%.save_1(s %schema%.slot) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE slot SET token = s.token, at_us = s.at_us, granted_us = s.granted_us, success_us = s.success_us, wake = s.wake,
        seq = s.seq, ttl_ms = s.ttl_ms, span_ms = s.span_ms, lease_id = s.lease_id, holder_id = s.holder_id,
        label = s.label, revoked_by = s.revoked_by, revoked_note = s.revoked_note, end_token = s.end_token,
        end_us = s.end_us, end_lease_id = s.end_lease_id, end_how = s.end_how, end_by = s.end_by, end_note = s.end_note
        WHERE namespace = s.namespace AND resource = s.resource;
END $$;

-- The record of a held slot.
CREATE FUNCTION %schema%.record_1(s %schema%.slot, p_n integer, p_word text, p_now bigint)
    RETURNS %schema%.answer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a answer;
BEGIN
    a.n := p_n; a.word := p_word; a.token := s.token; a.lease_id := s.lease_id; a.holder_id := s.holder_id;
    a.label := s.label; a.ttl_ms := s.ttl_ms; a.span_ms := s.span_ms; a.seq := s.seq; a.at_us := s.granted_us;
    a.left_us := greatest(s.at_us - p_now, 0); a.revoked_by := s.revoked_by; a.note := s.revoked_note;
    RETURN a;
END $$;

-- How the previous grant ended.
CREATE FUNCTION %schema%.end_1(s %schema%.slot, p_n integer, p_word text) RETURNS %schema%.answer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a answer;
BEGIN
    a.n := p_n; a.word := p_word; a.how := s.end_how; a.token := s.end_token; a.lease_id := s.end_lease_id;
    a.label := s.end_by; a.note := s.end_note; a.at_us := s.end_us;
    RETURN a;
END $$;

-- What became of a grant that does not stand any more.
CREATE FUNCTION %schema%.gone_1(s %schema%.slot, p_n integer, p_lease_id uuid, p_token bigint, p_now bigint)
    RETURNS %schema%.answer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a answer;
BEGIN
    a.n := p_n; a.word := 'gone';
    IF s.lease_id IS NOT NULL THEN
        IF s.lease_id = p_lease_id AND (p_token IS NULL OR p_token = s.token) THEN
            IF s.revoked_by IS NULL THEN
                a.how := 'expired';
            ELSE
                a.how := 'revoked'; a.revoked_by := s.revoked_by; a.note := s.revoked_note;
                a.left_us := greatest(s.at_us - p_now, 0);
            END IF;
            RETURN a;
        ELSIF p_token < s.token THEN
            a.how := 'superseded'; a.token := s.token;
            RETURN a;
        END IF;
    END IF;
    IF s.end_lease_id = p_lease_id AND (p_token IS NULL OR p_token = s.end_token) THEN
        a.how := s.end_how; a.revoked_by := s.end_by; a.note := s.end_note; a.left_us := 0;
    ELSIF p_token < s.token THEN
        a.how := 'superseded'; a.token := s.token;
    ELSE
        a.how := 'absent';
    END IF;
    RETURN a;
END $$;

-- Wakes one claim or holder, when this transaction has committed.
CREATE FUNCTION %schema%.wake_1(p_wake bigint, p_lease_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_wake IS NOT NULL THEN
        PERFORM pg_notify('leasehold_' || p_wake, p_lease_id::text);
    END IF;
END $$;

-- The first in line who is alive, removing the dead in front of it. The slot is locked.
CREATE FUNCTION %schema%.head_1(p_ns text, p_resource text, p_now bigint) RETURNS %schema%.queue LANGUAGE plpgsql AS $$
DECLARE
    q queue;
BEGIN
    LOOP
        SELECT * INTO q FROM queue WHERE namespace = p_ns AND resource = p_resource ORDER BY seq LIMIT 1;
        IF NOT FOUND THEN
            UPDATE slot SET waiting = 0 WHERE namespace = p_ns AND resource = p_resource AND waiting <> 0;
            RETURN NULL;
        END IF;
        -- 45 s, whichever way the clock went.
        EXIT WHEN abs(p_now - q.refreshed_us) < 45000000;
        DELETE FROM queue WHERE namespace = p_ns AND resource = p_resource AND seq = q.seq;
        UPDATE slot SET waiting = greatest(waiting - 1, 0) WHERE namespace = p_ns AND resource = p_resource;
    END LOOP;
    RETURN q;
END $$;

-- Wakes the first in line of a free slot.
CREATE FUNCTION %schema%.wake_head_1(p_ns text, p_resource text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue := head_1(p_ns, p_resource, p_now);
BEGIN
    IF q.lease_id IS NOT NULL THEN
        PERFORM wake_1(q.wake, q.lease_id);
    END IF;
END $$;

-- How many places are in front of this claim's; NULL when it has none.
CREATE FUNCTION %schema%.place_1(p_ns text, p_resource text, p_lease_id uuid) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_seq bigint;
BEGIN
    SELECT seq INTO v_seq FROM queue WHERE namespace = p_ns AND resource = p_resource AND lease_id = p_lease_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT count(*) FROM queue WHERE namespace = p_ns AND resource = p_resource AND seq < v_seq);
END $$;

-- Gives up the place of a claim. The slot is locked.
CREATE FUNCTION %schema%.leave_1(p_ns text, p_resource text, p_lease_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM queue WHERE namespace = p_ns AND resource = p_resource AND lease_id = p_lease_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE slot SET waiting = greatest(waiting - 1, 0) WHERE namespace = p_ns AND resource = p_resource;
    RETURN true;
END $$;

-- Leaves or refreshes a place. NULL: there is none yet, and the slot must be locked to make one.
CREATE FUNCTION %schema%.enter_1(p_ns text, p_resource text, p_lease_id uuid, p_label text, p_wake bigint, p_now bigint, p_locked boolean)
    RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    q queue;
BEGIN
    SELECT * INTO q FROM queue WHERE namespace = p_ns AND resource = p_resource AND lease_id = p_lease_id;
    IF NOT FOUND THEN
        IF NOT p_locked THEN
            RETURN NULL;
        END IF;
        INSERT INTO queue (namespace, resource, lease_id, label, joined_us, refreshed_us, wake)
            VALUES (p_ns, p_resource, p_lease_id, p_label, p_now, p_now, p_wake);
        UPDATE slot SET waiting = waiting + 1 WHERE namespace = p_ns AND resource = p_resource;
    -- A waiter at the front asks every second; a ninth of an entry's life is soon enough to write that down.
    ELSIF abs(p_now - q.refreshed_us) >= 5000000 OR q.wake IS DISTINCT FROM p_wake THEN
        UPDATE queue SET refreshed_us = p_now, wake = p_wake
            WHERE namespace = p_ns AND resource = p_resource AND lease_id = p_lease_id;
        IF NOT FOUND AND NOT p_locked THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN place_1(p_ns, p_resource, p_lease_id);
END $$;
