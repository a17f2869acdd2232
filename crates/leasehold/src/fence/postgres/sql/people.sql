-- The functions for any language: they raise where a write does not count, so that the transaction cannot commit.
-- SQLSTATE LHF01 stale, LHF02 collision, LHF03 no such resource, LHF04 missing token, LHF05 token too high, LHF07 not held.

CREATE OR REPLACE FUNCTION %schema%.fence_decide(
    p_ask text, p_namespace text, p_resource text, p_token bigint, p_lease_id uuid, p_op_seq bigint, p_holder text
) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a record;
BEGIN
    SELECT * INTO a FROM %schema%.fence_ask(p_ask, p_namespace, p_resource, p_token, p_lease_id, p_op_seq, p_holder, 600000000);
    IF a.word <> 'admitted' THEN
        PERFORM %schema%.fence_refuse(a.word, p_resource, p_token, a.stored_token, a.stored_holder);
    END IF;
END
$$;

-- Does this transaction's write count? Call it first; what follows commits or not together with its answer.
CREATE OR REPLACE FUNCTION %schema%.fence_check(
    resource text, token bigint, lease_id uuid, op_seq bigint DEFAULT NULL, namespace text DEFAULT 'default', holder text DEFAULT ''
) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT %schema%.fence_decide('write', namespace, resource, token, lease_id, op_seq, holder)
$$;

-- The same, and seals a resource that the fence has never seen.
CREATE OR REPLACE FUNCTION %schema%.fence_enter(
    resource text, token bigint, lease_id uuid, op_seq bigint DEFAULT NULL, namespace text DEFAULT 'default', holder text DEFAULT ''
) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT %schema%.fence_decide('enter', namespace, resource, token, lease_id, op_seq, holder)
$$;

-- Shuts every older grant out. In a transaction of its own, before anything is read: in REPEATABLE READ and SERIALIZABLE what is
-- read afterwards would be older than what the seal has waited for.
CREATE OR REPLACE FUNCTION %schema%.fence_seal(
    resource text, token bigint, lease_id uuid, namespace text DEFAULT 'default', holder text DEFAULT ''
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a seal needs a transaction of its own, in READ COMMITTED' USING ERRCODE = 'LHF08',
            HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED; SELECT %schema%.fence_seal(...); COMMIT; and only then begin the transaction that reads';
    END IF;
    PERFORM %schema%.fence_decide('seal', namespace, resource, token, lease_id, NULL, holder);
END
$$;

-- What the fence remembers.
CREATE OR REPLACE FUNCTION %schema%.fence_show(p_resource text, p_namespace text DEFAULT 'default')
RETURNS TABLE (token bigint, lease_id uuid, op_seq bigint, holder text, touched_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.token, f.lease_id, f.op_seq, f.holder, f.touched_at FROM %schema%.fence f
        WHERE f.namespace = p_namespace AND f.resource = p_resource
$$;

-- How many writes were refused. After a crash of the server it may be up to 32 too high: sequences are logged ahead.
CREATE OR REPLACE FUNCTION %schema%.fence_refused() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM %schema%.stale_write_rejected_total
$$;

-- Raises the highest token by hand; never lowers it. What it is now.
CREATE OR REPLACE FUNCTION %schema%.fence_raise(resource text, token bigint, namespace text DEFAULT 'default', by text DEFAULT '')
RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO %schema%.fence AS f (namespace, resource, token, lease_id, op_seq, holder)
        VALUES (fence_raise.namespace, fence_raise.resource, fence_raise.token, NULL, NULL, fence_raise.by)
        ON CONFLICT ON CONSTRAINT fence_pkey DO UPDATE SET
            token = greatest(f.token, excluded.token),
            lease_id = CASE WHEN f.token >= excluded.token THEN f.lease_id END,
            op_seq = CASE WHEN f.token >= excluded.token THEN f.op_seq END,
            holder = CASE WHEN f.token >= excluded.token THEN f.holder ELSE excluded.holder END,
            touched_at = clock_timestamp()
        RETURNING f.token
$$;
