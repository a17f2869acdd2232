-- The namespace's part of every step: which server is this, and does it grant?

-- Begins a step that changes something. One expression, because each one costs a microsecond in every transaction.
CREATE FUNCTION %schema%.begin_1(p_wait_ms integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- A snapshot of the whole transaction would hide what another has committed while this one waited.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a transaction of Leasehold must be READ COMMITTED' USING ERRCODE = 'LH002';
    END IF;
    RETURN set_config('lock_timeout', p_wait_ms::text, true) IS NOT NULL
        -- What is answered must survive a crash. Stronger settings stay. The setting counts when the transaction commits.
        AND (current_setting('synchronous_commit') IN ('on', 'remote_apply')
            OR set_config('synchronous_commit', 'on', true) IS NOT NULL)
        -- A cancelled wait for the standby is told by a warning alone.
        AND (current_setting('client_min_messages') <> 'error'
            OR set_config('client_min_messages', 'warning', true) IS NOT NULL);
END $$;

-- Microseconds since 1970, now: never the start of the transaction.
CREATE FUNCTION %schema%.us_1() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;

-- How long a quarantine that begins now must last.
CREATE FUNCTION %schema%.longest_1(sp %schema%.space, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN p_now < sp.longest_until_us THEN greatest(sp.longest_ttl_ms, sp.max_ttl_ms) ELSE sp.max_ttl_ms END;
END $$;

-- Which server this is: changes when it may have forgotten what it acknowledged. (Functions in SQL that cannot be inlined are
-- planned anew in every statement; these are not.)
CREATE FUNCTION %schema%.incarnation_1() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '-' || (pg_control_system()).system_identifier;
END $$;

-- The namespace, made on first contact and put into quarantine when the server may have forgotten grants.
CREATE FUNCTION %schema%.space_1(p_ns text, p_mode text, p_told_ms bigint) RETURNS %schema%.space LANGUAGE plpgsql AS $$
DECLARE
    sp space;
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    v_inc text := incarnation_1();
    v_tries integer := 0;
BEGIN
    LOOP
        SELECT * INTO sp FROM space WHERE namespace = p_ns;
        IF FOUND AND sp.incarnation = v_inc
            -- More left than it can last: the clock was set back, and it begins anew.
            AND sp.quarantine_until_us - v_now <= longest_1(sp, v_now) * 1000
        THEN
            EXIT;
        END IF;
        IF FOUND THEN
            UPDATE space SET incarnation = v_inc, epoch = epoch + 1,
                quarantine_until_us = v_now + longest_1(space, v_now) * 1000
                WHERE namespace = p_ns AND incarnation = sp.incarnation AND epoch = sp.epoch;
        ELSE
            INSERT INTO space (namespace, mode, incarnation, max_ttl_ms, longest_ttl_ms, quarantine_until_us, settled)
                VALUES (p_ns, p_mode, v_inc, p_told_ms, p_told_ms, v_now + p_told_ms * 1000, false)
                ON CONFLICT DO NOTHING;
        END IF;
        v_tries := v_tries + 1;
        IF v_tries > 20 THEN
            RAISE EXCEPTION 'the namespace keeps changing' USING ERRCODE = '40001';
        END IF;
    END LOOP;
    IF sp.mode <> p_mode THEN
        RAISE EXCEPTION 'the namespace % is in mode %', p_ns, sp.mode USING ERRCODE = 'LH001', DETAIL = sp.mode;
    END IF;
    RETURN sp;
END $$;

-- `leasehold init`.
CREATE FUNCTION %schema%.prepare_1(p_ns text, p_mode text, p_default_ms bigint, p_fresh boolean, p_max_ttl_ms bigint)
    RETURNS TABLE (word text, max_ttl_ms bigint, left_us bigint, epoch integer)
    LANGUAGE plpgsql SET search_path = %schema%, pg_temp AS $$
#variable_conflict use_column
DECLARE
    sp space;
    v_known boolean;
    v_now bigint;
BEGIN
    v_known := begin_1(5000);
    v_known := NULL;
    SELECT s.settled INTO v_known FROM space s WHERE s.namespace = p_ns FOR UPDATE;
    IF p_fresh AND v_known THEN
        RETURN QUERY SELECT 'exists'::text, 0::bigint, 0::bigint, 0;
        RETURN;
    END IF;
    sp := space_1(p_ns, p_mode, coalesce(p_max_ttl_ms, p_default_ms));
    v_now := us_1();
    UPDATE space s SET
        settled = true,
        quarantine_until_us = CASE WHEN p_fresh THEN 0 ELSE s.quarantine_until_us END,
        longest_ttl_ms = CASE WHEN p_fresh THEN coalesce(p_max_ttl_ms, s.max_ttl_ms) ELSE longest_1(s, v_now) END,
        longest_until_us = CASE WHEN p_fresh OR p_max_ttl_ms IS NULL THEN s.longest_until_us
            ELSE v_now + longest_1(s, v_now) * 1000 END,
        max_ttl_ms = coalesce(p_max_ttl_ms, s.max_ttl_ms)
        WHERE s.namespace = p_ns
        RETURNING * INTO sp;
    RETURN QUERY SELECT CASE WHEN coalesce(v_known, false) THEN 'found' ELSE 'made' END, sp.max_ttl_ms,
        greatest(sp.quarantine_until_us - v_now, 0), sp.epoch;
END $$;
