//! What a holder does about time: TTL, renewal, margins, limits.
