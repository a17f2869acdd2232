-- The tables of Leasehold. Times are microseconds since 1970 by the server's clock_timestamp(); spans are milliseconds.
-- %schema% stands for the quoted name of the schema.

CREATE TABLE %schema%.format (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    -- The oldest client format whose functions are still here.
    oldest integer NOT NULL
);

-- One row a namespace: its settings, and which server it believes to be on.
CREATE TABLE %schema%.space (
    namespace text COLLATE "C" PRIMARY KEY,
    mode text NOT NULL CHECK (mode IN ('server_clock', 'observed', 'advisory')),
    -- Timeline and system identifier: changes when the server may have forgotten what it acknowledged.
    incarnation text NOT NULL,
    -- Rises with every quarantine, so that an observer can tell them apart.
    epoch integer NOT NULL DEFAULT 1,
    max_ttl_ms bigint NOT NULL CHECK (max_ttl_ms BETWEEN 1 AND 604800000),
    -- A bound that was lowered still counts for quarantines until then.
    longest_ttl_ms bigint NOT NULL,
    longest_until_us bigint NOT NULL DEFAULT 0,
    -- 0: no quarantine. Negative: over since then, as an observer has found.
    quarantine_until_us bigint NOT NULL,
    -- True once it has granted or was prepared: it can never be made fresh again.
    settled boolean NOT NULL,
    -- The highest token of a resource that was forgotten.
    token_floor bigint NOT NULL DEFAULT 0,
    -- When a client last took the turn to forget what is idle.
    purged_us bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- One row a resource. No index but the primary key may be added: a renewal must stay a HOT update.
CREATE TABLE %schema%.slot (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    -- The highest token ever given; of the holder while there is one.
    token bigint CHECK (token > 0),
    -- Held: when it expires. Free: since when.
    at_us bigint NOT NULL,
    granted_us bigint,
    success_us bigint,
    -- Where the holder is woken.
    wake bigint,
    -- Changes with every renewal: what an observer watches.
    seq integer NOT NULL DEFAULT 0,
    waiting integer NOT NULL DEFAULT 0,
    ttl_ms integer CHECK (ttl_ms > 0),
    -- The TTL and the lock-delay: no more than this can be left, unless the clock was set back.
    span_ms integer,
    -- NULL: free.
    lease_id uuid,
    holder_id uuid,
    label text,
    revoked_by text,
    revoked_note text,
    end_token bigint,
    end_us bigint,
    end_lease_id uuid,
    end_how text,
    end_by text,
    end_note text,
    PRIMARY KEY (namespace, resource)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Who waits, in order of seq.
CREATE TABLE %schema%.queue (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    lease_id uuid NOT NULL,
    label text NOT NULL,
    joined_us bigint NOT NULL,
    refreshed_us bigint NOT NULL,
    wake bigint,
    PRIMARY KEY (namespace, resource, seq),
    UNIQUE (namespace, resource, lease_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What one function answers to one request of a batch; which columns mean something depends on the word.
CREATE TYPE %schema%.answer AS (
    n integer,
    word text,
    how text,
    token bigint,
    lease_id uuid,
    holder_id uuid,
    label text,
    ttl_ms bigint,
    span_ms bigint,
    seq integer,
    at_us bigint,
    left_us bigint,
    revoked_by text,
    note text,
    place integer,
    ahead integer
);

-- For people. Never read by Leasehold.
CREATE VIEW %schema%.leases AS
    SELECT namespace, resource, token, lease_id, label,
        to_timestamp(granted_us / 1e6) AS granted_at, to_timestamp(at_us / 1e6) AS expires_at,
        revoked_by, revoked_note AS revoked_reason, waiting
    FROM %schema%.slot WHERE lease_id IS NOT NULL;
