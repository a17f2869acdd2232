-- The rule, in the caller's own transaction. p_ask is seal, write or enter; the answer is a word and what the fence remembers.
-- Raises nothing for a refusal: the functions for people do that.
CREATE OR REPLACE FUNCTION %schema%.fence_ask(
    p_ask text, p_namespace text, p_resource text, p_token bigint, p_lease_id uuid, p_op_seq bigint, p_holder text, p_lead_us bigint,
    OUT word text, OUT stored_token bigint, OUT stored_lease_id uuid, OUT stored_op_seq bigint, OUT stored_holder text, OUT max_token bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_seq bigint := CASE WHEN p_ask = 'seal' THEN NULL ELSE p_op_seq END;
BEGIN
    IF p_ask IS NULL OR p_ask NOT IN ('seal', 'write', 'enter') OR p_namespace IS NULL OR p_holder IS NULL THEN
        RAISE EXCEPTION 'fence_ask: ask is seal, write or enter, and namespace and holder are not NULL' USING ERRCODE = '22023';
    END IF;
    IF p_resource IS NULL OR p_token IS NULL OR p_lease_id IS NULL THEN
        word := 'missing_token';
    ELSIF p_lead_us IS NOT NULL THEN
        max_token := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + p_lead_us;
        IF p_token > max_token THEN
            word := 'token_too_high';
        END IF;
    END IF;

    -- More than one turn only where another transaction changes the row in between.
    FOR turn IN 1 .. 16 LOOP
        EXIT WHEN word IS NOT NULL;
        IF v_seq IS NULL THEN
            -- The common case, and the lightest lock: others of the same grant pass, a later grant's seal waits for our commit.
            PERFORM FROM %schema%.fence f WHERE f.namespace = p_namespace AND f.resource = p_resource
                AND f.token = p_token AND f.lease_id = p_lease_id FOR KEY SHARE;
            IF FOUND THEN
                word := 'admitted';
                EXIT;
            END IF;
        END IF;

        -- A look without a lock: what is stale now stays stale, and waits for nobody.
        SELECT f.token, f.lease_id, f.op_seq, f.holder INTO stored_token, stored_lease_id, stored_op_seq, stored_holder
            FROM %schema%.fence f WHERE f.namespace = p_namespace AND f.resource = p_resource;
        IF NOT FOUND THEN
            IF p_ask = 'write' THEN
                word := 'no_such_resource';
                EXIT;
            END IF;
            INSERT INTO %schema%.fence (namespace, resource, token, lease_id, op_seq, holder)
                VALUES (p_namespace, p_resource, p_token, p_lease_id, v_seq, p_holder) ON CONFLICT DO NOTHING;
        ELSIF stored_token > p_token THEN
            word := 'stale';
            EXIT;
        ELSIF stored_token < p_token THEN
            UPDATE %schema%.fence f SET token = p_token, lease_id = p_lease_id, op_seq = v_seq, holder = p_holder,
                touched_at = clock_timestamp()
                WHERE f.namespace = p_namespace AND f.resource = p_resource AND f.token < p_token;
        ELSIF stored_lease_id IS NULL THEN
            -- Raised by hand: a token has one grant, and here it is.
            UPDATE %schema%.fence f SET lease_id = p_lease_id, op_seq = v_seq, holder = p_holder, touched_at = clock_timestamp()
                WHERE f.namespace = p_namespace AND f.resource = p_resource AND f.token = p_token AND f.lease_id IS NULL;
        ELSIF stored_lease_id <> p_lease_id THEN
            word := 'collision';
            EXIT;
        ELSIF v_seq IS NULL THEN
            -- It has become ours between the two looks.
            CONTINUE;
        ELSIF stored_op_seq >= v_seq THEN
            word := 'stale';
            EXIT;
        ELSE
            UPDATE %schema%.fence f SET op_seq = v_seq, touched_at = clock_timestamp()
                WHERE f.namespace = p_namespace AND f.resource = p_resource AND f.token = p_token AND f.lease_id = p_lease_id
                AND (f.op_seq IS NULL OR f.op_seq < v_seq);
        END IF;
        IF FOUND THEN
            word := 'admitted';
        END IF;
    END LOOP;
    IF word IS NULL THEN
        RAISE EXCEPTION 'the row of % at the fence keeps changing', p_resource USING ERRCODE = '40001';
    END IF;
    IF word <> 'admitted' THEN
        PERFORM nextval('%schema%.stale_write_rejected_total');
        RAISE LOG 'leasehold: a write was refused at the fence: reason=% namespace=% resource=% fencing_token=% lease_id=% op_seq=% holder=% stored_token=% stored_holder=%',
            word, p_namespace, quote_nullable(p_resource), p_token, p_lease_id, p_op_seq, quote_nullable(p_holder), stored_token,
            quote_nullable(stored_holder);
    END IF;
END
$$;

-- Ends the transaction's hopes: after this it can only be rolled back.
CREATE OR REPLACE FUNCTION %schema%.fence_refuse(
    p_word text, p_resource text, p_token bigint, p_stored_token bigint, p_stored_holder text
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the write to % under fencing token % does not count: %', p_resource, coalesce(p_token::text, '(none)'),
        CASE p_word
            WHEN 'stale' THEN format('a later write was admitted, under fencing token %s of %s', p_stored_token,
                coalesce(nullif(p_stored_holder, ''), 'another'))
            WHEN 'collision' THEN format('fencing token %s belongs to another grant', p_stored_token)
            WHEN 'no_such_resource' THEN 'the fence has never seen this resource'
            WHEN 'missing_token' THEN 'the write shows no fencing token'
            WHEN 'not_held' THEN 'the lease has ended'
            ELSE 'the fencing token is further ahead than any engine could have granted'
        END
        USING ERRCODE = CASE p_word WHEN 'stale' THEN 'LHF01' WHEN 'collision' THEN 'LHF02' WHEN 'no_such_resource' THEN 'LHF03'
                WHEN 'missing_token' THEN 'LHF04' WHEN 'not_held' THEN 'LHF07' ELSE 'LHF05' END,
            DETAIL = format('reason=%s resource=%s fencing_token=%s stored_token=%s', p_word, quote_nullable(p_resource), p_token,
                p_stored_token),
            HINT = CASE p_word WHEN 'no_such_resource' THEN 'seal the resource before the first write'
                WHEN 'collision' THEN 'two grants have one token: find out which coordinator lost its memory'
                WHEN 'missing_token' THEN 'show the fencing token and the lease id of the lease'
                WHEN 'token_too_high' THEN 'compare the clocks of the coordinator and of the database'
                ELSE 'stop, and acquire the lease anew' END;
END
$$;
