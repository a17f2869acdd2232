-- Fences an existing table: every row that is written must belong to a resource whose token this transaction has shown.

-- Shows a token for the rest of this transaction (or savepoint). Refuses as fence_check does.
CREATE OR REPLACE FUNCTION %schema%.fence_present(
    resource text, token bigint, lease_id uuid, op_seq bigint DEFAULT NULL, namespace text DEFAULT 'default', holder text DEFAULT ''
) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_xid text := pg_current_xact_id()::text;
    v_shown jsonb := coalesce(nullif(current_setting('leasehold.shown', true), ''), '{}')::jsonb;
BEGIN
    PERFORM %schema%.fence_decide('write', namespace, resource, token, lease_id, op_seq, holder);
    -- What another transaction of this session has left behind does not count.
    IF v_shown ->> 'xid' IS DISTINCT FROM v_xid THEN
        v_shown := jsonb_build_object('xid', v_xid);
    END IF;
    -- A namespace has no slash.
    PERFORM set_config('leasehold.shown', (v_shown || jsonb_build_object(namespace || '/' || resource, true))::text, true);
END
$$;

-- The check of one row. Arguments: the column, the namespace, what stands before the column's value in the resource's name.
CREATE OR REPLACE FUNCTION %schema%.fence_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_shown jsonb := coalesce(nullif(current_setting('leasehold.shown', true), ''), '{}')::jsonb;
    v_resources text[] := '{}';
    v_resource text;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'the table % is fenced, and TRUNCATE names no resource', TG_RELID::regclass USING ERRCODE = 'LHF04',
            HINT = 'delete the rows under their tokens';
    END IF;
    IF TG_OP <> 'INSERT' THEN
        v_resources := v_resources || (TG_ARGV[2] || (to_jsonb(OLD) ->> TG_ARGV[0]));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        v_resources := v_resources || (TG_ARGV[2] || (to_jsonb(NEW) ->> TG_ARGV[0]));
    END IF;
    FOREACH v_resource IN ARRAY v_resources LOOP
        IF v_resource IS NULL OR v_shown ->> 'xid' IS DISTINCT FROM pg_current_xact_id()::text
            OR NOT v_shown ? (TG_ARGV[1] || '/' || v_resource)
        THEN
            PERFORM nextval('%schema%.stale_write_rejected_total');
            RAISE LOG 'leasehold: a write was refused at the fence: reason=missing_token namespace=% resource=% table=%',
                TG_ARGV[1], quote_nullable(v_resource), TG_RELID::regclass;
            PERFORM %schema%.fence_refuse('missing_token', coalesce(v_resource, '(none)'), NULL, NULL, NULL);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- Fences a table by the column that names the resource: the resource of a row is prefix || column.
CREATE OR REPLACE FUNCTION %schema%.fence_table(
    p_table regclass, p_column name, p_prefix text DEFAULT '', p_namespace text DEFAULT 'default'
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = p_table AND attname = p_column AND attnum > 0 AND NOT attisdropped)
    THEN
        RAISE EXCEPTION 'the table % has no column %', p_table, p_column USING ERRCODE = '42703';
    END IF;
    EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS leasehold_fence ON %s', p_table);
    EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS leasehold_fence_truncate ON %s', p_table);
    -- After the row: no other trigger can still change which resource it belongs to.
    EXECUTE pg_catalog.format('CREATE TRIGGER leasehold_fence AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
        EXECUTE FUNCTION %schema%.fence_row(%L, %L, %L)', p_table, p_column, p_namespace, p_prefix);
    EXECUTE pg_catalog.format('CREATE TRIGGER leasehold_fence_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT
        EXECUTE FUNCTION %schema%.fence_row(%L, %L, %L)', p_table, p_column, p_namespace, p_prefix);
END
$$;

CREATE OR REPLACE FUNCTION %schema%.unfence_table(p_table regclass) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS leasehold_fence ON %s', p_table);
    EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS leasehold_fence_truncate ON %s', p_table);
END
$$;
