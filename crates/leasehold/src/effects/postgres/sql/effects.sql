-- Operations that happen once: tables. %schema% stands for the quoted name of the schema, as in the fence's files.
-- Every statement may be run again: that is how they are brought up to date.

-- One row a key. The primary key is what makes an operation happen once: a twin waits for the row, and then sees it.
CREATE TABLE IF NOT EXISTS %schema%.idempotency (
    scope text COLLATE "C" NOT NULL CHECK (octet_length(scope) BETWEEN 1 AND 255),
    key text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    request_hash bytea NOT NULL CHECK (octet_length(request_hash) = 32),
    state text NOT NULL CHECK (state IN ('started', 'done', 'needs_reconciliation')),
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    lease_id uuid NOT NULL,
    holder text NOT NULL,
    -- json, not jsonb: a repetition is answered with the text that was stored, to the byte.
    response json,
    note text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at timestamptz,
    -- NULL: kept for ever.
    expires_at timestamptz,
    PRIMARY KEY (scope, key),
    CHECK ((state = 'done') = (done_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS idempotency_expires ON %schema%.idempotency (expires_at) WHERE state = 'done';
CREATE INDEX IF NOT EXISTS idempotency_open ON %schema%.idempotency (created_at) WHERE state <> 'done';

-- Events, written in the transaction of their operation.
CREATE TABLE IF NOT EXISTS %schema%.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Numbers are drawn before commits, so a lower id may become visible later. The transaction tells which ones are settled.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 255),
    op_seq integer NOT NULL,
    payload json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    set_aside_at timestamptz,
    error text,
    UNIQUE (scope, key, topic, op_seq)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS outbox_waiting ON %schema%.outbox (xid, id) WHERE published_at IS NULL AND set_aside_at IS NULL;
CREATE INDEX IF NOT EXISTS outbox_retry ON %schema%.outbox (namespace, resource)
    WHERE published_at IS NULL AND set_aside_at IS NULL AND retry_at IS NOT NULL;

-- Gives word to a relay that rests, with the commit. Where none rests the lock can be shared, and nothing else is done: commits that
-- notify wait for one another. The lock is kept to the end of the transaction, so that no relay begins to rest behind its back.
CREATE OR REPLACE FUNCTION %schema%.outbox_wake() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(hashtext('leasehold outbox'), TG_RELID::int4) THEN
        PERFORM pg_notify('leasehold_outbox_' || TG_RELID, '');
    END IF;
    RETURN NULL;
END $$;
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '%schema%.outbox'::regclass AND tgname = 'outbox_wake') THEN
        CREATE TRIGGER outbox_wake AFTER INSERT OR UPDATE OF set_aside_at ON %schema%.outbox
            FOR EACH STATEMENT EXECUTE FUNCTION %schema%.outbox_wake();
    END IF;
END $$;

-- At a consumer: which events it has acted on.
CREATE TABLE IF NOT EXISTS %schema%.inbox (
    source text COLLATE "C" NOT NULL,
    event_id bigint NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, event_id)
);
