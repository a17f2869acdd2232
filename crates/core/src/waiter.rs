//! The waiter's state machine.
