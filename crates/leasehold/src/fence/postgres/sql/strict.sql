-- Strict mode: the lease itself is checked in the committing transaction. Only where leases and data share this database.

-- The lease's row is held FOR KEY SHARE until the transaction ends: renewals pass, because they change no key, and the grant to a
-- successor waits, because with this index its token is one.
CREATE UNIQUE INDEX IF NOT EXISTS slot_fence ON %schema%.slot (namespace, resource, token);

-- Does the grant stand, at this moment, by the lease table? As fence_check, and not_held where it does not.
CREATE OR REPLACE FUNCTION %schema%.fence_strict_ask(
    p_namespace text, p_resource text, p_token bigint, p_lease_id uuid, p_holder text,
    OUT word text, OUT stored_token bigint, OUT stored_lease_id uuid, OUT stored_op_seq bigint, OUT stored_holder text, OUT max_token bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now bigint;
    v_mode text;
    v_end bigint;
    v_revoked boolean;
BEGIN
    IF p_resource IS NULL OR p_token IS NULL OR p_lease_id IS NULL THEN
        word := 'missing_token';
    ELSE
        SELECT s.at_us - (s.span_ms - s.ttl_ms) * 1000::bigint, s.revoked_by IS NOT NULL INTO v_end, v_revoked
            FROM %schema%.slot s WHERE s.namespace = p_namespace AND s.resource = p_resource
            AND s.token = p_token AND s.lease_id = p_lease_id FOR KEY SHARE;
        IF FOUND THEN
            -- Read after the lock was had.
            v_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
            SELECT p.mode INTO v_mode FROM %schema%.space p WHERE p.namespace = p_namespace;
            -- Where holders are observed, the server's clock ends nothing: the row stands until somebody takes it over.
            IF v_revoked OR (v_mode <> 'observed' AND v_end <= v_now) THEN
                word := 'not_held';
            ELSE
                word := 'admitted';
            END IF;
        ELSE
            SELECT s.token, s.lease_id, s.label INTO stored_token, stored_lease_id, stored_holder
                FROM %schema%.slot s WHERE s.namespace = p_namespace AND s.resource = p_resource;
            word := CASE WHEN stored_token > p_token THEN 'stale'
                WHEN stored_token = p_token AND stored_lease_id <> p_lease_id THEN 'collision'
                WHEN stored_token IS NULL THEN 'no_such_resource' ELSE 'not_held' END;
            stored_holder := coalesce(stored_holder, '');
        END IF;
    END IF;
    IF word <> 'admitted' THEN
        PERFORM nextval('%schema%.stale_write_rejected_total');
        RAISE LOG 'leasehold: a write was refused at the fence: reason=% namespace=% resource=% fencing_token=% lease_id=% holder=% stored_token=% stored_holder=%',
            word, p_namespace, quote_nullable(p_resource), p_token, p_lease_id, quote_nullable(p_holder), stored_token,
            quote_nullable(stored_holder);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION %schema%.fence_strict(
    resource text, token bigint, lease_id uuid, namespace text DEFAULT 'default', holder text DEFAULT ''
) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a record;
BEGIN
    SELECT * INTO a FROM %schema%.fence_strict_ask(namespace, resource, token, lease_id, holder);
    IF a.word <> 'admitted' THEN
        PERFORM %schema%.fence_refuse(a.word, resource, token, a.stored_token, a.stored_holder);
    END IF;
END
$$;
