-- The history: grants that have ended, the last of each resource.

CREATE TABLE %schema%.past (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    lease_id uuid NOT NULL,
    holder_id uuid NOT NULL,
    label text,
    granted_us bigint,
    end_us bigint,
    end_how text,
    end_by text,
    end_note text,
    PRIMARY KEY (namespace, resource, token)
);

-- Whatever statement ends a grant, it is noted in the same one. About every sixteenth end of a resource takes away what is older
-- than the last sixteen.
CREATE FUNCTION %schema%.note_end_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO %schema%.past VALUES (OLD.namespace, OLD.resource, OLD.token, OLD.lease_id, OLD.holder_id, OLD.label,
        OLD.granted_us, NEW.end_us, NEW.end_how, NEW.end_by, NEW.end_note) ON CONFLICT DO NOTHING;
    IF OLD.token % 16 = 0 THEN
        DELETE FROM %schema%.past p WHERE p.namespace = OLD.namespace AND p.resource = OLD.resource AND p.token < (
            SELECT min(x.token) FROM (SELECT q.token FROM %schema%.past q
                WHERE q.namespace = OLD.namespace AND q.resource = OLD.resource ORDER BY q.token DESC LIMIT 16) x);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER note_end_1 AFTER UPDATE OF lease_id ON %schema%.slot FOR EACH ROW
    WHEN (OLD.lease_id IS NOT NULL AND (NEW.lease_id IS NULL OR NEW.lease_id <> OLD.lease_id))
    EXECUTE FUNCTION %schema%.note_end_1();

CREATE FUNCTION %schema%.history_1(p_ns text, p_resource text)
    RETURNS TABLE (lease_id uuid, token bigint, end_how text, end_by text, end_note text, end_us bigint, holder_id uuid,
        label text, granted_us bigint)
    LANGUAGE sql STABLE SET search_path = %schema%, pg_temp AS $$
    SELECT p.lease_id, p.token, p.end_how, p.end_by, p.end_note, p.end_us, p.holder_id, p.label, p.granted_us
    FROM past p WHERE p.namespace = p_ns AND p.resource = p_resource ORDER BY p.token DESC LIMIT 16
$$;
