-- The fence of a PostgreSQL database: tables. %schema% stands for the quoted name of the schema.
-- Every statement may be run again: that is how a fence is brought up to date.

CREATE SCHEMA IF NOT EXISTS %schema%;

-- One row a resource: the highest token that was let in, and whose it is.
CREATE TABLE IF NOT EXISTS %schema%.fence (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 255),
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    -- NULL: raised by hand, and its grant has not come yet.
    lease_id uuid,
    op_seq bigint CHECK (op_seq BETWEEN 1 AND 9007199254740991),
    holder text NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, resource),
    -- With the token in a unique index, raising it changes a key: it then waits for transactions that hold the row FOR KEY SHARE.
    -- Without this constraint it would not, and an older holder's open transaction would be overtaken.
    UNIQUE (namespace, resource, token)
) WITH (fillfactor = 70);

-- Counts refusals. A sequence, because the transaction that is refused is rolled back, and sequences are not.
CREATE SEQUENCE IF NOT EXISTS %schema%.stale_write_rejected_total;

CREATE OR REPLACE FUNCTION %schema%.fence_never_goes_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the fencing token of % would go back from % to %', OLD.resource, OLD.token, NEW.token USING ERRCODE = 'LHF06';
END
$$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '%schema%.fence'::regclass AND tgname = 'never_goes_back') THEN
        CREATE TRIGGER never_goes_back BEFORE UPDATE OF token ON %schema%.fence
            FOR EACH ROW WHEN (NEW.token < OLD.token) EXECUTE FUNCTION %schema%.fence_never_goes_back();
    END IF;
END
$$;
